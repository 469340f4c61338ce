"""Killed anywhere: the same command finishes it, nothing is paid twice, nothing of the person's is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.support import crash
from tests.support.project import PROGRAMS, Project

from doflow.guard.workspace import overlay

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="follows process trees in /proc"),
    pytest.mark.timeout(300),
]

FLOW = """\
flow: ten
about: Ten steps, one of them in three phases.
params: {goal: {about: What to build, required: true}}
steps:
  survey:    {prompt: Look around., reads: [input.md], makes: survey.md}
  spec:      {prompt: Say what is wanted., reads: [survey.md], makes: spec.md}
  note:      {prompt: Say it in a line., reads: [spec.md], makes: note.md, from: text}
  prepare:   {kind: shell, run: [sh, -c, "echo prepare >> CALLS"]}
  figures:   {kind: shell, run: [sh, -c, "echo figures >> CALLS; wc -c < $DOFLOW_RUN_DIR/spec.md > $DOFLOW_MAKES"],
              reads: [spec.md], makes: figures.txt}
  consent:   {kind: gate, gate: Go on?, reads: [spec.md]}
  plan:      {prompt: Plan it., reads: [spec.md, figures.txt], makes: [plan.md, data.json]}
  tasks:     {prompt: List the work., reads: [plan.md], makes: tasks.md, check: {tasks: true}}
  implement: {kind: implement, phases: tasks.md, prompt: Do the phase.}
  summary:   {prompt: Sum up., reads: [plan.md], makes: summary.md}
"""

SHORT = """\
flow: short
about: One of each kind.
params: {goal: {about: What to build, required: true}}
steps:
  prepare:   {kind: shell, run: [sh, -c, "echo prepare >> CALLS"]}
  tasks:     {prompt: List the work., reads: [input.md], makes: tasks.md, check: {tasks: true}}
  implement: {kind: implement, phases: tasks.md, prompt: Do the phase.}
"""

AGENT = """
PART = "\\n\\n## Phase {n}: Part {n}\\n\\n- [ ] [T00{n}] Write part {n} in part_{n}.py"
TASKS = "# Tasks" + "".join(PART.format(n=n) for n in PHASES)
if phase:
    put(f"src/part_{phase}.py", f"PART = {phase}\\n")
    put("app.txt", (root / "app.txt").read_text() + f"part {phase}\\n")
    (root / f"old_{phase}.txt").unlink(missing_ok=True)
    tasks = run_dir / "tasks.md"
    tasks.write_text(tasks.read_text().replace(f"- [ ] [T00{phase}]", f"- [x] [T00{phase}]"))
else:
    for path in makes if step != "note" else ():
        path.write_text(TASKS + "\\n" if path.name == "tasks.md" else f"{step} made {path.name}\\n")
