"""A person's uncommitted work, and what is read of a repository's history and files."""

from __future__ import annotations

import os

import pytest
from tests.support.git_repository import done, git, repository

from doflow.git import head_reader, history, uncommitted_work
from doflow.git.repository import Repository
from doflow.util.errors import WorldError


@pytest.mark.smoke
def test_uncommitted_work_is_kept_under_a_ref_and_nothing_is_touched(top):
    (top / ".gitignore").write_text("*.log\n")
    (top / "a.txt").write_text("staged\n")
    git(top, "add", "a.txt")
    (top / "a.txt").write_text("edited\n")
    (top / "b.txt").unlink()
    (top / "untracked.txt").write_text("mine\n")
    (top / "noise.log").write_text("noise\n")
    git(top, "update-index", "--assume-unchanged", "src/c.txt")
    (top / "src/c.txt").write_text("hidden\n")
    repository(top / "nested")
    status, index = git(top, "status", "--porcelain"), (top / ".git/index").read_bytes()

    kept = uncommitted_work.keep_work(Repository(head_reader.find_head(top)), "001-login/plan.1")

    assert git(top, "rev-parse", "refs/doflow/wip/001-login/plan.1") == kept
    assert (git(top, "status", "--porcelain"), (top / ".git/index").read_bytes()) == (status, index)
    assert set(git(top, "ls-tree", "-r", "--name-only", kept).splitlines()) == {
        ".gitignore", "a.txt", "src/c.txt", "untracked.txt",
    }  # fmt: skip
    assert git(top, "show", f"{kept}:a.txt") == "edited"
    assert git(top, "show", f"{kept}:src/c.txt") == "hidden"
    assert git(top, "show", f"{kept}^2:a.txt") == "staged"
    git(top, "fsck", "--strict")


def test_work_is_kept_when_files_became_folders_and_folders_links(top):
    (top / "a.txt").unlink()
    (top / "a.txt").mkdir()
    (top / "a.txt" / "inner").write_text("x\n")
    (top / "real").mkdir()
    (top / "real" / "c.txt").write_text("elsewhere\n")
    (top / "src" / "c.txt").unlink()
    (top / "src").rmdir()
    (top / "src").symlink_to("real")
    os.mkfifo(top / "pipe")

    kept = uncommitted_work.keep_work(Repository(head_reader.find_head(top)), "x")

    listed = git(top, "ls-tree", "-r", "--name-only", kept).splitlines()
    assert listed == ["a.txt/inner", "b.txt", "real/c.txt", "src"]


def test_with_nothing_to_keep_the_ref_holds_head(top):
    kept = uncommitted_work.keep_work(Repository(head_reader.find_head(top)), "x")

    assert kept == head_reader.find_head(top).commit == git(top, "rev-parse", "refs/doflow/wip/x")


def test_work_is_kept_again_and_again_without_losing_track(top):
    repo = Repository(head_reader.find_head(top))
    (top / "new.txt").write_text("1\n")
    first = uncommitted_work.keep_work(repo, "one")
    (top / "new.txt").unlink()
    (top / "a.txt").write_text("2\n")
    second = uncommitted_work.keep_work(repo, "two")
    git(top, "checkout", "-q", "a.txt")
    third = uncommitted_work.keep_work(repo, "three")

    assert "new.txt" in git(top, "ls-tree", "--name-only", first)
    assert "new.txt" not in git(top, "ls-tree", "--name-only", second)
    assert git(top, "show", f"{second}:a.txt") == "2"
    assert third == head_reader.find_head(top).commit


@pytest.mark.smoke
def test_work_before_the_first_commit_is_kept_without_an_identity(tmp_path, home):
    top = tmp_path / "r"
    top.mkdir()
    git(top, "init", "-q")
    (home / ".gitconfig").write_text("")
    (top / "x").write_text("x\n")

    kept = uncommitted_work.keep_work(Repository(head_reader.find_head(top)), "x")

    assert git(top, "show", f"{kept}:x") == "x"


