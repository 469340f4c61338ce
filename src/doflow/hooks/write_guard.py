"""`doflow hook write --scope FILE`: may an agent write there? Asked by its program before a file is written.

An early word to the agent, so that it does not go astray for an hour; the comparison afterwards is the judge. It fails closed:
what is not understood, comes too late or breaks in here is refused. Next to nothing is imported.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: what every refusal of ours holds; the adapters know by it that it was not the agent's program that refused
MARK = "[doflow-hook]"
LIMIT = 32_000_000
DEADLINE = 10
_PATHS = ("file_path", "notebook_path", "path")
_PATCH = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_GIT = ("commit", "push", "reset", "rebase", "merge", "stash", "clean", "switch", "checkout", "cherry-pick", "revert")


def run(words: list[str]) -> int:
    """0 with nothing said: it may; 0 with a refusal in words for the agent: it may not; 2: it may not, for want of sense."""
    try:
        _deadline()
        scope = _scope(words)
        refusal = _judge(_payload(), scope)
    except BaseException as error:  # whatever it is, it must not let the call pass
        sys.stderr.write(
            f"{MARK} doflow could not look at this call, so it is refused: {type(error).__name__}: {error}"[:1000]
        )
        return 2
    if refusal:
        _refuse(refusal)
    return 0


def _judge(payload: dict[str, Any], scope: dict[str, Any]) -> str:
    tool, given = payload["tool_name"], payload["tool_input"]
    if not isinstance(tool, str) or not isinstance(given, dict):
        raise ValueError("not a call of a tool")
    if tool in ("Bash", "shell", "local_shell", "exec_command") and "*** Begin Patch" not in str(given):
        return _shell(str(given.get("command", "")))
    place = str(payload.get("cwd") or scope["root"])
    for path in _written(tool, given):
        refusal = _path(path, place, scope)
        if refusal:
            return refusal
    return ""


def _written(tool: str, given: dict[str, Any]) -> list[str]:
    """The paths that a call writes; a call that names none is not understood."""
    found = [given[name] for name in _PATHS if isinstance(given.get(name), str)]
    patch = next((given[name] for name in ("input", "patch", "command") if isinstance(given.get(name), str)), "")
    if tool == "apply_patch" or "*** Begin Patch" in patch:
        lines = patch.splitlines()
        found += [line[len(head) :].strip() for line in lines for head in _PATCH if line.startswith(head)]
    if not found:
        raise ValueError(f"{tool} names no path")
    return found


def _path(said: str, place: str, scope: dict[str, Any]) -> str:
    from doflow.util.globs import matches

    root = os.path.realpath(scope["root"])
    full = os.path.realpath(os.path.join(place, os.path.expanduser(said)))
    if not full.startswith(root + os.sep):
        return "" if _scratch(full) else f"{said} is outside of the project: nothing may be written there"
    rel = full[len(root) + 1 :]
    if ".git" in rel.casefold().split("/"):
        return f"{rel} belongs to git: no step may ever change it. doflow commits what a step makes, by itself"
    if rel in scope["earlier"] or matches(tuple(scope["protect"]), rel):
        return f"{rel} is protected: no step may change it. Leave it as it is; if it must change, say so in your answer"
    if scope["writes"] is None or rel in scope["makes"] or matches(tuple(scope["writes"]), rel):
        return ""
    allowed = ", ".join((*scope["makes"], *scope["writes"])) or "nothing"
    return f"{rel} is outside of what step {scope['step']} may write ({allowed}). Write only there"


def _scratch(full: str) -> bool:
    """Room for notes that are not part of the project."""
    tops = {os.path.realpath(top) for top in ("/tmp", os.environ.get("TMPDIR") or "/tmp")}
    return any(full.startswith(top + os.sep) for top in tops)


def _shell(command: str) -> str:
    """Of a shell only what is plain: git's own deeds, which doflow would undo. Anything else is seen afterwards."""
    for part in command.replace("&&", ";").replace("||", ";").replace("|", ";").replace("\n", ";").split(";"):
        words = part.split()
        if words[1:2] == ["-C"]:
            words = [words[0], *words[3:]]
        verbs = [word for word in words[1:] if not word.startswith("-")]
        if words[:1] == ["git"] and verbs and verbs[0] in _GIT and verbs[1:2] not in (["list"], ["show"]):
            return f"git {verbs[0]}: doflow commits what a step makes, by itself. Leave the files as they should be"
    return ""


def _scope(words: list[str]) -> dict[str, Any]:
    import json

    if len(words) != 2 or words[0] != "--scope":
        raise ValueError("usage: doflow hook write --scope FILE   with the agent's JSON on standard input")
    with open(words[1], encoding="utf-8") as stream:
        scope = json.load(stream)
    return {name: scope[name] for name in ("root", "step", "makes", "writes", "protect", "earlier")}


def _payload() -> dict[str, Any]:
    import json

    data = sys.stdin.buffer.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise ValueError("more than can be looked at")
    payload = json.loads(data)
    if not isinstance(payload, dict):
        raise ValueError("not an object")
    return payload


def _refuse(reason: str) -> None:
    import json

    said = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": f"{MARK} {reason}",
    }
    sys.stdout.write(json.dumps({"hookSpecificOutput": said}))


def _deadline() -> None:
    """Before the agent's program loses patience, which would let the call pass."""
    import signal

    def late(*_: object) -> None:
        raise TimeoutError("no complete question in time")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(DEADLINE)
