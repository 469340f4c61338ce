"""Schema validation: jsonschema finds the errors, this module describes them: which key, what is wrong, what to write instead.

jsonschema takes about 70 ms to import, so it is imported here on first use: compiled flows come from the cache without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from doflow.flow.parsing.document import nearest

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


class SchemaViolation(NamedTuple):
    """One violation of a schema; `key` = the key itself is wrong, not its value."""

    path: tuple[str | int, ...]
    message: str
    hint: str = ""
    key: bool = False


def faults(value: object, name: str) -> tuple[SchemaViolation, ...]:
    """Everything in `value` that violates the schema called `name`; () = it is valid."""
    return _sorted_faults(validator(name), value)


def check_against(value: object, schema: Mapping[str, Any]) -> tuple[SchemaViolation, ...]:
    """The same for a schema that is given as data."""
    return _sorted_faults(_validator(schema), value)


@cache
def validator(name: str) -> Any:
    return _validator(load_schema(name))


@cache
def load_schema(name: str) -> Mapping[str, Any]:
    return json.loads((data_folder("schemas") / f"{name}.schema.json").read_text("utf-8"))  # type: ignore[no-any-return]


def data_folder(folder: str) -> Path:
    """A folder that is shipped with doflow: in the wheel below the package, in a checkout next to `src`."""
    here = Path(__file__).resolve().parents[2]
    installed = here / "_data" / folder
    return installed if installed.is_dir() else here.parent.parent / folder


def _validator(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema)


def _sorted_faults(checker: Any, value: object) -> tuple[SchemaViolation, ...]:
    found = {fault: None for error in checker.iter_errors(value) for fault in _describe(error)}
    return tuple(sorted(found, key=lambda fault: [str(part) for part in fault.path]))


def _describe(error: Any) -> Iterator[SchemaViolation]:
    """The faults for one error of jsonschema."""
    path = tuple(error.absolute_path)
    if error.validator == "anyOf":
        yield from _describe_union(error, path)
    elif error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        for name in (name for name in error.instance if name not in known):
            hint = nearest(name, known) or f"known here: {', '.join(sorted(known))}"
            yield SchemaViolation((*path, name), f"unknown key {name!r}", hint, key=True)
    elif error.validator == "required":
        for name in (name for name in error.validator_value if name not in error.instance):
            yield SchemaViolation(path, f"missing key {name!r}", error.schema.get("description", ""), key=True)
    else:
        yield SchemaViolation(path, *_sentence(error))


def _describe_union(error: Any, path: tuple[str | int, ...]) -> Iterator[SchemaViolation]:
    """Of a union, only the branch of the value's own type can explain what is wrong."""
    branches: dict[int, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    fitting = [
        inners
        for inners in branches.values()
        if not any(inner.validator in ("type", "const") and not inner.path for inner in inners)
    ]
    for inner in fitting[0] if fitting else ():
        yield from _describe(inner)
    if not fitting:
        wanted = dict.fromkeys(name for inners in branches.values() for inner in inners for name in _wanted(inner))
        hint = error.schema.get("description", "")
        meant = _correction(error.instance, set(wanted))
        yield SchemaViolation(path, f"{_shown(error.instance)} is not {' or '.join(wanted)}", meant or hint)


def _wanted(error: Any) -> Iterator[str]:
    """What a branch of a union accepts."""
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
        return f"{shown} is not {' or '.join(wanted)}", _correction(error.instance, set(wanted)) or hint
    if error.validator == "enum":
        options = [_shown(option) for option in rule]
        close = nearest(str(error.instance), [str(option) for option in rule])
        return f"{shown} is not one of {', '.join(options)}", close or hint
    if error.validator == "pattern":
        return f"{shown} has the wrong format", hint
    if error.validator == "minimum":
        return f"{shown} is less than {rule}", hint
    if error.validator in ("minLength", "minItems", "minProperties"):
        return "must not be empty", hint
    return str(error.message), hint


def _correction(value: object, wanted: set[str]) -> str:
    """What to write for a value that is nearly right: YAML 1.1 booleans and numbers, missing or superfluous quotes."""
    if isinstance(value, bool | int | float):
        text = str(value).lower()
        return f'put it in quotes to make it text: "{text}"' if "text" in wanted else ""
    word = value.lower() if isinstance(value, str) else ""
    if word in _BOOLEANS and not wanted.isdisjoint(("true or false", "true", "false")):
        return f"write {_BOOLEANS[word]}, in lower case and without quotes"
    if word in ("null", "none", "~") and "null" in wanted:
        return "write null, in lower case and without quotes"
    number = _number(word) if not wanted.isdisjoint(("a number", "a whole number")) else None
    if number is None or ("a number" not in wanted and number != int(number)):
        return ""
    return f"write {int(number) if number == int(number) else number}, without quotes"


def _number(word: str) -> float | None:
    """The number that other YAML parsers read: `.5`, `+1`, `1_000`, `0x1f`, `012`, or one in quotes."""
    try:
        found = float(int(word, 16)) if word.startswith("0x") else float(word)
    except ValueError:
        return None
    return found if abs(found) < 1e15 else None


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    return repr(value) if len(str(value)) <= 60 else repr(str(value)[:57] + "...")
