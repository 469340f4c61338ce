"""Projects as users of spec-kit, OpenSpec, Kiro, BMAD and taskmaster have them, and an agent that works on their lists."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.support.project import Project

#: reviewers find nothing; a phase gets a file and its ticks, any other step a file
SCRIPT = r"""
import re
if role == "persona":
    say("VERDICT: GO")
    raise SystemExit
put(f"src/{step}_{phase or 'whole'}.py".replace("-", "_"), f"DONE = {call.line!r}\n")
if phase:
    path = root / re.search(r"It is in `([^`]+)`", prompt)[1]
    text = path.read_bytes().decode()
    for box in re.findall(r"^[ \t]*- \[ \] .*$", prompt.partition("## The phase to do now")[2], re.M):
        text = text.replace(box, box.replace("[ ]", "[x]", 1), 1)
    path.write_bytes(text.encode())
say("done")
"""


@dataclass(frozen=True)
class OtherTool:
    """A project of another tool: its files, what a run changes, and who is called.

    `finished` and `halfway` are changed files by their text, `calls` and `rest` the calls from the start and from halfway."""

    files: dict[str, str]
    finished: dict[str, str]
    halfway: dict[str, str]
    calls: tuple[str, ...]
    rest: tuple[str, ...]
    command: tuple[str, ...] = ("implement",)
    imported: str = ""
    reviewed: bool = True


def make_project(tmp_path: Path, tool: OtherTool, halfway: bool = False) -> Project:
    """The committed project, after `doflow init` and, where the tool needs it, `doflow import`."""
    project = Project(tmp_path, git=False)
    shutil.rmtree(project.root)
    project.root.mkdir()
    for path, text in {**tool.files, **(tool.halfway if halfway else {})}.items():
        target = project.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())
    project.write("tools/agent.py", _agent_program(project))
    project.git("init", "-q", "-b", "main")
    project.commit("A project")
    project.agent(SCRIPT)
    before = project.tree()
    made = [project.doflow("init", "--agent", "command")]
    made += [project.doflow("import", tool.imported)] if tool.imported else []
    assert [done.returncode for done in made] == [0] * len(made), "".join(done.stdout + done.stderr for done in made)
    assert {path: text for path, text in project.tree().items() if path in before} == before
    project.commit("Add doflow")
    return project


def _agent_program(project: Project) -> str:
    argv = ["python3", *project.agent_program()]
    return f"import os\n\nargv = {argv!r}\nos.execvp(argv[0], argv)\n"


def ticked(text: str, *boxes: str) -> str:
    """The text with these boxes ticked; without any, with all but the optional ones."""
    if not boxes:
        return text.replace("[ ] ", "[x] ")
    for box in boxes:
        assert f"[ ] {box}" in text, box
        text = text.replace(f"[ ] {box}", f"[x] {box}")
    return text


_README = {"README.md": "# Notes\n\nAn app for notes.\n", ".gitignore": "node_modules/\n__pycache__/\n"}

# spec-kit

_SPECKIT_LIST = """---
description: "Task list for signing in"
---

# Tasks: Sign in

**Input**: Design documents from `/specs/001-sign-in/`
**Prerequisites**: plan.md (required), spec.md (required for user stories)

## Format: `[ID] [P?] [Story] Description`

- **[P]**: Can run in parallel (different files, no dependencies)

## Phase 1: Setup (Shared Infrastructure)

**Purpose**: Project initialization

- [ ] T001 Create the package in src/app/__init__.py
- [ ] T002 [P] Configure the linter in ruff.toml

---

## Phase 2: Foundational (Blocking Prerequisites)

- [ ] T003 Add the table of people in src/app/people.py

**Checkpoint**: Foundation ready

## Phase 3: User Story 1 - Sign in by mail (Priority: P1) 🎯 MVP

**Goal**: People sign in by a link

### Tests for User Story 1

