"""What an agent has returned belongs to its step through every interruption: it is fixed, not taken for a person's, and not
paid again."""

from __future__ import annotations

import signal

import pytest
from tests.support.crash import none_left
from tests.support.project import Project, Started, eventually

FLOW = """
    flow: work
    defaults: {{retry: {{attempts: 0}}}}
    steps:
      impl: {{kind: implement, phases: /tasks.md, prompt: Do it, check: {{run: [sh, {check}]}}, repair: {repair}}}
"""
TASKS = "# Tasks\n\n## Phase 1: Code\n\n- [ ] [T001] Write code.py\n"
# right = the line is there; a file `wait` beside the project makes it wait, so that it can be killed in the middle
CHECK = """
    touch {outside}/checking
    while test -e {outside}/wait; do sleep 0.05; done
    grep -q right {file}
"""
CODER = """
import time
if role == "step":
    put("code.py", "wrong\\n")
    put("pkg/new.py", "new = 1\\n")
elif (outside / "limit").exists():
    put("code.py", "half of a repair")
    (outside / "limit").unlink()
    stop(75)
elif (outside / "half").exists():
    put("code.py", "half of a repair")
    (outside / "half").unlink()
    time.sleep(60)
elif not (outside / "never").exists():
    put("code.py", (root / "code.py").read_text() + "right\\n")
else:
    put("code.py", (root / "code.py").read_text() + "still wrong\\n")
"""


def coded(project: Project, repair: int = 2) -> Project:
    """One phase, whose code is wrong until it is repaired; a file of the person's is not committed."""
    check = project.outside / "check.sh"
    check.write_text(CHECK.format(outside=project.outside, file="code.py"))
    project.flow("work", FLOW.format(check=check, repair=repair))
    project.write("tasks.md", TASKS)
    project.write("code.py", "old\n")
    project.commit("Ground")
    project.write("mine.txt", "mine\n")
    project.agent(CODER)
    return project


def half_repaired(project: Project) -> Started:
    """A run whose agent is in the middle of its repair."""
    coded(project)
    touch(project, "half")
    running = project.start("doit", "work", "--goal=x")
    assert eventually(lambda: not (project.outside / "half").exists())
    return running


def touch(project: Project, *names: str) -> None:
    for name in names:
        (project.outside / name).touch()


def stopped(project: Project, number: int, running: Started) -> str:
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert none_left(project.home) == {}
    (project.outside / "wait").unlink(missing_ok=True)
    return out + err


def checking(project: Project, *args: str) -> Started:
    """A run that is in the middle of a check."""
    touch(project, "wait")
    running = project.start("doit", *args)
    assert eventually((project.outside / "checking").exists)
    return running


def repaired(project: Project) -> None:
    """The repair is in the phase's commit, and the person's file is as it was."""
    assert project.git("show", "--format=", "--name-only", "HEAD").split()[:2] == ["code.py", "pkg/new.py"]
    assert project.read("code.py") == "wrong\nright\n"
    assert project.git("status", "--porcelain") == "?? mine.txt\n"


def put_back(project: Project) -> None:
    """Nothing of the agent's is left in the tree."""
    assert (project.read("code.py"), (project.root / "pkg").exists()) == ("old\n", False)
    assert project.git("status", "--porcelain") == "?? mine.txt\n?? specs/\n"


def test_a_phase_whose_repair_met_a_rate_limit_is_repaired_later(project):
    coded(project)
    touch(project, "limit")

    first = project.doit("work", "--goal=x")
    again = project.doit("work")

    assert (first.returncode, again.returncode) == (3, 0), first.stdout + again.stdout
    assert project.calls() == ["impl:1", "impl:1 repair", "impl:1 repair"]
    assert " or later: doit work" in first.stdout and "what it left (code.py) is in quarantine" in first.stdout
    assert "yours" not in again.stdout and "changed no file" not in again.stdout
    repaired(project)


def test_a_phase_whose_repair_waits_for_its_quota_is_repaired_by_the_same_command(project):
    coded(project)
    project.settings("rate_limit: {wait: 1m}\n")
    project.commit("Settings")
    soon = 'say(time.strftime("RESUME-AT: %Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3))); stop(75)'
    project.agent(CODER.replace("stop(75)", soon))
    touch(project, "limit")

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (0, ["impl:1", "impl:1 repair", "impl:1 repair"]), done.stdout
    assert "yours" not in done.stdout


@pytest.mark.smoke
def test_a_phase_that_was_killed_in_its_check_is_repaired(project):
    stopped(coded(project), signal.SIGKILL, checking(project, "work", "--goal=x"))

    again = project.doit("work")

    assert (again.returncode, project.calls()) == (0, ["impl:1", "impl:1 repair"]), again.stdout + again.stderr
    repaired(project)


