"""Killed when an agent had returned, and then the world changes before the next command: what was paid is taken only for what
it was made from, a person's change is theirs, nothing is committed twice, and then there is nothing to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.crash import killed_at
from tests.support.project import Project

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="follows process trees in /proc")

FLOW = """
    flow: work
    defaults: {{retry: {{attempts: 0}}}}
    steps:
      ground: {{kind: shell, run: 'echo ground > $DOFLOW_MAKES', makes: ground.md}}
      draft: {{prompt: Draft it, makes: tasks.md}}
      work: {work}
"""
REVIEW = "{kind: review, prompt: Look at it, reads: [tasks.md], personas: [ann], rounds: 2}"
COMMAND = "{kind: shell, run: [grep, -q, agent, code.txt], prompt: Mend it, reads: [tasks.md], repair: 2}"
# what the agent writes tells which call it was, and for which text of the task list
AGENT = """
TASKS = "# Tasks\\n\\n## Phase 1: Code\\n\\n- [ ] [T001] Write old code in code.txt\\n"
tasks = run_dir / "tasks.md"
if step == "draft":
    make(TASKS)
elif role == "persona":
    bad = BAD and "agent" not in tasks.read_text()
    if bad: say("ISSUE: C | It is broken | tasks.md")
    say("VERDICT: " + ("NO-GO" if bad else "GO"))
else:
    text = f"agent {nth + 1} {'new' if 'new' in tasks.read_text() else 'old'}\\n"
    if role == "fixer":
        tasks.write_text(tasks.read_text() + text)
    elif makes:
        make(text)
    else:
        put("code.txt", text)
