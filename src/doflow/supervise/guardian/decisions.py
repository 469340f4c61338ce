"""What a guardian does with each signal of a runner. Every action can be repeated: a guardian that was killed halfway
handles the signal again with the same result."""

from __future__ import annotations

from doflow.flow import markdown
from doflow.flow.dot import node_steps
from doflow.flow.dot.model import ACTIVE, FAILED, IMPL_COMPLETE, PENDING, TERMINAL, VALIDATED, Node
from doflow.supervise import judge as judging
from doflow.supervise.guardian import validation
from doflow.supervise.guardian.state import Guardian, retries_left
from doflow.supervise.panes import agent_pane
from doflow.supervise.signal_store import Signal

WARNING = (
    "You used {tool} yourself. In this node only your workers (sub-agents) may do that. Don't undo anything yourself; give the rest of "
    "the work to a worker. The next time the session will be ended."
)
NUDGE = (
    "Nothing has changed here for {seconds:.0f} seconds. If you wait for something, say for what. If you are done, end your "
    "turn with a summary. Otherwise continue, in a smaller step."
)


def handle_signal(guardian: Guardian, signal: Signal) -> bool:
    """Handle a signal; True = done, False = it waits (for a validation or a person)."""
    node = guardian.pipeline().node(signal.node)
    if node is None:
        guardian.context.note("guardian", "unknown_node", signal=signal.kind, node=signal.node)
        guardian.say(f"ignored {signal.kind}: the pipeline has no node {signal.node}")
        return True
    if node.status == PENDING or 0 < signal.attempt <= int(guardian.record(node.id)["base"]):
        return _late(guardian, signal)
    if signal.kind in ("NEEDS_REVIEW", "NODE_COMPLETE"):
        return _review(guardian, signal, node)
    if node.status in TERMINAL:
        return True
    if signal.kind == "NEEDS_INPUT":
        return _answer(guardian, signal, node)
    if signal.kind == "VIOLATION":
        return _violation(guardian, signal, node)
    if signal.kind == "ORCHESTRATOR_STUCK":
        return _stuck(guardian, signal, node)
    code, last = signal.payload["exit_code"], signal.payload["last_output"][-2000:]
    ended = "ended without an exit code" if code is None else f"ended with exit code {code}"
    return _retry(guardian, signal, node, f"the session {ended}. Its last output:\n{last}")


def _late(guardian: Guardian, signal: Signal) -> bool:
    """A signal of an earlier attempt: ignored, and its session is ended."""
    guardian.context.note("guardian", "late", signal=signal.kind, node=signal.node, attempt=signal.attempt)
    if signal.kind != "NODE_COMPLETE":
        guardian.reply(signal, "KILL_ORCHESTRATOR", reason=f"attempt {signal.attempt} of {signal.node} is over")
    return True


def _review(guardian: Guardian, signal: Signal, node: Node) -> bool:
    attempt = signal.attempt or int(guardian.record(node.id)["attempt"])
    if signal.kind == "NODE_COMPLETE" and node.status in TERMINAL:
        return True
    if node.status == VALIDATED:
        guardian.reply(signal, "VALIDATION_PASSED", new_status=VALIDATED)
        return True
    if node.status == FAILED:
        guardian.reply(signal, "KILL_ORCHESTRATOR", reason=f"{node.id} has failed")
        return True
    if node.status == ACTIVE and int(guardian.record(node.id)["attempt"]) <= attempt:
        guardian.move(node.id, IMPL_COMPLETE, f"attempt {attempt}")
    evidence = str(signal.payload.get("evidence_path", ""))
    endings = _endings(guardian, node)
    said = markdown.read_markers(guardian.answer(node.id, attempt, evidence), endings)
    if endings and len(said) != 1:
        return _rejected(guardian, signal, node, attempt, f"the last line must be one of: {', '.join(endings)}")
    if said == (node_steps.FAIL,):
        return _failed(guardian, signal, node, attempt)
    found = validation.verdict(guardian, node, attempt, evidence)
    if found is None:
        return False
    if found["passed"]:
        guardian.move(node.id, VALIDATED, f"by {found.get('by', '')}")
        guardian.reply(signal, "VALIDATION_PASSED", new_status=VALIDATED)
        return True
    return _rejected(guardian, signal, node, attempt, str(found["text"]) or "it was rejected")


def _endings(guardian: Guardian, node: Node) -> tuple[str, ...]:
    """The lines with which the report of this node may end, because the way depends on it."""
    position = guardian.position
    return position.wanted.endings(node) if position is not None and position.wanted.decides(node) else ()


def _failed(guardian: Guardian, signal: Signal, node: Node, attempt: int) -> bool:
    """The orchestrator itself says that it failed: nothing to validate, the pipeline has a way for it."""
    text = guardian.answer(node.id, attempt).strip()
    guardian.settle(validation.token(node.id, attempt), {"passed": False, "text": text, "by": node.id})
    guardian.keep(node.id, feedback=text[-2000:])
    guardian.move(node.id, FAILED, node_steps.FAIL)
    guardian.reply(signal, "KILL_ORCHESTRATOR", reason=f"{node.id} reports {node_steps.FAIL}")
    return True


def _rejected(guardian: Guardian, signal: Signal, node: Node, attempt: int, feedback: str) -> bool:
    """Send the feedback to the orchestrator; after the last retry the node fails."""
    if not retries_left(guardian, node, attempt):
        guardian.keep(node.id, feedback=feedback)
        guardian.move(node.id, FAILED, f"after {attempt} attempts: {feedback}")
        guardian.reply(signal, "KILL_ORCHESTRATOR", reason=f"{node.id} has failed: {feedback[:500]}")
        return True
    record = guardian.record(node.id)
    if int(record["attempt"]) <= attempt:
        guardian.keep(node.id, attempt=attempt + 1, feedback=feedback, fresh=False)
    current = guardian.pipeline().node(node.id)
    if current is not None and current.status == IMPL_COMPLETE:
        guardian.move(node.id, ACTIVE, f"attempt {attempt + 1}: {feedback}")
    guardian.reply(signal, "VALIDATION_FAILED", feedback=feedback, retry_count=attempt - int(record["base"]))
    return True


