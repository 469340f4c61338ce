"""State that is torn, garbage or gone: recovered or refused in words, and nothing that is done is paid again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.support.project import Project, eventually

FLOW = """\
flow: pair
about: Two artifacts and a command.
params: {goal: {about: What to build, required: true}}
steps:
  first:  {prompt: Begin., reads: [input.md], makes: first.md}
  middle: {kind: shell, run: ["true"]}
  second: {prompt: End., reads: [first.md], makes: second.md}
"""
COMMAND = ("pair", "--goal=Stay whole")
RUN = "runs/001-stay-whole"
GARBAGE = b"\x00\xff\xfe{]garbage\n\x80" * 7


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished run, to be copied by each test."""
    project = Project(tmp_path_factory.mktemp("finished"))
    project.flow("pair", FLOW)
    project.write(".gitignore", "__pycache__/\n")
    project.commit()
    done = project.doit(*COMMAND)
    assert (done.returncode, project.calls()) == (0, ["first", "second"]), done.stdout + done.stderr
    return project


@pytest.fixture
def pair(finished: Project, tmp_path: Path) -> Project:
    return finished.copied(tmp_path / "copy")


def state(project: Project, name: str = "") -> Path:
    return project.root / ".doflow" / "runs" / "001-stay-whole" / name


def calm(project: Project, code: int = 0) -> str:
    """The same command: the code that is expected, no traceback, no agent called; gives what was said."""
    done = project.doit(*COMMAND)
    said = done.stdout + done.stderr
    assert (done.returncode, "Traceback" in said, project.calls()) == (code, False, []), said
    return said


def unstamped(project: Project) -> Project:
    """Without the stamp that answers "nothing to do" before anything is read."""
    shutil.rmtree(project.root / ".doflow" / "stamps", ignore_errors=True)
    return project


def test_an_event_log_cut_at_any_byte_of_its_last_lines_calls_no_agent(pair, tmp_path):
    whole = state(pair, "events.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    start = len(whole) - len(lines[-1]) - len(lines[-2])
    head = pair.git("rev-parse", "HEAD")
    for size in [*range(start, len(whole), 29), len(whole) - 1]:
        unstamped(pair)
        state(pair, "events.jsonl").write_bytes(whole[:size])
        calm(pair)
        assert pair.git("rev-parse", "HEAD") == head


@pytest.mark.smoke("half a line")
@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: GARBAGE,
        lambda whole: whole[: len(whole) // 2] + GARBAGE + whole[len(whole) // 2 :],
        lambda whole: whole + b'{"event": "returned"',
        lambda whole: whole + b"[1, 2]\n7\nnull\n{}\n",
        lambda whole: whole + b'{"event": 7, "step": []}\n{"event": "returned"}\n{"event": "intent", "step": "a"}\n',
        lambda whole: b"\n".join(reversed(whole.splitlines())) + b"\n",
    ],
    ids=["empty", "garbage", "garbage inside", "half a line", "other JSON", "other shapes", "upside down"],
)
def test_a_damaged_event_log_calls_no_agent(pair, damage):
    path = state(unstamped(pair), "events.jsonl")
    path.write_bytes(damage(path.read_bytes()))

    calm(pair)
    calm(pair)


@pytest.mark.smoke
def test_an_event_log_that_is_gone_calls_no_agent(pair):
    state(unstamped(pair), "events.jsonl").unlink()

    calm(pair)


