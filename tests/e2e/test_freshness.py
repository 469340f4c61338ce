"""What runs again, and what does not: real doit, real git, a scripted agent."""

from __future__ import annotations

import pytest
from tests.support.reruns import CHAIN, again, chain, edit


@pytest.mark.smoke
def test_a_second_run_calls_no_agent(project):
    chain(project)
    commits = project.subjects()

    assert again(project) == []
    assert (project.state()["status"], project.subjects()) == ("completed", commits)


@pytest.mark.smoke
def test_a_hand_edit_runs_only_what_reads_it_and_why_names_it(project):
    chain(project)
    text = edit(project, "two.md")

    why = project.doflow("why", "three")
    assert (why.returncode, "two.md was edited by hand" in why.stdout) == (0, True), why
    assert again(project) == ["three"]
    assert (project.run_dir() / "two.md").read_text() == text
    assert again(project) == []


def test_a_hand_edit_is_recorded_as_the_persons_and_committed(project):
    chain(project)
    edit(project, "two.md")

    again(project)

    assert project.git("status", "--porcelain") == ""
    assert '"author": "person"' in next(
        line for line in (project.run_dir() / "doflow.lock").read_text().splitlines() if 'two.md": {"digest' in line
    )
    assert any(subject.startswith("Keep manual edits to") for subject in project.subjects())


def test_a_hand_edit_that_the_person_commits_runs_what_reads_it(project):
    chain(project)
    edit(project, "one.md")
    project.commit("My words")

    assert again(project) == ["two", "three"]
    assert again(project) == []


def test_an_edit_taken_back_runs_nothing(project):
    chain(project)
    path = project.run_dir() / "two.md"
    before = path.read_text()
    edit(project, "two.md")
    path.write_text(before)

    assert again(project) == []


@pytest.mark.smoke
def test_a_changed_prompt_of_the_project_runs_its_step_and_what_follows_from_changed_bytes(project):
    chain(project)
    project.write("flows/prompts/one.md", "Write one, better.\n")
    project.commit("A better prompt")

    assert "its prompt one.md changed" in project.doflow("why", "one").stdout
    assert again(project) == ["one", "two", "three"]


@pytest.mark.smoke
def test_a_rerun_that_gives_the_same_bytes_stops_there(project):
    chain(project, script="usual()")
    project.write("flows/prompts/one.md", "Write one, better.\n")
    project.commit("A better prompt")

    assert again(project) == ["one"]
    assert again(project) == []


def test_a_changed_step_runs_only_that_step(project):
    chain(project, script="usual()")
    project.flow("chain", CHAIN.replace("Write two.", "Write two at length."))
    project.commit("Another step")

    assert again(project) == ["two"]


def test_a_changed_check_runs_its_step(project):
    chain(project, script="usual()")
    project.flow("chain", CHAIN.replace("makes: two.md}", "makes: two.md, check: {not_empty: true}}"))
    project.commit("A check")

    assert again(project) == ["two"]


@pytest.mark.smoke
def test_a_changed_timeout_retry_gate_or_order_runs_nothing(project):
    chain(project, script="usual()")
    changed = CHAIN.replace("attempts: 0", "attempts: 1")
    changed = changed.replace("makes: two.md}", "makes: two.md, timeout: 5m, repair: 2, protect: [x]}")
    project.flow("chain", changed.replace("makes: three.md}", "makes: three.md, after: [two]}"))
    project.commit("Other limits")

    assert again(project) == []


def test_a_goal_in_a_prompt_counts_only_for_the_step_that_uses_it(project):
    flow = """
        flow: chain
        params: {goal: {required: true}, tone: {default: plain}}
        defaults: {retry: {attempts: 0}}
        steps:
          one: {prompt: Write one., reads: [input.md], makes: one.md}
          two: {prompt: "Write two, {tone}.", makes: two.md}
    """
    chain(project, flow, "usual()")

    assert again(project, "chain", "--goal=Say it", "--tone=angry") == ["two"]


