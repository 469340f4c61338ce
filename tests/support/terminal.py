"""A terminal with a program in it: what the program wrote, byte by byte, and what a person sees of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

import pexpect
import pyte
from tests.support.project import PROGRAMS, Project


class Terminal:
    """Ends what it started, however the test ends."""

    def __init__(
        self,
        project: Project,
        program: str,
        *args: str,
        width: int = 80,
        height: int = 24,
        env: dict[str, str] | None = None,
    ) -> None:
        self.raw = b""
        self.frames: list[str] = []
        self._screen = pyte.HistoryScreen(width, height, history=5000)
        self._stream = pyte.ByteStream(self._screen)
        self._child = pexpect.spawn(
            str(PROGRAMS / program),
            list(args),
            cwd=str(project.root),
            env=project.env | {"TERM": "xterm-256color"} | (env or {}),
            dimensions=(height, width),
            timeout=30,
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.close(force=True)

    def until(self, found: str | Callable[[str], bool], seconds: float = 60.0) -> str:
        """Reads on until the screen shows the words, or the claim about it holds; gives the screen."""
        claim = found if callable(found) else lambda seen: found in seen
        end = time.monotonic() + seconds
        while not claim(self.screen()):
            assert time.monotonic() < end, f"never seen: {found}\n{self.text()}"
            assert self._read() or claim(self.screen()), f"ended before {found} was seen:\n{self.text()}"
        return self.screen()

    def wait(self, seconds: float = 120.0) -> int:
        """Reads to the end; gives the exit code (of a signal: negative)."""
        end = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < end, f"does not end:\n{self.text()}"
        self._child.wait()
        status = self._child.exitstatus
        return int(-self._child.signalstatus if status is None else status)

    def press(self, keys: str) -> None:
        self._child.send(keys)

    def resize(self, width: int, height: int = 24) -> None:
        self._child.setwinsize(height, width)
        self._screen.resize(height, width)

    def screen(self) -> str:
        """What is to be seen now, without the empty end of it."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def text(self) -> str:
        """Scroll-back and screen."""
        gone = ["".join(line[place].data for place in range(self._screen.columns)) for line in self._screen.history.top]
        return "\n".join([*(line.rstrip() for line in gone), self.screen()]).strip("\n")

    @property
    def pid(self) -> int:
        return int(self._child.pid)

    @property
    def cursor_hidden(self) -> bool:
        return bool(self._screen.cursor.hidden)

    @property
    def cursor_column(self) -> int:
        return int(self._screen.cursor.x)

    def _read(self) -> bool:
        """False at the end."""
        try:
            part = self._child.read_nonblocking(65536, timeout=0.2)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += part
        self._stream.feed(part)
        self.frames.append(self.screen())
        return True
