"""The signals of a pipeline, one JSON file each: written atomically, read without blocking, handled first and filed second.

<folder>/20260224T120000Z-runner-guardian-NEEDS_REVIEW-<unique>.json    waiting
<folder>/processed/   handled     <folder>/quarantine/   unreadable     <folder>/answers/   answers of a person
"""

from __future__ import annotations

import difflib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from doflow.flow.parsing import schema
from doflow.util import atomic_files, locks, state_folder, timestamps
from doflow.util.errors import DoflowError, WorldError

PROCESSED, QUARANTINE, ANSWERS = "processed", "quarantine", "answers"
PATIENCE = 2.0  # seconds before an unreadable file is quarantined: a foreign writer may be slow

_NAME = re.compile(r"^(\d{8}T\d{6}Z)-([a-z]+)-([a-z]+)-([A-Z_]+)(?:-([\w.-]+))?\.json$")
_UNSAFE = re.compile(r"[^\w.-]+")
_count = [0]


@dataclass(frozen=True, slots=True)
class SignalStore:
    """The signals of one pipeline ('' = of none)."""

    folder: str
    pipeline: str = ""

    def prepare(self) -> None:
        """Make the folder and its parts; WorldError if it isn't writable."""
        try:
            state_folder.create_ignored(self.folder)
            for part in (PROCESSED, QUARANTINE, ANSWERS):
                os.makedirs(os.path.join(self.folder, part), exist_ok=True)
        except OSError as error:
            raise atomic_files.io_error("create the signals folder", self.folder, error) from error
        if not os.access(self.folder, os.W_OK | os.X_OK):
            hint = f"check its owner and mode: ls -ld '{self.folder}'"
            raise WorldError(f"the signals folder {self.folder} is not writable", hint)

    def write(self, signal: Signal) -> Signal:
        """Validate a signal and write it durably under a unique name; returns it with its path."""
        source, target = resolve_address(signal)
        moment = time.time_ns()
        at, unique = timestamps.format_microseconds(moment), _unique(moment, signal.reply)
        seconds = at.partition(".")[0].replace("-", "").replace(":", "")  # 20260224T120000
        path = os.path.join(self.folder, f"{seconds}Z-{source}-{target}-{signal.kind}-{unique}.json")
        pipeline = signal.pipeline or self.pipeline
        made = replace(signal, source=source, target=target, unique=unique, pipeline=pipeline, at=at, path=path)
        value = signal_to_dict(made)
        check_signal(value, signal.kind)
        if not os.path.isdir(os.path.join(self.folder, PROCESSED)):
            self.prepare()
        atomic_files.write_file(path, (json.dumps(value, indent=1) + "\n").encode())
        return made

    def write_once(self, signal: Signal) -> Signal | None:
        """Write it unless a signal of its kind has the same reply token, also from an earlier process: then None."""
        return None if self.find_reply(signal.reply, signal.kind) else self.write(signal)

    def find_reply(self, token: str, kind: str = "") -> str:
        """The file that replies to this token, waiting or processed; '' = none."""
        end = f"-re-{safe_name(token)}.json"
        for path in self._paths("", PROCESSED):
            if path.endswith(end) and (not kind or f"-{kind}-" in os.path.basename(path)):
                return path
        return ""

    def waiting(self, source: str = "", target: str = "", kind: str = "", node: str = "") -> Iterator[Signal]:
        """Signals to handle, oldest first; unreadable files are skipped, and quarantined after a while."""
        found = []
        for path in self._paths(""):
            name = os.path.basename(path)
            match = _NAME.match(name)
            if match is None:
                if name.endswith(".json") and not name.startswith("."):
                    self._load(path)
                continue
            pairs = zip((source, target, kind), match.groups()[1:4], strict=True)
            if all(not wanted or wanted == actual for wanted, actual in pairs):
                found.append((match[1], match[5] or "", path))
        for _, _, path in sorted(found):
            signal = self._load(path)
            if signal is not None and (not node or signal.node == node):
                yield signal

    def _load(self, path: str) -> Signal | None:
        """One waiting signal; None if it is gone or not readable (yet)."""
        try:
            return read_signal(path)
        except FileNotFoundError:
            return None
        except BadSignal as bad:
            with suppress(OSError):
                if time.time() - os.stat(path).st_mtime > PATIENCE:
                    self.prepare()
                    target = os.path.join(self.folder, QUARANTINE, os.path.basename(path))
                    os.rename(path, target)
                    atomic_files.write_file(f"{target}.why", f"{bad.message}\n".encode(), sync=False)
            return None

    @contextmanager
    def claimed(self, signal: Signal) -> Iterator[bool]:
        """Lock a signal while it is handled; False = another process has it, or had it. The lock ends with its process."""
        try:
            fd = os.open(signal.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            yield False
            return
        try:
            yield locks.acquire(fd) and locks.is_current(fd, signal.path)
        finally:
            os.close(fd)

    def consume(self, signal: Signal) -> bool:
        """Move it to processed/ after it was handled; False = another process did."""
        target = os.path.join(self.folder, PROCESSED, os.path.basename(signal.path))
        try:
            os.rename(signal.path, target)
        except FileNotFoundError:
            if os.path.isdir(os.path.dirname(target)):
                return False
            self.prepare()
            return self.consume(signal) if os.path.exists(signal.path) else False
        for folder in (os.path.dirname(target), self.folder):
            atomic_files.sync_folder(folder)
        return True

    def history(self) -> list[Signal]:
        """All signals, waiting and processed, by time; unreadable ones are left out."""
        found = []
        for path in self._paths(PROCESSED, ""):
            with suppress(BadSignal, FileNotFoundError):
                if _NAME.match(os.path.basename(path)):
                    found.append(read_signal(path))
        return sorted(found, key=lambda signal: signal.at)

    def clean(self, days: float) -> int:
        """Remove processed and quarantined signals older than this; returns how many."""
        limit, gone = time.time() - days * 86400, 0
        for path in self._paths(PROCESSED, QUARANTINE):
            with suppress(OSError):
                if os.stat(path).st_mtime < limit:
                    os.unlink(path)
                    gone += 1
        atomic_files.remove_temporaries(self.folder)
        return gone

    def _paths(self, *parts: str) -> Iterator[str]:
        """The files of these parts ('' = the waiting ones), each part sorted by name."""
        for part in parts:
            folder = os.path.join(self.folder, part)
            with suppress(FileNotFoundError):
                yield from [os.path.join(folder, name) for name in sorted(os.listdir(folder))]


def read_signal(path: str | Path) -> Signal:
    """Read a signal file; raises BadSignal for an invalid one (after a second try: it may be half written)."""
    path = os.fspath(path)
    for last in (False, True):
        with open(path, "rb") as stream:
            data = stream.read(4_000_000)
        try:
            value = json.loads(data)
            break
        except ValueError as error:
            if last:
                raise BadSignal(f"{path} is not JSON: {error}", "it was not written completely") from error
            time.sleep(0.02)
    check_signal(value, os.path.basename(path))
    match = _NAME.match(os.path.basename(path))
    if match is None:
        raise BadSignal(f"{path} is not a signal's file name", "TIME-SOURCE-TARGET-KIND….json")
    if match.groups()[1:4] != (value["source"], value["target"], value["signal_type"]):
        raise BadSignal(f"{path}: its name and content differ")
    return Signal(
        value["signal_type"], value["payload"], value.get("pipeline", ""), value["source"], value["target"],
        value["timestamp"], match[5] or "", value.get("reply_to", ""), value.get("attempt", 0), path,
    )  # fmt: skip


def _unique(moment: int, reply: str) -> str:
    """Nanoseconds first, so that names sort by time; then pid, counter and random bytes to make it unique."""
    _count[0] += 1
    end = f"-re-{safe_name(reply)}" if reply else ""
    return f"{moment % 10**9:09d}-{os.getpid()}.{_count[0]}.{os.urandom(3).hex()}{end}"


def safe_name(token: str) -> str:
    """A token as part of a file name."""
    return _UNSAFE.sub("_", token)


RUNNER, GUARDIAN, TERMINAL = "runner", "guardian", "terminal"

#: kind → (source, target, payload fields); the schema `signal` has their types
KINDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "NEEDS_REVIEW": (RUNNER, GUARDIAN, ("node_id", "evidence_path", "commit_hash")),
    "NEEDS_INPUT": (RUNNER, GUARDIAN, ("node_id", "question_text", "options")),
    "VIOLATION": (RUNNER, GUARDIAN, ("node_id", "violation_type", "evidence")),
    "ORCHESTRATOR_STUCK": (RUNNER, GUARDIAN, ("node_id", "last_output", "duration_seconds")),
    "ORCHESTRATOR_CRASHED": (RUNNER, GUARDIAN, ("node_id", "last_output", "exit_code")),
    "NODE_COMPLETE": (RUNNER, GUARDIAN, ("node_id", "commit_hash", "summary")),
    "VALIDATION_PASSED": (GUARDIAN, RUNNER, ("node_id", "new_status")),
    "VALIDATION_FAILED": (GUARDIAN, RUNNER, ("node_id", "feedback", "retry_count")),
    "INPUT_RESPONSE": (GUARDIAN, RUNNER, ("node_id", "response_text")),
    "KILL_ORCHESTRATOR": (GUARDIAN, RUNNER, ("node_id", "reason")),
    "GUIDANCE": (GUARDIAN, RUNNER, ("node_id", "message")),
    "PIPELINE_COMPLETE": (GUARDIAN, TERMINAL, ("pipeline_id", "summary")),
    "ESCALATION": (GUARDIAN, TERMINAL, ("pipeline_id", "issue", "options")),
    "GUARDIAN_ERROR": (GUARDIAN, TERMINAL, ("pipeline_id", "error", "stack_trace")),
}


