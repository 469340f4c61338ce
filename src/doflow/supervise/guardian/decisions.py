"""What a guardian does with each signal of a runner. Every deed can be repeated: a guardian that was killed in the middle
sees the signal again and comes to the same end."""

from __future__ import annotations

from doflow.flow.dot.model import ACTIVE, FAILED, IMPL_COMPLETE, PENDING, TERMINAL, VALIDATED, Node
from doflow.supervise import judge as judging
from doflow.supervise.guardian import validation
from doflow.supervise.guardian.state import Shift, retries_left
from doflow.supervise.signals.types import Signal

WARNING = (
    "You used {tool} yourself. In this node only your workers (sub-agents) may do that. Undo nothing by hand, hand the rest of "
    "the work to a worker. The next time the session is ended."
)
NUDGE = (
    "Nothing has changed here for {seconds:.0f} seconds. If you wait for something, say for what. If you are done, end your "
    "turn with a summary. Otherwise go on, in a smaller step."
)


def heed(shift: Shift, signal: Signal) -> bool:
    """Act on a signal; True = it is dealt with, False = it waits (for a validation, for a person)."""
    node = shift.pipeline().node(signal.node)
    if node is None:
        shift.place.note("guardian", "unknown_node", signal=signal.kind, node=signal.node)
        shift.say(f"a signal {signal.kind} about {signal.node}, which the pipeline does not have, is put away")
        return True
    if node.status == PENDING or 0 < signal.attempt <= int(shift.record(node.id)["base"]):
        return _late(shift, signal)
    if signal.kind in ("NEEDS_REVIEW", "NODE_COMPLETE"):
        return _review(shift, signal, node)
    if node.status in TERMINAL:
        return True
    if signal.kind == "NEEDS_INPUT":
        return _answer(shift, signal, node)
    if signal.kind == "VIOLATION":
        return _violation(shift, signal, node)
    if signal.kind == "ORCHESTRATOR_STUCK":
        return _stuck(shift, signal, node)
    code = signal.payload["exit_code"]
    ended = "ended without a word" if code is None else f"ended with exit code {code}"
    return _again(
        shift, signal, node, f"the session {ended}. Its last output:\n{signal.payload['last_output'][-2000:]}"
    )


def _late(shift: Shift, signal: Signal) -> bool:
    """About an attempt that was over when its node was sent back: it moves nothing, and its session has no more to do."""
    shift.place.note("guardian", "late", signal=signal.kind, node=signal.node, attempt=signal.attempt)
    if signal.kind != "NODE_COMPLETE":
        shift.reply(signal, "KILL_ORCHESTRATOR", reason=f"attempt {signal.attempt} of {signal.node} is over")
    return True


def _review(shift: Shift, signal: Signal, node: Node) -> bool:
    attempt = signal.attempt or int(shift.record(node.id)["attempt"])
    if signal.kind == "NODE_COMPLETE" and node.status in TERMINAL:
        return True
    if node.status == VALIDATED:
        shift.reply(signal, "VALIDATION_PASSED", new_status=VALIDATED)
        return True
    if node.status == FAILED:
        shift.reply(signal, "KILL_ORCHESTRATOR", reason=f"{node.id} has failed")
        return True
    if node.status == ACTIVE and int(shift.record(node.id)["attempt"]) <= attempt:
        shift.move(node.id, IMPL_COMPLETE, f"attempt {attempt}")
    found = validation.verdict(shift, node, attempt, str(signal.payload.get("evidence_path", "")))
    if found is None:
        return False
    if found["passed"]:
        shift.move(node.id, VALIDATED, f"by {found.get('by', '')}")
        shift.reply(signal, "VALIDATION_PASSED", new_status=VALIDATED)
        return True
    return _not_right(shift, signal, node, attempt, str(found["text"]) or "it was rejected")


def _not_right(shift: Shift, signal: Signal, node: Node, attempt: int, feedback: str) -> bool:
    """Back to the orchestrator with what was found; after the last retry the node has failed."""
    if not retries_left(shift, node, attempt):
        shift.keep(node.id, feedback=feedback)
        shift.move(node.id, FAILED, f"after {attempt} attempts: {feedback}")
        shift.reply(signal, "KILL_ORCHESTRATOR", reason=f"{node.id} has failed: {feedback[:500]}")
        return True
    record = shift.record(node.id)
    if int(record["attempt"]) <= attempt:
        shift.keep(node.id, attempt=attempt + 1, feedback=feedback, fresh=False)
    current = shift.pipeline().node(node.id)
    if current is not None and current.status == IMPL_COMPLETE:
        shift.move(node.id, ACTIVE, f"attempt {attempt + 1}: {feedback}")
    shift.reply(signal, "VALIDATION_FAILED", feedback=feedback, retry_count=attempt - int(record["base"]))
    return True


