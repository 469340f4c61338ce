"""Who does a step: its agent, or who stands in for it while that one is rate limited; and is everybody there?"""

from __future__ import annotations

from doflow.agents import rate_limits as patience, registry, spending as budget
from doflow.flow.model import BY_AGENT, Profile, Step
from doflow.runs.context import World
from doflow.util.errors import UsageError
from doflow.util.records import replace


def profile(step: Step, world: World) -> Profile:
    """Who does a step now; an agent that is not there, or not named, is an error in words."""
    return _named(patience.stand_in(step, world), step, world)


def model(step: Step, profile: Profile, world: World) -> str:
    """A step's own model is of its own agent: who stands in for that one has a model of his own."""
    return (step.model if profile.name == world.profile_of(step) else "") or profile.model


def check(world: World) -> None:
    """Before a run begins: is everybody there who is to do a step of it, or may stand in for somebody?"""
    for name in world.order():
        step = world.flow.step(name)
        if step is not None and (step.kind in BY_AGENT or step.repair):
            for who in patience.chain(step, world):
                _check(_named(who, step, world), step, world)
            if step.fixer:
                _named(world.profile_of(replace(step, agent=step.fixer)), step, world)


def _check(profile: Profile, step: Step, world: World) -> None:
    agent = registry.find(profile.use)
    if profile.args and profile.use in registry.CLIS:
        from doflow.agents.adapters import vendor_cli as endings

        endings.refuse_managed(getattr(agent, "PROGRAM"), profile)  # noqa: B009 - only a CLI's file has one
    if step.machine:
        from doflow.agents import subagent_order as ordering

        ordering.check(step, profile, str(world.root))
    if profile.sandbox:
        from doflow.guard import sandbox

        sandbox.probe(profile, str(world.root), world.environ)
    budget.check(profile, step, world)
    if step.via == "tmux" or step.judge:
        from doflow.supervise import pane_call as paned

        paned.refuse(step, profile, world)


def _named(name: str, step: Step, world: World) -> Profile:
    found = world.settings.profile(name)
    if found is None and name in registry.KNOWN:
        return Profile(name, name)
    if found is None:
        known = ", ".join(profile.name for profile in world.settings.agents)
        at = _place(name, step, world)
        raise UsageError(
            f"{at}step {step.id} wants the agent {name!r}, which doflow.yaml does not have (it has: {known})",
            f"add it below `agents:` in doflow.yaml, for example  {name}: {{use: command, argv: [python3, agent.py]}}",
        )
    return found


def _place(name: str, step: Step, world: World) -> str:
    """Where the flow's file names this agent, as a prefix; '' = it does not."""
    from doflow.flow.parsing import loader as load

    word = next((word for word in ("agent", "fallback", "fixer") if getattr(step, word) == name), "")
    if not word or world.options.agent == name:
        return ""
    drawn = world.flow.file.endswith((".dot", ".gv"))
    at = step.origin if drawn else load.place(world.root, step, word)
    return f"{at.file}:{at.line}:{at.column}: "
