"""The sockets of our tmux servers: where each lies, and taking away what a server that has ended leaves of it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress

OURS = "doflow-"


def path(name: str, environ: Mapping[str, str]) -> str:
    """Where tmux itself puts the socket of this name."""
    for base in (environ.get("TMUX_TMPDIR", ""), "/tmp"):
        if base and os.path.isdir(base):
            return os.path.join(os.path.realpath(base), f"tmux-{os.getuid()}", name)
    return ""


def clear(place: str) -> bool:
    """Remove a socket that nobody listens at; False = somebody does, or begins to.

    By tmux's own protocol: whoever starts a server holds `<socket>.lock`, so a server that begins just now is left alone.
    """
    try:
        fd = os.open(f"{place}.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _silent(place):
            os.unlink(f"{place}.lock")
            return False
        for name in (place, f"{place}.lock"):
            with suppress(FileNotFoundError):
                os.unlink(name)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _silent(place: str) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(place)
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except OSError:
            return False
    return False
