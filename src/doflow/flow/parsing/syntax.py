"""The syntax of names, paths, inputs, durations, limits and `{param}`. Pure functions of text."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any

from doflow.flow.model import Budget, Read, Retry
from doflow.util import globs, state_folder
from doflow.util.errors import UsageError
from doflow.util.process.runner import Timeout

NAME = "[a-z0-9][a-z0-9_-]{0,63}"

#: Set by every run; usable in every flow without being declared under `params`.
RUN_WORDS = frozenset({
    "goal", "flow", "run", "run_dir", "step", "persona", "round", "branch", "issue", "variant", "previous",
})  # fmt: skip
#: Set only in steps of one kind: for the current item or phase.
LOCAL_WORDS = {
    **dict.fromkeys(("item", "index"), "foreach"),
    **dict.fromkeys(("phase", "title", "work"), "implement"),
}

_NAME = re.compile(NAME)
_DURATION = re.compile(r"(?=[0-9])(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
_PARAM = re.compile(r"(?<![{$])\{([a-z][a-z0-9_-]*)\}(?!\})")
_ESCAPED = re.compile(r"\{\{([a-z][a-z0-9_-]*)\}\}")
_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DEVICES = frozenset(("nul", "con", "prn", "aux"))
_PART = r"(?!(?i:nul|con|prn|aux)(?:[./]|\Z))[A-Za-z0-9_-][A-Za-z0-9_.-]*"
_HARMLESS = re.compile(rf"/?{_PART}(?:/{_PART})*")


class InvalidSyntax(ValueError):
    """A syntax error: what is wrong, and what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def name(text: str) -> str:
    if not _NAME.fullmatch(text):
        hint = "use a-z, 0-9, - and _, at most 64 characters, starting with a letter or a digit"
        raise InvalidSyntax(f"{_short(text)} is not a valid name", hint)
    return text


def seconds(value: object) -> float:
    """`90s`, `10m`, `1h30m`, or a number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        hint = "write 90s, 10m, 2h, 1h30m or a number of seconds"
        raise InvalidSyntax(f"{_short(str(value))} is not a duration", hint)
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    return float(hours * 3600 + minutes * 60 + rest)


LIMITS = ("timeout", "retry", "budget")


def build_limit(word: str, *layers: object) -> Timeout | Retry | Budget:
    """The limit called `word`; later layers win, key by key. A single duration is the time limit of the whole step."""
    given: dict[str, Any] = {}
    for layer in layers:
        given.update(layer if isinstance(layer, dict) else {} if layer is None else {"max": layer})
    if word == "timeout":
        return Timeout(**{part: seconds(value) for part, value in given.items()})
    if word == "retry":
        base = Retry()
        return Retry(int(given.get("attempts", base.attempts)), seconds(given.get("backoff", base.backoff)))
    usd, tokens = given.get("usd"), given.get("tokens")
    return Budget(None if usd is None else float(usd), None if tokens is None else int(tokens))


def parse_budget(text: str) -> Budget:
    """A budget from the command line: `5`, `$5`, `500000tokens`, `none`."""
    amount = text.strip().lower().removeprefix("$").removesuffix("usd").strip()
    if amount == "none":
        return Budget()
    number = amount.removesuffix("s").removesuffix("token").strip().replace(",", "").replace("_", "")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise UsageError(f"invalid --budget={text}", "write US dollars, tokens or none: 5, 500000tokens, none")
    return Budget(tokens=int(value)) if amount.endswith(("tokens", "token")) else Budget(usd=value)


def artifact(text: str) -> str:
    """One file: in the run's folder, or from the project's root with a leading '/'."""
    if globs.is_pattern(text):
        raise InvalidSyntax(f"{_short(text)} is a pattern, not one file", "name each file that the step makes")
    return pattern(text)


def pattern(text: str) -> str:
    """A path that may hold `*`, `**` and `?` (see `globs`), and never leaves the project."""
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
            raise InvalidSyntax(f"the path {_short(text)} has {why}" if text else "the path is empty", hint)
    return text


def _reserved(parts: list[str]) -> bool:
    return any(part.lower() in (".git", state_folder.NAME) or part.lower().split(".")[0] in _DEVICES for part in parts)


def parse_read(text: str) -> Read:
    """`name`, `name?` (optional), a glob, `tasks.md#Phase 2` (one section), `name#Section?`."""
    if _HARMLESS.fullmatch(text):
        return Read(text)
    body = text.removesuffix("?")
    path, mark, section = body.partition("#")
    if mark and not section.strip():
        raise InvalidSyntax(f"{_short(text)} has no section after #", "write tasks.md#Phase 2")
    return Read(pattern(path), section.strip(), body != text)


def params(text: str) -> tuple[str, ...]:
    """The names used as `{name}` in a text; `{{name}}` and `${name}` are not params."""
    return tuple(_PARAM.findall(text)) if "{" in text else ()


def substitute(text: str, values: Mapping[str, str]) -> str:
    """The text with the value of each `{name}`; `{{name}}` becomes a literal `{name}`, other braces stay as they are, and
    values are not substituted again."""
    if "{" not in text:
        return text
    parts = _ESCAPED.split(text)
    for index, part in enumerate(parts):
        if index % 2:
            parts[index] = f"{{{part}}}" if part in values else f"{{{{{part}}}}}"
        else:
            parts[index] = _PARAM.sub(lambda found: values.get(found[1], found[0]), part)
    return "".join(parts)


def escape(text: str, names: Container[str]) -> str:
    """The text in which `substitute` leaves these names as they are."""
    return _PARAM.sub(lambda found: f"{{{found[0]}}}" if found[1] in names else found[0], text)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


#: commands of doit; a flow cannot have the name of one
COMMANDS = frozenset({
    "run", "list", "help", "info", "forget", "clean", "ignore", "dumpdb", "strace", "tabcompletion", "reset-dep", "auto",
})  # fmt: skip
