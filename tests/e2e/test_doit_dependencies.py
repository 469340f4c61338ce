"""doit knows the files of every step: what it reads, what it makes, what changed; and never disagrees with the key."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.test_flows import WAYS, calls, ran
from tests.support import script
from tests.support.project import DODO, Project

GOAL = "--goal=Log in by a link"
FLOWS = Path(__file__).parent.parent.parent / "flows"
PROBE = Path(__file__).parent.parent / "support" / "doit_statuses.py"
EVERY_WAY = {**WAYS, "tiny": ("tiny", {}, "", ["specify", "plan", "tasks", "implement"], [])}
#: read by several steps, and by none that makes it
INPUT = {"roadmap": "concept.md", "discovery": "input.md", "investigation": "input.md"}


def statuses(project: Project, flow: str, folder: Path | None = None) -> list[dict]:
    asked = subprocess.run(
        (sys.executable, str(PROBE), flow), cwd=folder or project.root, env=project.env, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


def agreed(found: list[dict]) -> list[str]:
    """The steps of the route that are to be done, by doit and by the key alike; what changed is a reason for both."""
    for line in found:
        assert (line["doit"] == "run") == bool(line["key"]), line
        assert line["key"] or not line["changed"], line
        assert not line["key"] or line["doit"] == "run", line
    return [line["task"] for line in found if line["active"] and line["doit"] == "run"]


def clone(project: Project, tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    project.git("clone", "-q", "-b", project.git("branch", "--show-current").strip(), str(project.root), str(folder))
    return folder


@pytest.fixture
def done(project: Project) -> Project:
    ran(project, "tiny", GOAL)
    project.forget_calls()
    return project


#: `implement` has no step to ask about before there is a task list
BEFORE = sorted({path.stem for path in FLOWS.glob("*.yaml")} - {"implement"})


@pytest.mark.parametrize("flow", BEFORE)
def test_before_a_run_doit_and_the_key_call_every_step_of_every_flow_undone(flow: str, project: Project) -> None:
    found = statuses(project, flow)

    assert agreed(found) == [line["task"] for line in found if line["active"]] != []
    assert not (project.root / ".doflow").exists()


@pytest.mark.parametrize("way", EVERY_WAY, ids=lambda way: way.replace(" ", "-"))
def test_doit_and_the_key_agree_on_every_way_through_every_flow(way: str, project: Project, tmp_path: Path) -> None:
    flow, markers, _, pipeline, _ = EVERY_WAY[way]
    project.agent(script.good(**markers))
    ran(project, flow, GOAL)

    finished = statuses(project, flow)
    assert agreed(finished) == []
    assert all(line["file_dep"] for line in finished if line["active"]), finished
    assert list(dict.fromkeys(line["task"].partition(":")[0] for line in finished if line["active"])) == pipeline
    assert statuses(project, flow, clone(project, tmp_path)) == finished

    for name in ("tasks.md", "fix-plan.md"):
        path = project.run_dir() / name
        if path.exists():
            path.write_text(path.read_text().replace("- [x]", "- [ ]", 1))
    assert agreed(statuses(project, flow)) == []
    project.git("checkout", "-q", "--", ".")

    path = project.run_dir() / INPUT.get(way, "spec.md")
    path.write_text(path.read_text() + "\nMore.\n")
    name = str(path.relative_to(project.root))
    edited = statuses(project, flow)
    stale = agreed(edited)
    assert stale == [line["task"] for line in edited if line["active"] and name in line["file_dep"]] != []
    assert [line["task"] for line in edited if line["active"] and line["changed"] == [name]] == stale
    project.forget_calls()
    ran(project, flow)
    assert list(dict.fromkeys(line.partition(" ")[0] for line in calls(project))) == stale
    assert agreed(statuses(project, flow)) == []


def test_a_finished_flow_is_answered_the_same_from_its_stamp(done: Project) -> None:
    quick, whole = done.doit("tiny"), done.doit("run", "tiny")

    assert (quick.returncode, quick.stdout, quick.stderr) == (0, whole.stdout, whole.stderr)
    assert quick.stdout.splitlines()[-1] == f"{done.runs()[0]}: nothing to do"
    done.write("dodo.py", f'{DODO}DOIT_CONFIG = {{"reporter": "json"}}\n')
    assert {task["result"] for task in json.loads(done.doit("tiny").stdout)["tasks"]} == {"up-to-date", "success"}


def test_info_names_the_files_and_those_that_changed(done: Project) -> None:
    spec = f"specs/{done.runs()[0]}/spec.md"
    shown = done.doit("info", "tiny:plan")
    assert (shown.returncode, f"file_dep   : \n - {spec}\n" in shown.stdout) == (0, True), shown.stdout
    assert f"targets    : \n - specs/{done.runs()[0]}/plan.md\n" in shown.stdout

    done.write(spec, done.read(spec) + "More.\n")

    shown = done.doit("info", "tiny:plan")
    changed = f" * The following file dependencies have changed:\n    - {spec}\n"
    assert (shown.returncode, changed in shown.stdout) == (1, True), shown.stdout
    assert done.calls() == []


def test_a_clone_without_state_knows_the_same(done: Project, tmp_path: Path) -> None:
    folder = clone(done, tmp_path)

    assert statuses(done, "tiny", folder) == statuses(done, "tiny")
    listed = done.doit("list", "--all", "--deps", "--status", "tiny", cwd=folder).stdout
    assert f" -  specs/{done.runs()[0]}/plan.md\n" in listed and "U tiny:tasks" in listed
    assert not (folder / ".doflow").exists()
    spec = folder / "specs" / done.runs()[0] / "spec.md"
    spec.write_text(spec.read_text() + "More.\n")
    assert f"    - specs/{done.runs()[0]}/spec.md\n" in done.doit("info", "tiny:plan", cwd=folder).stdout
    assert done.doit("forget", "tiny:specify", cwd=folder).returncode == 0
    assert "forgotten with doit forget" in done.doit("info", "tiny:specify", cwd=folder).stdout
    assert done.git("status", "--porcelain", cwd=folder).split() == ["M", f"specs/{done.runs()[0]}/spec.md"]


def test_forget_all_of_a_clone_forgets_what_only_the_lock_knows(done: Project, tmp_path: Path) -> None:
    folder = clone(done, tmp_path)

    assert done.doit("forget", "--all", cwd=folder).returncode == 0

    listed = done.doit("list", "--all", "--status", "--quiet", cwd=folder).stdout
    assert "R tiny:plan" in listed and "R tiny:implement:2" in listed


def test_a_ticked_box_changes_nothing_for_doit(done: Project) -> None:
    path = done.run_dir() / "tasks.md"
    path.write_text(path.read_text().replace("- [ ]", "- [x]"))

    assert agreed(statuses(done, "tiny")) == []


def test_of_a_task_list_only_the_edited_phase_has_changed_for_doit(done: Project) -> None:
    path = done.run_dir() / "tasks.md"
    path.write_text(path.read_text().replace("Build the house", "Build a tower"))

    found = {line["task"]: line["changed"] for line in statuses(done, "tiny")}
    assert (found["implement:1"], found["implement:2"]) == ([], [f"specs/{done.runs()[0]}/tasks.md"])


def test_clean_offers_no_artifact(done: Project) -> None:
    before = done.tree()

    shown = [done.doit("clean", "-n", "--clean-all"), done.doit("clean", "tiny"), done.doit("clean")]

    assert [(one.returncode, one.stdout, one.stderr) for one in shown] == [(0, "", "")] * 3
    assert done.tree() == before


def test_reset_dep_says_how_a_step_is_taken_as_done(done: Project) -> None:
    assert done.doit("reset-dep", "tiny:plan").stdout == "skip tiny:plan\n"
    path = done.run_dir() / "spec.md"
    path.write_text(path.read_text() + "More.\n")

    told = done.doit("reset-dep", "tiny:plan", "tiny:tasks")

    assert (told.returncode, told.stdout.splitlines()[-1]) == (1, "  doit tiny --completed=plan,tasks"), told.stdout
    assert done.doit("reset-dep").stdout.splitlines()[-1] == "  doit tiny --completed=plan,tasks"
    ran(done, "tiny", "--completed=plan,tasks")
    assert (done.calls(), agreed(statuses(done, "tiny"))) == ([], [])


def test_a_small_bugfix_beside_a_plan_calls_whom_it_calls_without_one(project: Project) -> None:
    project.agent(script.good(before='run_dir.joinpath("plan.md").exists()', bugfix="SCALE: SMALL"))
    ran(project, "bugfix", GOAL)
    usual = calls(project)
    project.forget_calls()
    project.git("switch", "-q", "main")
    ran(project, "bugfix", "--goal=Another one", "--next")
    run = project.run_dir()
    (run / "plan.md").write_text("# Plan\n\nLeft here by somebody.\n")
    project.commit("A plan of mine")

    ran(project, "bugfix")

    assert calls(project) == usual


def test_a_file_that_a_later_step_makes_orders_nothing(project: Project) -> None:
    project.flow(
        "turn",
        """
        flow: turn
        steps:
          look: {prompt: A, reads: ["b.md?"], makes: a.md}
          make: {prompt: B, reads: [a.md], makes: b.md}
        """,
    )
    project.commit("A flow")

    ran(project, "turn", GOAL)
    found = {line["task"]: line["targets"] for line in statuses(project, "turn")}
    ran(project, "turn")

    assert project.calls() == ["look", "make", "look"]
    assert found == {"look": [f"specs/{project.runs()[0]}/a.md"], "make": []}


def test_a_step_beside_another_does_not_wait_for_what_that_makes(project: Project) -> None:
    project.flow(
        "pair",
        """
        flow: pair
        steps:
          one: {prompt: A, makes: a.md}
          two: {prompt: B, reads: ["a.md?"], makes: b.md, after: []}
        """,
    )
    project.commit("A flow")
    ran(project, "pair", GOAL)
    project.forget_calls()

    ran(project, "pair:two", "--force=one,two")

    assert project.calls() == ["two"]


def test_a_glob_over_very_many_files_is_one_value(project: Project) -> None:
    for number in range(1001):
        project.write(f"docs/{number}.txt", "text\n")
    project.flow("read", 'flow: read\nsteps:\n  one: {prompt: A, reads: ["/docs/*.txt", input.md], makes: a.md}\n')
    project.commit("Many files")
    ran(project, "read", GOAL)

    found = statuses(project, "read")
    assert (agreed(found), found[0]["file_dep"]) == ([], [f"specs/{project.runs()[0]}/input.md"])
    project.write("docs/7.txt", "other\n")
    found = statuses(project, "read")
    assert (agreed(found), found[0]["changed"]) == (["one"], [])


@pytest.mark.smoke
def test_an_input_that_no_one_makes_is_our_error_with_exit_code_one(project: Project) -> None:
    project.flow("lack", "flow: lack\nsteps:\n  one: {prompt: A, reads: [/notes.md], makes: a.md}\n")
    project.write("notes.md", "Notes\n")
    project.commit("A flow")
    ran(project, "lack", GOAL)
    (project.root / "notes.md").unlink()

    failed = project.doit("lack")

    assert (failed.returncode, project.calls()) == (1, ["one"]), failed.stdout + failed.stderr
    assert "notes.md" in failed.stdout + failed.stderr and "Dependent file" not in failed.stdout + failed.stderr


@pytest.mark.smoke
def test_a_task_of_the_person_that_makes_an_input_runs_before_the_step(project: Project) -> None:
    own = 'def task_api():\n    return {"actions": ["echo new > api.txt"], "targets": ["api.txt"], "file_dep": ["src.txt"]}\n'
    project.write("dodo.py", f"{DODO}\n\n{own}")
    project.write("api.txt", "old\n")
    project.write("src.txt", "one\n")
    project.flow("use", "flow: use\nsteps:\n  one: {prompt: A, reads: [/api.txt], makes: a.md}\n")
    project.commit("A task of mine")

    ran(project, "use", GOAL)

    assert (project.read("api.txt"), project.calls()) == ("new\n", ["one"])
    ran(project, "use")
    assert project.calls() == ["one"]
    shutil.rmtree(project.root / ".doflow")
    assert agreed(statuses(project, "use")) == []
