"""Files into flows: strict documents, and the catalogue of all flows of a project.

flow YAML -> Doc (strict) -> Draft (patches applied) -> Flow (built, wired)
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from doflow.flow.model import Flow, Origin, Step
from doflow.flow.parsing import (
    builder as flows,
    document as strict,
    graph_checks as wiring,
    inheritance as drafts,
    plainly,
    schema,
)
from doflow.flow.parsing.builder import Surroundings
from doflow.flow.parsing.document import Doc, nearest
from doflow.flow.parsing.inheritance import Draft
from doflow.flow.parsing.loader_calm import calm
from doflow.flow.parsing.prompts import Prompts
from doflow.util.errors import FlowError, Problem
from doflow.util.records import dataclass, field


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All flows of a project, those that cannot be used, and every file and folder this depends on."""

    flows: dict[str, Flow]
    broken: dict[str, FlowError]
    sources: tuple[str, ...]


def catalogue(root: Path, variant: str = "", only: Collection[str] = ()) -> Catalogue:
    """Every flow of the project and of doflow itself; one bad file never hides the others.

    With `only`, just these flows and the ones they run inside of themselves.
    """
    with calm():
        return _catalogue(_shelf(root, variant), list(only))


def _catalogue(shelf: _Shelf, only: list[str]) -> Catalogue:
    good: dict[str, Flow] = {}
    broken: dict[str, FlowError] = {}
    wanted = only or list(shelf.files)
    for stem in wanted:
        path = shelf.files[stem]
        try:
            good[stem] = shelf.flow(path)
            inner = {step.flow for step in good[stem].steps if step.flow}
            wanted += sorted(inner.difference(wanted)) if only else ()
        except FlowError as error:
            broken[stem] = error
            named = shelf.named(path)
            if named not in shelf.files:
                broken[named] = error
    for find in (wiring.flow_circles, wiring.sub_flows):
        for stem, found in find(good):
            broken[stem] = found
            del good[stem]
    return Catalogue(good, broken, shelf.sources())


def names(root: Path) -> tuple[str, ...]:
    """The names of all flows, as their files say."""
    return tuple(_shelf(root, "").files)


def flow_file(path: Path, root: Path, variant: str = "") -> Flow:
    """One flow, from a file anywhere; raises FlowError with everything that is wrong in it."""
    with calm():
        return _shelf(root, variant).flow(Path(os.path.abspath(path)))


def place(root: Path, step: Step, word: str) -> Origin:
    """Where the file of a step says this word of it: in the step, else in the defaults; else the step's own place."""
    at = step.origin
    doc = document(root / at.file, at.file)
    tables: list[tuple[strict.Path, Any]] = [((key,), doc.value.get(key, {})) for key in ("steps", "replace")]
    for key in ("insert_before", "insert_after"):
        tables += [((key, anchor), steps) for anchor, steps in doc.value.get(key, {}).items()]
    for path, table in tables:
        if word in table.get(step.id, ()):
            return Origin(at.file, *doc.where((*path, step.id, word)))
    return Origin(at.file, *doc.where(("defaults", word))) if word in doc.value.get("defaults", ()) else at


def packaged() -> Path:
    """The folder of the flows that come with doflow."""
    return schema.data("flows")


def document(path: Path, name: str = "") -> Doc:
    """A strict YAML file whose top is a mapping, with the place of everything in it."""
    name = name or str(path)
    return tree(strict.read(str(path), name), name)


def tree(text: str, name: str) -> Doc:
    """The same for a text that is already read."""
    strict.refuse_odd_text(text, name)
    if known := plainly.read(text):
        value, lines = known
        return Doc(name, value, cache(lambda: _nodes(text, name)), lines)
    from doflow.flow.parsing import yaml_reader as yamltree

    root = yamltree.compose(text, name)
    if root is None:
        raise FlowError((Problem(name, 1, 1, "the file is empty", "write `key: value` lines in it"),))
    value = yamltree.plain(root, name)
    if not isinstance(value, dict):
        mark = root.start_mark
        message = "the top of the file must be a mapping"
        raise FlowError((Problem(name, mark.line + 1, mark.column + 1, message, "write `key: value` lines"),))
    return Doc(name, value, lambda: root, {})


