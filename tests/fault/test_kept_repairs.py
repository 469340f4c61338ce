"""What an agent has fixed for a command (`kind: shell` with `repair`) stays through every interruption."""

from __future__ import annotations

import signal

import pytest
from tests.e2e.test_cost import TELLS
from tests.fault.test_kept_results import checking, stopped, touch
from tests.support.project import Project, eventually

FLOW = """
    flow: work
    steps:
      t: {{kind: shell, run: [sh, {suite}], repair: {repair}, prompt: Mend it}}
"""
# right after two repairs; with a file `wait` beside the project it waits when something is fixed, so that it can be killed
SUITE = """
    lines=$(wc -l < code.txt)
    echo "$lines" > report.txt
    if test $lines -gt 1; then
        touch {outside}/checking
        while test -e {outside}/wait; do sleep 0.05; done
    fi
    test $lines -gt 2
"""
FIXER = """
import time
whole = (root / "code.txt").read_text()
stops = [name for name in ("limit", "half") if nth == 1 and (outside / name).exists()]
if stops:
    put("code.txt", "half of a repair")
    put("half.txt", "half")
    (outside / stops[0]).unlink()
    stop(75) if stops == ["limit"] else time.sleep(60)
elif (outside / "never").exists():
    put("code.txt", whole)
    put("other.txt", f"try {nth}")
else:
    put("code.txt", whole + f"repair {nth}\\n")
"""


def fixed(project: Project, repair: int = 3) -> Project:
    suite = project.outside / "suite.sh"
    suite.write_text(SUITE.format(outside=project.outside))
    project.flow("work", FLOW.format(suite=suite, repair=repair))
    project.write("code.txt", "old\n")
    project.commit("Ground")
    project.write("mine.txt", "mine\n")
    project.agent(FIXER)
    return project


def done(project: Project, last: int) -> None:
    """Both repairs are in one commit, and nothing else is left in the tree but the person's and the command's."""
    assert project.read("code.txt") == f"old\nrepair 0\nrepair {last}\n"
    assert project.subjects()[-1] == "t: fix failing check"
    assert "code.txt" in project.git("show", "--format=", "--name-only", "HEAD").split()
    assert project.git("status", "--porcelain") == "?? mine.txt\n?? report.txt\n"


@pytest.mark.smoke("9")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_repair_stays_when_the_command_that_is_run_again_is_interrupted(project, number):
    running = checking(fixed(project), "work", "--goal=x")
    stopped(project, number, running)

    assert project.read("code.txt") == "old\nrepair 0\n"
    plan = project.doflow("plan").stdout
    again = project.doit("work")

    assert "an agent has made repairs; its command must run again" in plan
    assert (again.returncode, project.calls()) == (0, ["t repair"] * 2), again.stdout + again.stderr
    assert "(2 of 3)" in again.stdout and "(1 of 3)" not in again.stdout
    done(project, last=1)


def test_a_repair_stays_when_the_next_one_meets_a_rate_limit(project):
    fixed(project)
    touch(project, "limit")

    first = project.doit("work", "--goal=x")

    assert (first.returncode, project.read("code.txt")) == (3, "old\nrepair 0\n"), first.stdout
    assert " or later: doit work" in first.stdout
    assert not (project.root / "half.txt").exists()
    again = project.doit("work")
    assert (again.returncode, project.calls()) == (0, ["t repair"] * 3), again.stdout + again.stderr
    done(project, last=2)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_repair_stays_when_the_next_one_is_interrupted(project, number):
    fixed(project)
    touch(project, "half")
    running = project.start("doit", "work", "--goal=x")
    assert eventually(lambda: project.calls() == ["t repair"] * 2 and not (project.outside / "half").exists())
    stopped(project, number, running)

    again = project.doit("work")

    assert (again.returncode, project.calls()) == (0, ["t repair"] * 3), again.stdout + again.stderr
    assert not (project.root / "half.txt").exists()
    done(project, last=2)


def test_a_repair_stays_when_the_budget_is_reached_before_the_next_one(project):
    fixed(project)
    project.settings("budget: {usd: 0.2}\n", agent="price: {in: 1, out: 1}")
    project.git("commit", "-qam", "Settings")
    project.agent(TELLS + "uses(100, 10, 0, 0.30)\n" + FIXER)

    first = project.doit("work", "--goal=x")
    again = project.doit("work", "--budget=5")

    assert (first.returncode, again.returncode) == (2, 0), first.stdout + again.stdout
    assert project.calls() == ["t repair"] * 2
    done(project, last=1)


def test_repairs_of_a_command_are_counted_over_all_commands_and_then_they_are_put_aside(project):
    stopped(project, signal.SIGINT, checking(fixed(project, repair=2), "work", "--goal=x"))
    touch(project, "never")

    again = project.doit("work")

    assert (again.returncode, project.calls()) == (1, ["t repair"] * 2), again.stdout
    assert "doflow quarantine list" in again.stdout
    assert (project.read("code.txt"), (project.root / "other.txt").exists()) == ("old\n", False)


def test_what_a_person_changes_meanwhile_is_theirs_and_the_rest_is_gone_on_with(project):
    fixed(project)
    project.agent('put("side.txt", f"side {nth}")\n' + FIXER)
    stopped(project, signal.SIGINT, checking(project, "work", "--goal=x"))
    project.write("side.txt", "by hand\n")

    again = project.doit("work")

    assert (again.returncode, project.calls()) == (0, ["t repair"] * 2), again.stdout + again.stderr
    assert "side.txt: kept your uncommitted changes from before t" in again.stdout
    assert project.read("side.txt") == "by hand\n"
    assert project.read("code.txt") == "old\nrepair 0\nrepair 1\n"
