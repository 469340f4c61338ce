"""What a project has of other tools, as `doflow init` lists it."""

from __future__ import annotations

from collections.abc import Sequence

from doflow.cli.output import count_of, say
from doflow.importers.model import Found

_MOST = 8


def say_formats(found: Sequence[Found]) -> None:
    for one in found:
        say()
        say(f"found {one.format}{': ' if one.folders else ''}{_shortened(one.folders)}")
        width = max((len(item.path) for item in one.lists[:_MOST]), default=0)
        for item in one.lists[:_MOST]:
            say(f"  {item.path:<{width}}  {_counts(item.done, item.open)}")
        if len(one.lists) > _MOST:
            say(f"  and {count_of(len(one.lists) - _MOST, 'more list')}")
        if one.commands:
            names = tuple(command.name for command in one.commands)
            say(f"  agent commands: {_shortened(names)} ({_shortened(_places(one))})")
        for number, command in enumerate(one.next):
            say(f"  {'to type:' if not number else '        '} {command}")


def first_command(found: Sequence[Found]) -> str:
    """What a person of these tools most likely wants to type first; '' = nothing of theirs is open."""
    return next((one.next[0] for one in found if one.next and any(item.open for item in one.lists)), "")


def _counts(done: int, left: int) -> str:
    return f"{done} done, {left} open" if left else f"all {done} done"


def _places(found: Found) -> tuple[str, ...]:
    places = ("/".join(command.path.split("/")[:2]) for command in found.commands)
    return tuple(dict.fromkeys(places))


def _shortened(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more
