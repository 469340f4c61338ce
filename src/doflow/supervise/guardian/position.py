"""Where a guardian stands in a pipeline whose nodes decide the way: the visits that are done, the decisions between them.

The steps, the results and the scripts that decide are those of `doit NAME`, so that both go the same way. The state is
`walk.json` and one file `results/STEP.md` for each visit, in the folder of the pipeline.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from doflow.flow import markdown, plan
from doflow.flow.dot import compiler, node_steps, routing, walk, walk_steps
from doflow.flow.dot.model import CODERGEN, FAILED, PENDING, VALIDATED, Node, Pipeline
from doflow.flow.dot.walk import Walk, WalkStep, WantedResults
from doflow.flow.model import Flow, Route, Step
from doflow.supervise import pipeline_context
from doflow.supervise.pipeline_context import PipelineContext
from doflow.util import atomic_files
from doflow.util.errors import DoflowError

_SHOWN = 4000


class Position:
    """The position of one guardian in its walk; `load` returns None for a pipeline without decisions of this kind."""

    def __init__(self, context: PipelineContext, pipeline: Pipeline, found: Walk) -> None:
        self._context, self.walk, self.wanted = context, found, WantedResults(found)
        steps = walk_steps.build_steps(found, context.settings.agents)
        self._steps: Mapping[str, Step] = {step.id: step for step in steps}
        self._plan = plan.build_plan(Flow(context.pipeline, "", (), steps, found.first), context.settings)
        self._path = os.path.join(context.folder, "walk.json")
        known = pipeline_context.load(self._path)
        self._done: dict[str, str] = dict(known.get("done", {}))
        self._begun: dict[str, None] = dict.fromkeys(known.get("begun", ()))
        self._redone: dict[str, int] = dict(known.get("redone", {}))
        self._earlier: dict[str, str] = {}
        self._forget_restarted(pipeline)
        self._earlier = self._done_earlier(pipeline)

    def active(self) -> tuple[WalkStep, ...]:
        """The steps up to the next decision that is not made yet."""
        return tuple(self.walk.steps[name] for name in plan.active_steps(self._plan, self._done))

    def ready(self) -> tuple[WalkStep, ...]:
        """The steps that can be done now: visits whose sources are done; a decision after everything before it."""
        found: list[WalkStep] = []
        open_: set[tuple[str, int]] = set()
        for step in self.active():
            if step.id in self._done:
                continue
            if not open_ or not (step.decides or open_ & step.sources.keys()):
                found.append(step)
            open_.add((step.node.id, step.lap))
        return tuple(found)

    def current(self, node: str) -> WalkStep | None:
        """The last visit of a node."""
        return next((step for step in reversed(self.active()) if step.node.id == node and not step.decides), None)

    def is_begun(self, step: WalkStep) -> bool:
        return step.id in self._begun

    def begin(self, step: WalkStep) -> None:
        self._begun[step.id] = None
        self._save()

    def earlier_result(self, step: WalkStep) -> str:
        """How this visit ended before the guardian started, as the file says; '' = it was not done."""
        return self._earlier.get(step.id, "")

    def finish(self, step: WalkStep, report: str) -> None:
        """The visit is done; the report ends with its result."""
        atomic_files.write_file(self._result(step), f"{report.rstrip()}\n".encode("utf-8", "replace"))
        self._done[step.id] = ""
        self._begun[step.id] = None
        self._save()

    def decide(self, step: WalkStep) -> Route:
        """Where a decision leads, by the script that doit runs for it; not recorded yet."""
        argv = tuple(word.replace("{run_dir}", self._context.folder) for word in self._steps[step.id].run)
        done = subprocess.run(
            argv, cwd=self._context.root, capture_output=True, text=True, errors="replace", check=False
        )
        route = plan.find_route(self._steps[step.id], markdown.last_line(done.stdout))
        if done.returncode or route is None:
            reason = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
            raise DoflowError(f"where {step.node.id} leads is not known: {reason}")
        return route

    def follow(self, step: WalkStep, route: Route) -> tuple[WalkStep, ...]:
        """Record a decision; returns the visits that come now."""
        self._done[step.id] = route.when
        self._save()
        return tuple(
            one for name in route.then if not (one := self.walk.steps[name]).decides and name not in self._done
        )

    def pause_token(self, step: WalkStep) -> str:
        """The name of the question that a person is asked at this decision."""
        return f"paused.{step.id}.{self._redone.get(step.id, 0)}"

    def redo(self, step: WalkStep, route: Route) -> None:
        """A person wants it tried again: the results that led here count as not done."""
        self._redone[step.id] = self._redone.get(step.id, 0) + 1
        self._forget((step.id, *route.again))

    def ended(self) -> bool:
        return all(step.id in self._done for step in self.active())

    def statuses(self, pipeline: Pipeline) -> dict[str, tuple[str, int]]:
        """The status and retry count of the nodes without work: passed, or not."""
        known = {node.id: node.status for node in pipeline.nodes}

        def status(step: WalkStep) -> str:
            if step.decides:
                return VALIDATED if step.id in self._done else PENDING
            return known[step.node.id] if step.id in self._begun else PENDING

        found = walk.node_statuses(self.walk, self.active(), status, self.ended())
        return {name: pair for name, pair in found.items() if not routing.works(self.walk.graph.nodes[name])}

    def instructions(self, node: Node) -> str:
        """How the report of a worker must end, because the way depends on it; '' = it doesn't."""
        if node.handler != CODERGEN or not self.wanted.decides(node):
            return ""
        lines = " or ".join(f"`{line}`" for line in self.wanted.endings(node))
        return f"{self.wanted.other_lines(node)}The last line of your final message must be {lines}."

    def reports(self, node: str) -> str:
        """The results that this visit follows, quoted."""
        step = self.current(node)
        sources = [one for one in self.active() if step is not None and (one.node.id, one.lap) in step.sources]
        parts = []
        for one in sources:
            text = "" if one.decides else self._read(one).strip()[-_SHOWN:]
            if text:
                parts.append(f"{one.node.id}:\n" + "\n".join(f"> {line}".rstrip() for line in text.splitlines()))
        return "\n\n".join(parts)

    def _result(self, step: WalkStep) -> str:
        path = os.path.join(self._context.folder, node_steps.result_path(step.id))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def _read(self, step: WalkStep) -> str:
        try:
            with open(self._result(step), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def _save(self) -> None:
        pipeline_context.save(
            self._path, {"done": self._done, "begun": list(self._begun), "redone": self._redone}
        )  # fmt: skip

    def _forget(self, names: Sequence[str]) -> None:
        """These steps count as not done, nor do those that only they led to."""
        for name in names:
            self._done.pop(name, None)
            self._begun.pop(name, None)
            self._earlier.pop(name, None)
            if os.path.exists(path := self._result(self.walk.steps[name])):
                os.unlink(path)
        self._save()

    def _forget_restarted(self, pipeline: Pipeline) -> None:
        """Visits whose node is pending again count as not done, with all that came after: the file was reset."""
        known = {node.id: node.status for node in pipeline.nodes}
        order = self.active()
        last = {step.node.id: step.id for step in order if not step.decides}
        for place, step in enumerate(order):
            if step.id in self._done and last.get(step.node.id) == step.id and known.get(step.node.id) == PENDING:
                self._forget([one.id for one in order[place:]])
                return

    def _done_earlier(self, pipeline: Pipeline) -> dict[str, str]:
        """The first visits of nodes that have ended in the file before this guardian came to them, with their outcome."""
        found = {}
        for node in pipeline.nodes:
            first = next(iter(self.walk.visits(node.id)), "")
            failed = node.status == FAILED and self.wanted.decides(node)
            if first and first not in self._begun and (node.status == VALIDATED or failed):
                found[first] = node_steps.FAIL if failed else node_steps.PASS
        return found


def load(context: PipelineContext, pipeline: Pipeline) -> Position | None:
    """The position in a pipeline that is walked; None = the order of its nodes is that of its edges."""
    found = compiler.plan_pipeline(pipeline)
    return Position(context, pipeline, found) if isinstance(found, Walk) else None