- [ ] T004 [P] [US1] Contract test of POST /links in tests/contract/test_links.py

### Implementation for User Story 1

- [ ] T005 [US1] Send the link in src/app/links.py (depends on T003)

**Checkpoint**: User Story 1 works on its own

## Dependencies & Execution Order

- **Setup (Phase 1)**: no dependencies

## Notes

- [P] tasks = different files, no dependencies
"""
_SPECKIT = "specs/001-sign-in/tasks.md"
SPEC_KIT = OtherTool(
    files={
        **_README,
        ".specify/memory/constitution.md": "# Constitution\n\n## I. Small steps\n\nEvery change has a test.\n",
        ".specify/templates/tasks-template.md": "# Tasks: [FEATURE]\n\n## Phase 1: Setup\n\n- [ ] T001 [P] Example\n",
        ".specify/scripts/bash/common.sh": "#!/usr/bin/env bash\nget_repo_root() { git rev-parse --show-toplevel; }\n",
        ".claude/commands/speckit.implement.md": "---\ndescription: Do the tasks\n---\nDo tasks.md. $ARGUMENTS\n",
        "specs/001-sign-in/spec.md": "# Sign in\n\n## Requirements\n\n- **FR-001**: People sign in by a link\n",
        "specs/001-sign-in/plan.md": "# Plan\n\nPython, one package.\n",
        "specs/001-sign-in/research.md": "# Research\n\nLinks expire.\n",
        "specs/001-sign-in/data-model.md": "# Data\n\nA person has an address.\n",
        "specs/001-sign-in/quickstart.md": "# Quickstart\n\n1. Ask for a link\n",
        "specs/001-sign-in/contracts/links.yaml": "openapi: 3.0.0\npaths: {/links: {post: {}}}\n",
        "specs/001-sign-in/checklists/requirements.md": "# Checklist\n\n- [x] CHK001 No open question\n- [ ] CHK002 Tests\n",
        _SPECKIT: _SPECKIT_LIST,
    },
    finished={_SPECKIT: ticked(_SPECKIT_LIST)},
    halfway={_SPECKIT: ticked(_SPECKIT_LIST, "T001", "T002")},
    calls=("code:1", "code:2", "code:3"),
    rest=("code:2", "code:3"),
)

# OpenSpec

_OPENSPEC_LIST = """## 1. Data

- [ ] 1.1 Add the table of people
- [ ] 1.2 Write its migration

## 2. Links

- [ ] 2.1 Send the link
- [ ] 2.2 Test that an old link is refused
"""
_OPENSPEC = "openspec/changes/add-sign-in/tasks.md"
OPENSPEC = OtherTool(
    files={
        **_README,
        "AGENTS.md": "<!-- OPENSPEC:START -->\nOpen `@/openspec/AGENTS.md` for changes.\n<!-- OPENSPEC:END -->\n",
        "openspec/AGENTS.md": "# OpenSpec\n\n- [ ] Read project.md first\n",
        "openspec/project.md": "# Project\n\nPython.\n",
        "openspec/specs/notes/spec.md": "# notes\n\n## Requirements\n\n### Requirement: Notes\n\nNotes SHALL be kept.\n",
        "openspec/changes/archive/2026-01-02-add-notes/tasks.md": "## 1. Notes\n\n- [x] 1.1 Keep them\n- [ ] 1.2 Later\n",
        "openspec/changes/add-sign-in/proposal.md": "## Why\n\nNotes are private.\n\n## What Changes\n\n- Sign in\n",
        "openspec/changes/add-sign-in/design.md": "## Decisions\n\nA link by mail.\n",
        "openspec/changes/add-sign-in/specs/auth/spec.md": "## ADDED Requirements\n\n### Requirement: Sign in\n",
        ".claude/commands/openspec/apply.md": "---\nname: OpenSpec: Apply\n---\nDo tasks.md.\n",
        _OPENSPEC: _OPENSPEC_LIST,
    },
    finished={_OPENSPEC: ticked(_OPENSPEC_LIST)},
    halfway={_OPENSPEC: ticked(_OPENSPEC_LIST, "1.1", "1.2")},
    calls=("code:1", "code:2"),
    rest=("code:2",),
)

# Kiro

_KIRO_LIST = """# Implementation Plan

