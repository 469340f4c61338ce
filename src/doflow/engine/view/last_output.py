"""What a program at work said last: read from its log, whether it speaks in lines or in a stream of JSON objects."""

from __future__ import annotations

import json
from collections.abc import Iterator

from doflow.util.process import runner as process

TAIL = 65536
_SPEAKING = ("text", "content", "result", "command")


def last_words(path: str) -> str:
    """The last line of a log that says something; of a stream of JSON objects, the last text in it."""
    text = process.tail(path, TAIL) or process.tail(path.removesuffix(".log") + ".err.log", TAIL)
    for line in reversed(text.splitlines()):
        said = _said(line.strip())
        if said:
            return said
    return ""


def _said(line: str) -> str:
    if line[:1] != "{":
        parts = [part for part in line.split("\\x0d") if part.strip()]  # a bar that draws itself again and again
        return parts[-1] if parts else ""
    try:
        found = json.loads(line)
    except ValueError:
        return ""
    return next((text.strip().splitlines()[-1] for text in reversed([*_texts(found)]) if text.strip()), "")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str) and name in _SPEAKING:
                yield inner
            else:
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
