"""Which refs that an agent moved are doflow's own."""

from __future__ import annotations

import pytest

from doflow.guard.git_control import MovedRef, own_refs

REMOVED = MovedRef("refs/doflow/runs/one", "a" * 40, "")
MOVED = MovedRef("refs/doflow/runs/one", "a" * 40, "b" * 40, "refs/doflow/undone/x")
BRANCH = MovedRef("refs/heads/main", "a" * 40, "")


@pytest.mark.parametrize(("shared", "own"), [(False, (REMOVED, MOVED)), (True, (REMOVED,))])
def test_a_moved_own_ref_counts_unless_another_work_tree_could_have_moved_it(shared, own):
    assert own_refs([REMOVED, MOVED, BRANCH], shared=shared) == own


def test_a_moved_ref_says_where_it_stood_and_where_its_new_place_is_kept():
    assert str(MOVED) == f"refs/doflow/runs/one ({'a' * 12} became {'b' * 12}, kept as refs/doflow/undone/x)"
    assert str(BRANCH) == f"refs/heads/main ({'a' * 12} became nothing)"
