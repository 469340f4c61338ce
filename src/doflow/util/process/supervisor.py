"""Supervisor process: runs one program at a time and kills all its descendants when it ends.

doflow runs it as `python -I -S supervisor.py`: requests come in on stdin, answers go out on stdout, each a JSON array on its
own line. Paths, arguments, variables and input are bytes, sent as latin-1 strings (one character per byte). It has its own
session, so signals of the terminal do not reach it.

- ("run", argv, env, cwd, stdin, out, err) is answered by (code, seconds, stopped, trouble, text)
- ("stop", grace): TERM to the whole tree, KILL after the grace; the answer to "run" then follows
- end of input (doflow is gone, however it died), or TERM: everything is killed at once

On Linux it is a subreaper: whatever a program leaves behind becomes its child, so "no child left" proves that nothing
is left. Elsewhere (macOS) orphans go to init: the program's process group is killed, and on a stop the
tree as `ps` shows it; a daemon that moved to another session before that may survive.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LINUX = sys.platform.startswith("linux")
SWEEP_LIMIT = 10.0
IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
RESTORED = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
NOTHING: tuple[Any, ...] = ()
GONE: tuple[Any, ...] = ("gone",)
FAREWELL = b"doflow: stopped, because doflow itself ended\n"


class Trouble(Exception):
    """Why a program did not start: exit code, kind ('start' or 'log') and a sentence."""

    def __init__(self, code: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.kind = kind
        self.text = text


class Supervisor:
    """One control pipe, at most one program running."""

    def __init__(self, requests: int, answers: int, wake: int) -> None:
        self.requests = requests
        self.answers = answers
        self.wake = wake
        self.received = b""
        self.main, self.err = 0, b""
        self.status: int | None = None
        self.poll = select.poll()
        self.poll.register(requests, select.POLLIN)
        self.poll.register(wake, select.POLLIN)

    def serve(self) -> None:
        while (message := self.listen(None)) is not GONE:
            if message and message[0] == "run":
                self.answer(self.run(decode_request(message[1:])))

    def run(self, request: tuple[Any, ...]) -> tuple[Any, ...]:
        started = time.monotonic()
        self.status, self.err = None, request[-1]
        try:
            self.main = start(*request)
        except Trouble as trouble:
            return (trouble.code, 0.0, False, trouble.kind, trouble.text)
        stopped = self.watch()
        elapsed = time.monotonic() - started
        left = self.sweep()
        code = -signal.SIGKILL if self.status is None else os.waitstatus_to_exitcode(self.status)
        return (code, elapsed, stopped, "left" if left else "", left)

    def watch(self) -> bool:
        """Wait for the program itself, never for the pipes of its children; True if it was asked to stop."""
        deadline: float | None = None
        while True:
            self.reap()
            if self.status is not None:
                return deadline is not None
            if deadline is not None and time.monotonic() >= deadline:
                self.sweep()
                return True
            message = self.listen(deadline)
            if message is GONE:
                self.sweep()
                # its timestamp separates what was written before the end from what was written after
                os.write(log(self.err), FAREWELL)
                os._exit(0)
            if message and message[0] == "stop":
                limit = time.monotonic() + float(message[1])
                if deadline is None:
                    terminate()
                deadline = limit if deadline is None else min(deadline, limit)

    def listen(self, deadline: float | None) -> tuple[Any, ...]:
        """The next message; NOTHING when a child ended or the deadline passed."""
        if b"\n" in self.received:
            return self.receive()
        wait = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000 + 1
        ready = {descriptor for descriptor, _ in self.poll.poll(wait)}
        if self.wake in ready and signal.SIGTERM in os.read(self.wake, 65536):
            return GONE
        return self.receive() if self.requests in ready else NOTHING

    def receive(self) -> tuple[Any, ...]:
        """One whole message, GONE at end of input."""
        while b"\n" not in self.received:
            part = os.read(self.requests, 1 << 20)
            if not part:
                return GONE
            self.received += part
        line, _, self.received = self.received.partition(b"\n")
        return tuple(json.loads(line))

    def answer(self, message: tuple[Any, ...]) -> None:
        try:
            os.write(self.answers, json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            os._exit(0)

    def reap(self) -> bool:
        """Collect the dead; True when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.main:
                self.status = status

    def sweep(self) -> str:
        """STOP and KILL every descendant until none is left; what could not be killed, as text."""
        if not LINUX and self.main:
            send(-self.main, signal.SIGKILL)
        end = time.monotonic() + SWEEP_LIMIT
        pause = 0.0005
        while not self.reap():
            found = freeze()
            for pid in found:
                send(pid, signal.SIGKILL)
            if time.monotonic() > end:
                return " ".join(str(pid) for pid in sorted(found))
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
        return ""