- [ ] 1. Set up the project
  - Create the package
  - _Requirements: 1.1_

- [ ] 2. Sign in
  - [ ] 2.1 Send the link
    - _Requirements: 1.1, 1.2_
  - [ ]* 2.2 Write property tests for links
    - **Property 1: A link works once**
    - **Validates: Requirements 1.2**
  - [ ] 2.3 Refuse old links
    - _Requirements: 1.2_

- [ ] 3. Checkpoint - Ensure all tests pass
  - Ensure all tests pass, ask the user if questions arise.
"""
_KIRO = ".kiro/specs/sign-in/tasks.md"
KIRO = OtherTool(
    files={
        **_README,
        ".kiro/steering/product.md": "---\ninclusion: always\n---\n\n# Product\n\nNotes.\n",
        ".kiro/steering/tech.md": "# Tech\n\nPython.\n",
        ".kiro/hooks/tests.kiro.hook": '{"enabled": true, "name": "Tests", "when": {"type": "fileEdited"}}\n',
        ".kiro/specs/sign-in/requirements.md": "# Requirements\n\n### Requirement 1\n\n1. WHEN asked THE SYSTEM SHALL mail\n",
        ".kiro/specs/sign-in/design.md": "# Design\n\nA link by mail.\n",
        _KIRO: _KIRO_LIST,
    },
    finished={_KIRO: ticked(_KIRO_LIST)},
    halfway={_KIRO: ticked(_KIRO_LIST, "1.", "2.1")},
    calls=("code:1", "code:2", "code:3"),
    rest=("code:2", "code:3"),
)

# BMAD


def _story(number: str, title: str, status: str) -> str:
    return f"""# Story {number}: {title}

Status: {status}

<!-- Note: Validation is optional. -->

## Story

As a person,
I want to {title.lower()},
so that my notes are mine.

## Acceptance Criteria

1. It works
2. It is tested

## Tasks / Subtasks

- [ ] Task 1: Write it (AC: 1)
  - [ ] Subtask 1.1: The code of {title.lower()}
- [ ] Task 2: Test it (AC: 2)
  - [ ] Subtask 2.1: The test of {title.lower()}

## Dev Notes

- Source tree: src/

## Dev Agent Record

### Agent Model Used

### File List
"""


_SPRINT = """# generated: 2026-01-02
# project: Notes
# STATUS DEFINITIONS:
#   - ready-for-dev: Story file created

generated: 2026-01-02
project: Notes
tracking_system: file-system
story_location: "_bmad-output/implementation-artifacts"

development_status:
  epic-1: in-progress
  1-1-keep-notes: {first}
  1-2-sign-in: {second}   # the next one
  1-3-sign-out: backlog
  epic-1-retrospective: optional
