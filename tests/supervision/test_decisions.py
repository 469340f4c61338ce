"""What a guardian does with each signal, and that a signal which is seen twice comes to the same end. No tmux, no processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.supervision import needs_tmux

from doflow.flow.dot import parser, transitions
from doflow.flow.model import Profile, Settings, Supervision
from doflow.supervise.guardian import decisions, loop, terminal, validation
from doflow.supervise.guardian.state import Guardian, retries_left, save_answer
from doflow.supervise.panes.tmux import Tmux
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.signal_store import Signal, SignalStore
from doflow.util.errors import FlowError, UsageError

pytestmark = pytest.mark.smoke

DOT = """
digraph p {{
  start [shape=Mdiamond, status="validated"]
  a [shape=box, handler="codergen", label="A", bead_id="B", worker_type="w", acceptance="ok", prd_ref="P"{more}]
  g [shape=hexagon, label="Ship?"]
  finish [shape=Msquare]
  start -> a -> g -> finish
}}
"""


class Desk:
    """A guardian's guardian over a file, without anybody at work."""

    def __init__(self, folder: Path, more: str = "", supervision: Supervision | None = None) -> None:
        self.dot = folder / "p.dot"
        self.dot.write_text(DOT.format(more=more))
        self.store = SignalStore(str(folder / "signals" / "p"), "p")
        self.store.prepare()
        agents = (Profile("default", "command", argv=("true",)), Profile("critic", "command", argv=("true",)))
        settings = Settings(agents=agents, supervision=supervision or Supervision())
        self.context = PipelineContext(
            str(folder), "p", str(self.dot), settings, self.store, Tmux("none"), str(folder / "signals")
        )
        self.said: list[str] = []
        self.guardian = Guardian(self.context, {}, self.said.append)

    def status(self, node: str = "a") -> str:
        found = parser.read_pipeline(self.dot).node(node)
        assert found is not None
        return found.status

    def begin(self, attempt: int = 1) -> None:
        transitions.transition(self.dot, "a", "active")
        self.guardian.keep("a", attempt=attempt, base=0)

    def hear(self, kind: str, attempt: int = 1, reply: str = "", **payload: Any) -> tuple[bool, Signal]:
        """A runner says so; whether it is dealt with."""
        signal = self.store.write(Signal(kind, {"node_id": "a", **payload}, attempt=attempt, reply=reply))
        return decisions.handle_signal(self.guardian, signal), signal

    def answers(self, kind: str = "") -> list[dict[str, Any]]:
        return [dict(one.payload) for one in self.store.waiting(source="guardian", target="runner", kind=kind)]

    def judged(self, attempt: int, passed: bool | None, text: str = "") -> None:
        self.guardian.settle(f"verdict.a.{attempt}", {"passed": passed, "text": text, "by": "test"})


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    found = Desk(tmp_path)
    found.begin()
    return found


REVIEW = {"evidence_path": "", "commit_hash": ""}


def test_a_review_that_passed_moves_the_node_and_tells_the_runner(desk: Desk) -> None:
    desk.judged(1, True)

    dealt, _ = desk.hear("NEEDS_REVIEW", **REVIEW)

    assert (dealt, desk.status()) == (True, "validated")
    assert desk.answers() == [{"node_id": "a", "new_status": "validated"}]


def test_a_review_without_a_verdict_waits(desk: Desk) -> None:
    dealt, _ = desk.hear("NEEDS_REVIEW", **REVIEW)

    assert (dealt, desk.status(), desk.answers()) == (False, "impl_complete", [])
    (asked,) = desk.store.waiting(kind="ESCALATION")
    assert asked.payload["options"] == ["approve", "reject"]


def test_a_review_that_failed_goes_back_with_feedback(desk: Desk) -> None:
    desk.judged(1, False, "two tests fail")

    dealt, _ = desk.hear("NEEDS_REVIEW", **REVIEW)

    assert (dealt, desk.status()) == (True, "active")
    assert desk.answers() == [{"node_id": "a", "feedback": "two tests fail", "retry_count": 1}]
    record = desk.guardian.record("a")
    assert (record["attempt"], record["fresh"]) == (2, False), "the same session is told"


