"""What an agent or a command may write: its scope, what is put back, what is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.crash import none_left
from tests.support.project import PROGRAMS, Project, eventually
from tests.support.work_flow import flow, kept_aside, works


@pytest.mark.smoke
def test_an_agent_that_writes_outside_its_scope_is_refused_and_the_tree_is_as_before(project):
    project.write("kept.txt", "old\n")
    flow(project, "one: {prompt: Write., makes: one.md}")
    project.write("mine.txt", "uncommitted\n")
    project.agent("""
        usual()
        put("stray.txt", "stray words")
        put("kept.txt", "changed words")
        put("mine.txt", "overwritten")
        (root / "dodo.py").unlink()
    """)
    before = project.tree()

    said = works(project, code=1)

    assert all(name in said for name in ("stray.txt", "kept.txt", "mine.txt", "dodo.py"))
    after = {name: data for name, data in project.tree().items() if not name.startswith("specs/")}
    assert after == before
    assert "stray words" in kept_aside(project) and "changed words" in kept_aside(project)
    assert project.state()["status"] == "failed"
    assert "stray.txt" not in project.git("ls-tree", "-r", "--name-only", "HEAD")


@pytest.mark.smoke
def test_writes_allow_what_they_name_and_it_is_committed(project):
    flow(project, "one: {prompt: Write., makes: one.md, writes: ['/docs/**', /CHANGELOG.md]}")
    project.agent("usual(); put('docs/a/b.md', 'x'); put('CHANGELOG.md', 'y')")

    works(project)

    files = project.git("ls-tree", "-r", "--name-only", "HEAD").split()
    assert {"docs/a/b.md", "CHANGELOG.md"} <= set(files)
    assert project.git("status", "--porcelain") == ""


@pytest.mark.smoke
def test_a_phase_may_write_everything_but_what_is_protected(project):
    project.write("PRD.md", "The truth.\n")
    project.write("secrets/key", "k\n")
    project.settings("protect: [PRD.md]\n")
    flow(
        project,
        """
tasks: {prompt: List., makes: tasks.md}
implement: {kind: implement, phases: tasks.md, prompt: Do., protect: ['/secrets/**']}
""",
    )
    project.agent("usual()\nif phase: put('PRD.md', 'A lie.'), (root / 'secrets/key').unlink()")

    said = works(project, code=1)

    assert "PRD.md" in said and "secrets/key" in said
    assert (project.read("PRD.md"), project.read("secrets/key")) == ("The truth.\n", "k\n")
    assert not (project.root / "src/phase_1.py").exists()
    assert "A lie." in kept_aside(project)


def test_protect_beats_makes_and_writes(project):
    project.write("PRD.md", "The truth.\n")
    project.settings("protect: [PRD.md]\n")
    flow(project, "one: {prompt: Write., makes: one.md, writes: ['/**']}")
    project.agent("usual(); put('PRD.md', 'A lie.'); put('ok.txt', 'x')")

    works(project, code=1)

    assert project.read("PRD.md") == "The truth.\n"


@pytest.mark.smoke
def test_no_agent_changes_what_steers_doflow_itself(project):
    flow(
        project,
        """
tasks: {prompt: List., makes: tasks.md}
implement: {kind: implement, phases: tasks.md, prompt: Do.}
""",
    )
    project.agent("""
        usual()
        if phase:
            put("doflow.yaml", "agents: {}")
            put("flows/work.yaml", "x")
            make("x", "input.md")
    """)
    before = project.read("doflow.yaml")

    said = works(project, code=1)

    assert project.read("doflow.yaml") == before
    assert "doflow.yaml" in said and "flows/work.yaml" in said and "input.md" in said


def test_files_that_git_ignores_are_outside_of_the_scope(project):
    project.write(".gitignore", "__pycache__/\ncache/\n")
    flow(project, "one: {prompt: Write., makes: one.md}")
    project.agent("usual(); put('cache/x', 'x')")

    works(project)

    assert project.read("cache/x") == "x"


def test_an_agent_cannot_hide_a_stray_file_by_a_rule_of_its_own(project):
    flow(project, "one: {prompt: Write., makes: one.md}")
    project.agent("usual(); put('.gitignore', '*\\n'); put('stray.txt', 'x')")

    said = works(project, code=1)

    assert "stray.txt" in said and ".gitignore" in said
    assert not (project.root / "stray.txt").exists()
    assert project.read(".gitignore") == "__pycache__/\n"


def test_a_phase_with_writes_may_change_only_those(project):
    flow(
        project,
        """
