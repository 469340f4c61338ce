"""The state of a running guardian: its jobs, its runners, its open questions. Everything that must survive it is in files:
statuses in the DOT file, results and answers next to it, signals in their folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from doflow.flow.dot import conditions, transitions
from doflow.flow.dot.model import ACTIVE, Node, Pipeline
from doflow.supervise import pipeline_context
from doflow.supervise.guardian import position
from doflow.supervise.guardian.position import Position
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.signal_store import ANSWERS, Signal, SignalStore, safe_name
from doflow.util import timestamps
from doflow.util.errors import DoflowError, UsageError

Say = Callable[[str], None]


class Guardian:
    """One guardian process, working on one pipeline."""

    def __init__(self, context: PipelineContext, environ: Mapping[str, str], say: Say) -> None:
        self.context, self.environ, self.say = context, environ, say
        self.results = os.path.join(context.folder, "results")
        self.jobs: dict[str, Future[None]] = {}
        self.runners: dict[str, int] = {}  # node → pid of the runner that we started
        self.crashes: dict[tuple[str, int], list[float]] = {}  # node, attempt → when we started runners for it
        self.asked: dict[str, str] = {}  # open questions for a person: token → node
        self.position: Position | None = None  # where the nodes decide the way
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="guardian")

    def find_position(self) -> None:
        """Find where the guardian stands, if the nodes of its pipeline decide the way."""
        self.position = position.load(self.context, self.pipeline())

    def pipeline(self) -> Pipeline:
        return transitions.read_settled(self.context.dot)

    def move(self, node: str, status: str, note: str = "") -> None:
        """Move a node to a status; on disk with its checkpoint when this returns."""
        transitions.transition(self.context.dot, node, status, by="guardian", note=note[:300])
        self.context.note("guardian", "transition", node=node, to=status, note=note[:300])
        first = note.strip().partition("\n")[0][:120]
        self.say(f"{node}: {status}{f' ({first})' if note else ''}")

    def record(self, node: str) -> dict[str, Any]:
        """The record of a node besides its status: attempt, the attempt that retries are counted from, feedback."""
        known = pipeline_context.load(self.context.node(node, "node.json"))
        return {"attempt": 0, "base": 0, "feedback": "", "fresh": True, **known}

    def keep(self, node: str, **more: object) -> None:
        pipeline_context.save(self.context.node(node, "node.json"), {**self.record(node), **more})

    def begin(self, node: Node) -> None:
        """Start an attempt at a pending node."""
        record = self.record(node.id)
        if not record.get("beginning"):  # otherwise a guardian died right here, before the start
            attempt = int(record["attempt"])
            self.keep(node.id, attempt=attempt + 1, base=attempt, fresh=True, beginning=True)
        self.move(node.id, ACTIVE)
        self.keep(node.id, beginning=False)

    def begin_again(self, node: str, note: str) -> None:
        """A person wants a new attempt at a failed node."""
        record = self.record(node)
        attempt = int(record["attempt"])
        feedback = note or str(record["feedback"])
        self.keep(node, attempt=attempt + 1, base=attempt, feedback=feedback, fresh=True)
        self.move(node, ACTIVE, "retry, by a person")

    def answer(self, node: str, attempt: int, evidence: str = "") -> str:
        """The final message of an orchestrator, or what its screen showed of it; '' = there is none."""
        for path in (self.context.node(node, f"answer-{attempt}.txt"), evidence):
            with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        return ""

    def result(self, token: str, work: Callable[[], Mapping[str, Any]]) -> dict[str, Any] | None:
        """The result of a job; None = still running. It runs once, in a thread, and its result is saved."""
        path = self._result(token)
        found = pipeline_context.load(path)
        if found:
            return found
        job = self.jobs.get(token)
        if job is None:
            self.jobs[token] = self._pool.submit(self._do, path, work)
        elif job.done():
            del self.jobs[token]
            job.result()
        return None

    def settle(self, token: str, result: Mapping[str, Any]) -> dict[str, Any]:
        pipeline_context.save(self._result(token), result)
        return dict(result)

    def settled(self, token: str) -> dict[str, Any]:
        """A saved result; {} = none."""
        return pipeline_context.load(self._result(token))

    def _do(self, path: str, work: Callable[[], Mapping[str, Any]]) -> None:
        try:
            found = dict(work())
        except DoflowError as error:
            found = {"passed": None, "text": str(error), "by": "doflow"}
        pipeline_context.save(path, {**found, "at": timestamps.format_microseconds()})

    def ask(self, token: str, node: str, issue: str, options: tuple[str, ...]) -> str | None:
        """A person's answer; None = not yet. The question is escalated once; every guardian prints it."""
        answer = find_answer(self.context.store, token)
        if answer is not None and is_guardian_menu(token) and not match_option(answer, options)[0]:
            path = answer_path(self.context.store, token)
            with suppress(FileNotFoundError):
                os.replace(path, f"{path}.unclear")
            self.say(f"{answer!r} isn't one of the options; asking about {node} again")
        elif answer is not None:
            self.asked.pop(token, None)
            return answer
        known = token in self.asked
        self.asked[token] = node
        payload = {"pipeline_id": self.context.pipeline, "issue": issue, "options": list(options)}
        sent = self.context.store.write_once(Signal("ESCALATION", payload, reply=token))
        if sent is not None:
            self.context.note("guardian", "escalated", node=node, token=token, issue=issue)
        if not known:
            hint = f"doflow signal answer {token} '…' --pipeline {self.context.pipeline}"
            self.say(f"needs an answer: {issue}{option_lines(options)}\n  next: {hint}")
        return None

    def withdraw(self, token: str) -> None:
        """Close a question that no longer needs an answer."""
        self.asked.pop(token, None)
        store = self.context.store
        if store.find_reply(token, "ESCALATION") and find_answer(store, token) is None:
            save_answer(store, token, "no longer needed", "doflow")
            self.context.note("guardian", "withdrawn", token=token)
            self.say(f"question {token} needs no answer any more: its session has ended")

    def reply(self, signal: Signal, kind: str, **payload: object) -> None:
        """Reply to a runner's signal, once."""
        answer = Signal(kind, {"node_id": signal.node, **payload}, reply=signal.token, attempt=signal.attempt)
        sent = self.context.store.write_once(answer)
        if sent is not None:
            self.context.note("guardian", "signalled", node=signal.node, signal=kind, to=signal.kind, id=sent.unique)

    def tell(self, kind: str, token: str, **payload: object) -> None:
        """A signal for the terminal, once."""
        self.context.store.write_once(Signal(kind, {"pipeline_id": self.context.pipeline, **payload}, reply=token))

    def busy(self) -> bool:
        return any(not job.done() for job in self.jobs.values())

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _result(self, token: str) -> str:
        return os.path.join(self.results, f"{safe_name(token)}.json")


