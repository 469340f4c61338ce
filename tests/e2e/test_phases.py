"""Phases of a task list: which run again, and what each of them commits."""

from __future__ import annotations

import re
import shutil

import pytest
from tests.support.project import Project
from tests.support.reruns import CODES, WORK, again, edit, work


def test_ticked_boxes_make_nothing_stale(project):
    project.flow("work", f"{WORK}      last: {{prompt: Look back., reads: [tasks.md], makes: last.md}}\n")
    project.agent("""
        usual()
        if phase:
            path = run_dir / "tasks.md"
            path.write_text(path.read_text().replace("[ ] [T00" + phase, "[x] [T00" + phase))
    """)
    project.commit()

    assert project.doit("work").returncode == 0
    assert "- [x] [T001]" in (project.run_dir() / "tasks.md").read_text()
    assert again(project, "work") == []
    path = project.run_dir() / "tasks.md"
    path.write_text(path.read_text().replace("[x]", "[ ]"))
    assert again(project, "work") == []


@pytest.mark.smoke
def test_a_changed_phase_runs_again_with_those_after_it(project):
    three = "# Tasks\n" + "".join(f"\n## Phase {n}: P{n}\n\n- [ ] [T00{n}] Do {n}\n" for n in (1, 2, 3))
    work(project, three)
    path = project.run_dir() / "tasks.md"
    path.write_text(path.read_text().replace("Do 2", "Do two"))
    project.agent(CODES)

    assert again(project, "work") == ["implement:2", "implement:3"]
    assert again(project, "work") == []


def test_a_new_phase_runs_alone(project):
    work(project)
    edit(project, "tasks.md", "\n## Phase 3: Garden\n\n- [ ] [T003] Plant\n")

    assert again(project, "work") == ["implement:3"]
    assert again(project, "work") == []
    assert project.state()["implement_phases_completed"] == ["phase_1", "phase_2", "phase_3"]


def test_a_phase_that_is_taken_out_of_the_list_is_not_done_any_more(project):
    work(project)
    path = project.run_dir() / "tasks.md"
    path.write_text(path.read_text().split("## Phase 2")[0])

    assert again(project, "work") == []
    assert project.state()["status"] == "completed"


def test_a_list_without_phases_is_done_in_one_call_and_that_is_said(project):
    project.flow("work", WORK)
    project.agent("make('# Just do it\\n') if step == 'tasks' else usual()")
    project.commit()

    done = project.doit("work")

    assert (done.returncode, project.calls()) == (0, ["tasks", "implement:all"])
    assert "has no `## Phase N: title`: implementing all of it in one call" in done.stdout
    assert again(project, "work") == []


def test_a_phase_that_only_adds_a_file_is_committed(project):
    work(project)

    changed = project.git("show", "--name-status", "--format=%s", "HEAD").split("\n")
    assert changed[0] == "Phase 2: House"
    assert "A\tsrc/phase_2.py" in changed
    assert project.git("status", "--porcelain") == ""


def test_a_phase_that_deletes_and_moves_files_is_committed(project):
    project.write("old.py", "OLD = 1\n")
    project.write("moved.py", "MOVED = 1\n")
    project.flow("work", WORK)
    project.agent("""
        usual()
        if phase == "1":
            (root / "old.py").unlink()
            (root / "lib").mkdir()
            (root / "moved.py").rename(root / "lib" / "moved.py")
    """)
    project.commit()

    assert project.doit("work").returncode == 0
    assert project.git("status", "--porcelain") == ""
    files = project.git("ls-tree", "-r", "--name-only", "HEAD").split()
    assert ("old.py" in files, "moved.py" in files, "lib/moved.py" in files) == (False, False, True)


def test_a_phase_keeps_links_and_the_executable_bit(project):
    project.flow("work", WORK)
    project.agent("""
        usual()
        if phase == "1":
            put("run.sh", "#!/bin/sh\\n")
            (root / "run.sh").chmod(0o755)
            (root / "link").symlink_to("run.sh")
    """)
    project.commit()

    assert project.doit("work").returncode == 0
    listed = {line.split("\t")[1]: line.split()[0] for line in project.git("ls-tree", "HEAD").splitlines()}
    assert (listed["run.sh"], listed["link"]) == ("100755", "120000")
    assert project.git("status", "--porcelain") == ""


