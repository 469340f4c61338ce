"""Locks: who gets one, who holds it, and how a child process goes on with its parent's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from doflow.util import locks


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.lock")


def test_a_lock_has_one_holder_until_its_descriptor_is_closed(path: str) -> None:
    fd = locks.lock_file(path)
    assert (locks.is_held(path), locks.lock_file(path), locks.lock_file(path, shared=True)) == (True, -1, -1)

    os.close(fd)

    assert not locks.is_held(path)
    os.close(locks.lock_file(path))


def test_a_shared_lock_has_many_holders_and_keeps_an_exclusive_one_away(path: str) -> None:
    first, second = locks.lock_file(path, shared=True), locks.lock_file(path, shared=True)

    assert min(first, second) >= 0
    assert locks.lock_file(path) == -1
    os.close(first)
    assert locks.lock_file(path) == -1
    os.close(second)
    os.close(locks.lock_file(path))


def test_a_folder_is_locked_like_a_file(tmp_path: Path) -> None:
    fd = locks.lock_folder(tmp_path)

    assert (locks.is_held(tmp_path), locks.lock_folder(tmp_path)) == (True, -1)
    os.close(fd)
    assert not locks.is_held(tmp_path)


def test_a_link_in_place_of_the_lock_file_is_refused(path: str, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("kept")
    os.symlink("target", path)

    with pytest.raises(OSError):
        locks.lock_file(path)

    assert (tmp_path / "target").read_text() == "kept"


def test_no_one_holds_what_does_not_exist(path: str) -> None:
    assert (locks.is_held(path), locks.holder_pid(path), locks.read_pid(path)) == (False, 0, 0)


def test_the_lock_file_says_which_process_holds_it(path: str) -> None:
    fd = locks.lock_file(path)
    assert locks.holder_pid(path) == -1

    locks.write_pid(fd)
    assert locks.holder_pid(path) == os.getpid()

    os.close(fd)
    assert (locks.holder_pid(path), locks.read_pid(path)) == (0, os.getpid())


@pytest.mark.parametrize("text", ["", "x", "²", "-5", "1 2"])
def test_nonsense_in_a_lock_file_is_no_process(path: str, text: str) -> None:
    Path(path).write_text(text, encoding="utf-8")

    assert locks.read_pid(path) == 0


def test_the_holder_says_its_pid_command_and_time(path: str) -> None:
    locks.write_holder(path, "doit feature")

    words = locks.read_holder(path)

    assert (words["pid"], words["command"], sorted(words)) == (
        os.getpid(),
        "doit feature",
        ["command", "pid", "since"],
    )


@pytest.mark.parametrize("text", [None, "", "[1]", "{", "\udcff"])
def test_a_holder_that_cannot_be_read_is_unknown(path: str, text: str | None) -> None:
    if text is not None:
        Path(path).write_text(text, encoding="utf-8", errors="surrogateescape")

    assert locks.read_holder(path) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/locks")
def test_linux_knows_the_holder(path: str) -> None:
    fd = locks.lock_file(path)
    assert locks.holder_from_kernel(path) in (os.getpid(), 0)  # 0: a container may hide it

    os.close(fd)

    assert locks.holder_from_kernel(path) == 0


def test_a_file_that_was_replaced_is_not_the_current_one(path: str) -> None:
    fd = locks.lock_file(path)
    assert locks.is_current(fd, path)

    os.unlink(path)
    assert not locks.is_current(fd, path)
    Path(path).touch()
    assert not locks.is_current(fd, path)

    os.close(fd)


def test_a_descriptor_that_holds_the_lock_is_adopted(tmp_path: Path) -> None:
    fd = locks.lock_folder(tmp_path)
    copy = os.dup(fd)
    os.set_inheritable(copy, True)

    assert locks.adopt(copy, tmp_path)

    assert not os.get_inheritable(copy)
    os.close(copy)
    assert locks.is_held(tmp_path), "the parent's descriptor still holds it"
    os.close(fd)


def test_no_other_descriptor_is_adopted(tmp_path: Path) -> None:
    fd = locks.lock_folder(tmp_path)
    (tmp_path / "below").mkdir()
    own, other = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path / "below", os.O_RDONLY)

    assert [locks.adopt(one, tmp_path) for one in (own, other, 99999)] == [False, False, False]

    for one in (fd, own, other):
        os.close(one)


def test_the_lock_of_a_killed_process_is_free(path: str) -> None:
    code = (
        "import sys, time; from doflow.util import locks; fd = locks.lock_file(sys.argv[1]); locks.write_pid(fd); "
        "print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen((sys.executable, "-c", code, path), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        assert locks.holder_pid(path) == child.pid
        child.kill()

    assert locks.holder_pid(path) == 0