def answer_path(store: SignalStore, token: str) -> str:
    return os.path.join(store.folder, ANSWERS, f"{safe_name(token)}.json")


def save_answer(store: SignalStore, token: str, text: str, by: str) -> str:
    """Save a person's answer to an escalation; returns its path."""
    store.prepare()
    path = answer_path(store, token)
    pipeline_context.save(path, {"to": token, "text": text, "by": by, "at": timestamps.format_seconds()})
    return path


def find_answer(store: SignalStore, token: str) -> str | None:
    """A person's answer; None = not yet."""
    text = pipeline_context.load(answer_path(store, token)).get("text")
    return None if text is None else str(text)


def retries_left(guardian: Guardian, node: Node, attempt: int) -> bool:
    """May this node be retried after this attempt?"""
    limit = node.get("max_retries")
    most = int(limit) if limit.isdecimal() else guardian.context.settings.supervision.retries
    return attempt - int(guardian.record(node.id)["base"]) <= most


VERDICT, FATE = ("approve", "reject"), ("retry", "stop")
_WORDS = {
    "approve": ("approve", "approved", "yes", "y", "ok", "go"),
    "reject": ("reject", "rejected", "no", "n"),
    "retry": ("retry", "again"),
    "stop": ("stop",),
}


def match_option(answer: str, options: Sequence[str]) -> tuple[str, str]:
    """The option that an answer selects, and its note; '' = none."""
    word, _, note = answer.partition(":")
    for said, rest in ((answer, ""), (word, note.strip())):
        bare = said.strip().casefold()
        found = [name for number, name in enumerate(options, 1) if bare in (str(number), *_names(name))]
        if found:
            return found[0], rest
    return "", ""


def _names(option: str) -> tuple[str, ...]:
    """What selects an option; of a label at an edge its text, and its key: `[A] Approve`."""
    label = (option.casefold(), conditions.canonical_label(option), conditions.accelerator(option))
    return _WORDS.get(option) or tuple(filter(None, label))


def is_guardian_menu(token: str) -> bool:
    """Is it one of the guardian's own questions? Other options are interpreted by the orchestrator."""
    return not token.startswith("input.")


def refuse_answer(answer: str, options: Sequence[str], token: str, pipeline: str) -> None:
    """Refuse an answer that isn't an option of a guardian's menu."""
    if options and is_guardian_menu(token) and not match_option(answer, options)[0]:
        which = f" --pipeline {pipeline}" if pipeline else ""
        names = ", ".join(f"{number}. {name}" for number, name in enumerate(options, 1))
        raise UsageError(
            f"{answer!r} isn't one of the options: {names}",
            f"doflow signal answer {token} '{options[0]}'{which}   or   '{options[-1]}', or with a note: '{options[-1]}: …'",
        )


def option_lines(options: Sequence[str]) -> str:
    """The options of a question, one per line."""
    return "".join(f"\n    {number}. {option}" for number, option in enumerate(options, 1))
