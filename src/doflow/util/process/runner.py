"""Running programs: every program that doflow starts is started here, watched, and gone when `run` returns.

A program runs under a nanny (`supervisor.py`, a process of ours that is used again and again). Its output goes to files and
never through our memory; a watchdog looks at the clock and at the growth of those files. When doflow dies, however it
dies, the nanny's line breaks and the nanny kills the whole tree.
"""

from __future__ import annotations

import atexit
import marshal
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from doflow.util import deferred as idle
from doflow.util.errors import WorldError
from doflow.util.process import log_files_outputs as outputs
from doflow.util.process.command import Command, Result, Timeout
from doflow.util.text import clean, explain, tail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["clean", "close", "explain", "lending", "reset", "run", "stop_all", "stopping", "tail", "warm"]

Tick = Callable[[float, int], None]
Answer = tuple[int, float, bool, str, str]

INTERVAL = 0.2
BRIEF = 3  # ms: a program that ends sooner leaves no time for anything else
OVERDUE = 15.0
MARK = "DOFLOW_TREE"
ALIVE = ".alive"  # beside a log: when we last saw that we were alive, with its program
NANNY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervisor.py")


def run(command: Command, out: str, err: str, timeout: Timeout, tick: Tick | None = None, grace: float = 5.0) -> Result:
    """Run a program to its end; `command.env` is its whole environment. Output is appended to `out` and `err`."""
    if stopping():
        return Result(-15, out, err, 0.0, "cancelled")
    out, err = os.path.abspath(out), os.path.abspath(err)
    outputs.make_folders(out, err)
    watch = _Watch(out, err, timeout, tick, grace)
    nanny = _engage(command, out, err)
    try:
        idle.overdue()
        answer = _attend(nanny, watch)
    except BaseException:
        nanny.end()
        raise
    finally:
        watch.end()
    if answer is None:
        return _lost(nanny, watch)
    _pool.give(nanny)
    return _result(answer, watch)


def warm() -> None:
    """Start a nanny now, without waiting for it, so that the first `run` finds one ready."""
    if not _pool.free:
        _pool.give(_Nanny())


@contextmanager
def lending(descriptor: int) -> Iterator[None]:
    """The next program also gets this descriptor, as its 3. The nanny that passes it on serves no other program."""
    nanny = _Nanny((descriptor,))
    _pool.give(nanny)
    try:
        yield
    finally:
        if nanny in _pool.all:
            _pool.free[:] = [other for other in _pool.free if other is not nanny]
            nanny.end()


def stop_all(grace: float = 5.0) -> None:
    """Cancel every `run` under way and to come, until `reset`. Does not wait; safe in a signal handler."""
    _pool.grace = grace if _pool.grace is None else min(grace, _pool.grace)


def stopping() -> bool:
    """Whether `stop_all` was called and not taken back."""
    return _pool.grace is not None


def reset() -> None:
    """Let programs run again after `stop_all`."""
    _pool.grace = None


def close() -> None:
    """End the nannies, and with them whatever still runs."""
    for nanny in tuple(_pool.all):
        nanny.hang_up()
    while _pool.free:
        _pool.free.pop().end()


class _Nanny:
    """Our end of one nanny."""

    def __init__(self, lent: tuple[int, ...] = ()) -> None:
        theirs, self.requests = _pipe()
        self.answers, writer = _pipe()
        self.mark = ""
        descriptors = (theirs, 0), (writer, 1), *((fd, 3) for fd in lent)
        actions = [(os.POSIX_SPAWN_DUP2, ours, their) for ours, their in descriptors]
        argv = [sys.executable, "-I", "-S", NANNY, *("lent" for _ in lent)]
        try:
            self.pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions, setsid=True)
        except OSError as error:
            os.close(self.requests)
            os.close(self.answers)
            message = f"cannot start doflow's helper process with {sys.executable}: {error.strerror}"
            raise WorldError(message, hint="check `ulimit -u`, and that this Python is still installed") from error
        finally:
            os.close(theirs)
            os.close(writer)
        _pool.all.add(self)

    def send(self, message: tuple[Any, ...]) -> bool:
        """False when the nanny is gone."""
        data = marshal.dumps(message)
        view = memoryview(len(data).to_bytes(4, "little") + data)
        try:
            while view:
                view = view[os.write(self.requests, view) :]
        except OSError:
            return False
        return True

    def receive(self) -> Answer | None:
        """None when the nanny is gone."""
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "little"):
            part = os.read(self.answers, 65536)
            if not part:
                return None
            data += part
        answer: Answer = marshal.loads(data[4:])
        return answer

    def hang_up(self) -> None:
        """Break the line: the nanny kills what it started and ends."""
        requests, self.requests = self.requests, -1
        if requests >= 0:
            os.close(requests)

    def end(self, limit: float = OVERDUE) -> None:
        """Hang up and wait until the nanny is gone; kill it if it does not go."""
        self.hang_up()
        _pool.all.discard(self)
        deadline = time.monotonic() + limit
        pause = 0.001
        try:
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    os.kill(self.pid, 9)
                    os.waitpid(self.pid, 0)
                    break
                time.sleep(pause)
                pause = min(pause * 2, 0.05)
        except OSError:
            pass  # somebody else waited for it
        os.close(self.answers)


