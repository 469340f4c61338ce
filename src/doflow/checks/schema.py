"""A YAML or JSON artifact fits the JSON Schema that the step names."""

from __future__ import annotations

from collections.abc import Sequence

from doflow import schema
from doflow.errors import FlowError
from doflow.model import Step
from doflow.world import World


def check(step: Step, paths: Sequence[str], world: World) -> str:
    if not step.check.schema:
        return ""
    rules = world.place.text(step.check.schema.lstrip("/"))
    if rules is None:
        return f"the schema {step.check.schema} of step {step.id} does not exist"
    try:
        return "\n".join(words for path in paths for words in schema.problems(rules, world.place.text(path) or "", path))
    except FlowError as error:
        return str(error)