@pytest.mark.smoke("garbage-state.db", "garbage-flows.cache", "half-stamps/pair")
@pytest.mark.parametrize(
    "name", ["state.db", "flows.cache", "stamps/pair", "holder.json", f"{RUN}/pipeline-state.json"]
)
@pytest.mark.parametrize("damage", ["garbage", "empty", "half", "gone"])
def test_a_damaged_file_of_the_state_folder_calls_no_agent(pair, name, damage):
    if not name.startswith("stamps"):
        unstamped(pair)
    path = pair.root / ".doflow" / name
    whole = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    if damage != "gone":
        path.write_bytes({"garbage": GARBAGE, "empty": b"", "half": whole[: len(whole) // 2]}[damage])

    calm(pair)
    calm(pair)

    assert pair.state()["status"] == "completed"


def test_a_damaged_memory_of_doit_is_kept_aside(pair):
    (unstamped(pair).root / ".doflow" / "state.db").write_bytes(GARBAGE)

    calm(pair)

    assert (pair.root / ".doflow" / "state.db.bad").read_bytes() == GARBAGE


@pytest.mark.smoke
def test_a_lost_state_folder_calls_no_agent(pair):
    shutil.rmtree(pair.root / ".doflow")

    calm(pair)
    calm(pair)


@pytest.mark.smoke("half", "newer")
@pytest.mark.parametrize(
    "damage",
    [GARBAGE, b"", b"doflow: 1\nsteps: [", b"doflow: 1\nsteps: {first: 7}\n", b"- a\n- b\n", b"doflow: 99\n"],
    ids=["garbage", "empty", "half", "other shape", "a list", "newer"],
)
def test_a_damaged_lock_is_refused_in_words_or_recovered_and_calls_no_agent(pair, damage):
    path = unstamped(pair).run_dir() / "doflow.lock"
    whole = path.read_bytes()
    path.write_bytes(damage)

    done = pair.doit(*COMMAND)

    said = done.stdout + done.stderr
    assert ("Traceback" in said, pair.calls()) == (False, []), said
    if done.returncode:
        assert (done.returncode, "doflow.lock" in said, "git checkout" in said) == (1, True, True), said
        path.write_bytes(whole)
    calm(pair)


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
def test_a_lock_cut_short_is_refused_in_words_or_recovered_and_calls_no_agent(pair, part):
    path = unstamped(pair).run_dir() / "doflow.lock"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])

    done = pair.doit(*COMMAND)

    said = done.stdout + done.stderr
    assert ("Traceback" in said, pair.calls()) == (False, []), said
    if done.returncode:
        path.write_bytes(whole)
    calm(pair)


@pytest.mark.smoke
def test_a_lock_with_conflict_marks_is_refused_in_words(pair):
    path = unstamped(pair).run_dir() / "doflow.lock"
    whole = path.read_text()
    path.write_text(whole.replace("steps:\n", "<<<<<<< HEAD\nsteps:\n=======\n>>>>>>> other\n"))

    said = calm(pair, 1)

    assert "doflow.lock" in said
    path.write_text(whole)
    calm(pair)


def test_a_damaged_window_is_refused_in_words_and_nothing_is_touched(finished, tmp_path):
    pair = finished.copied(tmp_path / "copy")
    path = state(unstamped(pair), "events.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    started = next(line for line in lines if b'"step_starting"' in line and b'"second"' in line)
    path.write_bytes(b"".join(lines) + started)
    state(pair, "window").write_bytes(GARBAGE)
    before = pair.tree()

    done = pair.doit(*COMMAND)

    said = done.stdout + done.stderr
    assert ("Traceback" in said, pair.calls()) == (False, []), said
    assert pair.tree() == before
    if done.returncode:
        assert "window" in said
        state(pair, "window").unlink()
        calm(pair)


def test_what_a_killed_step_left_is_told_once(finished, tmp_path):
    project = Project(tmp_path)
    project.flow("pair", FLOW)
    project.commit()
    project.agent(
        'if nth == 0 and step == "second":\n    make("half")\n    (outside / "ready").touch()\n    time.sleep(60)\nusual()'
    )
    running = project.start("doit", *COMMAND)
    assert eventually((project.outside / "ready").exists)
    running.kill()
    running.communicate()

    told = [project.doit(*COMMAND) for _ in range(2)]

    assert [done.returncode for done in told] == [0, 0], told
    assert ["moved to quarantine" in done.stdout + done.stderr for done in told] == [True, False]


@pytest.mark.parametrize(
    "name", ["state.db", "flows.cache", "stamps/pair", f"{RUN}/events.jsonl", f"{RUN}/pipeline-state.json"]
)
def test_a_folder_in_the_place_of_a_state_file_is_refused_in_words_or_worked_around(pair, name):
    if not name.startswith("stamps"):
        unstamped(pair)
    path = pair.root / ".doflow" / name
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "inside").touch()

    done = pair.doit(*COMMAND)

    said = done.stdout + done.stderr
    assert ("Traceback" in said, pair.calls()) == (False, []), said
    if done.returncode:
        assert (done.returncode, os.path.basename(name) in said) == (1, True), said


@pytest.mark.smoke
def test_a_link_in_the_place_of_a_state_file_is_not_written_through(pair, tmp_path):
    target = tmp_path / "target"
    target.write_text("mine\n")
    path = state(unstamped(pair), "events.jsonl")
    path.unlink()
    path.symlink_to(target)
    (pair.run_dir() / "first.md").write_text("edited by hand\n")

    pair.doit(*COMMAND)

    assert target.read_text() == "mine\n"


def test_a_half_written_file_in_the_store_is_no_finding_and_goes_at_the_next_start_after_a_kill(pair):
    torn = pair.root / ".doflow" / "store" / ".doflow-0123456789abcdef.tmp"
    torn.write_text("half")
    verified = pair.doflow("verify")
    assert (verified.returncode, torn.name in verified.stdout) == (0, True), verified.stdout
    (pair.root / ".doflow" / "holder.json").write_text(
        '{"pid": 999999, "since": "2026-01-01T00:00:00Z", "command": "x"}'
    )

    calm(unstamped(pair))

    assert not torn.exists()
