"""Dying at a chosen point: doit is run by this script in a process that kills itself, as `kill -9` would, at effect n.

    python crash.py KIND N doit's own arguments …

- `records`: before and after every line of the event log, after every change of doit's memory
- `writes`: like `records`, and before and after every file that is written whole
- `effects`: in the middle and at the end of every write, after every sync, rename, removal, new folder and git process
- `session`: like `records`, but in the bug-fix session that is started inside
- `locks`: while git holds its locks, in every call of it that changes a ref or the person's index
- `after:EVENT:NAME`, `before:EVENT:NAME`: after or before a line of the event log with this event of this step (`plan`) or
  phase (`implement:2`); `complete` is `step_complete` or `phase_complete`

N counts from 1; a run that ends before its N-th point (N = 0: in any case) ends as usual and leaves the number of its
points in `~/points.KIND`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any


class Points:
    """Counts the points that are passed; at the chosen one the process is gone."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.passed = 0

    def reach(self) -> None:
        self.passed += 1
        if self.passed == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str) -> None:
        """A point before and one after every call."""
        plain: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **given: Any) -> Any:
            self.reach()
            result = plain(*args, **given)
            self.reach()
            return result

        setattr(owner, name, wrapped)

    def before(self, owner: Any, name: str) -> None:
        plain: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **given: Any) -> Any:
            self.reach()
            return plain(*args, **given)

        setattr(owner, name, wrapped)

    def after(self, owner: Any, name: str) -> None:
        plain: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **given: Any) -> Any:
            result = plain(*args, **given)
            self.reach()
            return result

        setattr(owner, name, wrapped)

    def torn(self, write: Callable[..., int]) -> Callable[..., int]:
        """os.write with one point in the middle and one at the end."""

        def wrapped(fd: int, data: Any) -> int:
            self.passed += 1
            if self.passed == self.last:
                write(fd, bytes(data)[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            count = write(fd, data)
            self.reach()
            return count

        return wrapped


def records(points: Points) -> None:
    from doflow.engine.doit import backend
    from doflow.runs import event_log

    points.around(event_log.EventLog, "add")
    points.after(backend.Backend, "_commit")


def writes(points: Points) -> None:
    """Whatever is written whole ends in a rename: before it is started and after that."""
    from doflow.util import atomic_files

    records(points)
    points.before(atomic_files, "write_file")
    points.after(os, "replace")


def effects(points: Points) -> None:
    from doflow.engine.doit import backend
    from doflow.git import repository

    os.write = points.torn(os.write)
    for name in ("fsync", "replace", "rename", "unlink", "mkdir", "rmdir", "symlink", "posix_spawn"):
        points.after(os, name)
    points.after(repository.Repository, "_execute")
    points.after(backend.Backend, "_commit")


def locks(points: Points) -> None:
    """The files that git holds while it works are made, and with them in place the process dies."""
    from doflow.git import repository

    def holding(plain: Callable[..., Any], words: Callable[..., tuple[str, ...]], folder: Callable[..., str]) -> Any:
        def wrapped(*args: Any, **given: Any) -> Any:
            said = words(*args)
            names = _locked(said, str(given) + str(args))
            points.passed += bool(names)
            if names and points.passed == points.last:
                for name in names:
                    path = os.path.join(folder(*args), f"{name}.lock")
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, "w"):
                        pass
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(*args, **given)

        return wrapped

    execute = repository.Repository._execute
    held = holding(execute, lambda self, args, *_: args, lambda self, *_: self.head.git_dir)
    setattr(repository.Repository, "_execute", held)  # noqa: B010 - the tests' own point of failure


def line(points: Points, which: str) -> None:
    """By what is written, whoever writes it."""
    when, event, name = which.split(":", 2)
    plain = os.write

    def wrapped(fd: int, data: Any) -> int:
        meant = _line(data) == (event, name)
        if meant and when == "before":
            points.reach()
        count = plain(fd, data)
        if meant and when == "after":
            points.reach()
        return count

    os.write = wrapped


def _line(data: Any) -> tuple[str, str]:
    """Event and step or phase, if this is a line of a event log."""
    import json

    try:
        entry = json.loads(bytes(data))
        event, name = entry["event"], entry["step"] + (f":{entry['phase']}" if entry.get("phase") else "")
    except (ValueError, TypeError, KeyError):
        return "", ""
    return ("complete" if event in ("step_complete", "phase_complete") else event), name


def session(points: Points) -> None:
    """The process of a bug-fix session counts its own points, this one none."""
    from doflow.engine.steps import bugfix_session

    here = os.path.dirname(os.path.abspath(__file__))
    last, points.last = points.last, 0
    bugfix_session._SELF = f"import sys; sys.path.append({here!r}); import crash; sys.exit(crash.inside({last}))"


def inside(last: int) -> int:
    from doflow.cli.main import main as doflow

    points = Points(last)
    records(points)
    code = doflow()
    _tell("session", points)
    return code


def _tell(kind: str, points: Points) -> None:
    """How many points there are, for whoever wants to choose among them."""
    with open(os.path.expanduser(f"~/points.{kind}"), "w") as file:
        file.write(str(points.passed))


def _locked(args: tuple[str, ...], about: str) -> list[str]:
    """What git locks for this command, by its name without `.lock`."""
    if args[0] == "update-ref":
        ref = next(word for word in args if word.startswith("refs/"))
        return [ref, "HEAD"] if ref.startswith("refs/heads/") else [ref]
    if args[0] == "symbolic-ref":
        return ["HEAD"]
    if args[0] in ("read-tree", "update-index") and "doflow-" not in about:
        return ["index"]
    return []


def alive(home: os.PathLike[str]) -> dict[int, str]:
    """Every process that runs with this home: pid and command line. (A test's home is its own.)"""
    mark = b"HOME=" + os.fsencode(home)
    found: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    mine = mark in file.read().split(b"\0")
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if mine and words:
                found[int(name)] = words
    return found


def killed_at_work(project: Any, script: str) -> None:
    """doflow, killed with `kill -9` when its agent has said that it is ready; nothing of it is left at work."""
    from tests.support.project import eventually

    project.agent(script)
    run = project.start("doit", "work", "--goal=x")
    assert eventually((project.outside / "ready").exists)
    run.send_signal(signal.SIGKILL)
    run.wait(60)
    assert none_left(project.home) == {}


def killed_at(project: Any, which: str, *words: str) -> None:
    """doit, gone after or before a line of the event log (`after:returned:plan`)."""
    import subprocess

    argv = (sys.executable, __file__, which, "1", *words)
    done = subprocess.run(
        argv, cwd=project.root, env=project.env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    assert none_left(project.home) == {}


def none_left(home: os.PathLike[str], seconds: float = 30.0) -> dict[int, str]:
    """What is still alive after a while, shorter than any agent here sleeps: {} as soon as nothing is."""
    import time

    until = time.monotonic() + seconds
    while (found := alive(home)) and time.monotonic() < until:
        time.sleep(0.005)
    return found


def kill_all(home: os.PathLike[str]) -> None:
    """Kill until nothing is left. A process that is just being started shows no environment, so one look proves nothing."""
    import time

    empty, until = 0, time.monotonic() + 60.0
    while empty < 3:
        found = alive(home)
        assert time.monotonic() < until, found
        empty = 0 if found else empty + 1
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def main() -> int:
    kind, last, sys.argv = sys.argv[1], int(sys.argv[2]), ["doit", *sys.argv[3:]]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    from doit.doit_cmd import DoitMain

    points = Points(last)
    if ":" in kind:
        line(points, kind)
    else:
        {"records": records, "writes": writes, "effects": effects, "locks": locks, "session": session}[kind](points)
    code = int(DoitMain().run(sys.argv[1:]) or 0)
    if kind != "session" and ":" not in kind:
        _tell(kind, points)
    return code


if __name__ == "__main__":
    sys.exit(main())
