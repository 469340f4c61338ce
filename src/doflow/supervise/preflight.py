"""Can this be worked on in tmux panes? Every reason why not, before anything is moved or started. Looks only at files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from doflow.flow.dot.model import CODERGEN, Node, Pipeline
from doflow.flow.model import Profile, Settings, Step
from doflow.supervise import workspace as places
from doflow.supervise.panes import programs, tmux
from doflow.supervise.runner import assignment, orchestrator
from doflow.supervise.runner.assignment import Assignment
from doflow.util.errors import DoflowError, FlowError, Problem, UsageError
from doflow.util.records import dataclass


@dataclass(frozen=True, slots=True)
class Doubt:
    """One reason, at a node. `anyway` = `doit` would refuse it too, or the node's own words are wrong."""

    node: Node
    message: str
    hint: str
    anyway: bool = False


def refuse(pipeline: Pipeline, settings: Settings, root: str, environ: Mapping[str, str]) -> None:
    """All of them at once, each with its line."""
    found = [Problem(pipeline.path, one.node.line, 1, one.message, one.hint)
             for one in doubts(pipeline, settings, root, environ)]  # fmt: skip
    if found:
        raise FlowError(tuple(found))


def doubts(pipeline: Pipeline, settings: Settings, root: str, environ: Mapping[str, str]) -> Iterator[Doubt]:
    """What keeps the nodes of a pipeline from being worked on under a guardian."""
    sessions: dict[str, str] = {}
    for node in pipeline.nodes:
        if node.get("reviewer"):
            yield from _tried(node, True, _reads, settings, node.get("reviewer"), f"the reviewer of {node.id}")
        if node.handler == CODERGEN:
            yield from _worked_on(node, assignment.of_node(node, pipeline, "", root, settings), settings, environ, root)
            session = tmux.session_of(node.id)
            if sessions.setdefault(session, node.id) != node.id:
                message = f"{node.id} and {sessions[session]} would work in one session, {session}"
                yield Doubt(node, message, f"give {node.id} another name")


def _worked_on(
    node: Node, work: Assignment, settings: Settings, environ: Mapping[str, str], root: str
) -> Iterator[Doubt]:
    missing = list(_tried(node, True, places.profile, settings, work.agent, node.id))
    yield from missing or _tried(node, False, programs.known, places.profile(settings, work.agent, node.id))
    if work.judge:
        yield from _tried(node, True, _reads, settings, work.judge, f"the judge of {node.id}")
    yield from _tried(node, True, orchestrator.style, work.style, root, environ)


def of_step(step: Step, profile: Profile, settings: Settings) -> None:
    """Refuse what a step with `via: tmux` or `judge` cannot have."""
    at = f"{step.origin.file}:{step.origin.line}"
    if step.judge and step.via != "tmux":
        message = f"step {step.id} has a `judge`, which reads a pane, and works headless"
        raise UsageError(message, f"{at}: add `via: tmux`, or take `judge` out")
    if step.via != "tmux":
        return
    if step.machine:
        message = f"step {step.id} has a `machine`, which nobody enforces in a pane"
        raise UsageError(message, f"{at}: take `machine` or `via: tmux` out")
    if step.judge:
        places.profile(settings, step.judge, f"`judge` of step {step.id}")
    programs.known(profile)
    if profile.use in ("codex", "gemini", "opencode") and (step.from_text or step.routes):
        message = f"step {step.id} needs the last words of {profile.use}, which a pane does not give"
        raise UsageError(message, "let it run headless, or use claude for it")


def _reads(settings: Settings, name: str, who: str) -> None:
    """A judge or a reviewer: it is there, and needs no sandbox."""
    if places.profile(settings, name, who).sandbox:
        message = f"{who} is the agent {name}, which has a sandbox, and who only reads works without"
        raise UsageError(message, f"name a profile without `sandbox`, which is agents.{name} without that line")


def _tried(node: Node, anyway: bool, look: Callable[..., object], *given: object) -> Iterator[Doubt]:
    try:
        look(*given)
    except DoflowError as error:
        message = error.message if node.id in error.message else f"{node.id}: {error.message}"
        yield Doubt(node, message, error.hint, anyway)
