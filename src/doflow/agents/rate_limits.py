"""When an agent cannot work now: how long to wait before trying again, and who does it instead.

A used-up quota costs no attempt. A `fallback` takes over at once; else, where `rate_limit.wait` allows it, the run waits for
the reset, visibly, and goes on by itself; else it ends with exit code 3 and the time to come back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from doflow.flow.model import Outcome, Profile, Retry, Status, Step
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.util import deferred as idle
from doflow.util.process import runner as process
from doflow.util.records import replace
from doflow.util.text import span

_LONGEST_FLOOR = 60.0


class Patience:
    """With one job: `over` says after each end whether it is to go on."""

    def __init__(self, job: Job, world: World) -> None:
        self._job, self._world = job, world
        self._waited = 0.0
        self._turns = 0

    def over(self, outcome: Outcome) -> Outcome | None:
        """How the job ends; None = it is to be done again, now."""
        if outcome.status is not Status.RATE_LIMITED:
            return outcome
        if self._turned():
            return None
        most = self._world.settings.rate_limit_wait
        seconds = self._seconds(outcome)
        if self._waited + seconds > most:
            return _too_long(outcome, seconds, most, self._world) if most else outcome
        self._waited += seconds
        self._turns += 1
        return None if self._wait(outcome, seconds) else Outcome(Status.CANCELLED, "interrupted while waiting")

    def _turned(self) -> bool:
        """Somebody else can do it."""
        step, world = self._job.step, self._world
        name = world.profile_of(step)
        other = stand_in(step, world)
        if other == name or limited(other, world):
            return False
        until = world.limits.get(name, "")
        message = f"{name} is rate limited until {until}: {other} does {self._job.name} instead"
        world.ledger.add("warning", **self._job.where, message=message)
        return True

    def _seconds(self, outcome: Outcome) -> float:
        """Until the first of those who may do it is free again; who names a near moment again and again waits longer."""
        names = list(chain(self._job.step, self._world))
        told = [self._world.limits[name] for name in names if limited(name, self._world)]
        until = min(told or [outcome.resume_at])
        return max(moment(until) - time.time(), min(float(2**self._turns), _LONGEST_FLOOR))

    def _wait(self, outcome: Outcome, seconds: float) -> bool:
        """Sleep, with a sign of life every second; False = the run is being stopped."""
        world, where = self._world, self._job.where
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
        message = f"{outcome.reason}; waiting {span(int(seconds))} until {until}, then it goes on by itself (^C stops)"
        world.ledger.add("waiting", **where, message=message, resumeAt=until, seconds=round(seconds, 1))

        def tell(left: float) -> None:
            world.ledger.add("heartbeat", **where, waiting=round(left, 1), resumeAt=until)

        return sleep(seconds, tell)


def chain(step: Step, world: World) -> Iterator[str]:
    """Who may do a step: its agent, then that one's fallback, and so on."""
    name = world.profile_of(step)
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        yield name
        profile = world.settings.profile(name)
        own = step.fallback if len(seen) == 1 and not world.options.agent else ""
        name = own or (profile.fallback if profile else "")


def stand_in(step: Step, world: World) -> str:
    """Who does a step now: the first who is not known to be limited; if all are, the one it belongs to."""
    if not world.limits:
        return world.profile_of(step)
    return next((name for name in chain(step, world) if not limited(name, world)), world.profile_of(step))


def limited(name: str, world: World) -> bool:
    until = world.limits.get(name, "")
    return bool(until) and moment(until) > time.time()


def refused(profile: Profile, world: World) -> Outcome | None:
    """Whoever is known to be limited is not called at all."""
    if not world.limits or not limited(profile.name, world):
        return None
    return Outcome(Status.RATE_LIMITED, f"{profile.name} is rate limited", resume_at=world.limits[profile.name])


def moment(said: str) -> float:
    """An ISO time in UTC as seconds since 1970; 0 for anything else."""
    import calendar

    try:
        return float(calendar.timegm(time.strptime(said, "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return 0.0


def retry(job: Job, world: World) -> Retry:
    if not world.settings.retry_enabled or (not job.paid and job.step.retry is None):
        return Retry(0, 0)
    return job.step.retry or world.settings.retry


def backoff(rule: Retry, attempt: int) -> float:
    """Doubling, and a quarter more or less of it, so that many who failed together do not come back together."""
    doubled: float = rule.backoff * 2 ** (attempt - 1)
    return doubled * (0.75 + os.urandom(1)[0] / 510)


def sleep(seconds: float, tell: Callable[[float], None] | None = None) -> bool:
    """Wait in small pieces; `tell` hears every second what is left. False = the run is being stopped."""
    end = time.monotonic() + seconds
    told = end + 1.0
    while not process.stopping():
        left = end - time.monotonic()
        if left <= 0:
            return True
        if tell is not None and told - left >= 1.0:
            told = left
            tell(left)
        idle.due()
        time.sleep(min(left, 0.1))
    return False


def _too_long(outcome: Outcome, seconds: float, most: float, world: World) -> Outcome:
    reason = f"{outcome.reason}; {span(int(seconds))} more is longer than rate_limit.wait allows ({span(int(most))})"
    return replace(outcome, reason=reason, hint=outcome.hint or f"at {outcome.resume_at} or later: {world.again}")
