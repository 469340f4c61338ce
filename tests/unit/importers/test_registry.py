"""What is found of each format in a project, and importing by format, by file and all at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doflow.flow.parsing import loader
from doflow.importers import registry
from doflow.importers.model import AgentCommand, Found, FoundList, NothingToImport
from doflow.importers.project_tree import list_project
from doflow.util.errors import FlowError, UsageError

SPECKIT = (
    "# Tasks\n\n## Phase 1: Setup\n\n- [x] T001 Make a\n- [ ] T002 [P] Make b\n\n## Phase 2: Core\n\n- [ ] T003 Do c\n"
)
STATUS = (
    'story_location: "docs/stories"\ndevelopment_status:\n  epic-1: backlog\n  1-1-in: done\n  1-2-out: ready-for-dev\n'
)
PROJECT = {
    ".specify/memory/constitution.md": "Rules",
    "specs/001-a/tasks.md": SPECKIT,
    "specs/002-own/tasks.md": SPECKIT,
    "specs/002-own/doflow.lock": "",
    ".claude/commands/speckit.plan.md": "Plan: $ARGUMENTS",
    ".github/prompts/speckit.plan.prompt.md": "---\nagent: speckit.plan\n---\n",
    ".agents/skills/speckit-git-commit/SKILL.md": "Commit",
    "openspec/changes/add-x/tasks.md": "## 1. One\n\n- [ ] 1.1 Do\n- [x] 1.2 Done\n",
    "openspec/changes/archive/2025-old/tasks.md": "## 1. One\n\n- [ ] 1.1 Do\n",
    ".kiro/specs/login/tasks.md": "- [ ] 1. Store\n  - [x] 1.1 Make\n  - [ ]* 1.2 Test\n- [ ] 2. Show\n",
    ".kiro/steering/tech.md": "Python",
    "docs/stories/sprint-status.yaml": STATUS,
    "docs/stories/1-1-in.md": "## Tasks / Subtasks\n\n- [x] Task 1: Form\n",
    "docs/stories/1-2-out.md": "## Tasks / Subtasks\n\n- [ ] Task 1: Form\n",
    ".taskmaster/tasks/tasks.json": '{"master": {"tasks": [{"id": 1, "title": "A", "status": "pending"}]}}',
    ".beads/issues.jsonl": '{"id": "bd-1", "title": "B", "status": "open"}\n',
    "pipelines/p.dot": "digraph p { s [shape=Mdiamond]; }",
    "docs/drawing.dot": "digraph d { a -> b }",
}


def put(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_a_project_with_every_format_is_listed(tmp_path: Path) -> None:
    put(tmp_path, PROJECT)

    found = registry.find_formats(list_project(tmp_path))

    assert [one.format for one in found] == ["spec-kit", "openspec", "kiro", "bmad", "taskmaster", "beads", "dot"]
    assert found[0] == Found(
        "spec-kit",
        (".specify", "specs/001-a", "specs/002-own"),
        (FoundList("specs/001-a/tasks.md", 1, 2, 2), FoundList("specs/002-own/tasks.md", 1, 2, 2)),
        (
            AgentCommand("speckit-git-commit", ".agents/skills/speckit-git-commit/SKILL.md"),
            AgentCommand("speckit.plan", ".claude/commands/speckit.plan.md"),
        ),
        (),
        ("doit implement --tasks=specs/001-a/tasks.md", "doflow import spec-kit", 'doit speckit --goal="…"'),
    )
    assert [one.lists for one in found[1:6]] == [
        (FoundList("openspec/changes/add-x/tasks.md", 1, 1, 1),),
        (FoundList(".kiro/specs/login/tasks.md", 1, 1, 2),),
        (FoundList("docs/stories/1-1-in.md", 1, 0, 1), FoundList("docs/stories/1-2-out.md", 0, 1, 1)),
        (FoundList(".taskmaster/tasks/tasks.json", 0, 1),),
        (FoundList(".beads/issues.jsonl", 0, 1),),
    ]
    assert found[3].next[0] == "doit implement --tasks=docs/stories/1-2-out.md"
    assert found[6].sources == ("pipelines/p.dot",)


def test_nothing_is_found_in_a_project_of_doflow_alone(tmp_path: Path) -> None:
    put(
        tmp_path,
        {"specs/001-a/tasks.md": SPECKIT, "specs/001-a/doflow.lock": "", "flows/a.yaml": "flow: a", "x.dot": "graph"},
    )

    assert registry.find_formats(list_project(tmp_path)) == ()


def test_every_format_at_once_gives_valid_flows(tmp_path: Path) -> None:
    put(tmp_path, PROJECT)

    made = registry.import_format(list_project(tmp_path), "")

    assert [one.flow for one in made] == ["speckit", "openspec", "kiro", "bmad", "taskmaster", "beads"]
    put(tmp_path, {file.path: file.text for one in made for file in one.files})
    assert all(loader.load_flow(tmp_path / f"flows/{one.flow}.yaml", tmp_path) for one in made)


TAGS = {
    "master": {"tasks": [{"id": 1, "title": "A", "status": "done"}]},
    "beta": {"tasks": [{"id": 1, "title": "B", "status": "pending"}]},
}


@pytest.mark.parametrize(
    "files",
    [
        PROJECT,
        {".specify/workflows/x/workflow.yml": "workflow: {id: lean}\nsteps:\n- {id: a, command: speckit.plan}\n"},
        {".specify/workflows/x/workflow.yml": "workflow: {id: feature}\nsteps:\n- {id: a, command: speckit.plan}\n"},
        {".taskmaster/tasks/tasks.json": json.dumps(TAGS)},
        {
            "docs/stories/sprint-status.yaml": STATUS.replace("ready-for-dev", "review"),
            "docs/stories/1-2-out.md": "- [x] a",
        },
    ],
    ids=["every format", "a workflow", "a workflow with a packaged name", "a tag", "all stories built"],
)
def test_the_commands_to_type_name_flows_that_the_import_writes(tmp_path: Path, files: dict[str, str]) -> None:
    put(tmp_path, files)
    tree = list_project(tmp_path)

    for found in registry.find_formats(tree):
        words = [command.split() for command in found.next]
        named = [word[1] for word in words if word[0] == "doit" and word[1] != "implement"]
        if ["doflow", "import", found.format] in words:
            flows = [made.flow for made in registry.import_format(tree, found.format)]
            assert named == flows[:1], found.format
        elif found.format != "dot":
            assert named == [], found.format


SCHEMA = "name: x\nartifacts:\n- {id: a, generates: a.md}\n- {id: b, generates: b.md, requires: %s}\n"


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("openspec/schemas/x/schema.yaml", SCHEMA % "[{c: d}]", "4:38: unknown artifact {'c': 'd'}"),
        ("openspec/schemas/x/schema.yaml", SCHEMA % "[[a]]", "4:38: unknown artifact ['a']"),
        ("openspec/schemas/x/schema.yaml", SCHEMA % "7", "4:38: unknown artifact 7"),
        (".beads/issues.jsonl", '{"id": " ", "title": "A", "status": "open"}', "1:1: not an issue of beads: no `id`"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, path: str, text: str, problem: str) -> None:
    put(tmp_path, {path: text})

    with pytest.raises(FlowError) as refused:
        registry.import_format(list_project(tmp_path), path)

    assert str(refused.value) == f"{path}:{problem}"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("openspec/schemas/x/schema.yaml", SCHEMA % "a"),
        ("openspec/schemas/x/schema.yaml", SCHEMA % "[a]" + "apply: {tracks: [b.md]}\n"),
        (".specify/workflows/x/workflow.yml", "workflow: {id: x}\nsteps:\n- {id: a, type: gate, options: 3}\n"),
        (".taskmaster/tasks/tasks.json", '{"tasks": [{"id": 1, "title": "A", "status": "pending", "subtasks": 2.5}]}'),
    ],
)
def test_a_value_of_the_wrong_type_does_not_stop_an_import(tmp_path: Path, path: str, text: str) -> None:
    put(tmp_path, {path: text})

    (made,) = registry.import_format(list_project(tmp_path), path)

    put(tmp_path, {file.path: file.text for file in made.files})
    assert loader.load_flow(tmp_path / f"flows/{made.flow}.yaml", tmp_path)


@pytest.mark.parametrize(
    ("word", "flow"),
    [
        ("speckit", "speckit"),
        (".kiro/specs/login", "kiro"),
        ("docs/stories/sprint-status.yaml", "bmad"),
        (".taskmaster/tasks/tasks.json", "taskmaster"),
        (".beads/issues.jsonl", "beads"),
    ],
)
def test_a_format_a_folder_or_a_file_can_be_named(tmp_path: Path, word: str, flow: str) -> None:
    put(tmp_path, PROJECT)

    (made,) = registry.import_format(list_project(tmp_path), word)

    assert made.flow == flow


def test_what_cannot_be_imported_says_why(tmp_path: Path) -> None:
    put(tmp_path, {"a.yaml": "x: 1\n", "b.txt": "x", "done.jsonl": '{"id": "a", "status": "closed"}\n', "src/x.py": ""})
    tree = list_project(tmp_path)

    with pytest.raises(FlowError, match=r"a\.yaml:1:1: not a file of a known format"):
        registry.import_format(tree, "a.yaml")
    with pytest.raises(UsageError, match="is not a file that can be imported"):
        registry.import_format(tree, "b.txt")
    with pytest.raises(UsageError, match="no such format or file: 'jira'"):
        registry.import_format(tree, "jira")
    with pytest.raises(UsageError, match="nothing of kiro found"):
        registry.import_format(tree, "kiro")
    with pytest.raises(UsageError, match="not a folder of a known format"):
        registry.import_format(tree, "src")
    with pytest.raises(NothingToImport, match="no open task"):
        registry.import_format(tree, "done.jsonl")
