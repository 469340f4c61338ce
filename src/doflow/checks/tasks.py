"""A task list that phases can be taken from: `## Phase N: title`, below each `- [ ] [T001] text`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from doflow import sections
from doflow.model import Step
from doflow.world import World

_BOX = re.compile(r"^[ \t]*[-*+][ \t]+\[[ xX]\][ \t]*(.*)$")
_ID = re.compile(r"^\[[A-Z]\d+\][ \t]+\S")


def check(step: Step, paths: Sequence[str], world: World) -> str:
    if not step.check.tasks:
        return ""
    return "\n".join(words for path in paths for words in _wrong(path, world.place.text(path) or ""))


def _wrong(path: str, text: str) -> list[str]:
    found = sections.phases(text)
    if not found:
        return [f"{path}: no heading `## Phase N: title`"]
    words = []
    seen: set[str] = set()
    for phase in found:
        if phase.number in seen:
            words.append(f"{path}:{phase.line}: Phase {phase.number} stands there twice")
        seen.add(phase.number)
        words += _boxes(path, phase)
    return words


def _boxes(path: str, phase: sections.Phase) -> list[str]:
    words = []
    boxes = 0
    for offset, line in enumerate(phase.text.splitlines()):
        if box := _BOX.match(line):
            boxes += 1
            if not _ID.match(box[1]):
                words.append(f"{path}:{phase.line + offset}: a task is `- [ ] [T001] text`, this is `{line.strip()}`")
    return words if boxes else [f"{path}:{phase.line}: Phase {phase.number} has no task `- [ ] [T001] text`"]