say(f"{step} {phase} is done")
"""


@dataclass(frozen=True)
class Story:
    """A flow, the command that runs it, and whether the person has unfinished edits beside it."""

    flow: str
    phases: tuple[int, ...]
    command: tuple[str, ...]
    edits: bool = False
    workspace: str = "in-place"

    def project(self, folder: Path) -> Project:
        project = Project(folder, settings=f"auto_approve: true\nworkspace: {self.workspace}\n")
        project.agent(f"PHASES = {self.phases}\n{AGENT}")
        project.flow(self.command[0], self.flow.replace("CALLS", str(project.outside / "calls.log")))
        for path in ("app.txt", *(f"old_{number}.txt" for number in self.phases)):
            project.write(path, f"{path}\n")
        if self.edits:
            project.write("specs/work/mine.txt", "as committed\n")
            project.write("specs/work/staged.txt", "as committed\n")
        project.write(".gitignore", "__pycache__/\n")
        project.commit()
        if self.edits:
            project.write("specs/work/staged.txt", "staged, not committed\n")
            project.git("add", "specs/work/staged.txt")
            project.write("specs/work/mine.txt", "changed, not staged\n")
        project.write("scratch/untracked.txt", "never added\n")
        return project


HAS_VIEWS = not overlay.machine_obstacle(os.environ)
needs_views = pytest.mark.skipif(not HAS_VIEWS, reason="needs overlay file systems in user namespaces")
STRACE = ("strace", "-qq", "-o", "/dev/null")
TEN = Story(FLOW, (1, 2, 3), ("ten", "--feature-dir=specs/work", "--goal=Keep it all"), edits=True)
BRIEF = Story(SHORT, (1, 2), ("short", "--goal=Keep it all"))
TEN_IN_VIEW, BRIEF_IN_VIEW = replace(TEN, workspace="overlay"), replace(BRIEF, workspace="overlay")


@dataclass(frozen=True)
class End:
    """What a finished project looks like."""

    files: dict[str, bytes]
    commits: list[tuple[str, str]]
    status: str
    staged: str
    calls: list[str]

    @classmethod
    def of(cls, project: Project) -> End:
        apart = ("doflow.lock", "doflow.yaml", "ten.yaml", "short.yaml", ".pyc")  # they hold times, or where they are
        tree = {name: data for name, data in project.tree().items() if not name.endswith(apart)}
        return cls(tree, commits(project), project.git("status", "--porcelain", "-uall"),
                   project.git("diff", "--cached"), project.calls())  # fmt: skip


def commits(project: Project) -> list[tuple[str, str]]:
    """(step, phase) of every commit that doflow made for one, oldest first."""
    form = "%(trailers:key=Doflow-Step,valueonly,separator=%x20)|%(trailers:key=Doflow-Phase,valueonly,separator=%x20)"
    pairs = (line.split("|") for line in project.git("log", "--reverse", f"--format={form}").splitlines())
    return [(step, phase) for step, phase in pairs if step]


def event_log(project: Project) -> list[dict]:
    found = []
    for path in (project.root / ".doflow").glob("runs/*/events.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def told(project: Project, *events: str) -> set[str]:
    """The steps and phases with such a line in the event log."""
    lines = [entry for entry in event_log(project) if entry["event"] in events]
    return {entry["step"] + (f":{entry['phase']}" if entry.get("phase") else "") for entry in lines}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[Story, End]:
    """How each story ends when no one disturbs it."""
    ends = {}
    for story in (TEN, BRIEF, *((TEN_IN_VIEW, BRIEF_IN_VIEW) if HAS_VIEWS else ())):
        project = story.project(tmp_path_factory.mktemp("undisturbed"))
        done = project.doit(*story.command)
        assert done.returncode == 0, done.stdout + done.stderr
        ends[story] = End.of(project)
    return ends


def run(project: Project, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=project.root, env=project.env, capture_output=True, text=True, timeout=120, check=False
    )


def run_and_die(project: Project, story: Story, kind: str, point: int) -> bool:
    """True if the run was killed at the point, False if it ended before it came to it."""
    argv = (sys.executable, crash.__file__, kind, str(point), *story.command)
    done = run(project, argv)
    assert done.returncode in (0, -signal.SIGKILL), done.stdout + done.stderr
    assert crash.none_left(project.home) == {}
    return done.returncode != 0


def goes_on(project: Project, story: Story, end: End) -> None:
    """The same command finishes what was killed, as if nothing had been, and there is nothing to do after it."""
    before = Counter(project.calls())
    paid = told(project, "returned", "step_complete", "phase_complete")

    done = project.doit(*story.command)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    after = Counter(project.calls())
    assert {name: after[name] for name in paid} == {name: before[name] for name in paid}
    assert all(after[name] <= before[name] + 1 for name in after)
    assert sum(after.values()) <= len(end.calls) + 1, "only the call in flight is made again"
    found = End.of(project)
    assert found.commits == end.commits
    assert {name for name, data in found.files.items() ^ end.files.items()} == set()
    assert (found.status, found.staged) == (end.status, end.staged)
    fsck = project.git("fsck", "--strict", "--no-dangling")
    assert fsck == ""
    head = project.git("rev-parse", "HEAD")
    again = project.doit(*story.command)
    assert (again.returncode, Counter(project.calls())) == (0, after), again.stdout + again.stderr
    assert project.git("rev-parse", "HEAD") == head
    assert project.state()["status"] == "completed"


def every(story: Story, end: End, kind: str, folder: Path, points: range) -> int:
    """Kill the story at each of the points until it ends by itself; gives how many were tried."""
    for tried, point in enumerate(points):
        project = story.project(folder / str(point))
        if not run_and_die(project, story, kind, point):
            return tried
        try:
            goes_on(project, story, end)
        except AssertionError as error:
            raise AssertionError(f"killed at {kind} {point}: {error}") from error
        shutil.rmtree(folder / str(point))
    return len(points)


@pytest.mark.smoke
def test_a_run_killed_at_a_sample_of_its_records_is_finished_by_the_same_command(tmp_path, undisturbed):
    assert every(TEN, undisturbed[TEN], "records", tmp_path, range(3, 2000, 61)) >= 2


@pytest.mark.smoke
def test_a_run_killed_at_a_sample_of_its_effects_is_finished_by_the_same_command(tmp_path, undisturbed):
    assert every(BRIEF, undisturbed[BRIEF], "effects", tmp_path, range(2, 4000, 97)) >= 2


@needs_views
@pytest.mark.smoke
def test_a_run_in_a_view_killed_at_a_sample_of_its_effects_is_finished_by_the_same_command(tmp_path, undisturbed):
    assert every(BRIEF_IN_VIEW, undisturbed[BRIEF_IN_VIEW], "effects", tmp_path, range(5, 4000, 173)) >= 2


@needs_views
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(16) if os.environ.get("DOFLOW_TEST_ALL") else (1, 6, 11))
def test_a_run_in_a_view_killed_after_any_effect_is_finished_by_the_same_command(part, tmp_path, undisturbed):
    assert every(BRIEF_IN_VIEW, undisturbed[BRIEF_IN_VIEW], "effects", tmp_path, range(part + 1, 4000, 16)) >= 8


@needs_views
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(4))
def test_a_run_in_a_view_killed_before_or_after_any_record_is_finished_by_the_same_command(part, tmp_path, undisturbed):
    assert every(TEN_IN_VIEW, undisturbed[TEN_IN_VIEW], "records", tmp_path, range(part + 1, 4000, 8)) >= 8


@needs_views
def test_the_whole_tree_in_a_view_killed_at_a_sample_of_lines_is_finished_by_the_same_command(tmp_path, undisturbed):
    assert every_line(TEN_IN_VIEW, undisturbed[TEN_IN_VIEW], tmp_path, range(4, 1000, 7)) >= 4


def test_a_run_killed_while_git_holds_its_locks_is_finished_by_the_same_command(tmp_path, undisturbed):
    assert every(BRIEF, undisturbed[BRIEF], "locks", tmp_path, range(1, 100)) >= 3


def test_the_whole_tree_killed_at_a_sample_of_lines_is_finished_by_the_same_command(tmp_path, undisturbed):
    assert every_line(TEN, undisturbed[TEN], tmp_path, range(4, 1000, 9)) >= 4


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(8))
def test_a_run_killed_before_or_after_any_record_is_finished_by_the_same_command(part, tmp_path, undisturbed):
    assert every(TEN, undisturbed[TEN], "records", tmp_path, range(part + 1, 4000, 8)) >= 10


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(8) if os.environ.get("DOFLOW_TEST_ALL") else (0, 3, 6))
def test_a_run_killed_after_any_single_effect_is_finished_by_the_same_command(part, tmp_path, undisturbed):
    assert every(BRIEF, undisturbed[BRIEF], "effects", tmp_path, range(part + 1, 4000, 8)) >= 10


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(4))
def test_the_whole_tree_killed_at_any_line_of_the_event_log_is_finished_by_the_same_command(
    part, tmp_path, undisturbed
):
    assert every_line(TEN, undisturbed[TEN], tmp_path, range(part + 1, 1000, 4)) >= 8


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("call", ["fsync", "renameat", "pwrite64", "unlink", "mkdir"])
def test_a_run_killed_inside_a_system_call_is_finished_by_the_same_command(call, tmp_path, undisturbed):
    if not traceable():
        pytest.skip("needs strace, and leave to trace a process")
    for point in range(1, 1000, 5):
        project = BRIEF.project(tmp_path / str(point))
        kill = f"inject={call}:signal=KILL:when={point}"
        argv = (*STRACE, "-e", f"trace={call}", "-e", kill, str(PROGRAMS / "doit"), *BRIEF.command)
        done = run(project, argv)
        assert crash.none_left(project.home) == {}
        if done.returncode == 0:
            assert point > 1, "it was never killed"
            break
        goes_on(project, BRIEF, undisturbed[BRIEF])
        shutil.rmtree(tmp_path / str(point))


def traceable() -> bool:
    """Whether strace is here and may trace."""
    try:
        return subprocess.run((*STRACE, "true"), capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def every_line(story: Story, end: End, folder: Path, lines: range) -> int:
    """Kill everything when the event log has that many lines, until the run ends before; gives how often it was killed."""
    for tried, line in enumerate(lines):
        project = story.project(folder / str(line))
        if not run_and_kill(project, story, line):
            return tried
        try:
            goes_on(project, story, end)
        except AssertionError as error:
            raise AssertionError(f"killed at line {line}: {error}") from error
        shutil.rmtree(folder / str(line))
    return len(lines)


def run_and_kill(project: Project, story: Story, line: int) -> bool:
    """From outside: doit, its git, its supervisor, its agent, all of them; False if the run ended before."""
    argv = (str(PROGRAMS / "doit"), *story.command)
    null = subprocess.DEVNULL
    place = {"cwd": project.root, "env": project.env, "start_new_session": True}
    running = subprocess.Popen(argv, stdout=null, stderr=null, **place)
    while running.poll() is None and written(project) < line:
        time.sleep(0.0005)
    if running.poll() is not None:
        return False
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    crash.kill_all(project.home)
    return True


def written(project: Project) -> int:
    return sum(path.read_bytes().count(b"\n") for path in project.root.glob(".doflow/runs/*/events.jsonl"))
