"""The commands that doflow names can be typed as they are, and continue the run with its agent and budget."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from tests.support.project import PROGRAMS, Project, eventually

HELLO = """\
    flow: hello
    params:
      goal: {about: Whom to greet, required: true}
    steps:
      write: {prompt: "Greet {goal}", makes: greeting.md, gate: Is it right?}
      more: {prompt: More of it, reads: [greeting.md], makes: more.md}
"""


CONTINUE = "doit hello --agent=rehearsal"


@pytest.fixture
def hello(project: Project) -> Project:
    project.flow("hello", HELLO)
    project.commit("A flow")
    return project


@pytest.fixture
def rehearsed(hello: Project) -> Project:
    assert hello.doit("hello", "--goal=x", "--agent=rehearsal").returncode == 2
    return hello


@pytest.mark.smoke("approve")
@pytest.mark.parametrize(
    "words",
    [("status",), ("status", "1"), ("approve",), ("reject", "write", "--note", "n"), ("reset", "write", "--yes"),
     ("adopt", "more", "--anyway"), ("why", "more")],
    ids=lambda words: words[0],
)  # fmt: skip
def test_what_a_command_names_after_a_rehearsal_calls_no_other_agent(rehearsed: Project, words: tuple[str, ...]):
    if words[0] in ("adopt", "why"):
        rehearsed.doflow("approve")
        rehearsed.write(f"specs/{rehearsed.runs()[0]}/more.md", "Mine.\n") if words[0] == "adopt" else None

    told = rehearsed.doflow(*words)

    assert told.returncode == 0, told.stderr
    assert told.stdout.count("doit hello") == told.stdout.count(CONTINUE) > 0, told.stdout
    assert rehearsed.calls() == []


def test_the_event_log_alone_knows_it_and_the_branch_may_be_another(rehearsed: Project):
    (rehearsed.root / ".doflow" / "runs" / "001-x" / "pipeline-state.json").unlink()
    rehearsed.git("switch", "-q", "main")

    told = rehearsed.doflow("status").stdout

    assert f"then: git switch 001-x && {CONTINUE}" in told


def test_the_last_command_counts(hello: Project):
    assert hello.doit("hello", "--goal=x", "--agent=rehearsal", "--budget=none", "--record").returncode == 2
    assert "continue with:\n  doit hello --agent=rehearsal --budget=none --record\n" in hello.doflow("approve").stdout
    hello.doflow("reset", "write.gate")

    assert hello.doit("hello", "--budget=90000tokens").returncode == 2
    assert "continue with:\n  doit hello --budget=90000tokens\n" in hello.doflow("approve").stdout
    hello.doflow("reset", "write.gate")

    assert hello.doit("hello").returncode == 2
    assert "continue with:\n  doit hello\n" in hello.doflow("approve").stdout


def test_an_interrupted_run_and_a_refusal_name_it_too(hello: Project):
    text = hello.read("doflow.yaml")
    hello.write("doflow.yaml", text + text.splitlines()[1].replace("default:", "other:") + "\n")
    hello.commit("Another agent")
    hello.agent("time.sleep(60)")
    started = hello.start("doit", "hello", "--goal=x", "--agent=other")
    assert eventually(lambda: hello.calls() == ["write"])
    started.send_signal(signal.SIGINT)

    _, said = started.communicate(timeout=20)

    assert (started.returncode, "continue with:\n  doit hello --agent=other" in said) == (130, True), said
    assert "next: doit hello --agent=other" in hello.doflow("status").stdout
    hello.git("switch", "-q", "main")
    told = json.loads(hello.doflow("status", "--json").stdout)["runs"][0]["next"]
    assert told == "git switch 001-x && doit hello --agent=other"


# --- the branch was renamed or deleted


GATED = """
    flow: work
    steps:
      plan: {prompt: Plan., makes: plan.md, gate: All right?}
      end: {prompt: End., makes: end.md}
