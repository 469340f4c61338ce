"""A commit holds exactly what `git add` of the same paths would have stored, in every kind of repository."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from doflow.git import commit, head_reader, history
from doflow.git.repository import Repository
from doflow.util.errors import WorldError

NAMES = ("a", "a/b", "a/b/c", "a.b", "a-b/x", "d/e", "d/e/f", "z")
CHANGES = ("write", "executable", "link", "remove", "folder", "CRLF")
ODD_NAMES = (
    '"quoted"',
    "two\nlines",
    "back\\slash",
    "tab\there",
    "ünï",
    "-dash",
    ":(top)x",
    "*",
    "bad-\udcff",
    "d\n/x",
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Ann\n\temail = a@example.org\n")


@pytest.fixture
def top(tmp_path):
    return new_repository(tmp_path / "r")


def new_repository(place, *options):
    git(".", "init", "-q", "-b", "main", *options, str(place))
    for name in ("kept", "deep/er/kept", "deep/beside"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("kept\n")
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "first")
    return place


def git(place, *args, env=None):
    done = subprocess.run(
        ["git", "-C", str(place), *args], check=True, capture_output=True, env={**os.environ, **(env or {})}
    )
    return done.stdout.decode("utf-8", "surrogateescape").strip()


def commit_paths(place, *paths, repo=None, on_ready=lambda base, new: None):
    return commit.commit(repo or Repository(head_reader.find_head(place)), paths, "next\n", on_ready)


def expected_tree(place, paths):
    """What git's own index makes of these paths."""
    env = {"GIT_INDEX_FILE": str(place / ".git" / "expected.index")}
    git(place, "read-tree", "HEAD", env=env)
    for path in paths:
        whole = place / path
        behind_link = any(above.is_symlink() for above in whole.parents if above.is_relative_to(place))
        there = not behind_link and (whole.is_symlink() or whole.is_file())
        verb = ("--add", "--replace") if there else ("--force-remove",)
        git(place, "update-index", *verb, "--", path, env=env)
    return git(place, "write-tree", env=env)


def entries(place, rev="HEAD"):
    listed = git(place, "ls-tree", "-r", "-z", rev).split("\0")
    return {path: meta.split(" ")[0] for meta, _, path in (line.partition("\t") for line in listed) if path}


def change(place, name, kind, text):
    path = place / name
    for above in [path, *path.parents]:
        if above == place:
            break
        if above.is_symlink() or above.is_file():
            above.unlink()
    if path.is_dir():
        shutil.rmtree(path)
    if kind == "remove":
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
        (path / "inside").write_text(text)
    elif kind == "link":
        path.symlink_to(f"to-{text}")
    else:
        path.write_text(f"{text}\r\n" if kind == "CRLF" else f"{text}\n")
        path.chmod(0o755 if kind == "executable" else 0o644)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rounds=st.lists(
        st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(CHANGES), st.sampled_from("xyz")), min_size=1),
        min_size=1,
        max_size=4,
    ),
)
def test_it_is_the_tree_that_the_index_makes(top, rounds):
    git(top, "checkout", "-q", "-f", "main")
    git(top, "clean", "-q", "-fdx")
    repo = Repository(head_reader.find_head(top))
    for changes in rounds:
        for name, kind, text in changes:
            change(top, name, kind, text)
        paths = sorted({name for name, *_ in changes} | {f"{name}/inside" for name, *_ in changes})
        expected = expected_tree(top, paths)

        commit_paths(top, *paths, repo=repo)

        assert git(top, "rev-parse", "HEAD^{tree}") == expected
    git(top, "fsck", "--strict")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_committed_and_removed_again(top, name):
    before = entries(top)
    (top / name).parent.mkdir(exist_ok=True)
    (top / name).write_text("odd\n")
    commit_paths(top, name)
    made = entries(top)
    (top / name).unlink()

    commit_paths(top, name)

    assert made == before | {name: "100644"}
    assert entries(top) == before


def test_files_modes_links_and_deletions_are_exact(top):
    (top / "run").write_text("#!/bin/sh\n")
    (top / "run").chmod(0o755)
    (top / "link").symlink_to("kept")
    (top / "deep/er/kept").unlink()
    (top / "not-named").write_text("x\n")

    commit_paths(top, "run", "link", "deep/er/kept")

    assert entries(top) == {"run": "100755", "link": "120000", "kept": "100644", "deep/beside": "100644"}


