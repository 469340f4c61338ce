"""What doit users expect: list, info, forget, one task alone, their own DOIT_CONFIG, and doit elsewhere untouched."""

from __future__ import annotations

import json

import pytest
from tests.support.project import DODO, Project

GOAL = "--goal=Log in by a link"


@pytest.fixture
def done(project: Project) -> Project:
    """A finished run of `tiny`."""
    finished = project.doit("tiny", GOAL)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert project.calls() == ["specify", "plan", "tasks", "implement:1", "implement:2"]
    project.forget_calls()
    return project


def test_list_shows_the_flows_and_writes_nothing(project):
    listed = project.doit("list")

    assert listed.returncode == 0
    assert "tiny" in listed.stdout and "A spec, a plan" in listed.stdout
    assert not (project.root / ".doflow").exists()


@pytest.mark.smoke
def test_list_all_shows_steps_and_phases(done):
    listed = done.doit("list", "--all", "--quiet")

    names = {"tiny", "tiny:specify", "tiny:plan", "tiny:tasks", "tiny:implement", "tiny:implement:2"}
    assert names <= set(listed.stdout.split())
    assert done.calls() == []


def test_list_status_says_what_is_up_to_date(done):
    listed = dict(line.split()[1::-1] for line in done.doit("list", "--all", "--status").stdout.splitlines() if line)
    assert listed["tiny:plan"] == "U"

    path = done.run_dir() / "spec.md"
    path.write_text(path.read_text() + "More.\n")
    listed = dict(line.split()[1::-1] for line in done.doit("list", "--all", "--status").stdout.splitlines() if line)
    assert (listed["tiny:plan"], listed["tiny:implement:1"]) == ("R", "U")


def test_info_names_the_reason_why_a_step_is_stale(done):
    assert "up-to-date" in done.doit("info", "tiny:plan").stdout

    path = done.run_dir() / "spec.md"
    path.write_text(path.read_text() + "More.\n")

    assert "spec.md was edited by hand" in done.doit("info", "tiny:plan").stdout


@pytest.mark.smoke
def test_forget_of_a_step_runs_it_again_and_nothing_else(done):
    assert done.doit("forget", "tiny:plan").returncode == 0

    assert done.doit("tiny").returncode == 0
    assert done.calls() == ["plan"]
    done.forget_calls()
    assert done.doit("tiny").returncode == 0
    assert done.calls() == []


def test_forget_of_a_flow_runs_all_of_it_again(done):
    assert done.doit("forget", "tiny").returncode == 0

    assert done.doit("tiny").returncode == 0
    assert done.calls() == ["specify", "plan", "tasks", "implement:1", "implement:2"]


@pytest.mark.parametrize("words", [("doit",), ("doflow", "run")], ids=["doit", "doflow run"])
def test_one_step_takes_the_options_of_its_flow(project, words):
    finished = project.program(*words, "tiny:plan", GOAL, "--issue=7")

    assert (finished.returncode, project.calls()) == (0, ["specify", "plan"]), finished.stdout + finished.stderr
    assert (project.state()["status"], project.state()["issue"]) == ("active", "7")
    finished = project.program(*words, "tiny:plan", "--force=plan")
    assert (finished.returncode, project.calls()) == (0, ["specify", "plan", "plan"]), finished.stdout + finished.stderr


def test_one_phase_alone_runs_those_before_it(done):
    path = done.run_dir() / "tasks.md"
    path.write_text(path.read_text() + "\n## Phase 3: Garden\n\n- [ ] [T003] Plant\n")

    finished = done.doit("tiny:implement:2")
    assert (finished.returncode, done.calls()) == (0, []), finished.stdout + finished.stderr
    finished = done.doit("tiny:implement:3")
    assert (finished.returncode, done.calls()) == (0, ["implement:3"]), finished.stdout + finished.stderr


@pytest.mark.parametrize("word", ["tiny:nosuch", "nosuch", "tiny:implement:99"])
def test_an_unknown_step_is_an_error_that_names_it(done, word):
    finished = done.doit(word)

    assert finished.returncode == 1
    assert word in finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr
    assert done.calls() == []


def test_an_unknown_option_is_an_error(done):
    finished = done.doit("tiny", "--gaol=x")

    assert finished.returncode == 1
    assert "gaol" in finished.stdout + finished.stderr


@pytest.mark.smoke
def test_plain_doit_goes_on_with_the_run_of_the_branch(project):
    project.agent("usual() if step != 'tasks' else stop(75)")
    assert project.doit("tiny", GOAL).returncode == 3
    project.agent("usual()")
    project.forget_calls()

    finished = project.doit()

    assert (finished.returncode, project.calls()) == (0, ["tasks", "implement:1", "implement:2"])


def test_plain_doit_without_a_run_says_how_to_start_one(project):
    finished = project.doit()

    assert "doit FLOW --goal=" in finished.stderr
    assert (finished.returncode, (project.root / ".doflow").exists()) == (0, False)


def test_help_of_a_flow_lists_its_options(project):
    shown = project.doit("help", "tiny")

    assert shown.returncode == 0
    assert "--goal" in shown.stdout and "what to build" in shown.stdout.lower()


@pytest.mark.smoke
def test_the_persons_own_tasks_run_beside_the_flows(project):
    task = "def task_hello():\n    return {'actions': ['echo hello > hello.txt']}\n"
    project.write("dodo.py", f"{project.read('dodo.py')}\n\n{task}")
    project.commit("A task")

    assert project.doit("hello").returncode == 0
    assert project.read("hello.txt") == "hello\n"
    assert not (project.root / ".doflow" / "runs").exists()