def _answer(shift: Shift, signal: Signal, node: Node) -> bool:
    """By a rule of the settings, by the judge, by a person; in this order, and never by a guess."""
    if 0 < signal.attempt < int(shift.record(node.id)["attempt"]):
        shift.withdraw(_token(signal))  # the session that asked is gone; the next one asks for itself
        return True
    question, options = str(signal.payload["question_text"]), tuple(signal.payload["options"])
    said = _by_rule(shift, question)
    why = ""
    judge = node.get("judge") or shift.place.settings.supervision.judge
    if said is None and judge:
        found = shift.result(f"input.{signal.token}", lambda: _by_judge(shift, judge, node, signal))
        if found is None:
            return False
        said, why = (str(found["answer"]), "") if found.get("answer") else (None, str(found.get("text", "")))
    if said is None:
        issue = f"{node.id} asks: {question}" + (f" (the judge: {why[:300]})" if why else "")
        said = shift.ask(_token(signal), node.id, issue, options)
    if said is None:
        return False
    shift.reply(signal, "INPUT_RESPONSE", response_text=said)
    return True


def _token(signal: Signal) -> str:
    """What a person calls the question by: `input.impl_auth` is enough, while it is the only one."""
    return f"input.{signal.node}.{signal.token}"


def _by_rule(shift: Shift, question: str) -> str | None:
    low = question.casefold()
    return next((said for words, said in shift.place.settings.supervision.answers if words.casefold() in low), None)


def _by_judge(shift: Shift, judge: str, node: Node, signal: Signal) -> dict[str, object]:
    options = "".join(f"\n{place}. {said}" for place, said in enumerate(signal.payload["options"], 1))
    told = "\n".join(f"- {name}: {value}" for name, value in node.attributes if value)
    question = (
        f"An orchestrator works on the node {node.id} of a pipeline:\n{told}\n\nIt asks:\n\n"
        f"{signal.payload['question_text']}{options}\n\nAnswer in its user's place, if the assignment settles it. "
        "Where there are options answer with the number of one."
    )
    words = {"ANSWER": "the answer, in one line", "ESCALATE": "why a person must decide"}
    word, rest = judging.decide(shift.place, judge, node.id, f"input.{signal.token}", question, words)
    return {"answer": rest if word == "ANSWER" else "", "text": rest, "by": judge, "passed": None}


def _violation(shift: Shift, signal: Signal, node: Node) -> bool:
    evidence = str(signal.payload["evidence"])
    if _ordinal(signal) <= 1:
        shift.reply(signal, "GUIDANCE", message=WARNING.format(tool=evidence.partition("(")[0] or "a tool"))
        return True
    return _again(shift, signal, node, f"it broke the rule {signal.payload['violation_type']} again: {evidence}")


def _stuck(shift: Shift, signal: Signal, node: Node) -> bool:
    seconds, last = float(signal.payload["duration_seconds"]), str(signal.payload["last_output"])
    if _ordinal(signal) > 1:
        why = f"nothing went on for {seconds:.0f} seconds, twice. Take another way. The last output:\n{last[-2000:]}"
        return _again(shift, signal, node, why)
    judge = node.get("judge") or shift.place.settings.supervision.judge
    message = NUDGE.format(seconds=seconds)
    if judge:
        found = shift.result(f"stuck.{signal.token}", lambda: _guidance(shift, judge, node, last))
        if found is None:
            return False
        message = str(found.get("answer") or message)
    shift.reply(signal, "GUIDANCE", message=message)
    return True


def _guidance(shift: Shift, judge: str, node: Node, last: str) -> dict[str, object]:
    question = (
        f"The orchestrator of the node {node.id} does not get on. The last it showed:\n\n{last}\n\nWhat should it hear?"
    )
    words = {"GUIDANCE": "what it is told, in one line"}
    word, rest = judging.decide(shift.place, judge, node.id, f"stuck.{node.id}.{len(last)}", question, words)
    return {"answer": rest if word == "GUIDANCE" else "", "by": judge, "passed": None}


def _again(shift: Shift, signal: Signal, node: Node, why: str) -> bool:
    """End the session and begin the next attempt in a new one; after the last retry the node has failed."""
    attempt = signal.attempt or int(shift.record(node.id)["attempt"])
    if node.status == IMPL_COMPLETE:
        return True  # the work is under review: whether its session lives does not matter
    if retries_left(shift, node, attempt):
        if int(shift.record(node.id)["attempt"]) <= attempt:
            shift.keep(node.id, attempt=attempt + 1, feedback=why, fresh=True)
            shift.say(f"{node.id}: attempt {attempt + 1}, since {why.splitlines()[0][:100]}")
    else:
        shift.keep(node.id, feedback=why)
        shift.move(node.id, FAILED, f"after {attempt} attempts: {why}")
    shift.reply(signal, "KILL_ORCHESTRATOR", reason=why[:2000])
    return True


def _ordinal(signal: Signal) -> int:
    """The how-manieth of its kind in this attempt, as its runner counts."""
    last = signal.reply.rpartition(".")[2]
    return int(last) if last.isdecimal() else 1
