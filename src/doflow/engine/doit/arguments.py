"""A command line whose options stand in the wrong place for doit: the same words in the order that works."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any


def reword(words: Sequence[str], own: Sequence[Any], theirs: Sequence[Any], flow: str) -> str:
    """doit's `own` options before the flow, `theirs` (the flow's) behind it; '' if a word is neither or all stands right."""
    left = list(words)
    first: list[str] = []
    named: list[str] = []
    last: list[str] = []
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            named.append(word)
            continue
        place, option = next(
            ((place, one) for place, many in ((last, theirs), (first, own)) for one in many if _is(one, word)),
            (first, None),
        )
        if option is None:
            return ""
        place.append(word)
        if _wants(option, word) and left:
            place.append(left.pop(0))
    right = [*first, *(named or [flow]), *last]
    return f"doit {shlex.join(right)}" if right != list(words) and right[len(first)] else ""


def _is(option: Any, word: str) -> bool:
    if word.startswith("--"):
        return bool(word[2:].partition("=")[0] in (option.long, option.inverse) and word[2:])
    return bool(option.short) and word[1:].startswith(option.short)


def _wants(option: Any, word: str) -> bool:
    """Does its value stand in the next word?"""
    return option.type is not bool and (word == f"-{option.short}" or (word.startswith("--") and "=" not in word))