class _Pool:
    """The nannies there are. Only single, atomic operations on its fields: a signal handler may come at any time."""

    def __init__(self) -> None:
        self.free: list[_Nanny] = []
        self.all: set[_Nanny] = set()
        self.grace: float | None = None
        self.count = 0

    def take(self) -> _Nanny:
        try:
            return self.free.pop()
        except IndexError:
            return _Nanny()

    def give(self, nanny: _Nanny) -> None:
        if nanny.requests < 0:
            nanny.end()
        else:
            self.free.append(nanny)

    def forget(self) -> None:
        """In a forked copy of us: the line must break when the original dies, so let go of our end of it."""
        for nanny in self.all:
            nanny.hang_up()
            os.close(nanny.answers)
        self.free, self.all = [], set()


class _Watch:
    """The watchdog of one program: clock and growth of its output."""

    def __init__(self, out: str, err: str, timeout: Timeout, tick: Tick | None, grace: float) -> None:
        self.out, self.err, self.timeout, self.tick, self.grace = out, err, timeout, tick, grace
        self.before = self.size = self._measure()
        self.begun = self.grown = time.monotonic()
        self.reason = ""
        self.alive = ""

    def look(self) -> tuple[str, float]:
        """Why the program must stop now ('' = it need not), and within how many seconds."""
        now, size = time.monotonic(), self._measure()
        if size != self.size:
            self.size, self.grown = size, now
        self.alive = self.alive or outputs.beside(self.err, ALIVE)
        outputs.touch(self.alive)
        if self.tick is not None:
            self.tick(now - self.begun, max(0, size - self.before))
        if _pool.grace is not None:
            return "cancelled", _pool.grace
        if 0 < self.timeout.max <= now - self.begun:
            return "max", self.grace
        if 0 < self.timeout.idle <= now - self.grown:
            return "idle", self.grace
        return "", self.grace

    def end(self) -> None:
        if self.alive:
            outputs.remove(self.alive)

    def _measure(self) -> int:
        paths = (self.out,) if self.out == self.err else (self.out, self.err)
        return sum(outputs.size(path) for path in paths)


def _engage(command: Command, out: str, err: str) -> _Nanny:
    """Hand the program to a nanny; one that died while it was free is replaced."""
    _pool.count += 1
    mark = f"{os.getpid()}.{_pool.count}.{time.time_ns()}"
    request = ("run", [os.fsencode(word) for word in command.argv], _encoded(command.env, mark))
    files = (os.fsencode(command.cwd or os.getcwd()), command.stdin, os.fsencode(out), os.fsencode(err))
    while True:
        fresh = not _pool.free
        nanny = _pool.take()
        nanny.mark = mark
        if nanny.send(request + files):
            return nanny
        nanny.end()
        if fresh:
            message = "doflow's helper process ended before it could start a program"
            raise WorldError(message, hint=f"try: {sys.executable} -I -S {NANNY} </dev/null")


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are none of 0, 1, 2, should those be closed: what is printed must not end up in it."""
    import fcntl

    ends = os.pipe()
    high = (fcntl.fcntl(ends[0], fcntl.F_DUPFD_CLOEXEC, 3), fcntl.fcntl(ends[1], fcntl.F_DUPFD_CLOEXEC, 3))
    os.close(ends[0])
    os.close(ends[1])
    return high


def _attend(nanny: _Nanny, watch: _Watch) -> Answer | None:
    """Wait for the answer, look at the program five times a second, stop it when it must."""
    poll = select.poll()
    poll.register(nanny.answers, select.POLLIN)
    granted = deadline = float("inf")
    if poll.poll(BRIEF):
        return nanny.receive()
    idle.now()
    while not poll.poll(1 + 1000 * idle.wait(INTERVAL)):
        idle.due()
        reason, grace = watch.look()
        if reason and grace < granted:
            watch.reason = watch.reason or reason
            granted, deadline = grace, time.monotonic() + grace + OVERDUE
            nanny.send(("stop", grace))
        if time.monotonic() > deadline:
            return None
    return nanny.receive()


def _result(answer: Answer, watch: _Watch) -> Result:
    code, elapsed, stopped, trouble, text = answer
    if trouble == "log":
        raise WorldError(text, hint="check the free space, and who owns that folder")
    if trouble == "start":
        outputs.note(watch.err, text)
    if trouble == "left":
        outputs.note(watch.err, f"these processes could not be killed: {text}")
    return Result(code, watch.out, watch.err, elapsed, watch.reason if stopped else "")


def _lost(nanny: _Nanny, watch: _Watch) -> Result:
    """The nanny was killed or frozen under us: find what it started by the mark in the environment, and kill that."""
    from doflow.util.process import orphans as marked

    hung_up = nanny.requests < 0
    nanny.end(limit=0.0 if watch.reason and not hung_up else OVERDUE)
    marked.kill(f"{MARK}={nanny.mark}".encode())
    reason = watch.reason or ("cancelled" if hung_up else "")
    if not reason:
        outputs.note(
            watch.err, "the helper process that watched this program was killed, so the program was killed too"
        )
    return Result(-9, watch.out, watch.err, time.monotonic() - watch.begun, reason)


def _encoded(env: Mapping[str, str], mark: str) -> dict[bytes, bytes]:
    known = _bytes
    if len(known) > 4096:
        known.clear()
    for word in (*env, *env.values()):
        if word not in known:
            known[word] = os.fsencode(word)
    return {known[name]: known[value] for name, value in env.items()} | {os.fsencode(MARK): os.fsencode(mark)}


_bytes: dict[str, bytes] = {}  # the words of environments: nearly the same ones for every program
_pool = _Pool()
atexit.register(close)
os.register_at_fork(after_in_child=_pool.forget)
