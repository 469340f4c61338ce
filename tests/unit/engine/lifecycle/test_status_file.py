"""Does `status_file` keep its word? Many entries are few writes, and the last one is not lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from doflow.engine.lifecycle.status_file import StatusFile
from doflow.util import deferred


class Counted(StatusFile):
    """Says which step each write named."""

    def __init__(self, folder: Path) -> None:
        super().__init__(SimpleNamespace(state_dir=folder))  # type: ignore[arg-type]
        self.written: list[str] = []

    def values(self) -> dict[str, Any]:
        self.written.append(self._current)
        return {"current": self._current}


def starting(step: str) -> dict[str, str]:
    return {"event": "step_starting", "step": step}


def test_many_entries_are_five_writes_a_second(tmp_path):
    status_file = Counted(tmp_path)
    end = time.monotonic() + 0.5

    while time.monotonic() < end:
        status_file.on_event(starting("one"))
        deferred.due()

    deferred.never(status_file._soon)
    assert len(status_file.written) in (2, 3)


def test_the_last_entry_is_written_when_its_time_has_come(tmp_path):
    status_file = Counted(tmp_path)
    status_file.on_event(starting("one"))
    status_file.on_event(starting("two"))
    deferred.due()
    assert status_file.written == ["one"]

    time.sleep(deferred.wait(5.0) + 0.01)
    deferred.due()

    assert status_file.written == ["one", "two"]
    assert deferred.wait(5.0) == 5.0


def test_the_end_leaves_nothing_to_be_written_after_it(tmp_path):
    status_file = Counted(tmp_path)
    status_file.on_event(starting("one"))
    status_file.on_event(starting("two"))
    status_file.finish("completed")

    assert (deferred.wait(5.0), len(status_file.written)) == (5.0, 2)


def test_a_thread_that_finds_another_one_writing_does_not_wait_and_loses_nothing(tmp_path):
    status_file = Counted(tmp_path)
    with status_file._writing:
        other = threading.Thread(target=status_file.on_event, args=(starting("one"),))
        other.start()
        other.join(5)
        assert not other.is_alive()

    deferred.due()

    assert status_file.written == ["one"]
