"""The folder of a pipeline's signals: written whole and unique, read without blocking, acted on first and filed second.

<folder>/20260224T120000Z-runner-guardian-NEEDS_REVIEW-<unique>.json    waiting
<folder>/processed/   acted on     <folder>/quarantine/   unreadable     <folder>/answers/   what a person said
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from doflow.supervise.signals import types as kinds
from doflow.supervise.signals.types import BadSignal, Signal
from doflow.util import atomic_files as files
from doflow.util.errors import WorldError
from doflow.util.records import dataclass, regex, replace

PROCESSED, QUARANTINE, ANSWERS = "processed", "quarantine", "answers"
PATIENCE = 2.0  # seconds that a file which cannot be read yet is left alone: its writer may be slow, and not ours

_NAME = regex(r"^(\d{8}T\d{6}Z)-([a-z]+)-([a-z]+)-([A-Z_]+)(?:-([\w.-]+))?\.json$")
_SAFE = regex(r"[^\w.-]+")
_count = [0]


@dataclass(frozen=True, slots=True)
class Store:
    """The signals of one pipeline ('' = of none)."""

    folder: str
    pipeline: str = ""

    def prepare(self) -> None:
        """The folder and its parts; says so if it cannot be written."""
        try:
            for part in ("", PROCESSED, QUARANTINE, ANSWERS):
                os.makedirs(os.path.join(self.folder, part), exist_ok=True)
            ignore = os.path.join(self.folder, ".gitignore")
            if not os.path.exists(ignore):
                files.write(ignore, b"*\n", sync=False)  # what layers say is nothing to commit
        except OSError as error:
            raise files.broke("make the folder of signals", self.folder, error) from error
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise WorldError(
                f"the folder of signals {self.folder} cannot be written",
                f"look at its owner and mode: ls -ld '{self.folder}'",
            )

    def write(self, signal: Signal) -> Signal:
        """Put a signal there, checked, durable and under a name of its own; gives it back with its path."""
        source, target = kinds.addressed(signal)
        moment = time.time_ns()
        at = datetime.fromtimestamp(moment // 10**9, UTC).replace(microsecond=moment // 1000 % 10**6)
        unique = _unique(moment, signal.reply)
        made = replace(
            signal, source=source, target=target, unique=unique, pipeline=signal.pipeline or self.pipeline,
            at=at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        )  # fmt: skip
        value = kinds.plain(made)
        kinds.check(value, signal.kind)
        path = os.path.join(self.folder, f"{at:%Y%m%dT%H%M%SZ}-{source}-{target}-{made.kind}-{unique}.json")
        if not os.path.isdir(os.path.join(self.folder, PROCESSED)):
            self.prepare()
        files.write(path, (json.dumps(value, indent=1) + "\n").encode())
        return replace(made, path=path)

    def once(self, signal: Signal) -> Signal | None:
        """Write it unless something of its kind has answered the same before, be it in another life: None then."""
        return None if self.replied(signal.reply, signal.kind) else self.write(signal)

    def replied(self, token: str, kind: str = "") -> str:
        """The file that answers this, waiting or processed; '' = there is none."""
        end = f"-re-{_SAFE.sub('_', token)}.json"
        for part in ("", PROCESSED):
            folder = os.path.join(self.folder, part)
            for name in _names(folder):
                if name.endswith(end) and (not kind or f"-{kind}-" in name):
                    return os.path.join(folder, name)
        return ""

    def waiting(self, source: str = "", target: str = "", kind: str = "", node: str = "") -> Iterator[Signal]:
        """What waits to be acted on, oldest first; what cannot be read is passed over and put aside in time."""
        for name in self._listed(source, target, kind):
            signal = self.look(name)
            if signal is not None and (not node or signal.node == node):
                yield signal

    def _listed(self, source: str, target: str, kind: str) -> list[str]:
        found = []
        for name in _names(self.folder):
            match = _NAME.match(name)
            if match is None:
                if name.endswith(".json") and not name.startswith("."):
                    self.look(name)
                continue
            wanted = zip((source, target, kind), match.groups()[1:4], strict=True)
            if all(not asked or asked == said for asked, said in wanted):
                found.append((match[1], match[5] or "", name))
        return [name for _, _, name in sorted(found)]

    def look(self, name: str) -> Signal | None:
        """One waiting signal by its file's name; None if it is gone, or not to be read (yet)."""
        path = os.path.join(self.folder, name)
        try:
            return read(path)
        except FileNotFoundError:
            return None
        except BadSignal as bad:
            with suppress(OSError):
                if time.time() - os.stat(path).st_mtime > PATIENCE:
                    self._put_aside(path, bad.message)
            return None

    @contextmanager
    def claimed(self, signal: Signal) -> Iterator[bool]:
        """Hold a signal while it is acted on; False = somebody else does, or did. A holder that dies lets it go."""
        import fcntl

        try:
            fd = os.open(signal.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            yield False
            return
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = os.path.samestat(os.fstat(fd), os.stat(signal.path))
            except OSError:
                mine = False
            yield mine
        finally:
            os.close(fd)

    def consume(self, signal: Signal) -> bool:
        """File it under processed/, after it was acted on; False = somebody was faster."""
        target = os.path.join(self.folder, PROCESSED, os.path.basename(signal.path))
        try:
            os.rename(signal.path, target)
        except FileNotFoundError:
            if os.path.isdir(os.path.dirname(target)):
                return False
            self.prepare()
            return self.consume(signal) if os.path.exists(signal.path) else False
        for folder in (os.path.dirname(target), self.folder):
            _sync(folder)
        return True

    def history(self) -> list[Signal]:
        """Every signal there is and was, by time; what cannot be read is left out."""
        found = []
        for part in (PROCESSED, ""):
            folder = os.path.join(self.folder, part)
            for name in _names(folder):
                with suppress(BadSignal, FileNotFoundError):
                    if _NAME.match(name):
                        found.append(read(os.path.join(folder, name)))
        return sorted(found, key=lambda signal: signal.at)

    def answer(self, token: str, text: str, by: str) -> str:
        """Keep what a person said to an escalation; the path of the answer."""
        self.prepare()
        path = os.path.join(self.folder, ANSWERS, f"{_SAFE.sub('_', token)}.json")
        value = {"to": token, "text": text, "by": by, "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        files.write(path, (json.dumps(value, indent=1) + "\n").encode())
        return path

    def unanswer(self, token: str) -> None:
        """Put an answer that means nothing away: its question is open again."""
        path = os.path.join(self.folder, ANSWERS, f"{_SAFE.sub('_', token)}.json")
        with suppress(FileNotFoundError):
            os.replace(path, f"{path}.unclear")

    def answered(self, token: str) -> str | None:
        """What a person said to it; None = nothing yet."""
        try:
            with open(os.path.join(self.folder, ANSWERS, f"{_SAFE.sub('_', token)}.json"), encoding="utf-8") as stream:
                value: Mapping[str, Any] = json.load(stream)
            return str(value["text"])
        except (OSError, ValueError, KeyError):
            return None

    def clean(self, days: float) -> int:
        """Remove what was processed or put aside longer ago than this; how many."""
        limit, gone = time.time() - days * 86400, 0
        for part in (PROCESSED, QUARANTINE):
            folder = os.path.join(self.folder, part)
            for name in _names(folder):
                with suppress(OSError):
                    if os.stat(os.path.join(folder, name)).st_mtime < limit:
                        os.unlink(os.path.join(folder, name))
                        gone += 1
        files.sweep(self.folder)
        return gone

    def _put_aside(self, path: str, why: str) -> None:
        self.prepare()
        target = os.path.join(self.folder, QUARANTINE, os.path.basename(path))
        os.rename(path, target)
        files.write(f"{target}.why", f"{why}\n".encode(), sync=False)


def read(path: str | Path) -> Signal:
    """A signal from its file; raises BadSignal for what is none (after a second look: its writer may be at it)."""
    path = os.fspath(path)
    for last in (False, True):
        with open(path, "rb") as stream:
            data = stream.read(4_000_000)
        try:
            value = json.loads(data)
            break
        except ValueError as error:
            if last:
                raise BadSignal(f"{path} is not JSON: {error}", "its writer did not write it whole") from error
            time.sleep(0.02)
    kinds.check(value, os.path.basename(path))
    match = _NAME.match(os.path.basename(path))
    if match is None:
        raise BadSignal(f"{path} is not named like a signal", "TIME-SOURCE-TARGET-KIND….json")
    if match.groups()[1:4] != (value["source"], value["target"], value["signal_type"]):
        raise BadSignal(f"{path}: its name and what it holds differ")
    return kinds.parsed(value, match[5] or "", path)


def _unique(moment: int, reply: str) -> str:
    """Nanoseconds first, so that names sort by time; then process, count and chance, so that none is taken."""
    _count[0] += 1
    end = f"-re-{_SAFE.sub('_', reply)}" if reply else ""
    return f"{moment % 10**9:09d}-{os.getpid()}.{_count[0]}.{os.urandom(3).hex()}{end}"


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _sync(folder: str) -> None:
    fd = files.open_folder(folder)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
