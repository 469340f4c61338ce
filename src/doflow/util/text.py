"""How things are said to a person: the end of a program, a span of time, hostile text made visible, the end of a log,
a goal as a name."""

from __future__ import annotations

import os
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

    from doflow.util.process.command import Result, Timeout

# Control characters but tab and newline, DEL and C1, soft hyphen, direction marks and overrides, zero-width characters,
# line separators, lone surrogates, annotations, tag characters and the selectors that can smuggle text.
_UNSAFE = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_CODES = {
    126: "could not be started: it is not executable, or its folder cannot be entered",
    127: "was not found: install it, or check PATH",
}


def explain(result: Result, argv: tuple[str, ...], timeout: Timeout | None = None) -> str:
    """How a program ended, in one sentence."""
    name = clean(argv[0].rpartition("/")[2]) if argv else "the program"
    if result.stopped == "cancelled":
        return f"{name} was cancelled after {span(result.elapsed)}"
    if result.stopped == "idle":
        quiet = f"{span(timeout.idle)} without output" if timeout else "too long without output"
        return f"{name} was stopped after {quiet} (it ran {span(result.elapsed)})"
    if result.stopped == "max":
        return f"{name} was stopped after {span(timeout.max if timeout else result.elapsed)}, its time limit"
    if result.code < 0:
        return f"{name} was killed by signal {_signal(-result.code)}"
    if result.code == 0:
        return f"{name} ended well (exit 0)"
    return f"{name} {_CODES.get(result.code) or _exit(result.code)}"


def span(seconds: float) -> str:
    """A length of time: 0.4s, 12s, 10m, 1h 5m."""
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f}s"
    whole = int(seconds)
    parts = ((whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "m"), (whole % 60, "s"))
    said = [f"{count}{unit}" for count, unit in parts if count]
    return " ".join(said[:2]) or "0s"


def clean(text: str) -> str:
    """The text with everything that could fool a terminal or an eye written out as an escape (`\\x1b`, `\\u202e`)."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _unsafe().sub(lambda found: _escape(ord(found.group())), text.replace("\r\n", "\n"))


@cache
def _unsafe() -> re.Pattern[str]:
    import re

    return re.compile(_UNSAFE)


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _exit(code: int) -> str:
    if 128 < code < 160:
        return f"exited {code} (128 + {code - 128}: as if killed by signal {_signal(code - 128)})"
    return f"failed with exit code {code}"


def _signal(number: int) -> str:
    import signal

    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def tail(path: str, limit: int = 4000) -> str:
    """The last text of a log (of its last `limit` bytes), safe to show; '' when there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size > limit:
            file.seek(size - limit)
        data = file.read(limit) or b""
    if size <= limit:
        return clean(data.decode("utf-8", "replace"))
    whole = data[data.find(b"\n") + 1 :] if b"\n" in data[: limit // 2] else data.lstrip(_CONTINUATION)
    return "…\n" + clean(whole.decode("utf-8", "replace"))


_CONTINUATION = bytes(range(0x80, 0xC0))


def slug(goal: str) -> str:
    """The first words of a goal in ASCII letters and digits, 30 characters at most."""
    said = goal[:400]
    if not said.isascii():
        import unicodedata

        said = unicodedata.normalize("NFKD", said.replace("ß", "ss"))  # é is e and an accent
    import re

    words = re.findall("[a-z0-9]+", said.encode("ascii", "ignore").decode().lower())
    text = ""
    for word in words[:4]:
        if len(text) + len(word) + bool(text) > 30:
            break
        text = f"{text}-{word}" if text else word
    return text or (words[0][:30] if words else "")
