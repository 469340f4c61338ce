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
_SAFE = re.compile(r"[^\w.-]+")
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
            raise WorldError(
                f"the signals folder {self.folder} is not writable",
                f"check its owner and mode: ls -ld '{self.folder}'",
            )

    def write(self, signal: Signal) -> Signal:
        """Validate a signal and write it durably under a unique name; returns it with its path."""
        source, target = resolve_address(signal)
        moment = time.time_ns()
        at = timestamps.format_microseconds(moment)
        unique = _unique(moment, signal.reply)
        made = replace(
            signal, source=source, target=target, unique=unique, pipeline=signal.pipeline or self.pipeline,
            at=at,
        )  # fmt: skip
        value = signal_to_dict(made)
        check_signal(value, signal.kind)
        path = os.path.join(self.folder, f"{_compact(at)}-{source}-{target}-{made.kind}-{unique}.json")
        if not os.path.isdir(os.path.join(self.folder, PROCESSED)):
            self.prepare()
        atomic_files.write_file(path, (json.dumps(value, indent=1) + "\n").encode())
        return replace(made, path=path)

    def write_once(self, signal: Signal) -> Signal | None:
        """Write it unless a signal of its kind has the same reply token, also from an earlier process: then None."""
        return None if self.find_reply(signal.reply, signal.kind) else self.write(signal)

    def find_reply(self, token: str, kind: str = "") -> str:
        """The file that replies to this token, waiting or processed; '' = none."""
        end = f"-re-{_SAFE.sub('_', token)}.json"
        for part in ("", PROCESSED):
            folder = os.path.join(self.folder, part)
            for name in _names(folder):
                if name.endswith(end) and (not kind or f"-{kind}-" in name):
                    return os.path.join(folder, name)
        return ""

    def waiting(self, source: str = "", target: str = "", kind: str = "", node: str = "") -> Iterator[Signal]:
        """Signals to handle, oldest first; unreadable files are skipped, and quarantined after a while."""
        for name in self._listed(source, target, kind):
            signal = self.load(name)
            if signal is not None and (not node or signal.node == node):
                yield signal

    def _listed(self, source: str, target: str, kind: str) -> list[str]:
        found = []
        for name in _names(self.folder):
            match = _NAME.match(name)
            if match is None:
                if name.endswith(".json") and not name.startswith("."):
                    self.load(name)
                continue
            wanted = zip((source, target, kind), match.groups()[1:4], strict=True)
            if all(not asked or asked == said for asked, said in wanted):
                found.append((match[1], match[5] or "", name))
        return [name for _, _, name in sorted(found)]

    def load(self, name: str) -> Signal | None:
        """One waiting signal by its file name; None if it is gone or not readable (yet)."""
        path = os.path.join(self.folder, name)
        try:
            return read_signal(path)
        except FileNotFoundError:
            return None
        except BadSignal as bad:
            with suppress(OSError):
                if time.time() - os.stat(path).st_mtime > PATIENCE:
                    self._quarantine(path, bad.message)
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
        for part in (PROCESSED, ""):
            folder = os.path.join(self.folder, part)
            for name in _names(folder):
                with suppress(BadSignal, FileNotFoundError):
                    if _NAME.match(name):
                        found.append(read_signal(os.path.join(folder, name)))
        return sorted(found, key=lambda signal: signal.at)

    def answer(self, token: str, text: str, by: str) -> str:
        """Save a person's answer to an escalation; returns its path."""
        self.prepare()
        path = os.path.join(self.folder, ANSWERS, f"{_SAFE.sub('_', token)}.json")
        value = {"to": token, "text": text, "by": by, "at": timestamps.format_seconds()}
        atomic_files.write_file(path, (json.dumps(value, indent=1) + "\n").encode())
        return path

    def discard_answer(self, token: str) -> None:
        """Set an invalid answer aside: its question is open again."""
        path = os.path.join(self.folder, ANSWERS, f"{_SAFE.sub('_', token)}.json")
        with suppress(FileNotFoundError):
            os.replace(path, f"{path}.unclear")

    def find_answer(self, token: str) -> str | None:
        """A person's answer; None = not yet."""
        try:
            with open(os.path.join(self.folder, ANSWERS, f"{_SAFE.sub('_', token)}.json"), encoding="utf-8") as stream:
                value: Mapping[str, Any] = json.load(stream)
            return str(value["text"])
        except (OSError, ValueError, KeyError):
            return None

    def clean(self, days: float) -> int:
        """Remove processed and quarantined signals older than this; returns how many."""
        limit, gone = time.time() - days * 86400, 0
        for part in (PROCESSED, QUARANTINE):
            folder = os.path.join(self.folder, part)
            for name in _names(folder):
                with suppress(OSError):
                    if os.stat(os.path.join(folder, name)).st_mtime < limit:
                        os.unlink(os.path.join(folder, name))
                        gone += 1
        atomic_files.remove_temporaries(self.folder)
        return gone

    def _quarantine(self, path: str, why: str) -> None:
        self.prepare()
        target = os.path.join(self.folder, QUARANTINE, os.path.basename(path))
        os.rename(path, target)
        atomic_files.write_file(f"{target}.why", f"{why}\n".encode(), sync=False)


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
    return signal_from_dict(value, match[5] or "", path)


def _compact(at: str) -> str:
    """The time as it starts a file name: 20260224T120000Z."""
    return at.partition(".")[0].replace("-", "").replace(":", "") + "Z"


def _unique(moment: int, reply: str) -> str:
    """Nanoseconds first, so that names sort by time; then pid, counter and random bytes to make it unique."""
    _count[0] += 1
    end = f"-re-{_SAFE.sub('_', reply)}" if reply else ""
    return f"{moment % 10**9:09d}-{os.getpid()}.{_count[0]}.{os.urandom(3).hex()}{end}"


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


RUNNER, GUARDIAN, TERMINAL = "runner", "guardian", "terminal"
LAYERS = (RUNNER, GUARDIAN, TERMINAL)

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
    value: dict[str, Any] = {
        "source": signal.source, "target": signal.target, "signal_type": signal.kind, "timestamp": signal.at,
        "pipeline": signal.pipeline, "id": signal.unique, "pid": os.getpid(), "payload": dict(signal.payload),
    }  # fmt: skip
    return (
        value
        | ({"reply_to": signal.reply} if signal.reply else {})
        | ({"attempt": signal.attempt} if signal.attempt else {})
    )


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
        words = "; ".join(
            f"{'.'.join(str(part) for part in fault.path) or 'signal'}: {fault.message}" for fault in found
        )
        raise BadSignal(f"{where}: {words}", "doflow signal --help lists the fields of each kind")


def signal_from_dict(value: Mapping[str, Any], unique: str, path: str) -> Signal:
    return Signal(
        value["signal_type"], value["payload"], value.get("pipeline", ""), value["source"], value["target"],
        value["timestamp"], unique, value.get("reply_to", ""), value.get("attempt", 0), path,
    )  # fmt: skip
