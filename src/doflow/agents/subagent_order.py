"""Sub-agent order in one agent call: hooks before the call, a check of what really ran afterwards.

The hooks' records show whether the agent's program called them; its own log shows which sub-agents ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from doflow.agents.adapters import json_stream
from doflow.flow.model import Ask, Outcome, Profile, Status, Step
from doflow.hooks import call_settings, events, machine_loader, session_admin, session_store, state_machine
from doflow.util.errors import UsageError
from doflow.util.hints import Next
from doflow.util.process.runner import Result

if TYPE_CHECKING:
    from doflow.hooks.state_machine import Machine

AGENTS = ("claude", "codex")


@dataclass(frozen=True, slots=True)
class Order:
    """The rules of a call and the state of its session before the call."""

    machine: Machine
    base: str
    root: str
    before: str

    def session(self, ident: str) -> session_store.Session:
        return session_store.Session(self.base, session_store.project_root(self.root), ident, self.machine["machine"])


def check_machine(step: Step, profile: Profile, root: str) -> None:
    """Before a run starts: check that the machine is valid and that the agent supports its hooks."""
    machine_loader.load_machine(root, step.machine)
    if profile.use not in AGENTS:
        raise UsageError(
            f"step {step.id} needs the machine {step.machine}, but {profile.name} ({profile.use}) has no hooks to enforce it",
            f"use an agent with `use: claude` or `use: codex`, or remove `machine:` from step {step.id}",
        )


def add_hooks(ask: Ask, environ: Mapping[str, str]) -> tuple[Ask, Order]:
    """The call with the hooks of its machine."""
    base = session_store.sessions_folder(environ)
    machine = machine_loader.load_machine(ask.root, ask.machine)
    order = Order(machine, base, ask.root, machine["start"])
    if ask.resume:
        doc = session_admin.load_document(order.session(ask.resume))
        order = order if state_machine.document_problem(machine, doc) else replace(order, before=doc["state"])
    hooks = call_settings.order_hooks(ask.machine, ask.profile.use, state=base)
    return replace(ask, hooks=(*ask.hooks, *hooks)), order


def check_order(ask: Ask, order: Order, outcome: Outcome, log: str) -> Outcome:
    """Refuse a successful call that broke the order."""
    if not outcome.ok:
        return outcome
    found = _codex(order, outcome, log) if ask.profile.use == "codex" else _claude(order, outcome, log)
    if not found:
        return outcome
    shown = "; ".join(dict.fromkeys(found))
    key = order.session(outcome.session).key
    steps = (
        Next(("doflow", "machine", "history", "--session", key), "look"),
        Next(("doflow", "logs", ask.step), link="and"),
    )
    return Outcome(
        Status.REFUSED, f"{ask.step} escaped from the machine {ask.machine}: {shown}", text=outcome.text,
        session=outcome.session, model=outcome.model, usage=outcome.usage, next=steps,
    )  # fmt: skip


def _claude(order: Order, outcome: Outcome, log: str) -> list[str]:
    if not _asked(order, outcome):
        return ["its hooks were never called"]
    happened = list(agent_events(_records(log)))
    allowed = {str(fact.get("use")) for fact in _facts(order, outcome) if fact.get("decision") == "allow"}
    unasked = [deed.agent for deed in happened if deed.what == "start" and deed.use not in allowed]
    missed = [f"{state_machine.display_name(agent)} ran without permission from its hook" for agent in unasked]
    return escapes(order.machine, order.before, happened) or missed


def _codex(order: Order, outcome: Outcome, log: str) -> list[str]:
    """Codex does not log the agent of a thread, so the hooks' records are used."""
    if not _asked(order, outcome):
        return ["its hooks were never called"]
    begun = {str(fact.get("id")): fact for fact in _facts(order, outcome) if fact.get("event") == "SubagentStart"}
    wrong = [fact for fact in begun.values() if fact.get("decision") == "escape"]
    found = [f"{state_machine.display_name(fact.get('agent'))} ran in {fact.get('state')}" for fact in wrong]
    silent = [thread for thread in spawned(_records(log)) if thread not in begun]
    return found + [f"sub-agent {thread} ran without calling its hooks" for thread in silent]


def _asked(order: Order, outcome: Outcome) -> bool:
    return bool(outcome.session) and any(_facts(order, outcome))


def _facts(order: Order, outcome: Outcome) -> list[dict[str, object]]:
    return list(session_admin.journal_entries([order.session(outcome.session).folder]))


def _records(log: str) -> json_stream.Records:
    return json_stream.records(Result(0, log, ""), lambda: "", KINDS)


KINDS = ("assistant", "user", "task_started", "task_notification", "collab_tool_call")


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """A sub-agent started or stopped; `use` is the id of the call that asked for it."""

    what: str
    use: str
    agent: str


def agent_events(records: Iterable[dict[str, Any]]) -> Iterator[AgentEvent]:
    """Starts and stops in the stream of Claude Code."""
    asked: dict[str, str] = {}
    begun: dict[str, str] = {}
    ended: set[str] = set()
    for record in records:
        use, kind = str(record.get("tool_use_id", "")), record.get("subtype")
        if kind == "task_started" and record.get("task_type", "local_agent") == "local_agent":
            begun[use] = str(record.get("subagent_type") or asked.get(use, ""))
            yield AgentEvent("start", use, begun[use])
        elif kind == "task_notification" and use in begun and use not in ended:
            ended.add(use)
            yield AgentEvent("stop" if record.get("status") == "completed" else "lost", use, begun[use])
        for block in _blocks(record):
            use = str(block.get("id") or block.get("tool_use_id") or "")
            if block.get("type") == "tool_use" and block.get("name") in events.TOOLS:
                payload = {"tool_name": block["name"], "tool_input": block.get("input")}
                asked[use] = events.requested_agent(payload) or ""
            elif block.get("type") == "tool_result" and use in asked and not block.get("is_error"):
                if use not in begun:
                    begun[use] = asked[use]
                    yield AgentEvent("start", use, begun[use])
                if use not in ended:
                    ended.add(use)
                    yield AgentEvent("stop", use, begun[use])


def spawned(records: Iterable[dict[str, Any]]) -> list[str]:
    """The ids of the sub-agents that Codex started."""
    found: list[str] = []
    for record in records:
        item = record.get("item")
        if record.get("type") == "item.completed" and isinstance(item, dict) and item.get("tool") == "spawn_agent":
            threads = item.get("receiver_thread_ids")
            found += [str(thread) for thread in threads] if isinstance(threads, list) else []
    return found


def escapes(machine: Machine, state: str, happened: Iterable[AgentEvent]) -> list[str]:
    """What ran although the machine forbids it, when every deed is played again from a state."""
    doc = state_machine.new_document(machine, "", "", "")
    doc["state"] = state
    found = []
    for deed in happened:
        if deed.what == "start":
            why = state_machine.refusal(machine, doc["state"], deed.agent)
            if why:
                found.append(f"{state_machine.display_name(deed.agent)} ran in {doc['state']}")
            state_machine.agent_started(machine, doc, deed.agent, deed.use, "")
        elif deed.what == "stop":
            state_machine.agent_stopped(machine, doc, deed.agent, deed.use, "", "")
    return found


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    return json_stream.record_list(json_stream.nested_record(record, "message").get("content"))