@pytest.mark.smoke
def test_the_history_of_a_run_is_read_from_its_trailers(top):
    (top / "a.txt").write_text("1\n")
    first = done(top, "a.txt")
    (top / "a.txt").write_text("2\n")
    done(top, "a.txt", message="other\n\nDoflow-Run: 001-login-more\nDoflow-Step: plan\n")
    (top / "a.txt").write_text("3\n")
    last = done(top, "a.txt", message="Phase 2: x\n\nbody\n\nDoflow-Run: 001-login\nDoflow-Phase: 2\n")
    git(top, "commit", "-q", "--allow-empty", "-m", "mentions Doflow-Run: 001-login in its subject")

    found = history.run_commits(Repository(head_reader.find_head(top)), "001-login")

    assert [(entry["id"], entry["subject"]) for entry in found] == [(last, "Phase 2: x"), (first, "plan: plan.md")]
    assert (found[0]["Doflow-Phase"], found[1]["Doflow-Step"], found[1]["Doflow-Key"]) == ("2", "plan", "abc")
    assert "Doflow-Step" not in found[0]


def test_files_of_a_commit_are_shown_or_absent(top):
    repo = Repository(head_reader.find_head(top))

    assert history.file_at(repo, "HEAD", "src/c.txt") == b"src/c.txt\n"
    assert history.file_at(repo, "HEAD", "none") is None
    assert history.file_at(repo, "nobranch", "a.txt") is None
    with pytest.raises(WorldError):
        history.file_at(repo, "--help", "a.txt")


@pytest.mark.smoke
def test_dirty_files_are_found_whatever_marks_hide_them(top):
    for mark, name in (("--assume-unchanged", "a.txt"), ("--skip-worktree", "b.txt")):
        git(top, "update-index", mark, name)
        (top / name).write_text("hidden\n")
    (top / "untracked").write_text("x\n")
    (top / "added").write_text("x\n")
    git(top, "add", "added")
    (top / "src/c.txt").write_text("excluded\n")

    assert git(top, "status", "--porcelain", "a.txt", "b.txt") == ""
    assert history.dirty_files(Repository(head_reader.find_head(top)), ("src",)) == ("a.txt", "added", "b.txt")


def test_a_touched_but_equal_file_is_clean_and_a_deleted_one_is_not(top):
    repo = Repository(head_reader.find_head(top))
    os.utime(top / "a.txt", (1, 1))
    clean = history.dirty_files(repo)
    (top / "b.txt").unlink()

    assert (clean, history.dirty_files(repo)) == ((), ("b.txt",))


def test_dirty_and_ignored_speak_of_the_project_below_its_root_only(top):
    shop = top / "apps" / "shop"
    shop.mkdir(parents=True)
    (shop / "x").write_text("x\n")
    (top / ".gitignore").write_text("*.log\nbuild/\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "shop")
    (shop / "x").write_text("changed\n")
    (top / "a.txt").write_text("changed\n")
    (top / "top.log").touch()
    (shop / "build").mkdir()
    (shop / "build" / "out").touch()
    (shop / "deep").mkdir()
    (shop / "deep" / "y.log").touch()
    (shop / "deep" / "kept").touch()
    repo = Repository(head_reader.find_head(shop))

    assert history.dirty_files(repo) == ("x",)
    assert history.ignored_files(repo) == ("build/", "deep/y.log")
    assert set(history.list_blobs(repo, head_reader.find_head(shop).commit)) == {"x"}


def test_blobs_name_what_git_holds(top):
    repo = Repository(head_reader.find_head(top))

    held = history.list_blobs(repo, head_reader.find_head(top).commit)

    assert set(held) == {"a.txt", "b.txt", "src/c.txt"}
    assert held["a.txt"][0] == "100644"
    assert history.read_blob(repo, held["a.txt"][1]) == b"a.txt\n"
    assert history.list_blobs(repo, "") == {}


def test_config_given_by_the_environment_still_counts(top, home, monkeypatch):
    (home / ".gitconfig").write_text("")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "2")
    for number, (key, value) in enumerate((("user.name", "Env"), ("user.email", "env@example.org"))):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    (top / "a.txt").write_text("x\n")

    done(top, "a.txt")

    assert git(top, "log", "-1", "--format=%an") == "Env"
