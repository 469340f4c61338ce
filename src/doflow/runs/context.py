"""The context of one run: its values, its record and event log, the project's files, the order of its steps, git."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from doflow.flow import expansion, findings, plan
from doflow.flow.model import Flow, Settings, Step
from doflow.flow.parsing.syntax import substitute
from doflow.git import head_reader, history
from doflow.git.head import Head
from doflow.git.repository import Repository
from doflow.runs import event_log, fingerprint, lockfile, run_record, session_layout
from doflow.runs.catalogue import INPUT, SNAPSHOT, Run
from doflow.runs.event_log import EventLog
from doflow.runs.fingerprint import ProjectFiles
from doflow.runs.lockfile import Artifact, StepRecord
from doflow.runs.place import InPlace, Place
from doflow.runs.run_record import RunRecord
from doflow.util import atomic_files, state_folder
from doflow.util.hints import Target
from doflow.util.process import environment

#: the agent that looks for bugs in a session; the default agent, where doflow.yaml has none of this name
_FINDER = "glp"


class RunContext:
    """Holds the parts that a step needs and decides nothing. `at_work`: steps are run, not only inspected. `frozen`: the run
    is finished and its branch is not checked out. `own`: files that doflow itself updates, with their digests."""

    def __init__(
        self,
        root: Path,
        flow: Flow,
        run: Run,
        settings: Settings,
        planned: plan.Plan,
        environ: Mapping[str, str],
        listen: event_log.Listener,
        given: Options | None = None,
        at_work: bool = False,
    ) -> None:
        self.root = root
        self.flow = flow
        self.settings = settings
        self.plan = planned
        self.environ = environ
        self.listen = listen
        self.options = given or Options()
        self.at_work = at_work
        self.guard = threading.RLock()
        self.place: Place = InPlace(str(root))
        lists = [name for step in flow.steps for name in (step.phases, *step.phases_or) if name]
        self.files = ProjectFiles(root, run.dir, frozenset(map(ProjectFiles(root, run.dir).path, lists)))
        self.own: dict[str, str] = {}
        self.limits: dict[str, str] = {}  # agents that are rate limited, and until when
        self._lock_lines = lockfile.Lines()
        self._state = _State(run)

    def with_files(self, files: ProjectFiles, place: Place | None = None) -> RunContext:
        """The same run seen through other files, its programs run in `place`: of a workspace, or what will be."""
        found = copy.copy(self)
        found.files = files
        found.place = place or self.place
        return found

    @property
    def run(self) -> Run:
        return self._state.run

    @property
    def frozen(self) -> bool:
        return self._state.frozen

    @property
    def last_commit(self) -> str:
        return self._state.last_commit

    @property
    def lock_digest(self) -> str:
        return self._state.lock_digest

    def committed(self, commit: str) -> None:
        """Our last commit, '' = nothing had to be committed."""
        self._state.last_commit = commit

    # the run's values

    @property
    def state_dir(self) -> Path:
        return self.root / state_folder.RUNS / self.run.name

    @property
    def logs(self) -> str:
        """The folder with the output of agents and commands."""
        return str(self.state_dir / "logs")

    @property
    def run_dir(self) -> Path:
        return self.root / self.run.dir

    @property
    def input(self) -> str:
        """The file of the run's folder that holds the goal."""
        return SNAPSHOT if self.flow.in_sessions else INPUT

    @property
    def input_bytes(self) -> bytes:
        """The content of that file."""
        text = self.run.goal if self.input == SNAPSHOT else f"{self.run.goal}\n"
        return text.encode("utf-8", "surrogateescape")

    @property
    def given(self) -> tuple[str, ...]:
        """The files of the run's folder that doflow wrote when it started; none in a folder of another tool."""
        if self.run.params.get("tasks") and os.path.dirname(self.run.params["tasks"]) == self.run.dir:
            return ()
        return (self.input, session_layout.DELTA) if self.run.params.get("previous") else (self.input,)

    def findings_path(self, step: str) -> str:
        """The file of a review's findings: in the run's folder, or with the run's state if that is a folder of another tool."""
        place = self.run.dir if self.given else f"{state_folder.RUNS}/{self.run.name}"
        return findings.findings_file(place, step)

    @property
    def resume_command(self) -> str:
        """The command that continues this run with the options it was started with."""
        return f"doit {self.flow.name}{self.lasting_options}"

    @property
    def lasting_options(self) -> str:
        """The lasting options of this command; for commands that run no steps, those of the last run command."""
        own = format_options(self.options.lasting)
        return own or ("" if self.at_work else format_options(self.record.options))

    @property
    def target(self) -> Target:
        """The checked-out run: its commands need only its lasting options."""
        return Target(self.flow.name, options=tuple(self.lasting_options.split()))

    @cached_property
    def shell(self) -> dict[str, str]:
        """The person's environment as commands get it."""
        return environment.for_shell(self.environ, {})

    def step_environment(self, step: str, makes: Sequence[str] | None = None) -> dict[str, str]:
        """The same for a command of a step."""
        about = {"DOFLOW_RUN": self.run.name, "DOFLOW_RUN_DIR": str(self.run_dir), "DOFLOW_STEP": step}
        paths = {} if makes is None else {"DOFLOW_MAKES": "\n".join(str(self.root / path) for path in makes)}
        return self.shell | about | paths

    @property
    def params(self) -> Mapping[str, str]:
        return run_params(self.run, self.flow)

    def params_of(self, step: Step) -> dict[str, str]:
        """The parameters as a step sees them: the run's, and over them its own (a sub-flow's, an item's)."""
        base = {**self.params, "step": step.id}
        return base | {name: substitute(value, base) for name, value in step.params}

    def replace_run(self, run: Run) -> None:
        self._state.run = run
        self.record.replace_run(run)

    def freeze(self, frozen: bool) -> None:
        """A finished run whose branch is not checked out: nothing of it is done again without --reopen."""
        self._state.frozen = frozen

    # its steps

    def step(self, name: str) -> Step | None:
        """A step by its id, or one item of a `foreach` by `step:item`."""
        found = self.flow.step(name)
        if found is None and ":" in name:
            group = self.flow.step(name.partition(":")[0])
            parts = self.items(group) if group is not None and group.foreach else ()
            return next((part for part in parts if part.id == name), None)
        return found

    def items(self, step: Step) -> tuple[Step, ...]:
        """The items of a `foreach` as they are now; none while the file that lists them does not exist."""
        if isinstance(step.foreach, tuple):
            return expansion.expand_items(step, None, "", self.params)
        path = self.files.path(step.foreach)
        text = self.files.text(path)
        return () if text is None else expansion.expand_items(step, text, path, self.params, self.flow)

    def phases(self, step: Step) -> str:
        """The task list of an implement step: of those it names the first that a step of this variant makes."""
        if not step.phases_or:
            return self.files.path(step.phases)
        active = [found for name in self.order.active() if (found := self.flow.step(name))]
        made = {name for found in active for name in found.makes}
        return self.files.path(next((name for name in (step.phases, *step.phases_or) if name in made), step.phases))

    @property
    def order(self) -> plan.StepOrder:
        if self._state.order is None:
            self._state.order = plan.StepOrder(self.flow, self.plan, self.record.markers if self.plan.routes else {})
        return self._state.order

    def key(self, step: Step) -> fingerprint.Key:
        """The fingerprint of a step as things are now."""
        names = (*self.order.before(step.id), *self.order.builders(step))
        steps = self.record.steps
        markers = [(name, steps[name].marker) for name in names if name in steps]
        return fingerprint.step_key(
            step, self.files, self.params_of(step), self.record.notes.get(step.id, ""),
            [pair for pair in markers if pair[1]], self.phase_code() if self.order.reviews_code(step) else "",
        )  # fmt: skip

    def agent_of(self, step: Step) -> str:
        """Which agent does this step, as `profile model` (for the lock and `why`)."""
        name = self.profile_of(step)
        profile = self.settings.profile(name)
        return f"{name} {step.model or (profile.model if profile else '')}".strip()

    def profile_of(self, step: Step) -> str:
        if self.options.agent:
            return self.options.agent
        name = substitute(plan.routed_profile(step.id, self.settings) or step.agent, self.params) or "default"
        return "default" if name == _FINDER and self.settings.profile(name) is None else name

    # its records

    @property
    def record(self) -> RunRecord:
        if self._state.record is None:
            held = None if self.run.fresh else lockfile.read_lock(self.run_dir / lockfile.NAME)
            if held is not None and self.run.moved_from:
                held = lockfile.relocate(held, self.run.moved_from, self.run.dir)
            self._state.record = run_record.load_record(self.run, held, self.state_dir / "events.jsonl")
        return self._state.record

    @property
    def events(self) -> EventLog:
        if self._state.events is None:
            self._state.events = EventLog(self.state_dir / "events.jsonl", self.run.name, self._announce)
        return self._state.events

    def _announce(self, entry: event_log.Entry) -> None:
        """The record follows the log first, so that listeners only read it."""
        if entry["event"] == "retry":
            self.record.add_retry(entry)
        self.listen(entry)

    def complete(self, name: str, record: StepRecord, artifacts: Mapping[str, Artifact]) -> None:
        """A step or a phase is done."""
        with self.guard:
            self.record.complete(name, record, artifacts)
            if self.plan.routes:
                self._state.order = None

    def forget_step(self, name: str) -> None:
        with self.guard:
            self.record.forget_step(name)
            self._state.order = None

    def reload_record(self) -> None:
        """The lock file was restored: what was read from it is read again."""
        self._state.record, self._state.order = None, None

    def write_lock(self, sync: bool = True) -> None:
        """Without `sync` when a commit follows, which brings it to the disk with everything else."""
        atomic_files.write_file(str(self.run_dir / lockfile.NAME), self._lock_lines.text(self.record.lock), sync=sync)
        self._state.lock_digest = self.files.digest(f"{self.run.dir}/{lockfile.NAME}")

    def limit_agent(self, name: str, until: str) -> None:
        """An agent is rate limited: no further call of it is started before then."""
        self.limits[name] = until

    def close(self) -> None:
        if self._state.events is not None:
            self._state.events.close()

    # git

    @property
    def head(self) -> Head:
        if self._state.head is None:
            self._state.head = head_reader.find_head(str(self.root))
        return self._state.head

    @property
    def git(self) -> Repository:
        with self.guard:
            if self._state.git is None:
                self._state.git = Repository(self.head)
            return self._state.git

    @property
    def prefix(self) -> str:
        """The project's folder relative to the top of the working tree: '' or `apps/shop/`."""
        below = os.path.relpath(os.path.realpath(self.root), self.head.top)
        return "" if below == "." else f"{below}/"

    def reload_git(self) -> None:
        """HEAD or the config may have changed: both are read again when they are needed."""
        self._state.head, self._state.git = None, None

    def switched_to(self, head: Head) -> None:
        """The branch was switched by us."""
        self._state.head = head

    def phase_code(self) -> str:
        """The patches of the run's phase commits: the key of a code review. Later fixes by reviewers are not in it."""
        commits, folder = self._phase_commits(), self.run.moved_from or self.run.dir
        return history.commit_patches(self.git, commits[::-1], f"{self.prefix}{folder}") if commits else ""

    def code_diff(self, since: str = "") -> str:
        """What the run's phases changed in the project, outside of its own folder."""
        if self._state.code_base is None:  # the commit before the run's first phase
            commits = self._phase_commits()
            self._state.code_base = history.parent_commit(self.git, commits[-1]) if commits else ""
        base = since or self._state.code_base
        return history.diff_since(self.git, base, f"{self.prefix}{self.run.dir}") if base else ""

    def _phase_commits(self) -> list[str]:
        """The run's phase commits, newest first."""
        implement = {step.id for step in self.flow.steps if step.kind == "implement"}
        commits = history.run_commits(self.git, self.run.name)
        found = [one for one in commits if one.get("Doflow-Phase") and one.get("Doflow-Step", "") in implement]
        return list(dict.fromkeys(commit["id"] for commit in found))


