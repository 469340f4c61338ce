"""The project's files: paths, globs, links, digests, and what files are going to hold."""

from __future__ import annotations

import hashlib
import os

import pytest
from tests.support.context import write

from doflow.runs.fingerprint import ProjectFiles
from doflow.util.errors import WorldError


@pytest.fixture
def files(tmp_path):
    return ProjectFiles(tmp_path, "specs/001")


def sha(data):
    return hashlib.sha256(data).hexdigest()


def test_a_path_is_in_the_runs_folder_or_from_the_root(files):
    assert files.path("one.md") == "specs/001/one.md"
    assert files.path("/src/one.md") == "src/one.md"


def test_a_plain_path_means_itself_and_a_glob_the_files_there_are(files, tmp_path):
    for path in ("specs/001/b.md", "specs/001/a.md", "specs/001/deep/c.md", "x.md"):
        write(tmp_path, path, path)

    assert files.expand("none.md") == ("specs/001/none.md",)
    assert files.expand("*.md") == ("specs/001/a.md", "specs/001/b.md")
    assert files.expand("**/*.md") == ("specs/001/a.md", "specs/001/b.md", "specs/001/deep/c.md")
    assert files.expand("*.txt") == ()


def test_a_glob_finds_nothing_of_git_nor_of_doflow(files, tmp_path):
    for path in (".git/a.md", ".doflow/a.md", ".github/a.md", "a.md"):
        write(tmp_path, path, "x")

    assert files.expand("/**/*.md") == (".github/a.md", "a.md")


def test_the_digest_is_that_of_the_bytes_and_follows_them(files, tmp_path):
    assert files.digest("a.md") == ""
    write(tmp_path, "a.md", b"one\n")
    assert files.digest("a.md") == sha(b"one\n")
    write(tmp_path, "a.md", b"two\n")
    assert files.digest("a.md") == sha(b"two\n")
    (tmp_path / "a.md").unlink()
    assert files.digest("a.md") == ""


def test_line_ends_that_git_may_change_do_not_count(files, tmp_path):
    write(tmp_path, "a.md", b"one\r\ntwo\r\n")

    assert files.digest("a.md") == sha(b"one\ntwo\n")
    assert files.with_pending({"b.md": b"one\r\ntwo\r\n"}).digest("b.md") == sha(b"one\ntwo\n")


def test_a_folder_and_a_path_below_a_file_have_no_digest(files, tmp_path):
    write(tmp_path, "a/b.md", "x")

    assert files.digest("a") == ""
    assert files.digest("a/b.md/c.md") == ""


def test_a_link_changes_with_its_target_and_with_what_that_holds(files, tmp_path):
    write(tmp_path, "a.md", "one")
    write(tmp_path, "b.md", "one")
    os.symlink("a.md", tmp_path / "link")
    found = [files.digest("link")]
    write(tmp_path, "a.md", "two")
    found.append(files.digest("link"))
    os.unlink(tmp_path / "link")
    os.symlink("b.md", tmp_path / "link")
    found.append(files.digest("link"))
    os.unlink(tmp_path / "b.md")
    found.append(files.digest("link"))

    assert len({*found, ""}) == 5


def test_text_has_plain_line_ends_and_keeps_odd_bytes(files, tmp_path):
    write(tmp_path, "a.md", b"one\r\ntw\xff\n")

    assert files.text("a.md") == "one\ntw\udcff\n"
    assert files.text("none.md") is None


def test_a_folder_is_no_text(files, tmp_path):
    (tmp_path / "a").mkdir()

    with pytest.raises((WorldError, OSError)):
        files.text("a")


def test_a_pipe_is_not_waited_for(files, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    assert files.text("pipe") == ""


def test_pending_bytes_stand_for_the_file(files, tmp_path):
    write(tmp_path, "a.md", "old")
    write(tmp_path, "b.md", "old")
    ahead = files.with_pending({"a.md": b"new"}).with_pending({"b.md": None})

    assert (ahead.text("a.md"), ahead.digest("a.md")) == ("new", sha(b"new"))
    assert (ahead.text("b.md"), ahead.digest("b.md")) == (None, "")
    assert (files.text("a.md"), files.digest("b.md")) == ("old", sha(b"old"))
