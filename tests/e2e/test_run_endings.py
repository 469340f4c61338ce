"""Every way a run can end, as a table: exit code, status on disk, events on stdout, words on stderr.

The rows are those of the pipeline runner that doflow took over from, through its own entry
(`doflow run --flow F --feature-dir D --branch B --project-dir P`), with its known bugs as they ought to behave.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field

import pytest
from tests.support import script
from tests.support.project import Project

SMALL = """
    flow: small
    defaults: {retry: {attempts: 0}}
    steps:
      specify: {prompt: Specify., makes: spec.md, check: {headings: [Requirements], not_empty: true}, clarify: true}
      plan: {prompt: Plan., reads: [spec.md], makes: plan.md}
      planreview: {kind: review, reads: [plan.md], personas: [ann, bob], rounds: 1}
      tasks: {prompt: List., reads: [plan.md], makes: tasks.md, check: {tasks: true}}
      implement: {kind: implement, phases: tasks.md, needs: [tasks.md], prompt: Do it.}
"""
STEPS = ["specify", "plan", "planreview", "tasks", "implement"]


@dataclass(frozen=True)
class Row:
    """`before`: what the agent does other than well; `event`: what the run's last word on stdout is."""

    code: int
    status: str
    event: str
    words: str
    before: str = ""
    settings: str = ""
    flow: str = SMALL
    completed: list[str] = field(default_factory=list)
    name: str = "small"
    markers: dict[str, str] = field(default_factory=dict)


def review(code: int) -> str:
    return f'review_mode: command\nreview_command: [sh, -c, "echo the reviewer says so; exit {code}"]\n'


