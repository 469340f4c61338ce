"""Settling a job in a real repository: lock, commit, event; and what is left when that does not work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.context import done, events, git, new_context, new_job, new_repository, write

from doflow.engine.jobs import commit
from doflow.flow.markdown import Phase
from doflow.flow.model import Status, Usage
from doflow.runs import lockfile
from doflow.runs.lockfile import Artifact, StepRecord

ONE = "specs/001-login/one.md"
FLOW = """
    one: {prompt: Write., reads: [input.md], makes: one.md}
    ask: {prompt: Say., makes: ask.md, routes: [{when: GO, then: [implement]}, {when: HALT, pause: Halted.}]}
    implement: {kind: implement, phases: tasks.md, prompt: Do.}
    test: {kind: shell, run: "true"}
"""


@pytest.fixture
def context(tmp_path):
    write(tmp_path, "specs/001-login/input.md", "A goal\n")
    context = new_context(tmp_path, FLOW)
    new_repository(tmp_path)
    write(tmp_path, ONE, "# One\n")
    return context


def returned(context, job, *paths, **more):
    files = {path: context.files.digest(path) for path in paths}
    context.record.agent_returned(job.name, {**job.where, "key": job.key.key, "files": files, **more})


def settled(context, job, outcome=None):
    returned(context, job, *job.makes)
    return commit.complete_job(job, context, outcome or done())


def committed(context):
    return git(context.root, "show", "--name-only", "--format=", "HEAD").splitlines()


def test_a_job_is_committed_with_its_lock_and_its_trailers(context):
    job = new_job(context)
    assert settled(context, job).ok

    assert committed(context) == ["specs/001-login/doflow.lock", ONE]
    message = git(context.root, "log", "-1", "--format=%B").splitlines()
    assert message[0] == "one: one.md"
    assert message[2:] == ["Doflow-Run: 001-login", "Doflow-Step: one", f"Doflow-Key: {job.key.key}"]
    assert events(context) == ["intent", "step_complete"]
    assert context.last_commit == git(context.root, "rev-parse", "HEAD")
    assert dict(context.record.returned) == {}
    assert lockfile.read_lock(context.run_dir / lockfile.NAME) == context.record.lock


def test_the_record_says_what_it_was_made_from_and_by_whom(context):
    job = new_job(context)
    settled(context, job, done(model="opus", usage=Usage(1, 1, usd=0.25)))
    record = context.record.steps["one"]

    assert (record.key, record.parts, record.reads) == (job.key.key, job.key.parts, job.key.reads)
    assert record.made == {ONE: context.files.digest(ONE)}
    assert (record.by["model"], record.by["usd"]) == ("opus", "0.2500")
    assert context.record.artifacts[ONE] == Artifact(record.made[ONE], "agent", "one")


def test_who_stood_in_is_recorded_with_whom_he_stood_for(context):
    settled(context, new_job(context), done(agent="other big"))
    by = context.record.steps["one"].by

    assert (by["agent"], by["for"].split()[0]) == ("other big", "default")


def test_other_files_of_the_person_are_not_committed(context):
    write(context.root, "mine.txt", "x")
    write(context.root, ".gitignore", ".doflow/\n*.log\n")
    settled(context, new_job(context))

    assert git(context.root, "status", "--porcelain").splitlines() == ["M .gitignore", "?? mine.txt"]


@pytest.mark.parametrize(
    ("artifact", "words", "marker", "by"),
    [
        ("GO\n", "Fine.", "GO", "artifact"),
        ("GO\n", "HALT", "", "artifact"),
        ("# Ask\n", "So:\nHALT", "HALT", None),
        ("# Ask\n", "none", "", None),
    ],
)
def test_a_marker_is_taken_from_the_artifact_then_from_the_last_words(context, artifact, words, marker, by):
    write(context.root, "specs/001-login/ask.md", artifact)
    settled(context, new_job(context, "ask"), done(words))
    record = context.record.steps["ask"]

    assert (record.marker, record.by.get("marker")) == (marker, by)


def test_a_step_without_artifacts_is_recorded_and_waits_for_the_next_commit(context):
    head = git(context.root, "rev-parse", "HEAD")
    job = replace(new_job(context, "test"), makes=())
    assert commit.complete_job(job, context, done()).ok

    assert git(context.root, "rev-parse", "HEAD") == head
    assert context.record.uncommitted == {"test"}
    assert events(context) == ["step_complete"]
    settled(context, new_job(context))
    assert "test" in lockfile.read_lock(context.run_dir / lockfile.NAME).steps


def test_a_branch_that_was_switched_gets_no_commit_and_the_work_is_held(context):
    git(context.root, "switch", "-q", "-c", "other")
    outcome = settled(context, new_job(context))

    assert (outcome.status, outcome.held) == (Status.FAILED, True)
    assert "one" not in context.record.steps
    assert "one" in context.record.returned
    assert "one" not in lockfile.read_lock(context.run_dir / lockfile.NAME).steps
    assert events(context) == []
    git(context.root, "switch", "-q", "main")
    context.reload_git()
    assert commit.complete_job(new_job(context), context, done()).ok


def test_a_commit_that_is_there_already_is_not_made_twice(context):
    job = new_job(context)
    settled(context, job)
    base, new = git(context.root, "rev-parse", "HEAD~", "HEAD").split()
    returned(context, job, ONE)
    context.record.load_events([{"event": "intent", "step": "one", "base": base, "new": new, "at": ""}], alone=False)
    commit.complete_job(job, context, done())

    assert git(context.root, "rev-list", "--count", "HEAD") == "2"
    assert context.last_commit == new


def test_without_commits_of_artifacts_only_phases_are_committed(context):
    context.settings = replace(context.settings, commit_artifacts=False)
    settled(context, new_job(context))
    assert git(context.root, "rev-list", "--count", "HEAD") == "1"

    write(context.root, "src.py", "x")
    job = phase(context, "1", last=True)
    returned(context, job, "src.py")
    commit.complete_job(job, context, done())
    assert "src.py" in committed(context)


def phase(context, number, **values):
    text = "# Tasks\n\n## Phase 1: Ground\n\n- [ ] [T001] a\n\n## Phase 2: House\n\n- [ ] [T002] b\n"
    write(context.root, "specs/001-login/tasks.md", text)
    job = new_job(context, "implement")
    return replace(job, makes=(), phase=Phase(number, "Ground", "", 1), writes=None, of=2, **values)


def test_a_phase_is_committed_under_its_title_and_the_step_is_done_with_the_last(context):
    first, last = phase(context, "1"), phase(context, "2", last=True)
    for job, path in ((first, "a.py"), (last, "b.py")):
        write(context.root, path, "x")
        returned(context, job, path)
        commit.complete_job(job, context, done())
        assert path in committed(context)

    assert git(context.root, "log", "-2", "--format=%s", "--reverse").splitlines() == [
        "Phase 1: Ground", "Phase 2: Ground",
    ]  # fmt: skip
    assert "Doflow-Phase: 2" in git(context.root, "log", "-1", "--format=%B")
    assert list(context.record.steps) == ["implement:1", "implement:2", "implement"]
    whole = context.record.steps["implement"]
    assert (whole.key, whole.marker) == (last.key.key, last.key.key[:16])


def test_a_phase_that_is_done_again_as_it_was_gives_the_step_another_marker(context):
    job = phase(context, "2", last=True)
    for again in (False, True):
        write(context.root, "a.py", f"{again}")
        returned(context, job, "a.py", **({"again": True} if again else {}))
        commit.complete_job(job, context, done())
        markers = context.record.steps["implement:2"].marker, context.record.steps["implement"].marker
        assert bool(markers[0]) is again
        assert (markers[1] == job.key.key[:16]) is not again


def test_a_phase_that_is_done_again_does_not_finish_the_step_while_others_are_open(context):
    job = phase(context, "1")
    write(context.root, "a.py", "x")
    returned(context, job, "a.py", again=True)
    commit.complete_job(job, context, done())

    assert list(context.record.steps) == ["implement:1"]


def test_an_artifact_that_a_later_job_revised_names_it(context):
    settled(context, new_job(context))
    write(context.root, ONE, "# Better\n")
    job = phase(context, "1")
    returned(context, job, ONE)
    commit.complete_job(job, context, done())

    assert context.record.artifacts[ONE] == Artifact(context.files.digest(ONE), "implement:1", "one")


def test_a_lock_can_be_committed_by_itself(context):
    context.record.reject("one", "No.")
    write(context.root, "answers.md", "x")
    new = commit.commit_lock(context, "Reject  one\nof it", ("answers.md",), "one")

    assert git(context.root, "log", "-1", "--format=%H %s") == f"{new} Reject one of it"
    assert committed(context) == ["answers.md", "specs/001-login/doflow.lock"]
    assert events(context) == []


def test_a_group_is_done_when_all_its_items_are(tmp_path):
    context = new_context(tmp_path, "each: {prompt: 'Write {item}.', foreach: [a, b], makes: '{item}.md'}")
    items = [item.id for item in context.items(context.step("each"))]
    context.complete(items[0], StepRecord("1"), {})
    commit.complete_group(context, "each")
    assert "each" not in context.record.steps

    context.complete(items[1], StepRecord("2"), {})
    commit.complete_group(context, "each")
    assert "each" in context.record.steps
    assert context.record.uncommitted == {"each"}
