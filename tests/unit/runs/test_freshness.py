"""Is a step up to date: what counts as a reason, and whose text an artifact carries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.context import AT, git, new_context, new_repository, step_of, write

from doflow.flow.model import Prompt
from doflow.runs import freshness, lockfile, run_history
from doflow.runs.lockfile import Artifact, Lock, StepRecord
from doflow.util.version import VERSION

ONE = "specs/001-login/one.md"
FLOW = "one: {prompt: Write it., reads: [input.md], makes: one.md}"
PHASES = """
    tasks: {prompt: List., makes: tasks.md}
    implement: {kind: implement, phases: tasks.md, prompt: Do it.}
"""


@pytest.fixture
def context(tmp_path):
    """A run whose only step is done."""
    write(tmp_path, "specs/001-login/input.md", "A goal\n")
    write(tmp_path, ONE, "# One\n")
    return finished(new_context(tmp_path, FLOW))


def finished(context, **by):
    step = step_of(context)
    key = context.key(step)
    made = {path: context.files.digest(path) for path in map(context.files.path, step.makes)}
    by = {**freshness.current_settings(step, context), **by}
    record = StepRecord(key.key, key.parts, key.reads, made, by=by, at=AT)
    context.complete("one", record, {path: Artifact(digest, "agent", "one") for path, digest in made.items()})
    return context


def verdict(context, step=None):
    return freshness.step_freshness(step or step_of(context), context)


def test_a_step_that_is_done_and_unchanged_is_up_to_date(context):
    found = verdict(context)

    assert found == freshness.Freshness((), context.key(step_of(context)))
    assert found.fresh


def test_a_step_that_was_never_done_is_not(tmp_path):
    context = new_context(tmp_path, FLOW)
    reasons = [verdict(context).reasons]
    context.record.load_events([{"event": "step_starting", "step": "one", "at": AT}], alone=False)
    reasons.append(verdict(context).reasons)
    context.record.agent_returned("one", {})
    reasons.append(verdict(context).reasons)

    assert all(len(found) == 1 for found in reasons)
    assert len({*reasons}) == 3


@pytest.mark.parametrize(
    ("path", "text"),
    [("specs/001-login/input.md", "Another\n"), (ONE, None), ("specs/001-login/input.md", None)],
)
def test_a_changed_input_and_a_missing_file_are_reasons_that_name_it(context, path, text):
    (context.root / path).unlink() if text is None else write(context.root, path, text)

    (reason,) = verdict(context).reasons
    assert path in reason


@pytest.mark.parametrize("change", [{"prompt": Prompt("Write more.")}, {"from_text": True}])
def test_a_changed_prompt_and_a_changed_definition_are_one_reason_each(context, change):
    assert len(verdict(context, replace(step_of(context), **change)).reasons) == 1


def test_what_is_forced_is_done_again(tmp_path):
    write(tmp_path, "specs/001-login/input.md", "A goal\n")
    write(tmp_path, ONE, "# One\n")
    context = finished(new_context(tmp_path, FLOW, force=frozenset({"one"})))

    assert len(verdict(context).reasons) == 1


def test_a_rejected_step_is_stale_until_it_is_done_with_the_note(context):
    context.record.reject("one", "Shorter.")
    assert freshness.rejection_reason(step_of(context), context)
    assert len(verdict(context).reasons) == 1

    finished(context)
    assert not freshness.rejection_reason(step_of(context), context)
    assert verdict(context).fresh


def test_another_agent_a_limit_and_another_doflow_are_shown_and_not_paid(context):
    finished(context, agent="other big", timeout="1h", **{"with": "0.0.1"})
    found = verdict(context)

    assert found.fresh and found.changed
    assert len(found.remarks) == 3


def test_with_triggers_another_agent_is_a_reason(tmp_path):
    write(tmp_path, "specs/001-login/input.md", "A goal\n")
    write(tmp_path, ONE, "# One\n")
    context = new_context(tmp_path, FLOW, "triggers: [agent]\n")

    assert len(verdict(finished(context, agent="other big")).reasons) == 1
    assert verdict(finished(context, agent="person")).fresh
    now = context.agent_of(step_of(context))
    assert verdict(finished(context, agent="stand-in", **{"for": now})).fresh


def test_a_record_of_0_1_0_with_the_agent_in_its_key_is_still_up_to_date(context):
    record = context.record.steps["one"]
    by = {"agent": "claude sonnet", "doflow": VERSION}
    context.complete("one", replace(record, key="old", parts={**record.parts, "agent": "1"}, by=by), {})

    assert verdict(context).fresh


def test_a_key_that_differs_without_a_word_for_it_is_stale(context):
    context.complete("one", replace(context.record.steps["one"], key="other"), {})

    assert len(verdict(context).reasons) == 1


# whose text


def test_an_edit_is_the_persons_until_it_is_taken_back(context):
    step = step_of(context)
    assert freshness.manually_edited_files(step, context) == ()
    write(context.root, ONE, "# Mine\n")
    assert freshness.manually_edited_files(step, context) == (ONE,)
    assert freshness.has_manual_edit(ONE, context)
    write(context.root, ONE, "# One\n")
    assert freshness.manually_edited_files(step, context) == ()


def test_what_is_recorded_as_a_persons_is_theirs(context):
    context.record.add_artifacts({ONE: Artifact(context.files.digest(ONE), "person", "one")})

    assert freshness.has_manual_edit(ONE, context)
    assert freshness.author("one", step_of(context), context) == "person"


def test_a_result_that_waits_for_its_commit_and_one_that_was_refused_are_the_agents(context):
    write(context.root, ONE, "# New\n")
    digest = context.files.digest(ONE)
    context.record.agent_returned("one", {"files": {ONE: digest}})
    assert not freshness.has_manual_edit(ONE, context)
    context.record.discard_returned("one")
    assert freshness.has_manual_edit(ONE, context)
    context.record.hold_files({ONE: digest})
    assert not freshness.has_manual_edit(ONE, context)


def test_a_file_that_is_gone_is_not_an_edit(context):
    (context.root / ONE).unlink()

    assert not freshness.has_manual_edit(ONE, context)


def test_outside_of_the_runs_folder_the_last_commit_and_other_runs_are_no_edit(tmp_path):
    write(tmp_path, "shared.md", "# Shared\n")
    context = new_context(tmp_path, "one: {prompt: Write., makes: /shared.md}")
    new_repository(tmp_path)
    assert run_history.file_origin("shared.md", context) == run_history.COMMITTED
    assert not freshness.has_manual_edit("shared.md", context)

    write(tmp_path, "shared.md", "# Mine\n")
    assert freshness.has_manual_edit("shared.md", context)

    other = Lock("000-other", "tiny", artifacts={"shared.md": Artifact(context.files.digest("shared.md"), "agent")})
    write(tmp_path, "specs/000-other/doflow.lock", lockfile.Lines().text(other))
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "Another run")
    assert run_history.file_origin("shared.md", context) == "run 000-other"


def test_another_run_that_made_other_bytes_is_not_where_a_file_comes_from(tmp_path):
    write(tmp_path, "shared.md", "# Shared\n")
    context = new_context(tmp_path, "one: {prompt: Write., makes: /shared.md}")
    digest = context.files.digest("shared.md")
    artifacts = {"shared.md": Artifact("older", "agent"), "copy.md": Artifact(digest, "agent")}
    write(
        tmp_path, "specs/000-other/doflow.lock", lockfile.Lines().text(Lock("000-other", "tiny", artifacts=artifacts))
    )
    new_repository(tmp_path)

    assert run_history.file_origin("shared.md", context) == run_history.COMMITTED


def test_the_author_of_a_step_is_its_agent_with_its_model(context):
    assert freshness.author("one", step_of(context), context).startswith("default")
    finished(context, agent="claude", model="opus")
    assert freshness.author("one", step_of(context), context) == "claude (opus)"
    assert freshness.author("two", step_of(context), context) == ""


# phases


@pytest.fixture
def phased(tmp_path):
    text = "# Tasks\n\n## Phase 1: A\n\n- [ ] [T001] a\n\n## Phase 2: B\n\n- [ ] [T002] b\n"
    write(tmp_path, "specs/001-login/tasks.md", text)
    context = new_context(tmp_path, PHASES)
    step = step_of(context, "implement")
    by = freshness.current_settings(step, context)
    for phase, key in freshness.phase_keys(step, context):
        context.complete(f"implement:{phase.number}", StepRecord(key.key, key.parts, by=by, at=AT), {})
    return context


def stale_phases(context):
    step = step_of(context, "implement")
    keys = freshness.phase_keys(step, context)
    return [phase.number for phase, key in keys if not freshness.phase_freshness(step, phase, key, context).fresh]


def test_ticked_boxes_leave_phases_up_to_date(phased):
    path = phased.root / "specs/001-login/tasks.md"
    path.write_text(path.read_text().replace("[ ]", "[x]"))

    assert stale_phases(phased) == []


@pytest.mark.parametrize(("old", "new", "stale"), [("a\n", "A\n", ["1", "2"]), ("b\n", "B\n", ["2"])])
def test_a_changed_phase_is_stale_and_so_are_those_after_it(phased, old, new, stale):
    path = phased.root / "specs/001-login/tasks.md"
    path.write_text(path.read_text().replace(f"] {old}", f"] {new}"))

    assert stale_phases(phased) == stale


def test_a_list_without_phases_is_one_phase(phased):
    write(phased.root, "specs/001-login/tasks.md", "- [ ] [T001] a\n")
    keys = freshness.phase_keys(step_of(phased, "implement"), phased)

    assert [(phase.number, phase.title) for phase, _ in keys] == [("all", "tasks.md")]
