"""Install, remove and list hooks in the settings files of an agent; everything else in them stays unchanged, byte for byte."""

from __future__ import annotations

import itertools
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from doflow.hooks import call_settings
from doflow.util import atomic_files
from doflow.util.errors import UsageError

AGENTS = ("claude", "codex")
SCOPES = ("project", "user", "local")
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Installed:
    """One of our hooks in a settings file: its JSON path and its command."""

    path: tuple[str | int, ...]
    event: str
    machine: str
    command: str


def settings_path(agent: str, scope: str, root: Path, environ: Mapping[str, str]) -> Path:
    """The settings file in which an agent looks for hooks."""
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
    """Install the hooks; False = they were installed already."""
    wanted = call_settings.order_hooks(machine, agent, absolute)
    text = _load(path)
    if sorted(found.command for found in find_hooks(text)) == sorted(hook.command for hook in wanted):
        return False
    bare, table = _without(text), call_settings.hook_table(wanted)
    _write(path, _with(bare, table) if bare else json.dumps({"hooks": table}, indent=2) + "\n")
    return True


def remove(path: Path) -> bool:
    """Remove our hooks, and the file if nothing else is in it; False = there were none."""
    text = _load(path)
    if not find_hooks(text):
        return False
    bare = _without(text)
    if bare:
        _write(path, bare)
    else:
        path.unlink()
        with suppress(OSError):
            path.parent.rmdir()
    return True


def list_installed(path: Path) -> list[Installed]:
    return find_hooks(_load(path))


def find_hooks(text: str) -> list[Installed]:
    """Our hooks in a settings text, in order."""
    found = []
    settings = json.loads(text.removeprefix(_BOM) or "{}")
    for event, groups in settings.get("hooks", {}).items():
        for number, group in enumerate(groups):
            inner = group.get("hooks") if isinstance(group, dict) else None
            entries: list[Any] = inner if isinstance(inner, list) else []
            for place, entry in enumerate(entries):
                command = str(entry.get("command", "")) if isinstance(entry, dict) else ""
                machine = _machine(command)
                if machine:
                    rest = ("hooks", place) if len(entries) > 1 else ()
                    found.append(Installed(("hooks", event, number, *rest), event, machine, command))
    return found


_ENTRIES = tuple(os.path.join("doflow", "hooks", name) for name in ("entry.py", "door.py"))


def _machine(command: str) -> str:
    """The machine that a command of ours names; '' = it isn't ours."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    entry = any(word.endswith(_ENTRIES) for word in words)
    verb = any(os.path.basename(a) == "doflow" and b == "hook" for a, b in itertools.pairwise(words))
    if not (entry or verb) or "--machine" not in words[:-1]:
        return ""
    return words[words.index("--machine") + 1]


def _with(text: str, table: dict[str, list[dict[str, object]]]) -> str:
    mark, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    if find_value(body, ("hooks",)) is None:
        return mark + insert_first(body, (), "hooks", table)
    for event, groups in reversed(table.items()):
        if find_value(body, ("hooks", event)) is None:
            body = insert_first(body, ("hooks",), event, groups)
        else:
            for group in reversed(groups):
                body = insert_first(body, ("hooks", event), "", group)
    return mark + body


def _without(text: str) -> str:
    mark, body = (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)
    while ours := find_hooks(body):
        body = remove_part(body, ours[0].path)
    return mark + body if body else ""


def _load(path: Path) -> str:
    """The text of a settings file, which can be edited safely; '' = no such file."""
    hint = "fix it, then try again; nothing was changed"
    try:
        text = path.read_bytes().decode("utf-8")
        value = json.loads(text.removeprefix(_BOM), object_pairs_hook=_unique_keys)
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 ({error})", hint) from error
    except ValueError as error:
        raise UsageError(f"{path} is not plain JSON ({error})", hint) from error
    table = value.get("hooks", {}) if isinstance(value, dict) else None
    if not isinstance(table, dict) or not all(isinstance(groups, list) for groups in table.values()):
        raise UsageError(f"{path} has hooks in an unknown form", f'expected {{"hooks": {{"EVENT": [ … ]}}}}: {hint}')
    return text


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


def _write(path: Path, text: str) -> None:
    """Atomic write; follows a link to its target and keeps the mode."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    atomic_files.write_file(target, text.encode("utf-8"), mode)


JsonPath = Sequence[str | int]


class Part(NamedTuple):
    """One member of an object or item of a list: start (of its key, if it has one), value and end."""

    key: str | int
    start: int
    value: int
    end: int


def container_parts(text: str, at: int) -> list[Part]:
    """The members of the container that opens at `at`; empty for other values. The text is valid JSON."""
    found: list[Part] = []
    if text[at] not in "{[":
        return found
    place = _blank(text, at + 1)
    while text[place] not in "}]":
        start, key = place, len(found) if text[at] == "[" else ""
        if text[at] == "{":
            key, place = json.decoder.scanstring(text, place + 1)  # type: ignore[attr-defined]
            place = _blank(text, _blank(text, place) + 1)
        _, end = json.JSONDecoder().raw_decode(text, place)
        found.append(Part(key, start, place, end))
        place = _blank(text, end)
        if text[place] == ",":
            place = _blank(text, place + 1)
    return found


def find_value(text: str, path: JsonPath) -> int | None:
    """Position of the value at a path; None = no such value."""
    at = _blank(text, 0)
    for key in path:
        part = next((part for part in container_parts(text, at) if part.key == key), None)
        if part is None:
            return None
        at = part.value
    return at


def insert_first(text: str, path: JsonPath, key: str, value: Any) -> str:
    """Insert a first member (`key`) or item into the container at `path`, which exists."""
    at = find_value(text, path)
    assert at is not None
    rest, indent = container_parts(text, at), _indent(text)
    newline = ("\r\n" if "\r\n" in text else "\n") + indent * (len(path) + 1)
    piece = json.dumps(value, indent=indent).replace("\n", newline)
    piece = f"{json.dumps(key)}: {piece}" if text[at] == "{" else piece
    before = newline if rest else " "
    return text[: at + 1] + before + piece + ("," if rest else "") + text[at + 1 :]


def remove_part(text: str, path: JsonPath) -> str:
    """Remove the member or item at `path` and what was inserted with it; '' = nothing is left."""
    at = find_value(text, path[:-1])
    assert at is not None
    held = container_parts(text, at)
    place = next(number for number, part in enumerate(held) if part.key == path[-1])
    if len(held) == 1 and text[at + 1] in "\r\n":
        return remove_part(text, path[:-1]) if len(path) > 1 else ""
    if len(held) == 1:
        start, end = at + 1, held[0].end
    elif place == 0:
        start, end = at + 1, text.index(",", held[0].end) + 1
    else:
        start, end = held[place - 1].end, held[place].end
    return text[:start] + text[end:]


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _indent(text: str) -> str:
    """The indentation of the first member; two spaces if there is none."""
    at = _blank(text, 0)
    held = container_parts(text, at)
    _, line_end, indent = (text[at + 1 : held[0].start] if held else "").rpartition("\n")
    return indent if line_end and indent else "  "