"""


@dataclass(frozen=True)
class Kind:
    """A step, the job of it that is killed, and the file that holds what the job made."""

    work: str
    job: str
    artifact: str
    bad: bool = False


RUN = "specs/001-x"
KINDS = {
    "step": Kind("{prompt: Do it, reads: [tasks.md], makes: work.md}", "work", f"{RUN}/work.md"),
    "phase": Kind("{kind: implement, phases: tasks.md, prompt: Do it}", "work:1", "code.txt"),
    "review": Kind(REVIEW, "work", f"{RUN}/review-work.yaml"),
    "fixer": Kind(REVIEW, "work:fix1", f"{RUN}/tasks.md", bad=True),
    "repair": Kind(COMMAND, "work", "code.txt"),
}
POINTS = {"returned": "after:returned", "intent": "after:intent", "committed": "before:complete"}


def edit_input(project: Project, _: Path) -> None:
    """The text that the step is done for."""
    tasks = project.run_dir() / "tasks.md"
    tasks.write_text(tasks.read_text().replace("old", "new"))


def edit_artifact(_: Project, artifact: Path) -> None:
    artifact.write_text(artifact.read_text() + "by hand\n")


def delete_artifact(_: Project, artifact: Path) -> None:
    artifact.unlink()


def reset_branch(project: Project, _: Path) -> None:
    """By one commit: that of the job where it is there, else that of the step before it."""
    project.git("reset", "-q", "--hard", "HEAD~1")


def edit_flow(project: Project, _: Path) -> None:
    """What the step is told or runs."""
    text = project.read("flows/work.yaml")
    for old, new in (("Do it", "Do it well"), ("Look at it", "Look at it well"), ("[grep, -q,", "[grep, -q, -w,")):
        text = text.replace(old, new)
    project.write("flows/work.yaml", text)


CHANGES: dict[str, Callable[[Project, Path], None]] = {
    "input": edit_input,
    "edited": edit_artifact,
    "deleted": delete_artifact,
    "reset": reset_branch,
    "flow": edit_flow,
}
#: what a person has written must be there in the end, in this file (`ARTIFACT`: in what the job made) or in quarantine
ARTIFACT = "the artifact"
WRITTEN = {"input": (f"{RUN}/tasks.md", "new code"), "edited": (ARTIFACT, "by hand"), "flow": ("flows/work.yaml", "")}


@dataclass(frozen=True)
class End:
    """How it ends: the calls that are paid after the kill, the artifact's last lines, the commits of the job that the
    branch has. `code`: of the first command; if it pauses, what the person types `then`, and nothing is paid before."""

    calls: tuple[str, ...]
    text: str | None
    commits: int = 1
    code: int = 0
    then: tuple[str, ...] = ()


ADOPT = ("doflow", "adopt", "work")
COMMIT = ("git", "commit", "-q", "-m", "Flow", "--", "flows/work.yaml")
OLD, NEW, AGAIN, MINE = "agent 1 old\n", "agent 2 new\n", "agent 2 old\n", "agent 1 old\nby hand\n"
GO, GO_MINE = "findings: []\n", "findings: []\nby hand\n"
ANN, FIX, REPAIR = "work persona ann", "work:fix1 fixer", "work repair"
#: (kind, change): killed before the commit (at `returned`, at `intent`), killed after it
ENDS = {
    # made for another input: made again. Edited before it was done: the person says what holds; after it: it is theirs
    ("step", "input"): (End(("work",), NEW), End(("work",), NEW, commits=2)),
    ("step", "edited"): (End((), MINE, commits=0, code=2, then=ADOPT), End((), MINE)),
    ("step", "deleted"): (End(("work",), AGAIN), End(("work",), AGAIN, commits=2)),
    ("step", "reset"): (End(("draft",), OLD), End(("work",), AGAIN)),
    ("step", "flow"): (End(("work",), AGAIN), End(("work",), AGAIN, commits=2)),
    # code: what a person makes of it before its commit is part of it, after it their own. A phase waits for a clean tree
    ("phase", "input"): (End(("work:1",), NEW), End(("work:1",), NEW, commits=2)),
    ("phase", "edited"): (End((), MINE), End((), MINE)),
    ("phase", "deleted"): (End(("work:1",), AGAIN), End((), None)),
    ("phase", "reset"): (End(("draft", "work:1"), AGAIN), End(("work:1",), AGAIN)),
    ("phase", "flow"): (
        End(("work:1",), AGAIN, code=2, then=COMMIT),
        End(("work:1",), AGAIN, commits=2, code=2, then=COMMIT),
    ),
    # a verdict is written from the answers: as long as they are to this text and these words, no one is asked again
    ("review", "input"): (End((ANN,), GO), End((ANN,), GO, commits=2)),
    ("review", "edited"): (End((), GO), End((), GO_MINE)),
    ("review", "deleted"): (End((), GO), End((), GO)),
    ("review", "reset"): (End(("draft",), GO), End((), GO)),
    ("review", "flow"): (End((ANN,), GO), End((ANN,), GO, commits=2)),
    # a fixer's text goes to the next round, with a person's words in it as theirs; gone, it is made and fixed again
    ("fixer", "edited"): (End((ANN,), MINE, commits=0), End((ANN,), MINE)),
    ("fixer", "deleted"): (End(("draft", FIX, ANN), AGAIN), End(("draft", FIX, ANN), AGAIN, commits=2)),
    ("fixer", "reset"): (End(("draft", FIX, ANN), AGAIN), End((FIX, ANN), AGAIN)),
    ("fixer", "flow"): (End((ANN,), OLD), End((ANN,), OLD)),
    # what is fixed stays, and the command says whether it is enough, whatever else has changed
    ("repair", "input"): (End((), OLD), End((), OLD)),
    ("repair", "edited"): (End((), MINE, commits=0), End((), MINE)),
    ("repair", "deleted"): (End((REPAIR,), AGAIN), End((), None)),
    ("repair", "reset"): (End(("draft", REPAIR), AGAIN), End((REPAIR,), AGAIN)),
    ("repair", "flow"): (End((), OLD), End((), OLD)),
}
#: what is gone while the step is still open is put back as it was before the job: nothing is lost by that
OPEN = {("fixer", "returned", "deleted"): End((FIX, ANN), AGAIN)}
LEFT_OUT = {("fixer", "input"): "what a fixer reads is what it mends: its artifact is the only input"}
#: they run with the README's command; all others are slow
QUICK = {
    ("step", "intent", "edited"), ("phase", "returned", "edited"), ("review", "intent", "flow"),
}  # fmt: skip
UNSEEN = "doit does not look at the file of a finished review: `verify` says so, and what it advises does nothing"
DEFECTS = {("review", "committed", "edited"): UNSEEN, ("review", "committed", "deleted"): UNSEEN}


def cells() -> list[object]:
    found = []
    for (kind, change), (before, after) in ENDS.items():
        for point in POINTS:
            cell = (kind, point, change)
            marks = [pytest.mark.smoke if cell in QUICK else pytest.mark.slow]
            marks += [pytest.mark.xfail(strict=True, reason=DEFECTS[cell])] if cell in DEFECTS else []
            end = OPEN.get(cell, after if point == "committed" else before)
            found.append(pytest.param(*cell, end, id="-".join(cell), marks=marks))
    return found


@pytest.mark.parametrize(("kind", "point", "change", "end"), cells())
def test_a_killed_job_goes_on_in_a_world_that_has_changed(project, kind, point, change, end):
    killed = KINDS[kind]
    artifact = started(project, killed)
    killed_at(project, f"{POINTS[point]}:{killed.job}", "work", "--goal=x")
    paid = len(project.calls())
    CHANGES[change](project, artifact)
    flow = project.read("flows/work.yaml")

    done = project.doit("work")

    said = done.stdout + done.stderr
    assert (done.returncode, "Traceback" in said) == (end.code, False), said
    if end.then:
        assert project.calls()[paid:] == []
        typed(project, end.then)
        done = project.doit("work")
        assert done.returncode == 0, said + done.stdout + done.stderr
    assert project.calls()[paid:] == list(end.calls), said
    assert last_lines(artifact) == end.text
    assert commits(project).count(killed.job) == end.commits
    assert commits(project).count("draft") == 1 + (change == "deleted" and "draft" in end.calls)
    assert (project.read("mine.txt"), project.read("flows/work.yaml")) == ("mine\n", flow)
    assert change not in WRITTEN or is_kept(project, artifact, *WRITTEN[change])
    assert project.git("fsck", "--strict", "--no-dangling") == ""
    nothing_to_do(project)


@pytest.mark.smoke
def test_every_cell_of_the_matrix_is_there_or_left_out_with_a_reason():
    assert {*ENDS} ^ {*LEFT_OUT} == {(kind, change) for kind in KINDS for change in CHANGES}
    assert QUICK | {*DEFECTS, *OPEN} <= {(kind, point, change) for kind, change in ENDS for point in POINTS}


def started(project: Project, kind: Kind) -> Path:
    """A project with a tracked file for the code and one that the person has not committed; gives where the artifact is."""
    project.flow("work", FLOW.format(work=kind.work))
    project.write("code.txt", "wrong\n")
    project.commit("Ground")
    project.write("mine.txt", "mine\n")
    project.agent(f"BAD = {kind.bad}\n{AGENT}")
    return project.root / kind.artifact


def typed(project: Project, words: tuple[str, ...]) -> None:
    done = project.git(*words[1:]) if words[0] == "git" else project.program(*words)
    assert isinstance(done, str) or done.returncode == 0, done.stderr


def last_lines(artifact: Path) -> str | None:
    """What the agent, doflow or the person has written at its end; None = it is not there."""
    if not artifact.exists():
        return None
    lines = artifact.read_text().splitlines(keepends=True)
    begin = next((place for place, line in enumerate(lines) if line.startswith(("agent", "findings"))), 0)
    return "".join(lines[begin:])


def commits(project: Project) -> list[str]:
    """The step or phase of every commit on the branch that holds the work of one."""
    form = "%(trailers:key=Doflow-Step,valueonly,separator=)|%(trailers:key=Doflow-Phase,valueonly,separator=)|%s"
    told = [line.split("|", 2) for line in project.git("log", f"--format={form}").splitlines()]
    work = [(step, phase) for step, phase, subject in told if step and not subject.startswith(("Keep ", "Adopt "))]
    return [f"{step}:{phase}" if phase else step for step, phase in work]


def is_kept(project: Project, artifact: Path, path: str, words: str) -> bool:
    target = artifact if path == ARTIFACT else project.root / path
    if target.exists() and words in target.read_text():
        return True
    held = json.loads(project.doflow("quarantine", "list", "--json").stdout)
    return any(words in project.doflow("quarantine", "show", entry["id"]).stdout for entry in held["kept"])


def nothing_to_do(project: Project) -> None:
    """Calls, history and files stay as they are, and all records agree."""
    before = (project.calls(), project.git("rev-parse", "HEAD"), project.git("status", "--porcelain"), project.tree())
    again = project.doit("work")
    after = (project.calls(), project.git("rev-parse", "HEAD"), project.git("status", "--porcelain"), project.tree())
    assert (again.returncode, project.state()["status"]) == (0, "completed"), again.stdout + again.stderr
    assert after == before
    found = project.doflow("verify")
    assert found.returncode == 0, found.stdout
