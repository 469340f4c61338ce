"""A file's signature: whatever is done to the file, it differs afterwards."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from doflow.util import file_signature


def rewrite_same_size_and_time(path: Path) -> None:
    before = path.stat()
    path.write_text("b")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_a_copy(path: Path) -> None:
    before, copy = path.stat(), path.with_name("copy")
    copy.write_text("a")
    os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))
    copy.replace(path)


def append(path: Path) -> None:
    path.write_text("aa")


def change_the_mode(path: Path) -> None:
    path.chmod(0o600)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    made.write_text("a")
    made.chmod(0o644)
    return made


def test_a_file_that_was_only_read_is_unchanged(path: Path) -> None:
    before = file_signature.from_path(path)
    path.read_text()

    assert file_signature.from_path(path) == before
    assert file_signature.is_unchanged(path, before)


@pytest.mark.parametrize("change", [append, rewrite_same_size_and_time, replace_by_a_copy, change_the_mode])
def test_every_change_is_seen(path: Path, change: Callable[[Path], None]) -> None:
    before = file_signature.from_path(path)
    time.sleep(0.02)  # beyond the tick of the file system's clock

    change(path)

    assert file_signature.from_path(path) != before
    assert not file_signature.is_unchanged(path, before)


def test_a_signature_survives_json(path: Path) -> None:
    recorded = json.loads(json.dumps(file_signature.from_path(path)))

    assert file_signature.is_unchanged(path, recorded)


@pytest.mark.parametrize("recorded", [[], [1, 2], [0, 0, 0, 0], None])
def test_a_record_of_another_shape_or_file_is_a_change(path: Path, recorded: list[int] | None) -> None:
    assert not file_signature.is_unchanged(path, recorded)


def test_no_file_is_unchanged_while_there_is_none(path: Path) -> None:
    before = file_signature.from_path(path)
    path.unlink()

    assert file_signature.from_path(path) is None
    assert (file_signature.is_unchanged(path, None), file_signature.is_unchanged(path, before)) == (True, False)


def test_a_link_has_its_own_signature_and_its_target_s(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path.name)

    assert file_signature.from_path(link) == file_signature.from_path(path)
    assert file_signature.from_path(link, follow=False) == file_signature.from_status(link.lstat())
    path.unlink()
    assert file_signature.from_path(link) is None
    assert file_signature.from_path(link, follow=False) is not None
