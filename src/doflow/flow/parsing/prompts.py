"""Prompt files: where they are searched, which one wins, and their text without front matter."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from doflow.flow.model import Prompt
from doflow.flow.parsing import document, syntax
from doflow.util.errors import FlowError


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a project, each read once; `used` lists the files that were read."""

    root: Path
    packaged: Path
    variant: str = ""
    used: dict[str, None] = field(default_factory=dict)
    _read: dict[str, Prompt] = field(default_factory=dict)

    @property
    def folders(self) -> tuple[Path, Path]:
        return self.root / "flows" / "prompts", self.packaged / "prompts"

    def get(self, text: str) -> Prompt:
        """The prompt for `text`: a file if it ends in .md, else the text itself."""
        if not text.endswith(".md"):
            return Prompt(text)
        if text not in self._read:
            self._read[text] = self._load(text)
        return self._read[text]

    def personas(self) -> list[str]:
        """The names of all personas."""
        return sorted({name[:-3] for folder in self.folders for name in _names(folder / "personas")})

    def _load(self, name: str) -> Prompt:
        if syntax.artifact(name).startswith("/"):
            raise syntax.InvalidSyntax(f"the prompt {name!r} starts with /", "name a file inside flows/prompts/")
        path, packaged = self._find(name)
        shown = path if packaged else os.path.relpath(path, self.root)
        self.used.update({path: None, os.path.dirname(path): None})
        if not packaged and not _inside(path, self.root):
            raise syntax.InvalidSyntax(f"the prompt {shown} is a symlink to outside the project", "copy the file there")
        try:
            text = _body(document.read_text(path, shown))
        except FlowError as error:
            problem = error.problems[0]
            raise syntax.InvalidSyntax(f"the prompt {shown} {problem.message}", problem.hint) from error
        if not text.strip():
            raise syntax.InvalidSyntax(f"the prompt {shown} is empty", "write what the agent should do")
        return Prompt(text, os.path.basename(path) if "/" not in name else _renamed(name, path), packaged)

    def _find(self, name: str) -> tuple[str, bool]:
        chosen = f"{name.removesuffix('.md')}-{self.variant}.md"
        for wanted in (chosen, name) if self.variant else (name,):
            for folder, packaged in zip(self.folders, (False, True), strict=True):
                path = os.path.join(folder, wanted)
                if os.path.lexists(path):
                    return path, packaged
        raise syntax.InvalidSyntax(f"prompt file {name!r} not found", self._hint(name))

    def _hint(self, name: str) -> str:
        near = document.nearest(name, sorted({entry for folder in self.folders for entry in _names(folder)}))
        if " " in name:
            return "a text that ends in .md is read as a file name; end it with a full stop"
        return near or f"create flows/prompts/{name}, or write the prompt itself as text"


def _names(folder: Path) -> list[str]:
    return [entry for entry in os.listdir(folder) if entry.endswith(".md")] if folder.is_dir() else []


def _renamed(name: str, path: str) -> str:
    return f"{name.rpartition('/')[0]}/{os.path.basename(path)}"


def _inside(path: str, root: Path) -> bool:
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(root), ""))


def _body(text: str) -> str:
    """The text without front matter."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        return "\n".join(lines)
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)
    return "\n".join(lines[end + 1 :]).lstrip("\n") if end else "\n".join(lines)