def test_a_file_becomes_a_folder_and_a_folder_a_file(top):
    (top / "kept").unlink()
    (top / "kept").mkdir()
    (top / "kept/inside").write_text("x\n")
    shutil.rmtree(top / "deep")
    (top / "deep").write_text("x\n")

    commit_paths(top, "kept/inside", "deep")

    assert entries(top) == {"kept/inside": "100644", "deep": "100644"}


def test_a_folder_stays_when_a_file_of_its_name_is_said_to_be_gone(top):
    assert commit_paths(top, "deep") == ""
    assert set(entries(top)) == {"kept", "deep/er/kept", "deep/beside"}


def test_the_last_file_takes_its_folders_with_it(top):
    shutil.rmtree(top / "deep")

    commit_paths(top, "deep/er/kept", "deep/beside")

    assert git(top, "ls-tree", "--name-only", "HEAD") == "kept"


@pytest.mark.parametrize("base", [True, False], ids=["on a commit", "the first commit"])
def test_more_paths_than_a_command_line_holds(tmp_path, base):
    top = tmp_path / "r"
    new_repository(top) if base else git(".", "init", "-q", "-b", "main", str(top))
    names = [f"{'x' * 180}/{number}-{'y' * 180}" for number in range(1500)]
    (top / ("x" * 180)).mkdir()
    for name in names:
        (top / name).write_text("x\n")
    commit_paths(top, *names)
    for name in names:
        (top / name).write_text("y\n")

    commit_paths(top, *names)

    assert set(entries(top)) == {*names, *(("kept", "deep/er/kept", "deep/beside") if base else ())}


