"""Agent selection: the agent of a step or its fallback, checks before a run starts, and transports."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from doflow.agents import rate_limits, registry, spending, subagent_order
from doflow.agents.adapters import vendor_cli
from doflow.flow.model import BY_AGENT, Ask, Outcome, Profile, Step
from doflow.flow.parsing import loader
from doflow.guard import sandbox
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util.errors import UsageError


def find_profile(step: Step, context: RunContext) -> Profile:
    """The profile that does a step now; an undefined agent is an error."""
    return _named(rate_limits.available_agent(step, context), step, context)


def choose_model(step: Step, profile: Profile, context: RunContext) -> str:
    """The model of a step: its own `model` applies only to its own agent, not to a fallback."""
    return (step.model if profile.name == context.profile_of(step) else "") or profile.model


def check_agents(context: RunContext) -> None:
    """Before a run starts: check every agent that may do a step, including fallbacks."""
    for name in context.order.active():
        step = context.flow.step(name)
        if step is not None and (step.kind in BY_AGENT or step.repair):
            for who in rate_limits.candidate_agents(step, context):
                _check(_named(who, step, context), step, context)
            if step.fixer:
                _named(context.profile_of(replace(step, agent=step.fixer)), step, context)


def _check(profile: Profile, step: Step, context: RunContext) -> None:
    agent = registry.find_agent(profile.use)
    if profile.args and profile.use in registry.CLIS:
        vendor_cli.refuse_managed(getattr(agent, "PROGRAM"), profile)  # noqa: B009 - only a CLI's file has one
    if step.machine:
        subagent_order.check_machine(step, profile, str(context.root))
    if profile.sandbox:
        sandbox.probe(profile, str(context.root), context.environ)
    spending.check_prices(profile, step, context)
    if step.via == "tmux" or step.judge:
        find_transport("tmux").check(step, profile, context)


def _named(name: str, step: Step, context: RunContext) -> Profile:
    found = context.settings.profile(name)
    if found is None and name in registry.KNOWN:
        return Profile(name, name)
    if found is None:
        known = ", ".join(profile.name for profile in context.settings.agents)
        at = _place(name, step, context)
        raise UsageError(
            f"{at}step {step.id} names the agent {name!r}, which doflow.yaml does not define (defined: {known})",
            f"add it below `agents:` in doflow.yaml, for example  {name}: {{use: command, argv: [python3, agent.py]}}",
        )
    return found


def _place(name: str, step: Step, context: RunContext) -> str:
    """The place in the flow's file that names this agent, as a prefix; '' = none."""
    word = next((word for word in ("agent", "fallback", "fixer") if getattr(step, word) == name), "")
    if not word or context.options.agent == name:
        return ""
    drawn = context.flow.file.endswith((".dot", ".gv"))
    at = step.origin if drawn else loader.key_origin(context.root, step, word)
    return f"{at.file}:{at.line}:{at.column}: "


class Transport(Protocol):
    def check(self, step: Step, profile: Profile, context: RunContext) -> None:
        """Raises before a run starts if the step cannot be done this way."""

    def send(self, ask: Ask, job: Job, context: RunContext, out: str) -> Outcome:
        """One call from start to end; `out` is its log."""


_transports: dict[str, Transport] = {}


def register_transport(name: str, transport: Transport) -> None:
    _transports[name] = transport


def find_transport(name: str) -> Transport:
    return _transports[name]
