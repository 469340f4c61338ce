"""A commit by plumbing: the paths that are named, on the branch that was there, or none."""

from __future__ import annotations

import os

import pytest
from tests.support.context import git, new_repository, write

from doflow.git import commit, head_reader
from doflow.git.repository import Repository
from doflow.util.errors import WorldError


@pytest.fixture
def top(tmp_path):
    write(tmp_path, "kept.txt", "kept\n")
    return new_repository(tmp_path)


def made(top, *paths, message="Next", **more):
    ready = more.pop("on_ready", lambda base, new: None)
    return commit.commit(more.pop("repo", None) or repository(top), paths, message, ready, **more)


def repository(top):
    return Repository(head_reader.find_head(top))


def head(top):
    return git(top, "rev-parse", "HEAD")


def test_only_the_named_paths_are_committed_and_the_index_follows(top):
    write(top, "a.txt", "a")
    write(top, "b.txt", "b")
    new = made(top, "a.txt")

    assert new == head(top)
    assert git(top, "show", "--name-status", "--format=", "HEAD") == "A\ta.txt"
    assert git(top, "status", "--porcelain") == "?? b.txt"


def test_what_the_person_staged_stays_staged(top):
    write(top, "mine.txt", "mine")
    write(top, "a.txt", "staged")
    git(top, "add", "mine.txt", "a.txt")
    write(top, "a.txt", "a")
    made(top, "a.txt")

    assert git(top, "diff", "--cached", "--name-only").splitlines() == ["a.txt", "mine.txt"]
    assert git(top, "show", ":a.txt") == "staged"
    assert git(top, "show", "HEAD:a.txt") == "a"


def test_a_deleted_file_is_committed_as_deleted(top):
    (top / "kept.txt").unlink()
    made(top, "kept.txt")

    assert git(top, "ls-tree", "--name-only", "HEAD") == ".gitignore"
    assert git(top, "status", "--porcelain") == ""


def test_nothing_new_is_no_commit(top):
    before = head(top)

    assert made(top, "kept.txt") == ""
    assert head(top) == before


def test_the_intent_is_told_before_the_branch_moves(top):
    before, seen = head(top), []
    write(top, "a.txt", "a")
    new = made(top, "a.txt", on_ready=lambda base, new: seen.append((base, new, head(top))))

    assert seen == [(before, new, before)]


def test_a_first_commit_has_no_parent(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "config", "user.name", "Ann")
    git(tmp_path, "config", "user.email", "ann@example.org")
    write(tmp_path, "a.txt", "a")
    made(tmp_path, "a.txt")

    assert git(tmp_path, "rev-list", "--count", "HEAD") == "1"


def test_a_branch_that_moved_meanwhile_gets_no_commit(top):
    write(top, "a.txt", "a")
    before = head(top)

    def ready(base, new):
        git(top, "commit", "-q", "--allow-empty", "-m", "Meanwhile")

    with pytest.raises(WorldError):
        made(top, "a.txt", on_ready=ready)
    assert git(top, "rev-parse", "HEAD~") == before
    with pytest.raises(WorldError):
        made(top, "a.txt", expect=before)
    assert made(top, "a.txt", expect=head(top))


def test_another_branch_than_at_the_start_gets_no_commit(top):
    repo = repository(top)
    git(top, "switch", "-q", "-c", "other")
    write(top, "a.txt", "a")

    with pytest.raises(WorldError):
        made(top, "a.txt", repo=repo)


def test_a_merge_in_progress_gets_no_commit(top):
    write(top, "a.txt", "a")
    write(top, ".git/MERGE_HEAD", head(top) + "\n")

    with pytest.raises(WorldError):
        made(top, "a.txt")


@pytest.mark.parametrize("path", ["", "../x", "a/../b", "./a", ".git/config", "a/.GIT/x", "a//b"])
def test_a_path_that_is_none_of_the_work_tree_is_refused(top, path):
    with pytest.raises(WorldError):
        made(top, path)


def test_a_nested_repository_and_a_pipe_are_refused(top):
    write(top, "inner/.git/HEAD", "ref: refs/heads/main\n")
    write(top, "inner/a.txt", "a")
    os.mkfifo(top / "pipe")

    for path in ("inner/a.txt", "inner", "pipe"):
        with pytest.raises(WorldError):
            made(top, path)


def test_hooks_see_what_is_to_be_committed_and_may_change_the_message(top):
    write(top, "a.txt", "a")
    seen = []

    def verify(index, message):
        seen.append(os.path.exists(index))
        return message + " indeed"

    made(top, "a.txt", verify=verify)

    assert seen == [True]
    assert git(top, "log", "-1", "--format=%s") == "Next indeed"


def test_a_hook_that_refuses_leaves_everything_as_it_was(top):
    write(top, "a.txt", "a")
    before = head(top)

    def verify(index, message):
        raise WorldError("no")

    with pytest.raises(WorldError):
        made(top, "a.txt", verify=verify)
    assert head(top) == before


def test_a_message_with_odd_characters_is_kept_as_far_as_git_can(top):
    write(top, "a.txt", "a")
    made(top, "a.txt", message="Grüße\0\udcff\n\n\n")

    assert git(top, "log", "-1", "--format=%s").startswith("Grüße")


def test_a_commit_is_adopted_when_it_is_in_the_history(top):
    before = head(top)
    write(top, "a.txt", "a")
    new = made(top, "a.txt")
    repo = repository(top)

    assert commit.is_adopted(repo, before, new)
    git(top, "commit", "-q", "--allow-empty", "-m", "Later")
    assert commit.is_adopted(repo, before, new)
    git(top, "reset", "-q", "--hard", before)
    assert not commit.is_adopted(repo, before, new)
    assert not commit.is_adopted(repo, before, "")
    assert not commit.is_adopted(repo, before, before)


def test_after_a_crash_the_index_follows_the_commit(top):
    before = head(top)
    write(top, "a.txt", "a")
    new = made(top, "a.txt")
    git(top, "read-tree", before)
    assert git(top, "status", "--porcelain") != ""

    assert commit.is_adopted(repository(top), before, new)
    assert git(top, "status", "--porcelain") == ""
