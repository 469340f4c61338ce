"""Whose turn it is: which steps of a run may work side by side."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turn:
    """Steps of one company run side by side: agents, whose files are watched, or commands. The two never meet, or a
    command's files would pass for an agent's. A step that may write more runs alone."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._company = ""
        self._sharing = 0

    @contextmanager
    def take(self, company: str) -> Iterator[None]:
        """`company`: agents, commands, or '' for alone."""
        with self._change:
            self._change.wait_for(lambda: not self._sharing or (company and company == self._company))
            self._company, self._sharing = company, self._sharing + 1
        try:
            yield
        finally:
            with self._change:
                self._sharing -= 1
                self._change.notify_all()
