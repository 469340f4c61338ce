"""The table of floors in docs/house.md, reckoned from the imports: `python -m tests.support.floors` writes it anew."""

from __future__ import annotations

import re

from tests.support import house

PAGE = house.TOP / "docs" / "house.md"
FAMILIES: set[str] = set()  # on one floor together
LANDMARKS = {  # a room that a floor is known by
    "util.errors": "words and values: they know nothing of the rest",
    "flow.model": "small rules over those values",
    "git.commit": "files, programs, git, text: one door each",
    "util.process.runner": "programs; a step as it is written",
    "agents.adapters.claude": "agents; a flow as it is meant; the tree before and after",
    "flow.parsing.builder": "flows as they are meant",
    "flow.parsing.loader": "the door for YAML",
    "config.settings": "a run as files tell it; settings",
    "config.project": "a project as files tell it",
    "runs.context": "all that a step can touch",
    "runs.freshness.freshness": "is it up to date, may it write there, does its contract hold",
    "engine.jobs.commit": "the fence around agents; the commit at the end of a job",
    "engine.jobs.runner": "begin, attempt, check, settle; making good after a crash",
    "engine.steps.agent": "one kind of step per file",
    "engine.lifecycle.session": "one process at work",
    "engine.doit.actions": "what a task of doit's does; how a run looks from outside",
    "engine.doit.groups": "groups that are filled late; looking without touching",
    "engine.doit.tasks": "our words into doit's",
    "__init__": "the doors of the house: `dodo.py`, doit's `run`, the commands' desk",
    "cli.decisions": "a person decides",
    "cli.commands.run.run": "one verb per file",
    "cli.main": "arguments in, exit code out",
}


def table() -> str:
    levels = _levels(_rooms())
    rows = []
    for floor in sorted(set(levels.values())):
        names = sorted(name for name, level in levels.items() if level == floor)
        say = next((words for name, words in LANDMARKS.items() if name in names), "")
        rows.append(f"| {floor} | {' '.join(f'`{name}`' for name in names)} | {say} |".replace("|  |", "| |"))
    return "\n".join(rows)


def _rooms() -> dict[str, set[str]]:
    """Each room with the rooms it imports; a family is one room."""
    known = house.modules()
    found: dict[str, set[str]] = {}
    for module, path in known.items():
        room = _room(module)
        family = module.partition(".")[0] if "." in module else ""
        others = {_room(other) for other in house.within(path, known) if other != family}
        found.setdefault(room, set()).update(others - {room})
    return found


def _room(module: str) -> str:
    family = module.partition(".")[0]
    return f"{family}.*" if "." in module and family in FAMILIES else module


def _levels(rooms: dict[str, set[str]]) -> dict[str, int]:
    """The longest way down from each room. A circle is an error of the sources, and named."""
    levels: dict[str, int] = {}

    def level(room: str, way: tuple[str, ...]) -> int:
        if room in way:
            raise SystemExit(f"imports go in a circle: {' -> '.join((*way, room))}")
        if room not in levels:
            levels[room] = 1 + max((level(other, (*way, room)) for other in rooms.get(room, ())), default=-1)
        return levels[room]

    for room in rooms:
        level(room, ())
    return levels


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    head = "| floor | rooms | what they are |\n|---|---|---|\n"
    PAGE.write_text(re.sub(re.escape(head) + r"(?:\|.*\n)+", lambda _: f"{head}{table()}\n", page), encoding="utf-8")


if __name__ == "__main__":
    main()
