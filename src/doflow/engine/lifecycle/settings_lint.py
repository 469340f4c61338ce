"""Settings that name steps: which of those names no step of the project has. A gate that stands nowhere stops nobody."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from doflow.config.layers import FILE
from doflow.flow import subflow
from doflow.flow.model import Flow, Settings
from doflow.flow.parsing import loader as load
from doflow.flow.parsing.document import nearest
from doflow.runs.context import World
from doflow.util.errors import FlowError, Problem

_AFTER = "after-"


class Stranger(NamedTuple):
    """A key of the settings, where it was said, and the step that may have been meant ('' = none is near)."""

    path: tuple[str, ...]
    where: str
    near: str

    @property
    def message(self) -> str:
        return f"no flow has a step for {self.path[-1]!r} in {'.'.join(self.path[:-1])}, so it has no effect"


def among(chosen: Settings, steps: Collection[str]) -> Iterator[Stranger]:
    """The names that none of these steps has; of an agent's route and of a timeout the beginning of a step's name is enough."""
    where = {path: who for path, _, who in chosen.origins}
    gates = [(("gates", gate), gate.removeprefix(_AFTER) in steps) for gate in chosen.gates]
    routes = [(("route_agents", name), _begins(name, steps)) for name, _ in chosen.route_agents]
    times = [(("timeouts", "steps", name), _begins(name, steps)) for name, *_ in chosen.step_timeouts]
    for path, known in (*gates, *routes, *times):
        if not known:
            before = _AFTER if path[0] == "gates" else ""
            said = ".".join(path)
            who = next((who for leaf, who in where.items() if leaf == said or leaf.startswith(f"{said}.")), FILE)
            close = nearest(path[-1].removeprefix(before), sorted(steps), 0.7)
            yield Stranger(path, who, close.replace("'", f"'{before}", 1))


def _begins(name: str, steps: Collection[str]) -> bool:
    return any(step.startswith(name) for step in steps)


def problems(root: Path, chosen: Settings, steps: Collection[str]) -> list[Problem]:
    """All of them, each at its place."""
    found = []
    for one in among(chosen, steps):
        line, column = (1, 1)
        if one.where.startswith(FILE):
            line, column = load.document(root / FILE, FILE).where(one.path, key=True)
        hint = one.near or "name a step (`doflow show FLOW`), or take the line out"
        found.append(Problem(one.where.partition(":")[0], line, column, one.message, hint))
    return found


def steps(*flows: Flow, known: dict[str, Flow]) -> set[str]:
    """The ids of all steps, those of flows inside flows too."""
    return {step.id for flow in flows for one in (flow, subflow.inline(flow, known)) for step in one.steps}


def warn(world: World) -> None:
    """A run is told of a name that is nearly one of its steps, and no step of any other flow."""
    mine = {step.id for step in world.flow.steps}
    near = {one.path: one for one in among(world.settings, mine) if one.near}
    if not near:
        return
    try:
        flows = load.catalogue(world.root, world.settings.command_variant).flows
    except FlowError:
        return
    for one in among(world.settings, mine | steps(*flows.values(), known=flows)):
        if one.path in near:
            message = f"{one.where}: {one.message}; {near[one.path].near}"
            world.ledger.add("warning", message=message)
