"""spec-kit: `.specify/`, feature folders in `specs/`, `speckit.*` commands, workflows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from doflow.flow.parsing import loader
from doflow.importers import agent_commands, flow_text, list_counts, speckit_workflow
from doflow.importers.model import Found, Imported, NotMapped
from doflow.importers.project_tree import ProjectTree
from doflow.importers.speckit_prompts import CommandPrompts
from doflow.util.errors import FlowError

NAME = "spec-kit"
_FEATURE = r"(?:\.specify/)?specs/([^/]+)/"
_WORKFLOW = r"\.specify/workflows/(?!overlays/|runs/|steps/)(?:[^/]+/workflow|[^/]+)\.ya?ml"
#: the workflow that spec-kit has when a project has no workflow.yml
_CYCLE = """\
workflow: {id: speckit, description: "A feature from its description to code, with spec-kit's commands."}
inputs: {spec: {required: true, prompt: What to build}}
steps:
  - {id: specify, command: speckit.specify, input: {args: "{{ inputs.spec }}"}}
  - {id: review-spec, type: gate, message: Is the spec right?}
  - {id: plan, command: speckit.plan, input: {args: "{{ inputs.spec }}"}}
  - {id: review-plan, type: gate, message: Is the plan right?}
  - {id: tasks, command: speckit.tasks, input: {args: "{{ inputs.spec }}"}}
  - {id: implement, command: speckit.implement, input: {args: "{{ inputs.spec }}"}}
"""


def find(tree: ProjectTree) -> Found | None:
    commands = agent_commands.find_commands(tree, "speckit-")
    lists = tree.paths(_FEATURE + r"tasks\.md")
    specs = {match[0].rpartition("/")[0] for match in tree.matching(_FEATURE + r"(?:spec|plan|tasks)\.md")}
    own = {folder for folder in specs if f"{folder}/doflow.lock" in tree.known}
    is_set_up = ".specify" in tree.folders or bool(commands)
    if not is_set_up and not specs - own:
        return None
    folders = ((".specify",) if ".specify" in tree.folders else ()) + tuple(sorted(specs))
    counted = list_counts.count_lists(tree, lists)
    sources = tree.paths(_WORKFLOW)
    start = ("doflow import spec-kit", f'doit {_first_flow(tree, sources)} --goal="…"') if is_set_up else ()
    return Found(NAME, folders, counted, commands, sources, (*list_counts.to_type(counted), *start))


def _first_flow(tree: ProjectTree, sources: Sequence[str]) -> str:
    """The name of the first flow that an import writes."""
    try:
        return _flow_name(tree.read_yaml(sources[0]).value, sources[0]) if sources else "speckit"
    except FlowError:
        return "speckit"  # the import says what is wrong with the file


def _flow_name(workflow: Mapping[str, Any], path: str) -> str:
    return flow_text.flow_name(speckit_workflow.workflow_name(workflow, path), "speckit")


def convert(tree: ProjectTree, found: Found) -> Iterator[Imported]:
    """A flow for each workflow.yml; without one, the cycle specify, plan, tasks, implement."""
    left_out = tuple(_extras(tree))
    sources = found.sources
    if not sources:
        source = ".specify" if ".specify" in tree.folders else found.commands[0].path if found.commands else "specs"
        doc = loader.parse_document(_CYCLE, source)
        made = speckit_workflow.convert_workflow(doc, CommandPrompts(tree, found.commands), "speckit")
        notes = tuple(NotMapped(source, 1, one.what, one.why) for one in made.not_mapped)
        yield Imported(made.flow, source, made.files, (*notes, *left_out))
    for path in sources:
        yield from convert_file(tree, path, found)
    if sources and left_out:
        yield Imported("", ".specify", (), left_out)


def convert_file(tree: ProjectTree, path: str, found: Found | None = None) -> Iterator[Imported]:
    doc = tree.read_yaml(path)
    if not speckit_workflow.is_workflow(doc.value):
        raise FlowError((doc.problem((), "not a workflow of spec-kit: it needs `workflow` and a list of `steps`"),))
    commands = found.commands if found else agent_commands.find_commands(tree, "speckit-")
    yield speckit_workflow.convert_workflow(doc, CommandPrompts(tree, commands), _flow_name(doc.value, path))


def _extras(tree: ProjectTree) -> Iterator[NotMapped]:
    """Presets, extensions and overlays, which change what spec-kit itself does."""
    for match in tree.matching(r"\.specify/presets/([^/]+)/preset\.ya?ml"):
        yield NotMapped(
            match[0], 1, f"preset {match[1]}", "its templates count only where the commands already use them"
        )
    for match in tree.matching(r"\.specify/extensions/([^/]+)/extension\.ya?ml"):
        yield NotMapped(
            match[0], 1, f"extension {match[1]}", "its hooks are not run; its commands can be steps of the flow"
        )
    for path in tree.paths(r"\.specify/workflows/overlays/.+\.ya?ml"):
        yield NotMapped(path, 1, "overlay", "not applied; a flow is changed with `extends`")
