"""An ordinary user for tests that run as root: `nobody`, with programs that root has installed for itself alone in reach."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: in a mount namespace of its own: in place of the closed folder $1 an open one, with only $2 of it
_OPENED = (
    'mkdir -p "$3" && mount --bind "$1/$2" "$3" && mount -t tmpfs -o mode=755 tmpfs "$1" && mkdir "$1/$2"'
    ' && mount --move "$3" "$1/$2" && rmdir "$3" && shift 3 && exec "$@"'
)


class OrdinaryUser:
    """`prefix`: the words before a command that this user starts."""

    def __init__(self) -> None:
        if not all(map(shutil.which, ("setpriv", "unshare"))):
            pytest.skip("util-linux is not installed")
        found = pwd.getpwnam("nobody")
        self.ids = (found.pw_uid, found.pw_gid)
        became = ("setpriv", f"--reuid={self.ids[0]}", f"--regid={self.ids[1]}", "--clear-groups")
        self.prefix = (*_opening(), *became)
        tried = subprocess.run((*self.prefix, sys.executable, "-c", "import doflow"), capture_output=True, check=False)
        if tried.returncode:
            pytest.skip(f"an ordinary user cannot start {sys.executable}: {tried.stderr.decode()}")

    def own(self, *folders: Path) -> None:
        for folder in folders:
            for place, below, names in os.walk(folder):
                for name in (".", *below, *names):
                    os.chown(os.path.join(place, name), *self.ids, follow_symlinks=False)


def _opening() -> tuple[str, ...]:
    interpreter = Path(sys.executable).resolve()
    closed = next((one for one in reversed(interpreter.parents) if not one.stat().st_mode & 0o001), None)
    if closed is None:
        return ()
    inner = interpreter.relative_to(closed).parts[0]
    return ("unshare", "--mount", "sh", "-c", _OPENED, "sh", str(closed), inner, f"/tmp/doflow-opened-{os.getpid()}")