"""


GONE = "001-x no longer exists"


@pytest.fixture
def waiting(project: Project) -> Project:
    project.flow("work", GATED)
    project.commit("A flow")
    assert project.doit("work", "--goal=x").returncode == 2
    return project


def advised(project: Project) -> tuple[str, str]:
    """What status says of the run, and the first command that it names."""
    row = json.loads(project.doflow("status", "--json").stdout)["runs"][0]
    return row["waits"], row["next"].split("   ")[0]


def typed(project: Project, command: str) -> int:
    """A person types it."""
    path = f"{PROGRAMS}:{project.env['PATH']}"
    done = subprocess.run(
        ("sh", "-c", command),
        cwd=project.root,
        env=project.env | {"PATH": path},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode


def finishes(project: Project) -> None:
    assert project.doflow("approve").returncode == 0
    done = project.doit("work")
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.calls() == ["plan", "end"] and project.git("status", "--porcelain") == ""
    assert project.doflow("verify").returncode == 0


def test_a_renamed_branch_is_named_and_the_run_is_taken_up_on_it(waiting: Project) -> None:
    waiting.git("branch", "-m", "feature/nice")

    words, command = advised(waiting)

    assert GONE in words and command == "doit work --run=001-x --reopen"
    refused = waiting.doflow("approve", "plan", "--run=001-x")
    assert refused.returncode == 1 and "which no longer exists" in refused.stderr and command in refused.stderr
    found = waiting.doflow("verify")
    assert found.returncode == 1 and GONE in found.stdout and command in found.stdout
    assert typed(waiting, command) == 2, "the gate asks again"
    assert advised(waiting)[1] == "doflow approve plan"
    finishes(waiting)
    assert waiting.git("branch", "--show-current") == "feature/nice\n"


def test_a_branch_that_was_squashed_and_deleted_goes_on_where_it_was_merged(waiting: Project) -> None:
    waiting.git("switch", "-q", "main")
    waiting.git("merge", "-q", "--squash", "001-x")
    waiting.commit("Squashed")
    waiting.git("branch", "-q", "-D", "001-x")

    words, command = advised(waiting)

    assert GONE in words and waiting.doflow("verify").returncode == 1
    assert typed(waiting, command) == 2
    finishes(waiting)


def test_a_branch_that_was_deleted_unmerged_can_be_brought_back(waiting: Project) -> None:
    waiting.git("switch", "-q", "main")
    waiting.git("branch", "-q", "-D", "001-x")

    words, command = advised(waiting)

    assert GONE in words and command.startswith("git switch -c 001-x ")
    found = waiting.doflow("verify")
    assert found.returncode == 1 and GONE in found.stdout and command in found.stdout
    assert command in waiting.doit("work").stderr
    assert typed(waiting, command) == 2
    finishes(waiting)


def test_a_finished_run_misses_nothing_when_its_merged_branch_is_gone(waiting: Project) -> None:
    finishes(waiting)
    waiting.git("switch", "-q", "main")
    waiting.git("merge", "-q", "--squash", "001-x")
    waiting.commit("Squashed")
    waiting.git("branch", "-q", "-D", "001-x")

    assert waiting.doflow("verify").returncode == 0
    assert json.loads(waiting.doflow("status", "--json").stdout)["runs"][0]["status"] == "completed"


# --- git left a conflict in the lock file


PHASES = """\
    flow: build
    params:
      goal: {about: What to build, required: true}
    steps:
      tasks: {prompt: List the tasks, reads: [input.md], makes: tasks.md}
      implement: {kind: implement, phases: tasks.md, prompt: Build it}
      test: {kind: shell, run: [sh, -c, "true"]}