ROWS = {
    "L509 a phase is rate limited": Row(
        3, "rate-limited", "rate_limited", "rate limited", "if phase == '2': stop(75)", completed=STEPS[:4]),
    "L514 a phase fails": Row(
        1, "failed", "error", "failed with exit code 9", "if phase == '2': stop(9)", completed=STEPS[:4]),
    "L624 a prerequisite is missing": Row(
        1, "failed", "error", "other.md", flow=SMALL.replace("reads: [spec.md]", "reads: [spec.md], needs: [other.md]"),
        completed=STEPS[:1]),
    "L695 the review program is rate limited": Row(
        3, "rate-limited", "rate_limited", "rate limited", settings=review(3), completed=STEPS[:2]),
    "L698 the review program says NO-GO": Row(
        2, "paused", "paused", "NO-GO", settings=review(2), completed=STEPS[:2]),
    "L703 the review program fails": Row(
        1, "failed", "error", "the reviewer says so", settings=review(1), completed=STEPS[:2]),
    "R4.37 the review program ends in a way nobody knows": Row(
        1, "failed", "error", "42", settings=review(42), completed=STEPS[:2]),
    "L819 a step is rate limited": Row(
        3, "rate-limited", "rate_limited", "rate limited", "if step == 'plan': stop(75)", completed=STEPS[:1]),
    "L825 a step fails": Row(
        1, "failed", "error", "failed with exit code 9", "if step == 'plan': stop(9)", completed=STEPS[:1]),
    "L852 there is no text to make the artifact of": Row(
        1, "failed", "error", "plan.md", "if step == 'plan': stop(0)",
        flow=SMALL.replace("makes: plan.md}", "makes: plan.md, from: text}"), completed=STEPS[:1]),
    "L860 the spec is not there": Row(
        1, "failed", "error", "spec.md", "if step == 'specify': say('done'); stop(0)"),
    "L860 the spec is empty": Row(
        1, "failed", "error", "spec.md", "if step == 'specify': make(''); stop(0)"),
    "L884 the result has errors": Row(
        1, "failed", "error", "Requirements", "if step == 'specify': make('# Spec\\n\\nNothing.\\n'); stop(0)"),
    "L889 a step says nothing for too long": Row(
        1, "failed", "error", "too long without output", "if step == 'plan': time.sleep(60)",
        settings="timeouts: {idle: 5s}\n", completed=STEPS[:1]),
    "L889 a step takes too long": Row(
        1, "failed", "error", "its time limit", "while step == 'plan': say('…'); time.sleep(0.1)",
        settings="timeouts: {max: 5s}\n", completed=STEPS[:1]),
    "L904 the bug is a feature": Row(
        2, "paused", "paused", "doit feature", name="bugfix", markers={"bugfix": "RECLASSIFY: FEATURE"},
        completed=["bugfix"]),
    "L931 no rebuild": Row(
        2, "paused", "paused", "no rebuild", name="discovery-rebuild", markers={"rebuildcheck": "VERDICT: CONTINUE"},
        completed=["rebuildcheck"]),
    "L953 the personas say NO-GO": Row(
        2, "paused", "paused", "NO-GO",
        "if persona == 'bob': say('ISSUE: C | Broken | plan.md\\nVERDICT: NO-GO'); stop(0)", completed=STEPS[:2]),
    "R4.48 the personas say CONDITIONAL": Row(
        0, "completed", "pipeline_complete", "",
        "if persona == 'bob': say('ISSUE: H | Slow | plan.md\\nVERDICT: CONDITIONAL'); stop(0)", completed=STEPS),
    "4.2 nr 6 a review without a verdict": Row(
        1, "failed", "error", "gave no verdict", "if persona: say('fine'); stop(0)", completed=STEPS[:2]),
    "L1000 the spec asks": Row(
        2, "awaiting-approval", "clarification", "Which?",
        "if step == 'specify': make('## Requirements\\n\\n[NEEDS CLARIFICATION: Which?]\\n'); stop(0)",
        settings="auto_approve: true\n", completed=STEPS[:1]),
    "L1012 a gate": Row(
        2, "awaiting-approval", "gate", "Approve plan?", settings="gates: {after-plan: true}\n", completed=STEPS[:2]),
    "R4.56 a gate that is passed": Row(
        0, "completed", "pipeline_complete", "", settings="gates: {after-plan: true}\nauto_approve: true\n",
        completed=STEPS),
    "L1032 all is done": Row(0, "completed", "pipeline_complete", "", completed=STEPS),
}  # fmt: skip


def entry(project: Project, *words: str, flow: str = "small") -> subprocess.CompletedProcess[str]:
    """The compatible entry, from another folder."""
    fixed = ("--flow", flow, "--feature-dir", "specs/077-old", "--branch", "old", "--project-dir", str(project.root))
    return project.doflow("run", *fixed, "--goal", "Make it = so", "--json", *words, cwd=project.outside)


def events(done: subprocess.CompletedProcess[str]) -> list[dict]:
    """Every line of stdout is one object with these three words in it."""
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(isinstance(line, dict) and {"event", "at", "run"} <= set(line) for line in found), done.stdout
    return found


@pytest.fixture
def started(project: Project) -> Project:
    project.flow("small", SMALL)
    project.commit("A flow")
    return project


@pytest.mark.smoke("L1000 the spec asks")
@pytest.mark.parametrize("name", ROWS)
def test_every_way_to_end(started, name):
    row = ROWS[name]
    started.flow("small", row.flow)
    started.settings("retry: {max_retries: 0}\n" + row.settings)
    started.commit("As the row says")
    started.agent(script.good(before=row.before, **row.markers))

    done = entry(started, flow=row.name)

    state = started.state("077-old")
    told = [line for line in events(done) if line["event"] not in ("heartbeat", "warning")]
    assert (done.returncode, state["status"]) == (row.code, row.status), done.stdout + done.stderr
    assert state["completed"] == row.completed
    assert told[-1]["event"] == row.event
    assert row.words in told[-1].get("message", "")
    assert ("pipeline_complete" in [line["event"] for line in told]) == (row.code == 0)
    assert (state["flow"], state["branch"], started.git("branch", "--show-current").strip()) == (row.name, "old", "old")
    assert not any(line.startswith("{") for line in done.stderr.splitlines()), "what a run says is on stdout"
    calls = started.calls()
    if row.code == 2:
        again = entry(started, flow=row.name)
        assert (again.returncode, started.calls(), started.state("077-old")["status"]) == (2, calls, row.status)


