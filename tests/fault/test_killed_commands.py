"""Killed while a check is at work, or right after it: what it wrote stays, nothing is paid again, no one is blamed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from tests.fault.test_kept_results import checking, stopped, touch
from tests.support import crash
from tests.support.project import Project, eventually

pytestmark = pytest.mark.timeout(300)

# writes at once and puts the agent's text in order; waits where a test wants to kill it
CHECK = """
    echo x >> .coverage
    sed -i 's/ *$//' {file}
    touch {outside}/checking
    while test -e {outside}/wait; do sleep 0.05; done
    grep -q right {file}
"""
FLOW = """
    flow: work
    defaults: {{retry: {{attempts: 0}}}}
    steps:
      spec: {{prompt: Write., makes: spec.md, check: {{run: [sh, {outside}/spec.sh]}}, repair: 2}}
      impl: {{kind: implement, phases: /tasks.md, prompt: Do it, check: {{run: [sh, {outside}/code.sh]}}, repair: 2}}
"""
TASKS = "# Tasks\n\n## Phase 1: One\n\n- [ ] [T001] One\n\n## Phase 2: Two\n\n- [ ] [T002] Two\n"
WRITER = """
import time
file = makes[0] if makes else root / "code.py"
if role == "repair" and (outside / "half").exists():
    file.write_text("half of a repair")
    (outside / "half").unlink()
    time.sleep(60)
file.write_text(f"{step} {phase} right  \\n" if role == "repair" or phase == "2" else "wrong   \\n")
"""
PARTS = 6
ALL = ["spec", "spec repair", "impl:1", "impl:1 repair", "impl:2"]


def written(project: Project, tracked: bool = True) -> Project:
    for name, file in (("spec", "specs/001-x/spec.md"), ("code", "code.py")):
        (project.outside / f"{name}.sh").write_text(CHECK.format(outside=project.outside, file=file))
    project.flow("work", FLOW.format(outside=project.outside))
    project.write("tasks.md", TASKS)
    project.write("code.py", "old\n")
    if tracked:
        project.write(".coverage", "old\n")
    project.commit("Ground")
    project.write("mine.txt", "mine\n")
    project.agent(WRITER)
    return project


def finished(project: Project, tracked: bool = True) -> None:
    """All is done, in order; what the checks wrote is in the tree and in no commit; the person's file is as it was."""
    paths = project.git("log", "--format=", "--name-only", "main..HEAD").split()
    assert ".coverage" not in paths and "code.py" in paths
    assert project.git("show", "HEAD:code.py") == "impl 2 right\n"
    assert project.git("show", "HEAD:specs/001-x/spec.md") == "spec  right\n"
    lines = project.read(".coverage").splitlines()
    assert lines[0] == ("old" if tracked else "x") and lines.count("x") >= 5
    status = " M .coverage\n?? mine.txt\n" if tracked else "?? .coverage\n?? mine.txt\n"
    assert (project.git("status", "--porcelain"), project.read("mine.txt")) == (status, "mine\n")


@pytest.mark.smoke("9-True")
@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_check_that_is_interrupted_leaves_what_it_wrote_and_the_result_is_kept(project, number, tracked):
    stopped(project, number, checking(written(project, tracked), "work", "--goal=x"))

    again = project.doit("work")

    assert (again.returncode, project.calls()) == (0, ALL), again.stdout + again.stderr
    assert ".coverage" not in project.doflow("quarantine", "list").stdout
    finished(project, tracked)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_check_of_a_phase_likewise(project, number):
    written(project)
    assert project.doit("work:spec", "--goal=x").returncode == 0
    (project.outside / "checking").unlink()
    stopped(project, number, checking(project, "work"))

    again = project.doit("work")

    assert (again.returncode, project.calls()) == (0, ALL), again.stdout + again.stderr
    assert "your edits" not in again.stdout and "uncommitted" not in again.stdout
    finished(project)


def test_a_repair_that_is_killed_is_put_back_and_what_the_check_wrote_is_not(project):
    written(project)
    touch(project, "half")
    running = project.start("doit", "work", "--goal=x")
    assert eventually(lambda: "spec repair" in project.calls() and not (project.outside / "half").exists())
    stopped(project, signal.SIGKILL, running)

    again = project.doit("work")

    assert (again.returncode, project.calls()) == (0, [*ALL[:2], *ALL[1:]]), again.stdout + again.stderr
    assert "left by a killed step, moved to quarantine: specs/001-x/spec.md" in again.stdout
    finished(project)


def test_what_a_killed_check_did_to_protected_files_is_put_back(project):
    written(project)
    script = project.outside / "spec.sh"
    script.write_text("echo '# evil' >> doflow.yaml\n" + script.read_text())
    before = project.read("doflow.yaml")
    stopped(project, signal.SIGKILL, checking(project, "work", "--goal=x"))
    assert "evil" in project.read("doflow.yaml")
    script.write_text(script.read_text().partition("\n")[2])

    again = project.doit("work")

    assert (again.returncode, project.read("doflow.yaml")) == (0, before), again.stdout + again.stderr
    assert "moved to quarantine: specs/001-x/spec.md, doflow.yaml" in again.stdout
    finished(project)


@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_any_record_around_a_check_it_ends_well(tmp_path, part):
    whole = written(Project(tmp_path / "whole"))
    assert killed(whole, 0) == 0
    points = int((whole.home / "points.records").read_text())
    for point in range(part + 1, points + 1, PARTS):
        project = written(Project(tmp_path / str(point)))
        killed(project, point)

        again = project.doit("work", "--goal=x")

        said = f"point {point}: {again.stdout}{again.stderr}"
        assert (again.returncode, "yours" in again.stdout) == (0, False), said
        more = project.calls()
        for call in ALL:
            more.remove(call)
        assert len(more) <= 1, f"more than the call that was at work; {said}"
        finished(project)


def killed(project: Project, point: int) -> int:
    argv = (sys.executable, crash.__file__, "records", str(point), "work", "--goal=x")
    done = subprocess.run(argv, cwd=project.root, env=project.env, capture_output=True, timeout=60, check=False)
    return done.returncode
