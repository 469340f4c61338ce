"""OpenSpec: changes in `openspec/changes/`, schemas with artifacts, `opsx` and `openspec` commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from doflow.flow.parsing import loader, syntax
from doflow.flow.parsing.document import Doc
from doflow.importers import agent_commands, flow_text, list_counts
from doflow.importers.model import Found, Imported, NewFile, NotMapped
from doflow.importers.project_tree import ProjectTree
from doflow.util.errors import FlowError

NAME = "openspec"
_CHANGE = r"openspec/changes/(?!archive/)([^/]+)/"
_CONTEXT = ("/openspec/config.yaml?", "/openspec/project.md?", "/AGENTS.md?")
#: what a project without a schema of its own uses, in doflow's words
_DEFAULT = """\
name: openspec
artifacts:
  - id: proposal
    generates: proposal.md
    instruction: |
      Write the proposal of this change: why it is needed, what changes, which capabilities in openspec/specs/ are new or
      modified, and what it affects. One page; how it is built belongs into the design.
  - id: specs
    generates: "specs/**/*.md"
    instruction: |
      Write a delta for each capability that the proposal names: specs/CAPABILITY/spec.md in the folder of this change. Use
      the sections ADDED, MODIFIED, REMOVED and RENAMED Requirements. A requirement has the heading
      "### Requirement: NAME", says SHALL or MUST, and has at least one "#### Scenario: NAME" with WHEN and THEN.
    requires: [proposal]
  - id: design
    generates: design.md
    instruction: |
      Write the design: context, goals and non-goals, decisions with their reasons, risks. Leave out what the proposal says.
    requires: [proposal]
  - id: tasks
    generates: tasks.md
    instruction: |
      Write the task list: numbered sections "## 1. Title" with boxes "- [ ] 1.1 text", in the order of the work. Each task
      is small and says how it is verified.
    requires: [specs, design]
apply: {requires: [tasks], tracks: tasks.md, instruction: Implement the tasks; tests included.}
"""


def find(tree: ProjectTree) -> Found | None:
    commands = agent_commands.find_commands(tree, "openspec-", "opsx-")
    if "openspec" not in tree.folders:
        return None
    changes = sorted({match[0].rpartition("/")[0] for match in tree.matching(_CHANGE + r"[^/]+")})
    counted = list_counts.count_lists(tree, tree.paths(_CHANGE + r"tasks\.md"))
    sources = tree.paths(r"openspec/schemas/[^/]+/schema\.ya?ml")
    start = ("doflow import openspec", 'doit openspec --goal="…" --feature-dir=openspec/changes/NAME')
    return Found(NAME, ("openspec", *changes), counted, commands, sources, (*list_counts.to_type(counted), *start))


def convert(tree: ProjectTree, found: Found) -> Iterator[Imported]:
    """A flow for each schema of the project, and one for OpenSpec's usual artifacts."""
    usual = convert_schema(tree, loader.parse_document(_DEFAULT, "openspec"), "openspec", "")
    yield replace(usual, not_mapped=())
    for path in found.sources:
        yield from convert_file(tree, path)


def convert_file(tree: ProjectTree, path: str) -> Iterator[Imported]:
    doc = tree.read_yaml(path)
    name = flow_text.flow_name(str(doc.value.get("name") or path.split("/")[-2:][0]), "openspec")
    yield convert_schema(tree, doc, name, path.rpartition("/")[0])


def convert_schema(tree: ProjectTree, doc: Doc, flow: str, folder: str) -> Imported:
    """The flow of a schema: a step per artifact, and the work itself. One run of it is one change."""
    table = _artifacts(doc)
    notes: list[NotMapped] = []
    files: list[NewFile] = []
    steps: dict[str, dict[str, Any]] = {}
    apply = doc.value.get("apply")
    apply = apply if isinstance(apply, dict) else {}
    tracks = apply.get("tracks")
    for name in _order(doc, table):
        index, artifact = table[name]
        text = _instruction(artifact, f"Write the artifact {name} of this change.")
        files.append(NewFile(f"flows/prompts/{flow}-{name}.md", text))
        steps[name] = {"prompt": f"/flows/prompts/{flow}-{name}.md"}
        steps[name] |= _files(doc, index, artifact, table, tracks, notes)
        steps[name]["reads"] += _template(tree, doc, folder, index, artifact, notes)
        steps[name]["after"] = _required(artifact)
    if apply or "tasks" in table:
        text = _instruction(apply, "Implement the tasks of this change.")
        files.append(NewFile(f"flows/prompts/{flow}-apply.md", text))
        steps[flow_text.step_name("implement", steps)] = _apply(doc, apply, table, f"/flows/prompts/{flow}-apply.md")
    for key in doc.value:
        if key not in ("name", "version", "description", "artifacts", "apply"):
            notes.append(NotMapped(doc.file, doc.where((key,))[0], f"key `{key}`", "not known"))
    about = " ".join(str(doc.value.get("description") or "An OpenSpec change, from its proposal to code.").split())
    whole = {"flow": flow, "about": about, "params": {"goal": {"about": "What to change", "required": True}}}
    source = doc.file if folder else "openspec"
    text = flow_text.write_flow({**whole, "steps": steps}, source)
    return Imported(flow, source, (NewFile(f"flows/{flow}.yaml", text), *files), tuple(notes))


