"""A project that has files of other tools: what `doflow init` lists, what `doflow import` writes, and that it runs."""

from __future__ import annotations

import json
import os

import pytest
from tests.support.project import PROGRAMS, Project

TASKS = "# Tasks\n\n## Phase 1: Setup\n\n- [x] T001 Make a\n- [ ] T002 Make b\n"
WORKFLOW = """\
schema_version: "1.0"
workflow: {id: cycle, description: A cycle.}
inputs:
  spec: {required: true, prompt: What}
steps:
  - {id: specify, command: speckit.specify, input: {args: "{{ inputs.spec }}"}}
  - {id: look, type: gate, message: Fine?, options: [approve, later]}
  - {id: plan, command: speckit.plan, input: {args: "{{ inputs.spec }}"}}
"""
TRACKER = """\
{"tasks": [
  {"id": 2, "title": "B", "status": "pending", "dependencies": [1]},
  {"id": 1, "title": "A", "status": "pending"}
]}
"""


@pytest.fixture
def here(project: Project) -> Project:
    project.write(".specify/memory/constitution.md", "Rules\n")
    project.write(".specify/workflows/cycle/workflow.yml", WORKFLOW)
    project.write("specs/001-a/tasks.md", TASKS)
    for name in ("specify", "plan"):
        project.write(f".claude/commands/speckit.{name}.md", f"---\ndescription: x\n---\nDo {name}: $ARGUMENTS\n")
    project.commit("spec-kit")
    return project


@pytest.mark.smoke
def test_init_lists_what_a_spec_kit_project_has_and_changes_nothing_of_it(here: Project) -> None:
    before = here.tree()

    done = here.doflow("init")

    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "found spec-kit: .specify, specs/001-a\n"
        "  specs/001-a/tasks.md  1 done, 1 open\n"
        "  agent commands: speckit.plan, speckit.specify (.claude/commands)\n"
        "  to type: doit implement --tasks=specs/001-a/tasks.md\n"
        "           doflow import spec-kit\n"
    ) in done.stdout
    assert here.tree() == before


@pytest.mark.smoke
def test_an_imported_workflow_runs_to_its_gate_with_the_commands_of_the_project(here: Project) -> None:
    done = here.doflow("import")

    assert (done.returncode, done.stderr) == (0, "")
    assert "wrote flows/cycle.yaml (from .specify/workflows/cycle/workflow.yml)\n" in done.stdout
    assert ".specify/workflows/cycle/workflow.yml:7: options later: a gate waits for" in done.stdout
    assert here.git("status", "--porcelain") == "?? flows/\n"
    here.commit("Import")
    assert here.doflow("validate", "cycle", "--strict").returncode == 0
    run = here.doit("cycle", "--goal=Log in by {mail}")
    assert (run.returncode, here.calls()) == (2, ["specify"])
    assert here.prompts()[0].startswith("Do specify: Log in by {mail}\n")
    assert here.doflow("approve", "look").returncode == 0
    assert (here.doit("cycle").returncode, here.calls()) == (0, ["specify", "plan"])


def test_existing_files_are_kept_unless_forced(here: Project) -> None:
    here.write("flows/cycle.yaml", "mine")

    kept, dry = here.doflow("import", "spec-kit"), here.doflow("import", "spec-kit", "--force", "--dry-run", "--json")

    assert "kept flows/cycle.yaml (it exists; --force overwrites it)" in kept.stdout
    assert json.loads(dry.stdout)["imported"][0]["files"] == [{"path": "flows/cycle.yaml", "result": "wrote"}]
    assert here.read("flows/cycle.yaml") == "mine"
    assert here.doflow("import", "spec-kit", "--force").returncode == 0
    assert here.read("flows/cycle.yaml").startswith("# Imported from .specify/workflows/cycle/workflow.yml")


def test_a_broken_file_is_one_line_and_nothing_is_written(here: Project) -> None:
    here.write(".specify/workflows/cycle/workflow.yml", WORKFLOW + "steps: []\n")

    done = here.doflow("import")

    assert done.returncode == 1
    assert done.stderr.startswith("ERROR: .specify/workflows/cycle/workflow.yml:9:1: duplicate key 'steps'\n")
    assert not (here.root / "flows").exists()


def test_nothing_to_import_is_said(project: Project) -> None:
    done = project.doflow("import")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ERROR: nothing to import was found in this project\n")


def test_tasks_of_a_tracker_are_done_in_order_and_marked_in_its_file(project: Project) -> None:
    project.write(".taskmaster/tasks/tasks.json", TRACKER)
    assert project.doflow("import", "taskmaster").returncode == 0
    project.commit("Import")
    path = os.pathsep.join([str(PROGRAMS), project.env.get("PATH", "")])

    done = project.doit("taskmaster", "--goal=All", env={"PATH": path})

    assert done.returncode == 0, done.stdout
    assert project.calls() == ["task-1", "task-2"]
    assert project.read(".taskmaster/tasks/tasks.json") == TRACKER.replace("pending", "done")
    assert project.git("status", "--porcelain") == ""
    assert project.subjects()[-2:] == ["task-2: task-2.md", "done-task-2: mark 2 as done"]