def test_after_the_last_retry_the_node_has_failed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, supervision=Supervision(retries=2))
    desk.begin(attempt=3)
    desk.judged(3, False, "still wrong")

    dealt, _ = desk.hear("NEEDS_REVIEW", attempt=3, **REVIEW)

    assert (dealt, desk.status()) == (True, "failed")
    assert desk.answers("KILL_ORCHESTRATOR")[0]["reason"] == "a has failed: still wrong"


@pytest.mark.parametrize("passed", [True, False])
def test_a_review_that_is_seen_again_after_a_crash_changes_nothing_more(passed: bool, desk: Desk) -> None:
    desk.judged(1, passed, "wrong")
    _, signal = desk.hear("NEEDS_REVIEW", **REVIEW)
    before = (desk.status(), desk.answers(), desk.guardian.record("a")["attempt"])

    assert decisions.handle_signal(desk.guardian, signal)
    assert decisions.handle_signal(Guardian(desk.context, {}, desk.said.append), signal)

    assert (desk.status(), desk.answers(), desk.guardian.record("a")["attempt"]) == before


def test_a_crash_between_the_transition_and_the_answer_is_made_good(desk: Desk) -> None:
    """The guardian died after the node was validated and before the runner heard of it."""
    desk.judged(1, True)
    _, signal = desk.hear("NEEDS_REVIEW", **REVIEW)
    for answer in desk.store.waiting(target="runner"):
        Path(answer.path).unlink()

    assert decisions.handle_signal(desk.guardian, signal)
    assert [one["new_status"] for one in desk.answers()] == ["validated"]


def test_node_complete_of_a_validated_node_is_only_filed(desk: Desk) -> None:
    desk.judged(1, True)
    desk.hear("NEEDS_REVIEW", **REVIEW)

    dealt, _ = desk.hear("NODE_COMPLETE", commit_hash="", summary="done")

    assert (dealt, len(desk.answers())) == (True, 1)


def test_node_complete_without_a_review_is_reviewed_first(desk: Desk) -> None:
    dealt, _ = desk.hear("NODE_COMPLETE", commit_hash="", summary="done")

    assert (dealt, desk.status()) == (False, "impl_complete"), "a runner's word is no validation"


def test_a_question_is_answered_by_a_rule_or_goes_up_and_waits(tmp_path: Path) -> None:
    desk = Desk(tmp_path, supervision=Supervision(answers=(("which database", "SQLite"),)))
    desk.begin()

    ruled, _ = desk.hear("NEEDS_INPUT", question_text="Which Database shall I use?", options=[])
    asked, signal = desk.hear("NEEDS_INPUT", question_text="May I delete it?", options=["Yes", "No"])

    assert (ruled, asked) == (True, False)
    assert desk.answers() == [{"node_id": "a", "response_text": "SQLite"}]
    assert decisions.handle_signal(desk.guardian, signal) is False
    (up,) = desk.store.waiting(kind="ESCALATION")
    assert (up.payload["issue"], up.payload["options"]) == ("a asks: May I delete it?", ["Yes", "No"])
    save_answer(desk.store, up.reply, "No", "Ada")
    assert decisions.handle_signal(desk.guardian, signal) is True
    assert desk.answers()[1] == {"node_id": "a", "response_text": "No"}
    assert desk.guardian.asked == {}


def test_a_violation_is_warned_about_and_the_second_one_restarts(desk: Desk) -> None:
    payload = {"violation_type": "direct_edit", "evidence": "Write(a.py)"}

    desk.hear("VIOLATION", reply="violation.a.1.1", **payload)
    assert "You used Write yourself" in desk.answers("GUIDANCE")[0]["message"]
    desk.hear("VIOLATION", reply="violation.a.1.2", **payload)

    assert "it broke the rule direct_edit again: Write(a.py)" in desk.answers("KILL_ORCHESTRATOR")[0]["reason"]
    record = desk.guardian.record("a")
    assert (record["attempt"], record["fresh"], desk.status()) == (2, True, "active")


def test_what_is_stuck_is_nudged_and_the_second_time_restarted(desk: Desk) -> None:
    payload = {"last_output": "hm", "duration_seconds": 300}

    desk.hear("ORCHESTRATOR_STUCK", reply="stuck.a.1.1", **payload)
    assert "Nothing has changed here for 300 seconds" in desk.answers("GUIDANCE")[0]["message"]
    desk.hear("ORCHESTRATOR_STUCK", reply="stuck.a.1.2", **payload)

    assert "Try a different approach" in desk.answers("KILL_ORCHESTRATOR")[0]["reason"]
    assert "Try a different approach" in desk.guardian.record("a")["feedback"]


