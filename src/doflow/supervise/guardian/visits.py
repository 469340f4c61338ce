"""How a guardian follows a pipeline whose nodes decide the way: begins visits, keeps their results, takes decisions."""

from __future__ import annotations

import os

from doflow.flow import markdown
from doflow.flow.dot import node_steps, transitions
from doflow.flow.dot.model import ACTIVE, CODERGEN, FAILED, IMPL_COMPLETE, PENDING, TERMINAL, Node
from doflow.flow.dot.walk import WalkStep
from doflow.supervise.guardian import runner_pool, state, validation
from doflow.supervise.guardian.position import Position
from doflow.supervise.guardian.state import Guardian
from doflow.util.errors import DoflowError


def advance(guardian: Guardian, position: Position) -> None:
    """Begin what is ready and take decisions, until nothing more changes."""
    while any(_advance_step(guardian, position, step) for step in position.ready()):
        pass
    transitions.follow(guardian.context.dot, position.statuses(guardian.pipeline()), by="guardian")


def is_stopped(guardian: Guardian, position: Position) -> bool:
    """Does nothing go on because a person chose `stop`? Asks where that isn't known yet."""
    steps = position.ready()
    if any(_is_moving(guardian, position, step) for step in steps):
        return False
    answers = [_ask_fate(guardian, position, step) for step in steps]
    return bool(answers) and all(answer == "stop" for answer in answers)


def _advance_step(guardian: Guardian, position: Position, step: WalkStep) -> bool:
    """True = something has changed."""
    if step.decides:
        return _decide(guardian, position, step)
    node = guardian.pipeline().node(step.node.id)
    if node is None:
        raise DoflowError(f"{guardian.context.dot}: the node {step.node.id} was removed while the pipeline was running")
    if not position.is_begun(step):
        return _begin(guardian, position, step, node)
    if node.status == PENDING:
        guardian.begin(node)
        return True
    if node.status == IMPL_COMPLETE:
        return validation.validate_earlier_work(guardian, node)
    if node.status == ACTIVE and node.handler != CODERGEN:
        return validation.apply_verdict(guardian, node)
    if node.status in TERMINAL and (report := _report(guardian, position, node)):
        position.finish(step, report)
        return True
    return False


def _begin(guardian: Guardian, position: Position, step: WalkStep, node: Node) -> bool:
    """A visit that the file has as done is taken over; otherwise the node begins, again if it was done in an earlier lap."""
    if earlier := position.earlier_result(step):
        words = f"{node.id} was done before, as {os.path.basename(guardian.context.dot)} says."
        position.finish(step, f"{words}\n\n{earlier}")
        return True
    if node.status in (ACTIVE, IMPL_COMPLETE):
        position.begin(step)
        return True
    if node.handler == CODERGEN:
        working = runner_pool.working_nodes(guardian.pipeline())
        if len(working) >= guardian.context.settings.supervision.parallel:
            return False
    transitions.follow(guardian.context.dot, {node.id: (PENDING, step.lap - 1)}, by="guardian", note=f"lap {step.lap}")
    guardian.keep(node.id, feedback="", beginning=False)
    position.begin(step)
    guardian.begin(node)
    return True


def _report(guardian: Guardian, position: Position, node: Node) -> str:
    """The result of a visit that has ended; '' = it failed, and the pipeline has no way for that."""
    attempt = int(guardian.record(node.id)["attempt"])
    verdict = guardian.settled(validation.token(node.id, attempt))
    decides = position.wanted.decides(node)
    if node.status == FAILED:
        rejected = verdict.get("passed") is False and not verdict.get("error")
        return f"{validation.output(verdict)}\n\n{node_steps.FAIL}" if decides and rejected else ""
    if node.handler == CODERGEN:
        text = guardian.answer(node.id, attempt)
        endings = position.wanted.endings(node) if decides else ()
        if markdown.read_markers(text, endings):
            return markdown.with_plain_end(text, endings)
        return f"{text}\n\n{node_steps.PASS}"
    label = f"LABEL: {verdict['label']}\n" if verdict.get("label") else ""
    return f"{validation.output(verdict)}\n{label}\n{node_steps.PASS}"


def _decide(guardian: Guardian, position: Position, step: WalkStep) -> bool:
    """Take the way that the results lead to; a pause is left to the person."""
    route = position.decide(step)
    if route.pause:
        return False
    visits = position.follow(step, route)
    where = route.when.removeprefix("NEXT: ")
    guardian.context.note("guardian", "decided", node=step.node.id, step=step.id, to=where)
    guardian.say(f"{step.node.id}: leads to {where}")
    again = {one.node.id: (PENDING, one.lap - 1) for one in visits if one.lap > 1 and not position.earlier_result(one)}
    if again:
        transitions.follow(guardian.context.dot, again, by="guardian", note=f"{step.id}: {where}")
    return True


def _is_moving(guardian: Guardian, position: Position, step: WalkStep) -> bool:
    """Is a step at work, or about to be?"""
    if step.decides:
        return not position.decide(step).pause
    node = guardian.pipeline().node(step.node.id)
    failed = node is not None and node.status == FAILED and position.is_begun(step)
    return not failed or bool(node and _report(guardian, position, node))


def _ask_fate(guardian: Guardian, position: Position, step: WalkStep) -> str:
    """What a person wants where the pipeline cannot go on: retry, stop, or '' (no answer yet)."""
    record = guardian.record(step.node.id)
    if step.decides:
        route, token = position.decide(step), position.pause_token(step)
        issue = f"{route.pause}, then retry."
    else:
        token = f"failed.{step.node.id}.{record['attempt']}"
        issue = f"{step.node.id} has failed after attempt {record['attempt']}: {str(record['feedback'])[:800]}"
    answer = guardian.ask(token, step.node.id, issue, state.FATE)
    word, note = state.match_option(answer, state.FATE) if answer is not None else ("", "")
    if word == "retry" and step.decides:
        position.redo(step, route)
    elif word == "retry":
        guardian.begin_again(step.node.id, note)
    return word
