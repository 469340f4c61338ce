"""What an agent has returned: when it still counts, and when it is made again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.context import done, events, git, new_context, new_job, new_repository, write

from doflow.engine.jobs import agent_results
from doflow.flow.markdown import Phase
from doflow.runs.lockfile import StepRecord

ONE = "specs/001-login/one.md"
FLOW = """
    one: {prompt: Write., makes: one.md}
    implement: {kind: implement, phases: /tasks.md, prompt: Do.}
    test: {kind: shell, run: "true", repair: 2}
"""


@pytest.fixture
def context(tmp_path):
    write(tmp_path, ONE, "# One\n")
    write(tmp_path, "code.py", "old\n")
    context = new_context(tmp_path, FLOW)
    new_repository(tmp_path)
    return context


@pytest.fixture
def phase(context):
    return replace(new_job(context, "implement"), makes=(), phase=Phase("1", "A", "", 1), writes=None)


def returned(context, job, *paths, **more):
    files = {path: context.files.digest(path) for path in paths}
    context.record.agent_returned(job.name, {**job.where, "key": job.key.key, "files": files, **more})


def kept(context, job):
    return agent_results.find_returned(job, context)


def test_a_result_counts_as_long_as_key_and_files_are_the_same(context):
    job = new_job(context)
    assert kept(context, job) is None
    returned(context, job, ONE)
    assert kept(context, job) == context.record.returned["one"]
    write(context.root, ONE, "# Mine\n")
    assert kept(context, job) is None
    returned(context, job, ONE)
    assert kept(context, replace(job, key=replace(job.key, key="other"))) is None


def test_a_phase_that_a_person_went_on_with_counts_with_their_changes(context, phase):
    write(context.root, "code.py", "new\n")
    returned(context, phase, "code.py")
    write(context.root, "code.py", "newer\n")
    found = kept(context, phase)

    assert found["edited"] == ["code.py"]
    assert found["files"] == {"code.py": context.files.digest("code.py")}


def test_a_phase_that_a_person_took_back_is_done_again(context, phase):
    write(context.root, "code.py", "new\n")
    returned(context, phase, "code.py")
    git(context.root, "checkout", "-q", "code.py")

    assert kept(context, phase) is None


def test_of_repairs_for_a_command_as_much_counts_as_is_still_there(context):
    job = new_job(context, "test")
    write(context.root, "new.py", "x")
    returned(context, job, "code.py", "new.py", unfinished=True)
    write(context.root, "code.py", "other\n")
    found = kept(context, job)

    assert (list(found["files"]), found["unfinished"]) == (["new.py"], True)
    assert kept(context, replace(job, key=replace(job.key, key="other")))["files"] == found["files"]
    (context.root / "new.py").unlink()
    assert kept(context, job) is None


def test_untouched_is_what_is_as_it_was_or_gone(context, phase):
    write(context.root, "gone.py", "x")
    returned(context, phase, "code.py", ONE, "gone.py")
    (context.root / "gone.py").unlink()
    write(context.root, "code.py", "mine\n")

    assert sorted(agent_results.unchanged_files(phase, context)) == ["gone.py", ONE]


def test_a_command_that_puts_the_result_in_order_is_followed(context):
    job = new_job(context)
    returned(context, job, ONE)
    agent_results.update_returned(job, context)
    assert events(context) == []
    write(context.root, ONE, "# One, in order\n")
    agent_results.update_returned(job, context)

    assert events(context) == ["returned"]
    assert context.record.returned["one"]["files"] == {ONE: context.files.digest(ONE)}


def test_what_the_agent_removed_and_a_command_made_again_is_the_commands(context, phase):
    returned(context, phase, "removed.py")
    write(context.root, "removed.py", "x")
    agent_results.update_returned(phase, context)

    assert context.record.returned["implement:1"]["files"] == {}


def entry_of(context, job, **more):
    agent_results.record_returned(job, context, {}, done(**more), 1)
    return context.record.returned[job.name]


def test_a_phase_that_was_done_before_as_it_is_now_is_marked_so(context, phase):
    assert "again" not in entry_of(context, phase)
    context.complete("implement:1", StepRecord(phase.key.key), {})
    assert entry_of(context, phase)["again"]
    context.record.remove_step("implement:1")
    assert entry_of(context, phase)["again"], "it is being repaired since"


def test_a_result_that_is_written_down_comes_back(context):
    entry = entry_of(context, new_job(context), model="opus", agent="other", session="s")
    outcome = agent_results.returned_outcome(entry)

    assert (outcome.ok, outcome.model, outcome.agent, outcome.text) == (True, "opus", "other", "")
    assert entry["session"] == "s"
