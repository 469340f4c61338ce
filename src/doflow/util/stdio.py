"""stdout and stderr wrappers that ignore a closed pipe (`doflow run … | head -1`)."""

from __future__ import annotations

import errno
import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

_GONE = (errno.EPIPE, errno.EIO)  # the pipe has no reader, or the terminal is gone


class Outlet(io.FileIO):
    """`deaf`: nothing is written any more. `patient`: every failure to write is ignored, even a full disk."""

    deaf = False
    patient = False

    def write(self, data: Any) -> int:
        if self.deaf:
            return len(data)
        try:
            return super().write(data) or 0
        except OSError as error:
            if not self.patient and error.errno not in _GONE:
                raise
            self.deaf = True
            return len(data)


def open_(patient: bool = False) -> None:
    """Wrap this process's stdout and stderr; `patient` for a run, whose result must not depend on its output."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream is getattr(sys, f"__{name}__") and not isinstance(_raw(stream), Outlet):
            stream = _through(stream)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        raw = _raw(getattr(sys, name))
        if isinstance(raw, Outlet):
            raw.patient = raw.patient or patient


def give_up() -> None:
    """Don't retry a failed write at exit, where it would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def gone() -> bool:
    """Whether the reader of standard output is gone."""
    raw = _raw(sys.stdout)
    return isinstance(raw, Outlet) and raw.deaf


def _raw(stream: TextIO | None) -> object:
    return getattr(getattr(stream, "buffer", None), "raw", None)


def _through(stream: TextIO) -> TextIO:
    """The same stream, by descriptor, wrapped."""
    stream.flush()
    eager = bool(stream.line_buffering or getattr(stream, "write_through", False))
    whole = io.BufferedWriter(Outlet(stream.fileno(), "wb", closefd=False))
    return io.TextIOWrapper(whole, stream.encoding, stream.errors, newline="\n", line_buffering=eager)
