"""quarantine: nothing is lost, nothing is overwritten, no name an agent chose becomes a path."""

from __future__ import annotations

import os

import pytest

from doflow.guard.quarantine import Quarantine
from doflow.util.errors import WorldError


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def keep(root):
    return Quarantine(root / ".doflow" / "quarantine")


def take(keep, folder, name, rel=None, **why):
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return keep.take(fd, name, rel or name, **why)
    finally:
        os.close(fd)


def test_a_file_is_moved_in_with_its_story(root, keep):
    (root / "a.txt").write_bytes(b"agent\n")

    ident = take(keep, root, "a.txt", why="protected", run="001-x", step="plan")

    (kept,) = keep.entries()
    assert not (root / "a.txt").exists()
    assert (kept.id, kept.path, kept.why, kept.run, kept.step) == (ident, "a.txt", "protected", "001-x", "plan")
    assert (kept.kind, kept.size) == ("file", 6)
    assert keep.read(ident[:8]) == b"agent\n"


def test_about_gives_a_taker_with_its_reason(root, keep):
    (root / "a").touch()
    fd = os.open(root, os.O_RDONLY)

    keep.about("stray", "001-x", "plan")(fd, "a", "a")
    os.close(fd)

    assert [(kept.why, kept.step) for kept in keep.entries()] == [("stray", "plan")]


def test_bytes_can_be_put_in(keep):
    ident = keep.put(b"data", "src/x", why="edited meanwhile")

    assert keep.read(ident) == b"data"
    assert keep.entries()[0].path == "src/x"


@pytest.mark.parametrize("name", ["new\nline", "-rf", "\udcff\udcfe", "ünï", "a" * 255])
def test_any_name_can_be_kept_and_put_back(root, keep, name):
    (root / name).write_bytes(b"x")

    ident = take(keep, root, name)
    keep.restore(ident, root)

    assert keep.entries()[0].path == name
    assert (root / name).read_bytes() == b"x"


def test_restoring_gives_mode_and_bytes_back_and_keeps_the_copy(root, keep):
    (root / "sub").mkdir()
    (root / "sub" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "sub" / "run.sh").chmod(0o755)
    ident = take(keep, root / "sub", "run.sh", "sub/run.sh")
    (root / "sub").rmdir()

    assert keep.restore(ident, root) == "sub/run.sh"

    assert (root / "sub" / "run.sh").read_bytes() == b"#!/bin/sh\n"
    assert (root / "sub" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert [kept.id for kept in keep.entries()] == [ident]


def test_what_is_there_is_not_overwritten_unless_forced_and_then_it_is_kept(root, keep):
    (root / "a").write_bytes(b"old")
    ident = take(keep, root, "a")
    (root / "a").write_bytes(b"new")

    with pytest.raises(WorldError, match="already exists") as caught:
        keep.restore(ident, root)
    assert "--force" in caught.value.hint and (root / "a").read_bytes() == b"new"
    keep.restore(ident, root, force=True)

    assert (root / "a").read_bytes() == b"old"
    assert [keep.read(kept.id) for kept in keep.entries()] == [b"old", b"new"]


def test_it_can_be_put_elsewhere(root, keep):
    (root / "a").write_bytes(b"x")
    ident = take(keep, root, "a")

    keep.restore(ident, root, to="back/here")

    assert (root / "back" / "here").read_bytes() == b"x"


@pytest.mark.parametrize("to", ["../out", "/etc/x", "a/../../out", "", ".git/hooks/pre-commit", "a//b"])
def test_no_place_outside_is_written_to(root, keep, to):
    (root / "a").write_bytes(b"x")
    ident = take(keep, root, "a")

    with pytest.raises(WorldError):
        keep.restore(ident, root, to=to)

    assert not (root.parent / "out").exists()


def test_a_link_on_the_way_is_not_followed(root, keep, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"x")
    ident = take(keep, root / "d", "f", "d/f")
    (root / "d").rmdir()
    (root / "d").symlink_to(outside)

    with pytest.raises(WorldError):
        keep.restore(ident, root)

    assert list(outside.iterdir()) == []


def test_links_and_folders_are_kept_as_they_are(root, keep):
    (root / "ln").symlink_to("/etc/passwd")
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"x")

    link, folder = take(keep, root, "ln"), take(keep, root, "d")
    keep.restore(link, root)
    keep.restore(folder, root)

    assert keep.read(link) == b"/etc/passwd"
    assert os.readlink(root / "ln") == "/etc/passwd"
    assert (root / "d" / "f").read_bytes() == b"x"
    with pytest.raises(WorldError, match="folder"):
        keep.read(folder)


def test_a_pipe_is_moved_in_without_waiting(root, keep):
    os.mkfifo(root / "pipe")

    ident = take(keep, root, "pipe")

    assert keep.entries()[0].kind == "special"
    with pytest.raises(WorldError):
        keep.read(ident)


def test_torn_and_foreign_lines_of_the_index_are_passed_over(root, keep):
    (root / "a").write_bytes(b"x")
    ident = take(keep, root, "a")
    with (root / ".doflow/quarantine/index.jsonl").open("ab") as index:
        index.write(b'[]\n{"id": "../../etc"}\n\xff\xff\n{"id": 5}\n{"id": "' + b"[" * 100_000)
    (root / "b").write_bytes(b"y")
    other = take(keep, root, "b")

    assert [kept.id for kept in keep.entries()] == [ident, other]


def test_an_unknown_or_ambiguous_id_is_refused_with_the_list_to_look_at(keep):
    keep.put(b"1", "a")

    for ident in ("zz", "", "../index.jsonl"):
        with pytest.raises(WorldError) as caught:
            keep.read(ident)
        assert "doflow quarantine list" in caught.value.hint


def test_a_quarantine_that_is_a_link_is_refused(root, keep, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (root / ".doflow").mkdir()
    (root / ".doflow" / "quarantine").symlink_to(tmp_path / "elsewhere")
    (root / "a").write_bytes(b"x")

    with pytest.raises(WorldError):
        take(keep, root, "a")

    assert (root / "a").read_bytes() == b"x"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_empty_quarantine_has_no_entries(keep):
    assert keep.entries() == ()


def test_things_are_carried_across_file_systems(tmp_path, root):
    shm = "/dev/shm"
    if not os.access(shm, os.W_OK) or os.stat(shm).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("needs a second file system")
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(dir=shm)
    try:
        keep = Quarantine(os.path.join(folder, "q"))
        (root / "a").write_bytes(b"x")
        (root / "ln").symlink_to("nowhere")

        first, second = take(keep, root, "a"), take(keep, root, "ln")

        assert (keep.read(first), keep.read(second)) == (b"x", b"nowhere")
        assert not os.path.lexists(root / "a") and not os.path.lexists(root / "ln")
    finally:
        shutil.rmtree(folder)
