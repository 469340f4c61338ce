"""What the eleven tools of guardian and runner do; each returns the JSON object that its command prints."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from doflow.flow.dot import parser
from doflow.supervise import ownership, pipeline_context, signal_store, signal_watch
from doflow.supervise.panes import screen, tmux
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.runner import orchestrator
from doflow.supervise.runner.orchestrator import Assignment, assignment_to_dict
from doflow.supervise.signal_store import KINDS, Signal
from doflow.util import locks, state_folder
from doflow.util.errors import UsageError

#: payload field → command-line option
OPTIONS = {
    "evidence_path": "evidence", "commit_hash": "commit", "question_text": "question", "options": "option",
    "violation_type": "violation_type", "evidence": "evidence", "last_output": "last_output",
    "duration_seconds": "duration", "exit_code": "exit_code", "summary": "summary", "new_status": "new_status",
    "feedback": "feedback", "retry_count": "retry_count", "response_text": "response", "reason": "reason",
    "message": "message", "issue": "issue", "error": "error", "stack_trace": "stack_trace",
}  # fmt: skip
_DEFAULTS: dict[str, Any] = {
    "evidence_path": "", "commit_hash": "", "options": [], "last_output": "", "exit_code": None, "stack_trace": "",
    "new_status": "validated", "retry_count": 1, "evidence": "", "duration_seconds": 0,
}  # fmt: skip


def send(context: PipelineContext, kind: str, given: Namespace, source: str) -> dict[str, Any]:
    """Send a signal from a command's options."""
    kind = kind.upper()
    signal_store.resolve_address(Signal(kind, source=source, target=KINDS[kind][1] if kind in KINDS else ""))
    payload: dict[str, Any] = {}
    for name in KINDS[kind][2]:
        option = "node" if name == "node_id" else OPTIONS.get(name, "")
        value = context.pipeline if name == "pipeline_id" else getattr(given, option, None)
        payload[name] = _DEFAULTS.get(name) if value is None else value
        if name != "pipeline_id" and (value == "" or (value is None and name not in _DEFAULTS)):
            hint = f"its fields: {', '.join(KINDS[kind][2])}"
            raise UsageError(f"{kind} needs --{option.replace('_', '-')}", hint)
    if payload.get("commit_hash") == "":
        payload["commit_hash"] = orchestrator.head_commit(context.root)
    sent = context.store.write(Signal(kind, payload))
    return {"status": "ok", "signal_file": sent.path, "signal_type": kind, "id": sent.unique}


def wait_for_signal(
    context: PipelineContext, given: Namespace, target: str, hand: Callable[[dict[str, Any]], None]
) -> bool:
    """Output the next signal, then file it; False = timeout."""
    context.store.prepare()
    end = time.monotonic() + given.timeout

    def look() -> bool | None:
        for found in context.store.waiting(given.source, target, (given.type or "").upper(), given.node or ""):
            with context.store.claimed(found) as claimed:
                if claimed:
                    hand(signal_report(found))
                    if not given.peek:
                        context.store.consume(found)
                    return True
        return None

    return bool(signal_watch.until(look, [context.store.folder], end - time.monotonic()))


def signal_report(signal: Signal) -> dict[str, Any]:
    fields = signal_store.signal_to_dict(signal)
    del fields["pid"]  # it would be this process's
    return {"status": "ok", **fields, "signal_file": signal.path}


def read_signal_file(context: PipelineContext, name: str) -> dict[str, Any]:
    for folder in ("", context.store.folder, os.path.join(context.store.folder, signal_store.PROCESSED)):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return signal_report(signal_store.read_signal(path))
    raise UsageError(f"no signal file {name}", f"list them: doflow signal list; folder: {context.store.folder}")


def assignment(context: PipelineContext, given: Namespace) -> Assignment:
    """The assignment from a tool's options, which override the DOT file."""
    found = Assignment(given.node, context.pipeline, cwd=context.root, style=context.settings.supervision.style)
    if context.dot:
        pipeline = parser.read_pipeline(context.dot)
        node = pipeline.node(given.node)
        if node is None:
            raise UsageError(f"{context.dot} has no node {given.node}", f"doflow dot status {context.dot}")
        found = orchestrator.assignment_for(node, pipeline, context.pipeline, context.root, context.settings)
    options = {name: getattr(given, name, None) for name in (*orchestrator.PROMPT_FIELDS, "worktree")}
    attributes = {**found.attributes, **{name: value for name, value in options.items() if value}}
    return replace(
        found, attributes=attributes, cwd=orchestrator.work_folder(context.root, attributes),
        agent=given.agent or found.agent, attempt=given.attempt or found.attempt,
    )  # fmt: skip


