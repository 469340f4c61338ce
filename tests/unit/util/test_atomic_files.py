"""files: whole or not at all, no link followed, no pipe waited for."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from doflow.util import atomic_files
from doflow.util.errors import WorldError


def test_a_written_file_has_its_bytes_and_its_mode_and_leaves_no_temporary(tmp_path):
    path = tmp_path / "state.json"

    atomic_files.write_file(path, b"one", mode=0o600)
    atomic_files.write_file(str(path), b"two", mode=0o640)

    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["state.json"]


def test_writing_to_a_link_replaces_the_link_and_spares_its_target(tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    (tmp_path / "link").symlink_to(target)

    atomic_files.write_file(tmp_path / "link", b"new")

    assert target.read_bytes() == b"mine"
    assert (tmp_path / "link").read_bytes() == b"new" and not (tmp_path / "link").is_symlink()


def test_a_write_that_fails_half_way_leaves_the_old_file_and_no_temporary(tmp_path):
    path = tmp_path / "state"
    path.write_bytes(b"old")
    program = (
        "import resource, signal, sys\n"
        "from doflow.util import atomic_files as files, errors\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    files.write_file(sys.argv[1], b'x' * 5000)\n"
        "except errors.WorldError as error:\n    print(error.message)\n"
    )

    said = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)

    assert said.stdout.startswith("cannot write ")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_said_in_words():
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError) as caught:
            atomic_files.write_all(fd, b"x")
    finally:
        os.close(fd)

    error = atomic_files.io_error("write", "/data/state.db", caught.value)

    assert error.message == "disk full at /data/state.db"
    assert "run the same command again" in error.hint


def test_writing_where_there_is_no_folder_says_where(tmp_path):
    with pytest.raises(WorldError, match=r"cannot write .*/no/where"):
        atomic_files.write_file(tmp_path / "no" / "where", b"x")


def test_short_writes_are_completed(tmp_path):
    out, into = os.pipe()
    os.set_blocking(into, True)
    data = os.urandom(300_000)
    reader = subprocess.Popen(["cat"], stdin=out, stdout=subprocess.PIPE)
    os.close(out)

    child = os.fork()
    if child == 0:
        atomic_files.write_all(into, data)
        os._exit(0)
    os.close(into)
    got, _ = reader.communicate()
    os.waitpid(child, 0)

    assert got == data


def test_an_append_begins_a_new_line_after_a_torn_one(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":')

    atomic_files.append_to_file(path, b'{"c":3}\n')
    atomic_files.append_to_file(path, b'{"d":4}\n')

    assert path.read_bytes() == b'{"a":1}\n{"b":\n{"c":3}\n{"d":4}\n'


def test_an_appender_makes_the_file_and_keeps_adding_to_it(tmp_path):
    appender = atomic_files.Appender(tmp_path / "log")

    appender.add(b"one\n")
    appender.add(b"two\n", sync=False)
    appender.close()
    appender.close()

    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_several_processes_appending_never_mix_their_lines(tmp_path):
    path = tmp_path / "log"
    program = (
        "import sys\nfrom doflow.util import atomic_files as files\nout = files.Appender(sys.argv[1])\n"
        "for n in range(200): out.add(b'%s-%d\\n' % (sys.argv[2].encode() * 50, n), sync=False)\n"
    )

    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "abc"]
    codes = [writer.wait() for writer in writers]

    expected = {f"{name * 50}-{number}" for name in "abc" for number in range(200)}
    assert codes == [0, 0, 0]
    assert set(path.read_text().split()) == expected


@pytest.mark.parametrize("plant", ["link", "folder", "pipe"])
def test_appending_to_something_else_than_a_regular_file_is_refused_at_once(tmp_path, plant):
    path = _plant(tmp_path, plant)

    with pytest.raises(WorldError):
        atomic_files.append_to_file(path, b"x\n")


def test_a_digest_is_the_sha256_and_empty_for_a_missing_file(tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 3_000_000)

    assert atomic_files.file_digest(tmp_path / "f") == hashlib.sha256(b"x" * 3_000_000).hexdigest()
    assert atomic_files.file_digest(tmp_path / "none") == ""
    assert atomic_files.file_digest(tmp_path / "f" / "below") == ""


@pytest.mark.parametrize("plant", ["link", "folder", "pipe", "dangling"])
def test_a_digest_of_something_else_is_refused_and_never_blocks(tmp_path, plant):
    with pytest.raises(WorldError, match="not a regular file"):
        atomic_files.file_digest(_plant(tmp_path, plant))


def test_a_digest_of_a_device_is_refused():
    with pytest.raises(WorldError, match="not a regular file"):
        atomic_files.file_digest("/dev/zero")


def test_syncfs_works_on_a_folder_and_says_what_is_missing(tmp_path):
    atomic_files.syncfs(tmp_path)

    with pytest.raises(WorldError, match="none"):
        atomic_files.syncfs(tmp_path / "none")


def _plant(folder, kind):
    path = folder / "planted"
    if kind == "link":
        (folder / "target").write_bytes(b"x")
        path.symlink_to(folder / "target")
    elif kind == "dangling":
        path.symlink_to(folder / "nothing")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    return path
