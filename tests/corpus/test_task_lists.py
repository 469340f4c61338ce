"""Task lists of other people's repositories, where they lie beside the checkout (or where DOFLOW_CORPUS points)."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from doflow.flow.task_lists import TaskList, parse_task_list, tick

TOP = Path(__file__).parents[2]
CORPUS = Path(os.environ.get("DOFLOW_CORPUS") or TOP.parent / "shared" / "corpus")
_TICKED = re.compile(r"^([ \t]*- )\[[xX]\]", re.MULTILINE)
_BOX = re.compile(rb"\[.?\]")
EXACT = ("speckit", "openspec", "kiro")  # folders whose phases must be those of expected.tsv

pytestmark = pytest.mark.skipif(
    not (CORPUS / "expected.tsv").is_file(), reason=f"no corpus in {CORPUS}: set DOFLOW_CORPUS to its folder"
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A list of the corpus, what it holds by expected.tsv, and what was read."""

    name: str
    boxes: int
    ticked: int
    phases: int
    text: str
    read: TaskList

    @property
    def folder(self) -> str:
        return self.name.partition("/")[0]

    @property
    def is_read(self) -> bool:
        """At least nine of ten boxes are tasks."""
        return 10 * len(self.read.tasks) >= 9 * self.boxes and bool(self.read.phases)

    @property
    def has_the_phases(self) -> bool:
        return len(self.read.phases) == self.phases


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    with (CORPUS / "expected.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [_sample(row) for row in rows]


def _sample(row: dict[str, str]) -> Sample:
    text = (CORPUS / row["file"]).read_bytes().decode("utf-8", "surrogateescape")
    numbers = (int(row[name]) for name in ("boxes", "ticked", "phases"))
    return Sample(row["file"], *numbers, text=text, read=parse_task_list(text))


def test_the_lists_are_read(samples: list[Sample], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(_table(samples))
    lists = [sample for sample in samples if sample.boxes]
    exact = [sample for sample in samples if sample.folder in EXACT]

    assert [sample.name for sample in samples if not sample.boxes and sample.read.phases] == []
    assert sum(sample.is_read for sample in lists) >= 0.95 * len(lists)
    assert sum(sample.has_the_phases for sample in exact) >= 0.95 * len(exact)


def _table(samples: list[Sample]) -> str:
    rows = [("folder", "lists", "read", "boxes", "tasks", "phases as expected")]
    differ = []
    for folder in [*dict.fromkeys(sample.folder for sample in samples), "all"]:
        chosen = [sample for sample in samples if folder in (sample.folder, "all")]
        lists = [sample for sample in chosen if sample.boxes]
        exact = sum(sample.has_the_phases for sample in chosen)
        counts = (len(lists), sum(sample.is_read for sample in lists), sum(sample.boxes for sample in lists))
        tasks = sum(len(sample.read.tasks) for sample in lists)
        rows.append((folder, *map(str, counts), str(tasks), f"{exact} of {len(chosen)}"))
    for sample in samples:
        if not sample.has_the_phases or (sample.boxes and not sample.is_read):
            read = (
                f"{len(sample.read.tasks)} of {sample.boxes} boxes, {len(sample.read.phases)} of {sample.phases} phases"
            )
            differ.append(f"  {sample.name}: {read}")
    return "\n".join(["", *("{:<12}{:>6}{:>6}{:>7}{:>7}{:>21}".format(*row) for row in rows), "differ:", *differ])


@pytest.mark.parametrize("as_open", [False, True], ids=["as it is", "all boxes open"])
def test_ticking_each_box_changes_nothing_else(samples: list[Sample], as_open: bool) -> None:
    for sample in samples:
        text = _TICKED.sub(r"\1[ ]", sample.text) if as_open else sample.text
        lines = text.encode("utf-8", "surrogateescape").split(b"\n")
        for task in sample.read.tasks:
            place = task.line - 1
            line = lines[place] if task.done and not as_open else _BOX.sub(b"[x]", lines[place], count=1)
            expected = b"\n".join([*lines[:place], line, *lines[task.line :]])
            assert tick(text, task).encode("utf-8", "surrogateescape") == expected, (sample.name, task.line)


def test_after_all_ticks_every_phase_is_done(samples: list[Sample]) -> None:
    for sample in samples:
        text = sample.text
        for task in sample.read.tasks:
            text = tick(text, task)
        after = parse_task_list(text)
        assert [task.id for task in after.tasks] == [task.id for task in sample.read.tasks], sample.name
        assert all(phase.done for phase in after.phases), sample.name


def test_ticked_boxes_are_counted(samples: list[Sample]) -> None:
    wrong = [
        sample.name
        for sample in samples
        if len(sample.read.tasks) == sample.boxes and sum(task.done for task in sample.read.tasks) != sample.ticked
    ]

    assert wrong == []


def test_the_command_prints_valid_json(samples: list[Sample]) -> None:
    program = Path(sys.executable).with_name("doflow")
    for folder in dict.fromkeys(sample.folder for sample in samples):
        sample = next(one for one in samples if one.folder == folder and one.boxes)
        done = subprocess.run(
            (program, "tasks", "show", CORPUS / sample.name, "--json"), capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), sample.name
        assert len(json.loads(done.stdout)["phases"]) == len(sample.read.phases), sample.name
