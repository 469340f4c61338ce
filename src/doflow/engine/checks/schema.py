"""A YAML or JSON artifact fits the JSON Schema that the step names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from doflow.flow.model import Step
from doflow.flow.parsing import loader as load, schema
from doflow.runs.context import World
from doflow.util.errors import FlowError


def check(step: Step, paths: Sequence[str], world: World) -> str:
    if not step.check.schema:
        return ""
    name = step.check.schema.lstrip("/")
    rules = world.place.text(name)
    if rules is None:
        return f"the schema {name} of step {step.id} does not exist"
    try:
        wanted = load.parse(rules, name)
        if not isinstance(wanted, Mapping):
            return f"the schema {name} of step {step.id} is not an object"
        return "\n".join(words for path in paths for words in _wrong(path, world, wanted))
    except FlowError as error:
        return str(error)


def _wrong(path: str, world: World, wanted: Mapping[str, object]) -> list[str]:
    value = load.parse(world.place.text(path) or "", path)
    return [f"{path}: {fault.message}" for fault in schema.explain(value, wanted)]
