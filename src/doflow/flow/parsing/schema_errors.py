"""What does not fit a schema, in a person's words: which key, what is wrong, what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from doflow.flow.parsing.document import nearest
from doflow.util.records import dataclass

_NAMES = {
    "string": "text",
    "array": "a list",
    "object": "a mapping",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "null": "null",
}
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "y"), "true"),
    **dict.fromkeys(("false", "no", "off", "n"), "false"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that does not fit; `key` = the key itself is wrong, not what it holds."""

    path: tuple[str | int, ...]
    message: str
    hint: str = ""
    key: bool = False


def worded(error: Any) -> Iterator[Fault]:
    """The faults that one error of the validating library stands for."""
    path = tuple(error.absolute_path)
    if error.validator == "anyOf":
        yield from _of_union(error, path)
    elif error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        for name in (name for name in error.instance if name not in known):
            hint = nearest(name, known) or f"known here: {', '.join(sorted(known))}"
            yield Fault((*path, name), f"unknown key {name!r}", hint, key=True)
    elif error.validator == "required":
        for name in (name for name in error.validator_value if name not in error.instance):
            yield Fault(path, f"the key {name!r} is missing", error.schema.get("description", ""), key=True)
    else:
        yield Fault(path, *_sentence(error))


def _of_union(error: Any, path: tuple[str | int, ...]) -> Iterator[Fault]:
    """Of a union, only the branch that has the value's own type can say what is wrong."""
    branches: dict[int, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    fitting = [
        inners
        for inners in branches.values()
        if not any(inner.validator in ("type", "const") and not inner.path for inner in inners)
    ]
    for inner in fitting[0] if fitting else ():
        yield from worded(inner)
    if not fitting:
        wanted = dict.fromkeys(name for inners in branches.values() for inner in inners for name in _wanted(inner))
        hint = error.schema.get("description", "")
        meant = _meant(error.instance, set(wanted))
        yield Fault(path, f"{_shown(error.instance)} is not {' or '.join(wanted)}", meant or hint)


def _wanted(error: Any) -> Iterator[str]:
    """What a branch of a union would have taken."""
    if error.validator == "const":
        yield _shown(error.validator_value)
    elif error.validator == "type" and not error.path:
        yield from _types(error.validator_value)


def _types(rule: str | list[str]) -> Iterator[str]:
    yield from (_NAMES[name] for name in ([rule] if isinstance(rule, str) else rule))


def _sentence(error: Any) -> tuple[str, str]:
    shown, rule, hint = _shown(error.instance), error.validator_value, error.schema.get("description", "")
    if error.validator == "type":
        wanted = list(_types(rule))
        return f"{shown} is not {' or '.join(wanted)}", _meant(error.instance, set(wanted)) or hint
    if error.validator == "enum":
        options = [_shown(option) for option in rule]
        close = nearest(str(error.instance), [str(option) for option in rule])
        return f"{shown} is not one of {', '.join(options)}", close or hint
    if error.validator == "pattern":
        return f"{shown} is not written as it must be", hint
    if error.validator == "minimum":
        return f"{shown} is less than {rule}", hint
    if error.validator in ("minLength", "minItems", "minProperties"):
        return "there is nothing in it", hint
    return str(error.message), hint


def _meant(value: object, wanted: set[str]) -> str:
    """What to write for a value that is nearly right: a word that only other readers of YAML understand, a lack of quotes."""
    if isinstance(value, bool | int | float):
        text = str(value).lower()
        return f'write it in quotes if it is a text: "{text}"' if "text" in wanted else ""
    word = value.lower() if isinstance(value, str) else ""
    if word in _BOOLEANS and not wanted.isdisjoint(("true or false", "true", "false")):
        return f"write {_BOOLEANS[word]}, in small letters and without quotes"
    if word in ("null", "none", "~") and "null" in wanted:
        return "write null, in small letters and without quotes"
    number = _number(word) if not wanted.isdisjoint(("a number", "a whole number")) else None
    if number is None or ("a number" not in wanted and number != int(number)):
        return ""
    return f"write {int(number) if number == int(number) else number}, without quotes"


def _number(word: str) -> float | None:
    """The number that a word means elsewhere: `.5`, `+1`, `1_000`, `0x1f`, `012`, or one in quotes."""
    try:
        found = float(int(word, 16)) if word.startswith("0x") else float(word)
    except ValueError:
        return None
    return found if abs(found) < 1e15 else None


def _shown(value: object) -> str:
    if value is None:
        return "null (nothing)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    return repr(value) if len(str(value)) <= 60 else repr(str(value)[:57] + "...")
