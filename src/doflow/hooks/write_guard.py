"""`doflow hook write --scope FILE`: checks a write of an agent before it happens.

Early feedback for the agent; the comparison after the step is what counts. It fails closed: a call that is not understood,
late or causes an error is refused. Imports are kept to a minimum.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from doflow.hooks.events import MARK, permission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT = 32_000_000
DEADLINE = 10
_PATHS = ("file_path", "notebook_path", "path")
_PATCH = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_GIT = ("commit", "push", "reset", "rebase", "merge", "stash", "clean", "switch", "checkout", "cherry-pick", "revert")


def run(words: list[str]) -> int:
    """0 without output: allowed; 0 with a message for the agent: refused; 2: refused because of an error."""
    try:
        _deadline()
        scope = _scope(words)
        refusal = _judge(_payload(), scope)
    except BaseException as error:  # any error must refuse the call
        message = f"{MARK} doflow could not check this call, so it is refused: {type(error).__name__}: {error}"
        sys.stderr.write(message[:1000])
        return 2
    if refusal:
        sys.stdout.write(json.dumps(permission("deny", f"{MARK} {refusal}")))
    return 0


def _judge(payload: dict[str, Any], scope: dict[str, Any]) -> str:
    tool, given = payload["tool_name"], payload["tool_input"]
    if not isinstance(tool, str) or not isinstance(given, dict):
        raise ValueError("not a tool call")
    if tool in ("Bash", "shell", "local_shell", "exec_command") and "*** Begin Patch" not in str(given):
        return _shell(str(given.get("command", "")))
    cwd = str(payload.get("cwd") or scope["root"])
    return next((refusal for path in _written(tool, given) if (refusal := _refusal(path, cwd, scope))), "")


def _written(tool: str, given: dict[str, Any]) -> list[str]:
    """The paths that a call writes; a call without any is an error."""
    found = [given[name] for name in _PATHS if isinstance(given.get(name), str)]
    patch = next((given[name] for name in ("input", "patch", "command") if isinstance(given.get(name), str)), "")
    if tool == "apply_patch" or "*** Begin Patch" in patch:
        lines = patch.splitlines()
        found += [line[len(head) :].strip() for line in lines for head in _PATCH if line.startswith(head)]
    if not found:
        raise ValueError(f"{tool} names no path")
    return found


def _refusal(path: str, cwd: str, scope: dict[str, Any]) -> str:
    """Why a path must not be written; '' = it may be."""
    from doflow.util.globs import matches

    root = os.path.realpath(scope["root"])
    full = os.path.realpath(os.path.join(cwd, os.path.expanduser(path)))
    if not full.startswith(root + os.sep):
        temporary = {os.path.realpath(top) + os.sep for top in ("/tmp", os.environ.get("TMPDIR") or "/tmp")}
        return (
            "" if full.startswith(tuple(temporary)) else f"{path} is outside the project: writing there is not allowed"
        )
    rel = full[len(root) + 1 :]
    if ".git" in rel.casefold().split("/"):
        return f"{rel} belongs to git: steps must not change it. doflow commits a step's changes itself"
    if rel in scope["earlier"] or matches(tuple(scope["protect"]), rel):
        return f"{rel} is protected: steps must not change it. Leave it unchanged; if it must change, say so in your answer"
    if scope["writes"] is None or rel in scope["makes"] or matches(tuple(scope["writes"]), rel):
        return ""
    allowed = ", ".join((*scope["makes"], *scope["writes"])) or "nothing"
    return f"{rel} is outside the allowed paths of step {scope['step']} ({allowed}). Write only there"


def _shell(command: str) -> str:
    """Catches only plain git commands, which doflow would undo. Everything else is checked after the step."""
    for part in command.replace("&&", ";").replace("||", ";").replace("|", ";").replace("\n", ";").split(";"):
        words = part.split()
        if words[1:2] == ["-C"]:
            words = [words[0], *words[3:]]
        verbs = [word for word in words[1:] if not word.startswith("-")]
        if words[:1] == ["git"] and verbs and verbs[0] in _GIT and verbs[1:2] not in (["list"], ["show"]):
            return f"git {verbs[0]}: doflow commits a step's changes itself. Just leave the files in their final state"
    return ""


def _scope(words: list[str]) -> dict[str, Any]:
    if len(words) != 2 or words[0] != "--scope":
        raise ValueError("usage: doflow hook write --scope FILE   with the agent's JSON on standard input")
    with open(words[1], encoding="utf-8") as stream:
        scope = json.load(stream)
    return {name: scope[name] for name in ("root", "step", "makes", "writes", "protect", "earlier")}


def _payload() -> dict[str, Any]:
    data = sys.stdin.buffer.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise ValueError("input too long")
    payload = json.loads(data)
    if not isinstance(payload, dict):
        raise ValueError("not a JSON object")
    return payload


def _deadline() -> None:
    """Refuse before the agent's own timeout, which would allow the call."""

    def late(*_: object) -> None:
        raise TimeoutError("no complete input in time")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(DEADLINE)
