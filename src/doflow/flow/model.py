"""Our nouns: every value that travels through doflow, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from doflow.flow.model_oversight import Supervision
from doflow.util.process.command import Command as Command, Result as Result, Timeout as Timeout
from doflow.util.records import dataclass, field


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
    """What a call used; `usd` is None where nobody said a price (never 0)."""

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step, or one agent call of it, ended. `usage` is what this call used, `spent` what its session has used so far
    where its CLI counts so; `gone`: the session that it was to go on in is not there any more, and nothing was done or paid.
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
    files: tuple[str, ...] = ()  # of an attempt that is held: what it made and changed
    denied: tuple[str, ...] = ()  # what it was told it may not do, and why; it may well have done the right thing then

    @property
    def ok(self) -> bool:
        return self.status is Status.DONE


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in which file something was said."""

    file: str
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class Param:
    """A value the person gives when a run starts; else it comes from the environment, or is the text of a file."""

    name: str
    about: str = ""
    required: bool = False
    default: str = ""
    env: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an agent is told. `name` is the file's name ('' = written in the flow itself)."""

    text: str
    name: str = ""
    packaged: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """An input. `path` as in the flow: in the run's folder, or from the project's root with '/'."""

    path: str
    section: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """The output contract of a step."""

    not_empty: bool = False
    headings: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    schema: str = ""
    tasks: bool = False
    backlog: bool = False
    run: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """When the marker line is found: go on with other steps, or pause until `again` (else the step) is done again."""

    when: str
    then: tuple[str, ...] = ()
    variant: str = ""
    pause: str = ""
    again: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a transient failure is tried again, and the first wait between (doubling)."""

    attempts: int = 2
    backoff: float = 30.0


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of money; None = no limit."""

    usd: float | None = None
    tokens: int | None = None


#: kinds of steps that an agent does, and that are paid
BY_AGENT = frozenset({"agent", "implement", "review"})


@dataclass(frozen=True, slots=False)
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
    again: Retry | None = None  # of a command, where the step itself says `retry`
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
    judge: str = ""
    machine: str = ""
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class Flow:
    """A named list of steps: all of them, and those that run, in order. `varies`: the environment has a say in it."""

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
        """Its runs are sessions in `plan/`."""
        return self.layout == "plan"

    def step(self, name: str) -> Step | None:
        return _by_id(self.steps).get(name)


_index: list[Any] = [None, {}]


def _by_id(steps: tuple[Step, ...]) -> dict[str, Step]:
    """The steps of a flow by id; remembered for the flow that was asked last, which nearly always is the only one."""
    if _index[0] is not steps:
        _index[:] = [steps, {step.id: step for step in steps}]
    found: dict[str, Step] = _index[1]
    return found


@dataclass(frozen=True, slots=True)
class Profile:
    """An agent as the settings name it: an adapter (`use`) and how to call it."""

    name: str
    use: str
    model: str = ""
    argv: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    executable: str = ""
    fallback: str = ""
    sandbox: str = ""
    sessions: str = ""
    rate_limit_exit: int = 75
    rate_limit_match: str = ""
    price: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """doflow.yaml with every default filled in; `origins` says where each value came from."""

    agents: tuple[Profile, ...] = (Profile("default", "claude", "sonnet"),)
    route_agents: tuple[tuple[str, str], ...] = ()
    gates: tuple[str, ...] = ()
    auto_approve: bool = False
    review_mode: str = "llm"
    command_variant: str = ""
    timeout: Timeout = Timeout()
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
    supervision: Supervision = Supervision()
    origins: tuple[tuple[str, str, str], ...] = ()

    def profile(self, name: str) -> Profile | None:
        return next((profile for profile in self.agents if profile.name == name), None)


@dataclass(frozen=True, slots=True)
class Hook:
    """A question that an agent puts to a program of ours. `closed`: no answer means no."""

    event: str
    command: str
    matcher: str = ""
    timeout: int = 60
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of an agent: who does what, with which words, and what must be there afterwards."""

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