def _artifacts(doc: Doc) -> dict[str, tuple[int, Mapping[str, Any]]]:
    """The artifacts by the name of their step; FlowError for what is not a schema."""
    listed = doc.value.get("artifacts")
    if not isinstance(listed, list) or not listed:
        raise FlowError((doc.problem(("artifacts",), "a schema of OpenSpec has a list of `artifacts`"),))
    table: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for index, one in enumerate(listed):
        name = one.get("id") if isinstance(one, dict) else None
        made = one.get("generates") if isinstance(one, dict) else None
        if not isinstance(name, str) or not isinstance(made, str):
            raise FlowError((doc.problem(("artifacts", index), "an artifact needs `id` and `generates`"),))
        try:
            syntax.name(name)
            if syntax.pattern(made).startswith("/"):
                raise syntax.InvalidSyntax(f"the path {made!r} is not in the folder of the change", "")
        except syntax.InvalidSyntax as bad:
            raise FlowError((doc.problem(("artifacts", index), bad.message, bad.hint),)) from None
        if name in table:
            raise FlowError((doc.problem(("artifacts", index, "id"), f"duplicate artifact {name!r}"),))
        table[name] = index, one
    return table


def _order(doc: Doc, table: Mapping[str, tuple[int, Mapping[str, Any]]]) -> tuple[str, ...]:
    graph: dict[str, list[str]] = {}
    for name, (index, artifact) in table.items():
        needed = _required(artifact)
        unknown = [one for one in needed if not isinstance(one, str) or one not in table]
        if unknown:
            raise FlowError((doc.problem(("artifacts", index, "requires"), f"unknown artifact {unknown[0]!r}"),))
        graph[name] = needed
    try:
        return tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        index = table[error.args[1][0]][0]
        message = f"dependency cycle: {' -> '.join(reversed(error.args[1]))}"
        raise FlowError((doc.problem(("artifacts", index, "requires"), message),)) from None


def _required(artifact: Mapping[str, Any]) -> list[str]:
    """The artifacts that an artifact needs: `requires` is a list, or the name of one."""
    needed = artifact.get("requires") or []
    return list(needed) if isinstance(needed, list) else [needed]


def _files(
    doc: Doc,
    index: int,
    artifact: Mapping[str, Any],
    table: Mapping[str, tuple[int, Mapping[str, Any]]],
    tracks: object,
    notes: list[NotMapped],
) -> dict[str, Any]:
    """What the step of an artifact reads, makes and may write."""
    reads = ["input.md", *(_read(table[one][1]) for one in _required(artifact)), *_CONTEXT]
    made = str(artifact["generates"])
    if not re.search(r"[*?\[]", made):
        check = {"check": {"tasks": True}, "repair": 1} if made == tracks else {"check": {"not_empty": True}}
        return {"reads": reads, "makes": made, **check}
    line = doc.where(("artifacts", index, "generates"))[0]
    notes.append(
        NotMapped(doc.file, line, f"generates {made}", "the step may write these files, it is not checked that it did")
    )
    return {"reads": reads, "writes": [f"{{run_dir}}/{made}"]}


def _read(artifact: Mapping[str, Any]) -> str:
    made = str(artifact["generates"])
    return f"{made}?" if re.search(r"[*?\[]", made) else made


def _template(
    tree: ProjectTree, doc: Doc, folder: str, index: int, artifact: Mapping[str, Any], notes: list[NotMapped]
) -> list[str]:
    """The template as an input, where it is."""
    name = artifact.get("template")
    if not isinstance(name, str) or not folder:
        return []
    for path in (f"{folder}/templates/{name}", f"{folder}/{name}"):
        if path in tree.known:
            return [f"/{path}"]
    line = doc.where(("artifacts", index, "template"))[0]
    notes.append(NotMapped(doc.file, line, f"template {name}", f"not found in {folder}/templates"))
    return []


def _apply(
    doc: Doc, apply: Mapping[str, Any], table: Mapping[str, tuple[int, Mapping[str, Any]]], prompt: str
) -> dict[str, Any]:
    reads = [*(f"{_read(artifact).removesuffix('?')}?" for _, artifact in table.values()), *_CONTEXT]
    made = {str(artifact["generates"]) for _, artifact in table.values()}
    tracks = apply.get("tracks", "tasks.md")
    if isinstance(tracks, str) and tracks in made:
        others = [one for one in reads if one != f"{tracks}?"]
        return {"kind": "implement", "phases": tracks, "prompt": prompt, "reads": others, "after": list(table)}
    return {"prompt": prompt, "reads": reads, "writes": ["**"], "after": list(table)}


def _instruction(entry: Mapping[str, Any], fallback: str) -> str:
    parts = [str(entry[key]).strip() for key in ("description", "instruction") if isinstance(entry.get(key), str)]
    return "\n\n".join(parts or [fallback]) + "\n"
