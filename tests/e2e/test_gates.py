"""Gates: when a run pauses, what a yes or a no counts for, what is told about it."""

from __future__ import annotations

import json

import pytest
from tests.support.decisions import clean_tree, lock, status
from tests.support.project import Project
from tests.support.work_flow import flow, works

# --- pauses


@pytest.mark.smoke
def test_a_gate_pauses_again_and_again_until_it_is_approved(project):
    flow(
        project,
        """
plan: {prompt: Plan., makes: plan.md, gate: "Approve the plan?"}
build: {prompt: Build., reads: [plan.md], makes: build.md}
""",
    )

    for _ in range(2):
        said = works(project, code=2)
        assert "Approve the plan?" in said and "doflow approve plan" in said
        assert project.calls() == ["plan"]
    assert project.state()["pendingApproval"] == {"type": "gate", "step": "plan"}

    works(project, "--auto-approve")
    assert project.calls() == ["plan", "build"]


@pytest.mark.smoke
def test_a_gate_of_its_own_and_a_gate_by_settings_pause(project):
    project.settings("gates: {after-one: true}\n")
    flow(
        project,
        """
one: {prompt: One., makes: one.md}
look: {kind: gate, gate: Have you looked?}
two: {prompt: Two., makes: two.md}
""",
    )

    assert "Approve one?" in works(project, code=2)
    project.settings("")
    project.commit("No gates")
    assert "Have you looked?" in works(project, code=2)
    assert project.calls() == ["one"]
    project.settings("auto_approve: true\n")
    project.commit("All gates")
    works(project)
    assert project.calls() == ["one", "two"]


def test_a_question_pauses_even_where_gates_are_passed(project):
    flow(project, "one: {prompt: One., makes: one.md, clarify: true}")
    project.agent("make('# One\\n\\n[NEEDS CLARIFICATION: red or blue?]\\n')")

    said = works(project, "--auto-approve", code=2)

    assert "red or blue?" in said and "doflow answer" in said
    assert project.state()["pendingApproval"] == {"type": "clarification", "step": "one"}
    path = project.run_dir() / "one.md"
    path.write_text("# One\n\nRed.\n")
    works(project)
    assert (project.calls(), path.read_text()) == (["one"], "# One\n\nRed.\n")


# --- approve and reject


@pytest.mark.smoke
def test_a_yes_counts_for_exactly_what_was_shown(finished):
    plan = finished.run_dir() / "plan.md"
    plan.write_text("# Another plan\n")

    assert finished.doit("ask").returncode == 2
    plan.write_text("# Yet another\n")
    assert finished.doflow("approve", "plan", "--note", "better so").returncode == 0
    done = finished.doit("ask")

    assert (done.returncode, finished.calls()) == (0, ["tasks"])
    assert '"by": "Ada Person", "note": "better so"' in lock(finished)


def test_the_same_bytes_made_again_are_not_asked_about_again(finished):
    text = finished.run_dir().joinpath("plan.md").read_text()
    finished.agent(f"make({text!r})")

    done = finished.doit("ask", "--force=plan")

    assert (done.returncode, finished.calls()) == (0, ["plan"])


def test_approving_twice_changes_nothing(gated):
    gated.doflow("approve")
    before, head = lock(gated), gated.git("rev-parse", "HEAD")

    again = gated.doflow("approve", "ask:plan.gate")

    assert (again.returncode, lock(gated), gated.git("rev-parse", "HEAD")) == (0, before, head)
    assert "already approved by Ada Person" in again.stdout


@pytest.mark.parametrize(
    ("step", "words"),
    [("specify", "has no gate"), ("nosuch", "has no step nosuch"), ("plna", "did you mean plan")],
)
def test_what_has_no_gate_cannot_be_approved(gated, step, words):
    done = gated.doflow("approve", step)

    assert (done.returncode, words in done.stderr) == (1, True)


def test_a_gate_that_is_not_reached_cannot_be_approved(asking):
    asking.doit("ask", "--goal=Log in")

    named, unnamed = asking.doflow("approve", "plan"), asking.doflow("approve")

    assert (named.returncode, unnamed.returncode) == (1, 1)
    assert "has not been reached (specify.clarify" in named.stderr
    assert "no gate" in unnamed.stderr and "doit ask" in unnamed.stderr