def test_stored_crlf_stays_under_automatic_line_endings(top):
    (top / "dos.txt").write_bytes(b"one\r\n")
    git(top, "add", "dos.txt")
    git(top, "commit", "-q", "-m", "dos")
    (top / ".gitattributes").write_text("* text=auto\n")
    (top / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    (top / "new.txt").write_bytes(b"one\r\n")

    commit_paths(top, "dos.txt", "new.txt", ".gitattributes")

    assert history.file_at(Repository(head_reader.find_head(top)), "HEAD", "dos.txt") == b"one\r\ntwo\r\n"
    assert history.file_at(Repository(head_reader.find_head(top)), "HEAD", "new.txt") == b"one\n"


def test_attributes_count_that_only_the_commit_holds(top):
    (top / "deep/.gitattributes").write_text("*.txt text\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "attributes")
    (top / "deep/.gitattributes").unlink()
    (top / "deep/er/new.txt").write_bytes(b"one\r\n")

    commit_paths(top, "deep/er/new.txt")

    assert history.file_at(Repository(head_reader.find_head(top)), "HEAD", "deep/er/new.txt") == b"one\n"


def test_a_filter_stores_what_it_makes_of_the_file(top):
    git(top, "config", "filter.lfs.clean", "tr a-z A-Z")
    git(top, "config", "filter.lfs.required", "true")
    (top / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    (top / "x.bin").write_text("large\n")

    commit_paths(top, "x.bin", ".gitattributes")

    assert history.file_at(Repository(head_reader.find_head(top)), "HEAD", "x.bin") == b"LARGE\n"
    assert git(top, "status", "--porcelain") == ""


def test_without_file_modes_the_stored_mode_stays(top):
    (top / "run").write_text("1\n")
    (top / "run").chmod(0o755)
    commit_paths(top, "run")
    git(top, "config", "core.fileMode", "false")
    (top / "run").write_text("2\n")
    (top / "run").chmod(0o644)
    (top / "new").write_text("2\n")
    (top / "new").chmod(0o755)

    commit_paths(top, "run", "new")

    assert {name: entries(top)[name] for name in ("run", "new")} == {"run": "100755", "new": "100644"}


def test_a_branch_that_moved_meanwhile_is_left_where_it_is(top):
    (top / "kept").write_text("ours\n")
    theirs = git(top, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "theirs")

    with pytest.raises(WorldError, match="HEAD moved from"):
        commit_paths(top, "kept", on_ready=lambda base, new: git(top, "update-ref", "refs/heads/main", theirs))

    assert git(top, "rev-parse", "main") == theirs


def test_a_branch_that_went_back_meanwhile_is_left_where_it_is(top):
    first = git(top, "rev-parse", "HEAD")
    (top / "kept").write_text("second\n")
    commit_paths(top, "kept")
    (top / "kept").write_text("third\n")

    with pytest.raises(WorldError, match="HEAD moved from"):
        commit_paths(top, "kept", on_ready=lambda base, new: git(top, "update-ref", "refs/heads/main", first))

    assert git(top, "rev-parse", "main") == first


def test_after_a_refused_commit_the_next_one_holds_only_its_own_paths(top):
    repo = Repository(head_reader.find_head(top))
    (top / "kept").write_text("x\n")
    (top / "deep/beside").write_text("x\n")

    def refuse(base, new):
        raise WorldError("no")

    with pytest.raises(WorldError, match="no"):
        commit_paths(top, "kept", repo=repo, on_ready=refuse)
    commit_paths(top, "deep/beside", repo=repo)

    assert git(top, "diff", "--name-only", "HEAD~1", "HEAD") == "deep/beside"


def test_a_commit_names_the_person_and_the_whole_message(top):
    (top / "kept").write_text("x\n")

    commit.commit(
        Repository(head_reader.find_head(top)), ["kept"], "Grüße\n\nDoflow-Run: 1\n\n\n", lambda base, new: None
    )

    whole = git(top, "cat-file", "commit", "HEAD")
    assert whole.split("\n\n", 1)[1] == "Grüße\n\nDoflow-Run: 1"
    assert git(top, "log", "-1", "--format=%an %ae %cn %ce") == "Ann a@example.org Ann a@example.org"
    assert git(top, "log", "-1", "-g", "--format=%gs") == "doflow: commit"


def test_no_ref_but_the_branch_is_written(top):
    (top / "kept").write_text("x\n")

    new = commit_paths(top, "kept")

    assert git(top, "for-each-ref", "--format=%(objectname) %(refname)") == f"{new} refs/heads/main"


def test_a_sha256_repository(tmp_path):
    top = new_repository(tmp_path / "r", "--object-format=sha256")
    repo = Repository(head_reader.find_head(top))
    for text in "12":
        (top / "deep/er/kept").write_text(text)
        new = commit_paths(top, "deep/er/kept", repo=repo)

    assert (len(new), new) == (64, git(top, "rev-parse", "HEAD"))
    git(top, "fsck", "--strict")


def test_a_linked_worktree_commits_to_its_own_branch(top, tmp_path):
    git(top, "worktree", "add", "-q", "-b", "side", str(tmp_path / "w"))
    (tmp_path / "w/kept").write_text("side\n")
    main = git(top, "rev-parse", "main")

    new = commit_paths(tmp_path / "w", "kept")

    assert (git(top, "rev-parse", "side"), git(top, "rev-parse", "main")) == (new, main)
    assert git(tmp_path / "w", "status", "--porcelain") == ""


@pytest.mark.parametrize("mode", ["--cone", "--no-cone"])
def test_a_sparse_checkout_keeps_what_is_not_checked_out(top, mode):
    (top / "other").mkdir()
    (top / "other/file").write_text("x\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "other")
    git(top, "sparse-checkout", "set", mode, "deep")
    (top / "deep/er/new").write_text("x\n")

    commit_paths(top, "deep/er/new")

    assert set(entries(top)) == {"kept", "deep/er/kept", "deep/beside", "other/file", "deep/er/new"}
    assert git(top, "status", "--porcelain") == ""
    assert not (top / "other").exists()


def test_what_the_person_staged_stays_staged(top):
    (top / "theirs").write_text("staged\n")
    (top / "kept").write_text("staged\n")
    git(top, "add", "theirs", "kept")
    (top / "kept").write_text("committed\n")
    (top / "deep/beside").write_text("committed\n")

    commit_paths(top, "kept", "deep/beside")

    assert git(top, "show", ":theirs") == "staged"
    assert git(top, "show", ":kept") == "staged"
    assert git(top, "show", "HEAD:kept") == "committed"
    assert git(top, "diff", "--cached", "--name-only") == "kept\ntheirs"


@pytest.mark.parametrize("odd", ["", "*.txt text eol=crlf\n"], ids=["plain", "with attributes"])
def test_a_commit_holds_what_git_finds_unchanged_in_the_work_tree(top, odd):
    (top / ".gitattributes").write_text(odd) if odd else None
    (top / "d").mkdir()
    for name in ("same.txt", "d/same.txt", "changed.txt", "gone.txt", "ü.txt"):
        (top / name).write_bytes(b"text\r\n" if odd else b"text\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "second")
    (top / "changed.txt").write_text("other\n")
    (top / "gone.txt").unlink()
    (top / "new.txt").write_text("new\n")
    (top / "link.txt").symlink_to("same.txt")
    repo = Repository(head_reader.find_head(str(top)))

    names = ("same.txt", "d/same.txt", "ü.txt", "changed.txt", "gone.txt", "new.txt", "link.txt", "d", "no/where")
    found = [name for name in names if history.is_committed(repo, git(top, "rev-parse", "HEAD"), name)]

    assert found == ["same.txt", "d/same.txt", "ü.txt"]
