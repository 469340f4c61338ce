"""Secrets taken out of text before it is kept: values of the person's secret variables, and what looks like a key. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from doflow.util.records import regex

_NAMES = regex(r"(?i)(key|token|secret|passw|credential|auth|cookie|dsn)")
_SHAPES = (
    ("private key", regex(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.|\n|\\n)*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)")),
    ("api key", regex(r"\bsk-[A-Za-z0-9_-]{16,}")),
    ("github token", regex(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})")),
    ("gitlab token", regex(r"\bglpat-[A-Za-z0-9_-]{16,}")),
    ("npm token", regex(r"\bnpm_[A-Za-z0-9]{20,}")),
    ("slack token", regex(r"\bxox[abeprs]-[A-Za-z0-9-]{10,}")),
    ("aws key", regex(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    ("google key", regex(r"\bAIza[A-Za-z0-9_-]{30,}")),
    ("web token", regex(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}")),
    ("bearer", regex(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{12,}")),
    ("password", regex(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")),
)
_SHORTEST = 8
_BEGIN, _END = "-----BEGIN ", "-----END "


class Redactor:
    """Knows what must not be kept. A secret becomes `[redacted: NAME]`, the same each time."""

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
        """The same line by line, for logs of any size; a private key is found over its lines."""
        inside = False
        for line in lines:
            if inside:
                inside = _END not in line
                continue
            inside = _BEGIN in line and "PRIVATE KEY" in line and _END not in line
            yield self.text(line.rstrip("\n")) + "\n" if inside else self.text(line)


def _secret(value: str) -> bool:
    """Long enough to be one, and no path of a socket or a file."""
    return len(value) >= _SHORTEST and not value.startswith(("/", "~"))