def decode_request(words: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of `start`, as bytes again."""
    argv, env, *rest = words
    variables = {name.encode("latin-1"): value.encode("latin-1") for name, value in env.items()}
    return ([word.encode("latin-1") for word in argv], variables, *(word.encode("latin-1") for word in rest))


def start(argv: list[bytes], env: dict[bytes, bytes], cwd: bytes, stdin: bytes, out: bytes, err: bytes) -> int:
    """Start the program in its own session; its pid."""
    opened: list[int] = []
    try:
        opened.append(source(stdin))
        opened.append(log(out))
        opened.append(opened[1] if err == out else log(err))
        try:
            os.chdir(cwd)
        except OSError as error:
            raise Trouble(126, "start", f"cannot enter the folder {os.fsdecode(cwd)}: {error.strerror}") from error
        return spawn(argv, env, [(os.POSIX_SPAWN_DUP2, opened[target], target) for target in (0, 1, 2)])
    finally:
        for descriptor in set(opened):
            os.close(descriptor)
        os.chdir("/")


def source(data: bytes) -> int:
    """A descriptor that gives these bytes: an unnamed file, so that no reader can block the writer."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY)
    try:
        descriptor = os.memfd_create("stdin") if LINUX else nameless()
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError as error:
        raise Trouble(126, "log", f"cannot store the program's input: {error.strerror}") from error
    return descriptor


def nameless() -> int:
    folder = os.environ.get("TMPDIR") or "/tmp"
    path = os.path.join(folder, f"doflow-stdin-{os.getpid()}-{time.monotonic_ns()}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return descriptor


def log(path: bytes) -> int:
    """Open a log for appending. A link is refused, and a FIFO in place of a log does not block."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise Trouble(126, "log", f"cannot write the log {os.fsdecode(path)}: {error.strerror}") from error
    os.set_blocking(descriptor, True)
    return descriptor


def spawn(argv: list[bytes], env: dict[bytes, bytes], actions: list[tuple[int, int, int]]) -> int:
    name = argv[0] if argv else b""
    worst: OSError | None = None
    for path in places(name, env):
        try:
            return os.posix_spawn(path, argv, env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=RESTORED)
        except ValueError as error:
            raise Trouble(126, "start", f"its arguments or environment cannot be passed: {error}") from error
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                raise Trouble(126, "start", reason(path, error)) from error
            if worst is None and os.path.lexists(path):
                worst = OSError(error.errno, error.strerror, path)
    if worst is None:
        where = "no such file" if b"/" in name else "not on PATH"
        raise Trouble(127, "start", f"program not found: {os.fsdecode(name)} ({where})")
    raise Trouble(126, "start", reason(worst.filename, worst))


def places(name: bytes, env: dict[bytes, bytes]) -> Iterator[bytes]:
    """The paths where the program may be, in the order of PATH."""
    if b"/" in name or not name:
        yield name
        return
    for folder in env.get(b"PATH", os.defpath.encode()).split(b":"):
        place = b"%s/%s" % (folder or b".", name)
        if os.path.lexists(place):
            yield place


def reason(path: bytes, error: OSError) -> str:
    shown = os.fsdecode(path)
    if os.path.isdir(path):
        return f"not a program: {shown} is a folder"
    if error.errno == errno.ENOEXEC:
        return f"not a program: {shown} has no '#!' line and is not a binary for this machine"
    if error.errno == errno.ENOENT:
        return f"cannot start {shown}: the interpreter of its '#!' line, or the file it links to, does not exist"
    if error.errno == errno.EACCES:
        return f"not executable: {shown} (chmod +x)"
    return f"cannot start {shown}: {error.strerror}"


def terminate() -> None:
    """TERM to the whole tree; CONT, so that a stopped program receives it."""
    for pid in descendants():
        send(pid, signal.SIGTERM)
        send(pid, signal.SIGCONT)


def freeze() -> set[int]:
    """STOP all descendants until no new one appears, so that none can escape the KILL by forking."""
    known: set[int] = set()
    while new := set(descendants()) - known:
        for pid in new:
            send(pid, signal.SIGSTOP)
        known |= new
    return known


def descendants() -> list[int]:
    """Pids of our whole tree, parents first."""
    children: dict[int, list[int]] = {}
    for pid, parent in processes():
        children.setdefault(parent, []).append(pid)
    tree = list(children.get(os.getpid(), ()))
    for pid in tree:
        tree.extend(children.get(pid, ()))
    return tree


def processes() -> list[tuple[int, int]]:
    """(pid, parent) of every process."""
    if not LINUX:
        return listed()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                descriptor = os.open(f"/proc/{name}/stat", os.O_RDONLY)
                stat = os.read(descriptor, 4096)
                os.close(descriptor)
            except OSError:
                continue  # it has ended meanwhile
            found.append((int(name), int(stat.rpartition(b")")[2].split()[1])))
    return found


def listed() -> list[tuple[int, int]]:
    """The same by `ps`, where there is no /proc."""
    reader, writer = os.pipe()
    pid = os.posix_spawn("/bin/ps", ["ps", "-axo", "pid=,ppid="], {}, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)])
    os.close(writer)
    text = b""
    while part := os.read(reader, 65536):
        text += part
    os.close(reader)
    os.waitpid(pid, 0)
    rows = (line.split() for line in text.splitlines())
    return [(int(row[0]), int(row[1])) for row in rows if len(row) == 2 and int(row[0]) != pid]


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # gone already, or not ours to kill: the sweep reports what stays


def settle() -> Supervisor:
    """Move the control pipe off 0 and 1, close everything else that was inherited, get SIGCHLD and TERM through a pipe."""
    os.closerange(3 + len(sys.argv[1:]), 65536)  # 3 is the descriptor that doflow passes to the program, if any
    null = os.open(os.devnull, os.O_RDWR)  # first, so that it takes 2 if that was closed
    requests, answers = os.dup(0), os.dup(1)
    for target in (0, 1, 2):
        os.dup2(null, target)
    os.chdir("/")
    if LINUX:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    wake, alarm = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(alarm, False)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return Supervisor(requests, answers, wake)


if __name__ == "__main__":
    settle().serve()
