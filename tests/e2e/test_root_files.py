"""Files at the project's root that a flow makes: what is committed is no edit by hand, whoever wrote it."""

from __future__ import annotations

import json

import pytest
from tests.support.project import Project

NOTES = """
    flow: notes
    params: {goal: {required: true}}
    defaults: {retry: {attempts: 0}}
    steps:
      changes: {prompt: "Write the changes of {goal}.", makes: /CHANGES.md}
"""


def notes(project: Project, text: str = "") -> Project:
    """A flow that makes CHANGES.md, which is there already if it has a text."""
    project.flow("notes", NOTES)
    project.agent("echo()")
    if text:
        project.write("CHANGES.md", text)
    project.commit("A flow")
    return project


def release(project: Project, goal: str, code: int = 0) -> str:
    project.forget_calls()
    done = project.doit("notes", f"--goal={goal}")
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def merge(project: Project, branch: str) -> None:
    project.git("switch", "-q", "main")
    project.git("merge", "-q", branch)


def twice(project: Project) -> Project:
    """Two runs, one after the other; each has made CHANGES.md and is merged."""
    notes(project)
    for number in (1, 2):
        release(project, f"release {number}")
        merge(project, f"00{number}-release-{number}")
    return project


@pytest.mark.smoke
def test_a_second_run_revises_what_the_first_one_made(project):
    notes(project)
    release(project, "release 1")
    first = project.read("CHANGES.md")
    merge(project, "001-release-1")

    release(project, "release 2")

    assert project.calls() == ["changes"]
    assert "CHANGES.md` exists. Keep what still holds" in project.prompts()[0] and first in project.prompts()[0]
    assert project.read("CHANGES.md") != first
    assert project.git("status", "--porcelain") == ""


def test_why_names_the_run_that_made_it(project):
    notes(project)
    release(project, "release 1")
    merge(project, "001-release-1")
    project.agent("stop(1)")
    release(project, "release 2", code=1)

    told = project.doflow("why", "changes").stdout

    assert "makes CHANGES.md: by run 001-release-1\n" in told
    assert json.loads(project.doflow("why", "changes", "--json").stdout)["edited"] == []
    assert "by hand" not in told + project.doflow("plan").stdout + project.doflow("status").stdout


def test_a_committed_file_of_the_person_is_revised(project):
    notes(project, "# Changes\n\nMine so far.\n")

    release(project, "release 1")

    assert project.calls() == ["changes"] and "Mine so far." in project.prompts()[0]
    assert project.git("show", "HEAD~1:CHANGES.md") == "# Changes\n\nMine so far.\n"


def test_why_says_that_it_is_as_committed(project):
    notes(project, "# Changes\n")
    project.agent("stop(1)")
    release(project, "release 1", code=1)

    assert "makes CHANGES.md: as committed; not made by a run\n" in project.doflow("why", "changes").stdout


def test_line_ends_that_git_turns_are_no_edit_of_a_committed_file(project):
    project.write(".gitattributes", "*.md text eol=crlf\n")
    notes(project, "# Changes\r\n\r\nMine so far.\r\n")

    release(project, "release 1")

    assert project.calls() == ["changes"]


def test_an_uncommitted_edit_of_the_person_pauses(project):
    notes(project, "# Changes\n")
    project.write("CHANGES.md", "# Changes\n\nNot committed.\n")

    told = release(project, "release 1", code=2)

    assert "CHANGES.md has manual edits" in told
    assert (project.calls(), project.read("CHANGES.md")) == ([], "# Changes\n\nNot committed.\n")


def test_a_staged_edit_and_a_file_that_git_does_not_know_pause(project):
    notes(project)
    project.write("CHANGES.md", "# Mine\n")
    release(project, "release 1", code=2)
    project.git("add", "CHANGES.md")

    project.forget_calls()
    assert (project.doit("notes").returncode, project.calls()) == (2, [])


def test_an_edit_of_what_another_run_made_pauses_until_it_is_committed(project):
    notes(project)
    release(project, "release 1")
    merge(project, "001-release-1")
    project.write("CHANGES.md", project.read("CHANGES.md") + "\nBy hand.\n")

    release(project, "release 2", code=2)
    assert project.calls() == []

    project.commit("My words")
    release(project, "release 2")
    assert project.calls() == ["changes"] and "By hand." in project.prompts()[0]


def test_what_steps_leave_uncommitted_is_known_by_the_other_runs_lock(project):
    project.settings("git: {commit_artifacts: false, branch: current}\n")
    notes(project)
    release(project, "release 1")

    release(project, "release 2")

    assert project.calls() == ["changes"]


def test_what_a_later_run_made_is_no_edit_in_the_earlier_one(project):
    twice(project)

    verified = project.doflow("verify")
    assert verified.returncode == 0, verified.stdout
    project.git("switch", "-q", "001-release-1")
    project.git("merge", "-q", "main")
    release(project, "release 1")

    assert project.calls() == []
    assert not [subject for subject in project.subjects() if subject.startswith("Keep manual edits")]


def test_a_text_of_an_earlier_run_that_the_person_brings_back_is_an_edit(project):
    twice(project)
    project.git("switch", "-q", "002-release-2")
    project.git("checkout", "HEAD~1", "--", "CHANGES.md")
    project.commit("The old words were better")

    release(project, "release 2")

    assert project.calls() == []
    assert "Keep manual edits to CHANGES.md" in project.subjects()


def test_an_artifact_in_the_runs_folder_pauses_even_if_it_is_committed(project):
    project.flow("notes", NOTES.replace("/CHANGES.md", "changes.md"))
    project.write("specs/009-mine/changes.md", "# Mine\n")
    project.commit("A flow, and a text before its step")

    done = project.doit("notes", "--goal=x", "--feature-dir=specs/009-mine")

    assert (done.returncode, project.calls()) == (2, []), done.stdout
