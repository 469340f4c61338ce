"""The state of machines: a private folder per project and session (and machine), one writer at a time.

    ~/.claude/state/pipeline-state.json                             a link to the most recent session
    ~/.claude/state/doflow/PROJECT/SESSION/pipeline-state.json      the state document, and its .backup
    ~/.claude/state/doflow/PROJECT/SESSION/journal.log              every decision
    ~/.claude/state/doflow/PROJECT/machine-NAME.json                the machine, compiled

Documents are written atomically under a lock, without fsync: after a power failure one may be missing, which means the
first state, in which nothing is skipped.
"""

from __future__ import annotations

import json
import os

from doflow.util import atomic_files, locks, state_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

DEFAULT = "context-first"
STATE = "pipeline-state.json"
BACKUP = "pipeline-state.json.backup"
JOURNAL = "journal.log"
KEPT = 200
_LONGEST = 180
_JOURNAL = 1_000_000
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def sessions_folder(environ: Mapping[str, str]) -> str:
    """The folder of all session states."""
    config = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")
    return os.path.join(config, "state")


def project_root(folder: str) -> str:
    """The project root of a folder: the nearest parent that is a project or repository, else the folder itself."""
    here = at = os.path.realpath(folder or ".")
    while not any(os.path.exists(os.path.join(at, name)) for name in (".git", *state_folder.PROJECT_MARKS)):
        if at == os.path.dirname(at):
            return here
        at = os.path.dirname(at)
    return at


def safe_name(text: str) -> str:
    """Encode a text as a file name; different texts get different names."""
    if text and text[0] != "." and len(text) <= _LONGEST and _PLAIN.issuperset(text):
        return text
    data = text.encode("utf-8", "surrogatepass")
    quoted = "".join(chr(code) if chr(code) in _PLAIN and code != 46 else f"%{code:02X}" for code in data) or "%"
    if len(quoted) <= _LONGEST:
        return quoted
    import hashlib

    return f"%{hashlib.sha256(data).hexdigest()}"


class Session:
    """The folder of one session, locked for one writer: `with Session(...) as session:`."""

    def __init__(self, folder: str, project: str, ident: str, machine: str = "") -> None:
        self.base, self.project, self.ident = folder, project, ident
        self.key = ident if machine in ("", DEFAULT) else f"{ident}@{machine}"
        self.home = os.path.join(folder, "doflow", safe_name(project))
        self.folder = os.path.join(self.home, safe_name(self.key))
        self.path = os.path.join(self.folder, STATE)
        self._lock = -1

    def __enter__(self) -> Session:
        try:
            self._lock = self._open()
        except FileNotFoundError:
            os.makedirs(self.base, 0o700, exist_ok=True)
            for folder in (os.path.dirname(self.home), self.home, self.folder):
                try:
                    os.mkdir(folder, 0o700)
                except FileExistsError:
                    pass
            self._lock = self._open()
        locks.acquire_waiting(self._lock)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def _open(self) -> int:
        return os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> Any:
        """The state document. FileNotFoundError: there is none; other OSError, ValueError: unreadable."""
        with open(self.path, "rb") as file:
            return json.loads(file.read())

    def write(self, doc: dict[str, Any]) -> None:
        replace_file(self.path, json.dumps(doc).encode())

    def set_aside(self) -> None:
        """Rename an unreadable document, so that it is kept."""
        try:
            os.replace(self.path, f"{self.path}.broken")
        except OSError:
            pass  # not a file, or missing: the next write reports it

    def note(self, line: str) -> None:
        """Append a line to the journal; rotate a long journal."""
        path = os.path.join(self.folder, JOURNAL)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, line.encode("utf-8", "replace") + b"\n")
            full = os.fstat(fd).st_size > _JOURNAL
        finally:
            os.close(fd)
        if full:
            os.replace(path, f"{path}.1")

    def show(self) -> None:
        """Point the well-known links at this session; a regular file there is kept."""
        for name in (STATE, BACKUP):
            link, target = os.path.join(self.base, name), os.path.relpath(os.path.join(self.folder, name), self.base)
            try:
                if os.path.lexists(link) and not os.path.islink(link):
                    continue
                part = f"{link}.{os.getpid()}.tmp"
                os.symlink(target, part)
                os.replace(part, link)
            except OSError:
                pass  # the links are optional

    def tidy(self) -> None:
        """Remove the oldest sessions of this project beyond the limit."""
        folders = session_folders(self.home)
        for folder in folders[: max(0, len(folders) - KEPT)]:
            if folder == self.folder:
                continue
            try:
                for name in os.listdir(folder):
                    os.unlink(os.path.join(folder, name))
                os.rmdir(folder)
            except OSError:
                pass  # in use


def session_folders(home: str) -> list[str]:
    """The session folders of a project, most recently changed last."""
    found = []
    try:
        names = os.listdir(home)
    except OSError:
        return []
    for name in names:
        folder = os.path.join(home, name)
        try:
            found.append((os.stat(os.path.join(folder, STATE)).st_mtime_ns, folder))
        except OSError:
            continue
    return [folder for _, folder in sorted(found)]


def replace_file(path: str, data: bytes) -> None:
    """Atomic write of `data` to `path`, with mode 600; raises OSError."""
    folder = atomic_files.open_folder(os.path.dirname(path))
    try:
        atomic_files.replace_in_folder(folder, os.path.basename(path), data, 0o600, sync=False)
    finally:
        os.close(folder)