@dataclass(slots=True)
class _State:
    """What changes while a run is worked on, shared by all views of its context."""

    run: Run
    frozen: bool = False
    last_commit: str = ""
    lock_digest: str = ""
    head: Head | None = None
    git: Repository | None = None
    record: RunRecord | None = None
    events: EventLog | None = None
    order: plan.StepOrder | None = None
    code_base: str | None = None


def run_params(run: Run, flow: Flow) -> Mapping[str, str]:
    """The parameters of a run: the flow's defaults, what the person gave, and the run's own values."""
    defaults = {param.name: param.default for param in flow.params}
    own = {"goal": run.goal, "flow": run.flow, "run": run.name, "run_dir": run.dir}
    return {"previous": ""} | defaults | dict(run.params) | own | {"branch": run.branch, "issue": run.issue}


@dataclass(frozen=True, slots=True)
class Options:
    """Run options of one command line."""

    next: bool = False
    force: frozenset[str] = frozenset()
    completed: frozenset[str] = frozenset()
    reopen: bool = False
    auto_approve: bool = False
    agent: str = ""
    budget: str = ""
    record: bool = False
    redo: frozenset[str] = frozenset()  # phases
    task: str = ""  # do this task alone
    optional: bool = False  # do optional tasks, too

    @property
    def lasting(self) -> dict[str, Any]:
        """The options that hold for the whole run, not only for this command."""
        extra = {"optional": True} if self.optional else {}
        return {"agent": self.agent, "budget": self.budget, "record": self.record, **extra}


def format_options(lasting: Mapping[str, Any]) -> str:
    """The options as command line text: ` --agent=rehearsal`; '' = none."""
    words = [f" --{name}={lasting[name]}" for name in ("agent", "budget") if lasting.get(name)]
    return "".join(words) + "".join(f" --{name}" for name in ("record", "optional") if lasting.get(name))
