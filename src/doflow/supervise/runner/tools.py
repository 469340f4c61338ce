"""The deeds of the eleven tools, each giving the one object that its command prints."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

from doflow.supervise import daemon as detach, workspace as places
from doflow.supervise.panes import screen, tmux
from doflow.supervise.runner import orchestrator
from doflow.supervise.runner.assignment import Assignment, plain
from doflow.supervise.signals import store, types as kinds, watch
from doflow.supervise.signals.types import KINDS, Signal
from doflow.supervise.workspace import Place
from doflow.util.errors import UsageError

#: what a payload holds → the option that says it
OPTIONS = {
    "evidence_path": "evidence", "commit_hash": "commit", "question_text": "question", "options": "option",
    "violation_type": "violation_type", "evidence": "evidence", "last_output": "last_output",
    "duration_seconds": "duration", "exit_code": "exit_code", "summary": "summary", "new_status": "new_status",
    "feedback": "feedback", "retry_count": "retry_count", "response_text": "response", "reason": "reason",
    "message": "message", "issue": "issue", "error": "error", "stack_trace": "stack_trace",
}  # fmt: skip
_UNSAID: dict[str, Any] = {
    "evidence_path": "", "commit_hash": "", "options": [], "last_output": "", "exit_code": None, "stack_trace": "",
    "new_status": "validated", "retry_count": 1, "evidence": "", "duration_seconds": 0,
}  # fmt: skip


def send(place: Place, kind: str, given: Namespace, source: str) -> dict[str, Any]:
    """Write a signal out of a command's options."""
    kind = kind.upper()
    kinds.addressed(Signal(kind, source=source, target=KINDS[kind][1] if kind in KINDS else ""))
    payload: dict[str, Any] = {}
    for name in KINDS[kind][2]:
        if name == "node_id":
            payload[name] = _needed(given.node, kind, "--node")
        elif name == "pipeline_id":
            payload[name] = place.pipeline
        else:
            payload[name] = _said(name, kind, given)
    if payload.get("commit_hash") == "":
        payload["commit_hash"] = orchestrator.head(place.root)
    sent = place.store.write(Signal(kind, payload))
    return {"status": "ok", "signal_file": sent.path, "signal_type": kind, "id": sent.unique}


def _said(name: str, kind: str, given: Namespace) -> Any:
    value = getattr(given, OPTIONS[name], None)
    if value is None and name in _UNSAID:
        return _UNSAID[name]
    return _needed(value, kind, f"--{OPTIONS[name].replace('_', '-')}")


def _needed(value: Any, kind: str, option: str) -> Any:
    if value is None or value == "":
        raise UsageError(f"{kind} needs {option}", f"it carries: {', '.join(KINDS[kind][2])}")
    return value


def wait(place: Place, given: Namespace, target: str, hand: Callable[[dict[str, Any]], None]) -> bool:
    """Hand over the next signal, then file it; False = none came in time."""
    place.store.prepare()
    end = time.monotonic() + given.timeout

    def look() -> bool | None:
        for found in place.store.waiting(given.source, target, (given.type or "").upper(), given.node or ""):
            with place.store.claimed(found) as mine:
                if mine:
                    hand(shown(found))
                    if not given.peek:
                        place.store.consume(found)
                    return True
        return None

    return bool(watch.until(look, [place.store.folder], end - time.monotonic()))


def shown(signal: Signal) -> dict[str, Any]:
    said = {name: value for name, value in kinds.plain(signal).items() if name != "pid"}  # which would be ours
    return {"status": "ok", **said, "signal_file": signal.path}


def read(place: Place, name: str) -> dict[str, Any]:
    for path in (name, os.path.join(place.store.folder, name), os.path.join(place.store.folder, store.PROCESSED, name)):
        if os.path.isfile(path):
            return shown(store.read(path))
    raise UsageError(f"there is no signal file {name}", f"doflow signal list shows what is in {place.store.folder}")


