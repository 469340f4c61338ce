"""A run was killed (-9) while a step wrote: looking at it says what goes on, and a half-made text is no one's edit."""

from __future__ import annotations

import json
import signal
import time

import pytest
from tests.support.crash import kill_all, none_left
from tests.support.project import Project, eventually

FLOW = """\
    flow: make
    params:
      goal: {about: What to build, required: true}
    steps:
      specify: {prompt: "Specify {goal}", reads: [input.md], makes: spec.md}
      plan: {prompt: Plan it, reads: [spec.md], makes: plan.md}
      tasks: {prompt: List the tasks, reads: [plan.md], makes: tasks.md}
      implement: {kind: implement, phases: tasks.md, prompt: Build it}
      count: {kind: shell, run: [sh, tools/count.sh], reads: [plan.md], makes: count.txt}
"""
COUNT = 'cat specs/*/plan.md | wc -c > "$DOFLOW_RUN_DIR/count.txt"\n'
HALF = """\
    import time
    if step == {step!r} and not nth:
        {deed}
        (outside / "ready").touch()
        time.sleep(60)
    echo()
"""
OLD = "# Plan as it was\n"


@pytest.fixture
def made(project: Project) -> Project:
    """A finished run; what it made is committed."""
    project.flow("make", FLOW)
    project.write("tools/count.sh", COUNT)
    project.commit("A flow")
    project.agent(f"make({OLD!r}) if step == 'plan' else usual()")
    assert project.doit("make", "--goal=A house").returncode == 0
    project.forget_calls()
    return project


def cut(project: Project, *words: str) -> None:
    """The run goes on, and is killed in the middle of a step."""
    run = project.start("doit", "make", *words)
    assert eventually((project.outside / "ready").exists)
    run.send_signal(signal.SIGKILL)
    run.wait(60)
    assert none_left(project.home) == {}


@pytest.fixture
def killed(made: Project) -> Project:
    """The spec was edited by hand; the agent that revises the plan for it has written half of it."""
    with (made.run_dir() / "spec.md").open("a") as file:
        file.write("More.\n")
    made.agent(HALF.format(step="plan", deed="make('# Half of the plan\\n')"))
    cut(made)
    assert plan(made) == "# Half of the plan\n"
    return made


def plan(project: Project) -> str:
    return (project.run_dir() / "plan.md").read_text()


def looks(project: Project) -> dict[str, str]:
    words = {"all": ("status",), "one": ("status", "1"), "why": ("why", "plan"), "plan": ("plan",)}
    done = {name: project.doflow(*said) for name, said in words.items()}
    assert [each.returncode for each in done.values()] == [0] * 4, done
    return {name: each.stdout for name, each in done.items()}


@pytest.mark.smoke
def test_half_a_text_is_no_edit_and_the_next_command_is_to_go_on(killed):
    before = killed.tree()

    said = looks(killed)

    assert not [name for name, text in said.items() if "adopt" in text or "--force" in text], said
    assert all("next: doit make\n" in said[name] for name in ("all", "one", "why")), said
    assert "edited since" not in said["why"] and "has manual edits" not in said["plan"]
    assert "to quarantine" in said["all"] and "to quarantine" in said["one"]
    note = "a killed process left in specs/001-a-house/plan.md will be moved to quarantine by doit make"
    assert note in said["why"] and note in said["plan"]
    assert ["runs", "plan"] in [line.split()[:2] for line in said["plan"].splitlines()]
    assert killed.tree() == before
    row = json.loads(killed.doflow("status", "--json").stdout)["runs"][0]
    assert (row["died"], row["next"]) == (True, "doit make")
    one = json.loads(killed.doflow("status", "1", "--json").stdout)
    why = json.loads(killed.doflow("why", "plan", "--json").stdout)
    ahead = json.loads(killed.doflow("plan", "--json").stdout)
    assert (one["next"], why["makes"][0]["edited"]) == ("doit make", False)
    lines = [line for told in (one, ahead) for line in told["steps"] if line["step"] == "plan"] + [why]
    assert [(line["state"], line["edited"]) for line in lines] == [("stale", [])] * 3
    assert all("moved to quarantine" in line["remarks"][0] for line in lines)
    followers = [line for line in ahead["steps"] if line["step"] == "tasks"]
    assert [(line["state"], line["reasons"]) for line in followers] == [("done", [])]


