"""The runners of a guardian: one per active node, restarted when it dies; no session without a runner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from doflow.flow.dot import parser
from doflow.flow.dot.model import ACTIVE, CODERGEN, FAILED, IMPL_COMPLETE, PENDING, TERMINAL, Node, Pipeline
from doflow.supervise import ownership
from doflow.supervise.guardian.state import Guardian
from doflow.supervise.panes import tmux
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.runner import orchestrator, tools
from doflow.util import locks
from doflow.util.errors import FlowError, Problem
from doflow.util.process import runner

SOON = 20.0
MAX_CRASHES = 4


def refuse_unsuitable(context: PipelineContext, environ: Mapping[str, str]) -> None:
    """Before anything starts: refuse a pipeline whose nodes can't run in panes. Other errors are reported later."""
    try:
        pipeline = parser.read_pipeline(context.dot)
    except FlowError:
        return
    if any(node.handler == CODERGEN for node in pipeline.nodes):
        problems = orchestrator.find_problems(pipeline, context.settings, context.root, environ)
        found = tuple(Problem(pipeline.path, one.line, 1, one.message, one.hint) for one in problems)
        if found:
            raise FlowError(found)
        tmux.check_installed()


def keep_runners(guardian: Guardian, pipeline: Pipeline) -> None:
    """Start missing runners; end the sessions of finished nodes."""
    for node in pipeline.nodes:
        if node.handler != CODERGEN or is_alive(guardian, node.id):
            continue
        earlier = node.status == IMPL_COMPLETE and not int(guardian.record(node.id)["attempt"])
        if node.status in (ACTIVE, IMPL_COMPLETE) and not earlier:
            _start(guardian, pipeline, node)
        elif node.status in (*TERMINAL, PENDING) and guardian.record(node.id).get("open"):
            guardian.context.tmux.kill(tmux.session_name(node.id))
            guardian.context.tmux.leave()
            for signal in guardian.context.store.waiting(target="runner", node=node.id):
                guardian.context.store.consume(signal)  # its runner died, and no other one needs it
            guardian.keep(node.id, open=False)


def working_nodes(pipeline: Pipeline) -> list[str]:
    """The active nodes and those under review."""
    nodes = [node for node in pipeline.nodes if node.handler == CODERGEN]
    return [node.id for node in nodes if node.status in (ACTIVE, IMPL_COMPLETE)]


def all_ended(guardian: Guardian, pipeline: Pipeline) -> bool:
    """Have all runners ended?"""
    names = [node.id for node in pipeline.nodes if node.handler == CODERGEN]
    return not any(guardian.record(name).get("open") for name in names)


def is_alive(guardian: Guardian, node: str) -> bool:
    """A runner holds the node's lock, or was just started."""
    if locks.holder_pid(guardian.context.node(node, "runner.lock")):
        return True
    pid = guardian.runners.get(node, 0)
    if pid and ownership.exit_code(pid) is None and ownership.is_alive(pid):
        return True
    guardian.runners.pop(node, None)
    return False


def _start(guardian: Guardian, pipeline: Pipeline, node: Node) -> None:
    """Start a runner for the node; after several crashes in a row the node fails."""
    now = time.monotonic()
    context, record = guardian.context, guardian.record(node.id)
    attempt = node.id, max(1, int(record["attempt"]))
    crashes = [when for when in guardian.crashes.get(attempt, []) if now - when < SOON]
    if len(crashes) >= MAX_CRASHES:
        log = runner.tail(guardian.context.node(node.id, "runner.log"), 1000).strip()
        guardian.crashes[attempt] = []
        if node.status == ACTIVE:
            guardian.keep(node.id, feedback=log)
            guardian.move(node.id, FAILED, f"its runner keeps failing: {log.splitlines()[0] if log else 'no output'}")
        return
    work = orchestrator.assignment_for(node, pipeline, context.pipeline, context.root, context.settings)
    work = replace(work, attempt=attempt[1], feedback=record["feedback"], fresh=record["fresh"])
    if guardian.position is not None:
        position = guardian.position
        work = replace(work, before=position.reports(node.id), ending=position.instructions(node))
    guardian.keep(node.id, assignment=orchestrator.assignment_to_dict(work), open=True)
    guardian.crashes[attempt] = [*crashes, now]
    guardian.runners[node.id] = pid = tools.launch_runner(context, node.id, guardian.environ)
    context.note("guardian", "runner_spawned", node=node.id, pid=pid, attempt=work.attempt)
    watch = context.tmux.attach(tmux.session_name(node.id))
    guardian.say(f"{node.id}: runner {pid}, attempt {work.attempt}; watch it with: {watch}")
