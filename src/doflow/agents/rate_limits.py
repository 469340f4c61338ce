"""Rate limits and retries: how long to wait, and which fallback takes over.

A rate limit does not count as an attempt. A `fallback` takes over at once; else, if `rate_limit.wait` allows it, the run
waits for the reset and continues by itself; else it ends with exit code 3 and the reset time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from doflow.flow.model import Outcome, Profile, Retry, Status, Step
from doflow.runs.context import RunContext
from doflow.runs.job import Job
from doflow.util import deferred, timestamps
from doflow.util.process import runner
from doflow.util.text import format_duration

_LONGEST_FLOOR = 60.0


class RateLimitWait:
    """Waiting of one job: `over` decides after each attempt whether to try again."""

    def __init__(self, job: Job, context: RunContext) -> None:
        self._job, self._context = job, context
        self._waited = 0.0
        self._turns = 0

    def over(self, outcome: Outcome) -> Outcome | None:
        """The final outcome of the job; None = run it again now."""
        if outcome.status is not Status.RATE_LIMITED:
            return outcome
        if self._turned():
            return None
        most = self._context.settings.rate_limit_wait
        seconds = self._seconds(outcome)
        if self._waited + seconds > most:
            return _too_long(outcome, seconds, most, self._context) if most else outcome
        self._waited += seconds
        self._turns += 1
        return None if self._wait(outcome, seconds) else Outcome(Status.CANCELLED, "interrupted while waiting")

    def _turned(self) -> bool:
        """Whether a fallback agent can take over."""
        step, context = self._job.step, self._context
        name = context.profile_of(step)
        other = available_agent(step, context)
        if other == name or is_limited(other, context):
            return False
        until = context.limits.get(name, "")
        message = f"{name} is rate limited until {until}: {other} does {self._job.name} instead"
        context.events.add("warning", **self._job.where, message=message)
        return True

    def _seconds(self, outcome: Outcome) -> float:
        """Seconds until the first candidate is available again, with a growing minimum for repeated limits."""
        names = list(candidate_agents(self._job.step, self._context))
        told = [self._context.limits[name] for name in names if is_limited(name, self._context)]
        until = min(told or [outcome.resume_at])
        return max(epoch_seconds(until) - time.time(), min(float(2**self._turns), _LONGEST_FLOOR))

    def _wait(self, outcome: Outcome, seconds: float) -> bool:
        """Wait with a heartbeat every second; False = the run is being stopped."""
        context, where = self._context, self._job.where
        until = timestamps.format_seconds(time.time() + seconds)
        message = f"{outcome.reason}; waiting {format_duration(int(seconds))} until {until}, then it continues by itself (^C stops)"
        context.events.add("waiting", **where, message=message, resumeAt=until, seconds=round(seconds, 1))

        def tell(left: float) -> None:
            context.events.add("heartbeat", **where, waiting=round(left, 1), resumeAt=until)

        return sleep(seconds, tell)


def candidate_agents(step: Step, context: RunContext) -> Iterator[str]:
    """The agents that may do a step: its agent, then the chain of fallbacks."""
    name = context.profile_of(step)
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        yield name
        profile = context.settings.profile(name)
        own = step.fallback if len(seen) == 1 and not context.options.agent else ""
        name = own or (profile.fallback if profile else "")


def available_agent(step: Step, context: RunContext) -> str:
    """The first candidate that is not rate limited; if all are, the step's own agent."""
    if not context.limits:
        return context.profile_of(step)
    return next(
        (name for name in candidate_agents(step, context) if not is_limited(name, context)), context.profile_of(step)
    )


def is_limited(name: str, context: RunContext) -> bool:
    until = context.limits.get(name, "")
    return bool(until) and epoch_seconds(until) > time.time()


def refuse_if_limited(profile: Profile, context: RunContext) -> Outcome | None:
    """The outcome for an agent that is still rate limited; None = it can be called."""
    if not context.limits or not is_limited(profile.name, context):
        return None
    return Outcome(Status.RATE_LIMITED, f"{profile.name} is rate limited", resume_at=context.limits[profile.name])


def epoch_seconds(said: str) -> float:
    """An ISO time in UTC as seconds since 1970; 0 for anything else."""
    try:
        return timestamps.parse(said)
    except ValueError:
        return 0.0


def retry_policy(job: Job, context: RunContext) -> Retry:
    if not context.settings.retry_enabled or (not job.paid and job.step.retry is None):
        return Retry(0, 0)
    return job.step.retry or context.settings.retry


def backoff_seconds(rule: Retry, attempt: int) -> float:
    """Exponential backoff with 25 % jitter."""
    doubled: float = rule.backoff * 2 ** (attempt - 1)
    return doubled * (0.75 + os.urandom(1)[0] / 510)


def sleep(seconds: float, tell: Callable[[float], None] | None = None) -> bool:
    """Sleep in small steps, calling `tell` every second with the time left. False = the run is being stopped."""
    end = time.monotonic() + seconds
    told = end + 1.0
    while not runner.stopping():
        left = end - time.monotonic()
        if left <= 0:
            return True
        if tell is not None and told - left >= 1.0:
            told = left
            tell(left)
        deferred.due()
        time.sleep(min(left, 0.1))
    return False


def _too_long(outcome: Outcome, seconds: float, most: float, context: RunContext) -> Outcome:
    reason = (
        f"{outcome.reason}; {format_duration(int(seconds))} more exceeds rate_limit.wait ({format_duration(int(most))})"
    )
    return replace(outcome, reason=reason)
