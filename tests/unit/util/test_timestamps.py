"""The time as text: three precisions, written as on disk and read back."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from doflow.util import timestamps

SECONDS = st.integers(min_value=0, max_value=4_102_444_800)


@given(SECONDS)
def test_whole_seconds_are_read_as_written(moment: int) -> None:
    text = timestamps.format_seconds(moment)

    assert text == datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert timestamps.parse(text) == moment


@given(SECONDS, st.integers(min_value=0, max_value=10**9 - 1))
def test_microseconds_are_read_as_written(seconds: int, rest: int) -> None:
    text = timestamps.format_microseconds(seconds * 10**9 + rest)

    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    assert text == moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert timestamps.parse(text) == pytest.approx(moment.timestamp(), abs=1e-6)


def test_a_fraction_of_a_second_is_cut_off() -> None:
    assert timestamps.format_seconds(1_771_934_400.999) == "2026-02-24T12:00:00Z"


def test_now_is_the_clock_in_each_precision() -> None:
    before = time.time()
    texts = (timestamps.format_seconds(), timestamps.now(), timestamps.format_microseconds())
    after = time.time()

    assert [len(text) for text in texts] == [20, 24, 27]
    for text, precision in zip(texts, (1, 1e-3, 1e-6), strict=True):
        assert before - precision <= timestamps.parse(text) <= after + 1e-6


@pytest.mark.parametrize(
    "text",
    [
        "", "Z", "yesterday", "2026-11-16 10:25:29Z", "2026-11-16T10:25:29+01:00", "2026-xx-16T10:25:29Z",
        "2026-11-16T10:25:29", "2026-13-16T10:25:29Z", "2026-11-16T10:25:29.Z", "2026-11-16T10:25:29.xZ",
        "2026-11-16T10:25:2²Z", "2026-1-16T10:25:29Z",
    ],
)  # fmt: skip
def test_what_is_not_such_a_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        timestamps.parse(text)
