"""The headless guardian of one pipeline: starts runners for ready nodes, waits for signals, validates, moves nodes.

It decides by rules. Its state is on disk before it acts, so after a kill at any point the next guardian continues.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping

from doflow.flow.dot import editor, order, transitions
from doflow.flow.dot.model import (
    ACTIVE,
    CODERGEN,
    CONDITION,
    FAILED,
    IMPL_COMPLETE,
    PENDING,
    TERMINAL,
    VALIDATED,
    Node,
    Pipeline,
)
from doflow.supervise import ownership, pipeline_context, signal_store
from doflow.supervise.guardian import decisions, runner_pool, state, stop, validation, visits
from doflow.supervise.guardian.state import Guardian, Say
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.signal_watch import FolderWatch
from doflow.util.errors import DoflowError, UsageError

DONE, FAILURE, PAUSED = 0, 1, 2


def run(context: PipelineContext, environ: Mapping[str, str], say: Say, wait: bool = True, check: float = 2.0) -> int:
    """Run the pipeline to its end; 0 = every node is validated, 1 = some failed, 2 = waits for a person (`wait` off)."""
    if not context.dot:
        raise UsageError(f"unknown pipeline {context.pipeline!r}", "give its file: doflow guardian run NAME.dot")
    runner_pool.refuse_unsuitable(context, environ)
    lock = os.path.join(context.folder, "guardian.lock")
    command = f"doflow guardian run {os.path.relpath(context.dot, context.root)}"
    shared = ownership.lock_for_guardian(context.root, context.dot, command)
    hint = f"wait for it, or stop it: doflow guardian stop {os.path.relpath(context.dot)}   then run again"
    with pipeline_context.held(lock, f"a guardian is working on {context.pipeline}", hint), shared:
        pipeline_context.register(context)
        stop.clear_stop(context)
        context.store.clean(context.settings.supervision.keep_days)
        guardian = Guardian(context, environ, say)
        context.note("guardian", "guardian_started", pid=os.getpid(), dot=context.dot)
        try:
            validation.refuse_invalid(guardian.pipeline(), context)
            guardian.find_position()
            return _work(guardian, wait, check)
        except Exception as error:
            _report(guardian, error)
            raise
        finally:
            context.note("guardian", "guardian_ended", pid=os.getpid())
            context.tmux.leave()
            guardian.close()


def _work(guardian: Guardian, wait: bool, check: float) -> int:
    context, signals = guardian.context, guardian.context.store.folder
    os.makedirs(guardian.results, exist_ok=True)
    with FolderWatch((signals, os.path.join(signals, signal_store.ANSWERS), guardian.results)) as watch:
        while True:
            if not os.path.exists(os.path.join(context.folder, "guardian.lock")):
                message = f"{context.folder} was removed while its guardian was running"
                raise DoflowError(message, "run the same command again")
            before = guardian.pipeline().text
            _handle_signals(guardian)
            _advance(guardian)
            pipeline = guardian.pipeline()
            runner_pool.keep_runners(guardian, pipeline)
            code = _exit_code(guardian, pipeline)
            if code is not None:
                _handle_signals(guardian)  # the last signal of a runner that has ended since
                return code
            if pipeline.text == before:
                if not wait and _only_a_person(guardian, pipeline):
                    dot = os.path.relpath(context.dot)
                    guardian.say(f"paused: answer, then: doflow guardian run {dot} --no-wait")
                    return PAUSED
                watch.sleep(check)


def _handle_signals(guardian: Guardian) -> None:
    for signal in guardian.context.store.waiting(target="guardian"):
        if decisions.handle_signal(guardian, signal):
            guardian.context.store.consume(signal)


def _advance(guardian: Guardian) -> None:
    """Start ready nodes and advance gates, tools and diamonds, until nothing more changes."""
    if guardian.position is not None:
        visits.advance(guardian, guardian.position)
        return
    moved = True
    while moved:
        pipeline = guardian.pipeline()
        moved = False
        for node in pipeline.nodes:
            if node.status == ACTIVE and node.handler != CODERGEN:
                judged = node.handler in validation.JUDGED
                moved |= validation.apply_verdict(guardian, node) if judged else _pass(guardian, node)
            elif node.status == IMPL_COMPLETE:
                moved |= validation.validate_earlier_work(guardian, node)
            elif node.handler == CONDITION and node.status == FAILED:
                moved |= _send_back(guardian, pipeline, node)
        if not moved:
            free = guardian.context.settings.supervision.parallel - len(runner_pool.working_nodes(pipeline))
            for node in order.ready_nodes(pipeline):
                if node.handler == CODERGEN and free <= 0:
                    continue
                free -= node.handler == CODERGEN
                _begin(guardian, node)
                moved = True


def _begin(guardian: Guardian, node: Node) -> None:
    """Start an attempt at a pending node. Start, exit, fork and join nodes are validated at once."""
    guardian.begin(node)
    if node.handler not in (CODERGEN, *validation.JUDGED):
        _pass(guardian, node)


def _pass(guardian: Guardian, node: Node) -> bool:
    """Validate a node without work; also after a guardian was killed here."""
    guardian.move(node.id, VALIDATED)
    return True


def _send_back(guardian: Guardian, pipeline: Pipeline, diamond: Node) -> bool:
    """A failed diamond with a retry edge: repeat the nodes in between, with its feedback."""
    names = order.retry_body(pipeline, diamond.id)
    if not names or order.retry_count(diamond) >= order.max_retries(pipeline, diamond):
        return False
    why = str(guardian.record(diamond.id)["feedback"])
    for name in names:
        if name != diamond.id:
            guardian.keep(name, feedback=why, beginning=False)
    guardian.keep(diamond.id, beginning=False)
    transitions.requeue(guardian.context.dot, diamond.id, by="guardian", note=why[:300])
    guardian.context.note("guardian", "requeued", node=diamond.id, nodes=list(names))
    guardian.say(f"{diamond.id}: sent back: {', '.join(names)}")
    return True


def _exit_code(guardian: Guardian, pipeline: Pipeline) -> int | None:
    """The exit code if the pipeline has ended, else None; a person may retry a failed node."""
    position = guardian.position
    if position is None:
        refuse_deadlock(pipeline)
        stopped, left = _blocked(guardian, pipeline) if unfinished(pipeline) else False, unfinished(pipeline)
        bad = [node.id for node in pipeline.nodes if node.status == FAILED and not is_handled(pipeline, node)]
    else:
        stopped = not position.ended() and visits.is_stopped(guardian, position)
        left = [step.node.id for step in position.ready()]
        bad = [node.id for node in pipeline.nodes if node.id in left and node.status == FAILED]
    if (left and not stopped) or not runner_pool.all_ended(guardian, pipeline):
        return None
    validated = sum(node.status == VALIDATED for node in pipeline.nodes)
    summary = f"{validated} of {len(pipeline.nodes)} nodes validated"
    summary += f"; failed: {', '.join(bad)}" if bad else ""
    summary += f"; not reached: {', '.join(left)}" if left else ""
    guardian.tell("PIPELINE_COMPLETE", f"complete.{transitions.digest(pipeline.text)}", summary=summary)
    guardian.context.note("guardian", "pipeline_complete", summary=summary)
    guardian.say(f"{guardian.context.pipeline}: complete: {summary}")
    return FAILURE if bad or left else DONE


def _blocked(guardian: Guardian, pipeline: Pipeline) -> bool:
    """Failed nodes block the rest and the person chose `stop`; `retry` restarts them."""
    pending = [node for node in pipeline.nodes if node.id in unfinished(pipeline)]
    failed = [node for node in pipeline.nodes if node.status == FAILED and not is_left_to_diamond(pipeline, node)]
    if not failed or any(node.status != PENDING for node in pending) or order.ready_nodes(pipeline):
        return False
    stop = False
    for node in failed:
        record = guardian.record(node.id)
        issue = f"{node.id} has failed after attempt {record['attempt']}: {str(record['feedback'])[:800]}"
        answer = guardian.ask(f"failed.{node.id}.{record['attempt']}", node.id, issue, state.FATE)
        if answer is not None and state.match_option(answer, state.FATE)[0] == "retry":
            _revive(guardian, node, answer)
            return False
        stop |= answer is not None
    return stop


def _revive(guardian: Guardian, node: Node, answer: str) -> None:
    """Retry: a diamond gets one more retry, any other node a new attempt."""
    if node.handler == CONDITION:
        more = {"max_retries": str(order.retry_count(node) + 1)}
        transitions.edit_pipeline(guardian.context.dot, lambda pipeline: editor.set_attributes(pipeline, node.id, more))
        return
    guardian.begin_again(node.id, answer.partition(":")[2].strip())


def _only_a_person(guardian: Guardian, pipeline: Pipeline) -> bool:
    busy = {node.id for node in pipeline.nodes if node.status not in (*TERMINAL, PENDING)}
    return bool(guardian.asked) and not guardian.busy() and busy <= set(guardian.asked.values())


def _report(guardian: Guardian, error: Exception) -> None:
    """Report a fatal error to the terminal."""
    trace = "" if isinstance(error, DoflowError) else "".join(traceback.format_exception(error))
    words = str(error) or type(error).__name__
    guardian.context.note("guardian", "guardian_error", error=words)
    try:
        guardian.tell("GUARDIAN_ERROR", f"error.{os.getpid()}", error=words, stack_trace=trace)
    except (DoflowError, OSError):
        pass  # the exit code and standard error report it too


def refuse_deadlock(pipeline: Pipeline) -> None:
    """Refuse a pipeline whose nodes wait for each other."""
    names = unfinished(pipeline)
    moving = any(node.status not in (*TERMINAL, PENDING) for node in pipeline.nodes) or order.ready_nodes(pipeline)
    if names and not moving and not any(node.status == FAILED for node in pipeline.nodes):
        waits = "; ".join(f"{name} waits for {', '.join(order.dependencies(pipeline, name))}" for name in names)
        raise DoflowError(f"{pipeline.path}: deadlock: {waits}", f"doflow validate {pipeline.path}")


def unfinished(pipeline: Pipeline) -> list[str]:
    """The nodes that haven't ended yet."""
    skipped = set(order.skipped_nodes(pipeline))
    sent = {node.id for node in pipeline.nodes if order.retry_count(node)}
    idle = {name for name, senders in order.compute_order(pipeline).repairs.items() if not sent & set(senders)}
    return [node.id for node in pipeline.nodes if node.status not in TERMINAL and node.id not in skipped | idle]


def is_handled(pipeline: Pipeline, node: Node) -> bool:
    """A failure that the pipeline handles: a diamond continues on its `fail` edge."""
    if node.handler == CONDITION:
        continues = any(edge.condition == "fail" for edge in pipeline.out_of(node.id))
        return continues and not order.retry_body(pipeline, node.id)
    after = [found for edge in pipeline.out_of(node.id) if (found := pipeline.node(edge.to))]
    return bool(after) and all(found.handler == CONDITION and is_handled(pipeline, found) for found in after)


def is_left_to_diamond(pipeline: Pipeline, node: Node) -> bool:
    """A failure that a following diamond decides on, or one that is handled."""
    after = [found for edge in pipeline.out_of(node.id) if (found := pipeline.node(edge.to))]
    waited = node.handler != CONDITION and bool(after) and all(found.handler == CONDITION for found in after)
    return waited or is_handled(pipeline, node)
