"""Writes the progress of a run back to its DOT file: the nodes show the statuses of the steps.

It listens to the event log, which is authoritative; a missed update is made up for at the next event.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from doflow.engine.lifecycle.dot_progress import DotProgress, mover_name
from doflow.flow.dot import compiler, model, order as graph, parser, routing, transitions, unroll
from doflow.flow.dot.model import ACTIVE, FAILED, IMPL_COMPLETE, PENDING, VALIDATED, Node, Pipeline
from doflow.flow.dot.unroll import NodeRun, Unrolled
from doflow.flow.dot.walk import Walk, WalkStep, node_statuses
from doflow.flow.model import Step
from doflow.runs.context import RunContext
from doflow.supervise import ownership
from doflow.util.errors import DoflowError
from doflow.util.timestamps import now

#: the events after which a step has a status of its own; after the others its record tells
_STATES = {"step_starting": ACTIVE, "gate": ACTIVE, "returned": IMPL_COMPLETE, "error": FAILED}
_EVENTS = {*_STATES, "run_started", "step_complete", "paused", "rate_limited", "approved", "rejected", "adopted"}


class DotMirror:
    """Mirrors one active run."""

    def __init__(self, context: RunContext, command: str, start_over: bool = False) -> None:
        self._context = context
        self._path = context.flow.file
        self._states: dict[str, str] = {}
        self._warned = ""
        self._progress = DotProgress(context, start_over)
        self.lock = ownership.lock_for_run(str(context.root), self._path, command)  # held until the process ends

    def on_event(self, entry: Mapping[str, Any]) -> None:
        event, step = entry["event"], entry.get("step", "")
        if event not in _EVENTS:
            return
        if event in _STATES and step:
            self._states[step] = _STATES[event]
        else:
            self._states.pop(step, None)
        self.write(f"{step}: {event}" if step else event)

    def adopts(self, step: Step) -> bool:
        """Take over a step whose node was done before the run, as the file says. The work is not done again."""
        return self._progress.adopts(step)

    def write(self, note: str) -> None:
        """Update the file. An error is reported once and doesn't stop the run."""
        try:
            pipeline = parser.read_pipeline(self._path)
            self._progress.save()
            left = self._progress.nodes
            wanted = {
                name: pair for name, pair in self.wanted(pipeline).items() if name not in left or pair[0] != PENDING
            }
            transitions.follow(self._path, wanted, by=mover_name(self._context), note=note)
            self._own()
        except (DoflowError, OSError) as error:
            message = f"the statuses in {os.path.basename(self._path)} were not written: {error}"
            if message != self._warned:
                self._warned = message
                run = self._context.run.name
                self._context.listen({"event": "warning", "at": now(), "run": run, "message": message})

    def wanted(self, pipeline: Pipeline) -> dict[str, tuple[str, int]]:
        """The status and retry count of each node, from the run."""
        planned = compiler.plan_pipeline(pipeline)
        if isinstance(planned, Walk):
            return self._walked(planned)
        return self._unrolled(pipeline, planned)

    def _walked(self, walk: Walk) -> dict[str, tuple[str, int]]:
        steps = [step for name in self._context.order.active() if (step := walk.steps.get(name))]
        return node_statuses(walk, steps, self._visit_status, self._finished(steps))

    def _visit_status(self, step: WalkStep) -> str:
        if not step.decides:
            return self._step_status(step.id, step.node)
        held = self._states.get(step.id)
        return held or (VALIDATED if step.id in self._context.record.steps else PENDING)

    def _finished(self, steps: Sequence[WalkStep]) -> bool:
        book = self._context.record
        if self._states or not all(step.id in book.steps or step.id in book.approvals for step in steps):
            return False
        last = self._context.flow.step(steps[-1].id) if steps else None
        marker = book.steps[last.id].marker if last is not None and last.id in book.steps else ""
        return not any(route.when == marker and route.pause for route in (last.routes if last else ()))

    def _unrolled(self, pipeline: Pipeline, unrolled: Unrolled) -> dict[str, tuple[str, int]]:
        order = self._context.order.active()
        found: dict[str, tuple[str, int]] = {}
        turns = {turn.node.id: turn for step in order if (turn := unrolled.turns.get(step))}  # the last one of each
        for name in graph.topological_sequence(pipeline, graph.compute_order(pipeline).back):
            if turn := turns.get(name):
                found[name] = self._status(turn), dict(turn.tries).get(name, 1) - 1
            else:
                known = {one: status for one, (status, _) in found.items()}
                found[name] = self._joint(pipeline, unrolled, name, known), 0
        return found

    def _status(self, turn: NodeRun) -> str:
        record = self._context.record.steps.get(turn.id)
        if turn.node.handler == model.CONDITION and record is not None and turn.id not in self._states:
            return VALIDATED if record.marker == compiler.PASS else FAILED
        return self._step_status(turn.id, turn.node)

    def _step_status(self, name: str, node: Node) -> str:
        """The status of a node from the step that works on it."""
        held = self._states.get(name)
        if held == IMPL_COMPLETE and node.handler != model.CODERGEN:
            return ACTIVE
        if held is not None:
            return held
        if name not in self._context.record.steps:
            person = node.handler == model.GATE and routing.needs_person(node)
            return VALIDATED if person and name in self._context.record.approvals else PENDING
        step = self._context.flow.step(name)
        text = self._context.files.text(self._context.files.path(step.makes[0])) if step and step.makes else None
        return FAILED if text is not None and text.rstrip().endswith(compiler.FAIL) else VALIDATED

    def _joint(self, pipeline: Pipeline, unrolled: Unrolled, name: str, known: Mapping[str, str]) -> str:
        """The status of a node without work: validated when all nodes before it are."""
        node = pipeline.node(name)
        if node is None or node.handler in unroll.WORK:
            return PENDING
        if node.handler == model.START:
            return VALIDATED
        if node.handler == model.EXIT:
            return VALIDATED if self._complete(unrolled) else PENDING
        before = [known.get(edge.start, PENDING) for edge in pipeline.into(name)]
        return VALIDATED if before and all(status == VALIDATED for status in before) else PENDING

    def _complete(self, unrolled: Unrolled) -> bool:
        """Everything is done, and no diamond has failed for good."""
        book, order = self._context.record, self._context.order.active()
        lasts = [book.steps[name] for name in order if name in book.steps and unrolled.turns[name].last]
        done = all(name in book.steps or name in book.approvals for name in order)
        return done and not self._states and all(record.marker == compiler.PASS for record in lasts)

    def _own(self) -> None:
        """Register our own writes, so that they are not reported and go into the next commit."""
        root = os.path.join(os.path.realpath(self._context.root), "")
        for path in (self._path, transitions.log_path(self._path), transitions.checkpoint_path(self._path)):
            full = os.path.realpath(path)
            if full.startswith(root):
                shown = full.removeprefix(root)
                self._context.own[shown] = self._context.files.digest(shown)