class BadSignal(DoflowError):
    """An invalid signal or signal file."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal. `unique` ends its file name; `reply` is the token it replies to, so that nothing is answered twice."""

    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    pipeline: str = ""
    source: str = ""
    target: str = ""
    at: str = ""
    unique: str = ""
    reply: str = ""
    attempt: int = 0
    path: str = ""

    @property
    def node(self) -> str:
        return str(self.payload.get("node_id", ""))

    @property
    def token(self) -> str:
        """The token for replies to it: never empty, and short enough for a file name."""
        return self.unique.partition("-re-")[0] or os.path.basename(self.path).removesuffix(".json")


def signal_to_dict(signal: Signal) -> dict[str, Any]:
    """The JSON of its file."""
    optional = {"reply_to": signal.reply, "attempt": signal.attempt}
    return {
        "source": signal.source, "target": signal.target, "signal_type": signal.kind, "timestamp": signal.at,
        "pipeline": signal.pipeline, "id": signal.unique, "pid": os.getpid(), "payload": dict(signal.payload),
        **{name: value for name, value in optional.items() if value},
    }  # fmt: skip


def resolve_address(signal: Signal) -> tuple[str, str]:
    """Source and target of its kind; refuses an unknown kind and a wrong direction."""
    if signal.kind not in KINDS:
        near = difflib.get_close_matches(signal.kind.upper(), KINDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"the kinds are: {', '.join(KINDS)}"
        raise BadSignal(f"unknown signal {signal.kind!r}", hint)
    source, target, _ = KINDS[signal.kind]
    if (signal.source or source, signal.target or target) != (source, target):
        raise BadSignal(
            f"{signal.kind} goes from {source} to {target}, not from {signal.source} to {signal.target}",
            f"signals from {signal.source}: {', '.join(kinds_sent_by(signal.source)) or 'none'}",
        )
    return source, target


def kinds_sent_by(source: str) -> tuple[str, ...]:
    return tuple(kind for kind, (sender, _, _) in KINDS.items() if sender == source)


def check_signal(value: object, where: str) -> None:
    """Validate the content of a signal file; BadSignal with every fault."""
    found = schema.faults(value, "signal")
    if found:
        faults = "; ".join(f"{'.'.join(map(str, fault.path)) or 'signal'}: {fault.message}" for fault in found)
        raise BadSignal(f"{where}: {faults}", "doflow signal --help lists the fields of each kind")
