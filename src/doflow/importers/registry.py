"""The formats that are known: find all of them in a project, import one of them or one file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from doflow.git import head_reader, history
from doflow.git.repository import Repository
from doflow.importers import beads, bmad, dot_pipelines, kiro, openspec, speckit, speckit_workflow, taskmaster
from doflow.importers.model import Found, Imported, NothingToImport
from doflow.importers.project_tree import ProjectTree, list_project
from doflow.util.errors import FlowError, Problem, UsageError

FORMATS: Mapping[str, ModuleType] = {
    module.NAME: module for module in (speckit, openspec, kiro, bmad, taskmaster, beads, dot_pipelines)
}
_OTHER_NAMES = {"speckit": "spec-kit", "task-master": "taskmaster", "attractor": "dot"}


def scan(root: Path) -> ProjectTree:
    """The files of a project without what git ignores. Folders of tools (`.claude`) count even if they are ignored."""
    ignored = history.ignored_files(Repository(head_reader.find_head(str(root))))
    return list_project(root, {name.rstrip("/") for name in ignored if not name.startswith((".", "_bmad"))})


def find_formats(tree: ProjectTree) -> tuple[Found, ...]:
    """What a project has of each format."""
    found = (module.find(tree) for module in FORMATS.values())
    return tuple(one for one in found if one is not None)


def import_format(tree: ProjectTree, word: str) -> tuple[Imported, ...]:
    """The flows for a format or a file; for '' of every format that the project has."""
    if not word:
        return tuple(made for found in find_formats(tree) for made in _converted(tree, found, optional=True))
    name = _OTHER_NAMES.get(word, word)
    if name in FORMATS:
        found = FORMATS[name].find(tree)
        if found is None:
            raise UsageError(f"nothing of {name} found in this project", "doflow init lists what was found")
        return _converted(tree, found, optional=False)
    if word in tree.folders:
        return _from_folder(tree, word)
    if not os.path.exists(tree.root / word):
        raise UsageError(f"no such format or file: {word!r}", f"formats: {', '.join(FORMATS)}")
    return tuple(_module_of(tree, word).convert_file(tree, word))


def _converted(tree: ProjectTree, found: Found, optional: bool) -> tuple[Imported, ...]:
    try:
        return tuple(FORMATS[found.format].convert(tree, found))
    except NothingToImport:
        if optional:
            return ()
        raise


def _from_folder(tree: ProjectTree, folder: str) -> tuple[Imported, ...]:
    for found in find_formats(tree):
        if folder.rstrip("/") in (found.folders or ()):
            return _converted(tree, found, optional=False)
    raise UsageError(f"{folder} is not a folder of a known format", f"formats: {', '.join(FORMATS)}")


def _module_of(tree: ProjectTree, path: str) -> ModuleType:
    """The format of a file, by its name, then by what is in it."""
    name = os.path.basename(path)
    if name.endswith(".jsonl"):
        return beads
    if name.endswith(".json"):
        return taskmaster
    if name.endswith((".yaml", ".yml")):
        value = tree.read_yaml(path).value
        if speckit_workflow.is_workflow(value):
            return speckit
        if "artifacts" in value:
            return openspec
        if "development_status" in value:
            return bmad
        message = "not a file of a known format: no spec-kit workflow, OpenSpec schema or BMAD sprint status"
        raise FlowError((Problem(path, 1, 1, message),))
    raise UsageError(
        f"{path} is not a file that can be imported",
        "a workflow.yml, schema.yaml, sprint-status.yaml, tasks.json or issues.jsonl",
    )
