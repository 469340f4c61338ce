"""`doflow status` and `pipeline-state.json`: what a person and what other programs are told of a run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.json_output import ASKING, looked, states
from tests.support.project import Project, eventually


def test_status_without_a_run_says_how_to_start_one(project: Project):
    told = project.doflow("status")

    assert told.returncode == 0
    assert told.stdout.startswith('No runs yet. Start one: doit FLOW --goal="…"')


@pytest.mark.smoke
def test_status_of_a_finished_run(done: Project):
    row = looked(done, "status")["runs"][0]

    assert row == {
        "run": "001-log-in-by-a", "flow": "tiny", "status": "completed", "died": False, "changed": False,
        "completed": 4, "steps": 4, "branch": "001-log-in-by-a", "goal": "Log in by a link", "dir": "specs/001-log-in-by-a",
        "current": True, "waits": "", "next": "",
    }  # fmt: skip
    detail = looked(done, "status", "1")
    assert (detail["waits"], detail["next"]) == ("", "")
    assert [(step["step"], step["state"]) for step in detail["steps"]] == [
        (name, "done") for name in ("specify", "plan", "tasks", "implement:1", "implement:2")
    ]
    commits = done.git("log", "--format=%H").split()
    assert all(step["commit"] in commits for step in detail["steps"])
    assert done.doflow("status", "001-log-in-by-a").stdout.endswith("nothing to do\n")


def test_status_tells_an_edit_from_what_it_makes_stale(done: Project):
    done.write("specs/001-log-in-by-a/plan.md", "# Mine\n")

    assert states(done) == {
        "specify": "done", "plan": "edited", "tasks": "stale", "implement:1": "done", "implement:2": "done",
    }  # fmt: skip
    told = done.doflow("status", "1").stdout
    assert "completed (changed since)" in told
    assert "may run, if tasks changes specs/001-log-in-by-a/tasks.md" in told
    assert told.endswith("next: doit tiny\n")


@pytest.mark.smoke
def test_status_names_the_gate_and_the_command_that_passes_it(project: Project):
    project.flow("asking", ASKING)
    project.commit()
    assert project.doit("asking", "--goal=x").returncode == 2

    row = looked(project, "status")["runs"][0]
    assert (row["status"], row["waits"]) == ("awaiting-approval", "Good plan? (specs/001-x/plan.md)")
    assert row["next"].startswith("doflow approve plan   or   doflow reject plan")
    assert states(project) == {"spec": "done", "plan": "done", "plan.gate": "asks", "code:all": "waiting"}


def test_status_shows_open_questions(project: Project):
    project.flow("asking", ASKING)
    project.commit()
    project.agent('make("# Spec\\n\\n[NEEDS CLARIFICATION: Which mail?]\\n")')
    assert project.doit("asking", "--goal=x").returncode == 2

    told = project.doflow("status", "1").stdout
    assert "waits: spec asks:\n  1. Which mail?\nnext: doflow answer   then: doit asking\n" in told


def test_status_of_a_failed_run_says_why_and_what_next(project: Project):
    project.agent('if step == "plan": stop(3)\nusual()')
    assert project.doit("tiny", "--goal=x", env={"DOFLOW_SET_RETRY__ENABLED": "false"}).returncode == 1

    row = looked(project, "status")["runs"][0]
    assert row["status"] == "failed"
    assert "exit code 3" in row["waits"]
    assert states(project) == {"specify": "done", "plan": "next", "tasks": "waiting", "implement": "waiting"}


def test_a_failed_run_keeps_its_reason_when_something_else_is_told_after_it(project: Project):
    project.agent('if step == "plan": stop(3)\nusual()')
    assert project.doit("tiny", "--goal=x", env={"DOFLOW_SET_RETRY__ENABLED": "false"}).returncode == 1
    with (project.root / ".doflow/runs/001-x/events.jsonl").open("a") as event_log:
        event_log.write('{"event":"warning","at":"2026-01-01T00:00:00.000Z","run":"001-x","message":"by the way"}\n')

    row = looked(project, "status")["runs"][0]
    assert (row["waits"].startswith("plan: "), "exit code 3" in row["waits"]) == (True, True)
    assert row["next"].endswith("then: doit tiny")


def test_from_another_branch_every_command_that_status_tells_goes_there_first(project: Project):
    project.flow("asking", ASKING)
    project.commit()
    assert project.doit("asking", "--goal=x").returncode == 2
    project.git("switch", "-q", "main")

    told = looked(project, "status")["runs"][0]["next"]
    there = "git switch 001-x && "
    assert told == (
        f"{there}doflow approve plan   or   {there}doflow reject plan --note '…'   then: {there}doit asking"
    )


def test_a_run_whose_rest_was_adopted_is_completed(project: Project):
    project.flow("two", "flow: two\nsteps:\n  a: {prompt: Do., makes: a.md}\n  b: {kind: shell, run: ['false']}\n")
    project.commit()
    assert project.doit("two", "--goal=x").returncode == 1
    assert project.doflow("adopt", "b", "--anyway").returncode == 0

    row = looked(project, "status")["runs"][0]
    assert (row["status"], row["waits"], row["next"]) == ("completed", "", "")


def test_a_lost_pipeline_state_is_derived(done: Project):
    (done.root / ".doflow/runs/001-log-in-by-a/pipeline-state.json").unlink()

    assert looked(done, "status")["runs"][0]["status"] == "completed"


def test_a_clone_knows_what_is_done(done: Project, tmp_path: Path):
    done.git("clone", "-q", str(done.root), str(tmp_path / "clone"))
    shown = done.doflow("status", "--json", cwd=tmp_path / "clone")

    row = json.loads(shown.stdout)["runs"][0]
    assert (row["status"], row["completed"], row["next"]) == ("completed", 4, "")


def test_a_run_on_another_branch_is_told_from_its_records(done: Project):
    done.git("switch", "-q", "main")

    row = looked(done, "status")["runs"][0]
    assert (row["status"], row["current"]) == ("completed", False)
    told = done.doflow("status", "1").stdout
    assert "its files are on branch 001-log-in-by-a, which is not checked out" in told
    assert set(states(done).values()) == {"done"}


def test_status_works_while_a_run_holds_the_lock_and_says_who_does(project: Project):
    project.agent('if step == "plan": time.sleep(60)\nusual()')
    started = project.start("doit", "tiny", "--goal=x")
    try:
        assert eventually(lambda: project.calls() == ["specify", "plan"])
        shown = looked(project, "status")
        assert shown["holder"]["pid"] == started.pid
        assert (shown["runs"][0]["status"], shown["runs"][0]["died"]) == ("active", False)
        assert states(project)["plan"] == "running"
        assert f"working now: pid {started.pid}" in project.doflow("status", "1").stdout
    finally:
        started.kill()
        started.communicate(timeout=60)


def test_a_killed_run_is_told_as_dead_with_the_command_that_goes_on(project: Project):
    project.agent('if step == "plan": time.sleep(60)\nusual()')
    started = project.start("doit", "tiny", "--goal=x")
    assert eventually(lambda: project.calls() == ["specify", "plan"])
    started.kill()
    started.communicate(timeout=60)
    assert eventually(lambda: looked(project, "status")["holder"] is None)

    row = looked(project, "status")["runs"][0]
    assert (row["status"], row["died"], row["next"]) == ("active", True, "doit tiny")
    assert "died" in project.doflow("status", "1").stdout
    project.agent("usual()")
    assert project.doit("tiny").returncode == 0


def test_asking_never_makes_a_run_believe_that_someone_works(done: Project):
    """The lock is only looked at; a run that starts in that moment still gets it."""
    code = "import sys; from pathlib import Path; from doflow.runs import mutex\nwhile True: mutex.is_held(Path(sys.argv[1]))"
    asking = subprocess.Popen((sys.executable, "-c", code, str(done.root)))
    try:
        time.sleep(0.2)
        codes = [done.doit("tiny", "--force=plan").returncode for _ in range(4)]
    finally:
        asking.kill()
        asking.wait()
    assert codes == [0, 0, 0, 0]


def test_gates_that_were_passed_count_as_done(project: Project):
    project.flow("inner", "flow: inner\nsteps:\n  draft: {prompt: Draft., makes: draft.md}\n")
    project.flow(
        "work",
        """
        flow: work
        steps:
          a: {prompt: Write., makes: a.md}
          ok: {kind: gate, reads: [a.md], gate: Build it?}
          design: {kind: flow, flow: inner, gate: Design good?}
          b: {prompt: Write., makes: b.md}
        """,
    )
    project.commit("A flow")
    assert project.doit("work", "--goal=x").returncode == 2
    assert [(row["completed"], row["steps"]) for row in looked(project, "status")["runs"]] == [(1, 5)]
    for gate in ("ok", "design"):
        assert project.doflow("approve", gate).returncode == 0
        project.doit("work")

    assert project.state()["completed"] == project.state()["pipeline"] == ["a", "ok", "design/draft", "design", "b"]
    assert "completed  5/5" in project.doflow("status").stdout
    assert project.doflow("verify").returncode == 0
    (project.run_dir() / "a.md").write_text("# Mine\n")
    assert project.doit("work").returncode == 2, "a yes to something else does not count"
    assert project.state()["completed"] == ["a", "design/draft", "design", "b"]


# --- a command that asks for a part of a run


@pytest.mark.smoke("next")
@pytest.mark.parametrize("words", [("tiny", "--goal=x", "--next"), ("tiny:plan", "--goal=x")], ids=["next", "one step"])
def test_a_run_that_was_asked_for_in_part_waits_for_the_rest(words: tuple[str, ...], project: Project) -> None:
    done = project.doit(*words)
    assert done.returncode == 0, done.stdout + done.stderr

    row = json.loads(project.doflow("status", "--json").stdout)["runs"][0]

    assert (row["status"], row["died"], row["next"]) == ("active", False, "doit tiny")
    assert "not run yet" in row["waits"] and project.state()["status"] == "active"
    assert "died" not in project.doflow("status").stdout + project.doflow("status", "1").stdout
    assert project.doflow("verify").returncode == 0


def test_a_phase_that_was_asked_for_by_name_is_no_death_either(project: Project) -> None:
    for words in (("tiny:tasks", "--goal=x"), ("tiny:implement:1",)):
        assert project.doit(*words).returncode == 0

    assert json.loads(project.doflow("status", "--json").stdout)["runs"][0]["died"] is False
    assert project.doflow("verify").returncode == 0

    assert project.doit("tiny:implement").returncode == 0
    assert json.loads(project.doflow("status", "--json").stdout)["runs"][0]["status"] == "completed"


# --- a finished run that changed since


BUILD = """\
    flow: build
    params:
      goal: {about: What to build, required: true}
    steps:
      tasks: {prompt: List the tasks, makes: tasks.md, check: {tasks: strict}}
      implement: {kind: implement, phases: tasks.md, prompt: Build it}