@pytest.mark.smoke
def test_a_dodo_file_without_doflow_works_as_if_doflow_were_not_there(project):
    actions = {"good": "true", "fails": "exit 3"}
    tasks = [f"def task_{name}():\n    return {{'actions': [{action!r}]}}\n" for name, action in actions.items()]
    project.write("dodo.py", "\n\n".join(tasks))

    assert project.doit("good").returncode == 0
    assert project.doit("fails").returncode == 1
    assert not (project.root / ".doflow").exists()


def test_a_lost_memory_of_doit_runs_nothing_again(done):
    for path in (done.root / ".doflow").glob("state.db*"):
        path.unlink()

    assert done.doit("tiny").returncode == 0
    assert done.calls() == []


def test_a_memory_of_doit_that_is_garbage_runs_nothing_again(done):
    (done.root / ".doflow" / "state.db").write_bytes(b"not a database at all" * 100)
    (done.root / ".doflow" / "stamps" / "tiny").unlink()

    finished = done.doit("tiny")
    assert (finished.returncode, done.calls()) == (0, []), finished.stdout + finished.stderr


@pytest.mark.parametrize("words", ["clean tiny", "clean -a", "clean -c tiny:plan", "forget -s tiny:plan", "reset-dep"])
def test_commands_of_doit_that_go_along_with_the_dependencies_of_a_task_know_ours(done, words):
    ended = done.doit(*words.split())

    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr


def test_clean_of_doit_does_not_delete_artifacts(done):
    assert done.doit("clean", "tiny").returncode == 0

    assert (done.run_dir() / "spec.md").exists()


def test_two_flows_in_one_command_run_one_after_the_other(project):
    for name in ("first", "second"):
        project.flow(name, f"flow: {name}\nsteps:\n  one: {{prompt: Write., makes: one.md}}\n")
    project.commit("Two flows")
    project.agent("time.sleep(0.2); usual()")

    finished = project.doit("-n", "2", "first", "second")

    assert (finished.returncode, project.calls()) == (0, ["one", "one"]), finished.stdout + finished.stderr
    assert [project.state(run)["status"] for run in project.runs()] == ["completed", "completed"]
    assert project.git("status", "--porcelain") == ""


# --- DOIT_CONFIG in dodo.py


MINE = 'def task_mine():\n    return {"actions": ["echo said by $0"], "verbosity": 0}\n'


def dodo(project: Project, place: str, config: str) -> None:
    own = f"DOIT_CONFIG = {config}\n"
    project.write("dodo.py", MINE + (own + DODO if place == "above" else DODO + own))
    project.commit("My own config")


@pytest.fixture(params=["above", "below"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.smoke("above")
def test_flows_work_beside_it_and_doits_memory_stays_ours(place: str, project: Project) -> None:
    dodo(project, place, '{"verbosity": 1, "default_tasks": ["mine"]}')

    done = project.doit("tiny", "--goal=x")

    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert project.git("status", "--porcelain") == ""
    plain = project.doit()
    assert plain.returncode == 0 and "tiny" not in plain.stdout
    assert project.doit("forget", "tiny:plan").returncode == 0
    assert "forget" in project.doflow("why", "plan").stdout
    assert project.git("status", "--porcelain") == "", "no other memory of doit's"


@pytest.mark.smoke("below")
def test_its_reporter_and_its_number_of_workers_hold(place: str, project: Project) -> None:
    project.flow(
        "pair", "flow: pair\nsteps:\n  one: {prompt: A, makes: a.md}\n  two: {prompt: B, makes: b.md, after: []}\n"
    )
    project.agent("""
        (outside / step).touch()
        for _ in range(3000):
            if all((outside / name).exists() for name in ("one", "two")):
                break
            time.sleep(0.02)
        else:
            stop(1)
        usual()
    """)
    dodo(project, place, '{"reporter": "json", "num_process": 2}')

    done = project.doit("pair", "--goal=x")

    assert done.returncode == 0, done.stdout
    assert [task["result"] for task in json.loads(done.stdout)["tasks"] if task["name"] != "pair"] == ["success"] * 2


def test_what_cannot_be_had_is_said(place: str, project: Project) -> None:
    dodo(project, place, '{"backend": "json", "dep_file": "memory.json", "par_type": "process"}')

    done = project.doit("tiny", "--goal=x", "--next")

    assert done.returncode == 0, done.stderr
    assert "DOIT_CONFIG in dodo.py: backend, dep_file, par_type: ignored" in done.stderr
    assert not (project.root / "memory.json").exists()


def test_one_that_is_none_is_told_by_doit(place: str, project: Project) -> None:
    dodo(project, place, '["verbosity"]')

    done = project.doit("tiny", "--goal=x")

    assert done.returncode != 0 and "DOIT_CONFIG  must be a dict" in done.stderr
    assert "not installed" not in done.stdout + done.stderr and project.calls() == []


def test_it_holds_too_when_a_file_beside_dodo_py_calls_us(project: Project) -> None:
    project.write("shared_tasks.py", "import doflow\nFLOWS = doflow.dodo()\n")
    text = 'from shared_tasks import FLOWS\nglobals().update(FLOWS)\nDOIT_CONFIG = {"verbosity": 1}\n'
    project.write("dodo.py", MINE + text)
    project.commit("A dodo.py in two files")

    done = project.doit("tiny", "--goal=x")

    assert (done.returncode, project.doit("mine").returncode) == (0, 0), done.stdout + done.stderr
    assert project.git("status", "--porcelain") == ""