"""
_BMAD = "_bmad-output/implementation-artifacts"
_FIRST, _SECOND = _story("1.1", "Keep notes", "ready-for-dev"), _story("1.2", "Sign in", "ready-for-dev")
_BMAD_FILES = {
    **_README,
    "_bmad/_config/manifest.yaml": "installation:\n  version: 6.0.0\n",
    "_bmad/bmm/config.yaml": "project_name: Notes\nimplementation_artifacts: _bmad-output/implementation-artifacts\n",
    "_bmad-output/planning-artifacts/prd.md": "# PRD\n\nNotes.\n",
    "_bmad-output/planning-artifacts/epics.md": "# Epics\n\n## Epic 1: Notes\n\n### Story 1.1: Keep notes\n",
    ".claude/commands/bmad-dev-story.md": "---\nname: dev-story\n---\nDo the story.\n",
    f"{_BMAD}/sprint-status.yaml": _SPRINT.format(first="done", second="ready-for-dev"),
    f"{_BMAD}/1-1-keep-notes.md": ticked(_story("1.1", "Keep notes", "done")),
    f"{_BMAD}/1-2-sign-in.md": _SECOND,
}
BMAD_STORY = OtherTool(
    files=_BMAD_FILES,
    finished={f"{_BMAD}/1-2-sign-in.md": ticked(_SECOND)},
    halfway={f"{_BMAD}/1-2-sign-in.md": ticked(_SECOND, "Task 1", "Subtask 1.1")},
    calls=("code:1",),
    rest=("code:1",),
)
BMAD_SPRINT = OtherTool(
    files={
        **_BMAD_FILES,
        f"{_BMAD}/sprint-status.yaml": _SPRINT.format(first="ready-for-dev", second="ready-for-dev"),
        f"{_BMAD}/1-1-keep-notes.md": _FIRST,
    },
    finished={
        f"{_BMAD}/sprint-status.yaml": _SPRINT.format(first="review", second="review"),
        f"{_BMAD}/1-1-keep-notes.md": ticked(_FIRST),
        f"{_BMAD}/1-2-sign-in.md": ticked(_SECOND),
    },
    halfway={f"{_BMAD}/1-1-keep-notes.md": ticked(_FIRST)},
    calls=("story-1-1-keep-notes:1", "story-1-2-sign-in:1"),
    rest=("story-1-2-sign-in:1",),
    command=("bmad", "--goal=Sprint 1"),
    imported="bmad",
    reviewed=False,
)

# taskmaster

_TRACKER = """{{
  "master": {{
    "tasks": [
      {{
        "id": 1,
        "title": "Set up",
        "description": "Create the package",
        "details": "In src/",
        "testStrategy": "It imports",
        "status": "{first}",
        "dependencies": [],
        "priority": "high",
        "subtasks": []
      }},
      {{
        "id": 2,
        "title": "Sign out",
        "description": "Forget the person",
        "status": "{other}",
        "dependencies": [
          3
        ],
        "priority": "low",
        "subtasks": []
      }},
      {{
        "id": 3,
        "title": "Sign in",
        "description": "A link by mail — once",
        "status": "{other}",
        "dependencies": [
          1
        ],
        "priority": "medium",
        "subtasks": [
          {{
            "id": 1,
            "title": "Send it",
            "status": "{other}",
            "dependencies": []
          }}
        ]
      }}
    ],
    "metadata": {{
      "created": "2026-01-02T00:00:00.000Z",
      "description": "Tasks for master context"
    }}
  }}
}}
"""
_TASKMASTER = ".taskmaster/tasks/tasks.json"
TASKMASTER = OtherTool(
    files={
        **_README,
        ".taskmaster/config.json": '{"models": {"main": {"provider": "anthropic"}}}\n',
        ".taskmaster/state.json": '{"currentTag": "master"}\n',
        ".taskmaster/docs/prd.txt": "Notes.\n",
        ".taskmaster/tasks/task_001.txt": "# Task ID: 1\n# Title: Set up\n# Status: pending\n",
        _TASKMASTER: _TRACKER.format(first="pending", other="pending"),
    },
    finished={_TASKMASTER: _TRACKER.format(first="done", other="done")},
    halfway={_TASKMASTER: _TRACKER.format(first="done", other="pending")},
    calls=("task-1", "task-3", "task-2"),
    rest=("task-3", "task-2"),
    command=("taskmaster", "--goal=Signing in"),
    imported="taskmaster",
    reviewed=False,
)

TOOLS = {
    "spec-kit": SPEC_KIT,
    "openspec": OPENSPEC,
    "kiro": KIRO,
    "bmad-story": BMAD_STORY,
    "bmad-sprint": BMAD_SPRINT,
    "taskmaster": TASKMASTER,
}
