"""Steps that some runs do not have, params from the environment, drafts that doflow puts in their place: in any flow."""

from __future__ import annotations

import pytest
from tests.support.project import Project

FLOW = """\
flow: notes
about: A draft, perhaps a translation, perhaps a check, and the result in its place.
params:
  goal: {about: What to write, required: true}
  tone: {about: How it sounds, default: plain, env: TONE}
  language: {about: A second language}
steps:
  draft:     {prompt: "Write. Tone: {tone}", makes: "{step}/text.md"}
  translate: {prompt: "Into {language}", reads: [draft/text.md], makes: second.md, only: {param: language}}
  proof:     {prompt: Proofread., reads: [draft/text.md], makes: proof.md, only: {unless: SKIP_PROOF}}
  publish:   {kind: install, reads: [draft/text.md], makes: /NOTES.md, check: {headings: [Requirements]}}
"""


@pytest.fixture
def project(project: Project) -> Project:
    project.flow("notes", FLOW)
    project.commit("A flow")
    return project


@pytest.mark.smoke
def test_a_step_is_there_if_its_param_has_a_value_and_its_variable_is_not_true(project: Project) -> None:
    assert project.doit("notes", "--goal=x", env={"SKIP_PROOF": "true"}).returncode == 0
    assert project.calls() == ["draft"]
    assert project.read("NOTES.md") == (project.run_dir() / "draft" / "text.md").read_text()

    assert project.doit("notes", "--language=Latin").returncode == 0
    assert project.calls() == ["draft", "translate", "proof"]
    assert project.state()["pipeline"] == ["draft", "translate", "proof", "publish"]

    again = project.doit("notes")
    assert (again.returncode, len(project.calls()), "notes:translate" in again.stdout) == (0, 3, True)


def test_a_param_comes_from_the_command_line_else_from_the_environment_else_it_has_its_default(
    project: Project,
) -> None:
    project.doit("notes", "--goal=x", env={"TONE": "loud", "SKIP_PROOF": "true"})
    project.doit("notes", "--tone=soft", env={"TONE": "loud", "SKIP_PROOF": "true"})
    project.doit("notes", "--new", "--goal=y", env={"SKIP_PROOF": "true"})

    assert [prompt.splitlines()[0] for prompt in project.prompts()] == [
        "Write. Tone: loud", "Write. Tone: soft", "Write. Tone: plain"
    ]  # fmt: skip


@pytest.mark.smoke
def test_what_is_put_in_its_place_is_checked_and_a_persons_edit_of_it_is_kept(project: Project) -> None:
    project.agent('make("# No such heading\\n")' + "\n" + 'if step == "proof": usual()')
    refused = project.doit("notes", "--goal=x")
    assert (refused.returncode, (project.root / "NOTES.md").exists()) == (1, False)
    assert "NOTES.md: the heading `## Requirements` is missing" in refused.stdout
    project.agent("usual()")
    assert project.doit("notes", "--force=draft").returncode == 0
    project.write("NOTES.md", "# Mine\n")

    kept = project.doit("notes")

    assert (kept.returncode, project.read("NOTES.md")) == (0, "# Mine\n")
    assert "kept your edits to NOTES.md" in kept.stdout
