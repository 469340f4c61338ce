"""When a limit ends, from the words of an error: `try again in 2 hours`, `retry after 41s`, `resets 4:28am (UTC)`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_SPAN = r"\d+(?:\.\d+)?\s*(?:ms|d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)\b"
_BEFORE = r"(?:again|retry|retrying(?:[\w ]+\(\d+/\d+)?|resets?|wait)"
_IN = rf"{_BEFORE}\s+(?:in|after)?\s*((?:{_SPAN}[\s,]*(?:and\s+)?|\d+(?:\.\d+)?[dhms](?=\d))+)"
_AT = r"(?:again|resets?|until)\s+(?:at\s+|on\s+)?(.{3,60})"
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
_DAY = r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+(\d{1,2})(?:st|nd|rd|th)?\b(?:,?\s+(\d{4}))?"
_CLOCK = r"\b(\d{1,2})(?::(\d\d))?\s*([ap])\.?m\b"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def said(text: str, now: datetime | None = None) -> str:
    """The time that the words name, for `contract.resume_at`; '' when they name none."""
    import re

    now = now or datetime.now(UTC)
    if found := re.search(r"\|(\d{10})\b", text):
        return at(int(found.group(1)))
    if found := re.search(_IN, text, re.IGNORECASE):
        return after(_seconds(found.group(1)), now)
    for found in re.finditer(_AT, text, re.IGNORECASE):
        if moment := _moment(found.group(1), now):
            return moment.isoformat()
    return ""


def at(epoch: float) -> str:
    """A moment in seconds since 1970."""
    try:
        return datetime.fromtimestamp(epoch, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""


def after(seconds: float, now: datetime | None = None) -> str:
    """A moment some seconds from now."""
    return ((now or datetime.now(UTC)) + timedelta(seconds=min(seconds, 1e8))).isoformat()


def dated(words: str) -> str:
    """A date as headers write it: `Fri, 31 Dec 2027 23:59:59 GMT`; '' for anything else."""
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(words).isoformat() if words else ""
    except (ValueError, TypeError, OverflowError):
        return ""


def _seconds(words: str) -> float:
    import re

    total = 0.0
    for number, unit in re.findall(r"(\d+(?:\.\d+)?)\s*(ms|[dhms])", words.casefold()):
        total += float(number) * _UNITS.get(unit, 0.001)
    return total


def _moment(words: str, now: datetime) -> datetime | None:
    """A date and a time of day, either alone too; without a zone it is local time."""
    import re

    if found := re.search(_ISO, words):
        return _whole(found.group())
    zone = _zone(words)
    here = now.astimezone(zone)
    day = re.search(_DAY, words, re.IGNORECASE)
    clock = re.search(_CLOCK, words, re.IGNORECASE)
    if not day and not clock:
        return None
    hour, minute = _time(clock.groups()) if clock else (0, 0)
    try:
        moment = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
        if day:
            month, number, year = _MONTHS.index(day.group(1).casefold()) + 1, int(day.group(2)), day.group(3)
            return moment.replace(int(year) if year else here.year, month, number)
    except ValueError:
        return None
    return moment if moment > here else moment + timedelta(days=1)


def _whole(words: str) -> datetime | None:
    try:
        return datetime.fromisoformat(words).astimezone()
    except (ValueError, OverflowError):
        return None


def _time(clock: tuple[str | None, ...]) -> tuple[int, int]:
    return int(clock[0] or 0) % 12 + (12 if (clock[2] or "").casefold() == "p" else 0), int(clock[1] or 0)


def _zone(words: str) -> tzinfo | None:
    """The zone in parentheses; None is the local one."""
    import re

    found = re.search(r"\(([A-Za-z_]+(?:/[A-Za-z_]+)*)\)", words)
    if not found:
        return None
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(found.group(1))
    except (KeyError, ValueError, OSError):
        return UTC if found.group(1) == "UTC" else None
