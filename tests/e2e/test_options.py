"""What the command line and the settings ask for is there, or refused in words before anything begins."""

from __future__ import annotations

import json

import pytest
from tests.support.project import Project

FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      plan: {prompt: Write a plan., makes: plan.md}
      tasks: {prompt: List., reads: [plan.md], makes: tasks.md, check: {tasks: true}}
      implement: {kind: implement, phases: tasks.md, prompt: Do it.}
"""


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    return project


def refused(work: Project, *words: str) -> str:
    done = work.doit("work", *words)
    assert done.returncode == 1, done.stdout
    return done.stdout + done.stderr


@pytest.mark.smoke
def test_a_phase_or_part_that_is_not_there_is_refused(work):
    assert work.doit("work", "--goal=x").returncode == 0
    work.forget_calls()

    assert "plan has no parts, so plan:9 does not exist" in refused(work, "--force=plan:9")
    assert "implement has no part 9 (it has: 1, 2)" in refused(work, "--force=implement:9")
    assert work.calls() == []
    assert work.doit("work", "--force=implement:2").returncode == 0
    assert work.calls() == ["implement:2"]


def test_an_item_that_is_not_there_is_refused(work):
    work.flow("work", "flow: work\nsteps: {each: {prompt: Do., foreach: [a, b], makes: '{item}.md'}}\n")

    assert "each has no part c (it has: a, b)" in refused(work, "--goal=x", "--force=each:c")
    assert work.runs() == []


def test_a_run_that_is_there_cannot_be_new(work):
    assert work.doit("work", "--goal=x").returncode == 0

    for words in (("--run=1", "--new"), ("--run=001-x", "--new", "--goal=y"), ("--feature-dir=specs/001-x", "--new")):
        told = refused(work, *words)
        assert "--new starts another run, but 001-x already exists" in told and "--run=001-x" in told
    assert work.runs() == ["001-x"]


@pytest.mark.parametrize("step", ["plan", "implement"])
def test_what_is_said_to_be_done_and_is_not_there_is_refused_before_a_run_exists(work, step):
    told = refused(work, "--goal=x", f"--completed={step}")

    assert f"{step} cannot be marked as done: missing specs/001-x/" in told
    assert (work.runs(), work.git("branch", "--format=%(refname:short)").split()) == ([], ["main"])
    assert not (work.root / ".doflow/runs").exists()


def test_a_stale_step_that_is_said_to_be_done_is_taken_as_done(work):
    assert work.doit("work", "--goal=x").returncode == 0
    work.forget_calls()
    work.flow("work", FLOW.replace("Write a plan.", "Write another plan."))
    (work.run_dir() / "plan.md").write_text("# My own plan\n")
    work.commit("Mine")

    done = work.doit("work", "--completed=plan,tasks")

    assert (done.returncode, work.calls()) == (0, []), done.stdout
    assert (work.run_dir() / "plan.md").read_text() == "# My own plan\n"


def test_two_new_flows_in_one_command_get_two_numbers(work):
    for name in ("one", "two"):
        work.flow(name, f"flow: {name}\nsteps: {{a: {{prompt: Do., makes: a.md}}}}\n")
    work.commit("Two flows")

    done = work.doit("one", "--goal=first", "two", "--goal=second")

    assert done.returncode == 0, done.stdout + done.stderr
    names = {entry.name for entry in (work.root / ".doflow/runs").iterdir()}
    assert names == {"001-first", "002-second"}


@pytest.mark.smoke
def test_a_gate_in_the_settings_stands_behind_a_step_that_runs_a_flow(work):
    work.flow("inner", "flow: inner\nsteps: {a: {prompt: Do., makes: a.md}}\n")
    work.flow("outer", "flow: outer\nsteps: {d: {kind: flow, flow: inner}, z: {prompt: Do., makes: z.md}}\n")
    work.settings("gates: {after-d: true}\n")

    done = work.doit("outer", "--goal=x")

    assert (done.returncode, work.calls()) == (2, ["d/a"]), done.stdout
    assert "Approve d? " in done.stdout or "Approve d?" in done.stdout
    assert work.state()["pendingApproval"] == {"type": "gate", "step": "d"}
    assert work.doflow("approve", "d").returncode == 0
    assert work.doit("outer").returncode == 0
    assert work.calls() == ["d/a", "z"]


@pytest.mark.parametrize(
    "key",
    ["reads: [a.md]", "needs: [a.md]", "writes: [src/]", "timeout: 5m", "retry: {attempts: 1}", "budget: {usd: 1}"],
)
def test_what_has_no_effect_on_a_step_that_runs_a_flow_is_refused(work, key):
    word = key.partition(":")[0]
    work.flow("outer", f"flow: outer\nsteps:\n  d: {{kind: flow, flow: tiny, {key}}}\n")

    done = work.doflow("validate", "outer")

    assert done.returncode == 1
    assert f"key '{word}' has no effect on a step that runs a flow" in done.stdout
    assert "set it on the steps of flow 'tiny'" in done.stdout


@pytest.mark.smoke
def test_an_input_that_no_step_makes_is_a_warning(work):
    work.flow("odd", """
        flow: odd
        steps:
          a: {prompt: Do., reads: [input.md, plam.md, extra?, "/README.md", "*.txt"], makes: plan.md}
          b: {kind: review, reads: [plan.md], personas: [pm]}
          c: {prompt: Do., reads: [review-b.yaml], needs: [other.yaml], makes: c.md}
    """)  # fmt: skip

    done = work.doflow("validate", "odd")

    assert done.returncode == 0
    assert "odd.yaml:3:" in done.stdout or "odd.yaml:4:" in done.stdout
    assert "warning: " in done.stdout and "step a reads plam.md, which no step of odd makes" in done.stdout
    assert "did you mean 'plan.md'?" in done.stdout
    told = json.loads(work.doflow("validate", "odd", "--json").stdout)
    assert [problem["message"] for problem in told["warnings"]] == [
        "step a reads plam.md, which no step of odd makes", "step c reads other.yaml, which no step of odd makes",
    ]  # fmt: skip
    assert (told["ok"], told["problems"]) == (True, [])
    (work.root / "flows/odd.yaml").unlink()
    assert json.loads(work.doflow("validate", "--json").stdout)["warnings"] == [], "the packaged flows are whole"


@pytest.mark.parametrize(
    ("commit", "subject"),
    [
        ("  Do\\t the  \\n thing  ", "Do the thing"),
        ("A\\u200bB\\u2028C\\x1b[31m", "A B C [31m"),
        ("  \\t ", "implement of 001-x"),
        ("x" * 119 + " yy", "x" * 119),
    ],
)
def test_a_commit_subject_is_one_plain_line(work, commit, subject):
    work.flow("work", FLOW.replace("prompt: Do it.}", f'prompt: Do it., commit: "{commit}"}}'))
    work.commit("A subject")

    assert work.doit("work", "--goal=x").returncode == 0

    assert work.subjects()[-1] == subject
