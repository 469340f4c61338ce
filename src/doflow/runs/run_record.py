"""What is known about a run: its lock, and what the ledger adds to it.

The lock is the truth for every step that has a commit. Steps without one (a shell command, a route) are also taken
from the ledger; so is a yes by `auto_approve`, which is committed with the next step. What an earlier process began and
did not finish is found here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from doflow.runs.catalogue import Run
from doflow.runs.state import event_log as ledger, lockfile as lock
from doflow.runs.state.lockfile import Approval, Artifact, Lock, Record
from doflow.runs.state.usage import Spent
from doflow.util.records import dataclass, field

_REVIEW = frozenset({"review_started", "review_answer", "review_voided", "review_fixed"})
#: who says yes where no person does
AUTO = "auto_approve"
_DECIDES = frozenset({"approved", "gate", "rejected", "reset", "adopted"})
_ENDS = frozenset({"stopped", "step_complete", "phase_complete", "error", "reset", "adopted"})


@dataclass(slots=True)
class Book:
    """Mutable on purpose: the one memory of a run while it works, guarded by the world that owns it."""

    run: Run
    steps: dict[str, Record] = field(default_factory=dict)
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    approvals: dict[str, Approval] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    variant: str = ""
    begun: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    returned: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    intents: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    retries: list[Mapping[str, Any]] = field(default_factory=list)
    reviews: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    loose: set[str] = field(default_factory=set)
    sessions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    calls: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    spent: dict[str, Spent] = field(default_factory=dict)
    once: dict[str, set[str]] = field(default_factory=dict)  # of each phase the keys that it was ever done with
    limited: bool = False
    tries: dict[str, int] = field(default_factory=dict)
    logged: dict[str, int] = field(default_factory=dict)
    last: Mapping[str, Any] = field(default_factory=dict)
    wished: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lock(self) -> Lock:
        run = self.run
        return Lock(
            run.name, run.flow, run.goal_digest, run.branch, run.issue, self.variant,
            self.steps, self.artifacts, self.approvals, self.notes, run.params,
        )  # fmt: skip

    @property
    def markers(self) -> dict[str, str]:
        return {name: record.marker for name, record in self.steps.items() if record.marker}

    def count(self, entry: Mapping[str, Any], now: bool = True) -> None:
        """A call has ended: what it used is on the account of its step."""
        self.calls.pop(entry["log"], None)
        self.spent.setdefault(entry["step"].partition(":")[0], Spent()).add(entry, now)

    def accept(self) -> None:
        """A person has set a limit, knowing that some calls so far did not tell what they used: they stop nothing."""
        for spent in self.spent.values():
            spent.silent, spent.unpriced = 0, []


def open_(run: Run, held: Lock | None, events: Path) -> Book:
    """The book of a run as files tell it."""
    book = Book(run)
    if held is not None:
        book.steps.update(held.steps)
        book.artifacts.update(held.artifacts)
        book.approvals.update(held.approvals)
        book.notes.update(held.notes)
        book.variant = held.variant
    said: dict[str, Approval] = {}
    for entry in ledger.read(events):
        _replay(book, entry, held is None)
        if entry["event"] == "options":
            book.wished = entry
        if entry["event"] in _DECIDES:
            _decided(book, said, entry, held is None)
    for name, yes in said.items():
        known = book.approvals.get(name)
        if known is None or (known.digest != yes.digest and known.at < yes.at):
            book.approvals[name] = yes
            book.loose.add(name)
    return book


def _decided(book: Book, said: dict[str, Approval], entry: Mapping[str, Any], alone: bool) -> None:
    """The yes that the lock may not hold yet, until somebody takes it back or the gate asks again. `alone`: there is no
    lock here (the run's branch is not checked out), and the ledger knows what persons decided, too."""
    event, name, note = entry["event"], entry.get("step", "").removesuffix(".gate"), entry.get("note", "")
    if event == "approved" and (alone or entry.get("by") == AUTO):
        said[name] = Approval(entry.get("shown", ""), entry.get("by", ""), note, entry["at"])
    elif event in ("gate", "rejected", "reset"):
        said.pop(name, None)
    if alone and event == "rejected":
        book.notes[name] = note
    elif alone and event == "adopted":
        book.notes.pop(name, None)


def _replay(book: Book, entry: Mapping[str, Any], alone: bool) -> None:
    event, name = entry["event"], entry.get("step", "")
    if entry.get("phase"):
        name = f"{name}:{entry['phase']}"
    if event in ("step_starting", "phase_starting"):
        _began(book, name, entry)
    elif event == "returned":
        book.returned[name] = entry
        book.intents.pop(name, None)
        if entry.get("session"):
            book.sessions[name] = entry
    elif event == "intent":
        book.intents[name] = entry
    elif event == "left":
        book.left.update(entry["files"])
    elif event in _REVIEW:
        reviewed(book, entry)
    elif event == "call_starting":
        book.calls[entry["log"]] = entry
    elif event == "call_ended":
        book.count(entry, now=False)
    elif event == "warning" and entry.get("accepted"):
        book.accept()
    elif event == "retry":
        book.retries.append({key: entry[key] for key in ("step", "attempt", "reason", "at") if key in entry})
    elif event == "error" and entry.get("kept"):
        book.kept.update(entry["kept"])
        book.begun.pop(name, None)
    elif event in ("error", "stopped") and entry.get("held") and name in book.returned:
        pass  # what its agent returned could not be mended or committed yet: it is still there, and paid
    elif event in _ENDS:
        for told in (book.begun, book.returned, book.intents):
            told.pop(name, None)
        _finished(book, name, entry, alone)
    if event == "reset":
        _reset(book, name)
    if event not in ledger.SHOWN:
        book.last = entry


def _reset(book: Book, name: str) -> None:
    book.reviews.pop(name, None)
    if name in book.loose:
        book.steps.pop(name, None)
        book.loose.discard(name)


def _began(book: Book, name: str, entry: Mapping[str, Any]) -> None:
    book.begun[name] = entry
    book.tries[name] = book.tries.get(name, 0) + 1
    if not entry.get("again"):
        book.returned.pop(name, None)


def reviewed(book: Book, entry: Mapping[str, Any]) -> None:
    """What a review has heard so far; a new beginning forgets the old."""
    if entry["event"] == "review_started":
        book.reviews[entry["step"]] = []
    book.reviews.setdefault(entry["step"], []).append(entry)


def _finished(book: Book, name: str, entry: Mapping[str, Any], alone: bool) -> None:
    values = entry.get("record")
    if not isinstance(values, dict):
        return
    if entry.get("phase"):
        book.once.setdefault(name, set()).add(values.get("key", ""))
    if not alone and not entry.get("loose"):
        return
    held = book.steps.get(name)
    if held is None or held.at < values.get("at", ""):
        book.steps[name] = lock.record(values)
        book.loose.add(name)
        for path, digest in book.steps[name].made.items():
            book.artifacts.setdefault(path, Artifact(digest, "agent", name))
