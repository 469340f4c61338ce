"""The values of doflow: outcomes, flows and steps, settings, agent calls. Frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from doflow.util.errors import Problem
from doflow.util.hints import Next
from doflow.util.process.runner import Command as Command, Result as Result, Timeout as Timeout


class Status(Enum):
    """How a step ended."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    PAUSED = "paused"
    RATE_LIMITED = "rate_limited"
    AUTH = "auth"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call used; `usd` is None if the price is unknown (never 0)."""

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step, or one of its agent calls, ended. `usage`: what this call used; `spent`: what its session has used so far,
    for CLIs that report it; `gone`: the session to resume no longer exists, and nothing was done or paid.
    """

    status: Status
    reason: str = ""
    hint: str = ""
    text: str = ""
    resume_at: str = ""
    session: str = ""
    model: str = ""
    transient: bool = False
    held: bool = False
    marker: str = ""
    usage: Usage | None = None
    spent: Usage | None = None
    gone: bool = False
    agent: str = ""
    files: tuple[str, ...] = ()  # of a held attempt: what it made and changed
    denied: tuple[str, ...] = ()  # actions that were denied, and why
    next: tuple[Next, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status is Status.DONE


@dataclass(frozen=True, slots=True)
class Origin:
    """A position in a file."""

    file: str
    line: int = 0
    column: int = 0

    def problem(self, message: str, hint: str = "") -> Problem:
        return Problem(self.file, self.line, self.column, message, hint)


@dataclass(frozen=True, slots=True)
class Param:
    """A value given when a run starts: on the command line, else from the environment or the text of a file."""

    name: str
    about: str = ""
    required: bool = False
    default: str = ""
    env: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt. `name` is the file name ('' = written in the flow itself)."""

    text: str
    name: str = ""
    packaged: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """An input. `path` as in the flow: in the run's folder, or from the project root with a leading '/'."""

    path: str
    section: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """The output checks of a step."""

    not_empty: bool = False
    headings: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    schema: str = ""
    tasks: str = ""  # a task list of `any` format, or in the `strict` form
    backlog: bool = False
    run: tuple[str, ...] = ()
    tests: bool = False  # the settings' `test_command` must pass


@dataclass(frozen=True, slots=True)
class Route:
    """If the marker line is found: continue with other steps, or pause until `again` (else the step itself) has run again."""

    when: str
    then: tuple[str, ...] = ()
    variant: str = ""
    pause: str = ""
    again: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a transient failure is retried, and the first delay (doubling)."""

    attempts: int = 2
    backoff: float = 30.0


@dataclass(frozen=True, slots=True)
class Budget:
    """Spending limits; None = no limit."""

    usd: float | None = None
    tokens: int | None = None


#: kinds of steps that call agents, and so cost money
BY_AGENT = frozenset({"agent", "implement", "review"})


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of a flow, every default filled in."""

    id: str
    kind: str = "agent"
    about: str = ""
    prompt: Prompt | None = None
    agent: str = ""
    model: str = ""
    fallback: str = ""
    reads: tuple[Read, ...] = ()
    needs: tuple[Read, ...] = ()
    makes: tuple[str, ...] = ()
    from_text: bool = False
    writes: tuple[str, ...] | None = None
    protect: tuple[str, ...] = ()
    check: Check = Check()
    repair: int = 0
    clarify: bool = False
    gate: str = ""
    routes: tuple[Route, ...] = ()
    after: tuple[str, ...] | None = None
    only: tuple[tuple[str, str], ...] = ()
    run: tuple[str, ...] = ()
    shell: str = ""
    phases: str = ""
    phases_or: tuple[str, ...] = ()
    commit: str = ""
    timeout: Timeout | None = None
    retry: Retry | None = None
    again: Retry | None = None  # for a command, if the step itself sets `retry`
    budget: Budget = Budget()
    personas: tuple[str, ...] = ()
    voices: tuple[Prompt, ...] = ()
    rounds: int = 0
    fixer: str = ""
    mode: str = ""
    flow: str = ""
    params: tuple[tuple[str, str], ...] = ()
    foreach: tuple[str, ...] | str = ()
    via: str = ""
    workspace: str = ""
    judge: str = ""
    machine: str = ""
    origin: Origin = Origin("")

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the files that it reads, makes, writes or works through."""
        reads = (read.path for read in (*self.reads, *self.needs))
        return (*self.makes, *(self.writes or ()), self.phases, *self.phases_or, *reads)


@dataclass(frozen=True, slots=True)
class Flow:
    """A named list of steps, and the order in which they run. `varies`: it depends on the environment."""

    name: str
    about: str = ""
    params: tuple[Param, ...] = ()
    steps: tuple[Step, ...] = ()
    pipeline: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    file: str = ""
    packaged: bool = False
    inputs: tuple[tuple[str, str], ...] = ()
    layout: str = ""
    varies: bool = False

    @property
    def in_sessions(self) -> bool:
        """Are its runs sessions in `plan/`?"""
        return self.layout == "plan"

    @property
    def takes_list(self) -> bool:
        """Does it work on a task list that the parameter `tasks` names?"""
        return any(step.kind == "implement" and "{tasks}" in step.phases for step in self.steps)

    @property
    def has_given_list(self) -> bool:
        """Does it work on a task list that none of its own steps makes?"""
        made = {path for step in self.steps for path in step.makes}
        return any(
            step.kind == "implement" and not made.issuperset((step.phases, *step.phases_or)) for step in self.steps
        )

    @property
    def has_subflows(self) -> bool:
        return any(step.kind == "flow" for step in self.steps)

    @property
    def has_params_in_paths(self) -> bool:
        return any("{" in path for step in self.steps for path in step.paths)

    def step(self, name: str) -> Step | None:
        return _by_id(self.steps).get(name)


_index: list[Any] = [None, {}]


def _by_id(steps: tuple[Step, ...]) -> dict[str, Step]:
    """The steps of a flow by id, cached for the last flow (usually the only one)."""
    if _index[0] is not steps:
        _index[:] = [steps, {step.id: step for step in steps}]
    found: dict[str, Step] = _index[1]
    return found


# --- settings: here because flows are planned with them, and `config` imports `flow` ---


@dataclass(frozen=True, slots=True)
class Profile:
    """An agent profile of the settings: an adapter (`use`) and how to call it."""

    name: str
    use: str
    model: str = ""
    argv: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    executable: str = ""
    fallback: str = ""
    sandbox: str = ""
    workspace: str = ""
    sessions: str = ""
    rate_limit_exit: int = 75
    rate_limit_match: str = ""
    price: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Supervision:
    """How pipelines are supervised. `answers`: (text in a question, its answer)."""

    signals: str = ".claude/attractor/signals"
    parallel: int = 3
    retries: int = 3
    stuck: float = 300.0
    validate: tuple[str, ...] = ()
    reviewer: str = ""
    judge: str = ""
    answers: tuple[tuple[str, str], ...] = ()
    style: str = "orchestrator"
    keep_days: int = 14


@dataclass(frozen=True, slots=True)
class Settings:
    """doflow.yaml with every default filled in; `origins` says where each value came from."""

    agents: tuple[Profile, ...] = (Profile("default", "claude", "sonnet"),)
    route_agents: tuple[tuple[str, str], ...] = ()
    gates: tuple[str, ...] = ()
    auto_approve: bool = False
    review_mode: str = "llm"
    command_variant: str = ""
    timeout: Timeout = field(default_factory=Timeout)
    step_timeouts: tuple[tuple[str, float | None, float | None], ...] = ()
    retry_enabled: bool = True
    retry: Retry = Retry()
    rate_limit_wait: float = 0.0
    budget: Budget = Budget()
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    budget_on_exceed: str = "pause"
    triggers: tuple[str, ...] = ()
    review_command: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    branch: str = "new"
    commit_artifacts: bool = True
    verify: bool = False
    pipelines: tuple[tuple[str, str], ...] = ()
    layout: str = "specs"
    workspace: str = "auto"
    test_command: tuple[str, ...] = ()
    max_tasks: int = 15  # a phase with more is worked in parts
    supervision: Supervision = field(default_factory=Supervision)
    origins: tuple[tuple[str, str, str], ...] = ()

    def profile(self, name: str) -> Profile | None:
        return next((profile for profile in self.agents if profile.name == name), None)


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook of an agent CLI that calls doflow. `closed`: no answer means no."""

    event: str
    command: str
    matcher: str = ""
    timeout: int = 60
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of an agent: profile, prompt, and the files it must make."""

    step: str
    prompt: str
    profile: Profile
    root: str
    run: str
    run_dir: str
    model: str = ""
    role: str = "step"
    phase: str = ""
    persona: str = ""
    round: int = 0
    attempt: int = 1
    makes: tuple[str, ...] = ()
    check: Check = Check()
    from_text: bool = False
    read_only: bool = True
    resume: str = ""
    spent: Usage | None = None
    goal: str = ""
    markers: tuple[str, ...] = ()
    trouble: str = ""
    hooks: tuple[Hook, ...] = ()
    machine: str = ""
    budget: float | None = None
