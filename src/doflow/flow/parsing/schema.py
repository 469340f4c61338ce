"""Fitting data to a schema: a quick yes here, and only for a no the full library, which explains.

The quick reader knows the part of JSON Schema 2020-12 that our own schemas use, and refuses a schema
that uses more, so that the two can never differ in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doflow.util.records import regex

if TYPE_CHECKING:
    from doflow.flow.parsing.schema_errors import Fault

Fits = Callable[[Any], bool]

_NOTES = frozenset(("$schema", "$id", "$defs", "title", "description", "default", "examples"))
_OF_OBJECTS = frozenset(("properties", "additionalProperties", "required", "then"))


def faults(value: object, name: str) -> tuple[Fault, ...]:
    """Everything in `value` that does not fit the schema called `name`; nothing = it fits."""
    return () if fits(name)(value) else explain(value, read(name))


@cache
def fits(name: str) -> Fits:
    return compiled(read(name))


@cache
def read(name: str) -> Mapping[str, Any]:
    import json

    return json.loads((data("schemas") / f"{name}.schema.json").read_text("utf-8"))  # type: ignore[no-any-return]


def data(folder: str) -> Path:
    """A folder that is shipped with doflow: in the wheel below the package, in a checkout beside `src`."""
    here = Path(__file__).resolve().parents[2]
    installed = here / "_data" / folder
    return installed if installed.is_dir() else here.parent.parent / folder


def compiled(schema: Mapping[str, Any]) -> Fits:
    return _compile(schema, schema.get("$defs", {}), {})


def _compile(node: Mapping[str, Any], defs: Mapping[str, Any], done: dict[str, Fits]) -> Fits:
    tests: list[Fits] = []
    words = node.keys() - _NOTES
    if words == {"type", "minLength"} and node["type"] == "string":
        return lambda value: isinstance(value, str) and len(value) >= node["minLength"]
    if words == {"type", "items"} and node["type"] == "array":
        test = _compile(node["items"], defs, done)
        return lambda value: isinstance(value, list) and all(map(test, value))
    for word, rule in node.items():
        if word in _SIMPLE:
            tests.append(_SIMPLE[word](rule))
        elif word in _NESTED:
            tests.append(_NESTED[word](rule, node, defs, done))
        elif word not in _NOTES and word not in _OF_OBJECTS:
            raise ValueError(f"the schema word {word!r} is not known here")
    if not _OF_OBJECTS.isdisjoint(node):
        tests.append(_object(node, defs, done))
    return _each(tests)


def _each(tests: Sequence[Fits]) -> Fits:
    """All of the tests; a plain loop, because this is the road that every step of every flow takes."""
    if len(tests) == 1:
        return tests[0]

    def check(value: object) -> bool:
        for test in tests:  # noqa: SIM110 - twice as fast as all()
            if not test(value):
                return False
        return True

    return check


def _object(node: Mapping[str, Any], defs: Mapping[str, Any], done: dict[str, Fits]) -> Fits:
    known = {name: _compile(rule, defs, done) for name, rule in node.get("properties", {}).items()}
    more = node.get("additionalProperties", True)
    other = _compile(more, defs, done) if isinstance(more, dict) else None
    required = frozenset(node.get("required", ()))

    def some(value: object) -> bool:
        """Other keys are free: only the known ones are looked at."""
        if not isinstance(value, dict):
            return True
        for name, test in known.items():
            if name in value and not test(value[name]):
                return False
        return required <= value.keys()

    def every(value: object) -> bool:
        if not isinstance(value, dict):
            return True
        for name, entry in value.items():
            test = known.get(name, other)
            if test is None or not test(entry):
                return False
        return not required or required <= value.keys()

    return some if more is True else every


def _type(rule: str | list[str]) -> Fits:
    return _either([_TYPES[name] for name in ([rule] if isinstance(rule, str) else rule)])


def _either(tests: Sequence[Fits]) -> Fits:
    def check(value: object) -> bool:
        for test in tests:  # noqa: SIM110 - twice as fast as any()
            if test(value):
                return True
        return False

    return tests[0] if len(tests) == 1 else check


def _pattern(rule: str) -> Fits:
    found = regex(rule)
    return lambda value: not isinstance(value, str) or found.search(value) is not None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return _is_number(value) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


def _same(value: object, other: object) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _enum(rule: list[object]) -> Fits:
    words = frozenset(entry for entry in rule if isinstance(entry, str))
    rest = [entry for entry in rule if not isinstance(entry, str)]
    return lambda value: value in words if isinstance(value, str) else any(_same(value, entry) for entry in rest)


_TYPES: dict[str, Fits] = {
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": _is_whole,
}

_SIMPLE: dict[str, Callable[[Any], Fits]] = {
    "type": _type,
    "pattern": _pattern,
    "const": lambda rule: lambda value: _same(value, rule),
    "enum": _enum,
    "minLength": lambda rule: lambda value: not isinstance(value, str) or len(value) >= rule,
    "minItems": lambda rule: lambda value: not isinstance(value, list) or len(value) >= rule,
    "minProperties": lambda rule: lambda value: not isinstance(value, dict) or len(value) >= rule,
    "minimum": lambda rule: lambda value: not _is_number(value) or value >= rule,
}


def _ref(rule: str, _: object, defs: Mapping[str, Any], done: dict[str, Fits]) -> Fits:
    name = rule.removeprefix("#/$defs/")
    if name not in done:
        done[name] = _compile(defs[name], defs, done)
    return done[name]


def _items(rule: Mapping[str, Any], _: object, defs: Mapping[str, Any], done: dict[str, Fits]) -> Fits:
    test = _compile(rule, defs, done)
    return lambda value: not isinstance(value, list) or all(map(test, value))


def _any(rules: list[Mapping[str, Any]], _: object, defs: Mapping[str, Any], done: dict[str, Fits]) -> Fits:
    return _either([_compile(rule, defs, done) for rule in rules])


def _all(rules: list[Mapping[str, Any]], _: object, defs: Mapping[str, Any], done: dict[str, Fits]) -> Fits:
    cases = [_case(rule) for rule in rules]
    first = cases[0]
    if first and all(case and case[0] == first[0] and isinstance(case[1], str) for case in cases):
        thens = [_compile(rule["then"], defs, done) for rule in rules]
        return _switch(first[0], [(case[1], case[2]) for case in cases if case], thens)
    return _each([_compile(rule, defs, done) for rule in rules])


def _if(rule: Mapping[str, Any], node: Mapping[str, Any], defs: Mapping[str, Any], done: dict[str, Fits]) -> Fits:
    then, asked = _compile(node["then"], defs, done), _compile(rule, defs, done)
    return lambda value: not asked(value) or then(value)


def _case(rule: Mapping[str, Any]) -> tuple[str, object, bool] | None:
    """`if` one key has one value (or, unless it is needed, is not there): the key, the value, whether it is needed."""
    asked = rule.get("if", {})
    known = asked.get("properties", {})
    if rule.keys() != {"if", "then"} or len(known) != 1 or not asked.keys() <= {"properties", "required"}:
        return None
    ((key, test),) = known.items()
    needed = asked.get("required", [])
    return (key, test["const"], bool(needed)) if test.keys() == {"const"} and needed in ([], [key]) else None


def _switch(key: str, cases: Sequence[tuple[object, bool]], thens: Sequence[Fits]) -> Fits:
    """Many `if`s about one key: every step is asked them all, so they are asked by looking up the value."""
    table: dict[object, Fits] = {}
    for wanted in dict.fromkeys(said for said, _ in cases):
        table[wanted] = _each([then for (said, _), then in zip(cases, thens, strict=True) if said == wanted])
    absent = _each([then for (_, needed), then in zip(cases, thens, strict=True) if not needed])
    every = _each(thens)

    def check(value: object) -> bool:
        if not isinstance(value, dict):
            return every(value)
        if key not in value:
            return absent(value)
        said = value[key]
        return not isinstance(said, str) or said not in table or table[said](value)

    return check


_NESTED: dict[str, Callable[[Any, Mapping[str, Any], Mapping[str, Any], dict[str, Fits]], Fits]] = {
    "$ref": _ref,
    "items": _items,
    "anyOf": _any,
    "allOf": _all,
    "if": _if,
}


def explain(value: object, schema: Mapping[str, Any]) -> tuple[Fault, ...]:
    """Every fault in words; the library that finds them all is imported only here."""
    from jsonschema import Draft202012Validator

    from doflow.flow.parsing.schema_errors import worded

    errors = Draft202012Validator(schema).iter_errors(value)
    found = {fault: None for error in errors for fault in worded(error)}
    return tuple(sorted(found, key=lambda fault: [str(part) for part in fault.path]))
