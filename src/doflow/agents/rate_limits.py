"""Rate limits and retries: when a limit ends, how long to wait, and which fallback takes over.

A rate limit does not count as an attempt. A `fallback` takes over at once; else, if `rate_limit.wait` allows it, the run
waits for the reset and continues by itself; else it ends with exit code 3 and the reset time.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import parsedate_to_datetime
from zoneinfo import ZoneInfo

from doflow.flow.model import Outcome, Profile, Retry, Status, Step
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
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
            wait, limit = format_duration(int(seconds)), format_duration(int(most))
            reason = f"{outcome.reason}; {wait} more exceeds rate_limit.wait ({limit})"
            return replace(outcome, reason=reason) if most else outcome
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
        context = self._context
        names = [name for name in candidate_agents(self._job.step, context) if is_limited(name, context)]
        until = min([context.limits[name] for name in names] or [outcome.resume_at])
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
    names = (name for name in candidate_agents(step, context) if not is_limited(name, context))
    return next(names, context.profile_of(step))


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


_SOONEST = timedelta(minutes=1)
_LATEST = timedelta(days=7)
_UNSAID = timedelta(hours=1)
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SPAN = r"\d+(?:\.\d+)?\s*(?:ms|d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)\b"
_BEFORE = r"(?:again|retry|retrying(?:[\w ]+\(\d+/\d+)?|resets?|wait)"
_IN = rf"{_BEFORE}\s+(?:in|after)?\s*((?:{_SPAN}[\s,]*(?:and\s+)?|\d+(?:\.\d+)?[dhms](?=\d))+)"
_AT = r"(?:again|resets?|until)\s+(?:at\s+|on\s+)?(.{3,60})"
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY = rf"\b({'|'.join(_MONTHS)})[a-z]*\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+(\d{{4}}))?"
_CLOCK = r"\b(\d{1,2})(?::(\d\d))?\s*([ap])\.?m\b"


def distant_time_note(said: str, now: datetime | None = None) -> str:
    """A note for a reset time beyond the maximum wait; '' for any other."""
    moment = _in_utc(said)
    far = moment is not None and moment > (now or datetime.now(UTC)) + _LATEST
    return f" (the agent said {said.strip()}; limited to {_LATEST.days} days)" if far else ""


def parse_resume_time(said: str, now: datetime | None = None) -> str:
    """When to try again, in UTC: in a minute to a week; without a valid time in an hour. Without a zone it is local time."""
    now = now or datetime.now(UTC)
    moment = _in_utc(said) or now + _UNSAID
    moment = now + _SOONEST if moment <= now else min(moment, now + _LATEST)
    return timestamps.format_seconds(moment.timestamp())


def parse_reset_time(text: str, now: datetime | None = None) -> str:
    """The reset time in an error text, for `parse_resume_time`; '' if there is none."""
    now = now or datetime.now(UTC)
    if found := re.search(r"\|(\d{10})\b", text):
        return time_from_epoch(int(found.group(1)))
    if found := re.search(_IN, text, re.IGNORECASE):
        return time_from_now(_seconds(found.group(1)), now)
    for found in re.finditer(_AT, text, re.IGNORECASE):
        if moment := _moment(found.group(1), now):
            return moment.isoformat()
    return ""


def time_from_epoch(epoch: float) -> str:
    """A moment in seconds since 1970."""
    try:
        return datetime.fromtimestamp(epoch, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def time_from_now(seconds: float, now: datetime | None = None) -> str:
    """A moment some seconds from now."""
    return ((now or datetime.now(UTC)) + timedelta(seconds=min(seconds, 1e8))).isoformat()


def parse_http_date(words: str) -> str:
    """A date as headers write it: `Fri, 31 Dec 2027 23:59:59 GMT`; '' for anything else."""
    try:
        return parsedate_to_datetime(words).isoformat() if words else ""
    except (ValueError, TypeError, OverflowError):
        return ""


def _seconds(words: str) -> float:
    spans = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|[dhms])", words.casefold())
    return sum(float(number) * _UNITS[unit] for number, unit in spans)


def _moment(words: str, now: datetime) -> datetime | None:
    """A date and a time of day, either alone too; without a zone it is local time."""
    if found := re.search(_ISO, words):
        return _in_utc(found.group())
    here = now.astimezone(_zone(words))
    day = re.search(_DAY, words, re.IGNORECASE)
    clock = re.search(_CLOCK, words, re.IGNORECASE)
    if not day and not clock:
        return None
    number, minutes, half = clock.groups() if clock else (0, 0, "a")
    hour, minute = int(number) % 12 + (12 if half in "pP" else 0), int(minutes or 0)
    try:
        moment = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
        if day:
            month, year = _MONTHS.index(day.group(1).casefold()) + 1, int(day.group(3) or here.year)
            return moment.replace(year, month, int(day.group(2)))
    except ValueError:
        return None
    return moment if moment > here else moment + timedelta(days=1)


def _in_utc(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _zone(words: str) -> tzinfo | None:
    """The zone in parentheses; None is the local one."""
    found = re.search(r"\(([A-Za-z_]+(?:/[A-Za-z_]+)*)\)", words)
    if not found:
        return None
    try:
        return ZoneInfo(found.group(1))
    except (KeyError, ValueError, OSError):
        return UTC if found.group(1) == "UTC" else None
