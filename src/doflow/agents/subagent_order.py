"""The order of sub-agents in one call of an agent: its hooks beforehand, what really ran afterwards.

Hooks are asked by the agent's program; whether it did ask is seen in their records, and which sub-agents ran in its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from doflow.agents.adapters import json_stream as stream
from doflow.flow.model import Ask, Outcome, Profile, Status, Step
from doflow.hooks import (
    call_settings as settings,
    machine_loader as machines,
    session_admin as sessions,
    session_store as store,
    state_machine as rules,
    transcript,
)
from doflow.util.errors import UsageError
from doflow.util.process.command import Result
from doflow.util.records import dataclass, replace

if TYPE_CHECKING:
    from doflow.hooks.state_machine import Machine

AGENTS = ("claude", "codex")


@dataclass(frozen=True, slots=True)
class Order:
    """The rules of a call, taken before it, and the state that its session was in."""

    machine: Machine
    base: str
    root: str
    before: str

    def session(self, ident: str) -> store.Session:
        return store.Session(self.base, store.top(self.root), ident, self.machine["machine"])


def check(step: Step, profile: Profile, root: str) -> None:
    """Before a run begins: is the machine there, is it sound, can this agent be held to it?"""
    machines.compiled(root, step.machine)
    if profile.use not in AGENTS:
        raise UsageError(
            f"step {step.id} wants the machine {step.machine}; {profile.name} ({profile.use}) has no hooks to enforce it",
            f"let an agent with `use: claude` or `use: codex` do it, or take `machine:` out of step {step.id}",
        )


def arm(ask: Ask, environ: Mapping[str, str]) -> tuple[Ask, Order]:
    """The call with the hooks of its machine."""
    base = store.base(environ)
    machine = machines.compiled(ask.root, ask.machine)
    order = Order(machine, base, ask.root, machine["start"])
    if ask.resume:
        doc = sessions.read(order.session(ask.resume))
        order = order if rules.usable(machine, doc) else replace(order, before=doc["state"])
    hooks = settings.order(ask.machine, ask.profile.use, state=base)
    return replace(ask, hooks=(*ask.hooks, *hooks)), order


def judge(ask: Ask, order: Order, outcome: Outcome, log: str) -> Outcome:
    """A call that went well did so in order, or it did not go well."""
    if not outcome.ok:
        return outcome
    found = _codex(order, outcome, log) if ask.profile.use == "codex" else _claude(order, outcome, log)
    if not found:
        return outcome
    shown = "; ".join(dict.fromkeys(found))
    key = order.session(outcome.session).key
    hint = f"look: doflow machine history --session {key}   doflow logs {ask.step}   then run it again"
    return Outcome(
        Status.REFUSED, f"{ask.step} escaped from the machine {ask.machine}: {shown}", hint, outcome.text,
        session=outcome.session, model=outcome.model, usage=outcome.usage,
    )  # fmt: skip


def _claude(order: Order, outcome: Outcome, log: str) -> list[str]:
    if not _asked(order, outcome):
        return ["its hooks were never asked"]
    happened = list(transcript.deeds(_records(log)))
    allowed = {str(fact.get("use")) for fact in _facts(order, outcome) if fact.get("decision") == "allow"}
    unasked = [deed.agent for deed in happened if deed.what == "start" and deed.use not in allowed]
    missed = [f"{rules.short(agent)} ran, and its hook did not allow it" for agent in unasked]
    return transcript.escapes(order.machine, order.before, happened) or missed


def _codex(order: Order, outcome: Outcome, log: str) -> list[str]:
    """Codex does not write down which agent a thread is: what it told the hooks when the thread began counts."""
    if not _asked(order, outcome):
        return ["its hooks were never asked"]
    begun = {str(fact.get("id")): fact for fact in _facts(order, outcome) if fact.get("event") == "SubagentStart"}
    wrong = [fact for fact in begun.values() if fact.get("decision") == "escape"]
    found = [f"{rules.short(fact.get('agent'))} ran in {fact.get('state')}" for fact in wrong]
    return found + [f"the sub-agent {one} ran unseen" for one in transcript.spawned(_records(log)) if one not in begun]


def _asked(order: Order, outcome: Outcome) -> bool:
    return bool(outcome.session) and any(_facts(order, outcome))


def _facts(order: Order, outcome: Outcome) -> list[dict[str, object]]:
    return list(sessions.facts([order.session(outcome.session).folder]))


def _records(log: str) -> stream.Records:
    return stream.records(Result(0, log, ""), lambda: "", transcript.KINDS)
