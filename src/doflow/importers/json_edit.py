"""Changing one value in a JSON text: every other byte stays as it is."""

from __future__ import annotations

import json
import re

_TOKEN = re.compile(r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[{}\[\]:,])|(?P<rest>[^\s{}\[\]:,"]+))', re.DOTALL)


def find_value(text: str, path: tuple[str | int, ...]) -> tuple[int, int] | None:
    """Start and end of the string, number or word at a path; None if there is none."""
    stack: list[str | int] = []  # the key or index of each open object or list
    expects_key = False
    for found in _TOKEN.finditer(text):
        mark = found["mark"] or ""
        if mark in ("{", "["):
            stack.append("" if mark == "{" else 0)
            expects_key = mark == "{"
        elif mark in ("}", "]"):
            if not stack:
                return None
            stack.pop()
            expects_key = False
        elif mark == ",":
            if not stack:
                return None
            last = stack[-1]
            stack[-1] = last + 1 if isinstance(last, int) else last
            expects_key = isinstance(last, str)
        elif mark == ":":
            expects_key = False
        elif expects_key and found["string"]:
            stack[-1] = json.loads(found["string"])
        elif tuple(stack) == path:
            return found.span("string" if found["string"] else "rest")
    return None


def replace_value(text: str, path: tuple[str | int, ...], value: str) -> str:
    """The text with another string at a path, which must exist."""
    span = find_value(text, path)
    if span is None:
        raise ValueError(f"no value at {path}")
    return f"{text[: span[0]]}{json.dumps(value, ensure_ascii=False)}{text[span[1] :]}"