@pytest.mark.parametrize(("code", "words"), [(7, "ended with exit code 7"), (None, "ended without an exit code")])
def test_a_crash_begins_the_next_attempt(code: int | None, words: str, desk: Desk) -> None:
    desk.hear("ORCHESTRATOR_CRASHED", last_output="oh no", exit_code=code)

    assert words in desk.guardian.record("a")["feedback"]
    assert desk.guardian.record("a")["attempt"] == 2


def test_a_crash_while_the_work_is_reviewed_matters_to_no_one(desk: Desk) -> None:
    desk.hear("NEEDS_REVIEW", **REVIEW)

    dealt, _ = desk.hear("ORCHESTRATOR_CRASHED", last_output="", exit_code=None)

    assert (dealt, desk.status(), desk.guardian.record("a")["attempt"]) == (True, "impl_complete", 1)


def test_an_old_signal_of_an_attempt_that_is_over_does_not_count_again(desk: Desk) -> None:
    desk.hear("ORCHESTRATOR_CRASHED", last_output="", exit_code=1)
    desk.hear("ORCHESTRATOR_CRASHED", last_output="", exit_code=1)

    assert desk.guardian.record("a")["attempt"] == 2


def test_a_signal_about_a_node_that_is_not_there_is_filed_and_said(desk: Desk) -> None:
    signal = desk.store.write(Signal("NODE_COMPLETE", {"node_id": "ghost", "commit_hash": "", "summary": ""}))

    assert decisions.handle_signal(desk.guardian, signal)
    assert "the pipeline has no node ghost" in desk.said[-1]


def test_signals_about_a_node_that_is_over_are_filed(desk: Desk) -> None:
    transitions.transition(desk.dot, "a", "failed")

    for kind, payload in (
        ("NEEDS_INPUT", {"question_text": "x", "options": []}),
        ("VIOLATION", {"violation_type": "x", "evidence": ""}),
        ("ORCHESTRATOR_STUCK", {"last_output": "", "duration_seconds": 1}),
    ):
        assert desk.hear(kind, **payload)[0]
    assert desk.answers() == []
    assert desk.hear("NEEDS_REVIEW", **REVIEW)[0]
    assert desk.answers("KILL_ORCHESTRATOR") != []


@pytest.mark.parametrize(
    ("base", "attempt", "left"), [(0, 1, True), (0, 3, True), (0, 4, False), (4, 5, True), (4, 8, False)]
)
def test_retries_count_from_where_a_person_said_so(base: int, attempt: int, left: bool, desk: Desk) -> None:
    desk.guardian.keep("a", base=base)
    node = parser.read_pipeline(desk.dot).node("a")
    assert node is not None

    assert retries_left(desk.guardian, node, attempt) is left


@pytest.mark.parametrize(
    ("more", "supervision", "found"),
    [
        ("", Supervision(), validation.Means()),
        (', validate="make test"', Supervision(), validation.Means(("/bin/sh", "-c", "make test"))),
        (', check="make"', Supervision(), validation.Means(("/bin/sh", "-c", "make"))),
        (', reviewer="critic"', Supervision(validate=("x",)), validation.Means(reviewer="critic")),
        ("", Supervision(validate=("pytest",), reviewer="critic"), validation.Means(("pytest",))),
        ("", Supervision(reviewer="critic"), validation.Means(reviewer="critic")),
    ],
)
def test_how_a_node_is_validated(more: str, supervision: Supervision, found: validation.Means, tmp_path: Path) -> None:
    desk = Desk(tmp_path, more, supervision)
    node = parser.read_pipeline(desk.dot).node("a")
    assert node is not None

    assert validation.validation_means(node, desk.context) == found


@pytest.mark.parametrize(
    ("attributes", "automatic"), [("", False), (', gate="business"', False), (', gate="technical"', True)]
)
def test_only_a_technical_gate_goes_by_the_settings(attributes: str, automatic: bool, tmp_path: Path) -> None:
    desk = Desk(tmp_path, supervision=Supervision(validate=("true",)))
    desk.dot.write_text(desk.dot.read_text().replace('label="Ship?"', f'label="Ship?"{attributes}'))
    gate = parser.read_pipeline(desk.dot).node("g")
    assert gate is not None

    assert bool(validation.validation_means(gate, desk.context).argv) is automatic


