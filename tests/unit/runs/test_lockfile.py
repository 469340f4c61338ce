"""The lock file: what is written comes back, and what cannot be read is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st
from tests.support.context import AT

from doflow.runs import lockfile
from doflow.runs.lockfile import Approval, Artifact, Lock, StepRecord
from doflow.util.errors import WorldError

FULL = Lock(
    "001-login", "feature", "9f86", "001-login", "#232", "lite",
    steps={
        "specify": StepRecord("ab" * 32, {"step": "1"}, {"input.md": "2"}, {"spec.md": "3"}, "GO", {"agent": "claude"}, AT),
        "implement:1": StepRecord("cd" * 32),
    },
    artifacts={"spec.md": Artifact("3", "person", "specify"), 'odd "name"\n': Artifact("4", "agent")},
    approvals={"specify": Approval("3", "ann", "well: done", AT)},
    notes={"plan": "Not so.\nBut so: # like this"},
    params={"size": "big"},
)  # fmt: skip

#: as doflow 0.1.0 wrote it: limits were not recorded, the agent was a part of the key, and `by` named doflow's version
OF_0_1_0 = b"""\
# What each artifact of this run was made from. Written by doflow; commit it.
doflow: 1
run: "001-login"
flow: "tiny"
goal: "9f86"
branch: "001-login"
issue: ""
variant: ""
steps:
  "specify": {"key": "ab", "parts": {"step": "1", "agent": "claude"}, "made": {"specs/001-login/spec.md": "3"}, \
"by": {"agent": "claude sonnet", "doflow": "0.1.0"}, "at": "2026-01-01T10:00:00Z"}
artifacts:
  "specs/001-login/spec.md": {"digest": "3", "author": "agent", "step": "specify"}
approvals: {}
notes: {}
"""


def text_of(lock: Lock) -> bytes:
    return lockfile.Lines().text(lock)


def test_a_lock_comes_back_as_it_was_written():
    assert lockfile.parse_lock(text_of(FULL), "doflow.lock") == FULL


def test_an_empty_lock_comes_back_too():
    assert lockfile.parse_lock(text_of(Lock("r", "f")), "doflow.lock") == Lock("r", "f")


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.text(), st.text(), max_size=4))
def test_any_name_and_any_text_comes_back(texts):
    lock = Lock(
        "r", "f", notes=texts, params=texts, steps={name: StepRecord(value or "k") for name, value in texts.items()}
    )

    assert lockfile.parse_lock(text_of(lock), "doflow.lock") == lock


def test_the_text_is_the_same_however_it_was_reached():
    lines, grown = lockfile.Lines(), Lock("r", "f")
    lines.text(grown)
    for name, record in FULL.steps.items():
        grown = replace(grown, steps={**grown.steps, name: record}, artifacts=FULL.artifacts)
        lines.text(grown)

    assert lines.text(grown) == text_of(Lock("r", "f", steps=FULL.steps, artifacts=FULL.artifacts))


def test_a_changed_row_is_written_again():
    lines = lockfile.Lines()
    lines.text(FULL)
    changed = replace(FULL, steps={**FULL.steps, "specify": StepRecord("ef")})

    assert lockfile.parse_lock(lines.text(changed), "doflow.lock").steps["specify"] == StepRecord("ef")


def test_each_row_is_one_line_so_that_git_merges_them():
    assert sum(line.startswith(b"  ") for line in text_of(FULL).splitlines()) == 6


def test_a_lock_that_a_person_reformatted_is_read_by_yaml():
    lines = text_of(FULL).decode().replace('run: "001-login"', "run: 001-login").replace("notes:\n", "notes: # mine\n")

    assert lockfile.parse_lock(lines.encode(), "doflow.lock") == FULL


def test_a_lock_of_0_1_0_is_read():
    lock = lockfile.parse_lock(OF_0_1_0, "doflow.lock")

    assert lock.steps["specify"].by == {"agent": "claude sonnet", "doflow": "0.1.0"}
    assert lock.artifacts == {"specs/001-login/spec.md": Artifact("3", "agent", "specify")}
    assert lock.params == {}


def test_a_step_of_a_newer_doflow_may_say_more():
    data = OF_0_1_0.replace(b'{"key": "ab",', b'{"key": "ab", "mood": "good",')

    assert lockfile.parse_lock(data, "doflow.lock").steps == lockfile.parse_lock(OF_0_1_0, "doflow.lock").steps


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"doflow: 1", b"doflow: 2"),
        (b"doflow: 1\n", b""),
        (b'"key": "ab", ', b""),
        (b'"key": "ab"', b'"key": 7'),
        (b'"author": "agent"', b'"author": "agent", "rights": "all"'),
        (b'"parts": {"step": "1"', b'"parts": {"step": ["1"]'),
        (b"notes: {}", b"notes: [1]"),
        (b'run: "001-login"', b'run: ["001"]'),
        (b'"specify": {', b'"specify": [{'),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name(old, new):
    with pytest.raises(WorldError) as caught:
        lockfile.parse_lock(OF_0_1_0.replace(old, new, 1), "specs/x/doflow.lock")

    assert "specs/x/doflow.lock" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("data", [b"", b"- a\n- b\n", b"\xff\xfe", b"[" * 10_000, b"text"])
def test_what_is_no_lock_at_all_is_refused(data):
    with pytest.raises(WorldError):
        lockfile.parse_lock(data, "doflow.lock")


def test_a_lock_cut_anywhere_is_refused_or_a_part_of_it():
    data = text_of(FULL)
    for end in range(0, len(data), 37):
        try:
            lock = lockfile.parse_lock(data[:end], "doflow.lock")
        except WorldError:
            continue
        assert lock.steps.items() <= FULL.steps.items()


def test_conflict_markers_are_known_and_refused():
    theirs = text_of(replace(FULL, branch="main"))
    data = b"<<<<<<< HEAD\n" + text_of(FULL) + b"=======\n" + theirs + b">>>>>>> main\n"

    assert lockfile.has_conflict(data)
    assert not lockfile.has_conflict(text_of(FULL))
    with pytest.raises(WorldError) as caught:
        lockfile.parse_lock(data, "doflow.lock")
    assert "conflict" in caught.value.message


def test_the_head_of_a_lock_is_enough_to_choose_a_run(tmp_path):
    path = tmp_path / lockfile.NAME
    path.write_bytes(text_of(FULL))

    assert lockfile.read_header(path) == {
        "run": "001-login", "flow": "feature", "goal": "9f86", "branch": "001-login", "issue": "#232", "variant": "lite",
        "params": {"size": "big"},
    }  # fmt: skip
    assert lockfile.read_lock(path) == FULL


@pytest.mark.parametrize("data", [b'run: "a"\nflow: {"x": 1}\n', b"run: a b\n", b'params: "x"\n'])
def test_a_head_that_is_not_ours_is_no_head(tmp_path, data):
    path = tmp_path / lockfile.NAME
    path.write_bytes(data)

    assert lockfile.read_header(path) == {}


def test_no_lock_is_none_and_a_folder_in_its_place_an_error(tmp_path):
    assert lockfile.read_lock(tmp_path / lockfile.NAME) is None
    assert lockfile.read_header(tmp_path / lockfile.NAME) == {}
    (tmp_path / lockfile.NAME).mkdir()
    with pytest.raises(WorldError):
        lockfile.read_lock(tmp_path / lockfile.NAME)
