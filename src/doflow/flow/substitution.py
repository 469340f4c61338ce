"""Parameters in the place of `{name}`."""

from __future__ import annotations

from collections.abc import Mapping

from doflow.util.records import regex

_PARAM = regex(r"(?<![{$])\{([a-z][a-z0-9_-]*)\}(?!\})")

_ESCAPED = regex(r"\{\{([a-z][a-z0-9_-]*)\}\}")


def substitute(text: str, params: Mapping[str, str]) -> str:
    """Put parameters in the place of `{name}` (`{{name}}` is the word itself); other braces stay as they are, and
    values are not looked at again."""
    if "{" not in text:
        return text
    parts = _ESCAPED.split(text)
    for place, part in enumerate(parts):
        if place % 2:
            parts[place] = f"{{{part}}}" if part in params else f"{{{{{part}}}}}"
        else:
            parts[place] = _PARAM.sub(lambda found: params.get(found[1], found[0]), part)
    return "".join(parts)
