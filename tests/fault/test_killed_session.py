"""`doit prd` killed anywhere, in the session or in the bug-fix session inside it: the same command finishes it, and no agent
is called again for what it had finished."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support import crash, prd
from tests.support.project import Project, eventually

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="follows process trees in /proc"),
    pytest.mark.timeout(300),
]
CRASH = str(Path(crash.__file__))


class End(NamedTuple):
    """The files, the agent's calls, and how many points there are at which it could have died."""

    files: dict[str, bytes]
    calls: list[str]
    points: dict[str, int]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> End:
    """How the story ends when no one disturbs it."""
    points = {}
    for kind in ("records", "session"):
        project = started(tmp_path_factory.mktemp(kind))
        assert not killed(project, kind, 0)
        points[kind] = int((project.home / f"points.{kind}").read_text())
    return End(files(project), prd.places(project), points)


def started(folder: Path) -> Project:
    project = prd.project(folder)
    project.agent(prd.good(bugs=1))
    return project


def files(project: Project) -> dict[str, bytes]:
    apart = ("doflow.lock", "doflow.yaml")  # they hold times, or where the agent is
    return {name: data for name, data in project.tree().items() if not name.endswith(apart)}


def paid(project: Project) -> set[str]:
    """What agents had returned by now, as `places` says it."""
    found = set()
    for path in (project.root / ".doflow" / "runs").glob("*/events.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if entry["event"] == "returned":
                phase = f":{entry['phase']}" if entry.get("phase") else ""
                found.add(f"{path.parent.name.rpartition('.')[2]} {entry['step']}{phase}")
    return found


def killed(project: Project, kind: str, point: int) -> bool:
    """Run it until its n-th point; whether it came that far (how many there are differs a little with the machine's load)."""
    done = subprocess.run(
        (sys.executable, CRASH, kind, str(point), "prd"), cwd=project.root, env=project.env, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert crash.none_left(project.home) == {}
    assert done.returncode in ((-signal.SIGKILL, 0) if kind == "records" else (1, 0)), done.stdout + done.stderr
    return done.returncode != 0


def goes_on(project: Project, undisturbed: End) -> None:
    before, had = prd.places(project), paid(project)

    done = project.doit("prd", timeout=120)

    assert (done.returncode, files(project)) == (0, undisturbed.files), done.stdout + done.stderr
    again = prd.places(project)[len(before) :]
    assert sorted(set(again) & had) == []
    assert sorted({*before, *again}) == sorted(undisturbed.calls)
    assert len(before) + len(again) <= len(undisturbed.calls) + 1, "only the call in flight is paid again"
    assert project.git("status", "--porcelain") == ""
    (project.outside / "calls.log").unlink()
    assert (project.doit("prd", timeout=60).returncode, project.calls()) == (0, [])


@pytest.mark.parametrize("part", [0.01, 0.12, 0.25, 0.37, 0.5, 0.62, 0.75, 0.87, 0.97])
def test_a_session_killed_at_any_point_goes_on(tmp_path: Path, part: float, undisturbed: End) -> None:
    project = started(tmp_path)
    killed(project, "records", 1 + int(part * undisturbed.points["records"]))

    goes_on(project, undisturbed)


@pytest.mark.parametrize("part", [0.01, 0.2, 0.4, 0.6, 0.8, 0.88, 0.92])
def test_a_bug_fix_session_killed_at_any_point_goes_on(tmp_path: Path, part: float, undisturbed: End) -> None:
    project = started(tmp_path)
    killed(project, "session", 1 + int(part * undisturbed.points["session"]))

    goes_on(project, undisturbed)


def test_a_session_killed_while_the_bug_fix_session_works_takes_it_along(tmp_path: Path, undisturbed: End) -> None:
    project = started(tmp_path)
    project.agent(prd.good(bugs=1, before='if phase and "bugfix" in run_dir.parts: import time; time.sleep(60)'))
    run = project.start("doit", "prd")
    assert eventually(lambda: list(project.root.glob("plan/*/bugfix/*/tasks.json")), 90)
    assert eventually(lambda: prd.places(project)[-1].endswith("implement:P1.M1.T1.S1"))

    run.send_signal(signal.SIGKILL)
    run.communicate()

    assert crash.none_left(project.home) == {}
    project.agent(prd.good(bugs=1))
    goes_on(project, undisturbed)


def test_a_session_interrupted_while_the_bug_fix_session_works_ends_both_in_order(
    tmp_path: Path, undisturbed: tuple
) -> None:
    project = started(tmp_path)
    project.agent(prd.good(bugs=1, before='if phase and "bugfix" in run_dir.parts: import time; time.sleep(60)'))
    run = project.start("doit", "prd")
    assert eventually(lambda: list(project.root.glob("plan/*/bugfix/*/tasks.json")), 90)
    assert eventually(lambda: prd.places(project)[-1].endswith("implement:P1.M1.T1.S1"))

    run.send_signal(signal.SIGINT)
    run.communicate()

    assert (run.returncode, crash.none_left(project.home)) == (130, {})
    states = [json.loads(path.read_text()) for path in project.root.glob(".doflow/runs/*/pipeline-state.json")]
    assert [(state["status"], state["pauseReason"]) for state in states] == [("paused", "interrupted")] * 2
    project.agent(prd.good(bugs=1))
    goes_on(project, undisturbed)


@pytest.mark.smoke
def test_an_end_that_was_written_but_not_committed_is_committed_by_the_next_run(project: Project) -> None:
    project.flow(
        "small",
        "flow: small\nsteps:\n  plan: {prompt: Plan it., makes: plan.md}\n  test: {kind: shell, run: [test, -d, specs]}\n",
    )
    assert project.doit("small", "--goal=x").returncode == 0
    assert project.subjects()[-1] == "Record completion of test"
    project.git("reset", "-q", "--mixed", "HEAD~1")  # as after a kill between the lock and its commit
    events = project.root / ".doflow" / "runs" / "001-x" / "events.jsonl"
    events.write_text(
        "".join(line + "\n" for line in events.read_text().splitlines() if "pipeline_complete" not in line)
    )

    assert project.doit("small").returncode == 0

    assert (project.subjects()[-1], project.git("status", "--porcelain", "specs")) == (
        "Record completion of the run",
        "",
    )
    assert project.calls() == ["plan"]
