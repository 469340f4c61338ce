"""For looking after a kill: a run as the next start finds it, once that has put aside what a killed step left half-made.

What such a step wrote is nobody's edit. Nothing is written here, and nothing is put back yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from doflow.cli.report import next_command as advice, step_status as outlook
from doflow.cli.report.step_status import Line
from doflow.engine.lifecycle import recovery
from doflow.engine.lifecycle.session import Work
from doflow.runs import mutex as holder
from doflow.runs.context import World
from doflow.runs.state.fingerprint import Place
from doflow.util import atomic_files as files
from doflow.util.errors import DoflowError
from doflow.util.records import names, replace


class _Place(Place):
    """Where the artifacts hold what they will hold then."""

    __slots__ = ("aside",)

    def text(self, path: str) -> str | None:
        if path not in self.aside:
            return super().text(path)
        data = self.aside[path]
        return None if data is None else data.replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")

    aside: Mapping[str, bytes | None]


class _After(World):
    """`aside`: what will stand in the files that are put back (None = no file); `killed`: the jobs that left them."""

    aside: Mapping[str, bytes | None]
    killed: frozenset[str]

    def digest(self, path: str) -> str:
        if path not in self.aside:
            return super().digest(path)
        data = self.aside[path]
        return "" if data is None else files.digest_of(data)

    @property
    def place(self) -> Place:
        real = super().place
        imagined = _Place(real.root, real.run_dir, real.boxed, self.digest)
        object.__setattr__(imagined, "aside", self.aside)
        return imagined


def seen(work: Work) -> World:
    """The world of this work, from now on as the next start finds it: another one only after a kill."""
    world = work.world
    window = (world.state_dir / "window").exists()
    if world.run.fresh or not (window or world.book.begun) or outlook.away(world) or holder.held(world.root):
        return world
    try:
        killed, aside = recovery.foreseen(world, work.fence)
    except DoflowError:
        return world  # whoever goes on is told
    if not (window and killed) and not aside:
        return world
    after = _After(**{name: getattr(world, name) for name in names(World)})
    after.aside, after.killed = aside, killed
    work.world = after
    return after


def killed(world: World) -> bool:
    """Whether a step of the run was killed at work, and what it left is still there."""
    return isinstance(world, _After)


def noted(lines: tuple[Line, ...], world: World) -> tuple[Line, ...]:
    """The lines, with a remark where something is going to be put aside."""
    if not isinstance(world, _After):
        return lines
    return tuple(_noted(line, world) for line in lines)


def _noted(line: Line, world: _After) -> Line:
    step = world.step(line.name) if line.role == "item" else world.flow.step(line.step)
    made = [world.path(said) for said in step.makes] if step is not None and line.role in ("step", "item") else []
    left = ", ".join(path for path in made if path in world.aside)
    if not left and line.name not in world.killed:
        return line
    words = f"what a killed process left{f' in {left}' if left else ''} is put aside by {advice.command(world)}"
    return replace(line, remarks=(words, *line.remarks))
