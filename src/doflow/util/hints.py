"""Next commands as data: how to resume a run or decide about it. Their text is made when shown."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

#: doflow commands about one run: they take `--run`
_ABOUT_A_RUN = frozenset({"approve", "reject", "answer", "adopt", "reset", "logs", "why"})


class Next(NamedTuple):
    """One thing to do next: the words of a command, or (without one) only advice.

    `why` is printed before the command, `does` after it; `link` (or, and, then, &&) joins it to the one before it, else it
    has its own line; `at`: the time from which it is useful."""

    command: tuple[str, ...] = ()
    why: str = ""
    does: str = ""
    link: str = ""
    at: str = ""

    @property
    def runs_flow(self) -> bool:
        return self.command[:1] == ("doit",)

    def entry(self) -> dict[str, Any]:
        """For the event log, without empty fields."""
        return {name: list(value) if name == "command" else value for name, value in self._asdict().items() if value}


#: where no run exists yet: only the user's own command, with its goal, starts it
SAME_COMMAND = Next(why="the same command again", link="then")


class Target(NamedTuple):
    """What commands need to refer to one run: the branch to switch to, the run's name, `--reopen`, and the options to resume
    it with."""

    flow: str
    switch: str = ""
    run: str = ""
    reopen: bool = False
    options: tuple[str, ...] = ()


def resumes(steps: tuple[Next, ...]) -> bool:
    """Whether one of these resumes or starts a flow."""
    return any(step.runs_flow for step in steps) or SAME_COMMAND in steps


def from_entries(entries: Any) -> tuple[Next, ...]:
    """Parsed from an entry of the event log; none for entries without any."""
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            words = {name: str(entry.get(name, "")) for name in ("why", "does", "link", "at")}
            found.append(Next(tuple(map(str, entry.get("command", ()))), **words))
    return tuple(found)


def text(advice: str, steps: Iterable[Next], target: Target | None = None) -> str:
    """The advice and the next commands as text, for this target."""
    shown, gap = advice, ", " if advice else ""
    for step in steps:
        head = ", ".join(part for part in (f"at {step.at} or later" if step.at else "", step.why) if part)
        command = command_text(step.command, target) if step.command else ""
        label = f"{head}: " if head and command else head
        words = f"{label}{command}{f'   {step.does}' if step.does else ''}"
        if not step.link:
            shown += f"\n  {words}" if shown else words
        elif step.link == "&&":
            shown += f" && {words}"
        else:
            link = f"{step.link} " if head else "then: " if step.link == "then" else f"{step.link}   "
            shown += (
                f"{gap if step.runs_flow else '   '}{link}{words}" if shown else f"{link}{words}" if head else words
            )
        gap = "   "
    return shown


def command_text(command: tuple[str, ...], target: Target | None = None) -> str:
    """A command as it is typed."""
    if target is None:
        return _joined(command)
    switch = f"git switch {shlex.quote(target.switch)} && " if target.switch else ""
    if command[:2] == ("doit", target.flow):
        given = {word.partition("=")[0] for word in command}
        run = [f"--run={target.run}"] if target.run and "--run" not in given else []
        reopen = ["--reopen"] if target.reopen and "--reopen" not in given else []
        options = [word for word in target.options if word.partition("=")[0] not in given]
        return switch + _joined([*command[:2], *run, *reopen, *command[2:], *options])
    if command[0] == "doflow" and command[1] in _ABOUT_A_RUN:
        first = f"{command_text(('doit', target.flow), target)}   and then   " if target.reopen else switch
        return first + _joined([*command, *([f"--run={target.run}"] if target.run else [])])
    return _joined(command)


def _joined(words: Iterable[str]) -> str:
    """Quoted for a shell; of an option only its value is quoted."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    name, equals, value = word.partition("=")
    return f"{name}={shlex.quote(value)}" if equals and value and name.startswith("--") else shlex.quote(word)
