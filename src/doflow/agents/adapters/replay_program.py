"""The program of the `replay` agent: replays a recorded call with the same prompt, else reports the closest difference.

Run as `python -I -S replay_program.py`; it imports nothing of doflow. The run's name, folder and root may differ from the
recorded ones: they are replaced in prompts, paths and texts.
"""

from __future__ import annotations

import base64
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Call = dict[str, Any]
    Places = tuple[tuple[str, str], ...]

MARK = "REPLAYED: "
SAME = (("step", "DOFLOW_STEP"), ("phase", "DOFLOW_PHASE"), ("role", "DOFLOW_ROLE"), ("persona", "DOFLOW_PERSONA"))


def main(env: dict[str, str]) -> int:
    prompt = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    folders = env["DOFLOW_SESSIONS"].split("\n")
    known = [call for folder in folders for call in recorded(folder)]
    mine = [call for call in known if all(str(call.get(name, "")) == env.get(said, "") for name, said in SAME)]
    here = places(env["DOFLOW_RUN"], env["DOFLOW_REPLAY_RUN"], env["DOFLOW_ROOT"])
    wanted = general(prompt, here)
    fitting = [call for call in mine if general(text(call, "prompt.md"), there(call)) == wanted]
    if not fitting:
        sys.stderr.write(f"{MARK}{json.dumps({'status': 'failed', 'reason': nearest(env, known, mine, wanted)})}\n")
        return 1
    same = [call for call in fitting if str(call["attempt"]) == env.get("DOFLOW_ATTEMPT", "")]
    return play((same or fitting)[-1], here, env["DOFLOW_ROOT"])


def recorded(folder: str) -> list[Call]:
    """The calls below a folder, oldest first; one that was not recorded to its end does not count."""
    found: list[Call] = []
    for path, below, names in os.walk(folder):
        below.sort()
        if "call.json" in names:
            try:
                with open(os.path.join(path, "call.json"), encoding="utf-8") as stream:
                    found.append({**json.load(stream), "folder": path})
            except (OSError, ValueError, TypeError):
                continue
    return found


def places(run: str, run_dir: str, root: str) -> Places:
    """Values that differ between runs, longest first. A run name that could be an ordinary word is not replaced."""
    named = ((run, "{run}"),) if len(run) > 4 and run[:3].isdigit() else ()
    return ((root, "{root}"), (run_dir, "{run_dir}"), *named)


def there(call: Call) -> Places:
    return places(call["run"], call["run_dir"], call["root"])


def general(said: str, where: Places) -> str:
    for own, word in where:
        said = said.replace(own, word)
    return said


def special(said: str, where: Places) -> str:
    for own, word in where:
        said = said.replace(word, own)
    return said


def text(call: Call, name: str) -> str:
    try:
        with open(os.path.join(call["folder"], name), "rb") as stream:
            return stream.read().decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def play(call: Call, here: Places, root: str) -> int:
    """Write the files of the recorded call, print its answer, and end with its status."""
    for change in json.loads(text(call, "changes.json") or "[]"):
        if change["kind"] == "too large":
            reason = f"{call['folder']} cannot be replayed: {change['path']} was too large to record"
            sys.stderr.write(f"{MARK}{json.dumps({'status': 'failed', 'reason': reason})}\n")
            return 1
        put(change, call, here, root)
    words = ("status", "reason", "hint", "transient", "resume_at", "model", "folder")
    sys.stdout.buffer.write(
        special(general(text(call, "answer.md"), there(call)), here).encode("utf-8", "surrogateescape")
    )
    sys.stdout.flush()
    sys.stderr.write(f"{MARK}{json.dumps({word: call.get(word, '') for word in words})}\n")
    return 0 if call["status"] == "done" else 1


def put(change: Call, call: Call, here: Places, root: str) -> None:
    path = os.path.join(root, special(general(change["path"], there(call)), here))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    if change["kind"] == "link":
        os.symlink(change["target"], path)
    elif change["kind"] == "file":
        plain = "text" in change
        said = special(general(change["text"], there(call)), here) if plain else ""
        data = said.encode("utf-8", "surrogateescape") if plain else base64.b64decode(change["base64"])
        with open(path, "wb") as stream:
            stream.write(data)
        os.chmod(path, change.get("mode", 0o644))


def nearest(env: dict[str, str], known: list[Call], mine: list[Call], wanted: str) -> str:
    """Why no recording matches; names the first difference from the closest one."""
    what = " ".join(word for _, said in SAME if (word := env.get(said, "")) and word != "step")
    if not known:
        return f"no recordings in {', '.join(env['DOFLOW_SESSIONS'].split(chr(10)))}: record a run with --record"
    if not mine:
        names = ", ".join(dict.fromkeys(named(call) for call in known))
        return f"no recording of {what} (recorded: {names})"
    lines = wanted.splitlines()
    best, at, old = max(((call, *parted(call, lines)) for call in mine), key=lambda found: found[1])
    now = lines[at] if at < len(lines) else "(its end)"
    return (
        f"no recording of {what} matches: its prompt differs from {best['folder']} at line {at + 1}: "
        f"recorded {shown(old)}, now {shown(now)}"
    )


def parted(call: Call, lines: list[str]) -> tuple[int, str]:
    """The first line at which a recorded prompt differs, and its text there."""
    old = general(text(call, "prompt.md"), there(call)).splitlines()
    pairs = enumerate(zip(old, lines, strict=False))
    at = next((place for place, (was, now) in pairs if was != now), min(len(old), len(lines)))
    return at, old[at] if at < len(old) else "(its end)"


def named(call: Call) -> str:
    return " ".join(word for word in (call["step"], call["phase"], call["persona"]) if word)


def shown(line: str) -> str:
    return repr(line if len(line) <= 120 else line[:119] + "…")


if __name__ == "__main__":
    sys.exit(main(dict(os.environ)))
