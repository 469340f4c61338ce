"""Run record: the state of a run, loaded from its lock file and event log.

The lock file is the truth for every step that has a commit. Steps without one (a shell command, a route) are also
taken from the event log; so is an approval by `auto_approve`, which is committed with the next step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from pathlib import Path
from types import MappingProxyType

from doflow.runs import event_log, lockfile
from doflow.runs.catalogue import Run
from doflow.runs.event_log import Entry
from doflow.runs.lockfile import Approval, Artifact, Lock, StepRecord
from doflow.runs.usage import Spent

#: who approves where no person does
AUTO = "auto_approve"
_REVIEW = frozenset({"review_started", "review_answer", "review_voided", "review_fixed"})
_DECIDES = ("approved", "gate", "rejected", "reset", "adopted")
_ENDS = frozenset({"stopped", "step_complete", "phase_complete", "error", "reset", "adopted"})


class RunRecord:
    """The state of one run in memory: others read it, and change it through its methods only."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.variant = ""
        self.last_event: Entry = {}
        self.options: Entry = {}  # the lasting options of the last command that worked on the run
        self.budget_lifted = False
        self._steps: dict[str, StepRecord] = {}
        self._artifacts: dict[str, Artifact] = {}
        self._approvals: dict[str, Approval] = {}
        self._notes: dict[str, str] = {}
        self._started: dict[str, Entry] = {}
        self._returned: dict[str, Entry] = {}
        self._intents: dict[str, Entry] = {}
        self._retries: list[Entry] = []
        self._reviews: dict[str, list[Entry]] = {}
        self._command_outputs: dict[str, str] = {}
        self._held_files: dict[str, str] = {}
        self._uncommitted: set[str] = set()
        self._sessions: dict[str, Entry] = {}
        self._open_calls: dict[str, Entry] = {}
        self._spent: dict[str, Spent] = {}
        self._phase_keys: dict[str, set[str]] = {}
        self._attempts: dict[str, int] = {}
        self._log_numbers: dict[str, int] = {}
        self.steps = MappingProxyType(self._steps)  # the steps and phases (`step:phase`) that are done
        self.artifacts = MappingProxyType(self._artifacts)
        self.approvals = MappingProxyType(self._approvals)
        self.notes = MappingProxyType(self._notes)  # the notes of rejected steps, for their agents
        self.started = MappingProxyType(self._started)  # jobs that an earlier process started and that have no end
        self.returned = MappingProxyType(self._returned)  # jobs whose agent has returned and that are not settled
        self.intents = MappingProxyType(self._intents)  # jobs whose commit an earlier process was about to make
        self.command_outputs = MappingProxyType(self._command_outputs)  # digests of files that commands wrote
        self.held_files = MappingProxyType(self._held_files)  # digests of files of refused attempts
        self.sessions = MappingProxyType(self._sessions)
        self.open_calls = MappingProxyType(self._open_calls)  # agent calls that have started and not ended, by log file
        self.spent = MappingProxyType(self._spent)  # usage by step

    @property
    def lock(self) -> Lock:
        run = self.run
        return Lock(
            run.name, run.flow, run.goal_digest, run.branch, run.issue, self.variant,
            self._steps, self._artifacts, self._approvals, self._notes, run.params,
        )  # fmt: skip

    @property
    def markers(self) -> dict[str, str]:
        return {name: record.marker for name, record in self._steps.items() if record.marker}

    @property
    def retries(self) -> Sequence[Entry]:
        return tuple(self._retries)

    @property
    def uncommitted(self) -> AbstractSet[str]:
        """Steps and approvals that no commit holds yet."""
        return frozenset(self._uncommitted)

    def review(self, step: str) -> Sequence[Entry]:
        """The review's entries so far."""
        return tuple(self._reviews.get(step, ()))

    def phase_keys(self, name: str) -> AbstractSet[str]:
        """The keys that a phase was ever done with."""
        return frozenset(self._phase_keys.get(name, ()))

    def attempts(self, name: str) -> int | None:
        """How many attempts earlier processes made; None = no attempt is known."""
        return self._attempts.get(name)

    def log_number(self, stem: str) -> int | None:
        return self._log_numbers.get(stem)

    def replace_run(self, run: Run) -> None:
        self.run = run

    def complete(self, name: str, record: StepRecord, artifacts: Mapping[str, Artifact]) -> None:
        self._steps[name] = record
        self._artifacts.update(artifacts)

    def settle(self, name: str) -> None:
        """Its result is committed or recorded: nothing of it is pending."""
        for pending in (self._started, self._returned, self._intents):
            pending.pop(name, None)

    def remove_step(self, name: str) -> None:
        """Remove a step's record; its review and artifacts are kept."""
        self._steps.pop(name, None)

    def forget_step(self, name: str) -> None:
        """Mark a step or phase as not done; its artifacts are kept."""
        self._steps.pop(name, None)
        self._reviews.pop(name, None)
        self._uncommitted.discard(name)

    def forget_everything_done(self) -> None:
        self._steps.clear()
        self._uncommitted.clear()
        self._approvals.clear()

    def mark_uncommitted(self, *names: str) -> None:
        self._uncommitted.update(names)

    def mark_committed(self) -> None:
        """A commit holds the whole lock."""
        self._uncommitted.clear()

    def add_artifacts(self, artifacts: Mapping[str, Artifact]) -> None:
        self._artifacts.update(artifacts)

    def approve(self, name: str, approval: Approval) -> None:
        self._approvals[name] = approval

    def withdraw_approval(self, name: str) -> bool:
        return self._approvals.pop(name, None) is not None

    def reject(self, name: str, note: str) -> None:
        self._notes[name] = note
        self.withdraw_approval(name)

    def remove_note(self, name: str) -> None:
        self._notes.pop(name, None)

    def choose_variant(self, variant: str) -> None:
        self.variant = variant

    def choose_options(self, lasting: Entry) -> None:
        self.options = lasting

    def lift_budget(self) -> None:
        self.budget_lifted = True

    def agent_returned(self, name: str, entry: Entry) -> None:
        self._returned[name] = entry

    def discard_returned(self, name: str) -> Entry:
        """Discard an agent's result and return its entry."""
        return self._returned.pop(name, {})

    def hold_files(self, files: Mapping[str, str]) -> None:
        self._held_files.update(files)

    def add_command_outputs(self, files: Mapping[str, str]) -> None:
        self._command_outputs.update(files)

    def add_retry(self, entry: Entry) -> None:
        self._retries.append({key: entry[key] for key in ("step", "attempt", "reason", "at") if key in entry})

    def add_review_entry(self, entry: Entry) -> None:
        """Add an entry of a review; `review_started` clears the earlier ones."""
        if entry["event"] == "review_started":
            self._reviews[entry["step"]] = []
            for name in {*self._started, *self._returned, *self._intents}:
                if name.startswith(f"{entry['step']}:"):  # a fixer that was killed: not resumed
                    self.settle(name)
        self._reviews.setdefault(entry["step"], []).append(entry)

    def start_call(self, entry: Entry) -> None:
        self._open_calls[entry["log"]] = entry

    def end_call(self, entry: Entry, now: bool = True) -> None:
        """A call has ended: what it used counts for its step."""
        self._open_calls.pop(entry["log"], None)
        self._spent.setdefault(entry["step"].partition(":")[0], Spent()).add(entry, now)

    def accept_unknown_usage(self) -> None:
        """A person has set a budget: earlier calls without reported usage no longer stop the run."""
        for spent in self._spent.values():
            spent.silent, spent.unpriced = 0, []

    def set_log_number(self, stem: str, number: int) -> None:
        self._log_numbers[stem] = number

    def load_lock(self, lock: Lock) -> None:
        self._steps.update(lock.steps)
        self._artifacts.update(lock.artifacts)
        self._approvals.update(lock.approvals)
        self._notes.update(lock.notes)
        self.variant = lock.variant

    def load_events(self, entries: Iterable[Entry], alone: bool) -> None:
        """`alone`: there is no lock file here (the run's branch is not checked out); the log says what persons decided."""
        approved: dict[str, Approval] = {}
        for entry in entries:
            self._load(entry, alone)
            if entry["event"] in _DECIDES:  # others may hold anything after damage to the log
                self._load_decision(approved, entry, alone)
        for name, approval in approved.items():
            known = self._approvals.get(name)
            if known is None or (known.digest != approval.digest and known.at < approval.at):
                self._approvals[name] = approval
                self._uncommitted.add(name)

    def _load_decision(self, approved: dict[str, Approval], entry: Entry, alone: bool) -> None:
        """Approvals that the lock file may not hold yet, until someone withdraws them or the gate asks again."""
        event, name, note = entry["event"], entry.get("step", "").removesuffix(".gate"), entry.get("note", "")
        if event == "approved" and (alone or entry.get("by") == AUTO):
            approved[name] = Approval(entry.get("shown", ""), entry.get("by", ""), note, entry["at"])
        elif event in ("gate", "rejected", "reset"):
            approved.pop(name, None)
        if alone and event == "rejected":
            self._notes[name] = note
        elif alone and event == "adopted":
            self._notes.pop(name, None)

    def _load(self, entry: Entry, alone: bool) -> None:
        event, name = entry["event"], entry.get("step", "")
        if entry.get("phase"):
            name = f"{name}:{entry['phase']}"
        if event in ("step_starting", "phase_starting"):
            self._started[name] = entry
            self._attempts[name] = self._attempts.get(name, 0) + 1
            if not entry.get("again"):
                self._returned.pop(name, None)
        elif event == "returned":
            self._returned[name] = entry
            self._intents.pop(name, None)
            if entry.get("session"):
                self._sessions[name] = entry
        elif event == "intent":
            self._intents[name] = entry
        elif event == "options":
            self.options = entry
        elif event == "left":
            self.add_command_outputs(entry["files"])
        elif event in _REVIEW:
            self.add_review_entry(entry)
        elif event == "call_starting":
            self.start_call(entry)
        elif event == "call_ended":
            self.end_call(entry, now=False)
        elif event == "warning" and entry.get("accepted"):
            self.accept_unknown_usage()
        elif event == "retry":
            self.add_retry(entry)
        elif event == "error" and entry.get("kept"):
            self.hold_files(entry["kept"])
            self._started.pop(name, None)
        elif event in _ENDS and not (event in ("error", "stopped") and entry.get("held") and name in self._returned):
            # else its agent's result could not be repaired or committed yet: it is still there, and paid
            self.settle(name)
            self._load_end(name, entry, alone)
        if event == "reset":
            self._reviews.pop(name, None)
            if name in self._uncommitted:
                self._steps.pop(name, None)
                self._uncommitted.discard(name)
        if event not in event_log.SHOWN:
            self.last_event = entry

    def _load_end(self, name: str, entry: Entry, alone: bool) -> None:
        values = entry.get("record")
        if not isinstance(values, dict):
            return
        if entry.get("phase"):
            self._phase_keys.setdefault(name, set()).add(values.get("key", ""))
        if not alone and not entry.get("loose"):
            return
        known = self._steps.get(name)
        if known is None or known.at < values.get("at", ""):
            self._steps[name] = lockfile.build_step_record(values)
            self._uncommitted.add(name)
            for path, digest in self._steps[name].made.items():
                self._artifacts.setdefault(path, Artifact(digest, "agent", name))


def load_record(run: Run, lock: Lock | None, events: Path) -> RunRecord:
    record = RunRecord(run)
    if lock is not None:
        record.load_lock(lock)
    record.load_events(event_log.read_events(events), alone=lock is None)
    return record
