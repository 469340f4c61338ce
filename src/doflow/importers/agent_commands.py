"""Commands, prompts and skills of coding agents, found by their names in the places where agents look for them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from doflow.importers.model import AgentCommand
from doflow.importers.project_tree import ProjectTree

#: the first place wins where several agents have the same command; what is not listed comes after these
_PLACES = (
    ".claude/commands/", ".claude/skills/", ".agents/", ".opencode/", ".codex/", ".github/agents/", ".cursor/", ".gemini/",
    ".github/skills/", ".github/",
)  # fmt: skip
_FOLDERS = r"(?:commands?|skills|prompts|agents|workflows|rules|recipes)"
_COMMAND = re.compile(
    rf"\.[a-z0-9-]+/(?:agent/)?{_FOLDERS}/(?P<name>.+?)(?P<suffix>/SKILL\.md|\.agent\.md|\.prompt\.md|\.md|\.toml)"
)
_SOURCE = re.compile(r"\.specify/(?:extensions|presets)/[^/]+/commands/(?P<name>[^/]+)\.md")


def find_commands(tree: ProjectTree, *prefixes: str) -> tuple[AgentCommand, ...]:
    """The commands whose names start with a prefix, each once, from the agent that comes first."""
    best: dict[str, tuple[int, AgentCommand]] = {}
    for rank, command in _candidates(tree):
        name = lookup_name(command.name)
        if name.startswith(prefixes) and (name not in best or rank < best[name][0]):
            best[name] = rank, command
    return tuple(command for _, (_, command) in sorted(best.items()))


def lookup_name(name: str) -> str:
    """The same for `speckit.plan`, `speckit-plan` and `speckit/plan`."""
    return re.sub(r"[./:]+", "-", name.strip("/").lower())


def _candidates(tree: ProjectTree) -> Iterator[tuple[int, AgentCommand]]:
    for path in tree.files:
        if not path.startswith("."):
            continue
        if found := _SOURCE.fullmatch(path):
            yield 200, AgentCommand(found["name"], path)
        elif (found := _COMMAND.fullmatch(path)) and _is_prompt(tree, path):
            place = next((rank for rank, start in enumerate(_PLACES) if path.startswith(start)), 50)
            yield place + (100 if path.endswith((".toml", ".prompt.md")) else 0), AgentCommand(found["name"], path)


def _is_prompt(tree: ProjectTree, path: str) -> bool:
    """`.prompt.md` files of GitHub may only name an agent: they count if they have a text of their own."""
    if not path.endswith(".prompt.md"):
        return True
    try:
        if os.path.getsize(tree.root / path) > 1_000_000:
            return False
        text = (tree.root / path).read_text("utf-8", "replace")
    except OSError:
        return False
    return bool(re.sub(r"\A---\r?\n.*?\n---\r?\n", "", text, count=1, flags=re.DOTALL).strip())