def test_a_gate_of_its_own_shows_what_it_reads(project):
    project.flow(
        "own",
        """\
        flow: own
        steps:
          write: {prompt: Write, makes: text.md}
          sign: {kind: gate, reads: [text.md], gate: Sign it?}
          send: {prompt: Send, reads: [text.md], makes: sent.md}
    """,
    )
    project.commit("A flow")
    assert project.doit("own", "--goal=x").returncode == 2

    refused = project.doflow("reject", "sign", "--note", "no")
    assert (refused.returncode, 'doflow reject write --note "no"' in refused.stderr) == (1, True)
    assert project.doflow("adopt", "sign").returncode == 1
    assert project.doflow("approve").returncode == 0
    assert (project.doit("own").returncode, project.calls()) == (0, ["write", "send"])

    (project.run_dir() / "text.md").write_text("other\n")
    assert project.doit("own").returncode == 2
    assert project.doflow("reset", "sign", "--yes").returncode == 0
    assert '"sign"' not in lock(project)


@pytest.mark.smoke("flag")
@pytest.mark.parametrize("way", ["flag", "settings"])
def test_auto_approve_passes_gates_and_never_questions(asking, way):
    if way == "settings":
        asking.settings("auto_approve: true\n")
        asking.commit("Settings")
    flag = ("--auto-approve",) if way == "flag" else ()

    assert asking.doit("ask", "--goal=Log in", *flag).returncode == 2
    assert status(asking)[1] == {"type": "clarification", "step": "specify"}
    asking.doflow("answer", "email", "7")
    assert asking.doit("ask", *flag).returncode == 0


@pytest.mark.smoke
def test_a_no_makes_the_step_again_with_the_note_in_its_prompt(gated):
    gated.doflow("approve")
    gated.forget_calls()

    done = gated.doflow("reject", "plan", "--note", "Leave the app out: it's too much")

    assert (done.returncode, status(gated)[0]) == (0, "paused")
    assert gated.doflow("reject", "plan", "--note", "Leave the app out: it's too much").returncode == 0
    assert gated.doit("ask").returncode == 2
    assert gated.calls() == ["plan"]
    assert "Leave the app out: it's too much" in gated.prompts()[-1]
    assert gated.subjects()[-1] == "plan: plan.md" and clean_tree(gated)
    assert gated.doit("ask").returncode == 2
    assert gated.calls() == ["plan"]


def test_the_same_no_to_the_next_result_counts_again(gated):
    for count in (1, 2, 3):
        gated.forget_calls()
        gated.doflow("reject", "plan", "--note", "too long")
        assert gated.doit("ask").returncode == 2
        assert gated.calls() == ["plan"], f"the {count}. time"
        assert "too long" in gated.prompts()[-1]


def test_an_identical_result_after_a_no_is_asked_about_again(finished):
    text = (finished.run_dir() / "plan.md").read_text()
    finished.agent(f"make({text!r})")
    finished.doflow("reject", "plan", "--note", "hm")

    assert (finished.doit("ask").returncode, finished.calls()) == (2, ["plan"])


@pytest.mark.parametrize(
    ("words", "said"),
    [(("plan",), "--note"), (("plan", "--note", " "), "the note is empty"), (("tasks", "--note", "x"), "has not made"),
     (("count", "--note", "x"), "by a command")],
)  # fmt: skip
def test_a_no_that_no_one_could_follow_is_refused(gated, words, said):
    before = lock(gated)

    done = gated.doflow("reject", *words)

    assert (done.returncode, said in done.stderr, lock(gated)) == (1, True, before)


def test_a_no_to_an_edit_by_hand_says_that_the_next_run_pauses(gated):
    plan = gated.run_dir() / "plan.md"
    plan.write_text("# Mine\n")

    done = gated.doflow("reject", "plan", "--note", "longer")

    assert "has manual edits" in done.stdout and "--force=plan" in done.stdout
    assert (gated.doit("ask").returncode, plan.read_text()) == (2, "# Mine\n")
    assert gated.doflow("adopt", "plan").returncode == 0
    assert gated.doflow("approve").returncode == 0
    assert gated.doit("ask").returncode == 0
    assert (plan.read_text(), gated.calls()) == ("# Mine\n", ["specify", "plan", "tasks"])


# --- --auto-approve


DEV = """\
    flow: dev
    params:
      goal: {about: What to build, required: true}
    steps:
      spec: {prompt: Specify it, makes: spec.md, gate: Is it right?}
      plan: {prompt: Plan it, reads: [spec.md], makes: plan.md}
"""


@pytest.fixture
def dev(project: Project) -> Project:
    project.settings("retry: {enabled: false}\n")
    project.flow("dev", DEV)
    project.commit("A flow")
    return project