def test_adopting_right_after_a_kill_is_refused_and_the_step_is_done(killed):
    refused = killed.doflow("adopt", "plan")

    assert refused.returncode == 1
    assert "plan was killed" in refused.stderr and "nothing was adopted" in refused.stderr
    assert all(words in refused.stderr for words in ("doit make", "doflow quarantine list", "doflow adopt plan"))
    assert plan(killed) == OLD
    assert "plan.md" in killed.doflow("quarantine", "list").stdout
    assert "next: doit make\n" in killed.doflow("status").stdout
    killed.forget_calls()
    killed.agent("echo()")
    assert killed.doit("make").returncode == 0
    assert killed.calls()[0] == "plan" and plan(killed) != OLD


def test_adopting_after_a_kill_in_the_first_call_names_what_is_put_aside_and_how_to_get_it(project):
    project.flow("make", FLOW)
    project.commit("A flow")
    project.agent(HALF.format(step="specify", deed="make('# Half of the spec\\n')"))
    cut(project, "--goal=A house")

    refused = project.doflow("adopt", "specify")

    assert refused.returncode == 1
    path = "specs/001-a-house/spec.md"
    assert f"its partial {path} is in quarantine: nothing was adopted" in refused.stderr
    hint = refused.stderr.rpartition("hint: ")[2]
    back = hint.split("   ")[3].split()
    assert hint.startswith("doit make   runs the step   or   doflow quarantine restore ")
    assert project.program(*back).returncode == 0
    assert project.read(path) == "# Half of the spec\n"
    assert project.doflow("adopt", "specify").returncode == 0


@pytest.mark.parametrize("flag", [(), ("--anyway",)])
def test_adopting_a_second_time_takes_the_old_text_as_it_is(killed, flag):
    assert killed.doflow("adopt", "plan", *flag).returncode == 1

    done = killed.doflow("adopt", "plan", *flag)

    assert (done.returncode, plan(killed)) == (0, OLD), done.stderr
    assert "Adopt plan: plan.md" in killed.subjects()


@pytest.mark.parametrize("said", ["implement", "implement:2"])
def test_code_of_a_killed_phase_is_not_adopted_after_it_was_put_back(made, said):
    made.agent(HALF.format(step="implement", deed="put('src/phase_2.py', 'HALF')"))
    cut(made, "--force=implement:2")

    assert "next: doit make\n" in made.doflow("status").stdout
    refused = made.doflow("adopt", said, "--anyway")

    assert (refused.returncode, "implement was killed" in refused.stderr) == (1, True), refused.stderr
    assert f"doflow adopt {said}" in refused.stderr
    assert made.read("src/phase_2.py") == "PHASE = '2'\n"


def test_an_edit_that_was_there_before_the_kill_is_still_one(made):
    (made.run_dir() / "plan.md").write_text("# Mine\n")
    with (made.run_dir() / "spec.md").open("a") as file:
        file.write("More.\n")
    made.agent(HALF.format(step="plan", deed="make('# Half of the plan\\n')"))
    cut(made, "--force=plan")

    assert "next: doit make\n" in made.doflow("status").stdout
    assert "has manual edits" in made.doflow("plan").stdout
    assert made.doit("make").returncode == 2
    assert plan(made) == "# Mine\n"


def test_what_a_killed_command_half_made_is_no_edit_either(made):
    made.write("tools/count.sh", 'echo half > "$DOFLOW_RUN_DIR/count.txt"; touch ../outside/ready; sleep 60\n')
    (made.run_dir() / "plan.md").write_text("# Mine, longer than before\n")
    cut(made, "--force=count")
    made.write("tools/count.sh", COUNT)

    said = made.doflow("status").stdout + made.doflow("plan").stdout

    assert "next: doit make\n" in said and "adopt" not in said and "count.txt carries" not in said, said
    assert made.doit("make").returncode == 0
    assert (made.run_dir() / "count.txt").read_text().strip() == str(len("# Mine, longer than before\n"))


def test_looking_while_a_run_works_says_so_and_nothing_of_a_kill(made):
    made.agent(HALF.format(step="plan", deed="make('# Half of the plan\\n')"))
    run = made.start("doit", "make", "--force=plan")
    try:
        assert eventually((made.outside / "ready").exists)
        assert not any("put aside" in text or "moved to quarantine" in text for text in looks(made).values())
    finally:
        run.send_signal(signal.SIGINT)
        run.wait(60)