def assignment(place: Place, given: Namespace) -> Assignment:
    """What the options of a tool say of a node, over what its DOT file says."""
    from doflow.flow.dot import parser as reading
    from doflow.supervise.runner import assignment as assignments

    found = Assignment(given.node, place.pipeline, cwd=place.root, style=place.settings.supervision.style)
    if place.dot:
        pipeline = reading.read(place.dot)
        node = pipeline.node(given.node)
        if node is None:
            raise UsageError(f"{place.dot} has no node {given.node}", f"doflow dot status {place.dot}")
        found = assignments.of_node(node, pipeline, place.pipeline, place.root, place.settings)
    names = (
        "prd_ref",
        "prd_section",
        "solution_design",
        "acceptance",
        "target_dir",
        "bead_id",
        "worker_type",
        "worktree",
    )
    said = {name: value for name in names if (value := getattr(given, name, None))}
    attributes = {**found.attributes, **said}
    folder = attributes.get("worktree") or attributes.get("target_dir") or ""
    changes: Mapping[str, Any] = {
        "attributes": attributes, "cwd": os.path.normpath(os.path.join(place.root, folder)),
        **({"agent": given.agent} if given.agent else {}), **({"attempt": given.attempt} if given.attempt else {}),
    }  # fmt: skip
    from doflow.util.records import replace

    return replace(found, **changes)


def spawn_runner(place: Place, given: Namespace) -> dict[str, Any]:
    """Start the runner of a node, unless one is at work."""
    work = assignment(place, given)
    path = place.node(work.node, "node.json")
    pid = places.holder(place.node(work.node, "runner.lock"))
    if pid:
        raise UsageError(f"a runner works on {work.node} already (pid {pid})", "one node has one runner")
    places.prepare(place.root)
    places.save(path, {**places.load(path), "assignment": plain(work)})
    pid = launch_runner(place, work.node, os.environ)
    return {
        "status": "ok",
        "node": work.node,
        "prd": work.attributes.get("prd_ref", ""),
        "runner_config": path,
        "pid": pid,
    }


def launch_runner(place: Place, node: str, environ: Mapping[str, str]) -> int:
    words = ("runner", "run", "--node", node, *(("--pipeline", place.pipeline) if place.pipeline else ()))
    log = place.node(node, "runner.log")
    return detach.start(words, place.root, log, {**environ, "DOFLOW_SIGNALS": place.base})


def spawn_orchestrator(place: Place, given: Namespace) -> dict[str, Any]:
    work = assignment(place, given)
    places.prepare(place.root)
    memory = place.node(work.node, "runner.json")
    number = int(places.load(memory).get("seat", 0)) + 1
    found = orchestrator.spawn(place, work, number, os.environ)
    places.save(memory, {"attempt": work.attempt, "seat": number})
    path = place.node(work.node, "node.json")
    places.save(path, {**places.load(path), "assignment": plain(work)})
    return {
        "status": "ok", "session": found.session, "tmux_cmd": place.tmux.attach(found.session),
        "socket": place.tmux.socket, "prompt": os.path.join(found.folder, "prompt.md"),
    }  # fmt: skip


def session(given: Namespace) -> str:
    if given.session:
        return str(given.session)
    if given.node:
        return tmux.session_of(given.node)
    raise UsageError("which session?", "say --session orch-NAME, or --node NAME")


def capture(place: Place, given: Namespace) -> dict[str, Any]:
    name = session(given)
    _there(place, name)
    text = place.tmux.capture(name, given.lines)
    sight = screen.look(text)
    seen = {"question": sight.question, "options": list(sight.options), "error": sight.error, "busy": sight.busy}
    return {"status": "ok", "session": name, "lines": len(text.splitlines()), "content": text, "seen": seen}


def send_to(place: Place, given: Namespace) -> dict[str, Any]:
    name = session(given)
    _there(place, name)
    if given.keys:
        place.tmux.press(name, *given.keys)
    if given.message is not None:
        place.tmux.type(name, given.message)
    if not given.keys and given.message is None:
        raise UsageError("nothing to send", "say --message TEXT, or --keys Escape")
    return {"status": "ok", "session": name, "message": given.message or "", "keys": given.keys or []}


def alive(place: Place, given: Namespace) -> dict[str, Any]:
    name = session(given)
    node = place.tmux.mark(name, "node") or given.node or ""
    memory = places.load(place.node(node, "runner.json")) if node else {}
    return {
        "status": "ok", "alive": place.tmux.alive(name), "session": name, "node": node,
        "runner": places.holder(place.node(node, "runner.lock")) if node else 0, "health": memory.get("health", {}),
    }  # fmt: skip


def _there(place: Place, name: str) -> None:
    if not place.tmux.exists(name):
        known = ", ".join(place.tmux.sessions()) or "none"
        raise UsageError(
            f"there is no session {name} on the tmux server {place.tmux.socket} (there are: {known})", "spawn it first"
        )
