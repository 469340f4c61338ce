"""The headless guardian of one pipeline: gives ready nodes to runners, sleeps until a signal comes, validates, moves nodes.

It decides by rules. What it knows is on the disk before it acts on it: killed at any point, the next one goes on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from doflow.flow.dot import editor as editing, order as graph, transitions as moves
from doflow.flow.dot.model import (
    ACTIVE,
    CODERGEN,
    CONDITION,
    FAILED,
    GATE,
    PENDING,
    TERMINAL,
    TOOL,
    VALIDATED,
    Node,
    Pipeline,
)
from doflow.supervise import ownership as driver, workspace as places
from doflow.supervise.guardian import (
    decisions,
    menu,
    progress as remaining,
    runner_pool as crew,
    stop as stopping,
    validation,
)
from doflow.supervise.guardian.state import Say, Shift
from doflow.supervise.signals import store
from doflow.supervise.signals.watch import Watch
from doflow.supervise.workspace import Place
from doflow.util.errors import DoflowError, UsageError

DONE, FAILURE, PAUSED = 0, 1, 2
_JUDGED = (GATE, TOOL, CONDITION)


def run(place: Place, environ: Mapping[str, str], say: Say, wait: bool = True, check: float = 2.0) -> int:
    """Run the pipeline to its end; 0 = every node is validated, 1 = some failed, 2 = only a person can go on (`wait` off)."""
    if not place.dot:
        raise UsageError(f"there is no pipeline {place.pipeline!r}", "name its file: doflow guardian run NAME.dot")
    crew.refuse(place, environ)
    lock = os.path.join(place.folder, "guardian.lock")
    mine = driver.together(place.root, place.dot, f"doflow guardian run {os.path.relpath(place.dot, place.root)}")
    hint = f"wait for it, or stop it: doflow guardian stop {os.path.relpath(place.dot)}   then run again"
    with places.held(lock, f"a guardian works on {place.pipeline}", hint), mine:
        places.begin(place)
        stopping.forget(place)
        place.store.clean(place.settings.supervision.keep_days)
        shift = Shift(place, environ, say)
        place.note("guardian", "guardian_started", pid=os.getpid(), dot=place.dot)
        try:
            validation.refuse(shift.pipeline(), place)
            return _work(shift, wait, check)
        except Exception as error:
            _report(shift, error)
            raise
        finally:
            place.note("guardian", "guardian_ended", pid=os.getpid())
            place.tmux.leave()
            shift.close()


def _work(shift: Shift, wait: bool, check: float) -> int:
    os.makedirs(shift.results, exist_ok=True)
    folders = (shift.place.store.folder, os.path.join(shift.place.store.folder, store.ANSWERS), shift.results)
    with Watch(folders) as watch:
        while True:
            if not os.path.exists(os.path.join(shift.place.folder, "guardian.lock")):
                raise DoflowError(f"{shift.place.folder} was removed under its guardian", "run the same command again")
            before = shift.pipeline().text
            _hear(shift)
            _advance(shift)
            pipeline = shift.pipeline()
            crew.keep(shift, pipeline)
            code = _over(shift, pipeline)
            if code is not None:
                _hear(shift)  # the last word of a runner that has gone home since
                return code
            if pipeline.text == before:
                if not wait and _only_a_person(shift, pipeline):
                    shift.say(f"paused: answer, then: doflow guardian run {os.path.relpath(shift.place.dot)} --no-wait")
                    return PAUSED
                watch.sleep(check)


def _hear(shift: Shift) -> None:
    for signal in shift.place.store.waiting(target="guardian"):
        if decisions.heed(shift, signal):
            shift.place.store.consume(signal)


def _advance(shift: Shift) -> None:
    """Begin what is ready, go on with gates, tools and diamonds; until nothing moves by itself."""
    moved = True
    while moved:
        pipeline = shift.pipeline()
        moved = False
        for node in pipeline.nodes:
            if node.status == ACTIVE and node.handler != CODERGEN:
                moved |= _judge(shift, node) if node.handler in _JUDGED else _through(shift, node)
            elif node.handler == CONDITION and node.status == FAILED:
                moved |= _send_back(shift, pipeline, node)
        if not moved:
            free = shift.place.settings.supervision.parallel - len(crew.working(pipeline))
            for node in graph.ready(pipeline):
                if node.handler == CODERGEN and free <= 0:
                    continue
                free -= node.handler == CODERGEN
                _begin(shift, node)
                moved = True


def _begin(shift: Shift, node: Node) -> None:
    """A new attempt at a pending node. What needs no work (start, exit, forks and joins) is through at once."""
    record = shift.record(node.id)
    if not record.get("beginning"):  # else a guardian died right here, and nobody has begun it yet
        attempt = int(record["attempt"])
        shift.keep(node.id, attempt=attempt + 1, base=attempt, fresh=True, beginning=True)
    shift.move(node.id, ACTIVE)
    shift.keep(node.id, beginning=False)
    if node.handler not in (CODERGEN, *_JUDGED):
        _through(shift, node)


def _through(shift: Shift, node: Node) -> bool:
    """Nothing is to be done there; also where a guardian was killed on its way through."""
    shift.move(node.id, VALIDATED)
    return True


def _judge(shift: Shift, node: Node) -> bool:
    """A gate, a tool or a diamond: its verdict is its status."""
    found = validation.verdict(shift, node, int(shift.record(node.id)["attempt"]))
    if found is None:
        return False
    text = str(found.get("text", ""))
    shift.keep(node.id, feedback=text)
    shift.move(
        node.id, VALIDATED if found["passed"] else FAILED, f"by {found.get('by', '')}" if found["passed"] else text
    )
    return True


def _send_back(shift: Shift, pipeline: Pipeline, diamond: Node) -> bool:
    """A failed diamond with a retry edge: the work between is done again, and hears why."""
    names = graph.body(pipeline, diamond.id)
    if not names or graph.retries(diamond) >= graph.max_retries(pipeline, diamond):
        return False
    why = str(shift.record(diamond.id)["feedback"])
    for name in names:
        if name != diamond.id:
            shift.keep(name, feedback=why, beginning=False)
    shift.keep(diamond.id, beginning=False)
    moves.requeue(shift.place.dot, diamond.id, by="guardian", note=why[:300])
    shift.place.note("guardian", "requeued", node=diamond.id, nodes=list(names))
    shift.say(f"{diamond.id}: sent back: {', '.join(names)}")
    return True


def _over(shift: Shift, pipeline: Pipeline) -> int | None:
    """The exit code, if the pipeline has come to its end; a person may send a failed node on."""
    remaining.refuse_deadlock(pipeline)
    if remaining.left(pipeline) and not _blocked(shift, pipeline):
        return None
    if not crew.closed(shift, pipeline):
        return None
    counts = {status: [node.id for node in pipeline.nodes if node.status == status] for status in (VALIDATED, FAILED)}
    bad = [node.id for node in pipeline.nodes if node.status == FAILED and not remaining.dealt_with(pipeline, node)]
    left = remaining.left(pipeline)
    summary = f"{len(counts[VALIDATED])} of {len(pipeline.nodes)} nodes validated"
    summary += f"; failed: {', '.join(bad)}" if bad else ""
    summary += f"; not reached: {', '.join(left)}" if left else ""
    shift.tell("PIPELINE_COMPLETE", f"complete.{moves.digest(pipeline.text)}", summary=summary)
    shift.place.note("guardian", "pipeline_complete", summary=summary)
    shift.say(f"{shift.place.pipeline}: complete: {summary}")
    return FAILURE if bad or left else DONE


def _blocked(shift: Shift, pipeline: Pipeline) -> bool:
    """Nothing goes on behind failed nodes, and the person said to stop. `retry` sends them on instead."""
    pending = [node for node in pipeline.nodes if node.id in remaining.left(pipeline)]
    failed = [node for node in pipeline.nodes if node.status == FAILED and not remaining.for_a_diamond(pipeline, node)]
    if not failed or any(node.status != PENDING for node in pending) or graph.ready(pipeline):
        return False
    stop = False
    for node in failed:
        record = shift.record(node.id)
        issue = f"{node.id} has failed after attempt {record['attempt']}: {str(record['feedback'])[:800]}"
        said = shift.ask(f"failed.{node.id}.{record['attempt']}", node.id, issue, menu.FATE)
        if said is not None and menu.chosen(said, menu.FATE)[0] == "retry":
            _revive(shift, node, said)
            return False
        stop |= said is not None
    return stop


def _revive(shift: Shift, node: Node, said: str) -> None:
    """Once more: a diamond may send the work back one time more, any other node is tried again."""
    if node.handler == CONDITION:
        more = {"max_retries": str(graph.retries(node) + 1)}
        moves.change(shift.place.dot, lambda pipeline: editing.set_(pipeline, node.id, more))
        return
    record = shift.record(node.id)
    attempt = int(record["attempt"])
    note = said.partition(":")[2].strip() or str(record["feedback"])
    shift.keep(node.id, attempt=attempt + 1, base=attempt, feedback=note, fresh=True)
    shift.move(node.id, ACTIVE, "a person said: retry")


def _only_a_person(shift: Shift, pipeline: Pipeline) -> bool:
    busy = {node.id for node in pipeline.nodes if node.status not in (*TERMINAL, PENDING)}
    return bool(shift.asked) and not shift.busy() and busy <= set(shift.asked.values())


def _report(shift: Shift, error: Exception) -> None:
    """Layer 0 hears of what we cannot go on from."""
    import traceback

    trace = "" if isinstance(error, DoflowError) else "".join(traceback.format_exception(error))
    words = str(error) or type(error).__name__
    shift.place.note("guardian", "guardian_error", error=words)
    try:
        shift.tell("GUARDIAN_ERROR", f"error.{os.getpid()}", error=words, stack_trace=trace)
    except (DoflowError, OSError):
        pass  # the exit code and standard error say it too