@pytest.mark.smoke("--flow small --wrong x-")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--flow", "small", "--wrong", "x"), "--wrong"),
        (("--flow", "small", "stray"), "stray"),
        ((), "--flow"),
        (("--flow",), "--flow needs a value"),
        (("--flow", "small", "--feature-dir"), "--feature-dir needs a value"),
        (("--flow", "small", "--branch"), "--branch needs a value"),
        (("--flow", "small", "--project-dir"), "--project-dir needs a value"),
        (("--flow", "no-such-flow"), "no-such-flow"),
        (("--flow", "feature"), "--goal"),
        (("--flow", "small", "--completed", "nothing"), "nothing"),
        (("--flow", "small", "--project-dir", "/no/such/folder"), "/no/such/folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_arguments_that_are_wrong_are_one_json_object_on_stderr(started, words, said):
    done = started.doflow("run", "--json", *words)

    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
    told = [json.loads(line) for line in done.stderr.splitlines()]
    assert len(told) == 1 and told[0]["event"] == "error" and said in json.dumps(told[0])
    assert (started.calls(), started.runs(), started.state()) == ([], [], {}), "a refusal writes nothing"


def test_a_folder_without_git_is_said_on_stderr_and_nothing_on_stdout(tmp_path):
    project = Project(tmp_path, git=False)
    project.flow("small", SMALL)

    done = entry(project)

    assert (done.returncode, done.stdout) == (1, "")
    assert "git" in json.loads(done.stderr)["message"]
    assert (project.calls(), (project.root / "specs").exists()) == ([], False)


@pytest.mark.parametrize("line", ["plan: {makes: plan.md, ", "implement: {kind: implement, phases: tasks.md, "])
def test_a_prompt_that_is_not_there_is_said_before_anything_runs(started, line):
    started.flow("small", f"flow: small\nsteps:\n  {line}prompt: no-such.md}}\n")

    done = entry(started)

    assert (done.returncode, done.stdout, started.calls()) == (1, "", [])
    assert "no-such.md" in json.loads(done.stderr)["message"]


def test_next_does_one_step_and_says_the_end_only_at_the_end(started):
    started.agent(script.good())
    for number, step in enumerate(STEPS, 1):
        done = entry(started, "--next")
        told = [line["event"] for line in events(done)]
        assert (done.returncode, "pipeline_complete" in told) == (0, False), f"{step}: {told}"
        assert started.state("077-old")["status"] == "active"
        assert started.state("077-old")["completed"] == STEPS[:number], step

    done = entry(started, "--next")

    told = [line["event"] for line in events(done)]
    assert (done.returncode, told[-1], started.state("077-old")["status"]) == (0, "pipeline_complete", "completed")
    assert told.count("step_skipped") >= len(STEPS)
    assert started.calls().count("plan") == 1


def test_completed_steps_are_taken_from_the_words_and_from_the_state(started):
    started.agent(script.good())
    assert entry(started, "--next").returncode == 0
    (started.run_dir() / "plan.md").write_text("# Mine\n")

    done = entry(started, "--completed", "plan")

    assert (done.returncode, started.state("077-old")["completed"]) == (0, STEPS), done.stdout + done.stderr
    assert "plan" not in started.calls() and started.calls().count("specify") == 1
    assert (started.run_dir() / "plan.md").read_text() == "# Mine\n"
    skipped = [line["step"] for line in events(done) if line["event"] == "step_skipped"]
    assert {"specify", "plan"} <= set(skipped)


def test_after_an_approval_was_asked_for_the_same_entry_goes_on(started):
    started.settings("gates: {after-plan: true}\n")
    started.commit("A gate")
    started.agent(script.good())
    assert entry(started).returncode == 2
    assert started.state("077-old")["pendingApproval"] == {"type": "gate", "step": "plan"}

    assert started.doflow("approve", "plan").returncode == 0
    done = entry(started)

    state = started.state("077-old")
    assert (done.returncode, state["status"]) == (0, "completed")
    assert (state["pendingApproval"], state["pauseReason"]) == (None, "")


# ------------------------------------------------------------------ the marked bugs


def test_a_review_that_failed_is_not_done_and_nothing_is_built_on_it(started):
    started.settings(review(1))
    started.agent(script.good())
    assert entry(started).returncode == 1

    assert "tasks" not in started.calls()
    started.settings(review(0))
    started.commit("A better reviewer")
    assert entry(started).returncode == 0
    assert started.state("077-old")["completed"] == STEPS


RETRIED = SMALL.replace("attempts: 0", "attempts: 1, backoff: 0s")


def test_a_phase_that_is_tried_again_leaves_earlier_phases_and_the_persons_files_alone(started):
    started.flow("small", RETRIED)
    started.commit("Two attempts")
    started.write("notes.txt", "mine, not tracked\n")
    started.agent(
        script.good(
            before="""
if phase == "2" and attempt == 1:
    put("src/phase_1.py", "SPOILT")
    put("src/junk.py", "junk")
    (root / "notes.txt").unlink()
    stop(9)
if phase == "2":
    say(str([(root / name).exists() for name in ("src/phase_1.py", "src/junk.py", "notes.txt")]))
"""
        )
    )

    done = entry(started)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (started.read("src/phase_1.py"), started.read("notes.txt")) == ("PHASE = '1'\n", "mine, not tracked\n")
    assert not (started.root / "src/junk.py").exists()
    retries = [line for line in events(done) if line["event"] == "retry"]
    assert [(line["step"], line["phase"]) for line in retries] == [("implement", "2")]
    assert [entry_["step"] for entry_ in started.state("077-old")["retries"]] == ["implement"]


def test_a_step_that_is_tried_again_leaves_artifacts_that_are_in_no_commit_alone(started):
    started.flow("small", RETRIED)
    started.settings("git: {commit_artifacts: false}\n")
    started.commit("Artifacts stay out of git")
    started.agent(
        script.good(
            before="""
if step == "plan" and attempt == 1:
    put("junk.txt", "junk"); (run_dir / "spec.md").unlink(); make("half")
    stop(9)
"""
        )
    )

    done = entry(started)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Requirements" in (started.run_dir() / "spec.md").read_text()
    assert (started.run_dir() / "plan.md").read_text() != "half" and not (started.root / "junk.txt").exists()


def test_code_that_leaked_into_the_runs_folder_is_put_aside_and_never_once_a_phase_is_done(started):
    limited = "if phase == '1': make('PART = 1', 'part.py')\nif phase == '2': stop(75)\n"
    started.agent(script.good(before=limited + "if step == 'plan': make('code', 'leak.py')"))
    done = entry(started)
    assert (done.returncode, (started.run_dir() / "leak.py").exists()) == (3, False), done.stdout + done.stderr
    warned = [line for line in events(done) if line["event"] == "warning" and "leak.py" in line["message"]]
    assert warned, "with a warning"
    assert "leak.py" in started.doflow("quarantine", "list").stdout, "kept aside, not deleted"

    assert started.state("077-old")["implement_phases_completed"] == ["phase_1"]
    started.agent(script.good())
    done = entry(started)
    assert (done.returncode, (started.run_dir() / "part.py").read_text()) == (0, "PART = 1")
    assert started.calls().count("implement:1") == 1, "a phase that is done is not done again"
