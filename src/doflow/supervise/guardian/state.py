"""A guardian's shift: what it works with, what it has under way, what it has asked a person. Everything that must outlive it
is a file: statuses in the DOT file, results and answers beside it, signals in their folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from doflow.flow.dot import transitions as moves
from doflow.flow.dot.model import Node, Pipeline
from doflow.supervise import workspace as places
from doflow.supervise.guardian import menu
from doflow.supervise.signals.types import Signal
from doflow.supervise.workspace import Place
from doflow.util.errors import DoflowError
from doflow.util.records import regex

_SAFE = regex(r"[^\w.-]+")
Say = Callable[[str], None]


class Shift:
    """One guardian process at work on one pipeline."""

    def __init__(self, place: Place, environ: Mapping[str, str], say: Say) -> None:
        self.place = place
        self.environ = environ
        self.say = say
        self.results = os.path.join(place.folder, "results")
        self.jobs: dict[str, Future[None]] = {}
        self.runners: dict[str, int] = {}  # node → the pid of the runner that we started
        self.falls: dict[str, list[float]] = {}  # node → when runners of it were started by us
        self.asked: dict[str, str] = {}  # what only a person can tell now: token → node
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="guardian")

    def pipeline(self) -> Pipeline:
        return moves.settled(self.place.dot)

    def move(self, node: str, status: str, note: str = "") -> None:
        """A transition of a node, on the disk with its checkpoint when this returns."""
        moves.transition(self.place.dot, node, status, by="guardian", note=note[:300])
        self.place.note("guardian", "transition", node=node, to=status, note=note[:300])
        self.say(f"{node}: {status}{f' ({_first(note)})' if note else ''}")

    def record(self, node: str) -> dict[str, Any]:
        """What is known of a node beyond its status: attempt, the attempt its retries count from, feedback."""
        return {
            "attempt": 0,
            "base": 0,
            "feedback": "",
            "fresh": True,
            **places.load(self.place.node(node, "node.json")),
        }

    def keep(self, node: str, **more: object) -> None:
        places.save(self.place.node(node, "node.json"), {**self.record(node), **more})

    def result(self, token: str, work: Callable[[], Mapping[str, Any]]) -> dict[str, Any] | None:
        """What came of a piece of work; None = it is under way. It is done aside, once, and its result is kept."""
        path = self._result(token)
        found = places.load(path)
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
        places.save(self._result(token), result)
        return dict(result)

    def settled(self, token: str) -> dict[str, Any]:
        """A result that is kept; {} = there is none."""
        return places.load(self._result(token))

    def _do(self, path: str, work: Callable[[], Mapping[str, Any]]) -> None:
        try:
            found = dict(work())
        except DoflowError as error:
            found = {"passed": None, "text": str(error), "by": "doflow"}
        places.save(path, {**found, "at": places.now()})

    def ask(self, token: str, node: str, issue: str, options: tuple[str, ...]) -> str | None:
        """What a person says to this; None = nothing yet. The question goes up once, and every shift says it."""
        said = self.place.store.answered(token)
        if said is not None and menu.own(options) and not menu.chosen(said, options)[0]:
            self.place.store.unanswer(token)
            self.say(f"{said!r} is none of the options, and {node} is asked about again")
            said = None
        if said is not None:
            self.asked.pop(token, None)
            return said
        known = token in self.asked
        self.asked[token] = node
        payload = {"pipeline_id": self.place.pipeline, "issue": issue, "options": list(options)}
        sent = self.place.store.once(Signal("ESCALATION", payload, reply=token))
        if sent is not None:
            self.place.note("guardian", "escalated", node=node, token=token, issue=issue)
        if not known:
            hint = f"doflow signal answer {token} '…' --pipeline {self.place.pipeline}"
            self.say(f"a person is needed: {issue}{menu.lines(options)}\n  next: {hint}")
        return None

    def withdraw(self, token: str) -> None:
        """A question that nobody waits for any more is not open any more."""
        self.asked.pop(token, None)
        if self.place.store.replied(token, "ESCALATION") and self.place.store.answered(token) is None:
            self.place.store.answer(token, "nobody waits for an answer any more", "doflow")
            self.place.note("guardian", "withdrawn", token=token)
            self.say(f"the question {token} needs no answer any more: the session that asked has ended")

    def reply(self, signal: Signal, kind: str, **payload: object) -> None:
        """Answer a runner's signal, once."""
        answer = Signal(kind, {"node_id": signal.node, **payload}, reply=signal.token, attempt=signal.attempt)
        sent = self.place.store.once(answer)
        if sent is not None:
            self.place.note("guardian", "signalled", node=signal.node, signal=kind, to=signal.kind, id=sent.unique)

    def tell(self, kind: str, token: str, **payload: object) -> None:
        """A signal for the terminal, once."""
        self.place.store.once(Signal(kind, {"pipeline_id": self.place.pipeline, **payload}, reply=token))

    def busy(self) -> bool:
        return any(not job.done() for job in self.jobs.values())

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _result(self, token: str) -> str:
        return os.path.join(self.results, f"{_SAFE.sub('_', token)}.json")


def retries_left(shift: Shift, node: Node, attempt: int) -> bool:
    """May this node be tried again after this attempt?"""
    said = node.get("max_retries")
    most = int(said) if said.isdecimal() else shift.place.settings.supervision.retries
    return attempt - int(shift.record(node.id)["base"]) <= most


def _first(text: str) -> str:
    return text.strip().splitlines()[0][:120] if text.strip() else ""