"""


@pytest.fixture
def built(project: Project) -> Project:
    project.flow("build", BUILD)
    project.commit("A flow")
    assert project.doit("build", "--goal=f").returncode == 0
    return project


def row(project: Project) -> dict:
    return json.loads(project.doflow("status", "--json").stdout)["runs"][0]


def test_a_finished_run_that_no_one_touched_is_completed(built: Project):
    found = row(built)

    assert (found["status"], found["changed"], found["waits"], found["next"]) == ("completed", False, "", "")
    assert "changed since" not in built.doflow("status").stdout


def test_a_task_list_that_was_broken_by_hand_is_told(built: Project):
    built.write(
        "specs/001-f/tasks.md", "# Tasks\n\n## Phase 1: A\n\n- [ ] [T001] a\n\n## Phase 1: B\n\n- [ ] [T002] b\n"
    )

    told, found = built.doflow("status").stdout, row(built)

    assert "completed (changed since)" in told and f"next: {found['next']}" in told
    assert (found["status"], found["changed"]) == ("completed", True)
    assert "specs/001-f/tasks.md" in found["waits"] and "doit build" in found["next"]


def test_a_phase_that_was_reset_away_is_told(built: Project):
    built.git("reset", "-q", "--hard", "HEAD~1")

    found = row(built)

    assert (found["changed"], found["next"]) == (True, "doit build"), found
    assert found["waits"].startswith("implement:2: ")


def test_a_revert_that_stopped_in_a_conflict_is_told(built: Project):
    first = built.git("log", "--format=%H", "--grep=Phase 1").split()[0]
    built.git("revert", "--no-edit", first, check=False)
    assert "<<<<<<<" in built.read("specs/001-f/doflow.lock")

    told = built.doflow("status").stdout

    assert "completed (changed since)" in told and "conflict" in told and "next: " in told, told


def test_a_finished_run_of_another_branch_is_believed(built: Project):
    built.git("switch", "-q", "main")
    built.write("flows/build.yaml", built.read("flows/build.yaml").replace("Build it", "Build it well"))

    found = row(built)

    assert (found["status"], found["changed"], found["waits"], found["next"]) == ("completed", False, "", "")


# --- pipeline-state.json while a run is at work


LINE = """\
flow: line
about: One step after the other.
params: {goal: {about: What to build, required: true}}
steps:
  one:   {prompt: One., makes: one.md}
  two:   {prompt: Two., reads: [one.md], makes: two.md}
  three: {prompt: Three., reads: [two.md], makes: three.md}