"""


@pytest.fixture
def built(project: Project) -> Project:
    """A finished run whose second phase is not its last commit: the lock was written again after it."""
    project.flow("build", PHASES)
    project.commit("A flow")
    assert project.doit("build", "--goal=A house").returncode == 0
    project.forget_calls()
    return project


def the(project: Project, subject: str) -> str:
    return project.git("log", "--format=%h", f"--grep=^{subject}", "-1").strip()


def typed_all(project: Project, command: str) -> None:
    """As a person types it, in the project, with an editor that leaves the message as it is."""
    done = subprocess.run(
        ["sh", "-c", command], cwd=project.root, env=project.env | {"GIT_EDITOR": "true"}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (command, done.stdout, done.stderr)


def hinted(said: str) -> dict[str, str]:
    """The commands of the hint, without the words behind them: for either side, and to go on."""
    lines = [line.strip() for line in said.splitlines()]
    told = [line.partition(": ") for line in lines if line.startswith(("hint:", "next:", "or:", "then:"))]
    ours, theirs, then = (words.partition("   ")[0] for _, _, words in told[:3])
    return {"ours": ours, "theirs": theirs, "then": then.partition(", or ")[0]}


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_phase_that_was_reverted_is_done_again_or_stays_done_as_the_person_chose(built, side):
    before = built.tree()
    built.git("revert", "--no-edit", the(built, "Phase 2"), check=False)
    assert built.git("status", "--porcelain", "specs").startswith("UU ")

    refused = built.doit("build")

    assert (refused.returncode, "git left a conflict in this lock" in refused.stderr) == (1, True), refused.stderr
    assert "YAML" not in refused.stderr and "could not find" not in refused.stderr
    ways = hinted(refused.stderr)
    typed_all(built, ways[side])
    assert built.calls() == []
    typed_all(built, ways["then"])
    done = built.doit("build")
    assert done.returncode == 0, done.stdout + done.stderr
    again = side == "theirs"
    assert built.calls() == (["implement:2"] if again else [])
    lost = {path for path in before if path not in built.tree()}
    assert lost == (set() if again else {"src/phase_2.py"})
    assert built.git("status", "--porcelain") == ""
    assert built.doflow("verify").returncode == 0
    built.forget_calls()
    assert (built.doit("build").returncode, built.calls()) == (0, [])


@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.parametrize("deed", ["rebase", "cherry-pick", "merge"])
def test_other_deeds_of_git_are_ended_by_what_is_said_too(built, deed, side):
    lock = built.run_dir() / "doflow.lock"
    mine = built.git("branch", "--show-current").strip()
    for branch, digest in (("other", "0" * 64), (mine, "1" * 64)):
        built.git("switch", "-q", *(["-c", branch] if branch == "other" else [branch]))
        lines = [line for line in lock.read_text().splitlines() if not line.startswith("notes:")]
        lock.write_text("\n".join([*lines, f'notes:\n  "test": "{digest}"', ""]))
        built.write(f"{branch}.txt", "more\n")
        built.commit(f"Of {branch}")
    built.git(deed, "other", check=False)
    assert "UU " in built.git("status", "--porcelain", "specs")

    refused = built.doit("build", "--run=1")

    assert (refused.returncode, "git left a conflict in this lock" in refused.stderr) == (1, True), refused.stderr
    ways = hinted(refused.stderr)
    typed_all(built, ways[side])
    typed_all(built, ways["then"])
    assert built.git("status", "--porcelain") == ""
    assert built.doit("build").returncode == 0
    assert built.doflow("verify").returncode == 0


@pytest.mark.parametrize("way", [0, 1])
def test_a_conflict_that_was_committed_is_left_by_either_command_that_is_named(built, way):
    built.git("revert", "--no-edit", the(built, "Phase 2"), check=False)
    built.git("add", "-A")
    built.git("-c", "core.editor=true", "revert", "--continue")
    assert "<<<<<<<" in (built.run_dir() / "doflow.lock").read_text()

    refused = built.doit("build")

    assert (refused.returncode, "git left a conflict in this lock" in refused.stderr) == (1, True), refused.stderr
    hint = refused.stderr.partition("hint: ")[2].split("   or   ")[way].partition("   ")[0].strip()
    typed_all(built, hint)
    done = built.doit("build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "<<<<<<<" not in (built.run_dir() / "doflow.lock").read_text()
    assert built.doit("build").returncode == 0


def test_a_lock_that_a_revert_takes_away_is_removed_by_what_is_said_and_the_run_goes_on(built):
    first = built.git("log", "--format=%h", "--diff-filter=A", "--", "specs/*/doflow.lock").split()[-1]
    built.git("revert", "--no-edit", first, check=False)

    refused = built.doit("build", "--force=test")

    assert (refused.returncode, "a revert is in progress" in refused.stderr + refused.stdout) == (1, True)
    ways = hinted(refused.stderr + refused.stdout)
    assert ways["ours"].startswith("git checkout --ours -- ")
    typed_all(built, ways["theirs"])
    typed_all(built, "git add -A && git revert --continue")
    done = built.doit("build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert built.calls() == ["tasks"]
