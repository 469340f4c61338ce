"""A disk that is full, small or read-only: exit 1 in words, and the same command goes on when there is room again."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.project import PROGRAMS, Project

FLOW = """\
flow: heavy
about: Two artifacts, some code.
params: {goal: {about: What to build, required: true}}
steps:
  first:     {prompt: Begin., reads: [input.md], makes: first.md}
  tasks:     {prompt: List the work., reads: [first.md], makes: tasks.md, check: {tasks: true}}
  implement: {kind: implement, phases: tasks.md, prompt: Do the phase.}
"""
TASKS = "# Tasks\\n\\n## Phase 1: All\\n\\n- [ ] [T001] Write it in code.py\\n"
AGENT = f"""
if phase:
    put("code.py", "CODE = 1\\n")
else:
    make({TASKS!r}.replace("\\\\n", chr(10)) if step == "tasks" else "# First\\n")
say("done")
"""
COMMAND = ("heavy", "--goal=Fit in")


def heavy(folder: Path, name: str = "project") -> Project:
    project = Project(folder, name, settings="retry: {backoff_seconds: 1}\n")
    project.flow("heavy", FLOW)
    project.agent(AGENT)
    project.write(".gitignore", "__pycache__/\n")
    project.commit()
    project.write("mine.txt", "untracked\n")
    return project


def refused(project: Project, code: int, said: str) -> None:
    assert (code, "Traceback" in said) == (1, False), said
    assert any(words in said for words in ("disk full", "No space left", "ead-only", "couldn't write")), said
    assert project.read("mine.txt") == "untracked\n"


def goes_on(project: Project, called: list[str]) -> None:
    """With room again the same command ends the run; whatever had returned is not called again."""
    returned = {(entry["step"], entry.get("phase", "")) for entry in event_log(project) if entry["event"] == "returned"}
    before = project.calls()
    done = project.doit(*COMMAND)
    assert done.returncode == 0, done.stdout + done.stderr
    again = [name for name in project.calls()[len(before) :] if tuple((name + ":").split(":")[:2]) in returned]
    assert (again, sorted(set(project.calls()))) == ([], sorted(called))
    assert project.read("mine.txt") == "untracked\n"
    assert project.git("fsck", "--strict", "--no-dangling") == ""
    assert project.git("status", "--porcelain").splitlines() == ["?? mine.txt"]
    assert (project.doit(*COMMAND).returncode, project.state()["status"]) == (0, "completed")


def event_log(project: Project) -> list[dict]:
    import json

    found = []
    for path in (project.root / ".doflow").glob("runs/*/events.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


CALLED = ["first", "implement:1", "tasks"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=4m", "none", place)
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(("umount", "-l", place), check=True)


def fill(place: Path, leave: int) -> Path:
    """All but `leave` bytes of a file system; gives the file to remove."""
    filler = place / "filler"
    free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
    with filler.open("wb") as file:
        file.write(b"\0" * max(0, free - leave))
    return filler


@pytest.mark.smoke("32768")
@pytest.mark.parametrize("leave", [0, 4096, 8192, 16384, 32768, 65536, 98304, 131072, 196608])
def test_a_disk_that_fills_up_is_told_and_the_run_goes_on_when_there_is_room(small, tmp_path, leave):
    project = heavy(small)
    filler = fill(small, leave)

    done = project.doit(*COMMAND)

    if done.returncode:
        refused(project, done.returncode, done.stdout + done.stderr)
    filler.unlink()
    goes_on(project, CALLED)


def test_a_disk_that_an_agent_fills_up_is_told_and_the_run_goes_on_when_there_is_room(small):
    project = heavy(small)
    project.agent('import errno\nif step == "tasks" and nth == 0:\n'
                  '    try:\n        with open(outside / "filler", "wb") as file:\n            while True:\n'
                  '                file.write(bytes(65536)); file.flush()\n'
                  f'    except OSError:\n        pass\n{AGENT}')  # fmt: skip

    done = project.doit(*COMMAND)

    assert (done.returncode, "Traceback" in done.stdout) == (1, False), done.stdout + done.stderr
    (project.outside / "filler").unlink()
    again = project.doit(*COMMAND)
    assert again.returncode == 0, again.stdout + again.stderr
    assert project.read("mine.txt") == "untracked\n"


@pytest.mark.parametrize("limit", [0, 100, 1000, 3000, 6000, 12000, 25000])
def test_a_limit_on_the_size_of_files_is_told_and_the_run_goes_on_without_it(tmp_path, limit):
    project = heavy(tmp_path)

    env = project.env | {"PYTHONDONTWRITEBYTECODE": "1"}  # Python itself leaves half a .pyc behind
    done = subprocess.run(
        (str(PROGRAMS / "doit"), *COMMAND), cwd=project.root, env=env, capture_output=True, text=True, timeout=60,
        check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip

    said = done.stdout + done.stderr
    assert ("Traceback" in said, done.returncode in (0, 1)) == (False, True), said
    goes_on(project, CALLED)


@pytest.mark.smoke
def test_a_read_only_file_system_is_told_and_nothing_is_called(small):
    project = heavy(small)
    subprocess.run(("mount", "-o", "remount,ro", small), check=True)

    done = project.doit(*COMMAND)

    refused(project, done.returncode, done.stdout + done.stderr)
    assert project.calls() == []
    subprocess.run(("mount", "-o", "remount,rw", small), check=True)
    goes_on(project, CALLED)


def test_a_state_folder_that_cannot_be_written_is_told_and_nothing_is_called(tmp_path):
    project = heavy(tmp_path)
    (project.root / ".doflow").write_text("a file in the place of the folder\n")

    done = project.doit(*COMMAND)

    said = done.stdout + done.stderr
    assert (done.returncode, "Traceback" in said, ".doflow" in said, project.calls()) == (1, False, True, []), said
    (project.root / ".doflow").unlink()
    goes_on(project, CALLED)


def test_a_lock_that_an_agent_leaves_in_git_does_not_keep_its_work_from_being_committed(tmp_path):
    project = heavy(tmp_path)
    project.agent(f'import pathlib\n(root / ".git" / "index.lock").touch() if step == "tasks" else None\n{AGENT}')

    done = project.doit(*COMMAND)

    assert done.returncode == 0, done.stdout + done.stderr
    assert not (project.root / ".git" / "index.lock").exists()
    goes_on(project, CALLED)
    shutil.rmtree(project.root)
