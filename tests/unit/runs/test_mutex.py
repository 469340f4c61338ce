"""The run lock: one holder, and a descriptor that is lent proves itself."""

from __future__ import annotations

import os

import pytest

from doflow.runs import mutex
from doflow.runs.mutex import LENT, Holder
from doflow.util.errors import LockHeld


@pytest.fixture
def held(tmp_path):
    """A project whose lock is held."""
    mine = Holder(tmp_path, "doit")
    mine.take()
    yield tmp_path
    mine.release()


def test_the_descriptor_of_the_lock_is_known_while_it_is_held(tmp_path):
    mine = Holder(tmp_path, "doit")
    assert mutex.own_descriptor(tmp_path) == -1
    mine.take()
    assert os.path.samestat(os.fstat(mutex.own_descriptor(tmp_path)), os.stat(tmp_path))

    mine.release()

    assert (mutex.own_descriptor(tmp_path), mutex.is_held(tmp_path)) == (-1, False)


def test_a_lent_lock_is_taken_without_another_one_and_given_back_without_freeing_it(held, monkeypatch):
    monkeypatch.setenv(LENT, str(os.dup(mutex.own_descriptor(held))))

    child = Holder(held, "doit")
    child.take()
    child.sign()

    assert (LENT in os.environ, child.left, (held / ".doflow").exists()) == (False, 0.0, False)
    child.release()
    assert mutex.is_held(held)


@pytest.mark.parametrize("said", ["", "x", "-1", "99999", "²", "0"])
def test_a_made_up_descriptor_opens_nothing(held, monkeypatch, said):
    monkeypatch.setenv(LENT, said)

    with pytest.raises(LockHeld):
        Holder(held, "doit").take()


def test_a_descriptor_of_ones_own_to_the_same_folder_opens_nothing(held, monkeypatch):
    own = os.open(held, os.O_RDONLY)
    monkeypatch.setenv(LENT, str(own))

    with pytest.raises(LockHeld):
        Holder(held, "doit").take()

    os.close(own)