def spawn_runner(context: PipelineContext, given: Namespace) -> dict[str, Any]:
    """Start the runner of a node, unless one is running."""
    work = assignment(context, given)
    path = context.node(work.node, "node.json")
    pid = locks.holder_pid(context.node(work.node, "runner.lock"))
    if pid:
        hint = f"wait for it, or stop it: kill {pid}"
        raise UsageError(f"a runner is working on {work.node} already (pid {pid})", hint)
    state_folder.create(context.root)
    pipeline_context.save(path, {**pipeline_context.load(path), "assignment": assignment_to_dict(work)})
    pid, prd = launch_runner(context, work.node, os.environ), work.attributes.get("prd_ref", "")
    return {"status": "ok", "node": work.node, "prd": prd, "runner_config": path, "pid": pid}


def launch_runner(context: PipelineContext, node: str, environ: Mapping[str, str]) -> int:
    words = ("runner", "run", "--node", node, *(("--pipeline", context.pipeline) if context.pipeline else ()))
    log = context.node(node, "runner.log")
    return ownership.start_detached(words, context.root, log, {**environ, "DOFLOW_SIGNALS": context.base})


def spawn_orchestrator(context: PipelineContext, given: Namespace) -> dict[str, Any]:
    work = assignment(context, given)
    state_folder.create(context.root)
    memory = context.node(work.node, "runner.json")
    number = int(pipeline_context.load(memory).get("seat", 0)) + 1
    found = orchestrator.spawn(context, work, number, os.environ)
    pipeline_context.save(memory, {"attempt": work.attempt, "seat": number})
    path = context.node(work.node, "node.json")
    pipeline_context.save(path, {**pipeline_context.load(path), "assignment": assignment_to_dict(work)})
    return {
        "status": "ok", "session": found.session, "tmux_cmd": context.tmux.attach(found.session),
        "socket": context.tmux.socket, "prompt": os.path.join(found.folder, "prompt.md"),
    }  # fmt: skip


def session_argument(given: Namespace) -> str:
    if given.session:
        return str(given.session)
    if given.node:
        return tmux.session_name(given.node)
    raise UsageError("which session?", "give --session orch-NAME or --node NAME")


def capture(context: PipelineContext, given: Namespace) -> dict[str, Any]:
    name = _existing_session(context, given)
    text = context.tmux.capture(name, given.lines)
    reading = screen.read_screen(text)
    seen = {
        "question": reading.question,
        "options": list(reading.options),
        "error": reading.error,
        "busy": reading.busy,
    }
    return {"status": "ok", "session": name, "lines": len(text.splitlines()), "content": text, "seen": seen}


def send_to(context: PipelineContext, given: Namespace) -> dict[str, Any]:
    name = _existing_session(context, given)
    if given.keys:
        context.tmux.press(name, *given.keys)
    if given.message is not None:
        context.tmux.type(name, given.message)
    if not given.keys and given.message is None:
        raise UsageError("nothing to send", "give --message TEXT or --keys Escape")
    return {"status": "ok", "session": name, "message": given.message or "", "keys": given.keys or []}


def check_alive(context: PipelineContext, given: Namespace) -> dict[str, Any]:
    name = session_argument(given)
    node = context.tmux.mark(name, "node") or given.node or ""
    memory = pipeline_context.load(context.node(node, "runner.json")) if node else {}
    return {
        "status": "ok", "alive": context.tmux.alive(name), "session": name, "node": node,
        "runner": locks.holder_pid(context.node(node, "runner.lock")) if node else 0, "health": memory.get("health", {}),
    }  # fmt: skip


def _existing_session(context: PipelineContext, given: Namespace) -> str:
    name = session_argument(given)
    if not context.tmux.exists(name):
        known = ", ".join(context.tmux.sessions()) or "none"
        message = f"no session {name} on the tmux server {context.tmux.socket} (sessions: {known})"
        raise UsageError(message, "spawn it first")
    return name
