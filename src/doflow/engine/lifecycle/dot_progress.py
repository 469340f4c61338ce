"""What a DOT file says was done outside of this run, before it or between its parts: those steps are taken over, not done again.

The list is kept with the run until each of its steps was taken over, so that a killed or paused run continues with it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from doflow.engine.jobs import adoption
from doflow.engine.steps import gate
from doflow.flow.dot import compiler, parser, routing, transitions
from doflow.flow.dot.model import CODERGEN, GATE, IMPL_COMPLETE, VALIDATED, Node, Pipeline
from doflow.flow.dot.unroll import Unrolled
from doflow.flow.model import Step
from doflow.runs.context import RunContext
from doflow.runs.lockfile import Approval
from doflow.util import atomic_files, timestamps
from doflow.util.errors import FlowError, UsageError

_NAME = "dot-progress.json"


def mover_name(context: RunContext) -> str:
    """The name of a run in the log of transitions."""
    return f"run {context.run.name}"


class DotProgress:
    """The steps that one run takes over from its file; `start_over`: the person asked for a new run, which begins again."""

    def __init__(self, context: RunContext, start_over: bool) -> None:
        self._context = context
        self._path = os.path.join(context.state_dir, _NAME)
        self._saved = ""
        self._steps = {} if start_over else {**self._load(), **self._from_file()}

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes whose steps are still to be taken over."""
        return frozenset(self._steps.values())

    def save(self) -> None:
        text = json.dumps(self._steps)
        if text != self._saved and (self._steps or self._saved) and os.path.isdir(self._context.state_dir):
            atomic_files.write_file(self._path, text.encode("utf-8"))
            self._saved = text

    def adopts(self, step: Step) -> bool:
        node = self._steps.pop(step.id, "")
        if not node:
            return False
        context = self._context
        why = f"{node} was done before this run, as {os.path.basename(context.flow.file)} says"
        if step.kind == "gate":
            seen = gate.shown_digest(step, context)
            with context.guard:
                context.record.approve(
                    step.id, Approval(seen, os.path.basename(context.flow.file), why, timestamps.now())
                )
                context.record.mark_uncommitted(step.id)
            context.events.add("approved", step=step.id, by=os.path.basename(context.flow.file), shown=seen)
        else:
            for made in step.makes:
                path = context.root / context.files.path(made)
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_files.write_file(str(path), f"{why}.\n\n{compiler.PASS}\n".encode())
            adoption.adopt_step(context, step.id, why)
        self.save()
        return True

    def _load(self) -> dict[str, str]:
        try:
            with open(self._path, encoding="utf-8") as file:
                self._saved = file.read()
            return {str(step): str(node) for step, node in json.loads(self._saved).items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def _from_file(self) -> dict[str, str]:
        """The step of each node that others have done: validated, or worked on with a check still to come."""
        try:
            pipeline = parser.read_pipeline(self._context.flow.file)
            planned = compiler.plan_pipeline(pipeline)
            movers = _last_movers(self._context.flow.file)
        except FlowError:
            return {}  # reported when the flow is loaded
        found = {}
        own = mover_name(self._context)
        for node in pipeline.nodes:
            if movers.get(node.id) == own:
                continue
            done = node.status == VALIDATED or (
                node.status == IMPL_COMPLETE and self._is_validated_later(pipeline, node)
            )
            if done and routing.works(node):
                steps = planned.tries_of(node.id) if isinstance(planned, Unrolled) else planned.visits(node.id)
                name = self._next_step([one if isinstance(one, str) else one.id for one in steps])
                step = self._context.flow.step(name)
                found.update({name: node.id} if step is not None and not step.clarify and not step.routes else {})
        return found

    def _next_step(self, steps: Sequence[str]) -> str:
        """Of the steps of one node the one that its status is about: the first, or the one after those that this run has done."""
        record, active = self._context.record, self._context.order.active()
        done = [name for name in steps if name in record.steps or name in record.approvals]
        left = [name for name in steps if name not in done and (name in active or not done)]
        return next(iter(left), "")

    def _is_validated_later(self, pipeline: Pipeline, node: Node) -> bool:
        """Finished work counts if its check passes or a gate follows; else a person has to say so first."""
        if node.handler != CODERGEN:
            return False
        if node.get("check"):
            done = subprocess.run(
                ("sh", "-c", node.get("check")), cwd=self._context.root, capture_output=True, check=False
            )
            return done.returncode == 0
        after = [pipeline.node(edge.to) for edge in pipeline.out_of(node.id)]
        if any(found is not None and (found.handler == GATE or found.command) for found in after):
            return True
        shown = os.path.relpath(self._context.flow.file, self._context.root)
        message = f"{shown}:{node.line}: {node.id} is impl_complete, and nothing in the pipeline validates it"
        hint = f"doflow dot transition {shown} {node.id} validated   or, to have it done again: … active"
        raise UsageError(message, hint)


def _last_movers(path: str) -> dict[str, str]:
    """Who moved each node last, as the log says; a node that was never moved is missing."""
    found: dict[str, str] = {}
    try:
        with open(transitions.log_path(path), encoding="utf-8", errors="replace") as file:
            for line in file:
                with suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    found[str(entry["node"])] = str(entry["by"])
    except OSError:
        pass
    return found