def test_files_that_git_ignores_are_not_committed(project):
    project.write(".gitignore", "build/\n*.log\n")
    project.flow("work", WORK)
    project.agent("usual()\nif phase: put('build/out.o', 'o'), put('debug.log', 'd'), put('build2.txt', 'x')")
    project.commit()

    assert project.doit("work").returncode == 0
    files = project.git("ls-tree", "-r", "--name-only", "HEAD").split()
    assert ("build/out.o" in files, "debug.log" in files, "build2.txt" in files) == (False, False, True)
    assert (project.root / "build/out.o").read_text() == "o"


def test_each_phase_is_one_commit_with_its_trailers(project):
    work(project)

    keys = ("Doflow-Run", "Doflow-Step", "Doflow-Phase")
    form = "%s" + "".join(f"|%(trailers:key={key},valueonly,separator=)" for key in keys)
    lines = project.git("log", "--reverse", f"--format={form}").splitlines()
    run = project.runs()[0]
    assert lines[-2:] == [f"Phase 1: Ground|{run}|implement|1", f"Phase 2: House|{run}|implement|2"]


def test_a_phase_can_be_forced_alone(project):
    work(project)

    assert again(project, "work", "--force=implement:1") == ["implement:1"]
    assert again(project, "work", "--force=implement") == ["implement:1", "implement:2"]
    assert again(project, "work") == []


def test_names_that_are_hard_to_write_are_committed_as_they_are(project):
    project.flow("work", WORK)
    project.write("ünïcode/ä b.txt", "old\n")
    project.commit("A flow")
    names = ["new\nline.txt", ' "quoted" .txt', ":(top)x", "-dash", "ünïcode/ä b.txt", "日本/🔑.md"]
    project.agent(f"usual()\nif phase == '1': [put(name, 'new') for name in {names!r}]")

    assert again(project, "work") == ["tasks", "implement:1", "implement:2"]

    assert set(names) <= set(project.git("ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0"))
    assert project.git("status", "--porcelain") == ""


TESTED = (
    WORK
    + """\
      look: {kind: shell, run: [echo, looked]}
      test: {kind: shell, run: "echo x >> {outside}/tested"}
"""
)


def times(project: Project) -> int:
    return len((project.outside / "tested").read_text().splitlines())


@pytest.mark.parametrize(
    "words", ["", "forget work:implement:2", "forget work:implement:1", "--force=implement", "--force=implement:1"]
)
def test_code_that_is_made_again_is_tested_again_also_behind_another_step(project, words):
    project.flow("work", TESTED.replace("{outside}", str(project.outside)))
    project.commit("A flow")
    assert project.doit("work").returncode == 0
    assert project.doit("work").returncode == 0
    assert times(project) == 1
    path = project.run_dir() / "tasks.md"
    if words.startswith("forget"):
        assert project.doit(*words.split()).returncode == 0
    elif not words:
        path.write_text(path.read_text().replace("Build the house", "Build a castle"))
        project.agent(CODES)
    if not words.startswith("--"):
        assert "work:test" in project.doit("list", "--all").stdout
        assert re.search(r"runs +test", project.doflow("plan").stdout)

    done = project.doit("work", *([words] if words.startswith("--") else []))

    assert (done.returncode, times(project)) == (0, 2), done.stdout + done.stderr
    assert (project.doit("work").returncode, times(project)) == (0, 2)
    shutil.rmtree(project.root / ".doflow")
    assert (project.doit("work").returncode, times(project)) == (0, 2)


@pytest.mark.parametrize("how", ["reset", "revert"])
def test_code_that_was_taken_back_out_of_the_history_is_tested_again_when_it_is_made_again(project, how):
    project.flow("work", TESTED.replace("{outside}", str(project.outside)))
    project.commit("A flow")
    assert project.doit("work").returncode == 0
    assert project.subjects()[-2:] == ["Phase 2: House", "Record completion of look, test"]
    if how == "reset":
        project.git("reset", "-q", "--hard", "HEAD~2")
    else:
        project.git("revert", "--no-edit", "HEAD")
        project.git("revert", "--no-edit", "HEAD~2")
    project.forget_calls()
    assert re.search(r"runs +test", project.doflow("plan").stdout)

    done = project.doit("work")

    assert (done.returncode, project.calls(), times(project)) == (0, ["implement:2"], 2), done.stdout + done.stderr
    assert (project.doit("work").returncode, times(project)) == (0, 2)
    shutil.rmtree(project.root / ".doflow")
    assert (project.doit("work").returncode, project.calls(), times(project)) == (0, ["implement:2"], 2)
