"""The vendors' CLIs in a view of the project: what they write is taken over when it is accepted, and nothing else changes."""

from __future__ import annotations

import os

import pytest
from tests.support import clis
from tests.support.model import Deed, Heard, Model, Say, Shell, Write
from tests.support.project import Project

from doflow.guard.workspace import overlay

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        bool(overlay.machine_obstacle(os.environ)), reason="needs overlay file systems in user namespaces"
    ),
]

FLOW = """
    flow: notes
    params: {goal: {about: What, required: true}}
    steps:
      write: {prompt: "Write the note of the day.", makes: note.md, workspace: overlay}
"""
NOTE = "specs/001-a-note/note.md"
DEEDS = "git commit -qam sneaky; git config core.pager evil; git branch mine; rm -f .env; (setsid sh -c 'sleep 1; echo x > late' &)"


@pytest.mark.parametrize("name", clis.cases("claude", "opencode", "gemini"))
def test_a_cli_works_in_a_view_and_only_its_result_arrives(name: str, project: Project) -> None:
    def scenario(heard: Heard) -> Deed:
        deeds = (Write(str(project.root / NOTE), "# Note\n"), Shell(DEEDS), Say("written"))
        return deeds[min(heard.done, 2)]

    project.flow("notes", FLOW)
    project.write(".gitignore", "__pycache__/\n.env\n")
    with Model(scenario) as model:
        clis.use(project, name, model)
        project.write(".env", "KEY=1\n")
        config = project.git("config", "--local", "--list")
        done = project.doit("notes", "--goal=a note", timeout=240)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.read(NOTE), project.read(".env")) == ("# Note\n", "KEY=1\n")
    assert project.subjects()[-1] == "write: note.md"
    assert "sneaky" not in project.git("log", "--all", "--format=%s")
    assert project.git("config", "--local", "--list") == config
    assert "mine" not in project.git("branch", "--format=%(refname:short)").split()
    assert project.git("status", "--porcelain") == ""


@clis.needed("codex")
def test_codex_works_behind_its_own_sandbox_where_the_kind_is_not_said(project: Project) -> None:
    def scenario(heard: Heard) -> Deed:
        return (Write(str(project.root / NOTE), "# Note\n"), Say("written"))[min(heard.done, 1)]

    project.flow("notes", FLOW.replace("workspace: overlay", "workspace: auto"))
    with Model(scenario) as model:
        clis.use(project, "codex", model)
        done = project.doit("notes", "--goal=a note", timeout=240)

    assert done.returncode == 0, done.stdout + done.stderr
    assert project.read(NOTE) == "# Note\n"
