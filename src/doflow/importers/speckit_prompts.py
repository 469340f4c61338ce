"""The prompts of spec-kit's commands for the steps of a flow: where they are, or what is used instead."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from typing import Any

from doflow.flow.parsing import syntax
from doflow.importers.agent_commands import lookup_name
from doflow.importers.model import AgentCommand, NewFile
from doflow.importers.project_tree import ProjectTree
from doflow.util.errors import FlowError

#: doflow's own prompts for the same work
_PACKAGED = {name: f"{name}.md" for name in ("specify", "plan", "tasks", "implement")}


class CommandPrompts:
    """The commands of a project, and the files that a flow uses of them."""

    def __init__(self, tree: ProjectTree, commands: Sequence[AgentCommand]) -> None:
        self._tree = tree
        self._commands = {lookup_name(command.name): command for command in commands}
        self._used: dict[str, None] = {}
        self._new: dict[str, NewFile] = {}

    def used_files(self) -> tuple[str, ...]:
        return tuple(self._used)

    def new_files(self) -> tuple[NewFile, ...]:
        return tuple(self._new.values())

    def prompt_keys(self, command: str, role: str, arguments: str, note: Callable[[str, str], None]) -> dict[str, Any]:
        """The keys `prompt` and, if needed, `arguments` of a step."""
        found = self._commands.get(lookup_name(command))
        if found and found.path.endswith(".md") and self._is_usable(found.path):
            self._used[found.path] = None
            given = {} if arguments == "{goal}" else {"arguments": arguments}
            return {"prompt": f"/{found.path}", **given}
        if found and found.path.endswith(".toml") and (name := self._converted(found, arguments)):
            return {"prompt": name}
        if role in _PACKAGED:
            note(f"command {command}", f"no prompt file of it found; doflow's own {_PACKAGED[role]} is used")
            return {"prompt": _PACKAGED[role]}
        note(f"command {command}", "no prompt file of it found; write what it does into the prompt of this step")
        words = f" Its arguments: {arguments}" if arguments.strip() else ""
        return {
            "prompt": f"Do what the command {command} is for in this project, as far as its files describe it.{words}"
        }

    def _is_usable(self, path: str) -> bool:
        try:
            syntax.artifact(f"/{path}")
            return bool(self._tree.read_text(path).strip())
        except (FlowError, syntax.InvalidSyntax):
            return False

    def _converted(self, command: AgentCommand, arguments: str) -> str:
        """The name of a new prompt file with the text of a TOML command; '' if it has none."""
        try:
            text = tomllib.loads(self._tree.read_text(command.path)).get("prompt")
        except (FlowError, tomllib.TOMLDecodeError, RecursionError):
            return ""
        if not isinstance(text, str) or not text.strip():
            return ""
        name = f"{lookup_name(command.name)}.md"
        known = {*syntax.RUN_WORDS, *syntax.LOCAL_WORDS}
        text = syntax.escape(text, known).replace("{{args}}", arguments).replace("$ARGUMENTS", arguments)
        self._new[name] = NewFile(f"flows/prompts/{name}", f"{text.strip()}\n")
        return name
