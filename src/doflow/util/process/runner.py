"""Running programs: every program that doflow starts is started and watched here, and has ended when `run` returns.

A program runs under a supervisor process (`supervisor.py`), which is reused. Its output goes to files, never through our
memory; a watchdog checks the clock and the growth of those files. When doflow dies, the supervisor's pipe closes and it
kills the whole tree.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from doflow.util import deferred
from doflow.util.errors import WorldError
from doflow.util.text import clean, explain, tail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["clean", "close", "explain", "lending", "reset", "run", "stop_all", "stopping", "tail", "warm"]

Tick = Callable[[float, int], None]
Answer = tuple[int, float, bool, str, str]

INTERVAL = 0.2
BRIEF = 3  # ms: for shorter programs no other work is started while waiting
OVERDUE = 15.0
MARK = "DOFLOW_TREE"
ALIVE = ".alive"  # next to a log: its mtime is when doflow was last alive while the program ran
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervisor.py")


def run(command: Command, out: str, err: str, timeout: Timeout, tick: Tick | None = None, grace: float = 5.0) -> Result:
    """Run a program to its end; `command.env` is its whole environment. Output is appended to `out` and `err`."""
    if stopping():
        return Result(-15, out, err, 0.0, "cancelled")
    out, err = os.path.abspath(out), os.path.abspath(err)
    for folder in {os.path.dirname(out), os.path.dirname(err)}:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            hint = "check the free space and the owner of the folder above it"
            raise WorldError(f"cannot create the folder {folder}: {error.strerror}", hint=hint) from error
    watch = _Watch(out, err, timeout, tick, grace)
    supervisor = _engage(command, out, err)
    try:
        deferred.overdue()
        answer = _attend(supervisor, watch)
    except BaseException:
        supervisor.end()
        raise
    finally:
        watch.end()
    if answer is None:
        return _lost(supervisor, watch)
    _pool.give(supervisor)
    return _result(answer, watch)


def warm() -> None:
    """Start a supervisor now, without waiting for it, so that one is ready for the first `run`."""
    if not _pool.free:
        _pool.give(_Supervisor())


@contextmanager
def lending(descriptor: int) -> Iterator[None]:
    """The next program also gets this descriptor, as its 3. The supervisor that passes it on runs no other program."""
    supervisor = _Supervisor((descriptor,))
    _pool.give(supervisor)
    try:
        yield
    finally:
        if supervisor in _pool.all:
            _pool.free[:] = [other for other in _pool.free if other is not supervisor]
            supervisor.end()


def stop_all(grace: float = 5.0) -> None:
    """Cancel every current and later `run` until `reset`. Does not wait; safe in a signal handler."""
    _pool.grace = grace if _pool.grace is None else min(grace, _pool.grace)


def stopping() -> bool:
    """Whether `stop_all` was called without a `reset` since."""
    return _pool.grace is not None


def reset() -> None:
    """Let programs run again after `stop_all`."""
    _pool.grace = None


def close() -> None:
    """End the supervisors, and with them whatever still runs."""
    for supervisor in tuple(_pool.all):
        supervisor.hang_up()
    while _pool.free:
        _pool.free.pop().end()


class _Supervisor:
    """Our end of one supervisor process."""

    def __init__(self, lent: tuple[int, ...] = ()) -> None:
        theirs, self.requests = _pipe()
        self.answers, writer = _pipe()
        self.mark = ""
        descriptors = (theirs, 0), (writer, 1), *((fd, 3) for fd in lent)
        actions = [(os.POSIX_SPAWN_DUP2, ours, their) for ours, their in descriptors]
        argv = [sys.executable, "-I", "-S", PROGRAM, *("lent" for _ in lent)]
        try:
            self.pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=actions, setsid=True)
        except OSError as error:
            os.close(self.requests)
            os.close(self.answers)
            message = f"cannot start doflow's process supervisor with {sys.executable}: {error.strerror}"
            raise WorldError(message, hint="check `ulimit -u`, and that this Python is still installed") from error
        finally:
            os.close(theirs)
            os.close(writer)
        _pool.all.add(self)

    def send(self, message: tuple[Any, ...]) -> bool:
        """False when the supervisor has ended."""
        view = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while view:
                view = view[os.write(self.requests, view) :]
        except OSError:
            return False
        return True

    def receive(self) -> Answer | None:
        """None when the supervisor has ended."""
        data = b""
        while not data.endswith(b"\n"):
            part = os.read(self.answers, 65536)
            if not part:
                return None
            data += part
        code, elapsed, stopped, trouble, text = json.loads(data)
        return code, elapsed, stopped, trouble, text

    def hang_up(self) -> None:
        """Close the pipe: the supervisor kills what it started and exits."""
        requests, self.requests = self.requests, -1
        if requests >= 0:
            os.close(requests)

    def end(self, limit: float = OVERDUE) -> None:
        """Close the pipe and wait until the supervisor has ended; kill it if it does not."""
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
            pass  # already reaped elsewhere
        os.close(self.answers)


class _Pool:
    """The supervisors. Only single, atomic operations on its fields: a signal handler may run at any time."""

    def __init__(self) -> None:
        self.free: list[_Supervisor] = []
        self.all: set[_Supervisor] = set()
        self.grace: float | None = None
        self.count = 0

    def take(self) -> _Supervisor:
        try:
            return self.free.pop()
        except IndexError:
            return _Supervisor()

    def give(self, supervisor: _Supervisor) -> None:
        if supervisor.requests < 0:
            supervisor.end()
        else:
            self.free.append(supervisor)

    def forget(self) -> None:
        """In a forked child: close our ends, or the pipes would stay open when the parent dies."""
        for supervisor in self.all:
            supervisor.hang_up()
            os.close(supervisor.answers)
        self.free, self.all = [], set()


class _Watch:
    """Watchdog of one program: elapsed time and growth of its output."""

    def __init__(self, out: str, err: str, timeout: Timeout, tick: Tick | None, grace: float) -> None:
        self.out, self.err, self.timeout, self.tick, self.grace = out, err, timeout, tick, grace
        self.before = self.size = self._measure()
        self.started = self.grown = time.monotonic()
        self.reason = ""
        self.alive = ""

    def look(self) -> tuple[str, float]:
        """Why the program must stop now ('' = it needn't), and its grace period in seconds."""
        now, size = time.monotonic(), self._measure()
        if size != self.size:
            self.size, self.grown = size, now
        self.alive = os.path.join(os.path.dirname(self.err), f".{os.path.basename(self.err)}{ALIVE}")
        with suppress(OSError):
            os.close(os.open(self.alive, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
            os.utime(self.alive)
        if self.tick is not None:
            self.tick(now - self.started, max(0, size - self.before))
        if _pool.grace is not None:
            return "cancelled", _pool.grace
        if 0 < self.timeout.max <= now - self.started:
            return "max", self.grace
        if 0 < self.timeout.idle <= now - self.grown:
            return "idle", self.grace
        return "", self.grace

    def end(self) -> None:
        if self.alive:
            with suppress(OSError):
                os.unlink(self.alive)

    def _measure(self) -> int:
        size = 0
        for path in {self.out, self.err}:
            with suppress(OSError):
                size += os.stat(path).st_size
        return size


def _engage(command: Command, out: str, err: str) -> _Supervisor:
    """Send the program to a supervisor; one that died while idle is replaced."""
    _pool.count += 1
    mark = f"{os.getpid()}.{_pool.count}.{time.time_ns()}"
    env = {_encode(name): _encode(value) for name, value in {**command.env, MARK: mark}.items()}
    request = ("run", [_encode(word) for word in command.argv], env)
    files = (_encode(command.cwd or os.getcwd()), command.stdin.decode("latin-1"), _encode(out), _encode(err))
    while True:
        fresh = not _pool.free
        supervisor = _pool.take()
        supervisor.mark = mark
        if supervisor.send(request + files):
            return supervisor
        supervisor.end()
        if fresh:
            message = "doflow's process supervisor exited before it could start a program"
            raise WorldError(message, hint=f"try: {sys.executable} -I -S {PROGRAM} </dev/null")


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are never 0, 1 or 2, even if those are closed: printed text must not end up in it."""
    ends = os.pipe()
    high = (fcntl.fcntl(ends[0], fcntl.F_DUPFD_CLOEXEC, 3), fcntl.fcntl(ends[1], fcntl.F_DUPFD_CLOEXEC, 3))
    os.close(ends[0])
    os.close(ends[1])
    return high


def _attend(supervisor: _Supervisor, watch: _Watch) -> Answer | None:
    """Wait for the answer; check the program five times a second and stop it when it must."""
    poll = select.poll()
    poll.register(supervisor.answers, select.POLLIN)
    if poll.poll(BRIEF):
        return supervisor.receive()
    granted = deadline = float("inf")
    deferred.now()
    while not poll.poll(1 + 1000 * deferred.wait(INTERVAL)):
        deferred.due()
        reason, grace = watch.look()
        if reason and grace < granted:
            watch.reason = watch.reason or reason
            granted, deadline = grace, time.monotonic() + grace + OVERDUE
            supervisor.send(("stop", grace))
        if time.monotonic() > deadline:
            return None
    return supervisor.receive()


def _result(answer: Answer, watch: _Watch) -> Result:
    code, elapsed, stopped, trouble, text = answer
    if trouble == "log":
        raise WorldError(text, hint="check the free space and the owner of that folder")
    if trouble == "start":
        _append_note(watch.err, text)
    if trouble == "left":
        _append_note(watch.err, f"these processes could not be killed: {text}")
    return Result(code, watch.out, watch.err, elapsed, watch.reason if stopped else "")


def _lost(supervisor: _Supervisor, watch: _Watch) -> Result:
    """The supervisor was killed or frozen: find what it started by the mark in the environment, and kill that."""
    hung_up = supervisor.requests < 0
    supervisor.end(limit=0.0 if watch.reason and not hung_up else OVERDUE)
    kill_marked(f"{MARK}={supervisor.mark}".encode())
    reason = watch.reason or ("cancelled" if hung_up else "")
    if not reason:
        _append_note(watch.err, "the supervisor of this program was killed, so the program was killed too")
    return Result(-9, watch.out, watch.err, time.monotonic() - watch.started, reason)


def _append_note(path: str, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        return  # the result says it too
    os.write(descriptor, f"doflow: {text}\n".encode("utf-8", "replace"))
    os.close(descriptor)


def _encode(word: str) -> str:
    """One character per byte, as the supervisor expects it: a path or a variable need not be UTF-8."""
    return os.fsencode(word).decode("latin-1")


_pool = _Pool()
atexit.register(close)
os.register_at_fork(after_in_child=_pool.forget)


def kill_marked(*marks: bytes) -> set[int]:
    """Kill every process whose environment holds all the marks (where there is a /proc to see it); the pids.

    A mark that ends in `*` matches by prefix.
    """
    killed: set[int] = set()
    for _ in range(100 if os.path.isdir("/proc/self") else 0):
        found = [name for name in os.listdir("/proc") if name.isdigit() and _marked(name, marks)]
        if not found:
            break
        killed.update(int(name) for name in found)
        for name in found:
            with suppress(OSError):  # it has ended meanwhile
                os.kill(int(name), 9)
        time.sleep(0.01)
    return killed


def _marked(pid: str, marks: tuple[bytes, ...]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return False
    return all(any(_same(word, mark) for word in words) for mark in marks)


def _same(word: bytes, mark: bytes) -> bool:
    return word.startswith(mark[:-1]) if mark.endswith(b"*") else word == mark


@dataclass(frozen=True, slots=True)
class Timeout:
    """Seconds without output, and seconds in all; 0 = no limit."""

    idle: float = 600.0
    max: float = 7200.0


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start, without a shell."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """How a program ended: `code` is negative for a signal; `stopped` is '', idle, max or cancelled."""

    code: int
    out: str
    err: str
    elapsed: float = 0.0
    stopped: str = ""
