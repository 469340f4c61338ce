"""The guardian's own menus, and what an answer to one of them means: an option, by its number or a word for it, and a note
after a colon. Anything else means nothing, so that nobody's `perhaps` becomes a yes or a no."""

from __future__ import annotations

from collections.abc import Sequence

from doflow.util.errors import UsageError

VERDICT, FATE = ("approve", "reject"), ("retry", "stop")
_WORDS = {
    "approve": ("approve", "approved", "yes", "y", "ok", "go"),
    "reject": ("reject", "rejected", "no", "n"),
    "retry": ("retry", "again"),
    "stop": ("stop",),
}


def chosen(said: str, options: Sequence[str]) -> tuple[str, str]:
    """The option that is meant, and the note to it; '' = none of them is."""
    word, _, note = said.partition(":")
    word = word.strip().casefold()
    found = [name for number, name in enumerate(options, 1) if word in (str(number), *_WORDS.get(name, (name,)))]
    return (found[0], note.strip()) if found else ("", "")


def own(options: Sequence[str]) -> bool:
    """Is it one of the guardian's menus? What an orchestrator offers is for it to understand."""
    return tuple(options) in (VERDICT, FATE)


def refuse(said: str, options: Sequence[str], token: str, pipeline: str) -> None:
    """An answer that is none of the options of such a menu."""
    if own(options) and not chosen(said, options)[0]:
        which = f" --pipeline {pipeline}" if pipeline else ""
        raise UsageError(
            f"{said!r} is none of the options: {offered(options)}",
            f"doflow signal answer {token} {options[0]}{which}   or   {options[1]}, or with a note: '{options[1]}: …'",
        )


def offered(options: Sequence[str]) -> str:
    return ", ".join(f"{number}. {name}" for number, name in enumerate(options, 1))


def lines(options: Sequence[str]) -> str:
    """The options below a question, each on a line of its own."""
    return "".join(f"\n    {number}. {said}" for number, said in enumerate(options, 1))
