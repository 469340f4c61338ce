"""The frame around a job, with an agent and a fence that only count: attempts, repairs, contracts, what is held."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.context import done, events, new_context, new_job, write

from doflow.agents import call, rate_limits
from doflow.engine.jobs import job_runner
from doflow.flow.markdown import Phase
from doflow.flow.model import Outcome, Status
from doflow.guard.snapshot_entries import Change
from doflow.runs.lockfile import Artifact
from doflow.util.process import runner

ONE = "specs/001-login/one.md"
STEP = "one: {prompt: Write., makes: one.md, check: {headings: [Goal]}, repair: 2, retry: {attempts: 3, backoff: 1}}"
WITHOUT_GIT = "git: {commit_artifacts: false}\n"
CALL, SLEEP, STOPPING = (named.__name__ for named in (call.call_agent, rate_limits.sleep, runner.stopping))
GOOD, BAD = "# Goal\n\nAll.\n", "# Draft\n"


class FakeFence:
    """Counts what it is asked for. `strays` are what it says was written where it may not."""

    def __init__(self, strays=(), context=None):
        self.asked = []
        self.strays = strays
        self.context = context

    def watches(self, job):
        return job.watched

    def see(self, job):
        return self.context

    def layers(self, job):
        return 0

    def take_over(self, job):
        return None

    def enter(self, job, entry=None):
        self.asked.append("enter again" if entry else "enter")

    def look(self, job):
        return tuple(Change(path, "added") for path in job.makes), self.strays

    def undo(self, job, why):
        self.asked.append("undo")
        return job.makes

    def back(self, job):
        self.asked.append("back")
        return ()

    def keep(self, job):
        self.asked.append("keep")

    def leave(self, job):
        self.asked.append("leave")

    def abandon(self, job):
        self.asked.append("abandon")

    def work(self, job):
        return "c0ffee"

    def beside(self, job):
        return ()


class Agent:
    """Does one thing after the other: a text is written as the artifact, an outcome is how the call ends."""

    def __init__(self, root, *deeds):
        self.root, self.deeds = root, list(deeds)
        self.calls = []

    def __call__(self, job, context, attempt, role="step", trouble="", session=None):
        self.calls.append((role, attempt))
        self.trouble, self.session = trouble, session
        deed = self.deeds.pop(0)
        if isinstance(deed, str):
            write(self.root, ONE, deed)
            return done("written", session="s1")
        if isinstance(deed, BaseException):
            raise deed
        return deed


@pytest.fixture(autouse=True)
def sleeps(monkeypatch):
    waited = []
    monkeypatch.setattr(rate_limits, SLEEP, lambda seconds, tell=None: waited.append(seconds) or True)
    return waited


@pytest.fixture
def context(tmp_path):
    return new_context(tmp_path, STEP, WITHOUT_GIT)


@pytest.fixture
def perform(context, monkeypatch):
    """Performs the step with an agent that does these deeds, and repairs with the same one."""

    def act(*deeds, fence=None, job=None):
        agent = Agent(context.root, *deeds)
        monkeypatch.setattr(call, CALL, agent)
        act.fence = fence or FakeFence()
        act.fence.context = context
        outcome = job_runner.run_job(job or new_job(context), context, act.fence, agent)
        act.agent = agent
        return outcome, agent.calls

    return act


def failed(reason="net", **values):
    return Outcome(Status.FAILED, reason, **values)


def test_a_good_result_is_written_down_then_recorded(perform, context):
    outcome, calls = perform(GOOD)

    assert (outcome.status, calls) == (Status.DONE, [("step", 1)])
    assert events(context) == ["step_starting", "returned", "step_complete"]
    assert perform.fence.asked == ["enter", "leave"]
    assert context.record.artifacts[ONE] == Artifact(context.files.digest(ONE), "agent", "one")
    assert context.record.steps["one"].key == new_job(context).key.key
    assert dict(context.record.returned) == {}


def test_what_was_returned_names_its_files_its_work_and_its_session(perform, context):
    seen = []
    context.listen = seen.append
    perform(GOOD)
    (entry,) = [entry for entry in seen if entry["event"] == "returned"]

    assert entry["files"] == {ONE: context.files.digest(ONE)}
    assert (entry["work"], entry["session"], entry["key"]) == ("c0ffee", "s1", new_job(context).key.key)


# contract and repair


def test_a_broken_contract_is_handed_back_with_its_session_until_it_holds(perform, context):
    outcome, calls = perform(BAD, BAD, GOOD)

    assert outcome.ok
    assert calls == [("step", 1), ("repair", 1), ("repair", 1)]
    assert "Goal" in perform.agent.trouble
    assert perform.agent.session.id == "s1"
    assert perform.fence.asked == ["enter", "keep", "keep", "leave"]
    assert events(context).count("returned") == 3


def test_after_the_last_repair_it_fails_and_is_undone(perform, context):
    outcome, calls = perform(BAD, BAD, BAD)

    assert (outcome.status, len(calls)) == (Status.FAILED, 3)
    assert perform.fence.asked[-2:] == ["undo", "leave"]
    assert events(context)[-1] == "error"
    assert "one" not in context.record.steps


def test_a_result_that_is_missing_breaks_the_contract(perform):
    outcome, calls = perform(done(), GOOD)

    assert outcome.ok
    assert [role for role, _ in calls] == ["step", "repair"]


@pytest.mark.parametrize("status", [Status.RATE_LIMITED, Status.PAUSED, Status.CANCELLED, Status.AUTH])
def test_a_repair_that_cannot_be_made_now_keeps_what_is_paid(perform, context, status):
    outcome, calls = perform(BAD, Outcome(status, "not now"))

    assert (outcome.status, outcome.held, len(calls)) == (status, True, 2)
    assert perform.fence.asked == ["enter", "keep", "back", "leave"]
    assert "one" in context.record.returned


def test_what_is_held_is_repaired_later_and_not_made_again(perform, context):
    perform(BAD, Outcome(Status.PAUSED, "not now"))
    outcome, calls = perform(GOOD)

    assert (outcome.ok, calls) == (True, [("repair", 1)])
    assert perform.fence.asked == ["enter again", "keep", "leave"]


def test_repairs_are_counted_over_all_commands(perform):
    perform(BAD, BAD, Outcome(Status.PAUSED, "not now"))
    outcome, calls = perform(BAD)

    assert (outcome.status, calls) == (Status.FAILED, [("repair", 1)])


def test_a_result_of_an_earlier_process_is_recorded_without_a_call(perform, context):
    job = new_job(context)
    write(context.root, ONE, GOOD)
    context.record.agent_returned("one", {"step": "one", "key": job.key.key, "files": {ONE: context.files.digest(ONE)}})
    outcome, calls = perform()

    assert (outcome.ok, calls) == (True, [])
    assert events(context) == ["step_complete"]


@pytest.mark.parametrize("change", ["key", "file"])
def test_a_result_that_is_no_longer_what_it_was_is_made_again(perform, context, change):
    job = new_job(context)
    write(context.root, ONE, GOOD)
    entry = {"step": "one", "key": job.key.key, "files": {ONE: context.files.digest(ONE)}}
    context.record.agent_returned("one", {**entry, "key": "other"} if change == "key" else entry)
    if change == "file":
        (context.root / ONE).unlink()
    context.record.hold_files({ONE: context.files.digest(ONE)})
    outcome, calls = perform(GOOD)

    assert (outcome.ok, calls) == (True, [("step", 1)])


# attempts


def test_a_transient_failure_is_tried_again_after_longer_and_longer_waits(perform, context, sleeps):
    outcome, calls = perform(failed("a", transient=True), failed("b", transient=True), GOOD)

    assert (outcome.ok, calls) == (True, [("step", 1), ("step", 2), ("step", 3)])
    assert 0.75 <= sleeps[0] <= 1.25 and 1.5 <= sleeps[1] <= 2.5
    assert [entry["reason"] for entry in context.record.retries] == ["a", "b"]
    assert perform.fence.asked.count("undo") == 2


def test_other_failures_are_not_tried_again(perform, sleeps):
    outcome, calls = perform(failed("no"))

    assert (outcome.status, outcome.reason, len(calls), sleeps) == (Status.FAILED, "no", 1, [])


def test_attempts_end_where_the_step_says(perform):
    outcome, calls = perform(*(failed(name, transient=True) for name in "abcd"))

    assert (outcome.reason, len(calls)) == ("d", 4)


def test_the_same_failure_three_times_is_enough(perform):
    outcome, calls = perform(*(failed(transient=True) for _ in range(3)))

    assert (outcome.status, len(calls)) == (Status.FAILED, 3)
    assert outcome.reason.startswith("net") and outcome.reason != "net"


def test_a_wait_that_is_interrupted_ends_the_job(perform, monkeypatch):
    monkeypatch.setattr(rate_limits, SLEEP, lambda seconds, tell=None: False)
    outcome, calls = perform(failed(transient=True))

    assert (outcome.status, len(calls)) == (Status.CANCELLED, 1)


def test_an_exception_leaves_the_window_open_for_the_next_start(context):
    fence = FakeFence(context=context)
    with pytest.raises(KeyboardInterrupt):
        job_runner.run_job(new_job(context), context, fence, Agent(context.root, KeyboardInterrupt()))

    assert fence.asked == ["enter", "abandon"]


def test_a_check_that_is_cut_short_holds_the_result(perform, context, monkeypatch):
    monkeypatch.setattr(runner, STOPPING, lambda: True)
    outcome, calls = perform(BAD)

    assert (outcome.status, outcome.held, len(calls)) == (Status.CANCELLED, True, 1)
    assert "one" in context.record.returned


# limits of agents


def test_a_rate_limit_without_leave_to_wait_ends_the_job(perform, context, sleeps):
    outcome, calls = perform(Outcome(Status.RATE_LIMITED, "limit", resume_at="2099-01-01T00:00:00Z"))

    assert (outcome.status, len(calls), sleeps) == (Status.RATE_LIMITED, 1, [])
    assert outcome.next[0].at == "2099-01-01T00:00:00Z"
    assert events(context)[-1] == "rate_limited"


def test_with_leave_to_wait_it_goes_on_by_itself(perform, context, sleeps):
    context.settings = replace(context.settings, rate_limit_wait=60.0)
    outcome, calls = perform(Outcome(Status.RATE_LIMITED, "limit"), GOOD)

    assert (outcome.ok, len(calls), len(sleeps)) == (True, 2, 1)
    assert "waiting" in events(context)


# refusals


def test_a_stray_file_refuses_the_result_and_holds_a_good_artifact(perform, context):
    outcome, _ = perform(GOOD, fence=FakeFence(("README.md",)))

    assert (outcome.status, outcome.held, outcome.files) == (Status.REFUSED, True, (ONE,))
    assert "undo" not in perform.fence.asked
    assert dict(context.record.held_files) == {ONE: context.files.digest(ONE)}
    assert "returned" not in events(context)


def test_a_stray_file_beside_a_bad_artifact_holds_nothing(perform, context):
    outcome, _ = perform(BAD, fence=FakeFence(("README.md",)))

    assert (outcome.status, outcome.held) == (Status.REFUSED, False)
    assert perform.fence.asked == ["enter", "undo", "leave"]
    assert dict(context.record.held_files) == {}


def test_a_missing_input_refuses_before_anybody_is_called(perform, context):
    job = new_job(context)
    outcome, calls = perform(job=replace(job, key=replace(job.key, missing=("gone.md",))))

    assert (outcome.status, calls) == (Status.FAILED, [])
    assert "gone.md" in outcome.reason


def test_a_persons_edit_is_not_overwritten_unless_it_is_forced(perform, context, tmp_path):
    write(context.root, ONE, "# Mine\n")
    outcome, calls = perform()
    assert (outcome.status, calls) == (Status.PAUSED, [])

    context.options = replace(context.options, force=frozenset({"one"}))
    assert perform(GOOD)[0].ok


def test_a_result_of_the_job_as_it_was_before_is_put_aside(context):
    context.record.agent_returned("one", {"files": {ONE: "1"}})
    fence = FakeFence(context=context)
    job_runner.quarantine_returned(new_job(context), context, fence)

    assert fence.asked == ["enter again", "undo", "leave"]
    assert dict(context.record.returned) == {}
    assert events(context) == ["warning"]


def test_a_command_is_not_fenced_and_not_handed_back(tmp_path):
    context = new_context(tmp_path, "one: {kind: shell, run: 'true', makes: one.md}", WITHOUT_GIT)
    fence = FakeFence(context=context)
    outcome = job_runner.run_job(new_job(context), context, fence, lambda *args: done())

    assert (outcome.status, fence.asked) == (Status.FAILED, [])


def test_a_failed_command_leaves_no_artifact(tmp_path):
    context = new_context(tmp_path, "one: {kind: shell, run: 'true', makes: one.md}", WITHOUT_GIT)

    def produce(job, context, attempt):
        write(tmp_path, ONE, "half")
        return failed()

    assert job_runner.run_job(new_job(context), context, FakeFence(context=context), produce).status is Status.FAILED
    assert not (tmp_path / ONE).exists()


def test_a_phase_that_changed_nothing_is_told(tmp_path):
    context = new_context(tmp_path, "implement: {kind: implement, phases: /tasks.md, prompt: Do.}", WITHOUT_GIT)
    job = replace(new_job(context, "implement"), phase=Phase("1", "A", "", 1), writes=None)
    job_runner.accept_result(job, context, FakeFence(context=context), done(), 1)

    assert events(context) == ["warning", "returned"]
    assert list(context.record.returned) == ["implement:1"]
