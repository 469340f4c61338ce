"""The checks, in the order in which they are asked; a step's contract holds when all of them do."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from doflow.engine.checks.contract import Checker
from doflow.flow.model import Step
from doflow.runs.context import World

#: name of the check's file → the key of `check` that asks for it; '' = always asked
CHECKS = {
    "artifact": "",
    "headings": "headings",
    "ends": "ends",
    "tasks": "tasks",
    "backlog": "backlog",
    "schema": "schema",
    "run": "run",
}


def problems(step: Step, paths: Sequence[str], world: World) -> str:
    """What is wrong with a step's artifacts, '' = nothing; later checks are asked only when earlier ones hold."""
    for name, key in CHECKS.items():
        if not key or getattr(step.check, key):
            words = find(name).check(step, paths, world)
            if words:
                return words
    return ""


def find(name: str) -> Checker:
    """A check by its name; only those that a step asks for are imported."""
    found: Any = import_module(f"doflow.engine.checks.{name}")
    checker: Checker = found
    return checker
