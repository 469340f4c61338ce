"""The tree that we put together ourselves is the one that git's index would have made, byte for byte."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from doflow.git import commit as commits, repository as look, tree_writer as trees
from doflow.git.runner import Git

NAMES = ("a", "a/b", "a/b/c", "a.b", "a-b/x", "d/e", "d/e/f", "z")
DEEDS = ("write", "executable", "link", "remove", "folder", "CRLF")


@pytest.fixture
def top(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Ann\n\temail = a@example.org\n")
    place = tmp_path / "r"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    (place / "kept").write_text("kept\n")
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "first")
    return place


def git(place, *args):
    return subprocess.run(["git", "-C", str(place), *args], check=True, capture_output=True, text=True).stdout.strip()


def do(place, name, deed, text):
    path = place / name
    for above in [path, *path.parents]:
        if above == place:
            break
        if above.is_symlink() or above.is_file():
            above.unlink()
    if path.is_dir():
        shutil.rmtree(path)
    if deed == "remove":
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if deed == "folder":
        path.mkdir()
        (path / "inside").write_text(text)
    elif deed == "link":
        path.symlink_to(f"to-{text}")
    else:
        path.write_text(f"{text}\r\n" if deed == "CRLF" else f"{text}\n")
        path.chmod(0o755 if deed == "executable" else 0o644)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rounds=st.lists(
        st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(DEEDS), st.sampled_from("xyz")), min_size=1),
        min_size=1,
        max_size=4,
    ),
)
def test_it_is_the_tree_that_the_index_makes(top, rounds):
    git(top, "checkout", "-q", "-f", "main")
    git(top, "clean", "-q", "-fdx")
    ours = Git(look.find(top))
    for deeds in rounds:
        for name, deed, text in deeds:
            do(top, name, deed, text)
        paths = sorted({name for name, *_ in deeds} | {f"{name}/inside" for name, *_ in deeds})
        base = look.find(top).commit

        built = trees.build(ours, base, paths)

        assert built == commits._by_index(Git(look.find(top)), base, paths)
        ours.trees.commit = base if built[0] == built[1] else ""
        if commits.commit(ours, paths, "next\n", lambda old, new: None):
            git(top, "fsck", "--strict")


@pytest.mark.parametrize(
    ("key", "value"),
    [("core.fileMode", "false"), ("core.ignoreCase", "true"), ("core.sharedRepository", "group")],
)
def test_an_unusual_repository_is_left_to_git(top, key, value):
    git(top, "config", key, value)
    (top / "a").write_text("a\n")

    assert trees.build(Git(look.find(top)), look.find(top).commit, ["a"]) is None


@pytest.mark.parametrize("name", ['"a"', "müll", "GIT~1", "a\nb"])
def test_an_unusual_name_is_left_to_git(top, name):
    assert trees.build(Git(look.find(top)), look.find(top).commit, [name]) is None


@pytest.mark.parametrize("where", [".gitattributes", "specs/.gitattributes", ".git/info/attributes"])
def test_a_repository_with_attributes_is_left_to_git(top, where):
    (top / "specs").mkdir()
    (top / "specs" / "a").write_text("a\n")
    (top / where).parent.mkdir(exist_ok=True)
    (top / where).write_text("* text=auto\n")

    assert trees.build(Git(look.find(top)), look.find(top).commit, ["specs/a"]) is None


def test_a_large_file_goes_through_git(top):
    (top / "large").write_bytes(b"x" * ((1 << 20) + 1))

    _, tree = trees.build(Git(look.find(top)), look.find(top).commit, ["large"])

    assert git(top, "cat-file", "-s", f"{tree}:large") == str((1 << 20) + 1)


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
    place = Git(look.find(str(top)))

    names = ("same.txt", "d/same.txt", "ü.txt", "changed.txt", "gone.txt", "new.txt", "link.txt", "d", "no/where")
    found = [name for name in names if trees.holds(place, git(top, "rev-parse", "HEAD"), name)]

    assert found == ["same.txt", "d/same.txt", "ü.txt"]
