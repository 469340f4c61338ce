"""Hook settings for one call of an agent, put together in one place: who wants to be asked adds a `Hook` to the `Ask`.

Nothing is written: Claude Code takes them by `--settings`, Codex by `-c`, so that no file can be changed behind our back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from doflow.flow.model import Hook

TIMEOUT = 60
#: what every reason that reaches a model from one of our hooks holds; a refusal without it is somebody else's
MARK = "[doflow-hook]"
_MATCHERS = {"claude": "Task|Agent", "codex": "spawn_agent"}
_EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "SessionEnd",
)
_NOT_CODEX = ("PostToolUse", "SessionEnd")


def order(machine: str, agent: str, absolute: bool = True, state: str = "") -> tuple[Hook, ...]:
    """What an agent must ask so that a machine can keep its sub-agents in order.

    `absolute` names this very Python; else `doflow` is looked for on the agent's PATH, wherever it is installed.
    """
    import shlex

    found = []
    for event in _EVENTS:
        if agent == "codex" and event in _NOT_CODEX:
            continue
        words = (event, "--machine", machine, *(("--state", state) if state else ()))
        call = command(*words) if absolute else shlex.join(("doflow", "hook", *words))
        found.append(Hook(event, call, _MATCHERS[agent] if "ToolUse" in event else "", TIMEOUT))
    return tuple(found)


def command(*words: str) -> str:
    """A shell's words that call the door: this Python, isolated; `words` begin with the event."""
    import os
    import shlex

    door = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry.py")
    return shlex.join((sys.executable, "-I", "-S", door, *words))


def grouped(hooks: Iterable[Hook]) -> dict[str, list[dict[str, object]]]:
    """The `hooks` table that Claude Code and Codex share: event → groups."""
    found: dict[str, list[dict[str, object]]] = {}
    for hook in hooks:
        entry: dict[str, object] = {"type": "command", "command": hook.command, "timeout": hook.timeout}
        if hook.closed:
            entry["onFailure"] = "block"
        matcher = {"matcher": hook.matcher} if hook.matcher else {}
        found.setdefault(hook.event, []).append({**matcher, "hooks": [entry]})
    return found


def for_claude(hooks: Iterable[Hook]) -> tuple[str, ...]:
    """The words of a call of Claude Code; none where there are no hooks."""
    table = grouped(hooks)
    if not table:
        return ()
    import json

    return ("--settings", json.dumps({"hooks": table}))


def for_codex(hooks: Iterable[Hook]) -> tuple[str, ...]:
    """The words of a call of Codex. They are given with the call, by us: nobody needs to be asked whether to trust them."""
    table = grouped(hooks)
    words: tuple[str, ...] = ("--dangerously-bypass-hook-trust",) if table else ()
    for event, groups in table.items():
        words += ("-c", f"hooks.{event}={_toml(groups)}")
    return words


def _toml(value: object) -> str:
    """An inline value of TOML; a string of JSON is one of TOML too."""
    if isinstance(value, dict):
        inner = ", ".join(f"{name} = {_toml(said)}" for name, said in value.items() if name != "onFailure")
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(entry) for entry in value)}]"
    import json

    return json.dumps(value)