def test_a_reviewer_that_is_the_worker_and_a_broken_file_are_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ', reviewer="default"')
    with pytest.raises(UsageError, match="a would be reviewed by default, its own worker"):
        validation.refuse_invalid(parser.read_pipeline(desk.dot), desk.context)
    desk.dot.write_text(desk.dot.read_text().replace("finish [shape=Msquare]", ""))
    with pytest.raises(FlowError):
        validation.refuse_invalid(parser.read_pipeline(desk.dot), desk.context)


def test_the_first_verdict_counts_whoever_asks_later(desk: Desk) -> None:
    desk.judged(1, True)
    node = parser.read_pipeline(desk.dot).node("a")
    assert node is not None
    path = next((Path(desk.guardian.results)).glob("verdict.a.1*"))
    before = path.read_bytes()

    found = validation.verdict(desk.guardian, node, 1)

    assert found is not None and found["passed"] is True
    assert path.read_bytes() == before


def test_a_persons_yes_and_no(desk: Desk) -> None:
    node = parser.read_pipeline(desk.dot).node("a")
    assert node is not None
    for attempt, said in enumerate(("approve", "Yes", "reject: looks odd, no tests"), 1):
        assert validation.verdict(desk.guardian, node, attempt) is None
        save_answer(desk.store, f"verdict.a.{attempt}", said, "Ada")

    found = [validation.verdict(desk.guardian, node, attempt) for attempt in (1, 2, 3)]

    assert [(one or {}).get("passed") for one in found] == [True, True, False]
    assert (found[2] or {})["text"] == "looks odd, no tests"
    assert json.loads(next(Path(desk.guardian.results).glob("verdict.a.3*")).read_text())["by"] == "person"


@pytest.mark.parametrize("said", ["perhaps", "3", "approve it if the tests pass", "not yet", ""])
def test_what_is_none_of_the_options_is_neither_a_yes_nor_a_no_and_is_asked_again(said: str, desk: Desk) -> None:
    node = parser.read_pipeline(desk.dot).node("a")
    assert node is not None
    validation.verdict(desk.guardian, node, 1)
    save_answer(desk.store, "verdict.a.1", said, "Ada")

    assert [validation.verdict(desk.guardian, node, 1) for _ in range(2)] == [None, None]
    assert [one.reply for one in terminal.open_questions(desk.context)] == ["verdict.a.1"]
    assert f"{said!r} isn't one of the options" in desk.said[-1]
    save_answer(desk.store, "verdict.a.1", "2", "Ada")
    assert (validation.verdict(desk.guardian, node, 1) or {})["passed"] is False


def test_a_question_that_was_asked_before_is_said_again_by_the_next_guardian_with_its_choices(desk: Desk) -> None:
    node = parser.read_pipeline(desk.dot).node("a")
    assert node is not None
    validation.verdict(desk.guardian, node, 1)
    heard: list[str] = []
    later = Guardian(desk.context, {}, heard.append)

    for _ in range(3):
        validation.verdict(later, node, 1)

    (said,) = heard
    assert "    1. approve\n    2. reject\n  next: doflow signal answer verdict.a.1 '…' --pipeline p" in said
    assert heard == desk.said


@needs_tmux  # it is only looked for
def test_the_last_word_of_a_runner_that_comes_while_the_pipeline_ends_is_put_away(tmp_path: Path) -> None:
    """Between the last look at the signals and the last runner's going home it has said that its node is complete."""
    desk = Desk(tmp_path, ', status="validated"')
    desk.dot.write_text(desk.dot.read_text().replace("[shape=hexagon", '[status="validated", shape=hexagon'))

    def say(words: str) -> None:
        if "p: complete" in words:
            said = {"node_id": "a", "commit_hash": "", "summary": "done"}
            desk.store.write(Signal("NODE_COMPLETE", said, attempt=1))

    code = loop.run(desk.context, {}, say, check=0.1)

    assert (code, list(desk.store.waiting(target="guardian"))) == (0, [])
    assert "NODE_COMPLETE" in [signal.kind for signal in desk.store.history()]
