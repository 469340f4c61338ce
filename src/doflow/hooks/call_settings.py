"""Hook settings for one call of an agent, built in one place from the `Hook`s of its `Ask`.

No file is written: Claude Code takes them with `--settings`, Codex with `-c`, so that no settings file can be tampered with.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable

from doflow.flow.model import Hook
from doflow.hooks import events

TIMEOUT = 60
_MATCHERS = {"claude": "Task|Agent", "codex": "spawn_agent"}
_NOT_CODEX = ("PostToolUse", "SessionEnd")


def order_hooks(machine: str, agent: str, absolute: bool = True, state: str = "") -> tuple[Hook, ...]:
    """The hooks that an agent needs so that a machine can enforce the order of its sub-agents.

    `absolute`: call this Python interpreter; otherwise `doflow` is looked up on the agent's PATH.
    """
    hooks = []
    for event in events.EVENTS:
        if agent == "codex" and event in _NOT_CODEX:
            continue
        words = (event, "--machine", machine, *(("--state", state) if state else ()))
        call = hook_command(*words) if absolute else shlex.join(("doflow", "hook", *words))
        hooks.append(Hook(event, call, _MATCHERS[agent] if "ToolUse" in event else "", TIMEOUT))
    return tuple(hooks)


def hook_command(*words: str) -> str:
    """The shell command that runs `entry.py` with this Python, isolated; `words` start with the event."""
    entry = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry.py")
    return shlex.join((sys.executable, "-I", "-S", entry, *words))


def hook_table(hooks: Iterable[Hook]) -> dict[str, list[dict[str, object]]]:
    """The `hooks` table that Claude Code and Codex share: event → groups."""
    table: dict[str, list[dict[str, object]]] = {}
    for hook in hooks:
        entry: dict[str, object] = {"type": "command", "command": hook.command, "timeout": hook.timeout}
        if hook.closed:
            entry["onFailure"] = "block"
        matcher = {"matcher": hook.matcher} if hook.matcher else {}
        table.setdefault(hook.event, []).append({**matcher, "hooks": [entry]})
    return table


def claude_arguments(hooks: Iterable[Hook]) -> tuple[str, ...]:
    """Arguments for Claude Code; empty without hooks."""
    table = hook_table(hooks)
    return ("--settings", json.dumps({"hooks": table})) if table else ()


def codex_arguments(hooks: Iterable[Hook]) -> tuple[str, ...]:
    """Arguments for Codex. doflow passes these hooks itself, so Codex needs no trust prompt."""
    table = hook_table(hooks)
    words: tuple[str, ...] = ("--dangerously-bypass-hook-trust",) if table else ()
    for event, groups in table.items():
        words += ("-c", f"hooks.{event}={_toml(groups)}")
    return words


def _toml(value: object) -> str:
    """An inline TOML value; a JSON string is a valid TOML string."""
    if isinstance(value, dict):
        inner = ", ".join(f"{name} = {_toml(entry)}" for name, entry in value.items() if name != "onFailure")
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(_toml(entry) for entry in value)}]"
    return json.dumps(value)
