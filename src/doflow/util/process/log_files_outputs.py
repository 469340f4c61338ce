"""The files that the output of programs goes to, and the sign beside them that doflow was alive with its program."""

from __future__ import annotations

import os
from contextlib import suppress

from doflow.util.errors import WorldError


def make_folders(*paths: str) -> None:
    for path in dict.fromkeys(paths):
        folder = os.path.dirname(path)
        if os.path.isdir(folder):
            continue
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            hint = "check the free space, and who owns the folder above it"
            raise WorldError(f"cannot make the folder {folder}: {error.strerror}", hint=hint) from error


def touch(path: str) -> None:
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
        os.utime(path)


def beside(path: str, ending: str) -> str:
    """A name that no list of logs takes for one of them."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}{ending}")


def remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def note(path: str, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        return  # the result says it too
    os.write(descriptor, f"doflow: {text}\n".encode("utf-8", "replace"))
    os.close(descriptor)