@pytest.mark.parametrize(("ends", "code"), [("stop(75)", 3), ("stop(1)", 1)])
def test_the_yes_is_kept_if_the_next_step_ends_without_a_commit(dev: Project, ends: str, code: int):
    dev.agent(f"if step == 'plan': {ends}\nusual()")
    assert dev.doit("dev", "--goal=x", "--auto-approve").returncode == code
    assert "Is it right?" not in dev.doflow("status").stdout
    assert "approved by auto_approve" in dev.doflow("why", "spec.gate").stdout
    dev.agent("usual()")

    done = dev.doit("dev")

    assert (done.returncode, dev.calls().count("spec")) == (0, 1), done.stdout
    assert '"by": "auto_approve"' in dev.git("show", f"HEAD:specs/{dev.runs()[0]}/doflow.lock")
    assert dev.doflow("verify").returncode == 0


def test_a_kept_yes_is_to_the_bytes_that_were_there_and_can_be_taken_back(dev: Project):
    dev.agent("if step == 'plan': stop(75)\necho()")
    assert dev.doit("dev", "--goal=x", "--auto-approve").returncode == 3

    assert dev.doflow("reset", "spec.gate").returncode == 0
    assert dev.doit("dev").returncode == 2

    assert dev.doit("dev", "--auto-approve").returncode == 3
    assert dev.doflow("reject", "spec", "--note", "shorter").returncode == 0
    again = dev.doit("dev")
    assert (again.returncode, "Is it right?" in again.stdout) == (2, True)


def test_a_yes_is_to_the_bytes_and_holds_again_when_they_are_back(dev: Project):
    dev.agent("if step == 'plan': stop(75)\nusual()")
    assert dev.doit("dev", "--goal=x", "--auto-approve").returncode == 3
    spec = dev.run_dir() / "spec.md"
    approved = spec.read_text()
    spec.write_text("# Mine\n")
    asked = dev.doit("dev")
    assert (asked.returncode, "Is it right?" in asked.stdout) == (2, True), asked.stdout
    spec.write_text(approved)

    assert dev.doit("dev").returncode == 3

    assert dev.calls() == ["spec", "plan", "plan"]


def test_resetting_the_run_takes_back_the_yes_of_a_gate_that_only_asks(dev: Project):
    dev.flow("dev", DEV.replace(", gate: Is it right?", "") + "      ok: {kind: gate, reads: [spec.md], gate: Sure?}\n")
    dev.agent("if step == 'plan': stop(75)\nusual()")
    text = dev.read("flows/dev.yaml").replace("steps:", "pipeline: [spec, ok, plan]\nsteps:")
    dev.write("flows/dev.yaml", text)
    dev.commit("A gate of its own")
    assert dev.doit("dev", "--goal=x", "--auto-approve").returncode == 3
    assert "Sure?" not in dev.doflow("status").stdout

    assert dev.doflow("reset", "--yes").returncode == 0

    assert dev.doit("dev").returncode == 2


def test_the_yes_of_a_last_gate_that_only_asks_is_committed_with_the_end(dev: Project):
    dev.flow("dev", DEV.replace(", gate: Is it right?", "") + "      ok: {kind: gate, reads: [plan.md], gate: Sure?}\n")
    dev.commit("A gate at the end")

    assert dev.doit("dev", "--goal=x", "--auto-approve").returncode == 0

    assert '"auto_approve"' in dev.git("show", f"HEAD:specs/{dev.runs()[0]}/doflow.lock")
    assert dev.git("status", "--porcelain") == ""


# --- what status and why tell


@pytest.fixture
def at_gate(project: Project) -> Project:
    project.flow("dev", DEV)
    project.commit("A flow")
    assert project.doit("dev", "--goal=f").returncode == 2
    return project


def told(project: Project) -> tuple[str, str]:
    row = json.loads(project.doflow("status", "--json").stdout)["runs"][0]
    return row["waits"], row["next"]


def test_an_approved_gate_asks_no_one_on_another_branch_either(at_gate: Project):
    asked = at_gate.git("switch", "-q", "main") or told(at_gate)
    assert asked[0].startswith("Is it right?")
    at_gate.git("switch", "-q", "001-f")
    assert at_gate.doflow("approve").returncode == 0
    here = told(at_gate)
    at_gate.git("switch", "-q", "main")

    there = told(at_gate)

    assert here == ("plan: not run yet", "doit dev")
    assert there == ("plan: not run yet", "git switch 001-f && doit dev")


