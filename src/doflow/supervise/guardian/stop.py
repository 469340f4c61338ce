"""Stop a pipeline: end its guardian, runners and sessions. Finished work is kept; `launch` resumes it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from doflow.flow.dot import parser
from doflow.flow.dot.model import ACTIVE, CODERGEN
from doflow.supervise import pipeline_context
from doflow.supervise.guardian.state import Say
from doflow.supervise.pipeline_context import PipelineContext
from doflow.util import locks, state_folder, timestamps
from doflow.util.errors import UsageError

MARK = "stop.json"
GRACE = 5.0


def stop(context: PipelineContext, say: Say) -> int:
    """End every layer, top down, so that none restarts another; returns how many processes and sessions were ended."""
    if not context.dot:
        raise UsageError(f"unknown pipeline {context.pipeline!r}", "give its file: doflow guardian stop NAME.dot")
    state_folder.create(context.root)
    mark = {"at": timestamps.format_microseconds(), "by": os.getpid()}
    pipeline_context.save(os.path.join(context.folder, MARK), mark)
    ended = _end(os.path.join(context.folder, "guardian.lock"), "guardian", say)
    nodes = [node for node in parser.read_pipeline(context.dot).nodes if node.handler == CODERGEN]
    for node in nodes:
        ended += _end(context.node(node.id, "runner.lock"), f"runner of {node.id}", say)
    for session in context.tmux.sessions() if os.path.isdir(context.folder) else ():
        context.tmux.kill(session)
        say(f"ended: session {session}")
        ended += 1
    context.tmux.leave()
    for node in nodes:
        if node.status == ACTIVE:
            _reset_runner(context, node.id)
    context.note("terminal", "stopped", ended=ended)
    return ended


def was_stopped(context: PipelineContext) -> bool:
    return os.path.exists(os.path.join(context.folder, MARK))


def clear_stop(context: PipelineContext) -> None:
    """Remove the mark: the pipeline is resumed."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(context.folder, MARK))


def _end(lock: str, words: str, say: Say) -> int:
    pid = locks.holder_pid(lock)
    if pid <= 0:
        return 0
    until = time.monotonic() + GRACE
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        while locks.holder_pid(lock) == pid and time.monotonic() < until:
            time.sleep(0.02)
        if locks.holder_pid(lock) == pid:
            os.kill(pid, signal.SIGKILL)
    say(f"ended: {words} (pid {pid})")
    return 1


def _reset_runner(context: PipelineContext, node: str) -> None:
    """The stopped attempt doesn't count as a retry. Finished work is still reviewed."""
    path = context.node(node, "node.json")
    record = pipeline_context.load(path)
    attempt = int(record.get("attempt", 0))
    if attempt and not context.store.find_reply(f"review.{node}.{attempt}", "NEEDS_REVIEW"):
        pipeline_context.save(path, {**record, "attempt": attempt + 1, "base": attempt, "fresh": True})
