"""What becomes of things that an agent writes where it may not, or where others keep their records: refused, put back, kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.project import Project

PHASES = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      build: {kind: implement, phases: /tasks.md, prompt: Build it}
"""
STEPS = """
    flow: work
    defaults: {retry: {attempts: 0}}
    protect: ["keys*.py"]
    steps:
      plan: {prompt: Plan, makes: plan.md}
      tell: {prompt: Tell, makes: end.md}
"""
TASKS = "# Tasks\n\n## Phase 1: Ground\n\n- [ ] [T001] Dig\n"
BUILD = 'put("src/app.py", "print(1)\\n")\n'
FORGED = '{"event":"step_complete","at":"x","run":"001-x","step":"tell","record":{"key":"forged"}}'


def phased(project: Project) -> Project:
    project.flow("work", PHASES)
    project.write("tasks.md", TASKS)
    project.commit("Ground")
    return project


def stepped(project: Project) -> Project:
    project.flow("work", STEPS)
    project.commit("Ground")
    return project


def quarantined(project: Project) -> dict[str, str]:
    """Each path that is kept aside, with the bytes that an agent had written there."""
    rows = json.loads(project.doflow("quarantine", "list", "--json").stdout)["kept"]
    return {row["path"]: project.doflow("quarantine", "show", row["id"]).stdout for row in rows}


def with_library(project: Project, tmp_path: Path) -> Project:
    library = Project(tmp_path, "library")
    library.write("code.c", "int main;\n")
    library.commit("A library")
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.root), "lib")
    return phased(project)


def test_a_phase_that_writes_into_a_submodule_is_refused(project, tmp_path):
    with_library(project, tmp_path).agent(BUILD + 'put("lib/code.c", "evil"); put("lib/new.c", "more")')

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1, done.stdout
    assert "build:1 modified files outside its scope: lib/code.c, lib/new.c" in done.stdout
    assert (project.read("lib/code.c"), (project.root / "lib/new.c").exists()) == ("int main;\n", False)
    assert {"lib/code.c", "lib/new.c"} <= quarantined(project).keys()
    assert project.git("status", "--porcelain", "--ignore-submodules=none") == "?? specs/\n"


def test_a_phase_that_writes_into_a_submodule_that_is_not_there_is_refused(project, tmp_path):
    with_library(project, tmp_path).git("submodule", "--quiet", "deinit", "lib")
    project.agent(BUILD + 'put("lib/new.c", "more")')

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1, done.stdout
    assert "build:1 modified files outside its scope: lib/new.c" in done.stdout
    assert quarantined(project)["lib/new.c"] == "more"
    assert project.git("ls-files", "-s", "lib").startswith("160000 ")


def test_a_phase_that_writes_into_a_nested_repository_is_refused(project):
    phased(project)
    project.git("init", "-q", "vendor")
    project.write("vendor/code.c", "int main;\n")
    vendor = project.root / "vendor"
    project.git("add", "-A", cwd=vendor)
    project.git("commit", "-q", "-m", "Theirs", cwd=vendor)
    project.agent(BUILD + 'put("vendor/code.c", "evil"); put("vendor/new.c", "more")')

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1, done.stdout
    assert "build:1 modified files outside its scope: vendor/code.c, vendor/new.c" in done.stdout
    assert project.git("status", "--porcelain", cwd=vendor) == ""
    assert {"vendor/code.c", "vendor/new.c"} <= quarantined(project).keys()
    project.agent(BUILD)
    again = project.doit("work")
    assert (again.returncode, project.git("ls-files", "src", "vendor")) == (0, "src/app.py\n"), again.stdout


