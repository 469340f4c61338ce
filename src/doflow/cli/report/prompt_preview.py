"""A run as it would be once it has begun, without beginning it: for looking at what would be sent."""

from __future__ import annotations

import hashlib

from doflow.cli.report import step_status as outlook
from doflow.engine.steps import agent, shell
from doflow.flow.model import BY_AGENT, Step
from doflow.runs import catalogue as runs
from doflow.runs.context import World
from doflow.runs.freshness import freshness as judge
from doflow.runs.job import Job
from doflow.runs.state.fingerprint import Place
from doflow.util.errors import UsageError
from doflow.util.records import names


class _Place(Place):
    """Where `input.md` already holds the goal."""

    __slots__ = ("input",)

    def text(self, path: str) -> str | None:
        return self.input[1] if path == self.input[0] else super().text(path)

    input: tuple[str, str]


class _Begun(World):
    def digest(self, path: str) -> str:
        if path == f"{self.run.dir}/{self.input}":
            return hashlib.sha256(self._goal().encode("utf-8", "surrogateescape")).hexdigest()
        return super().digest(path)

    @property
    def place(self) -> Place:
        real = super().place
        imagined = _Place(real.root, real.run_dir, real.boxed, self.digest)
        object.__setattr__(imagined, "input", (f"{self.run.dir}/{self.input}", self._goal()))
        return imagined

    def _goal(self) -> str:
        return runs.goal_text(self.run.goal, self.input)


def begun(world: World) -> World:
    """The same world if its run is there; else one in which it has just begun."""
    if not world.run.fresh or not world.run.goal or outlook.away(world):
        return world
    return _Begun(**{name: getattr(world, name) for name in names(World)})


def job(world: World, step: Step, number: str) -> Job:
    """What would be handed to the agent for this step, or for this phase of it."""
    if step.kind == "implement":
        return _phase(step, number, world)
    if step.kind == "review":
        return _review(step, number, world)
    if step.foreach:
        step = _item(step, number, world)
    if step.kind not in BY_AGENT and not step.repair:
        own = {"gate": "asks a person", "install": "is done by doflow itself", "session": "is a session of its own"}
        what = own.get(step.kind, f"runs a command: {' '.join(step.run) or step.shell}")
        raise UsageError(f"{step.id} has no prompt: it {what}", "doflow plan lists who does each step")
    return shell.job(step, world) if step.kind == "shell" else agent.job(step, world)


def _review(step: Step, persona: str, world: World) -> Job:
    if (step.mode or world.settings.review_mode) == "command":
        raise UsageError(f"{step.id} has no prompt: it is done by review_command", "doflow config review_command")
    if persona and persona not in step.personas:
        known = ", ".join(step.personas)
        hint = f"doflow plan --prompt {step.id}:{step.personas[0]}"
        raise UsageError(f"{step.id} has no persona {persona} (it has: {known})", hint)
    return Job(step, world.key(step), (), ())


def _item(step: Step, name: str, world: World) -> Step:
    items = {item.id.partition(":")[2]: item for item in world.items(step)}
    if not items:
        words = f"{step.id} has no prompt yet: the list of its items does not exist"
        raise UsageError(words, f"{world.again} makes it; doflow plan shows by which step")
    if name and name not in items:
        known = ", ".join(items)
        raise UsageError(f"{step.id} has no item {name} (it has: {known})", f"doflow plan --prompt {step.id}")
    return items[name or next(iter(items))]


def _phase(step: Step, number: str, world: World) -> Job:
    """The phase that is named; else the first that is not done; else the first."""
    path = world.phases(step)
    if not world.digest(path):
        words = f"{step.id} has no prompt yet: its phases stand in {path}, which does not exist"
        raise UsageError(words, f"{world.again} makes it; doflow plan shows by which step")
    keyed = judge.phase_keys(step, world)
    open_ = [phase.number for phase, key in keyed if not judge.of_phase(step, phase, key, world).fresh]
    wanted = number or (open_ or [keyed[0][0].number])[0]
    for place, (phase, key) in enumerate(keyed):
        if phase.number == wanted:
            return Job(step, key, (), step.writes, phase, last=place == len(keyed) - 1)
    there = ", ".join(phase.number for phase, _ in keyed)
    hint = f"doflow plan --prompt {step.id}:{keyed[0][0].number}"
    raise UsageError(f"{path} has no phase {wanted} (it has: {there})", hint)