def _answer(guardian: Guardian, signal: Signal, node: Node) -> bool:
    """Answer by a rule of the settings, by the judge, or by a person, in this order; never by a guess."""
    if 0 < signal.attempt < int(guardian.record(node.id)["attempt"]):
        guardian.withdraw(_token(signal))  # the session that asked has ended; the next one asks itself
        return True
    question, why = str(signal.payload["question_text"]), ""
    rules, low = guardian.context.settings.supervision.answers, question.casefold()
    misfit = agent_pane.NOT_AN_OPTION in question  # a rule or the judge was wrong: a person decides
    answer = next((answer for words, answer in rules if words.casefold() in low and not misfit), None)
    judge = "" if misfit else _judge(guardian, node)
    if answer is None and judge:
        found = guardian.result(f"input.{signal.token}", lambda: _by_judge(guardian, judge, node, signal))
        if found is None:
            return False
        answer, why = (str(found["answer"]), "") if found.get("answer") else (None, str(found.get("text", "")))
    if answer is None:
        issue = f"{node.id} asks: {question}" + (f" (the judge: {why[:300]})" if why else "")
        answer = guardian.ask(_token(signal), node.id, issue, tuple(signal.payload["options"]))
    if answer is None:
        return False
    guardian.reply(signal, "INPUT_RESPONSE", response_text=answer)
    return True


def _judge(guardian: Guardian, node: Node) -> str:
    return node.get("judge") or guardian.context.settings.supervision.judge


def _token(signal: Signal) -> str:
    """The ID of the question; a person can shorten it to `input.impl_auth` while that is unique."""
    return f"input.{signal.node}.{signal.token}"


def _by_judge(guardian: Guardian, judge: str, node: Node, signal: Signal) -> dict[str, object]:
    options = "".join(f"\n{number}. {option}" for number, option in enumerate(signal.payload["options"], 1))
    attributes = "\n".join(f"- {name}: {value}" for name, value in node.attributes if value)
    question = (
        f"An orchestrator works on the node {node.id} of a pipeline:\n{attributes}\n\nIt asks:\n\n"
        f"{signal.payload['question_text']}{options}\n\nAnswer in its user's place, if the assignment settles it. "
        "Where there are options answer with the number of one."
    )
    words = {"ANSWER": "the answer, in one line", "ESCALATE": "why a person must decide"}
    word, rest = judging.decide(guardian.context, judge, node.id, f"input.{signal.token}", question, words)
    return {"answer": rest if word == "ANSWER" else "", "text": rest, "by": judge, "passed": None}


def _violation(guardian: Guardian, signal: Signal, node: Node) -> bool:
    evidence = str(signal.payload["evidence"])
    if _ordinal(signal) <= 1:
        guardian.reply(signal, "GUIDANCE", message=WARNING.format(tool=evidence.partition("(")[0] or "a tool"))
        return True
    return _retry(guardian, signal, node, f"it broke the rule {signal.payload['violation_type']} again: {evidence}")


def _stuck(guardian: Guardian, signal: Signal, node: Node) -> bool:
    seconds, last = float(signal.payload["duration_seconds"]), str(signal.payload["last_output"])
    if _ordinal(signal) > 1:
        why = f"no progress for {seconds:.0f} seconds, twice. Try a different approach."
        return _retry(guardian, signal, node, f"{why} The last output:\n{last[-2000:]}")
    judge = _judge(guardian, node)
    message = NUDGE.format(seconds=seconds)
    if judge:
        found = guardian.result(f"stuck.{signal.token}", lambda: _guidance(guardian, judge, node, last))
        if found is None:
            return False
        message = str(found.get("answer") or message)
    guardian.reply(signal, "GUIDANCE", message=message)
    return True


def _guidance(guardian: Guardian, judge: str, node: Node, last: str) -> dict[str, object]:
    question = f"The orchestrator of the node {node.id} is stuck. Its last output:\n\n{last}\n\nWhat should it be told?"
    words = {"GUIDANCE": "what it is told, in one line"}
    word, rest = judging.decide(guardian.context, judge, node.id, f"stuck.{node.id}.{len(last)}", question, words)
    return {"answer": rest if word == "GUIDANCE" else "", "by": judge, "passed": None}


def _retry(guardian: Guardian, signal: Signal, node: Node, why: str) -> bool:
    """End the session and start the next attempt in a new one; after the last retry the node fails."""
    attempt = signal.attempt or int(guardian.record(node.id)["attempt"])
    if node.status == IMPL_COMPLETE:
        return True  # the work is under review: its session no longer matters
    if retries_left(guardian, node, attempt):
        if int(guardian.record(node.id)["attempt"]) <= attempt:
            guardian.keep(node.id, attempt=attempt + 1, feedback=why, fresh=True)
            guardian.say(f"{node.id}: attempt {attempt + 1}; reason: {why.splitlines()[0][:100]}")
    else:
        guardian.keep(node.id, feedback=why)
        guardian.move(node.id, FAILED, f"after {attempt} attempts: {why}")
    guardian.reply(signal, "KILL_ORCHESTRATOR", reason=why[:2000])
    return True


def _ordinal(signal: Signal) -> int:
    """Ordinal of this signal within the attempt."""
    last = signal.reply.rpartition(".")[2]
    return int(last) if last.isdecimal() else 1
