"""What a good agent does in the flow `prd`; `tests.support.prd` writes the script that calls it."""

from __future__ import annotations

import json

from tests.support.scripted_agent.call import Call

SCOPE = "CONTRACT DEFINITION:\n1. RESEARCH NOTE: n\n2. INPUT: i\n3. LOGIC: l\n4. OUTPUT: o"
LEVELS = (("Task", "P1.M1.T1", "subtasks"), ("Milestone", "P1.M1", "tasks"), ("Phase", "P1", "milestones"))


def log_session(call: Call) -> None:
    """Notes the call with the name of its session's folder, for `tests.support.prd.places`."""
    with open(call.outside / "where.log", "a") as log:
        log.write(f"{call.run_dir.name} {call.line}\n")


def work(call: Call, bugs: int) -> None:
    """Writes one file per subtask, a validation, and a report of each hunt; the first `bugs` hunts find something."""
    is_bug_fix = "bugfix" in call.run_dir.parts
    if call.phase:
        done = "fixed" if is_bug_fix else "built"
        call.put(f"src/{done}_{call.phase.replace('.', '_')}_{call.run_dir.name[-6:]}.py", f"DONE = {call.phase!r}\n")
    elif call.step == "backlog":
        call.make(backlog("P1.M1.T1.S1") if is_bug_fix else backlog("P1.M1.T1.S1", "P1.M1.T1.S2"))
    elif call.step == "validate":
        call.make("test -d src\n")
    elif call.step.startswith("hunt"):
        number = int(call.step.partition("-")[2] or 1)
        verdict = "FOUND" if number <= bugs else "NONE"
        call.make(f"# Hunt {number} in {call.run_dir.name}\n\nBUGS: {verdict}\n")
    else:
        for path in call.makes:
            call.make(f"# {path.parent.name}/{path.name}\n\nWhat it says.\n", path)
    call.say(f"{call.line} is done")


def backlog(*names: str) -> str:
    """A backlog of one task with these subtasks, each after those before it."""
    inner: list[dict[str, object]] = [subtask(name, list(names[:place])) for place, name in enumerate(names)]
    for kind, name, key in LEVELS:
        inner = [
            {"type": kind, "id": name, "title": kind, "status": "Planned", "description": "For the shop.", key: inner}
        ]
    return json.dumps({"backlog": inner})


def subtask(name: str, before: list[str]) -> dict[str, object]:
    return {
        "type": "Subtask", "id": name, "title": f"Do {name}", "status": "Planned", "story_points": 1,
        "dependencies": before, "context_scope": SCOPE,
    }  # fmt: skip
