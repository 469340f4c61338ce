"""Hooks in the settings of an agent: put in, taken out, looked at. What else is in those files stays as it is, byte by byte."""

from __future__ import annotations

import itertools
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from doflow.hooks import call_settings as settings, install_jsontext as jsontext
from doflow.util import atomic_files as files
from doflow.util.errors import UsageError
from doflow.util.records import dataclass

AGENTS = ("claude", "codex")
SCOPES = ("project", "user", "local")
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Installed:
    """One hook of ours in a file: where in it, and what it calls."""

    path: tuple[str | int, ...]
    event: str
    machine: str
    command: str


def place(agent: str, scope: str, root: Path, environ: Mapping[str, str]) -> Path:
    """The file in which an agent looks for its hooks."""
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    if agent == "claude":
        user = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "settings.json"
        local = root / ".claude" / "settings.local.json"
        return {"project": root / ".claude" / "settings.json", "user": user, "local": local}[scope]
    if scope == "local":
        raise UsageError("Codex has no local settings", "choose: --scope project   or   --scope user")
    user = Path(environ.get("CODEX_HOME") or home / ".codex") / "hooks.json"
    return root / ".codex" / "hooks.json" if scope == "project" else user


def install(path: Path, agent: str, machine: str, absolute: bool) -> bool:
    """Let the agent ask about every sub-agent. False = it was so already."""
    wanted = settings.order(machine, agent, absolute)
    text = _read(path)
    if text is not None and sorted(one.command for one in found(text)) == sorted(hook.command for hook in wanted):
        return False
    bare = None if text is None else _without(text)
    table = settings.grouped(wanted)
    _write(path, jsontext.whole({"hooks": table}) if not bare else _with(bare, table))
    return True


def remove(path: Path) -> bool:
    """Take our hooks out; a file that holds nothing else goes too. False = there was none."""
    text = _read(path)
    if text is None or not found(text):
        return False
    bare = _without(text)
    if bare:
        _write(path, bare)
    else:
        path.unlink()
        with suppress(OSError):
            path.parent.rmdir()
    return True


def look(path: Path) -> list[Installed]:
    text = _read(path)
    return found(text) if text is not None else []


def found(text: str) -> list[Installed]:
    """Every hook of ours in a text, in order."""
    return list(_found(json.loads(text.removeprefix(_BOM))))


def _found(value: Any) -> Iterator[Installed]:
    table = value.get("hooks") if isinstance(value, dict) else None
    for event, groups in table.items() if isinstance(table, dict) else ():
        for number, group in enumerate(groups if isinstance(groups, list) else ()):
            held = group.get("hooks") if isinstance(group, dict) else None
            entries: list[Any] = held if isinstance(held, list) else []
            for place, entry in enumerate(entries):
                command = str(entry.get("command", "")) if isinstance(entry, dict) else ""
                machine = _machine(command)
                if machine:
                    alone = len(entries) == 1
                    way = ("hooks", event, number) if alone else ("hooks", event, number, "hooks", place)
                    yield Installed(way, event, machine, command)


_ENTRIES = tuple(os.path.join("doflow", "hooks", name) for name in ("entry.py", "door.py"))


def _machine(command: str) -> str:
    """The machine that a command of ours serves; '' = it is somebody else's."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    door = any(word.endswith(_ENTRIES) for word in words)
    verb = any(os.path.basename(a) == "doflow" and b == "hook" for a, b in itertools.pairwise(words))
    if not (door or verb) or "--machine" not in words[:-1]:
        return ""
    return words[words.index("--machine") + 1]


def _with(text: str, table: dict[str, list[dict[str, object]]]) -> str:
    mark, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    if jsontext.find(body, ("hooks",)) is None:
        return mark + jsontext.put(body, (), "hooks", table)
    for event, groups in reversed(table.items()):
        if jsontext.find(body, ("hooks", event)) is None:
            body = jsontext.put(body, ("hooks",), event, groups)
        else:
            for group in reversed(groups):
                body = jsontext.put(body, ("hooks", event), "", group)
    return mark + body


def _without(text: str) -> str:
    mark, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    while body and (ours := found(body)):
        body = jsontext.take(body, ours[0].path)
    return mark + body if body else ""


def _read(path: Path) -> str | None:
    """A settings file that can be changed without harm; None = there is none."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 ({error})", "mend it, then try again; nothing was changed") from error
    try:
        value = json.loads(text.removeprefix(_BOM), object_pairs_hook=_once)
    except ValueError as error:
        raise UsageError(
            f"{path} is no plain JSON ({error})", "mend it, then try again; nothing was changed"
        ) from error
    _fitting(path, value)
    return text


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _fitting(path: Path, value: Any) -> None:
    table = value.get("hooks", {}) if isinstance(value, dict) else None
    if not isinstance(table, dict) or not all(isinstance(groups, list) for groups in table.values()):
        hint = 'its form is {"hooks": {"EVENT": [ … ]}}: mend it, then try again; nothing was changed'
        raise UsageError(f"{path} holds hooks in a form that is not known", hint)


def _write(path: Path, text: str) -> None:
    """Whole and at once; through a link, to the file it leads to, with the mode it had."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    files.write(target, text.encode("utf-8"), mode)
