"""Text for users: how a program ended, durations, escaping of hostile text, the end of a log, slugs, redaction."""

from __future__ import annotations

import json
import os
import re
import signal
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from doflow.util.process.runner import Result, Timeout

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
        return f"{name} was cancelled after {format_duration(result.elapsed)}"
    if result.stopped == "idle":
        quiet = f"{format_duration(timeout.idle)} without output" if timeout else "too long without output"
        return f"{name} was stopped after {quiet} (ran {format_duration(result.elapsed)})"
    if result.stopped == "max":
        return f"{name} was stopped after {format_duration(timeout.max if timeout else result.elapsed)}, its time limit"
    if result.code < 0:
        return f"{name} was killed by signal {_signal(-result.code)}"
    if result.code == 0:
        return f"{name} succeeded (exit 0)"
    return f"{name} {_CODES.get(result.code) or _exit(result.code)}"


def format_duration(seconds: float) -> str:
    """A length of time: 0.4s, 12s, 10m, 1h 5m."""
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f}s"
    whole = int(seconds)
    parts = ((whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "m"), (whole % 60, "s"))
    words = [f"{count}{unit}" for count, unit in parts if count]
    return " ".join(words[:2]) or "0s"


def clean(text: str) -> str:
    """The text with everything that could fool a terminal or a reader escaped (`\\x1b`, `\\u202e`)."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return re.sub(_UNSAFE, lambda found: _escape(ord(found.group())), text.replace("\r\n", "\n"))


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _exit(code: int) -> str:
    if 128 < code < 160:
        return f"exited {code} (128 + {code - 128}: as if killed by signal {_signal(code - 128)})"
    return f"failed with exit code {code}"


def _signal(number: int) -> str:
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
    plain = unicodedata.normalize("NFKD", goal[:400].replace("ß", "ss"))  # é is e and an accent
    words = re.findall("[a-z0-9]+", plain.encode("ascii", "ignore").decode().lower())
    text = ""
    for word in words[:4]:
        if len(text) + len(word) + bool(text) > 30:
            break
        text = f"{text}-{word}" if text else word
    return text or (words[0][:30] if words else "")


def json_line(entry: Mapping[str, Any]) -> bytes:
    """A line of a `.jsonl` file."""
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


_NAMES = re.compile(r"(?i)(key|token|secret|passw|credential|auth|cookie|dsn)")
_SHAPES = (
    (
        "private key",
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.|\n|\\n)*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    ),
    ("api key", re.compile(r"\bsk-[A-Za-z0-9_-]{16,}")),
    ("github token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})")),
    ("gitlab token", re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}")),
    ("npm token", re.compile(r"\bnpm_[A-Za-z0-9]{20,}")),
    ("slack token", re.compile(r"\bxox[abeprs]-[A-Za-z0-9-]{10,}")),
    ("aws key", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    ("google key", re.compile(r"\bAIza[A-Za-z0-9_-]{30,}")),
    ("web token", re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}")),
    ("bearer", re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{12,}")),
    ("password", re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")),
)
_SHORTEST = 8
_BEGIN, _END = "-----BEGIN ", "-----END "


class Redactor:
    """Replaces each secret by `[redacted: NAME]`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        known = {value: name for name, value in environ.items() if _NAMES.search(name) and _secret(value)}
        self._known = sorted(known.items(), key=lambda pair: -len(pair[0]))

    def text(self, text: str) -> str:
        for value, name in self._known:
            text = text.replace(value, f"[redacted: {name}]")
        for name, shape in _SHAPES:
            text = shape.sub(f"[redacted: {name}]", text)
        return text

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """The same line by line, for logs of any size; private keys that span lines are found."""
        inside = False
        for line in lines:
            if inside:
                inside = _END not in line
                continue
            inside = _BEGIN in line and "PRIVATE KEY" in line and _END not in line
            yield self.text(line.rstrip("\n")) + "\n" if inside else self.text(line)


def _secret(value: str) -> bool:
    """Long enough for a secret, and not the path of a socket or a file."""
    return len(value) >= _SHORTEST and not value.startswith(("/", "~"))