@pytest.mark.smoke
def test_a_stale_step_with_a_hand_edited_artifact_pauses_and_leaves_the_text(project):
    chain(project)
    text = edit(project, "two.md")
    edit(project, "one.md")

    done = project.doit("chain")

    assert done.returncode == 2
    assert "two.md has manual edits" in done.stdout
    assert "doflow adopt two" in done.stdout and "doit chain --force=two" in done.stdout
    assert (project.calls(), (project.run_dir() / "two.md").read_text()) == ([], text)
    assert project.state()["status"] == "paused"
    assert again(project, code=2) == []


def test_force_rebuilds_a_hand_edited_artifact(project):
    chain(project)
    text = edit(project, "two.md")
    edit(project, "one.md")
    again(project, code=2)

    assert again(project, "chain", "--force=two") == ["two", "three"]
    assert (project.run_dir() / "two.md").read_text() != text
    assert "two.md` exists. Keep what still holds" in project.prompts()[0]
    assert again(project) == []


def test_adopt_keeps_a_hand_edited_artifact_and_runs_what_reads_it(project):
    chain(project)
    text = edit(project, "two.md")
    edit(project, "one.md")
    again(project, code=2)

    adopted = project.doflow("adopt", "two")

    assert adopted.returncode == 0, adopted.stderr
    assert again(project) == ["three"]
    assert (project.run_dir() / "two.md").read_text() == text
    assert again(project) == []


@pytest.mark.smoke
def test_force_redoes_a_fresh_step_once(project):
    chain(project, script="usual()")

    assert again(project, "chain", "--force=two") == ["two"]
    assert again(project) == []


def test_force_of_an_unknown_step_is_an_error(project):
    chain(project)

    done = project.doit("chain", "--force=nosuch")

    assert done.returncode == 1
    assert "nosuch" in done.stdout + done.stderr
    assert project.calls() == []


def test_a_deleted_artifact_is_made_again(project):
    chain(project, script="usual()")
    (project.run_dir() / "two.md").unlink()

    assert "two.md is gone" in project.doflow("why", "two").stdout
    assert again(project) == ["two"]
    assert again(project) == []


@pytest.mark.smoke
def test_a_revision_is_told_of_the_old_artifact_and_the_difference_of_its_inputs(project):
    chain(project)
    edit(project, "two.md", "\nA new requirement.\n")

    again(project)

    assert "`specs/001-say-it/three.md` exists. Keep what still holds" in project.prompts()[0]
    assert "+A new requirement." in project.prompts()[0]


def test_an_artifact_at_the_root_of_the_project_is_followed(project):
    flow = CHAIN.replace("makes: one.md", "makes: /docs/one.md").replace("reads: [one.md]", "reads: [/docs/one.md]")
    chain(project, flow)
    project.write("docs/one.md", "By hand.\n")

    assert again(project) == ["two", "three"]


def test_a_changed_packaged_prompt_name_is_taken_from_the_project_when_it_has_one(project):
    project.doit("tiny", "--goal=Say it")
    project.forget_calls()
    project.write("flows/prompts/plan.md", "Plan as we plan.\n")
    project.commit("Our own prompt")

    assert again(project, "tiny") == ["plan"]
    assert "Plan as we plan." in project.prompts()[0]


def test_a_step_that_is_put_into_a_finished_flow_runs_alone(project):
    chain(project, script="usual()")
    project.flow("chain", CHAIN.replace("      three:", "      extra: {prompt: More., makes: extra.md}\n      three:"))
    project.commit("One more")

    assert again(project) == ["extra"]
    assert project.state()["pipeline"] == ["one", "two", "extra", "three"]
    project.flow("chain", CHAIN)
    project.commit("One less")
    assert again(project) == []
    assert project.state()["completed"] == ["one", "two", "three"]


def test_an_edit_that_was_kept_is_still_the_persons_when_its_step_becomes_stale(project):
    chain(project)
    text = edit(project, "two.md")
    assert again(project) == ["three"]
    edit(project, "one.md")

    assert again(project, code=2) == []
    assert (project.run_dir() / "two.md").read_text() == text


def test_artifacts_that_are_not_to_be_committed_are_known_all_the_same(project):
    project.settings("git: {commit_artifacts: false}\n")
    chain(project)

    assert project.subjects() == ["Begin", "A flow"]
    assert again(project) == []
    edit(project, "two.md")
    assert again(project) == ["three"]
    assert project.subjects() == ["Begin", "A flow"]