def test_a_run_that_died_soon_counts_every_step_that_it_had_done(project: Project) -> None:
    quick = "".join(f'      {name}: {{kind: shell, run: ["true"]}}\n' for name in "abc")
    project.flow("make", f"    flow: make\n    steps:\n{quick}      plan: {{prompt: Plan it, makes: plan.md}}\n")
    project.commit("A flow")
    project.agent(HALF.format(step="plan", deed="pass"))
    cut(project, "--goal=A house")

    row = json.loads(project.doflow("status", "--json").stdout)["runs"][0]

    assert (row["died"], row["completed"], row["steps"]) == (True, 3, 4)


def in_phase(project: Project, *, whole: bool = False) -> Project:
    """A run that is killed while its second phase is half done, with an old file of the person's changed by the agent."""
    project.flow("make", FLOW)
    project.write("tools/count.sh", COUNT)
    project.write("base.txt", "begun\n")
    project.commit("A flow")
    deed = "put('base.txt', 'begun\\nand changed by the agent\\n') if False else put('half.py', 'HALF')"
    project.agent(
        "import time\n"
        "if phase == '2' and not nth:\n"
        f"    {deed}\n"
        "    (outside / 'ready').touch()\n"
        "    time.sleep(60)\n"
        "usual()"
    )
    run = project.start("doit", "make", "--goal=A house")
    assert eventually((project.outside / "ready").exists)
    if whole:
        time.sleep(0.5)  # doflow looks after its programs five times a second
        kill_all(project.home)
    else:
        run.send_signal(signal.SIGKILL)
    run.wait(60)
    assert none_left(project.home) == {}
    time.sleep(2.5 if whole else 0.02)  # later than anybody can tell
    return project


@pytest.mark.parametrize("how", ["changed", "staged", "committed", "new", "new and committed", "removed and committed"])
def test_what_a_person_did_after_a_phase_was_killed_is_theirs(how, project):
    in_phase(project)
    name = "mine.txt" if how.startswith("new") else "base.txt"
    if how.startswith("removed"):
        (project.root / name).unlink()
    else:
        project.write(name, "by a person\n")
    if how == "staged":
        project.git("add", name)
    elif "committed" in how:
        project.git("add", "-A", name)
        project.git("commit", "-qm", "By a person")
    status = project.git("status", "--porcelain", name)

    done = project.doit("make")

    told = done.stdout + done.stderr
    assert (done.returncode, "commit or stash" in told) == (
        (2, True) if how in ("changed", "staged") else (0, False)
    ), told
    assert f"kept as your edits: {name}" in told
    assert not (project.root / "half.py").exists(), "what the killed agent left is aside"
    assert project.git("status", "--porcelain", name) == status
    assert (project.root / name).exists() is (how != "removed and committed")
    assert how.startswith("removed") or project.read(name) == "by a person\n"
    listed = project.doflow("quarantine", "list").stdout
    assert ("half.py" in listed, name in listed) == (True, False)
    if how == "new":
        assert name not in project.git("ls-tree", "-r", "--name-only", "HEAD"), "not the phase's to commit"


@pytest.mark.parametrize("how", ["committed", "new and committed"])
def test_what_a_person_committed_after_everything_was_killed_stays(how, project):
    """No one was left to say when the agent died: it was a moment after doflow was last seen alive."""
    in_phase(project, whole=True)
    name = "mine.txt" if how.startswith("new") else "base.txt"
    project.write(name, "by a person\n")
    project.git("add", "-A", name)
    project.git("commit", "-qm", "By a person")

    done = project.doit("make")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.read(name), project.git("status", "--porcelain")) == ("by a person\n", "")
    assert "By a person" in project.subjects()
    assert not (project.root / "half.py").exists()
    assert list(project.root.glob(".doflow/**/*.alive")) == []


def test_a_text_that_a_person_wrote_in_place_of_a_killed_step_is_asked_about(killed):
    (killed.run_dir() / "plan.md").write_text("# My own plan\n")

    done = killed.doit("make")

    assert (done.returncode, plan(killed)) == (2, "# My own plan\n"), done.stdout + done.stderr
    assert "doflow adopt plan" in done.stdout + done.stderr
