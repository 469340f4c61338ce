"""A guardian's crew: one runner per node that is worked on, started again when it dies; no session without one."""

from __future__ import annotations

import time
from collections.abc import Mapping

from doflow.flow.dot import parser as reading
from doflow.flow.dot.model import ACTIVE, CODERGEN, FAILED, IMPL_COMPLETE, PENDING, TERMINAL, Node, Pipeline
from doflow.supervise import daemon as detach, preflight as fitness, workspace as places
from doflow.supervise.guardian.state import Shift
from doflow.supervise.panes import tmux
from doflow.supervise.runner import assignment as assignments, tools
from doflow.supervise.workspace import Place
from doflow.util.errors import FlowError
from doflow.util.process import runner as process
from doflow.util.records import replace

SOON = 20.0
FALLS = 4


def refuse(place: Place, environ: Mapping[str, str]) -> None:
    """Before anything is moved or started: what nodes that are worked on need. What else is wrong is said later."""
    try:
        pipeline = reading.read(place.dot)
    except FlowError:
        return
    if any(node.handler == CODERGEN for node in pipeline.nodes):
        fitness.refuse(pipeline, place.settings, place.root, environ)
        tmux.check()


def keep(shift: Shift, pipeline: Pipeline) -> None:
    """Every node that is worked on has its runner; what is over has neither runner nor session."""
    for node in pipeline.nodes:
        if node.handler != CODERGEN:
            continue
        if node.status in (ACTIVE, IMPL_COMPLETE):
            if not alive(shift, node.id):
                _start(shift, pipeline, node)
        elif node.status in (*TERMINAL, PENDING) and shift.record(node.id).get("open") and not alive(shift, node.id):
            shift.place.tmux.kill(tmux.session_of(node.id))
            shift.place.tmux.leave()
            for signal in shift.place.store.waiting(target="runner", node=node.id):
                shift.place.store.consume(signal)  # its runner died before it heard it, and nobody is to hear it now
            shift.keep(node.id, open=False)


def working(pipeline: Pipeline) -> list[str]:
    """The nodes that somebody works on, or whose work is under review."""
    return [
        node.id for node in pipeline.nodes if node.handler == CODERGEN and node.status in (ACTIVE, IMPL_COMPLETE)
    ]  # fmt: skip


def closed(shift: Shift, pipeline: Pipeline) -> bool:
    """Has every runner gone home?"""
    names = [node.id for node in pipeline.nodes if node.handler == CODERGEN]
    return not any(shift.record(name).get("open") for name in names)


def alive(shift: Shift, node: str) -> bool:
    """A runner holds the node's lock, or the one that we have just started is about to."""
    if places.holder(shift.place.node(node, "runner.lock")):
        return True
    pid = shift.runners.get(node, 0)
    if pid and detach.ended(pid) is None and detach.alive(pid):
        return True
    shift.runners.pop(node, None)
    return False


def _start(shift: Shift, pipeline: Pipeline, node: Node) -> None:
    """Hand the node to a new runner; one that falls again and again is not started for ever."""
    now = time.monotonic()
    falls = [when for when in shift.falls.get(node.id, []) if now - when < SOON]
    if len(falls) >= FALLS:
        log = process.tail(shift.place.node(node.id, "runner.log"), 1000).strip()
        shift.falls[node.id] = []
        if node.status == ACTIVE:
            shift.keep(node.id, feedback=log)
            shift.move(node.id, FAILED, f"its runner cannot work: {log.splitlines()[0] if log else 'no word of it'}")
        return
    record = shift.record(node.id)
    work = assignments.of_node(node, pipeline, shift.place.pipeline, shift.place.root, shift.place.settings)
    work = replace(work, attempt=max(1, int(record["attempt"])), feedback=record["feedback"], fresh=record["fresh"])
    shift.keep(node.id, assignment=assignments.plain(work), open=True)
    shift.falls[node.id] = [*falls, now]
    shift.runners[node.id] = tools.launch_runner(shift.place, node.id, shift.environ)
    watch = shift.place.tmux.attach(tmux.session_of(node.id))
    shift.place.note("guardian", "runner_spawned", node=node.id, pid=shift.runners[node.id], attempt=work.attempt)
    shift.say(f"{node.id}: runner {shift.runners[node.id]}, attempt {work.attempt}; watch it: {watch}")
