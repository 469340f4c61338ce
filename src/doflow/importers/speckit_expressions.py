"""Expressions of spec-kit workflows: `{{ inputs.x }}` as params, comparisons as values. Anything else is listed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from doflow.flow.parsing.document import Doc, Path
from doflow.flow.parsing.syntax import LOCAL_WORDS, RUN_WORDS
from doflow.importers import flow_text

_BLOCK = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_INPUT = re.compile(r"inputs\.([A-Za-z_][\w-]*)(?:\s*\|\s*default\([^()]*\))?")
_COMPARED = re.compile(
    r"(?:inputs\.(?P<input>[A-Za-z_][\w-]*)|steps\.(?P<step>[\w-]+)\.output\.(?P<key>[\w-]+))"
    r"(?:\s*(?P<sign>==|!=)\s*(?:'(?P<single>[^'{}]*)'|\"(?P<double>[^\"{}]*)\"|(?P<bare>-?\d+|true|false)))?"
)
#: options of `doflow run` that a param cannot have the name of
_OPTIONS = frozenset((
    "flow", "feature-dir", "project-dir", "completed", "next", "agent", "budget", "record", "auto-approve", "force", "reopen",
    "new", "run", "json", "tasks", "task", "base", "optional", "redo", "worktree",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """An input, or an output of a step; compared with a value, or asked whether it is set ('')."""

    input: str = ""
    step: str = ""
    key: str = ""
    value: str = ""
    negated: bool = False


def parse_comparison(text: object) -> Comparison | None:
    """The comparison in an expression; None if it is anything else."""
    if not isinstance(text, str):
        return None
    block = _BLOCK.fullmatch(text.strip())
    found = _COMPARED.fullmatch(block[1] if block else text.strip())
    if found is None:
        return None
    value = next((found[name] for name in ("single", "double", "bare") if found[name] is not None), "")
    negated = found["sign"] == ("!=" if value else "==")  # to equal '' is to be not set
    return Comparison(found["input"] or "", found["step"] or "", found["key"] or "", value, negated)


def parse_constant(text: object) -> bool | None:
    """The value of a condition that is always the same; None if it depends on the run."""
    if isinstance(text, str) and (block := _BLOCK.fullmatch(text.strip())):
        text = block[1]
    words = {"true": True, "false": False}
    return text if isinstance(text, bool) else words.get(text.strip().lower()) if isinstance(text, str) else None


class Expressions:
    """The inputs of a workflow as params of a flow, and texts with their values."""

    def __init__(self, doc: Doc, note: Callable[[Path, str, str], None]) -> None:
        self._doc = doc
        self._note = note
        inputs = doc.value.get("inputs")
        table: Mapping[str, Any] = inputs if isinstance(inputs, dict) else {}
        self._inputs = {name: value if isinstance(value, dict) else {} for name, value in table.items()}
        self._goal = self._goal_input()
        self._params = {name: self._param_name(name) for name in self._inputs if name != "integration"}
        self._note_inputs()

    def _goal_input(self) -> str:
        """The input that says what to build: `spec`, else the first that is required."""
        required = [name for name, value in self._inputs.items() if value.get("required") and "default" not in value]
        return next((name for name in ("spec", "goal") if name in self._inputs), required[0] if required else "")

    def _param_name(self, name: str) -> str:
        if name == self._goal:
            return "goal"
        clean = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).lstrip("-_0123456789") or "input"
        return f"{clean}-input" if clean in {*_OPTIONS, *RUN_WORDS, *LOCAL_WORDS} else clean

    def _note_inputs(self) -> None:
        for name, value in self._inputs.items():
            if name == "integration":
                why = "the agent is `agents: default` in doflow.yaml, or --agent"
                self._note(("inputs", name), "input integration", why)
            elif "enum" in value:
                self._note(("inputs", name, "enum"), f"values of input {name}", "any value is accepted")
            if name in self._params and self._params[name] not in (name, "goal"):
                self._note(("inputs", name), f"input {name}", f"called {self._params[name]}: the name is taken")

    def param(self, name: str) -> str:
        """The param for an input, '' if there is none."""
        return self._params.get(name, "")

    def params(self) -> dict[str, dict[str, Any]]:
        given = self._inputs.get(self._goal, {})
        about = " ".join(str(given.get("prompt") or given.get("description") or "What to build").split())
        found: dict[str, dict[str, Any]] = {"goal": {"about": about, "required": True}}
        for name, value in self._inputs.items():
            if name in self._params and name != self._goal:
                about = " ".join(str(value.get("prompt") or value.get("description") or name).split())
                found[self._params[name]] = {"about": about, **_default(value)}
        return found

    def fill(self, text: str, at: Path) -> str:
        """The text with params for inputs; braces that are no params stay as they are."""
        return self._filled(text, at, flow_text.literal)

    def fill_command(self, text: str, at: Path, noted: bool = False) -> str:
        """The same for a command of a shell; `noted`: what is not mapped in it is listed already."""
        command = self._filled(text, () if noted else at, lambda part: part)
        if not noted and any(_INPUT.fullmatch(block[1]) for block in _BLOCK.finditer(text)):
            self._note(at, "an input in a command", "its value becomes part of the command as it is, as in spec-kit")
        return command

    def _filled(self, text: str, at: Path, literal: Callable[[str], str]) -> str:
        parts, end = [], 0
        for block in _BLOCK.finditer(text):
            parts += [literal(text[end : block.start()]), self._value(block[1], at)]
            end = block.end()
        return "".join([*parts, literal(text[end:])])

    def _value(self, expression: str, at: Path) -> str:
        found = _INPUT.fullmatch(expression)
        if found and found[1] in self._params:
            return f"{{{self._params[found[1]]}}}"
        if expression == "context.run_id":
            return "{run}"
        if expression == "context.workflow_dir":
            return self._doc.file.rpartition("/")[0] or "."
        if at:
            self._note(at, f"`{{{{ {expression} }}}}`", "a flow has no such value; left empty")
        return ""


def _default(value: Mapping[str, Any]) -> dict[str, Any]:
    default = value.get("default")
    if isinstance(default, str | int | float | bool):
        return {"default": default}
    return {"required": True} if value.get("required") is True else {}
