"""What `doflow status` and `why` tell of gates and questions: as the run itself tells it, with commands that work."""

from __future__ import annotations

import json

import pytest
from tests.support.project import Project

FLOW = """\
    flow: dev
    params:
      goal: {about: What to build, required: true}
    steps:
      spec: {prompt: Specify it, makes: spec.md, gate: Is it right?}
      plan: {prompt: Plan it, reads: [spec.md], makes: plan.md}
"""


@pytest.fixture
def dev(project: Project) -> Project:
    project.flow("dev", FLOW)
    project.commit("A flow")
    assert project.doit("dev", "--goal=f").returncode == 2
    return project


def told(project: Project) -> tuple[str, str]:
    row = json.loads(project.doflow("status", "--json").stdout)["runs"][0]
    return row["waits"], row["next"]


def test_an_approved_gate_asks_nobody_on_another_branch_either(dev: Project):
    asked = dev.git("switch", "-q", "main") or told(dev)
    assert asked[0].startswith("Is it right?")
    dev.git("switch", "-q", "001-f")
    assert dev.doflow("approve").returncode == 0
    here = told(dev)
    dev.git("switch", "-q", "main")

    there = told(dev)

    assert here == ("plan: not run yet", "doit dev")
    assert there == ("plan: not run yet", "git switch 001-f && doit dev")


@pytest.mark.parametrize(
    "words", [("reset", "spec.gate"), ("reject", "spec", "--note", "no")], ids=lambda words: words[0]
)
def test_a_yes_that_was_taken_back_is_none_on_another_branch(dev: Project, words: tuple[str, ...]):
    dev.doflow("approve")
    assert dev.doflow(*words).returncode == 0
    dev.git("switch", "-q", "main")
    assert told(dev)[0].startswith("Is it right?" if words[0] == "reset" else "spec: it was rejected with a note")
    dev.git("switch", "-q", "001-f")
    dev.agent("if nth: make('# Spec\\n\\nMore.\\n')\nelse: usual()")
    assert dev.doit("dev").returncode == 2
    dev.git("switch", "-q", "main")

    assert told(dev)[0].startswith("Is it right?")


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


@pytest.mark.smoke("only-a")
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


def test_where_nobody_reads_a_note_no_reject_is_named(project: Project):
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


def test_why_of_a_question_names_the_command_too(dev: Project):
    why = dev.doflow("why", "spec.gate").stdout

    command = "doflow approve spec   or   doflow reject spec --note '…'   then: doit dev"
    assert f"  Is it right? (specs/001-f/spec.md)\n  next: {command}\n" in why
