"""Does a log keep its beginning and its end, and say what is missing?"""

from __future__ import annotations

from pathlib import Path

import pytest

from doflow.runs import jobs


def numbered(count: int) -> bytes:
    return b"".join(b"line %07d\n" % number for number in range(count))


def test_a_log_that_is_too_long_keeps_whole_lines_of_both_ends(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(numbered(100_000))

    left = jobs.trim_middle(str(log), most=100_000)

    head, words, tail = log.read_bytes().partition(b"doflow: ")[0], *log.read_bytes().partition(b"doflow: ")[1:]
    said, _, end = tail.partition(b"\n")
    assert (words + said).decode() == f"doflow: {left:,} of 1,300,000 bytes omitted: a log keeps 100,000"
    assert numbered(100_000).startswith(head) and numbered(100_000).endswith(end)
    assert head.endswith(b"\n") and end.startswith(b"line ")
    assert len(head) + left + len(end) == 1_300_000
    assert log.stat().st_size <= 100_000 + 200


@pytest.mark.parametrize("size", [0, 1, 99_999, 100_000])
def test_a_log_that_is_short_enough_stays_as_it_is(size: int, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * size)

    assert jobs.trim_middle(str(log), most=100_000) == 0
    assert log.read_bytes() == b"x" * size


def test_a_log_without_lines_is_cut_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 3_000_000)

    jobs.trim_middle(str(log), most=1_000_000)

    assert log.stat().st_size < 1_000_200


def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "mine.txt"
    other.write_bytes(b"x" * 3_000_000)
    (tmp_path / "a.log").symlink_to(other)

    with pytest.raises(OSError):
        jobs.trim_middle(str(tmp_path / "a.log"), most=1_000_000)
    jobs.trim_logs(str(tmp_path / "a.log"), str(tmp_path / "none"))

    assert other.stat().st_size == 3_000_000