@pytest.mark.smoke
def test_a_repair_that_is_killed_in_the_middle_leaves_what_was_returned_before_it(project):
    running = half_repaired(project)
    stopped(project, signal.SIGKILL, running)

    again = project.doit("work")

    said = again.stdout + again.stderr
    assert (again.returncode, project.calls()) == (0, ["impl:1", "impl:1 repair", "impl:1 repair"]), said
    assert "left by a killed step, moved to quarantine: code.py" in said
    repaired(project)


def test_a_later_repair_that_is_killed_in_the_middle_leaves_what_was_returned_before_it(project):
    coded(project)
    touch(project, "limit")
    assert project.doit("work", "--goal=x").returncode == 3
    touch(project, "half")
    running = project.start("doit", "work")
    assert eventually(lambda: not (project.outside / "half").exists())
    stopped(project, signal.SIGKILL, running)

    again = project.doit("work")

    assert (again.returncode, project.calls()[1:]) == (0, ["impl:1 repair"] * 3), again.stdout + again.stderr
    repaired(project)


def test_repairs_of_one_result_are_counted_over_all_commands_and_then_it_is_put_aside(project):
    coded(project)
    touch(project, "limit", "never")

    first, second = project.doit("work", "--goal=x"), project.doit("work")

    assert (first.returncode, second.returncode) == (3, 1)
    assert project.calls() == ["impl:1", "impl:1 repair", "impl:1 repair", "impl:1 repair"], "one was limited"
    assert "impl:1 failed its checks" in second.stdout
    assert "code.py, pkg/new.py" in second.stdout and "doflow quarantine list" in second.stdout
    put_back(project)
    (project.outside / "never").unlink()
    assert project.doit("work").returncode == 0
    repaired(project)


def test_a_result_that_no_one_may_repair_is_put_aside_and_made_again(project):
    stopped(coded(project, repair=0), signal.SIGKILL, checking(project, "work", "--goal=x"))

    again = project.doit("work")

    assert (again.returncode, project.calls()) == (1, ["impl:1"]), again.stdout
    put_back(project)
    project.agent('put("code.py", "right\\n")')
    last = project.doit("work")
    assert (last.returncode, project.calls()) == (0, ["impl:1", "impl:1"]), last.stdout


WRITTEN = """
    flow: work
    steps:
      a: {{{what}, makes: a.md, check: {{run: [sh, {check}]}}, repair: {repair}}}
"""
BY_COMMAND = "kind: shell, run: 'echo a >> {outside}/calls.log; echo right > $DOFLOW_MAKES'"


def written(project: Project, what: str, repair: int) -> Project:
    check = project.outside / "check.sh"
    check.write_text(CHECK.format(outside=project.outside, file="$DOFLOW_MAKES"))
    project.flow("work", WRITTEN.format(what=what.format(outside=project.outside), check=check, repair=repair))
    project.commit("Ground")
    project.agent('make("right\\n" if role == "step" else "mended\\n")')
    return project


@pytest.mark.smoke("15-prompt: Write it-1")
@pytest.mark.parametrize(
    ("number", "what", "repair"),
    [
        (signal.SIGINT, "prompt: Write it", 0),
        (signal.SIGTERM, "prompt: Write it", 1),
        (signal.SIGHUP, BY_COMMAND, 0),
    ],
)
def test_a_result_whose_check_is_interrupted_is_checked_by_the_next_command(project, number, what, repair):
    running = checking(written(project, what, repair), "work", "--goal=x")

    said = stopped(project, number, running)

    assert (running.returncode, project.state()["pauseReason"]) == (130, "interrupted"), said
    assert "failed its checks" not in said and "handed back" not in said and "quarantine" not in said
    assert (project.run_dir() / "a.md").read_text() == "right\n"
    again = project.doit("work")
    assert (again.returncode, project.calls()) == (0, ["a"]), again.stdout + again.stderr
    assert project.subjects()[-1] == "a: a.md"


def test_a_check_that_is_interrupted_again_and_again_loses_nothing(project):
    written(project, "prompt: Write it", 1)
    for arguments in (("--goal=x",), (), ()):
        (project.outside / "checking").unlink(missing_ok=True)
        running = checking(project, "work", *arguments)
        assert "contract" not in stopped(project, signal.SIGINT, running)
        assert running.returncode == 130

    again = project.doit("work")

    assert (again.returncode, project.calls()) == (0, ["a"]), again.stdout + again.stderr
    assert ".  work:a  (resuming from the previous result)" in again.stdout
    assert again.stdout.splitlines()[-1] == "done: 001-x (work)"


def test_a_repair_that_is_interrupted_is_handed_back_by_the_next_command(project):
    running = half_repaired(project)

    stopped(project, signal.SIGINT, running)

    assert (running.returncode, project.read("code.py")) == (130, "wrong\n")
    again = project.doit("work")
    assert (again.returncode, project.calls()) == (0, ["impl:1", "impl:1 repair", "impl:1 repair"]), again.stdout
    repaired(project)
