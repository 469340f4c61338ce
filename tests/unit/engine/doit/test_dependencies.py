"""What doit is told about files: its checker leaves our steps to their key, its memory keeps no second record of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from doit.dependency import CHECKERS, JSONCodec

from doflow.engine.doit.backend import FORGOTTEN, Backend
from doflow.engine.doit.dependencies import FileState, Judgement, checker


@pytest.mark.parametrize("name", sorted(CHECKERS))
def test_a_checker_keeps_its_name_and_judges_other_files_as_before(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    made = checker(name)()

    state = made.get_state(str(path), None)
    assert (type(made).__name__, state) == (CHECKERS[name].__name__, CHECKERS[name]().get_state(str(path), None))
    assert not made.check_modified(str(path), os.stat(path), state)
    path.write_text("another")
    os.utime(path, (1, 1))
    assert made.check_modified(str(path), os.stat(path), state)


def test_the_state_of_our_files_is_compared_and_not_written_down() -> None:
    made = checker("md5")()

    assert made.check_modified("no/such/file", None, FileState("a", "b"))
    assert not made.check_modified("no/such/file", None, FileState("a", "a"))
    assert made.get_state("no/such/file", FileState("a", "b")) is None


def test_a_checker_that_does_not_exist_is_left_to_doit() -> None:
    assert checker("nosuch") == "nosuch"


@pytest.fixture
def memory(tmp_path: Path) -> Backend:
    return Backend(str(tmp_path / "state.db"), JSONCodec())


def test_of_a_stale_step_doit_hears_what_was_recorded_and_what_is_there(memory: Backend) -> None:
    memory.judged("f:s", Judgement(("changed",), frozenset({"a"}), {"a": "1", "gone": "2"}, {"a": "3", "new": "4"}))

    assert memory.get("f:s", "deps:") == ("a", "gone")
    assert (memory.get("f:s", "a"), memory.get("f:s", "new")) == (FileState("1", "3"), None)
    assert memory.get("f:s", "checker:") is None


def test_of_a_step_that_is_up_to_date_no_file_has_changed(memory: Backend) -> None:
    memory.judged("f:s", Judgement((), frozenset({"a"})))

    assert memory.get("f:s", "deps:") is None
    assert memory.get("f:s", "a") == FileState("", "")


def test_of_a_step_that_was_never_done_every_file_is_new(memory: Backend) -> None:
    memory.judged("f:s", Judgement(("not run yet",)))

    assert (memory.get("f:s", "deps:"), memory.get("f:s", "a")) == (None, None)


def test_values_are_kept_and_file_states_of_our_steps_are_not(memory: Backend, tmp_path: Path) -> None:
    memory.judged("f:s", Judgement())
    for task in ("f:s", "own"):
        for name, value in {"_values_:": {"x": 1}, "checker:": "MD5Checker", "a": "state", "deps:": ["a"]}.items():
            memory.set(task, name, value)
    memory.dump()

    again = Backend(str(tmp_path / "state.db"), JSONCodec())
    names = ("_values_:", "checker:", "a", "deps:")
    assert [again.get("f:s", name) for name in names] == [{"x": 1}, None, None, None]
    assert [again.get("own", name) for name in names] == [{"x": 1}, "MD5Checker", "state", ["a"]]


def test_a_forgotten_step_is_known_as_such_until_it_is_done_again(memory: Backend) -> None:
    memory.judged("f:s", Judgement())
    memory.remove("f:s")
    assert (memory.get("f:s", FORGOTTEN), memory.in_("f:s")) == (True, False)

    memory.set("f:s", "_values_:", {})

    assert (memory.get("f:s", FORGOTTEN), memory.in_("f:s")) == (None, True)
