"""Git leaves a conflict in a run's lock (revert, rebase, cherry-pick): what is said there works when it is typed."""

from __future__ import annotations

import subprocess

import pytest
from tests.support.project import Project

FLOW = """\
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
    project.flow("build", FLOW)
    project.commit("A flow")
    assert project.doit("build", "--goal=A house").returncode == 0
    project.forget_calls()
    return project


def the(project: Project, subject: str) -> str:
    return project.git("log", "--format=%h", f"--grep=^{subject}", "-1").strip()


def typed(project: Project, command: str) -> None:
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


@pytest.mark.smoke("ours")
@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_a_phase_that_was_reverted_is_done_again_or_stays_done_as_the_person_chose(built, side):
    before = built.tree()
    built.git("revert", "--no-edit", the(built, "Phase 2"), check=False)
    assert built.git("status", "--porcelain", "specs").startswith("UU ")

    refused = built.doit("build")

    assert (refused.returncode, "git left a conflict in this lock" in refused.stderr) == (1, True), refused.stderr
    assert "YAML" not in refused.stderr and "could not find" not in refused.stderr
    ways = hinted(refused.stderr)
    typed(built, ways[side])
    assert built.calls() == []
    typed(built, ways["then"])
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
    typed(built, ways[side])
    typed(built, ways["then"])
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
    typed(built, hint)
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
    typed(built, ways["theirs"])
    typed(built, "git add -A && git revert --continue")
    done = built.doit("build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert built.calls() == ["tasks"]
