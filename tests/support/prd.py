"""A project with a PRD.md, and what a good agent does in the flow `prd`, as a script for `Project.agent`.

    shop = prd.project(tmp_path)
    shop.agent(prd.good(bugs=1))

It plans a backlog of two subtasks (of a bug report: of one), writes one file per subtask, a validation that looks for them,
and finds as many bugs, hunt by hunt, as it is told. `before` is Python that runs first and may set `done = True`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tests.support.project import Project

REQUIREMENTS = "# A shop\n\n- It sells.\n- It ships.\n"

_GOOD = """
from tests.support.scripted_agent.prd_flow import backlog, log_session, work

done = False
log_session(call)
{before}
if not done:
    work(call, bugs={bugs})
"""


def good(bugs: int = 0, before: str = "") -> str:
    """A script for the whole flow; the first `bugs` hunts of a session find something."""
    return _GOOD.format(bugs=bugs, before=before)


def project(tmp_path: Path, requirements: str = REQUIREMENTS, **given: Any) -> Project:
    made = Project(tmp_path, **given)
    made.write("PRD.md", requirements)
    made.commit("Say what is wanted")
    made.agent(good())
    return made


def sessions(project: Project) -> list[str]:
    """The folders of all sessions, from the project's root, in order."""
    plan = project.root / "plan"
    found = [*plan.glob("*_*"), *plan.glob("*_*/bugfix/*_*")]
    return sorted(str(path.relative_to(project.root)) for path in found)


def places(project: Project) -> list[str]:
    """The agent's calls, each with the name of the session's folder."""
    log = project.outside / "where.log"
    return log.read_text().splitlines() if log.exists() else []


def statuses(project: Project, session: str) -> dict[str, str]:
    """The status of every item of a session's backlog, by id."""
    found: dict[str, str] = {}

    def walk(items: list[dict[str, Any]]) -> None:
        for item in items:
            found[item["id"]] = item["status"]
            walk(next((item[key] for key in ("milestones", "tasks", "subtasks") if key in item), []))

    walk(json.loads(project.read(f"{session}/tasks.json"))["backlog"])
    return found


MAIN = ["backlog", "research:p1-m1-t1-s1", "research:p1-m1-t1-s2", "implement:P1.M1.T1.S1", "implement:P1.M1.T1.S2",
        "validate", "hunt"]  # fmt: skip
FIX = ["backlog", "research:p1-m1-t1-s1", "implement:P1.M1.T1.S1", "validate"]
DONE = {
    "P1": "Complete",
    "P1.M1": "Complete",
    "P1.M1.T1": "Complete",
    "P1.M1.T1.S1": "Complete",
    "P1.M1.T1.S2": "Complete",
}
CHANGED = REQUIREMENTS + "- It refunds.\n"


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def markers(project: Project, run: str) -> dict[str, str]:
    """What the lock says of each step that has a marker."""
    lines = project.read(f"{run}/doflow.lock").splitlines()
    rows = [line.strip().partition(": ") for line in lines if line.startswith('  "')]
    return {json.loads(name): value["marker"] for name, _, text in rows if "marker" in (value := json.loads(text))}
