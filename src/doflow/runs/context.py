"""What a step can touch: the project, the run it belongs to, git, the ledger, the clock.

One `World` per run that a command works on. Nothing here decides; it holds, looks things up and writes them down.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doflow.flow import expansion as concrete, plan
from doflow.flow.model import Flow, Settings, Step
from doflow.git import repository as look
from doflow.runs import options, run_record as books, session_layout as sessionpaths
from doflow.runs.catalogue import INPUT, SNAPSHOT, Run
from doflow.runs.options import Options
from doflow.runs.state import event_log as ledger, fingerprint as keys, lockfile as lock
from doflow.runs.state.lockfile import Artifact, Record
from doflow.util import atomic_files as files
from doflow.util.process import environment
from doflow.util.records import dataclass, field

if TYPE_CHECKING:
    from doflow.git.runner import Git

STATE = ".doflow"
#: who hunts bugs in a session unless somebody is named: the default agent, where doflow.yaml has none of this name
_FINDER = "glp"
#: the checklist of the run at work (see `guards.stale`)
TASKS = f"{STATE}/pipeline-tasks.md"


@dataclass(slots=True)
class World:
    """Everything outside, for one run."""

    root: Path
    flow: Flow
    run: Run
    settings: Settings
    plan: plan.Plan
    environ: Mapping[str, str]
    listen: ledger.Listener
    options: Options = Options()
    at_work: bool = False  # steps are done, not only looked at
    guard: Any = field(default_factory=threading.RLock)
    frozen: bool = False
    last_commit: str = ""
    _head: look.Head | None = None
    _git: Git | None = None
    _book: books.Book | None = None
    _ledger: ledger.Ledger | None = None
    _lines: lock.Lines = field(default_factory=lock.Lines)
    _digests: dict[str, tuple[tuple[int, int, int, int], str]] = field(default_factory=dict)
    _order: tuple[object, tuple[str, ...], dict[str, tuple[str, ...]]] | None = None
    _shell: dict[str, str] = field(default_factory=dict)
    _place: keys.Place | None = None
    lock_digest: str = ""
    own: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)  # agents that are rate limited, and until when
    _base: str | None = None
    _params: tuple[Run, Flow, Mapping[str, str]] | None = None
    _logs: str = ""
    _coding: frozenset[str] | None = None

    @property
    def head(self) -> look.Head:
        if self._head is None:
            self._head = look.find(str(self.root))
        return self._head

    @property
    def prefix(self) -> str:
        """The project's folder as seen from the top of the work tree: '' or `apps/shop/`."""
        below = os.path.relpath(os.path.realpath(self.root), self.head.top)
        return "" if below == "." else f"{below}/"

    @property
    def git(self) -> Git:
        with self.guard:
            if self._git is None:
                from doflow.git.runner import Git

                self._git = Git(self.head)
            return self._git

    def renew(self) -> None:
        """Git is asked anew: where HEAD stands, and which filters the config names."""
        self._head, self._git = None, None

    def forget(self) -> None:
        """The lock was put back as it was: what we read from it is read again."""
        self._book, self._order = None, None

    @property
    def book(self) -> books.Book:
        if self._book is None:
            self._book = books.open_(self.run, self._held(), self.state_dir / "events.jsonl")
        return self._book

    @property
    def ledger(self) -> ledger.Ledger:
        if self._ledger is None:
            self._ledger = ledger.Ledger(self.state_dir / "events.jsonl", self.run.name, self.listen)
        return self._ledger

    @property
    def state_dir(self) -> Path:
        return self.root / STATE / "runs" / self.run.name

    @property
    def logs(self) -> str:
        """The folder of what programs said."""
        if not self._logs:
            self._logs = str(self.state_dir / "logs")
        return self._logs

    @property
    def run_dir(self) -> Path:
        return self.root / self.run.dir

    @property
    def input(self) -> str:
        """The file of the run's folder that holds the goal."""
        return SNAPSHOT if self.flow.in_sessions else INPUT

    @property
    def given(self) -> tuple[str, ...]:
        """The files of the run's folder that doflow wrote when it began."""
        return (self.input, sessionpaths.DELTA) if self.run.params.get("previous") else (self.input,)

    @property
    def again(self) -> str:
        """The command that goes on with this run as it was begun."""
        return f"doit {self.flow.name}{self.wished}"

    @property
    def wished(self) -> str:
        """The options that it goes on with: of this command; where one only looks or decides, of the last that worked."""
        mine = options.words(self.options.lasting)
        return mine or ("" if self.at_work else options.words(self.book.wished))

    @property
    def shell(self) -> dict[str, str]:
        """The person's environment as commands get it."""
        if not self._shell:
            self._shell = environment.for_shell(self.environ, {})
        return self._shell

    @property
    def params(self) -> Mapping[str, str]:
        run, flow = self.run, self.flow
        if self._params is None or self._params[0] is not run or self._params[1] is not flow:
            defaults = {param.name: param.default for param in flow.params}
            given = {"previous": ""} | defaults | dict(run.params)
            own = {"goal": run.goal, "flow": run.flow, "run": run.name, "run_dir": run.dir}
            self._params = (run, flow, given | own | {"branch": run.branch, "issue": run.issue})
        return self._params[2]

    @property
    def place(self) -> keys.Place:
        if self._place is None:
            said = (name for step in self.flow.steps for name in (step.phases, *step.phases_or) if name)
            boxed = frozenset(name.lstrip("/") if name.startswith("/") else f"{self.run.dir}/{name}" for name in said)
            self._place = keys.Place(self.root, self.run.dir, boxed, self.digest)
        return self._place

    def params_of(self, step: Step) -> dict[str, str]:
        """The parameters as a step sees them: the run's, and over them its own (a sub-flow's, an item's)."""
        base = {**self.params, "step": step.id}
        return base | {name: keys.substitute(value, base) for name, value in step.params}

    def step(self, name: str) -> Step | None:
        """A step by its id, or one item of a `foreach` by `step:item`."""
        found = self.flow.step(name)
        if found is None and ":" in name:
            group = self.flow.step(name.partition(":")[0])
            parts = self.items(group) if group is not None and group.foreach else ()
            return next((part for part in parts if part.id == name), None)
        return found

    def items(self, step: Step) -> tuple[Step, ...]:
        """The items of a `foreach` as they are now; none while the file that lists them is not there."""
        if isinstance(step.foreach, tuple):
            return concrete.items(step, None, "", self.params)
        path = self.path(step.foreach)
        text = self.place.text(path)
        return () if text is None else concrete.items(step, text, path, self.params, self.flow)

    def path(self, said: str) -> str:
        return self.place.path(said)

    def phases(self, step: Step) -> str:
        """The task list of an implement step: of those it names the first that a step of this variant makes."""
        if not step.phases_or:
            return self.path(step.phases)
        active = [found for name in self.order() if (found := self.flow.step(name))]
        made = {said for found in active for said in found.makes}
        return self.path(next((said for said in (step.phases, *step.phases_or) if said in made), step.phases))

    def digest(self, path: str) -> str:
        """sha256 of a file of the project (a link: of its target), '' if there is none; read again only if touched."""
        full = os.path.join(self.root, path)
        try:
            found = os.lstat(full)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        if stat.S_ISDIR(found.st_mode):
            return ""
        if stat.S_ISLNK(found.st_mode):
            inner = os.path.realpath(full)
            said = files.digest(inner) if os.path.isfile(inner) else ""
            return keys.short(f"link to {os.readlink(full)}, which holds {said}", 64)
        seen = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        held = self._digests.get(path)
        if held is None or held[0] != seen:
            held = (seen, files.digest(full))
            self._digests[path] = held
        return held[1]

    def order(self) -> tuple[str, ...]:
        """The active steps, as the markers found so far decide it."""
        return self._ordered()[1]

    def before(self, name: str) -> tuple[str, ...]:
        """The steps that this one comes after, in the active order."""
        return self._ordered()[2].get(name.partition(":")[0], ())

    def key(self, step: Step) -> keys.Key:
        names = (*self.before(step.id), *self.built_by(step))
        markers = [(name, self.book.steps[name].marker) for name in names if name in self.book.steps]
        return keys.of_step(
            step, self.place, self.params_of(step), self.book.notes.get(step.id, ""),
            [pair for pair in markers if pair[1]], self.phase_code() if self.reviews_code(step) else "",
        )  # fmt: skip

    def code_base(self) -> str:
        """The commit before the run's first phase; '' = no phase is committed yet."""
        if self._base is None:
            from doflow.git import history

            found = self._phase_commits()
            self._base = history.parent(self.git, found[-1]) if found else ""
        return self._base

    def phase_code(self) -> str:
        """What the phase commits brought: the key of a code review. What a later fixer mends is not in it."""
        from doflow.git import history

        found = self._phase_commits()
        return history.patches(self.git, found[::-1], f"{self.prefix}{self.run.dir}") if found else ""

    def _phase_commits(self) -> list[str]:
        """The run's phase commits, newest first."""
        from doflow.git import history

        kinds = {step.id: step.kind for step in self.flow.steps}
        return list(dict.fromkeys(
            entry["id"] for entry in history.history(self.git, self.run.name)
            if entry.get("Doflow-Phase") and kinds.get(entry.get("Doflow-Step", "")) == "implement"
        ))  # fmt: skip

    def code_diff(self, since: str = "") -> str:
        """What the run's phases changed in the project, outside of its own folder."""
        from doflow.git import history

        base = since or self.code_base()
        return history.diff(self.git, base, f"{self.prefix}{self.run.dir}") if base else ""

    def reviews_code(self, step: Step) -> bool:
        """A review that comes after an implement step reads the diff of the run's phase commits."""
        if step.kind != "review":
            return False
        order = self.order()
        before = order[: order.index(step.id)] if step.id in order else ()
        return any((found := self.flow.step(name)) and found.kind == "implement" for name in before)

    def agent_of(self, step: Step) -> str:
        """Which agent does this step, as `profile model` (for the lock and `why`)."""
        name = self.profile_of(step)
        profile = self.settings.profile(name)
        return f"{name} {step.model or (profile.model if profile else '')}".strip()

    def profile_of(self, step: Step) -> str:
        if self.options.agent:
            return self.options.agent
        name = keys.substitute(plan.routed(step.id, self.settings) or step.agent, self.params) or "default"
        return "default" if name == _FINDER and self.settings.profile(name) is None else name

    def write_lock(self, sync: bool = True) -> None:
        """Without `sync` when a commit follows, which brings it to the disk with everything else."""
        files.write(str(self.run_dir / lock.NAME), self._lines.text(self.book.lock), sync=sync)
        self.lock_digest = self.digest(f"{self.run.dir}/{lock.NAME}")

    def put(self, name: str, record: Record, artifacts: Mapping[str, Artifact]) -> None:
        with self.guard:
            self.book.steps[name] = record
            self.book.artifacts.update(artifacts)
            if self.plan.routes:
                self._order = None

    def drop(self, name: str) -> None:
        """Forget that a step or a phase is done; what is known of its artifacts stays."""
        with self.guard:
            self.book.steps.pop(name, None)
            self.book.reviews.pop(name, None)
            self.book.loose.discard(name)
            self._order = None

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()

    def _ordered(self) -> tuple[object, tuple[str, ...], dict[str, tuple[str, ...]]]:
        if self._order is None:
            markers = self.book.markers if self.plan.routes else {}
            order = plan.active(self.plan, markers)
            self._order = (None, order, plan.follows(self.plan, order))
        return self._order

    def built_by(self, step: Step) -> list[str]:
        """The steps that build code before a command, with others between: a command like `test` is about their code."""
        if self._coding is None:
            self._coding = frozenset(step.id for step in self.flow.steps if step.kind == "implement")
        if not self._coding or step.kind != "shell":
            return []
        direct = self.before(step.id)
        return sorted(self._coding & plan.upstream(self._ordered()[2], direct) - {*direct})

    def _held(self) -> lock.Lock | None:
        if self.run.fresh:
            return None
        return lock.read(self.run_dir / lock.NAME)
