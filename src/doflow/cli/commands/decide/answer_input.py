"""Answers as a person gives them: on the command line or in a file, each for the question with a number."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from doflow.util.errors import FlowError, UsageError
from doflow.util.records import regex

Numbered = Mapping[int, str]
Given = tuple[Numbered, Sequence[str]]  # for the question with a number; for the others in their order

_KEY = regex(r"^(\d+)(:(?:\s|$))", re.M)
_YAML = regex(r"(?:-|\d+:)(?:\s|$)")


def settled(given: Given, questions: int) -> dict[int, str]:
    """Each answer at the number of its question; an empty one, or one too many, is refused."""
    numbered, rest = given
    found = dict(numbered)
    odd = [number for number in found if not 1 <= number <= questions]
    if odd:
        raise UsageError(f"there is no question {odd[0]} (there are {questions})", "doflow answer --list")
    free = [number for number in range(1, questions + 1) if number not in found]
    if len(rest) > len(free):
        raise UsageError(f"{len(rest) + len(numbered)} answers for {questions} open questions", "doflow answer --list")
    found.update(zip(free, rest, strict=False))
    empty = [number for number, text in found.items() if not text.strip()]
    if empty:
        hint = "leave it out to keep the question open, or say it: doflow answer --answer " + f'{empty[0]}="…"'
        raise UsageError(f"the answer to question {empty[0]} is empty; nothing was written", hint)
    if not found:
        raise UsageError("there is no answer in it; nothing was written", "doflow answer --list")
    return {number: text.strip() for number, text in sorted(found.items())}


def said(rest: Sequence[str], flags: Sequence[str]) -> Given:
    """From the command line: ANSWER … and --answer N=TEXT."""
    numbered: dict[int, str] = {}
    for flag in flags:
        number, equals, text = flag.partition("=")
        if not equals or not number.strip().isdecimal():
            raise UsageError(f"--answer {flag!r} does not say which question", 'doflow answer --answer 2="…"')
        if int(number) in numbered:
            raise UsageError(f"question {int(number)} is answered twice", "keep one of the two")
        numbered[int(number)] = text
    return numbered, rest


def read(name: str) -> Given:
    """From a file: a YAML or JSON list, a map from number to answer, or one answer per line; `-` = standard input."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as cause:
        raise UsageError(f"{name}: cannot be read ({cause.strerror})", "doflow answer --file answers.yaml") from cause
    except UnicodeDecodeError as cause:
        raise UsageError(f"{name}: is not UTF-8", "save it as UTF-8") from cause
    bare = text.strip()
    if bare[:1] in ("[", "{") and not name.endswith((".yaml", ".yml")):
        return _values(_json(bare, name), name)
    if name.endswith((".yaml", ".yml")) or _YAML.match(bare):
        return _values(_yaml(text, name), name)
    return {}, [line.strip() for line in bare.splitlines() if line.strip()]


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text, parse_int=str, parse_float=str)
    except ValueError as cause:
        raise UsageError(f"{name}: this is not JSON ({cause})", 'write ["first answer", "second answer"]') from cause


def _yaml(text: str, name: str) -> Any:
    """As plain text, whatever a word looks like: `yes` and `1.50` are answers, not values."""
    from doflow.flow.parsing import loader as load

    quoted = _KEY.sub(r'"\1"\2', text)
    inner = "".join(f"  {line}" for line in quoted.splitlines(keepends=True))
    try:
        return _words(load.tree(f"answers:\n{inner}\n", name).nodes().value[0][1])
    except FlowError as cause:
        what = cause.problems[0].message
        line = max(1, cause.problems[0].line - 1)
        raise UsageError(f"{name}:{line}: {what}", "write `- answer` lines, or `2: answer` lines") from cause


def _words(node: Any) -> Any:
    """A tree of YAML nodes as lists, maps and the very words that stand there."""
    if isinstance(node.value, str):
        return node.value
    if node.value and isinstance(node.value[0], tuple):
        return {key.value: _words(value) for key, value in node.value}
    return [_words(entry) for entry in node.value]


def _values(value: Any, name: str) -> Given:
    if isinstance(value, dict):
        odd = next((key for key in value if not str(key).isdecimal()), None)
        if odd is not None:
            raise UsageError(f"{name}: {odd!r} is not the number of a question", "write `2: answer`")
        return {int(key): _text(text, name) for key, text in value.items()}, ()
    if isinstance(value, list):
        return {}, [_text(text, name) for text in value]
    return {}, [_text(value, name)]


def _text(value: Any, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise UsageError(f"{name}: an answer must be plain text", "write one text per question")
    return value
