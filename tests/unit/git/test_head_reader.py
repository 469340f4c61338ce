"""repo.look: where a project stands, from git's own files; compared with what git itself says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from doflow.git import head_reader, refs
from doflow.git.refs import identity, make_branch, switch_branch
from doflow.git.repository import Repository
from doflow.util.errors import WorldError

CONFIG = "[user]\n\tname = Ann\n\temail = ann@example.org\n[init]\n\tdefaultBranch = main\n"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (folder / ".gitconfig").write_text(CONFIG)
    return folder


def git(where, *args, check=True):
    done = subprocess.run(["git", "-C", str(where), *args], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


def repository(path, *options, commits=1):
    path.mkdir(parents=True, exist_ok=True)
    git(path, "init", "-q", *options)
    for number in range(commits):
        (path / "a.txt").write_text(f"{number}\n")
        git(path, "add", "a.txt")
        git(path, "commit", "-q", "-m", f"c{number}")
    return path


def test_a_fresh_repository_is_seen_as_git_sees_it(tmp_path):
    top = repository(tmp_path / "r")

    head = head_reader.find_head(top)

    assert (head.root, head.top) == (str(top), str(top))
    assert (head.git_dir, head.common_dir) == (str(top / ".git"), str(top / ".git"))
    assert (head.ref, head.branch, head.commit) == ("refs/heads/main", "main", git(top, "rev-parse", "HEAD"))
    assert head_reader.commit_obstacle(head) == ""


def test_a_sub_folder_finds_the_work_tree_above(tmp_path):
    top = repository(tmp_path / "r")
    (top / "apps" / "shop").mkdir(parents=True)

    head = head_reader.find_head(top / "apps" / "shop")

    assert (head.root, head.top) == (str(top / "apps/shop"), str(top))


def test_packed_refs_and_deep_branch_names_resolve(tmp_path):
    top = repository(tmp_path / "r")
    git(top, "switch", "-q", "-c", "feature/deep/one")
    git(top, "pack-refs", "--all")

    head = head_reader.find_head(top)

    assert (head.branch, head.commit) == ("feature/deep/one", git(top, "rev-parse", "HEAD"))
    assert refs.commit_of(head, "refs/heads/main") == head.commit
    assert refs.commit_of(head, "refs/heads/none") == ""
    assert refs.commit_of(head, "refs/heads/../../config") == ""


def test_a_loose_ref_wins_over_a_packed_one(tmp_path):
    top = repository(tmp_path / "r")
    git(top, "pack-refs", "--all")
    (top / "a.txt").write_text("again\n")
    git(top, "commit", "-q", "-am", "more")

    assert head_reader.find_head(top).commit == git(top, "rev-parse", "HEAD")


def test_an_unborn_branch_has_no_commit(tmp_path):
    head = head_reader.find_head(repository(tmp_path / "r", commits=0))

    assert (head.branch, head.commit, head_reader.commit_obstacle(head)) == ("main", "", "")


def test_a_detached_head_is_told_with_the_way_out(tmp_path):
    top = repository(tmp_path / "r")
    git(top, "checkout", "-q", "--detach")

    head = head_reader.find_head(top)

    assert (head.ref, head.branch, head.commit) == ("", "", git(top, "rev-parse", "HEAD"))
    assert "git switch -c" in head_reader.commit_obstacle(head)


def test_a_sha256_repository_has_long_ids(tmp_path):
    head = head_reader.find_head(repository(tmp_path / "r", "--object-format=sha256"))

    assert len(head.commit) == 64


def test_a_linked_worktree_knows_its_own_and_the_common_folder(tmp_path):
    top = repository(tmp_path / "r")
    git(top, "worktree", "add", "-q", "-b", "side", str(tmp_path / "w"))

    head = head_reader.find_head(tmp_path / "w")

    assert (head.top, head.branch) == (str(tmp_path / "w"), "side")
    assert head.git_dir == str(top / ".git/worktrees/w")
    assert head.common_dir == str(top / ".git")


def test_a_submodule_is_a_repository_of_its_own(tmp_path):
    inner = repository(tmp_path / "inner")
    outer = repository(tmp_path / "outer")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "lib")

    head = head_reader.find_head(outer / "lib")

    assert (head.top, head.git_dir) == (str(outer / "lib"), str(outer / ".git/modules/lib"))
    assert head.commit == git(inner, "rev-parse", "HEAD")


def test_no_repository_says_git_init(tmp_path):
    (tmp_path / "plain").mkdir()

    with pytest.raises(WorldError, match="not in a git repository") as caught:
        head_reader.find_head(tmp_path / "plain")

    assert "init" in caught.value.hint


def test_the_search_stops_at_the_ceiling(tmp_path, monkeypatch):
    top = repository(tmp_path / "r")
    (top / "a" / "b").mkdir(parents=True)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(top / "a"))

    with pytest.raises(WorldError, match="not in a git repository"):
        head_reader.find_head(top / "a" / "b")


@pytest.mark.parametrize("place", [".", ".git", "objects"])
def test_a_bare_repository_and_the_inside_of_one_are_refused(tmp_path, place):
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    top = repository(tmp_path / "r")
    where = {".": bare, ".git": top / ".git", "objects": bare / "objects"}[place]

    with pytest.raises(WorldError, match="bare"):
        head_reader.find_head(where)


def test_a_work_tree_marked_bare_is_refused(tmp_path):
    top = repository(tmp_path / "r")
    git(top, "config", "core.bare", "true")

    with pytest.raises(WorldError, match="bare"):
        head_reader.find_head(top)


def test_a_work_tree_elsewhere_is_refused(tmp_path):
    top = repository(tmp_path / "r")
    (tmp_path / "other").mkdir()
    git(top, "config", "core.worktree", str(tmp_path / "other"))

    with pytest.raises(WorldError, match="working tree"):
        head_reader.find_head(top)


@pytest.mark.parametrize("text", ["", "garbage\n", "ref: nowhere\n", "ref: refs/../../x\n", "abc123\n"])
def test_a_head_of_garbage_is_refused(tmp_path, text):
    top = repository(tmp_path / "r")
    (top / ".git" / "HEAD").write_text(text)

    with pytest.raises(WorldError, match="broken"):
        head_reader.find_head(top)


def test_a_branch_file_of_garbage_is_refused(tmp_path):
    top = repository(tmp_path / "r")
    (top / ".git/refs/heads/main").write_text("\0\0\0")

    with pytest.raises(WorldError, match="broken"):
        head_reader.find_head(top)


@pytest.mark.parametrize("dot", ["empty folder", "nonsense file", "pointer to nothing", "dangling link", "pipe"])
def test_a_broken_dot_git_is_refused(tmp_path, dot):
    top = tmp_path / "r"
    top.mkdir()
    if dot == "empty folder":
        (top / ".git").mkdir()
    elif dot == "nonsense file":
        (top / ".git").write_text("hello\n")
    elif dot == "pointer to nothing":
        (top / ".git").write_text("gitdir: ../nothing\n")
    elif dot == "dangling link":
        (top / ".git").symlink_to("nothing")
    else:
        os.mkfifo(top / ".git")

    with pytest.raises(WorldError, match="is broken"):
        head_reader.find_head(top)


def conflict(tmp_path):
    top = repository(tmp_path / "r")
    git(top, "switch", "-q", "-c", "side")
    (top / "a.txt").write_text("side\n")
    git(top, "commit", "-q", "-am", "side")
    git(top, "switch", "-q", "main")
    (top / "a.txt").write_text("main\n")
    git(top, "commit", "-q", "-am", "main")
    return top


@pytest.mark.parametrize(
    ("deed", "word"),
    [
        (("merge", "side"), "a merge"),
        (("rebase", "side"), "a rebase"),
        (("rebase", "--apply", "side"), "a rebase"),
        (("cherry-pick", "side"), "a cherry-pick"),
        (("revert", "--no-edit", "HEAD~1"), "a revert"),
        (("bisect", "start"), "a bisect"),
    ],
)
def test_an_operation_in_progress_is_named_with_the_way_to_end_it(tmp_path, deed, word):
    top = conflict(tmp_path)
    git(top, *deed, check=False)

    said = head_reader.commit_obstacle(head_reader.find_head(top))

    assert said.startswith(f"{word}") and "in progress" in said and "git " in said


@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock", "refs/heads/main.lock"])
def test_a_lock_file_is_named_and_left_alone(tmp_path, lock):
    top = repository(tmp_path / "r")
    (top / ".git" / lock).touch()

    said = head_reader.commit_obstacle(head_reader.find_head(top))

    assert str(top / ".git" / lock) in said
    assert (top / ".git" / lock).exists()


def test_branches_are_local_and_remote_loose_and_packed(tmp_path):
    origin = repository(tmp_path / "origin")
    git(origin, "branch", "theirs/deep")
    git(tmp_path, "clone", "-q", str(origin), str(tmp_path / "r"))
    top = tmp_path / "r"
    git(top, "branch", "packed")
    git(top, "pack-refs", "--all")
    git(top, "branch", "loose/one")

    assert refs.branch_names(head_reader.find_head(top)) == {"main", "theirs/deep", "packed", "loose/one"}


def test_looking_starts_no_process_and_imports_no_library(tmp_path):
    top = repository(tmp_path / "r")
    program = (
        "import os, sys\n"
        "def refuse(event, args):\n"
        "    assert event not in ('subprocess.Popen', 'os.exec', 'os.posix_spawn', 'os.fork'), event\n"
        "sys.addaudithook(refuse)\n"
        "from doflow.git import head_reader\n"
        "head = head_reader.find_head(sys.argv[1]); head_reader.commit_obstacle(head)\n"
        "print(sorted({'git', 'yaml'} & set(sys.modules)))\n"
    )

    said = subprocess.run([sys.executable, "-c", program, str(top)], capture_output=True, text=True, check=False)

    assert (said.stdout.strip(), said.stderr) == ("[]", "")


def test_the_identity_is_the_configured_one_and_never_invented(tmp_path, home):
    head = head_reader.find_head(repository(tmp_path / "r"))
    told = identity(head)
    (home / ".gitconfig").write_text("")

    assert (told, identity(head)) == ("Ann <ann@example.org>", "")


def test_a_committer_from_the_environment_without_an_author_is_no_identity(tmp_path, home, monkeypatch):
    head = head_reader.find_head(repository(tmp_path / "r"))
    (home / ".gitconfig").write_text("")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Bob")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "bob@example.org")
    alone = identity(head)
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Bob")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "bob@example.org")

    assert (alone, identity(head)) == ("", "Bob <bob@example.org>")


def test_a_new_branch_is_checked_out_and_touches_nothing_else(tmp_path):
    top = repository(tmp_path / "r")
    (top / "a.txt").write_text("edited\n")
    (top / "b.txt").write_text("staged\n")
    git(top, "add", "b.txt")
    before = git(top, "status", "--porcelain")

    head = make_branch(head_reader.find_head(top), "login-link", git(top, "rev-parse", "HEAD"))

    assert (head.branch, git(top, "branch", "--show-current")) == ("login-link", "login-link")
    assert git(top, "status", "--porcelain") == before
    assert git(top, "rev-parse", "login-link") == git(top, "rev-parse", "main")


def test_a_new_branch_before_the_first_commit_renames_what_is_to_come(tmp_path):
    top = repository(tmp_path / "r", commits=0)

    head = make_branch(head_reader.find_head(top), "first", "")

    assert (head.branch, head.commit, git(top, "symbolic-ref", "HEAD")) == ("first", "", "refs/heads/first")


@pytest.mark.parametrize("name", ["main", "-x", "a..b", "has space", "a/", "x.lock", "main/below", ""])
def test_a_branch_that_exists_or_cannot_be_is_refused(tmp_path, name):
    top = repository(tmp_path / "r")

    with pytest.raises(WorldError):
        make_branch(head_reader.find_head(top), name, "")

    assert git(top, "symbolic-ref", "HEAD") == "refs/heads/main"


def test_switching_works_only_where_no_file_changes(tmp_path):
    top = repository(tmp_path / "r")
    git(top, "branch", "same")
    git(top, "branch", "older")
    (top / "a.txt").write_text("new\n")
    git(top, "commit", "-q", "-am", "new")
    git(top, "branch", "-f", "same")
    head = head_reader.find_head(top)

    switched = switch_branch(head, "same")

    assert switched.branch == "same"
    with pytest.raises(WorldError) as caught:
        switch_branch(switched, "older")
    assert caught.value.hint == "switch to it: git switch older"


def test_a_git_inside_the_project_is_never_run(tmp_path, monkeypatch):
    top = repository(tmp_path / "r")
    (top / "bin").mkdir()
    (top / "bin" / "git").write_text("#!/bin/sh\ntouch canary\n")
    (top / "bin" / "git").chmod(0o755)
    monkeypatch.chdir(top)
    monkeypatch.setenv("PATH", f"bin:{top / 'bin'}::{os.environ['PATH']}")

    out = Repository(head_reader.find_head(top)).run("rev-parse", "HEAD")

    assert out.decode().strip() == head_reader.find_head(top).commit
    assert not (top / "canary").exists()


def test_variables_of_a_surrounding_git_do_not_redirect_ours(tmp_path, monkeypatch):
    top = repository(tmp_path / "r")
    other = repository(tmp_path / "other", commits=2)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))

    out = Repository(head_reader.find_head(top)).run("rev-parse", "HEAD")

    assert out.decode().strip() == (top / ".git/refs/heads/main").read_text().strip()


def test_a_repository_of_someone_else_is_left_to_git_to_judge(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can give a repository away")
    top = repository(tmp_path / "r")
    subprocess.run(["chown", "-R", "65534", str(top)], check=True)

    with pytest.raises(WorldError, match="dubious ownership") as caught:
        head_reader.find_head(top)

    assert "safe.directory" in caught.value.hint
    git(tmp_path, "config", "--global", "--add", "safe.directory", str(top))
    assert head_reader.find_head(top).branch == "main"
