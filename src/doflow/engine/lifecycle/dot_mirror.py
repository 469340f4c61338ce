"""A run of a DOT pipeline, written back into its file: what the steps do, the nodes show.

It listens to the ledger. The truth is in the ledger; whatever was missed is made good at the next entry.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from doflow.flow.dot import (
    checkpoint,
    compile as translate,
    order as graph,
    parser as reading,
    transitions as moves,
    unroll as loops,
)
from doflow.flow.dot.model import (
    ACTIVE,
    CODERGEN,
    CONDITION,
    EXIT,
    FAILED,
    GATE,
    IMPL_COMPLETE,
    PENDING,
    START,
    VALIDATED,
    Pipeline,
)
from doflow.flow.dot.unroll import Turn, Unrolled
from doflow.runs.context import World
from doflow.util.errors import DoflowError
from doflow.util.timestamps import now

_HEARD = frozenset({
    "run_started", "step_starting", "returned", "step_complete", "error", "paused", "rate_limited", "gate", "approved",
    "rejected", "adopted",
})  # fmt: skip


class Echo:
    """One per run at work."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._path = world.flow.file
        self._states: dict[str, str] = {}
        self._told = ""
        self.lock = -1  # held until the process ends

    def hear(self, entry: Mapping[str, Any]) -> None:
        event, step = entry["event"], entry.get("step", "")
        if event not in _HEARD:
            return
        if event == "step_starting":
            self._states[step] = ACTIVE
        elif event == "returned":
            self._states[step] = IMPL_COMPLETE
        elif event == "gate":
            self._states[step] = ACTIVE
        elif event == "error" and step:
            self._states[step] = FAILED
        else:
            self._states.pop(step, None)
        self.write(f"{step}: {event}" if step else event)

    def write(self, note: str) -> None:
        """Bring the file up to date. What goes wrong is told, once, and stops nothing: the run itself is elsewhere."""
        try:
            pipeline = reading.read(self._path)
            moves.follow(self._path, self.wanted(pipeline), by=f"run {self._world.run.name}", note=note)
            self._own()
        except (DoflowError, OSError) as error:
            words = f"the statuses in {os.path.basename(self._path)} were not written: {error}"
            if words != self._told:
                self._told = words
                run = self._world.run.name
                self._world.listen({"event": "warning", "at": now(), "run": run, "message": words})

    def wanted(self, pipeline: Pipeline) -> dict[str, tuple[str, int]]:
        """The status and the retries of each node, as the run has them now."""
        unrolled = loops.unroll(pipeline)
        order = self._world.order()
        found: dict[str, tuple[str, int]] = {}
        for name in graph.sequence(pipeline, graph.order(pipeline).back):
            turns = [unrolled.turns[one] for one in order if one in unrolled.turns]
            mine = [turn for turn in turns if turn.node.id == name]
            if mine:
                found[name] = self._status(mine[-1]), dict(mine[-1].tries).get(name, 1) - 1
            else:
                known = {one: status for one, (status, _) in found.items()}
                found[name] = self._joint(pipeline, unrolled, name, known), 0
        return found

    def _status(self, turn: Turn) -> str:
        held = self._states.get(turn.id)
        if held == IMPL_COMPLETE and turn.node.handler != CODERGEN:
            return ACTIVE
        if held is not None:
            return held
        record = self._world.book.steps.get(turn.id)
        if record is None:
            person = turn.node.handler == GATE and translate.person(turn.node)
            return VALIDATED if person and turn.id in self._world.book.approvals else PENDING
        if turn.node.handler == CONDITION:
            return VALIDATED if record.marker == translate.PASS else FAILED
        step = self._world.flow.step(turn.id)
        text = self._world.place.text(self._world.path(step.makes[0])) if step and step.makes else None
        return FAILED if text is not None and text.rstrip().endswith(translate.FAIL) else VALIDATED

    def _joint(self, pipeline: Pipeline, unrolled: Unrolled, name: str, known: Mapping[str, str]) -> str:
        """A node without work of its own: done when all before it is; one that is not on the way any more stays."""
        node = pipeline.node(name)
        if node is None or node.handler in loops.WORK:
            return PENDING
        if node.handler == START:
            return VALIDATED
        if node.handler == EXIT:
            return VALIDATED if self._complete(unrolled) else PENDING
        before = [known.get(edge.start, PENDING) for edge in pipeline.into(name)]
        return VALIDATED if before and all(status == VALIDATED for status in before) else PENDING

    def _complete(self, unrolled: Unrolled) -> bool:
        """All is done, and no diamond has failed for the last time."""
        book, order = self._world.book, self._world.order()
        lasts = [book.steps[name] for name in order if name in book.steps and unrolled.turns[name].last]
        done = all(name in book.steps or name in book.approvals for name in order)
        return done and not self._states and all(record.marker == translate.PASS for record in lasts)

    def _own(self) -> None:
        """What we wrote ourselves is nobody's trespass, and goes into the next commit."""
        root = os.path.join(os.path.realpath(self._world.root), "")
        for path in (self._path, moves.log(self._path), checkpoint.place(self._path)):
            full = os.path.realpath(path)
            if full.startswith(root):
                shown = full.removeprefix(root)
                self._world.own[shown] = self._world.digest(shown)
