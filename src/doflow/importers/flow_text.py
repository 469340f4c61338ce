"""Flows as YAML text, laid out as a person would write them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from doflow.flow.parsing import loader
from doflow.flow.parsing.syntax import COMMANDS

_PLAIN = re.compile(r"/?[A-Za-z_][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
_PARAM = re.compile(r"(?<![{$])\{([a-z][a-z0-9_-]*)\}(?!\})")
_WIDTH = 118


def write_flow(flow: Mapping[str, Any], source: str) -> str:
    """A flow file: `flow` holds its keys in order, the steps among them."""
    lines = [f"# Imported from {source} by `doflow import`. It is yours: edit it as you like."]
    for key, value in flow.items():
        if key in ("steps", "params"):
            lines.append(f"{key}:")
            for name, entry in value.items():
                lines += _entry(_key(name), entry, 2)
        else:
            lines += _entry(key, value, 0)
    return "\n".join(lines) + "\n"


def _entry(key: str, value: Any, indent: int) -> Iterator[str]:
    pad = " " * indent
    short = f"{pad}{key}: {_inline(value)}"
    if isinstance(value, Mapping) and value and (len(short) > _WIDTH or _has_block(value)):
        yield f"{pad}{key}:"
        for name, inner in value.items():
            yield from _entry(_key(name), inner, indent + 2)
    elif isinstance(value, str) and _is_block(value):
        yield f"{pad}{key}: |"
        yield from (f"{pad}  {line}".rstrip() for line in value.rstrip("\n").split("\n"))
    elif isinstance(value, Sequence) and not isinstance(value, str) and len(short) > _WIDTH:
        yield f"{pad}{key}:"
        yield from (f"{pad}  - {_inline(item)}" for item in value)
    else:
        yield short


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return scalar(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)}: {_inline(inner)}" for key, inner in value.items()) + "}"
    return "[" + ", ".join(_inline(inner) for inner in value) + "]"


def _key(name: str) -> str:
    return scalar(name)


def _has_block(value: Mapping[str, Any]) -> bool:
    return any(
        (isinstance(inner, str) and _is_block(inner)) or (isinstance(inner, Mapping) and _has_block(inner))
        for inner in value.values()
    )


def _is_block(text: str) -> bool:
    """Several lines that a literal block keeps: printable, no blanks at an end, no indentation at the start."""
    lines = text.rstrip("\n").split("\n")
    return (
        len(lines) > 1
        and bool(lines[0])
        and not lines[0][0].isspace()
        and all(line.isprintable() and line == line.rstrip() for line in lines)
    )


def scalar(text: str) -> str:
    """A text as YAML: plain where that is certain, else in double quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    if char == "\n":
        return "\\n"
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def literal(text: str) -> str:
    """A text of another tool for a prompt in a flow: its braces are not params."""
    return _PARAM.sub(r"{{\1}}", text)


def step_name(text: str, taken: Collection[str] = ()) -> str:
    """A valid name that is not taken yet."""
    name = re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_")[:60].strip("-_") or "step"
    number, free = 2, name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def flow_name(wanted: str, prefix: str) -> str:
    """A valid name of a flow; one that doit or a packaged flow has gets a prefix."""
    name = step_name(wanted)
    taken = name in COMMANDS or (loader.packaged_flows() / f"{name}.yaml").exists()
    return step_name(f"{prefix}-{name}") if taken else name
