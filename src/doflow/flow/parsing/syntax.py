"""How small things are written: names, paths, inputs, durations, `{param}`. Pure text, no disk."""

from __future__ import annotations

from doflow.flow.model import Read
from doflow.util.records import regex

NAME = "[a-z0-9][a-z0-9_-]{0,63}"

# What a run itself knows; usable in every flow without being declared under `params`.
RUN_WORDS = frozenset(
    (
        "goal",
        "flow",
        "run",
        "run_dir",
        "step",
        "persona",
        "round",
        "branch",
        "issue",
        "variant",
        "previous",
    )
)
#: What only one kind of step knows: of the item, or of the phase, that it is at.
LOCAL_WORDS = {
    **dict.fromkeys(("item", "index"), "foreach"),
    **dict.fromkeys(("phase", "title", "work"), "implement"),
}

_NAME = regex(NAME)
_DURATION = regex(r"(?=[0-9])(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
_PARAM = regex(r"(?<![{$])\{([a-z][a-z0-9_-]*)\}(?!\})")
_DRIVE = regex(r"[A-Za-z]:")
_CONTROL = regex(r"[\x00-\x1f\x7f]")
_DEVICES = frozenset(("nul", "con", "prn", "aux"))
_PART = r"(?!(?i:nul|con|prn|aux)(?:[./]|\Z))[A-Za-z0-9_-][A-Za-z0-9_.-]*"
_HARMLESS = regex(rf"/?{_PART}(?:/{_PART})*")


class Bad(ValueError):
    """Something is not written as it must be: what, and what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def name(text: str) -> str:
    if not _NAME.fullmatch(text):
        hint = "use a-z, 0-9, - and _, at most 64, beginning with a letter or a digit"
        raise Bad(f"{_short(text)} is not a name", hint)
    return text


def seconds(value: object) -> float:
    """`90s`, `10m`, `1h30m`, or a number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Bad(f"{_short(str(value))} is not a duration", "write 90s, 10m, 2h, 1h30m or a number of seconds")
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(hours * 3600 + minutes * 60 + rest)


def artifact(text: str) -> str:
    """One file: in the run's folder, or from the project's root with a leading '/'."""
    if any(sign in text for sign in "*?["):
        raise Bad(f"{_short(text)} is a pattern, not one file", "name each file that the step makes")
    return pattern(text)


def pattern(text: str) -> str:
    """A path that may hold `*`, `**`, `?` and `[…]`, and never leaves the project."""
    if _HARMLESS.fullmatch(text):
        return text
    parts = text.removeprefix("/").split("/")
    for refused, why, hint in (
        (not text or text == "/", "an empty path", "name a file"),
        (_CONTROL.search(text), "a control character", "leave it out"),
        ("\\" in text, "a backslash", "separate folders by /"),
        ("$" in text, "a $", "paths know no variables of the shell; use {param}"),
        (_DRIVE.match(text), "a drive letter", "begin with / for the project's root"),
        (any(part.startswith("~") for part in parts), "a ~", "paths stay in the project; begin with / for its root"),
        (".." in parts, "a ..", "paths stay in the project; begin with / for its root"),
        ("." in parts, "a lone .", "leave ./ out"),
        ("" in parts, "an empty part", "write single slashes, and src/** for all below a folder"),
        (_reserved(parts), "a reserved name", ".git and .doflow are out of reach; choose another place"),
    ):
        if refused:
            raise Bad(f"the path {_short(text)} has {why}" if text else "the path is empty", hint)
    return text


def _reserved(parts: list[str]) -> bool:
    return any(part.lower() in (".git", ".doflow") or part.lower().split(".")[0] in _DEVICES for part in parts)


def read(text: str) -> Read:
    """`name`, `name?` (optional), a glob, `tasks.md#Phase 2` (one section), `name#Section?`."""
    if _HARMLESS.fullmatch(text):
        return Read(text)
    body = text.removesuffix("?")
    path, mark, section = body.partition("#")
    if mark and not section.strip():
        raise Bad(f"{_short(text)} names no section after #", "write tasks.md#Phase 2")
    return Read(pattern(path), section.strip(), body != text)


def params(text: str) -> tuple[str, ...]:
    """The names used as `{name}` in a text; `{{name}}` and `${name}` are not ours."""
    return tuple(_PARAM.findall(text)) if "{" in text else ()


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