@pytest.mark.parametrize(
    "words", [("reset", "spec.gate"), ("reject", "spec", "--note", "no")], ids=lambda words: words[0]
)
def test_a_yes_that_was_taken_back_is_none_on_another_branch(at_gate: Project, words: tuple[str, ...]):
    at_gate.doflow("approve")
    assert at_gate.doflow(*words).returncode == 0
    at_gate.git("switch", "-q", "main")
    assert told(at_gate)[0].startswith("Is it right?" if words[0] == "reset" else "spec: it was rejected with a note")
    at_gate.git("switch", "-q", "001-f")
    at_gate.agent("if nth: make('# Spec\\n\\nMore.\\n')\nelse: usual()")
    assert at_gate.doit("dev").returncode == 2
    at_gate.git("switch", "-q", "main")

    assert told(at_gate)[0].startswith("Is it right?")


ONLY = """\
    flow: only
    params:
      goal: {about: What to build, required: true}
    steps:
      a: {prompt: Write it, makes: a.md}
      b: {prompt: More of it, reads: [a.md], makes: b.md}
      ok: {kind: gate, reads: [a.md], gate: Good?}
      last: {prompt: The last, reads: [b.md], makes: last.md}
"""


INNER = "flow: inner\nsteps:\n  a: {prompt: A, makes: a.md}\n  b: {prompt: B, makes: b.md}\n"


OUTER = """\
    flow: outer
    params:
      goal: {about: What to build, required: true}
    steps:
      design: {kind: flow, flow: inner, gate: Good?}
      last: {prompt: The last, makes: last.md}
"""


@pytest.fixture(params=["only", "outer"])
def asks(project: Project, request: pytest.FixtureRequest) -> tuple[Project, str, str, str]:
    """At a gate that only asks: the flow, the gate, the step that made what it shows."""
    project.flow("only", ONLY)
    project.write("flows/inner.yaml", INNER)
    project.flow("outer", OUTER)
    project.commit("Flows")
    assert project.doit(request.param, "--goal=f").returncode == 2
    return project, request.param, *(("ok", "a") if request.param == "only" else ("design", "design/b"))


def test_a_gate_that_only_asks_is_told_as_the_run_tells_it(asks: tuple[Project, str, str, str]):
    project, flow, gate, maker = asks
    said = project.doit(flow).stdout

    words, command = told(project)

    assert command == f"doflow approve {gate}   or   doflow reject {maker} --note '…'   then: doit {flow}"
    assert f"|| {flow}:{gate}: {words}\n   next: {command}\n" in said.replace(f"{gate}.gate", gate)
    assert project.doflow("reject", maker, "--note", "no").returncode == 0


@pytest.mark.parametrize("which", ["a", "b"])
def test_after_a_no_the_gate_behind_it_waits_and_takes_no_yes(asks: tuple[Project, str, str, str], which: str):
    project, flow, gate, _ = asks
    step = f"design/{which}" if flow == "outer" else which
    assert project.doflow("reject", step, "--note", "no").returncode == 0

    words, command = told(project)

    assert (words, command) == (f"{step}: it was rejected with a note", f"doit {flow}")
    for args in (("approve",), ("approve", gate)):
        refused = project.doflow(*args)
        assert (refused.returncode, f"doit {flow}" in refused.stderr) == (1, True), refused.stderr
    project.git("switch", "-q", "main")
    assert told(project) == (f"{step}: it was rejected with a note", f"git switch 001-f && doit {flow}")


def test_where_no_one_reads_a_note_no_reject_is_named(project: Project):
    project.flow("counted", """\
        flow: counted
        steps:
          count: {kind: shell, run: [sh, -c, "echo 1 > $DOFLOW_RUN_DIR/n.txt"], makes: n.txt, gate: Enough?}
          sure: {kind: gate, gate: Sure?}
    """)  # fmt: skip
    project.commit("A flow")
    assert project.doit("counted").returncode == 2

    assert (
        told(project)[1]
        == "doflow approve count   or   doit counted --force=count   runs it again   then: doit counted"
    )
    project.doflow("approve")
    assert project.doit("counted").returncode == 2
    assert told(project)[1] == "doflow approve sure   then: doit counted"


def test_of_several_pauses_side_by_side_each_is_named(project: Project):
    project.flow("both", """\
        flow: both
        params: {goal: {about: What, required: true}}
        steps:
          a: {prompt: A, makes: a.md, after: [], gate: Good?}
          b: {prompt: B, makes: b.md, after: [], clarify: true}
          c: {prompt: C, makes: c.md, after: [a, b]}
    """)  # fmt: skip
    project.commit("A flow")
    project.agent("if step == 'b': make('# B\\n\\n[NEEDS CLARIFICATION: red or blue?]\\n')\nelse: usual()")
    assert project.doit("-n", "2", "both", "--goal=f").returncode == 2

    words, command = told(project)

    assert words == "Good? (specs/001-f/a.md)\nb asks:\n  1. red or blue?"
    both = "doflow approve a   or   doflow reject a --note '…'   and   doflow answer   then: doit both"
    assert command == both
    assert project.doflow("answer", "red").returncode == 0
    assert told(project)[0] == "Good? (specs/001-f/a.md)"


