"""Kiro: specs in `.kiro/specs/` with requirements, design and tasks; steering files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from doflow.importers import flow_text, list_counts
from doflow.importers.model import Found, Imported, NewFile, NotMapped
from doflow.importers.project_tree import ProjectTree

NAME = "kiro"
_STEERING = "/.kiro/steering/*.md?"
_REQUIREMENTS = """\
Write the requirements for what input.md asks for: an introduction, a glossary, and numbered requirements
("### Requirement 1: NAME"). Each has a user story and numbered acceptance criteria in the EARS form: WHEN, IF, WHILE
or WHERE … THE SYSTEM SHALL ….
"""
_DESIGN = """\
Write the design that meets requirements.md: overview, architecture, components and their interfaces, data models,
error handling, testing strategy. Name the requirement behind each decision.
"""
_TASKS = """\
Write the implementation plan for design.md as a checklist: "- [ ] 1. Title" for each group of work, "- [ ] 1.1 text"
indented below it for each task, "- [ ]* 1.2 text" for one that is optional. Each task names the requirements it serves:
"_Requirements: 1.1, 2.3_". Only work that a coding agent can do.
"""


def find(tree: ProjectTree) -> Found | None:
    specs = sorted({match[0].rpartition("/")[0] for match in tree.matching(r"\.kiro/specs/(?:[^/]+/){1,2}[^/]+\.md")})
    steering = tree.paths(r"\.kiro/steering/[^/]+\.md")
    if not specs and not steering:
        return None
    counted = list_counts.count_lists(tree, tree.paths(r"\.kiro/specs/(?:[^/]+/){1,2}tasks\.md"))
    folders = (*((".kiro/steering",) if steering else ()), *specs)
    start = ("doflow import kiro", 'doit kiro --goal="…" --feature-dir=.kiro/specs/NAME')
    hooks = tree.paths(r"\.kiro/hooks/[^/]+")
    return Found(NAME, folders, counted, (), hooks, (*list_counts.to_type(counted), *start))


def convert(tree: ProjectTree, found: Found) -> Iterator[Imported]:
    """Requirements, design, tasks and code, with a gate after each of the first three."""
    written = {"check": {"not_empty": True}}
    steps: dict[str, dict[str, Any]] = {
        "requirements": {
            "prompt": _REQUIREMENTS,
            "reads": ["input.md", _STEERING],
            "makes": "requirements.md",
            **written,
        }
        | {"gate": "Are the requirements right?"},
        "design": {"prompt": _DESIGN, "reads": ["requirements.md", _STEERING], "makes": "design.md", **written}
        | {"gate": "Is the design right?"},
        "tasks": {"prompt": _TASKS, "reads": ["design.md", "requirements.md"], "makes": "tasks.md"}
        | {"check": {"tasks": True}, "repair": 1, "gate": "Is the plan right?"},
        "implement": {"kind": "implement", "phases": "tasks.md", "prompt": "implement.md"}
        | {"reads": ["requirements.md", "design.md", _STEERING]},
    }
    flow = {
        "flow": NAME,
        "about": "A Kiro spec: requirements, design, tasks, and code in phases.",
        "params": {"goal": {"about": "What to build", "required": True}},
        "steps": steps,
    }
    notes = [NotMapped(path, 1, "agent hook", "hooks of Kiro are not run") for path in found.sources]
    yield Imported(NAME, ".kiro", (NewFile("flows/kiro.yaml", flow_text.write_flow(flow, ".kiro")),), tuple(notes))
