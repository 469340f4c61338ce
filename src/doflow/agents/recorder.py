"""Recorder (`--record`): saves the prompt, output, file changes and usage of each agent call.

Each call has a folder under `.doflow/runs/<run>/sessions/`. Secrets are redacted. The agent `replay` replays them.
"""

from __future__ import annotations

import base64
import difflib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from doflow.flow.model import Ask, Outcome
from doflow.git import history
from doflow.guard.fence.scope import Scope
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.runs.place import InPlace
from doflow.util import atomic_files, file_signature, hints, state_folder
from doflow.util.file_signature import FileSignature
from doflow.util.process.runner import Result
from doflow.util.text import Redactor

LARGEST = 8_000_000
_PASSED = (".git", state_folder.NAME)

Look = Mapping[str, FileSignature | None]


class Recording:
    """The recording of one call."""

    def __init__(self, ask: Ask, job: Job, context: RunContext) -> None:
        self._ask, self._job, self._context = ask, job, context
        self._redactor = Redactor(context.environ)
        self._before = _look(context)

    def end(self, result: Result, outcome: Outcome) -> None:
        scope = Scope(self._job, self._context)
        changed = [path for path in _changed(self._before, _look(self._context)) if scope.allows(path)]
        kept = [self._change(path) for path in changed]
        with self._context.guard:
            folder = self._folder()
        self._put(folder / "prompt.md", self._ask.prompt)
        self._put(folder / "answer.md", outcome.text)
        self._put(folder / "diff.patch", "".join(self._diff(path) for path in changed))
        atomic_files.write_file(str(folder / "changes.json"), json.dumps(kept, indent=1).encode(), sync=False)
        self._copy(result.out, folder / "stream.log")
        self._copy(result.err, folder / "stderr.log")
        # written last: it marks a complete recording
        self._put(folder / "call.json", json.dumps(self._about(result, outcome), indent=1))

    def _folder(self) -> Path:
        ask = self._ask
        base = self._context.state_dir / "sessions"
        base.mkdir(parents=True, exist_ok=True)
        words = [ask.step, ask.phase, ask.role if ask.role != "step" else "", ask.persona]
        name = ".".join(word.replace("/", ".").replace(":", ".") for word in words if word)
        folder = base / f"{len(os.listdir(base)) + 1:03d}-{name}"
        folder.mkdir()
        return folder

    def _about(self, result: Result, outcome: Outcome) -> dict[str, Any]:
        ask, usage = self._ask, outcome.usage
        used = {name: getattr(usage, name) for name in usage.__slots__} if usage else None
        hint = hints.text(outcome.hint, outcome.next)
        return {
            "format": 1, "run": ask.run, "run_dir": self._context.run.dir, "root": ask.root, "flow": self._context.flow.name,
            "step": ask.step, "phase": ask.phase, "role": ask.role, "persona": ask.persona, "round": ask.round,
            "attempt": ask.attempt, "agent": ask.profile.name, "use": ask.profile.use, "model": outcome.model or ask.model,
            "status": outcome.status.value, "reason": outcome.reason, "hint": hint, "transient": outcome.transient,
            "resume_at": outcome.resume_at, "code": result.code, "stopped": result.stopped,
            "seconds": round(result.elapsed, 3), "usage": used,
        }  # fmt: skip

    def _change(self, path: str) -> dict[str, Any]:
        """A changed file; one that is too large is only named and cannot be replayed."""
        full = self._context.files.locate(path)
        try:
            found = os.lstat(full)
        except OSError:
            return {"path": path, "kind": "deleted"}
        if stat.S_ISLNK(found.st_mode):
            return {"path": path, "kind": "link", "target": os.readlink(full)}
        if found.st_size > LARGEST:
            return {"path": path, "kind": "too large"}
        data = Path(full).read_bytes()
        mode = stat.S_IMODE(found.st_mode)
        try:
            return {"path": path, "kind": "file", "mode": mode, "text": self._redactor.text(data.decode())}
        except UnicodeDecodeError:
            return {"path": path, "kind": "file", "mode": mode, "base64": base64.b64encode(data).decode()}

    def _diff(self, path: str) -> str:
        """Against the last commit, for reading."""
        context = self._context
        old = history.file_at(context.git, "HEAD", f"{context.prefix}{path}") if context.head.commit else None
        full = Path(context.files.locate(path) or os.devnull)
        new = full.read_bytes() if full.is_file() and not full.is_symlink() else None
        if b"\0" in (old or b"") + (new or b""):
            return f"Binary files a/{path} and b/{path} differ\n"
        sides = [(data or b"").decode("utf-8", "replace").splitlines(keepends=True) for data in (old, new)]
        names = ("/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(sides[0], sides[1], names[0], names[1])
        )

    def _put(self, path: Path, text: str) -> None:
        atomic_files.write_file(str(path), self._redactor.text(text).encode("utf-8", "surrogateescape"), sync=False)

    def _copy(self, source: str, target: Path) -> None:
        try:
            with (
                open(source, encoding="utf-8", errors="surrogateescape", newline="\n") as lines,
                open(target, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as kept,
            ):
                kept.writelines(self._redactor.lines(lines))
        except OSError:
            target.touch()


def _look(context: RunContext) -> Look:
    """Every file below the root by its signature, in a workspace what differs there; nothing is read."""
    shown = {path: file_signature.from_path(place, follow=False) for path, place in context.files.shown.items()}
    return shown if not isinstance(context.place, InPlace) else dict(_walk(str(context.root), ""))


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, FileSignature]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        path = f"{prefix}{entry.name}"
        if path in _PASSED or entry.name == "__pycache__":
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{path}/")
        else:
            yield path, file_signature.from_status(entry.stat(follow_symlinks=False))


def _changed(before: Look, after: Look) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
