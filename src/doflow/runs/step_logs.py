"""Watching a program of a run: its log, its limits, its signs of life; and keeping what it was given."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from doflow.flow import plan
from doflow.runs.context import STATE, World
from doflow.runs.job import Job
from doflow.util import atomic_files as files
from doflow.util.process.command import Timeout
from doflow.util.text import span

_SPARE = ".spare"
LARGE = 64_000_000


def remember(job: Job, world: World) -> None:
    """Keep the inputs of a job, so that a later revision can be told what changed in them."""
    store = world.root / STATE / "store"
    for path, digest in job.key.reads.items():
        if digest and "#" not in path and path not in world.place.boxed and not (store / digest).exists():
            store.mkdir(parents=True, exist_ok=True)
            files.write(str(store / digest), (world.root / path).read_bytes())


def timeout_of(job: Job, world: World) -> Timeout:
    return plan.timeout(job.step, world.settings)


def log_path(job: Job, world: World, attempt: int, role: str = "step", part: str = "") -> str:
    """Where what is said goes; attempts are numbered on from those of earlier commands. `part`: whose, within the job."""
    extra = "" if role == "step" else f".{role}"
    name = f"{job.name}:{part}" if part else job.name
    stem = name.replace(":", ".").replace("/", ".")
    before = world.book.tries.get(job.name)
    if before:
        attempt += _earlier(stem, world, 0 if part else before)
    return f"{world.logs}/{stem}.{attempt}{extra}.log"


def free_path(job: Job, world: World, attempt: int, role: str = "step") -> str:
    """Each repair, and each try of a command, has a log of its own, several in one attempt, too."""
    while os.path.lexists(path := log_path(job, world, attempt, role)):
        attempt += 1
    return path


def _earlier(stem: str, world: World, begun: int) -> int:
    """How many attempts earlier commands have made, by ledger and folder; looked up once."""
    found = world.book.logged.get(stem)
    if found is None:
        numbers = [begun]
        with suppress(OSError):
            names = (name for name in os.listdir(world.logs) if name.startswith(f"{stem}."))
            numbers += [int(part) for name in names if (part := name[len(stem) + 1 :].partition(".")[0]).isdecimal()]
        found = world.book.logged[stem] = max(numbers)
    return found


def begin_log(log: str, world: World) -> None:
    """Room for what a command will say. The file that the last silent one left is taken again: making one costs more
    than all the rest of a small step."""
    with suppress(FileNotFoundError):
        os.unlink(log)
    with suppress(OSError):
        os.rename(os.path.join(world.logs, _SPARE), log)


def end_log(log: str, world: World) -> None:
    """Who said nothing leaves no log, and who said far too much not all of it."""
    with suppress(OSError):
        size = os.stat(log).st_size
        if not size:
            os.rename(log, os.path.join(world.logs, _SPARE))
        elif size > LARGE:
            cut(log)


def cut(*logs: str) -> None:
    """Logs that are too large are cut in the middle."""
    for log in logs:
        with suppress(OSError):
            if os.stat(log).st_size > LARGE:
                from doflow.util.process import log_files as trimming

                trimming.trim(log)


def beat(job: Job, world: World, out: str) -> Callable[[float, int], None]:
    """While a program runs: a sign of life for whoever watches, at most once in a second."""
    last, heard = [-1.0], [0 if job.paid else -1]

    def tick(elapsed: float, size: int) -> None:
        if elapsed - last[0] >= 1.0:
            last[0] = elapsed
            world.ledger.add("heartbeat", **job.where, elapsed=round(elapsed, 1), bytes=size, log=out)
            if heard[0] >= 0:
                heard[0] = _complains(job, world, out.removesuffix(".log") + ".err.log", heard[0])

    return tick


def _complains(job: Job, world: World, err: str, heard: int) -> int:
    """An agent that meets a limit may wait for hours without a word: that is told at once, and once. Gives how much of its
    complaints is heard; -1 = enough of it."""
    try:
        size = os.stat(err).st_size
    except OSError:
        return heard
    if size <= heard:
        return heard
    from doflow.agents.adapters import vendor_cli as endings

    said = endings.last(err)
    if not endings.limited(said):
        return size
    idle = timeout_of(job, world).idle
    stop = f"; after {span(idle)} without output it is stopped (`timeouts.idle`)" if idle else ""
    message = f"the agent of {job.name} complains of a limit and may wait until it ends{stop}: {said}"
    world.ledger.add("warning", **job.where, message=message)
    return -1