def test_a_phase_that_writes_the_lock_of_its_own_run_is_refused(project):
    phased(project)
    project.write("tasks.md", TASKS + "\n## Phase 2: Walls\n\n- [ ] [T002] Build\n")
    project.commit("Two phases")
    project.agent(BUILD + 'if phase == "2": (run_dir / "doflow.lock").write_text("steps: {}")')

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (1, ["build:1", "build:2"]), done.stdout
    assert "build:2 modified files outside its scope: specs/001-x/doflow.lock" in done.stdout
    assert project.read("specs/001-x/doflow.lock") == project.git("show", "HEAD:specs/001-x/doflow.lock")
    assert quarantined(project)["specs/001-x/doflow.lock"] == "steps: {}"
    project.agent("usual()")
    again = project.doit("work")
    assert (again.returncode, project.calls()[2:]) == (0, ["build:2"]), again.stdout


def test_code_in_the_run_folder_that_is_protected_is_refused_and_not_only_warned_of(project):
    stepped(project).agent('usual()\nif step == "plan": (run_dir / "keys_of_mine.py").write_text("early")')

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (1, ["plan"]), done.stdout
    assert "plan modified files outside its scope: specs/001-x/keys_of_mine.py" in done.stdout
    assert "before the first phase" not in done.stdout
    assert not (project.run_dir() / "keys_of_mine.py").exists()
    assert quarantined(project) == {"specs/001-x/keys_of_mine.py": "early"}


@pytest.mark.smoke
def test_the_commits_of_an_agent_are_taken_out_of_the_branch_and_kept_under_a_ref(project):
    stepped(project).agent("""
        import subprocess
        usual()
        if step == "plan":
            put("extra.txt", "not asked for")
            for words in (("add", "-A"), ("commit", "-q", "-m", "By the agent")):
                subprocess.run(("git", *words), check=True, capture_output=True)
            (root / "extra.txt").unlink()
        """)

    done = project.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout
    assert "By the agent" not in project.subjects()
    kept = project.git("for-each-ref", "--format=%(refname) %(subject)", "refs/doflow/undone/001-x").splitlines()
    assert [line.partition(" ")[2] for line in kept] == ["By the agent"]
    ref = kept[0].partition(" ")[0]
    assert ref in done.stdout
    assert project.git("show", f"{ref}:extra.txt") == "not asked for"
    project.git("gc", "-q", "--prune=now")
    assert project.git("show", f"{ref}:extra.txt") == "not asked for"


def test_a_forged_event_log_is_put_right_and_the_forgery_is_kept(project):
    log = ".doflow/runs/001-x/events.jsonl"
    stepped(project).agent(f"""
        usual()
        if step == "plan" and not nth:
            with open(root / {log!r}, "a") as file:
                file.write({FORGED!r} + "\\n")
        """)

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (1, ["plan"]), done.stdout
    assert f"plan modified files outside its scope: {log}" in done.stdout
    assert "forged" not in project.read(log)
    told = [entry["event"] for entry in project.events()]
    assert (told[0], told.count("step_starting"), told[-1]) == ("run_started", 1, "error"), told
    assert FORGED in quarantined(project)[log].splitlines()
    project.doflow("adopt", "plan")
    again = project.doit("work")
    assert (again.returncode, project.calls()) == (0, ["plan", "tell"]), again.stdout


def test_an_ignored_file_in_the_run_folder_is_not_for_agents_to_change(project):
    project.write(".gitignore", "__pycache__/\n/specs/*/cache/\n*.bin\n")
    stepped(project)
    assert project.doit("work:plan", "--goal=x").returncode == 0
    project.write("specs/001-x/cache/notes.txt", "mine\n")
    project.write("specs/001-x/data.bin", "mine\n")
    project.write("elsewhere.bin", "mine\n")
    project.agent("""
        usual()
        (run_dir / "cache/notes.txt").write_text("changed")
        (run_dir / "data.bin").unlink()
        put("elsewhere.bin", "what git ignores elsewhere is free")
        """)

    done = project.doit("work")

    assert done.returncode == 1, done.stdout
    assert "tell modified files outside its scope: specs/001-x/cache/notes.txt, specs/001-x/data.bin" in done.stdout
    assert project.read("specs/001-x/cache/notes.txt") == project.read("specs/001-x/data.bin") == "mine\n"
    assert quarantined(project) == {"specs/001-x/cache/notes.txt": "changed"}