def parse(text: str, name: str) -> object:
    """The plain values of a strict YAML text."""
    strict.refuse_odd_text(text, name)
    if known := plainly.read(text):
        return known[0]
    from doflow.flow.parsing import yaml_reader as yamltree

    root = yamltree.compose(text, name)
    return None if root is None else yamltree.plain(root, name)


def _nodes(text: str, name: str) -> Any:
    from doflow.flow.parsing import yaml_reader as yamltree

    return yamltree.compose(text, name)


@dataclass(frozen=True, slots=True)
class _Shelf:
    """The flow files of a project by name, and what was read of them."""

    root: Path
    packaged: Path
    files: dict[str, Path]
    prompts: Prompts
    docs: dict[Path, Doc] = field(default_factory=dict)

    def flow(self, path: Path) -> Flow:
        own = path.parent == self.packaged
        if path.suffix != ".yaml":
            hint = f"rename it to {path.stem}.yaml"
            raise FlowError((Problem(self.shown(path), 1, 1, "a flow's file ends in .yaml", hint),))
        names = frozenset(self.files)
        around = Surroundings(str(path), path.stem, own, self.prompts, names, self.root)
        return flows.build(self.draft(path, ()), around)

    def draft(self, path: Path, below: tuple[Path, ...]) -> Draft:
        doc = self.doc(path)
        return drafts.draft(doc, lambda name: self.base(name, doc, (*below, path)))

    def base(self, name: str, doc: Doc, below: tuple[Path, ...]) -> Draft:
        """The draft of the flow called `name`; a flow that extends its own name means the packaged one."""
        path = self.files.get(name)
        if path in below and (self.packaged / f"{name}.yaml").is_file():
            path = self.packaged / f"{name}.yaml"
        if path is None:
            hint = nearest(name, sorted(self.files)) or f"flows: {', '.join(sorted(self.files))}"
            raise FlowError((doc.problem(("extends",), f"there is no flow {name!r}", hint),))
        if path in below:
            circle = " -> ".join(entry.stem for entry in (*below, path))
            hint = "let one of them stand on its own"
            raise FlowError((doc.problem(("extends",), f"the flows extend each other: {circle}", hint),))
        try:
            return self.draft(path, below)
        except FlowError as error:
            first = doc.problem(("extends",), f"the flow {name!r} cannot be extended", "mend it first; see below")
            raise FlowError((first, *error.problems)) from error

    def doc(self, path: Path) -> Doc:
        if path not in self.docs:
            doc = document(self.allowed(path), self.shown(path))
            found = schema.faults(doc.value, "flow")
            if found:
                raise FlowError(tuple(doc.problem(f.path, f.message, f.hint, f.key) for f in found))
            self.docs[path] = doc
        return self.docs[path]

    def allowed(self, path: Path) -> Path:
        inside = (os.path.join(os.path.realpath(folder), "") for folder in (self.root, self.packaged))
        if path.is_symlink() and not os.path.realpath(path).startswith(tuple(inside)):
            message = "the file is a link that leads out of the project"
            raise FlowError((Problem(self.shown(path), 1, 1, message, "copy the flow into flows/"),))
        return path

    def shown(self, path: Path) -> str:
        return os.path.relpath(path, self.root) if path.is_relative_to(self.root) else str(path)

    def named(self, path: Path) -> str:
        """The name that a file which cannot be used gives its flow, as far as it can be known."""
        name = self.docs[path].value["flow"] if path in self.docs else path.stem
        return name if isinstance(name, str) else path.stem

    def sources(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for folder in (self.root / "flows", self.packaged):
            found.update({str(folder): None, str(folder / "prompts"): None})
            found.update({str(path): None for path in _flow_files(folder)})
        return tuple(os.path.abspath(path) for path in {**found, **self.prompts.used})


def _shelf(root: Path, variant: str) -> _Shelf:
    root = Path(os.path.abspath(root))
    shipped = packaged()
    files: dict[str, Path] = {}
    for folder in (shipped, root / "flows"):
        files.update({path.stem: path for path in _flow_files(folder)})
    return _Shelf(root, shipped, files, Prompts(root, shipped, variant))


def _flow_files(folder: Path) -> Iterator[Path]:
    """`.yml` comes first so that a `.yaml` of the same name wins."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else ()
    for suffix in (".yml", ".yaml"):
        yield from (folder / name for name in names if name.endswith(suffix) and not name.startswith("."))
