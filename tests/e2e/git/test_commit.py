"""Committing by plumbing: exactly the named paths, and the person's work stays as it was."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest
from tests.support.git_repository import MESSAGE, done, git, names, refused, repository

from doflow.git import commit, head_reader
from doflow.git.repository import Repository
from doflow.util.errors import WorldError


@pytest.mark.smoke
def test_exactly_the_named_paths_are_committed(top):
    (top / "a.txt").write_text("changed\n")
    (top / "b.txt").unlink()
    (top / "specs").mkdir()
    (top / "specs" / "plan.md").write_text("plan\n")
    (top / "other.txt").write_text("not named\n")

    new = done(top, "a.txt", "b.txt", "specs/plan.md")

    assert names(top) == ["M\ta.txt", "D\tb.txt", "A\tspecs/plan.md"]
    assert git(top, "status", "--porcelain") == "?? other.txt"
    assert git(top, "log", "-1", "--format=%an <%ae>|%cn|%s") == "Ann <ann@example.org>|Ann|plan: plan.md"
    assert git(top, "rev-parse", "HEAD") == new


@pytest.mark.smoke
def test_an_unchanged_tree_makes_no_commit(top):
    before = head_reader.find_head(top).commit

    assert done(top, "a.txt", "never-there.txt") == ""
    assert head_reader.find_head(top).commit == before


@pytest.mark.smoke
def test_staged_unstaged_and_untracked_work_of_the_person_stays_exactly_as_it_was(top):
    (top / "a.txt").write_text("staged\n")
    git(top, "add", "a.txt")
    (top / "a.txt").write_text("staged and edited again\n")
    (top / "new.txt").write_text("staged new\n")
    git(top, "add", "new.txt")
    git(top, "rm", "-q", "--cached", "src/c.txt")
    (top / "untracked.txt").write_text("mine\n")
    (top / "b.txt").write_text("by the agent\n")
    before = git(top, "status", "--porcelain").replace(" M b.txt\n", "")
    entries = git(top, "ls-files", "-s", "a.txt", "new.txt", "src/c.txt")

    done(top, "b.txt")

    assert git(top, "status", "--porcelain") == before
    assert git(top, "ls-files", "-s", "a.txt", "new.txt", "src/c.txt") == entries
    assert names(top) == ["M\tb.txt"]


@pytest.mark.smoke
def test_what_the_person_staged_for_a_committed_path_stays_staged(top):
    (top / "a.txt").write_text("staged by the person\n")
    git(top, "add", "a.txt")
    staged = git(top, "ls-files", "-s", "a.txt")
    (top / "a.txt").write_text("by the agent\n")
    (top / "b.txt").write_text("by the agent\n")

    done(top, "a.txt", "b.txt")

    assert git(top, "ls-files", "-s", "a.txt") == staged
    assert git(top, "diff", "--cached", "--name-only") == "a.txt"
    assert git(top, "show", "HEAD:a.txt") == "by the agent"


@pytest.mark.smoke
def test_the_first_commit_of_an_empty_repository_is_a_root_commit(tmp_path):
    top = tmp_path / "r"
    top.mkdir()
    git(top, "init", "-q")
    (top / "x").write_text("x\n")
    (top / "staged").write_text("s\n")
    git(top, "add", "staged")

    done(top, "x")

    assert git(top, "log", "--format=%P|%s") == "|plan: plan.md"
    assert git(top, "status", "--porcelain") == "A  staged"


@pytest.mark.smoke("sparse", "worktree")
@pytest.mark.parametrize(
    "kind", ["index v4", "split index", "sparse", "worktree", "shallow", "sha256", "many", "shared", "reflog off"]
)
def test_unusual_repositories_are_committed_to_as_well(tmp_path, kind):
    top = repository(tmp_path / "r", *(["--object-format=sha256"] if kind == "sha256" else []))
    if kind == "index v4":
        git(top, "update-index", "--index-version", "4")
    elif kind == "split index":
        git(top, "update-index", "--split-index")
    elif kind == "sparse":
        git(top, "sparse-checkout", "set", "--cone", "--sparse-index", "specs")
    elif kind == "worktree":
        git(top, "worktree", "add", "-q", "-b", "side", str(tmp_path / "w"))
        top = tmp_path / "w"
    elif kind == "shallow":
        git(tmp_path, "clone", "-q", "--depth=1", f"file://{top}", str(tmp_path / "s"))
        top = tmp_path / "s"
    elif kind == "many":
        git(top, "config", "feature.manyFiles", "true")
    elif kind == "shared":
        git(top, "config", "core.sharedRepository", "group")
    elif kind == "reflog off":
        git(top, "config", "core.logAllRefUpdates", "false")
    (top / "a.txt").write_text("changed\n")
    (top / "specs").mkdir()
    (top / "specs" / "plan.md").write_text("plan\n")

    done(top, "a.txt", "specs/plan.md")

    assert names(top) == ["M\ta.txt", "A\tspecs/plan.md"]
    assert git(top, "status", "--porcelain") == ""


def test_a_split_index_stays_split_and_version_4_stays_4(tmp_path):
    top = repository(tmp_path / "r")
    git(top, "config", "index.version", "4")
    git(top, "update-index", "--index-version", "4")
    git(top, "update-index", "--split-index")
    (top / "a.txt").write_text("changed\n")

    done(top, "a.txt")

    assert (top / ".git/index").read_bytes()[:8] == b"DIRC\0\0\0\x04"
    assert list((top / ".git").glob("sharedindex.*"))
    assert git(top, "status", "--porcelain") == ""


def test_a_project_in_a_sub_folder_commits_into_the_work_tree_above(top):
    shop = top / "apps" / "shop"
    shop.mkdir(parents=True)
    (shop / "x").write_text("x\n")

    done(shop, "apps/shop/x")

    assert names(top) == ["A\tapps/shop/x"]


SPECIAL = [
    b"new\nline",
    b"-rf",
    b"--help",
    b":(glob)*",
    b"st*r",
    b"\xff\xfe.bin",
    b"quo\"te's",
    b" lead",
    b"tab\t",
    b"#x",
]


@pytest.mark.smoke
@pytest.mark.parametrize("name", SPECIAL)
def test_names_are_taken_literally(top, name):
    path = os.path.join(os.fsencode(top), name)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"one\n")
    os.close(fd)
    (top / "star").write_text("not named\n")

    done(top, os.fsdecode(name))

    listed = git(top, "ls-tree", "-r", "-z", "--name-only", "HEAD", text=False).rstrip(b"\0").split(b"\0")
    assert set(listed) == {b"a.txt", b"b.txt", b"src/c.txt", name}
    os.unlink(path)
    done(top, os.fsdecode(name))
    assert len(git(top, "ls-tree", "-r", "-z", "--name-only", "HEAD", text=False).rstrip(b"\0").split(b"\0")) == 3


def test_fifty_thousand_characters_of_paths_do_not_overflow(top):
    paths = [f"gen/{'x' * 100}{number:04}" for number in range(2000)]
    (top / "gen").mkdir()
    for path in paths:
        (top / path).write_text("x")

    done(top, *paths)

    assert len(names(top)) == 2000


@pytest.mark.smoke
def test_a_file_that_became_a_folder_and_a_folder_that_became_a_link(top):
    (top / "a.txt").unlink()
    (top / "a.txt").mkdir()
    (top / "a.txt" / "inner").write_text("x\n")
    (top / "src" / "c.txt").unlink()
    (top / "src").rmdir()
    (top / "src").symlink_to("b.txt")

    done(top, "a.txt/inner", "a.txt", "src", "src/c.txt")

    assert git(top, "ls-tree", "-r", "--name-only", "HEAD").splitlines() == ["a.txt/inner", "b.txt", "src"]
    assert git(top, "status", "--porcelain") == ""


@pytest.mark.smoke
def test_modes_and_links_are_committed(top):
    (top / "a.txt").chmod(0o755)
    (top / "ln").symlink_to("/nowhere")

    done(top, "a.txt", "ln")

    modes = {line.split("\t")[1]: line[:6] for line in git(top, "ls-tree", "HEAD").splitlines()}
    assert (modes["a.txt"], modes["ln"]) == ("100755", "120000")


@pytest.mark.smoke
def test_a_detached_head_is_refused(top):
    git(top, "checkout", "-q", "--detach")
    (top / "a.txt").write_text("x\n")

    refused(top, "detached")


@pytest.mark.smoke
def test_a_merge_in_progress_is_refused(top):
    git(top, "switch", "-q", "-c", "side")
    (top / "a.txt").write_text("side\n")
    git(top, "commit", "-q", "-am", "side")
    git(top, "switch", "-q", "main")
    (top / "a.txt").write_text("main\n")
    git(top, "commit", "-q", "-am", "main")
    git(top, "merge", "side", check=False)

    refused(top, "a merge is in progress")


@pytest.mark.smoke
def test_no_identity_is_refused_and_none_is_invented(top, home):
    (home / ".gitconfig").write_text("")
    (top / "a.txt").write_text("x\n")

    assert "user.name" in refused(top, "git identity is not configured").hint


def test_a_lock_that_stays_is_named_and_one_that_goes_is_waited_for(top, monkeypatch):
    monkeypatch.setattr(commit, "_PATIENCE", 0.3)
    (top / "a.txt").write_text("x\n")
    (top / ".git/index.lock").touch()
    refused(top, "index.lock")

    threading.Timer(0.1, (top / ".git/index.lock").unlink).start()

    assert done(top, "a.txt")


@pytest.mark.smoke
def test_a_head_that_moved_is_refused(top):
    base = head_reader.find_head(top).commit
    (top / "b.txt").write_text("the person\n")
    git(top, "commit", "-q", "-am", "meanwhile")
    (top / "a.txt").write_text("the agent\n")

    refused(top, "HEAD moved", expect=base)


@pytest.mark.smoke
def test_a_branch_that_was_switched_is_refused(top):
    repo = Repository(head_reader.find_head(top))
    git(top, "switch", "-q", "-c", "elsewhere")
    (top / "a.txt").write_text("x\n")

    with pytest.raises(WorldError, match="branch main to branch elsewhere"):
        commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)


@pytest.mark.smoke
def test_a_branch_that_moves_between_intent_and_swap_is_refused(top):
    (top / "a.txt").write_text("x\n")

    def meanwhile(old, new):
        git(top, "commit", "-q", "--allow-empty", "-m", "meanwhile")

    with pytest.raises(WorldError, match="HEAD moved"):
        commit.commit(Repository(head_reader.find_head(top)), ["a.txt"], MESSAGE, meanwhile)

    assert git(top, "log", "-1", "--format=%s") == "meanwhile"


@pytest.mark.smoke
def test_a_git_folder_put_in_place_of_the_real_one_is_refused(top, tmp_path):
    repo = Repository(head_reader.find_head(top))
    other = repository(tmp_path / "other")
    (top / ".git").rename(tmp_path / "real")
    (top / ".git").write_text(f"gitdir: {other}/.git\n")
    (top / "a.txt").write_text("x\n")

    with pytest.raises(WorldError, match="replaced"):
        commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)

    assert len(git(other, "log", "--oneline").splitlines()) == 1


@pytest.mark.smoke
def test_a_nested_repository_is_refused_as_a_whole_and_file_by_file(top):
    inner = repository(top / "inner")
    assert inner.exists()

    refused(top, "nested git repository", "inner")
    refused(top, "nested git repository", "inner/a.txt")


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", ".git/config", "src/.GIT/x", "", "a//b", "./a.txt"])
def test_a_path_that_is_none_of_the_work_tree_is_refused(top, path):
    refused(top, "cannot be committed", path)


def test_a_pipe_is_refused_without_waiting(top):
    os.mkfifo(top / "pipe")

    refused(top, "pipe", "pipe")


@pytest.mark.smoke
def test_line_ends_are_normalised_as_git_add_does(top):
    (top / ".gitattributes").write_text("* text=auto\n")
    (top / "dos.txt").write_bytes(b"one\r\ntwo\r\n")

    done(top, "dos.txt", ".gitattributes")

    assert git(top, "cat-file", "blob", "HEAD:dos.txt", text=False) == b"one\ntwo\n"


def test_the_private_index_is_made_again_when_someone_touched_it(top):
    repo = Repository(head_reader.find_head(top))
    (top / "a.txt").write_text("1\n")
    commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)
    (top / "stray").write_text("planted\n")
    planted = {**os.environ, "GIT_INDEX_FILE": str(top / ".git/doflow-commit.index")}
    subprocess.run(["git", "-C", str(top), "add", "stray"], env=planted, check=True)
    (top / "a.txt").write_text("2\n")

    commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)

    assert names(top) == ["M\ta.txt"]


@pytest.mark.smoke
def test_a_commit_by_the_person_between_two_of_ours_is_built_upon(top):
    repo = Repository(head_reader.find_head(top))
    (top / "a.txt").write_text("1\n")
    commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)
    (top / "b.txt").write_text("person\n")
    git(top, "commit", "-q", "-am", "person")
    (top / "a.txt").write_text("2\n")

    commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)

    assert git(top, "show", "HEAD:b.txt") == "person"
    assert names(top) == ["M\ta.txt"]


def test_after_a_failed_commit_the_next_one_holds_only_its_own_paths(top):
    repo = Repository(head_reader.find_head(top))
    (top / "a.txt").write_text("1\n")
    (top / "b.txt").write_text("1\n")

    def fails(old, new):
        raise WorldError("the ledger's disk is full")

    with pytest.raises(WorldError, match="ledger"):
        commit.commit(repo, ["a.txt"], MESSAGE, fails)
    commit.commit(repo, ["b.txt"], MESSAGE, lambda old, new: None)

    assert names(top) == ["M\tb.txt"]


@pytest.mark.smoke
def test_a_commit_is_adopted_if_it_is_in_the_history_of_head(top):
    repo = Repository(head_reader.find_head(top))
    base = head_reader.find_head(top).commit
    (top / "a.txt").write_text("1\n")
    new = commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)
    at_head = commit.is_adopted(repo, base, new)
    git(top, "commit", "-q", "--allow-empty", "-m", "later")
    below = commit.is_adopted(repo, base, new)
    git(top, "reset", "-q", "--hard", base)

    assert (at_head, below, commit.is_adopted(repo, base, new)) == (True, True, False)
    assert commit.is_adopted(repo, base, "f" * 40) is False
    assert commit.is_adopted(repo, base, "") is False


@pytest.mark.smoke
def test_a_crash_between_the_swap_and_the_index_is_made_good(top, monkeypatch):
    repo = Repository(head_reader.find_head(top))
    base = head_reader.find_head(top).commit
    (top / "a.txt").write_text("1\n")
    (top / "new.txt").write_text("1\n")
    told = []

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(commit, "refresh_index", killed)
        with pytest.raises(KeyboardInterrupt):
            commit.commit(repo, ["a.txt", "new.txt"], MESSAGE, lambda old, new: told.append(new))
    assert git(top, "status", "--porcelain") != ""

    assert commit.is_adopted(Repository(head_reader.find_head(top)), base, told[0])
    assert git(top, "status", "--porcelain") == ""


@pytest.mark.smoke
def test_variables_of_a_surrounding_git_do_not_redirect_a_commit(top, tmp_path, monkeypatch):
    other = repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other / ".git/objects"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    (top / "a.txt").write_text("x\n")

    new = commit.commit(Repository(head_reader.find_head(top)), ["a.txt"], MESSAGE, lambda old, new: None)

    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_EXTERNAL_DIFF"):
        monkeypatch.delenv(name)
    assert git(top, "rev-parse", "HEAD") == new
    assert git(top, "fsck", "--strict") == ""
    assert len(git(other, "log", "--oneline").splitlines()) == 1


def test_a_commit_asks_git_a_fixed_number_of_times(top):
    started = []

    class Counting(Repository):
        def _command(self, args, variables):
            started.append(args[0])
            return super()._command(args, variables)

    repo = Counting(head_reader.find_head(top))
    for number in range(3):
        started.clear()
        (top / "a.txt").write_text(f"{number}\n")
        commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)

    assert started == ["update-index", "ls-files", "commit-tree", "update-ref", "read-tree"]


def test_a_tree_that_gc_removed_between_two_commits_is_written_again(top):
    repo = Repository(head_reader.find_head(top))
    base = git(top, "rev-parse", "HEAD")
    (top / "a.txt").write_text("once\n")
    commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)
    git(top, "repack", "-a", "-d", "-q")
    commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)  # nothing new: git may look at the pack
    git(top, "reset", "-q", "--hard", base)
    git(top, "-c", "gc.reflogExpire=now", "-c", "gc.reflogExpireUnreachable=now", "gc", "-q", "--prune=now")

    (top / "a.txt").write_text("once\n")
    commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)

    assert git(top, "fsck", "--strict") == ""
    assert git(top, "show", "HEAD:a.txt") == "once"


def test_a_git_process_killed_between_two_commits_is_started_again(top):
    repo = Repository(head_reader.find_head(top))
    for number in range(2):
        (top / "a.txt").write_text(f"{number}\n")
        commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)
        with repo.conversation("mktree", "-z", "--batch", "--missing") as process:
            process.kill()
            process.proc.wait()

    assert git(top, "show", "HEAD:a.txt") == "1"