"""


SIDE = """\
flow: side
about: Two at once, then one.
params: {goal: {about: What to build, required: true}}
steps:
  one: {prompt: One., makes: one.md, after: []}
  two: {prompt: Two., makes: two.md, after: []}
  end: {prompt: End., reads: [one.md, two.md], makes: end.md, after: [one, two]}
"""


LOOKS = """
import json
usual()
time.sleep(0.7)
state = json.loads((root / ".doflow" / "runs" / run_dir.name / "pipeline-state.json").read_text())
with open(outside / "seen.jsonl", "a") as seen:
    seen.write(json.dumps([step, state["current"], sorted(state["completed"]), state["status"]]) + chr(10))
"""


def seen(project: Project) -> list[list[object]]:
    return [json.loads(line) for line in (project.outside / "seen.jsonl").read_text().splitlines()]


@pytest.mark.smoke
def test_while_an_agent_works_the_state_names_its_step_and_all_that_is_done(tmp_path):
    project = Project(tmp_path)
    project.flow("line", LINE)
    project.agent(LOOKS)
    project.commit()

    done = project.doit("line", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert seen(project) == [
        ["one", "one", [], "active"],
        ["two", "two", ["one"], "active"],
        ["three", "three", ["one", "two"], "active"],
    ]


def test_side_by_side_it_does_so_too(tmp_path):
    project = Project(tmp_path)
    project.flow("side", SIDE)
    project.agent(LOOKS)
    project.commit()

    done = project.doit("-n", "2", "side", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    both, end = seen(project)[:2], seen(project)[2]
    assert all(current in ("one", "two") for _, current, _, _ in both)
    assert end == ["end", "end", ["one", "two"], "active"]


def test_while_a_run_waits_to_try_again_the_state_names_the_retry(tmp_path):
    project = Project(tmp_path, settings="retry: {max_retries: 1, backoff_seconds: 4}\n")
    project.flow("line", LINE)
    project.agent("stop(1) if step == 'two' and not nth else usual()")
    project.commit()

    started = project.start("doit", "line", "--goal=x")
    try:
        assert eventually(lambda: any(event["event"] == "retry" for event in events(project)))
        assert eventually(lambda: [found["step"] for found in project.state()["retries"]] == ["two"], 2.0)
        assert project.calls() == ["one", "two"]
    finally:
        started.communicate(timeout=60)


def events(project: Project) -> list[dict]:
    return project.events() if (project.root / "specs").is_dir() else []
