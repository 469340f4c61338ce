"""`doit prd`: requirements become a backlog, subtasks, code, a validation, a bug hunt; sessions, deltas, bug-fix sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support import prd
from tests.support.prd import CHANGED, DONE, FIX, MAIN, hashed, markers
from tests.support.project import Project

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return prd.project(tmp_path)


@pytest.mark.smoke
def test_backlog_code_bug_bug_fix_session_clean_done(shop: Project) -> None:
    shop.agent(prd.good(bugs=1))

    done = shop.doit("prd", timeout=120)

    main = f"plan/001_{hashed(prd.REQUIREMENTS)}"
    report = shop.read(f"{main}/hunt/report.md")
    child = f"{main}/bugfix/001_{hashed(report)}"
    assert (done.returncode, done.stderr, shop.calls()) == (0, "", [*MAIN, *FIX, "hunt-2"])
    assert prd.sessions(shop) == [main, child]
    assert shop.read(f"{main}/prd_snapshot.md") == prd.REQUIREMENTS
    assert shop.read(f"{main}/TEST_RESULTS.md") == shop.read(f"{child}/prd_snapshot.md") == report
    assert prd.statuses(shop, main) == DONE
    assert set(prd.statuses(shop, child).values()) == {"Complete"}
    found = markers(shop, main)
    assert (found["hunt"], found["hunt-2"], found["fix"]) == ("BUGS: FOUND", "BUGS: NONE", child.rpartition("/")[2])
    assert f"bug-fix session {child}/" in done.stdout
    assert shop.git("status", "--porcelain") == ""
    assert [line for line in shop.subjects() if line.startswith("P1")] == [
        "P1.M1.T1.S1: Do P1.M1.T1.S1", "P1.M1.T1.S2: Do P1.M1.T1.S2", "P1.M1.T1.S1: Do P1.M1.T1.S1"
    ]  # fmt: skip


def test_changed_requirements_of_a_finished_session_begin_a_delta_session(shop: Project) -> None:
    assert shop.doit("prd", timeout=120).returncode == 0
    shop.write("PRD.md", CHANGED)
    shop.forget_calls()

    done = shop.doit("prd", timeout=120)

    assert (done.returncode, shop.calls()) == (0, ["delta", *MAIN])
    first, second = prd.sessions(shop)
    assert second == f"plan/002_{hashed(CHANGED)}"
    assert (shop.read(f"{second}/delta_from.txt"), shop.read(f"{second}/prd_snapshot.md")) == ("001\n", CHANGED)
    assert shop.read(f"{second}/delta_prd.md") == shop.read(f"{second}/delta/draft.md")
    prompt = shop.prompts()[0]
    assert (f"## Input: {first}/prd_snapshot.md" in prompt, f"## Input: {first}/tasks.json" in prompt) == (True, True)
    assert "## Input: " + second + "/delta_prd.md" in shop.prompts()[1]
    assert shop.git("ls-files", second).split()[-1].startswith(second)
    assert f"{second}/delta_from.txt" in shop.git("ls-files", second)


def test_the_plan_says_of_an_edited_backlog_what_then_runs(shop: Project) -> None:
    assert "hunt says `BUGS: NONE`: the run ends\n" in shop.doflow("plan", "prd").stdout
    assert shop.doit("prd", timeout=120).returncode == 0
    (session,) = prd.sessions(shop)
    backlog = shop.read(f"{session}/tasks.json")
    assert "Do P1.M1.T1.S2" in backlog
    shop.write(f"{session}/tasks.json", backlog.replace("Do P1.M1.T1.S2", "Do it otherwise"))
    shop.forget_calls()

    planned = {line["step"]: line for line in json.loads(shop.doflow("plan", "prd", "--json").stdout)["steps"]}
    done = shop.doit("prd", timeout=120)

    assert done.returncode == 0, done.stdout + done.stderr
    assert {"implement:P1.M1.T1.S2", "validate", "hunt"} <= set(shop.calls())
    said = {name for name, line in planned.items() if line["verdict"] == "runs" and name != "validation"}
    assert said == set(shop.calls())
    assert planned["validation"]["verdict"] == "runs"
    assert planned["validate"]["reasons"] == ["the phases of implement, which it follows, change"]
    assert "nothing to run" in shop.doflow("plan", "prd").stdout