tasks: {prompt: List., makes: tasks.md}
implement: {kind: implement, phases: tasks.md, prompt: Do., writes: ['/src/**']}
""",
    )
    project.agent("usual()\nif phase == '2': put('other.txt', 'x')")

    said = works(project, code=1)

    assert "other.txt" in said
    assert project.state()["implement_phases_completed"] == ["phase_1"]


# --- commands with `writes` or `protect`


@pytest.mark.smoke("protect: [PRD.md]-echo x > PRD.md; echo y > free.txt-PRD.md")
@pytest.mark.parametrize(
    ("key", "command", "stray"),
    [
        ("protect: [PRD.md]", "echo x > PRD.md; echo y > free.txt", "PRD.md"),
        ('writes: ["build/**"]', "mkdir -p build; echo x > build/a; echo y > src.txt", "src.txt"),
        ("writes: []", "git config core.pager evil", ".git/config"),
    ],
)
def test_what_it_may_not_is_put_back_and_the_step_fails(project: Project, key: str, command: str, stray: str) -> None:
    project.write("PRD.md", "as it was\n")
    project.flow("work", f'flow: work\nsteps:\n  one: {{kind: shell, run: [sh, -c, "{command}"], {key}}}\n')
    project.commit("Ground")

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1
    assert f"one modified files outside its scope: {stray}" in done.stdout
    assert project.read("PRD.md") == "as it was\n"
    assert "evil" not in project.read(".git/config")
    assert project.git("status", "--porcelain", "--", "src.txt", "PRD.md") == ""


def test_a_command_of_which_nothing_is_said_is_yours(project: Project) -> None:
    project.write("PRD.md", "as it was\n")
    project.settings("protect: [PRD.md]\n")
    project.flow("work", 'flow: work\nsteps:\n  one: {kind: shell, run: [sh, -c, "echo mine > PRD.md"]}\n')
    project.commit("Ground")

    assert project.doit("work", "--goal=x").returncode == 0
    assert project.read("PRD.md") == "mine\n"


# --- what a person is told


TWO_STEPS = """
    flow: work
    steps:
      one: {prompt: Write., makes: one.md}
      two: {prompt: Write., makes: two.md, writes: [/docs/**]}
"""


NEVER = "is always protected"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (".git/hooks/post-commit", NEVER),
        ("doflow.yaml", NEVER),
        (".claude/settings.json", NEVER),
        ("specs/001-x/input.md", NEVER),
        ("lib/.git", NEVER),
        ("specs/001-x/one.md", "is an artifact of one: doflow reject one --note"),
        ("PRD.md", "is listed under `protect:`; remove it there"),
        ("src/app.py", "add src/app.py to `writes:` of the step to allow it"),
    ],
)
def test_a_path_that_was_refused_is_told_with_the_way_there_is(path: str, words: str, project: Project) -> None:
    project.flow("work", TWO_STEPS)
    project.settings("protect: [PRD.md]\n")
    project.agent(f"usual()\nif step == 'two': put({path!r}, 'x')")
    project.commit("A flow")

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1
    assert f"two modified files outside its scope: {path}" in done.stdout
    told = [line for line in done.stdout.splitlines() if path in line and "outside its scope" not in line]
    assert any(words in line for line in told), done.stdout
    assert ("`writes:`" in done.stdout) is (path == "src/app.py"), "no hint at what would not help"


def test_each_kind_of_path_has_its_line(project: Project) -> None:
    project.flow("work", TWO_STEPS)
    project.agent("usual()\nfor path in ('a.txt', 'b.txt', 'dodo.py'): put(path, 'x') if step == 'two' else None")
    project.commit("A flow")

    done = project.doit("work", "--goal=x")

    assert "two modified files outside its scope: a.txt, b.txt, dodo.py" in done.stdout
    assert f"dodo.py {NEVER}" in done.stdout and "add a.txt to `writes:`" in done.stdout
    assert "specs/001-x/two.md passed its checks: doflow adopt two" in done.stdout


def test_a_file_of_a_submodule_is_told_as_what_no_step_changes(project: Project) -> None:
    project.flow("work", TWO_STEPS)
    inner = project.root / "lib"
    inner.mkdir()
    project.git("init", "-q", cwd=inner)
    (inner / "a.py").write_text("x = 1\n")
    project.git("add", "-A", cwd=inner)
    project.git("-c", "user.name=T", "-c", "user.email=t@e", "commit", "-q", "-m", "a", cwd=inner)
    project.agent("usual()\nif step == 'two': put('lib/a.py', 'x')")
    project.commit("A flow")

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1
    assert "lib/a.py is in a nested repository, which steps may not change" in done.stdout, done.stdout
    assert "`writes:`" not in done.stdout


BOTH = """
import time
if step == "a":
    put("src/stray.py", "x")
(outside / f"{step}.there").touch()
while not all((outside / f"{other}.there").exists() for other in "ab"):
    time.sleep(0.01)
usual()
"""


def test_a_stray_of_steps_at_work_together_is_blamed_on_none_of_them_alone(project: Project) -> None:
    project.flow(
        "work", "flow: work\nsteps:\n  a: {prompt: A, makes: a.md}\n  b: {prompt: B, makes: b.md, after: []}\n"
    )
    project.agent(BOTH)

    done = project.doit("-n", "2", "--continue", "work", "--goal=x")

    assert done.returncode == 1, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "a, or a step running in parallel (b), modified files outside its scope: src/stray.py" in said
    assert "b, or a step running in parallel (a), modified files outside its scope: src/stray.py" in said


# --- a project in a folder of a larger repository


BUILD = """
    flow: work
    steps:
      tasks: {prompt: List., makes: tasks.md}
      build: {kind: implement, phases: tasks.md, prompt: Do.}
"""


AWAY = """
usual()
if step == "tasks":
    put("../shared/code.py", "CHANGED = 1\\n")
    (root / "../shared/gone.py").unlink()
if phase == "1":
    put("../shared/new.py", "NEW = 1\\n")
    put("../.cache/x", "ignored")
"""


@pytest.fixture
def part(tmp_path) -> Project:
    project = Project(tmp_path, "all/shop", git=False)
    top = project.root.parent
    (top / "shared").mkdir()
    for name in ("code.py", "gone.py", "mine.py"):
        (top / "shared" / name).write_text("OLD = 1\n")
    (top / ".gitignore").write_text("__pycache__/\n.doflow/\n.cache/\n")
    project.flow("work", BUILD)
    project.git("init", "-q", "-b", "main", cwd=top)
    project.git("add", "-A", cwd=top)
    project.git("commit", "-qm", "Begin", cwd=top)
    return project


@pytest.mark.smoke
def test_what_changed_outside_of_the_project_while_an_agent_worked_is_named(part: Project) -> None:
    part.agent(AWAY)
    mine = part.root.parent / "shared" / "mine.py"
    mine.write_text("MINE = 1\n")

    done = part.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed outside the project while tasks was running: ../shared/code.py, ../shared/gone.py" in done.stdout
    assert "changed outside the project while build:1 was running: ../shared/new.py" in done.stdout
    assert "not committed with build:1" in done.stdout and "build:2 was running" not in done.stdout
    assert "mine.py" not in done.stdout and "cache" not in done.stdout and mine.read_text() == "MINE = 1\n"
    assert part.git("log", "--format=", "--name-only", "main..", "--", ":(top)shared") == ""


def test_nothing_is_said_where_nothing_else_changed(part: Project) -> None:
    (part.root.parent / "shared" / "mine.py").write_text("MINE = 1\n")

    done = part.doit("work", "--goal=x")

    assert done.returncode == 0 and "outside the project" not in done.stdout


# --- code in the run's folder before the first phase (R4.18, R4.51, R4.52)


PLANNED = """\
flow: work
steps:
  plan: {prompt: Plan, makes: plan.md}
  tasks: {prompt: List, makes: tasks.md}
  build: {kind: implement, phases: tasks.md, prompt: Build}
  tell: {prompt: Tell, makes: end.md}
"""


@pytest.fixture
def planned(project: Project) -> Project:
    project.flow("work", PLANNED)
    project.commit("Ground")
    return project


def kept(project: Project) -> list[str]:
    told = json.loads(project.doflow("quarantine", "list", "--json").stdout)
    return [row["path"] for row in told["kept"]]


@pytest.mark.smoke
def test_r4_51_code_that_a_planning_step_leaks_into_its_folder_is_kept_aside_with_a_warning(planned):
    planned.agent('usual()\nif step == "plan": (run_dir / "app.py").write_text("early")')

    done = planned.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "code was written into specs/001-x before the first phase; moved to quarantine: specs/001-x/app.py"
        in done.stdout
    )
    assert not (planned.run_dir() / "app.py").exists()
    assert kept(planned) == ["specs/001-x/app.py"]


def test_r4_51_outside_of_the_run_s_folder_it_is_a_refusal_as_ever(planned):
    planned.agent('usual()\nif step == "plan": put("app.py", "early")')

    done = planned.doit("work", "--goal=x")

    assert (done.returncode, "plan modified files outside its scope: app.py" in done.stdout) == (1, True)


def test_r4_18_before_the_first_phase_the_folder_is_swept(planned):
    assert planned.doit("work:plan", "--goal=x").returncode == 0
    planned.write("specs/001-x/lib/code.py", "early\n")
    planned.write("specs/001-x/notes.md", "mine\n")

    done = planned.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "moved to quarantine: specs/001-x/lib/code.py" in done.stdout
    assert kept(planned) == ["specs/001-x/lib/code.py"]
    assert planned.read("specs/001-x/notes.md") == "mine\n"


def test_r4_52_once_a_phase_is_complete_nothing_is_swept(planned):
    planned.agent('if phase == "2" and not nth: stop(1)\nusual()')
    planned.settings("retry: {enabled: false}\n")
    planned.commit("No second try")
    assert planned.doit("work", "--goal=x").returncode == 1
    assert planned.subjects()[-1] == "Phase 1: Ground"
    planned.write("specs/001-x/code.py", "mine\n")

    done = planned.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    assert planned.read("specs/001-x/code.py") == "mine\n"
    assert "before the first phase" not in done.stdout


# --- doflow's own output in a file of the project


WORK = """\
flow: work
params: {goal: {about: what to build}}
steps:
  plan: {prompt: Plan it., makes: plan.md}
  tasks: {prompt: List the tasks., makes: tasks.md}
  implement: {kind: implement, phases: tasks.md, prompt: Do it.}
"""


WAYS = {
    "sent to a file": "{doit} work --goal=x > run.log 2>&1",
    "a file that was there": "echo old > run.log; {doit} work --goal=x >> run.log 2>&1",
    "behind tee": "set -o pipefail; {doit} work --goal=x 2>&1 | tee run.log > /dev/null",
    "of the shell": "exec > run.log 2>&1; {doit} work --goal=x | cat",
}


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others' descriptors are seen in /proc alone")


def shell(project: Project, line: str) -> int:
    words = line.format(doit=PROGRAMS / "doit")
    done = subprocess.run(["bash", "-c", words], cwd=project.root, env=project.env, timeout=90, check=False)
    return done.returncode


@pytest.fixture
def logged(project: Project) -> Project:
    project.flow("work", WORK)
    project.commit()
    return project


@pytest.mark.smoke("a file that was there")
@pytest.mark.parametrize("way", [pytest.param(way, marks=linux if way != "sent to a file" else ()) for way in WAYS])
def test_a_log_in_the_project_that_doflow_writes_itself_is_not_blamed_on_an_agent(way: str, logged: Project) -> None:
    code = shell(logged, WAYS[way])

    text = logged.read("run.log")
    assert (code, logged.calls()) == (0, ["plan", "tasks", "implement:1", "implement:2"]), text
    assert "done: 001-x (work)" in text
    assert "run.log" not in logged.git("ls-tree", "-r", "--name-only", "HEAD")
    assert not (logged.root / ".doflow" / "quarantine").exists()


def test_an_agent_that_writes_beside_that_log_is_refused_all_the_same(logged: Project) -> None:
    logged.agent("usual()\nif step == 'plan': put('other.log', 'mine')")

    code = shell(logged, WAYS["sent to a file"])

    assert code == 1
    assert "modified files outside its scope: other.log" in logged.read("run.log")
    assert not (logged.root / "other.log").exists()


def test_a_protected_file_is_put_back_also_if_it_is_the_log(logged: Project) -> None:
    logged.write("kept.log", "as it was\n")
    logged.settings("protect: [kept.log]\n")
    logged.commit()
    logged.agent("put('kept.log', 'mine\\n'); usual()")

    code = shell(logged, "{doit} work --goal=x >> kept.log 2>&1")

    assert code == 1
    assert logged.read("kept.log").startswith("as it was\n")
    assert "mine" not in logged.read("kept.log")


def test_the_log_of_a_killed_run_stays_where_it_is(logged: Project, tmp_path: Path) -> None:
    logged.agent("(outside / 'ready').write_text('x'); time.sleep(60)")
    with open(logged.root / "run.log", "w") as log:
        run = subprocess.Popen([PROGRAMS / "doit", "work", "--goal=x"], cwd=logged.root, env=logged.env, stdout=log)
    assert eventually((logged.outside / "ready").exists)
    run.send_signal(signal.SIGKILL)
    run.wait(20)
    assert none_left(logged.home) == {}
    logged.agent("usual()")

    done = logged.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    assert logged.read("run.log").startswith("run 001-x on branch")
    assert "run.log" not in done.stdout + done.stderr
