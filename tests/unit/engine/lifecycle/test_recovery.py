"""Recovery: what a killed process left is finished, put back or done again, and nothing is paid twice."""

from __future__ import annotations

import pytest
from tests.support.context import AT, done, events, git, new_context, new_job, new_repository, write

from doflow.engine.jobs import commit
from doflow.engine.lifecycle import recovery, start
from doflow.guard.workspace.kinds import Workspaces
from doflow.runs import event_log, lockfile
from doflow.runs.lockfile import StepRecord

RUN = "specs/001-login"
ONE = f"{RUN}/one.md"
FLOW = """
    one: {prompt: Write., reads: [input.md], makes: one.md}
    implement: {kind: implement, phases: tasks.md, prompt: Do.}
    make: {kind: shell, run: "true", makes: out.md}
"""


@pytest.fixture
def root(tmp_path):
    write(tmp_path, f"{RUN}/input.md", "Log in by a link\n")
    opened(tmp_path)
    return new_repository(tmp_path)


def opened(root):
    """As a new process would open the run."""
    return new_context(root, FLOW)


def recovered(context):
    return recovery.recover(context, Workspaces(context))


def returned(context, job, *paths):
    """An agent has returned these files, and the event log says so."""
    files = {path: context.files.digest(path) for path in paths}
    entry = context.events.add("returned", **job.where, key=job.key.key, files=files)
    context.record.agent_returned(job.name, entry)


def settle(context, text="# One\n"):
    write(context.root, ONE, text)
    job = new_job(context)
    returned(context, job, ONE)
    assert commit.complete_job(job, context, done()).ok
    return job


def cut_after(context, event):
    """The process was killed just after it had written this event."""
    path = context.state_dir / "events.jsonl"
    context.close()
    lines = path.read_bytes().splitlines(keepends=True)
    names = [entry["event"] for entry in event_log.read_events(path)]
    path.write_bytes(b"".join(lines[: names.index(event) + 1]))


def test_after_an_orderly_end_there_is_nothing_to_recover(root):
    settle(opened(root))
    context = opened(root)
    before = events(context)

    assert recovered(context) == ()
    assert events(context) == before
    assert list(context.record.steps) == ["one"]


def test_a_commit_that_was_made_before_the_kill_is_recognised(root):
    context = opened(root)
    settle(context)
    cut_after(context, "intent")
    context = opened(root)
    recovered(context)

    assert events(context)[-1] == "step_complete"
    assert list(context.record.steps) == ["one"]
    assert (dict(context.record.returned), dict(context.record.intents)) == ({}, {})
    assert git(root, "rev-list", "--count", "HEAD") == "2"


def test_without_its_commit_a_returned_step_is_not_done_whatever_the_lock_says(root):
    context = opened(root)
    settle(context)
    cut_after(context, "intent")
    git(root, "reset", "-q", "--soft", "HEAD~")
    context = opened(root)
    assert "one" in context.record.steps
    recovered(context)

    assert "one" not in context.record.steps
    assert "one" in context.record.returned


def test_a_result_without_an_intent_waits_to_be_committed(root):
    context = opened(root)
    settle(context)
    cut_after(context, "returned")
    context = opened(root)
    recovered(context)

    assert ("one" in context.record.steps, "one" in context.record.returned) == (False, True)


def test_the_step_of_a_pending_phase_is_not_done_either(root):
    context = opened(root)
    for name in ("implement:1", "implement"):
        context.complete(name, StepRecord("k", at=AT), {})
    context.record.agent_returned("implement:1", {"step": "implement", "phase": "1", "files": {}})
    recovered(context)

    assert list(context.record.steps) == []


def test_a_lost_lock_is_taken_from_head(root):
    settle(opened(root))
    known = opened(root).record.lock
    (root / RUN / lockfile.NAME).unlink()
    (root / ".doflow/runs/001-login/events.jsonl").unlink()
    context = opened(root)
    recovered(context)

    assert context.record.lock.steps == known.steps


def test_a_lock_that_is_not_in_head_either_is_learned_from_the_trailers(root):
    job = settle(opened(root))
    git(root, "rm", "-q", f"{RUN}/{lockfile.NAME}")
    git(root, "commit", "-q", "-m", "Without its lock")
    (root / ".doflow/runs/001-login/events.jsonl").unlink()
    context = opened(root)
    recovered(context)

    record = context.record.steps["one"]
    assert (record.key, record.made) == (job.key.key, {ONE: context.files.digest(ONE)})
    assert "one" in context.record.uncommitted


def test_a_lock_that_is_there_is_believed_even_if_it_is_empty(root):
    settle(opened(root))
    write(root, f"{RUN}/{lockfile.NAME}", lockfile.Lines().text(lockfile.Lock("001-login", "tiny")))
    (root / ".doflow/runs/001-login/events.jsonl").unlink()
    context = opened(root)
    recovered(context)

    assert dict(context.record.steps) == {}


