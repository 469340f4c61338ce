"""Any text at all: nothing raises, a tick is one box, and the time grows with the text."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from doflow.flow.task_lists import parse_task_list, phase_sections, tick

PIECES = st.one_of(
    st.sampled_from(["- [ ] ", "- [x] ", "* [-] ", "1. [ ] ", "- [ ]* ", "- [] ", "\t- [ ] ", "  - [ ] ", "[ ]"]),
    st.sampled_from(["T001 ", "T002 ", "1. ", "1.1 ", "2. ", "Task 1: ", "[P] ", "[US1] ", "**", "_", "`", "word "]),
    st.sampled_from(["```", "~~~", "<!--", "-->", "## ", "## Phase 1: ", "### Phase 2", "# ", "## 1. ", "阶段 1："]),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\n  ", "\ufeff", "\u2028", "\udc80", "\x00", " "]),
    st.sampled_from(
        ["(depends on T001)", "depends: T001-T002", "files: ", "src/a.py", "_Requirements: 1.1_", "(AC: 1)"]
    ),
)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=[])),
    st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=60).map("".join),
)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_a_tick_is_one_box_and_nothing_else(text: str) -> None:
    before = parse_task_list(text)

    assert bool(before.phases) != (before.style == "")
    for task in before.tasks:
        ticked = tick(text, task)
        after = parse_task_list(ticked)
        assert [one.id for one in after.tasks] == [one.id for one in before.tasks]
        assert [one.done for one in after.tasks] == [one.done or one.line == task.line for one in before.tasks]
        assert [one.text for one in after.tasks] == [one.text for one in before.tasks]
        assert (ticked == text) == task.done
        assert tick(ticked, task) == ticked


def spec_kit_list(tasks: int) -> str:
    lines = []
    for number in range(tasks):
        if number % 20 == 0:
            lines.append(f"## Phase {number // 20 + 1}: Part\n\n**Purpose**: to have it\n")
        lines.append(
            f"- [ ] T{number:05d} [P] [US1] Create the part in `src/part{number}.py` and in tests/test_{number}.py "
            f"(depends on T{max(number - 1, 0):05d})\n  - in a few words\n"
        )
    return "\n".join(lines)


def duration(action: Callable[[], object]) -> float:
    """The best of three, in processor time and without collecting what earlier tests left: neither counts."""
    times = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            start = time.process_time()
            action()
            times.append(time.process_time() - start)
    finally:
        gc.enable()
    return min(times)


def test_five_megabytes_take_the_time_of_some_passes_over_the_text() -> None:
    text = spec_kit_list(40_000)
    pattern = re.compile(r"^\s*[-*+] \[([ xX])\] (.*)$")

    assert len(text) > 5_000_000
    one_pass = duration(lambda: [pattern.match(line) for line in text.splitlines()])
    assert duration(lambda: parse_task_list(text)) < 150 * one_pass


HOSTILE = {
    "blanks": lambda n: "- [ ] x" + " " * n + "y",
    "heading of blanks": lambda n: "# " + " " * n + "x",
    "backticks": lambda n: "- [ ] " + "`" * n,
    "letters": lambda n: "- [ ] " + "a" * n,
    "slashes": lambda n: "- [ ] " + "a/" * n,
    "dots": lambda n: "- [ ] " + "1." * n,
    "underscores": lambda n: "- [ ] " + "_" * n + ":" + "_" * n,
    "labels": lambda n: "- [ ] x\n" + "  _a:" * n + "_",
    "brackets": lambda n: "- [ ] " + "[P] " * n,
    "comments": lambda n: "<!--\n" * n,
    "fences": lambda n: "```\n" * n,
    "depends": lambda n: "- [ ] " + "depends on T1, " * n,
    "ranges": lambda n: "".join(f"- [ ] T{k} depends on T1-T{k}\n" for k in range(1, n // 10)),
    "strays": lambda n: "## Phase 1\n- [ ] T1 x\n" + "## n\n- [ ] T1 x\n" * (n // 10),
    "phases": lambda n: "".join(f"## Phase {k}: x\n- [ ] T{k} y\n" for k in range(n // 10)),
    "numbered phases": lambda n: "".join(f"## {k}. x\n- [ ] {k}.1 y\n### z\n" for k in range(n // 10)),
    "nothing but boxes": lambda n: "- [ ]\n" * (n // 5),
    "line ends": lambda n: "\r\n" * n,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_with_the_text(name: str) -> None:
    small, large = (HOSTILE[name](size) for size in (20_000, 80_000))

    assert duration(lambda: parse_task_list(large)) < 10 * duration(lambda: parse_task_list(small)) + 0.05


@pytest.mark.parametrize("name", HOSTILE)
def test_the_time_to_cut_the_phases_grows_with_the_text(name: str) -> None:
    small, large = (HOSTILE[name](size) for size in (20_000, 80_000))

    assert duration(lambda: phase_sections(large)) < 10 * duration(lambda: phase_sections(small)) + 0.05
