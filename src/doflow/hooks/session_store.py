"""Where a machine's state is kept: one folder per project and session (and machine), private, one writer at a time.

    ~/.claude/state/pipeline-state.json                             a link to the session that began last
    ~/.claude/state/doflow/PROJECT/SESSION/pipeline-state.json      the state document, and its .backup
    ~/.claude/state/doflow/PROJECT/SESSION/journal.log              every decision
    ~/.claude/state/doflow/PROJECT/machine-NAME.json                the machine, compiled

A document is replaced whole, by a rename, under a lock. It is not forced to the disk: after a power cut it may be gone, and
gone means the first state, in which nothing is skipped.
"""

from __future__ import annotations

import os

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


def base(environ: Mapping[str, str]) -> str:
    """The folder of all states."""
    config = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")
    return os.path.join(config, "state")


def top(folder: str) -> str:
    """The project that a folder belongs to: the nearest one above that is a project or a repository, else the folder."""
    here = at = os.path.realpath(folder or ".")
    while True:
        if any(os.path.exists(os.path.join(at, name)) for name in (".git", "doflow.yaml", "dodo.py", ".doflow")):
            return at
        above = os.path.dirname(at)
        if above == at:
            return here
        at = above


def named(text: str) -> str:
    """Any text as the name of one file; two texts never get the same."""
    if text and text[0] != "." and len(text) <= _LONGEST and _PLAIN.issuperset(text):
        return text
    data = text.encode("utf-8", "surrogatepass")
    quoted = "".join(chr(code) if chr(code) in _PLAIN and code != 46 else f"%{code:02X}" for code in data) or "%"
    if len(quoted) <= _LONGEST:
        return quoted
    import hashlib

    return f"%{hashlib.sha256(data).hexdigest()}"


class Session:
    """The folder of one session, open for one writer: `with Session(...) as session:`."""

    def __init__(self, folder: str, project: str, ident: str, machine: str = "") -> None:
        self.base = folder
        self.project = project
        self.ident = ident
        self.key = ident if machine in ("", DEFAULT) else f"{ident}@{machine}"
        self.home = os.path.join(folder, "doflow", named(project))
        self.folder = os.path.join(self.home, named(self.key))
        self.path = os.path.join(self.folder, STATE)
        self._lock = -1

    def __enter__(self) -> Session:
        import fcntl

        try:
            self._lock = self._open()
        except FileNotFoundError:
            os.makedirs(self.base, 0o700, exist_ok=True)
            for folder in (os.path.dirname(self.home), self.home, self.folder):
                make(folder)
            self._lock = self._open()
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def _open(self) -> int:
        return os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self, name: str = STATE) -> Any:
        """What a document says. FileNotFoundError: there is none; any other OSError, ValueError: it cannot be read."""
        import json

        with open(os.path.join(self.folder, name), "rb") as file:
            return json.loads(file.read())

    def write(self, doc: dict[str, Any], name: str = STATE) -> None:
        import json

        replace(os.path.join(self.folder, name), json.dumps(doc).encode())

    def aside(self) -> None:
        """A document that cannot be read is kept beside the new one."""
        try:
            os.replace(self.path, f"{self.path}.broken")
        except OSError:
            pass  # a folder in its place, or nothing: the write that follows says so

    def note(self, line: str) -> None:
        """One line more in the journal; a long journal becomes the old one."""
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
        """Let the well-known names lead to this session; a file that somebody else put there stays."""
        for name in (STATE, BACKUP):
            link, mine = os.path.join(self.base, name), os.path.relpath(os.path.join(self.folder, name), self.base)
            try:
                if os.path.lexists(link) and not os.path.islink(link):
                    continue
                part = f"{link}.{os.getpid()}.tmp"
                os.symlink(mine, part)
                os.replace(part, link)
            except OSError:
                pass  # only a convenience

    def tidy(self) -> None:
        """Forget the oldest sessions of this project where there are very many."""
        folders = sessions(self.home)
        for folder in folders[: max(0, len(folders) - KEPT)]:
            if folder != self.folder:
                forget(folder)


def sessions(home: str) -> list[str]:
    """The folders of a project's sessions, the one that changed last at the end."""
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


def forget(folder: str) -> None:
    try:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    except OSError:
        pass  # somebody is using it


def make(folder: str) -> None:
    """A folder for nobody else's eyes."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass


def replace(path: str, data: bytes) -> None:
    """Put `data` at `path`, whole: a file beside it, named after this process, and a rename."""
    part = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.tmp.{os.getpid()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
        finally:
            os.close(fd)
        os.replace(part, path)
    except BaseException:
        try:
            os.unlink(part)
        except OSError:
            pass
        raise