def test_a_no_to_a_phase_is_refused_with_what_to_do_instead(project: Project):
    assert project.doit("tiny", "--goal=f", "--auto-approve").returncode == 0
    lists = f"specs/{project.runs()[0]}/tasks.md"

    one = project.doflow("reject", "implement:2", "--note", "no").stderr
    whole = project.doflow("reject", "implement", "--note", "no").stderr

    assert "implement:2 is a phase" in one and f"edit its tasks in {lists}" in one, one
    assert "doflow reset implement:2   runs it" in one
    assert f"edit {lists}" in whole and "doflow reset implement:N" in whole, whole
    assert project.doflow("reset", "implement:2", "--yes").returncode == 0


def test_a_gate_that_only_asks_names_what_it_shows_and_why_names_the_commands(asks: tuple[Project, str, str, str]):
    project, flow, gate, _ = asks
    shown = "specs/001-f/a.md" if flow == "only" else "specs/001-f/design/a.md, specs/001-f/design/b.md"
    assert f"|| {flow}:{gate}: Good? ({shown})\n" in project.doit(flow).stdout.replace(f"{gate}.gate", gate)
    words, command = told(project)
    assert words == f"Good? ({shown})"

    why = project.doflow("why", gate).stdout

    assert f"  Good? ({shown})\n  next: {command}\n" in why, why
    assert json.loads(project.doflow("why", gate, "--json").stdout)["next"] == command
    assert f": {shown}\n" in project.doflow("approve").stdout
    assert "next" not in project.doflow("why", gate).stdout


def test_why_of_a_question_names_the_command_too(at_gate: Project):
    why = at_gate.doflow("why", "spec.gate").stdout

    command = "doflow approve spec   or   doflow reject spec --note '…'   then: doit dev"
    assert f"  Is it right? (specs/001-f/spec.md)\n  next: {command}\n" in why


# --- a gate on phases


BUILT = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      build: {kind: implement, phases: /tasks.md, prompt: Build it, gate: Ship it?}
      tell: {prompt: Tell, makes: end.md}
"""


BUILT_TASKS = "# Tasks\n\n## Phase 1: Ground\n\n- [ ] [T001] Dig\n\n## Phase 2: Walls\n\n- [ ] [T002] {walls}\n"


@pytest.fixture
def built(project: Project) -> Project:
    """Both phases are done and approved, the step behind the gate has failed."""
    project.flow("work", BUILT)
    project.write("tasks.md", BUILT_TASKS.format(walls="Build two"))
    project.commit("Ground")
    project.agent("if step == 'tell': stop(1)\nput(f'src/phase_{phase}.py', f'{phase} {nth}')")
    assert project.doit("work", "--goal=x").returncode == 2
    assert project.doflow("approve", "build").returncode == 0
    assert project.doit("work").returncode == 1
    assert project.calls() == ["build:1", "build:2", "tell"]
    project.agent("usual() if step == 'tell' else put(f'src/phase_{phase}.py', f'{phase} {nth}')")
    return project


def test_a_phase_that_is_done_again_for_a_new_task_is_asked_about_again(built):
    built.write("tasks.md", BUILT_TASKS.format(walls="Build four"))
    built.git("commit", "-qam", "Four walls")

    again = built.doit("work")

    assert (again.returncode, built.calls()[3:]) == (2, ["build:2"]), again.stdout + again.stderr
    assert "Ship it?" in again.stdout
    assert built.state()["pendingApproval"] == {"type": "gate", "step": "build"}
    assert built.doflow("approve", "build").returncode == 0
    done = built.doit("work")
    assert (done.returncode, built.calls()[3:]) == (0, ["build:2", "tell"]), done.stdout


def test_a_phase_that_is_forced_is_asked_about_again(built):
    forced = built.doit("work", "--force=build:2")

    assert (forced.returncode, built.calls()[3:]) == (2, ["build:2"]), forced.stdout + forced.stderr
    assert "Ship it?" in forced.stdout


def test_a_yes_to_the_phases_holds_while_they_stay_as_they_are(built):
    done = built.doit("work")

    assert (done.returncode, built.calls()[3:]) == (0, ["tell"]), done.stdout + done.stderr
