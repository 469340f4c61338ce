"""What a dodo.py is given: task creators, in a file of their own, for doit looks for the line of each in its source, to
order them; and the settings for doit that we need beside those of the person."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from doflow.flow.parsing.reserved_names import COMMANDS as COMMANDS


def creator(flow: str, build: Callable[[str, dict[str, Any]], Iterator[Any]], params: list[dict[str, Any]]) -> Any:
    def create(**given: Any) -> Iterator[Any]:
        yield from build(flow, given)

    create._task_creator_params = params  # type: ignore[attr-defined]
    create.__wrapped__ = sys.modules[__name__]  # type: ignore[attr-defined] # a file is found faster than a line in it
    return create


def shown(flow: str) -> str:
    """The task of a flow that cannot be used: one that is called like a command goes by its file's name."""
    return f"{flow}.yaml" if flow in COMMANDS else flow


_LOST = "not as you say: doflow keeps doit's memory itself, in .doflow/state.db, and works in threads; the rest holds"


def config(names: dict[str, Any]) -> dict[str, Any]:
    """The settings for doit as they hold; {} = there are none that can be read."""
    ours = names.get("__dir__")
    if isinstance(ours, Config):
        ours.settle(names)
    found = names.get("DOIT_CONFIG")
    return found if isinstance(found, dict) else {}


class Config:
    """`DOIT_CONFIG` of a dodo.py: the person's, wherever it stands there, over our defaults and under what we need.

    As the module's `__dir__` it is asked when doit reads the file's names: after its last line, before anything is used.
    """

    def __init__(self, needed: Mapping[str, Any], defaults: Mapping[str, Any], names: dict[str, Any]) -> None:
        self._needed = needed
        self._defaults = defaults
        self._names = names
        above = names.get("DOIT_CONFIG", {})
        self.whole: object = self._merged(above) if isinstance(above, dict) else above  # doit says what is wrong

    def __call__(self) -> list[str]:
        names = self._names
        if names.get("__dir__") is not self:  # called for the file by another one
            every = (getattr(found, "__dict__", {}) for found in list(sys.modules.values()))
            names = next((found for found in every if found.get("__dir__") is self), names)
        self.settle(names)
        return list(names)

    def settle(self, names: dict[str, Any]) -> None:
        """A setting that stands below ours in the file has replaced it: both hold."""
        told = names.get("DOIT_CONFIG")
        if told is not self.whole and isinstance(told, dict):
            names["DOIT_CONFIG"] = self.whole = self._merged(told)

    def _merged(self, own: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in own.items() if name not in self._needed}
        lost = [name for name in own if name in self._needed and own[name] != self._needed[name]]
        lost += ["par_type"] if own.get("par_type") == "process" else []
        said = f"DOIT_CONFIG in dodo.py: {', '.join(lost)}: {_LOST}" if lost else ""
        if given.get("default_tasks", ()) is None:
            del given["default_tasks"]
        return {**self._defaults, **given, **self._needed, "doflow_lost": said}