def test_the_goal_is_written_again_when_the_folder_was_taken_away(root):
    (root / RUN / "input.md").unlink()
    context = opened(root)
    context.record.load_events([{"event": "step_complete", "step": "make", "loose": True, "at": AT,
                                 "record": {"key": "k", "at": AT}}], alone=True)  # fmt: skip
    recovered(context)

    assert (root / RUN / "input.md").read_text() == "Log in by a link\n"
    assert dict(context.record.steps) == {}
    assert events(context) == ["warning"]


def test_half_an_artifact_of_a_killed_command_is_put_aside(root):
    context = opened(root)
    context.events.add("step_starting", step="make", makes={f"{RUN}/out.md": ""})
    context.close()
    write(root, f"{RUN}/out.md", "half")
    context = opened(root)

    assert recovery.preview_recovery(context, Workspaces(context))[1] == {f"{RUN}/out.md": None}
    assert recovered(context) == (f"{RUN}/out.md",)
    assert not (root / RUN / "out.md").exists()


def test_an_artifact_that_a_killed_command_had_not_touched_stays(root):
    write(root, f"{RUN}/out.md", "whole")
    context = opened(root)
    context.events.add("step_starting", step="make", makes={f"{RUN}/out.md": context.files.digest(f"{RUN}/out.md")})
    context.close()
    context = opened(root)

    assert recovered(context) == ()
    assert (root / RUN / "out.md").read_text() == "whole"


def killed_at_work(root):
    """A process that was killed while the agent of `one` wrote: its window is on the disk."""
    context = opened(root)
    job = new_job(context)
    Workspaces(context).in_place.enter(job)
    context.events.add("step_starting", **job.where, makes={ONE: ""})
    return context, job


def test_what_a_killed_agent_wrote_is_put_back(root):
    context, _ = killed_at_work(root)
    write(root, ONE, "half")
    write(root, "stray.txt", "x")
    context.close()
    context = opened(root)

    assert sorted(recovered(context)) == [ONE, "stray.txt"]
    assert not (root / ONE).exists() and not (root / "stray.txt").exists()
    assert not (context.state_dir / "window").exists()


def test_what_an_agent_had_returned_before_the_kill_stays(root):
    context, job = killed_at_work(root)
    write(root, ONE, "# One\n")
    returned(context, job, ONE)
    context.close()
    context = opened(root)
    recovered(context)

    assert (root / ONE).read_text() == "# One\n"
    assert "one" in context.record.returned


def test_a_phase_that_was_taken_out_of_the_history_is_done_again(root):
    context = opened(root)
    settle(context)
    for name, record in (("implement:1", StepRecord("k", at=AT)), ("implement", StepRecord("k", at=AT))):
        context.complete(name, record, {})
    recovery.at_head(context, context.step("implement"))

    assert list(context.record.steps) == ["one"]


def test_half_written_files_of_ours_are_swept_away(root):
    context = opened(root)
    paths = [root / RUN / ".doflow-0123456789abcdef.tmp", context.state_dir / ".doflow-0123456789abcdef.tmp"]
    for path in (*paths, root / RUN / "mine.tmp"):
        path.write_text("half")
    start.remove_temporaries(context)

    assert [path.exists() for path in (*paths, root / RUN / "mine.tmp")] == [False, False, True]


def test_a_phase_that_the_lock_at_head_knows_otherwise_is_done_again(root):
    context = opened(root)
    for name in ("implement:1", "implement:2", "implement"):
        context.complete(name, StepRecord("k", at=AT), {})
    commit.commit_lock(context, "The lock")
    context.reload_git()
    recovery.at_head(context, context.step("implement"))
    assert list(context.record.steps) == ["implement:1", "implement:2", "implement"]

    context.complete("implement:2", StepRecord("other", at=AT), {})
    recovery.at_head(context, context.step("implement"))
    assert list(context.record.steps) == ["implement:1"]


def test_a_commit_whose_step_the_lock_does_not_know_is_not_taken_for_done(root):
    context = opened(root)
    settle(context)
    cut_after(context, "intent")
    write(root, f"{RUN}/{lockfile.NAME}", lockfile.Lines().text(lockfile.Lock("001-login", "tiny")))
    context = opened(root)
    recovered(context)

    assert ("one" in context.record.steps, "one" in context.record.returned) == (False, True)


def test_a_lock_that_was_committed_with_its_conflict_is_learned_from_the_trailers(root):
    job = settle(opened(root))
    path = root / RUN / lockfile.NAME
    path.write_text(f"<<<<<<< HEAD\n{path.read_text()}=======\n{path.read_text()}>>>>>>> other\n")
    git(root, "commit", "-q", "-a", "-m", "A conflict")
    path.unlink()
    (root / ".doflow/runs/001-login/events.jsonl").unlink()
    context = opened(root)
    recovered(context)

    assert context.record.steps["one"].key == job.key.key
