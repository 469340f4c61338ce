"""Loads flow files: one file, or the catalogue of all flows of a project.

flow YAML -> Doc (strict YAML) -> RawFlow (`extends` applied) -> Flow (built and checked)
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from doflow.flow.model import Flow, Origin, Step
from doflow.flow.parsing import builder, document, inheritance, schema
from doflow.flow.parsing.builder import FlowContext
from doflow.flow.parsing.document import Doc, nearest
from doflow.flow.parsing.inheritance import RawFlow
from doflow.flow.parsing.step_keys import Prompts
from doflow.util.errors import FlowError, Problem


class Catalogue(NamedTuple):
    """All flows of a project, the errors of broken ones, and every file and folder they depend on."""

    flows: dict[str, Flow]
    broken: dict[str, FlowError]
    sources: tuple[str, ...]


def load_catalogue(root: Path, variant: str = "", only: Collection[str] = ()) -> Catalogue:
    """Every flow of the project and of doflow itself; a broken file does not hide the others.

    With `only`, just these flows and the flows they run.
    """
    files = _flow_files_of(root, variant)
    good: dict[str, Flow] = {}
    broken: dict[str, FlowError] = {}
    wanted = list(only) or list(files.by_name)
    for stem in wanted:
        path = files.by_name[stem]
        try:
            good[stem] = files.flow(path)
            inner = {step.flow for step in good[stem].steps if step.flow}
            wanted += sorted(inner.difference(wanted)) if only else ()
        except FlowError as error:
            broken[stem] = error
            named = files.named(path)
            if named not in files.by_name:
                broken[named] = error
    for find in (_flow_cycles, _broken_sub_flows):
        for stem, found in find(good):
            broken[stem] = found
            del good[stem]
    return Catalogue(good, broken, files.sources())


def _flow_cycles(good: Mapping[str, Flow]) -> list[tuple[str, FlowError]]:
    """The flows that run themselves, directly or through others."""
    found = []
    for stem, flow in good.items():
        for step in flow.steps:
            way = _way_back(stem, step.flow, good)
            if way:
                message = f"flow cycle: {' -> '.join((stem, *way))}"
                found.append((stem, FlowError((step.origin.problem(message, "remove one of the steps"),))))
                break
    return found


def _way_back(home: str, start: str, good: Mapping[str, Flow]) -> tuple[str, ...]:
    waiting: list[tuple[str, ...]] = [(start,)] if start else []
    seen = {start}
    while waiting:
        way = waiting.pop()
        if way[-1] == home:
            return way
        for step in good[way[-1]].steps if way[-1] in good else ():
            if step.flow and step.flow not in seen:
                seen.add(step.flow)
                waiting.append((*way, step.flow))
    return ()


def _broken_sub_flows(good: Mapping[str, Flow]) -> list[tuple[str, FlowError]]:
    """The flows that run a broken flow, or pass it params that it does not have."""
    found, left = [], dict(good)
    while bad := [(stem, problems) for stem, flow in left.items() if (problems := tuple(_param_problems(flow, left)))]:
        for stem, problems in bad:
            found.append((stem, FlowError(problems)))
            del left[stem]
    return found


def _param_problems(flow: Flow, good: Mapping[str, Flow]) -> Iterator[Problem]:
    for step in flow.steps:
        if not step.flow:
            continue
        inner = good.get(step.flow)
        if inner is None:
            message = f"step {step.id!r} runs flow {step.flow!r}, which has errors"
            yield step.origin.problem(message, "doflow validate")
            continue
        known = ["goal", *(param.name for param in inner.params)]
        given = {name for name, _ in step.params}
        for name in sorted(given.difference(known)):
            hint = nearest(name, known) or f"params: {', '.join(known)}"
            yield step.origin.problem(f"flow {step.flow!r} has no param {name!r}", hint)
        given |= {"goal", *(param.name for param in flow.params)}
        for param in inner.params:
            if param.required and not param.default and param.name not in given:
                hint = f"write `params: {{{param.name}: …}}` on step {step.id!r}"
                yield step.origin.problem(f"flow {step.flow!r} requires the param {param.name!r}", hint)


def flow_names(root: Path) -> tuple[str, ...]:
    """The names of all flows: the stems of their files."""
    return tuple(_flow_files_of(root, "").by_name)


def load_flow(path: Path, root: Path, variant: str = "") -> Flow:
    """One flow, from a file anywhere; raises FlowError with every problem in it."""
    return _flow_files_of(root, variant).flow(Path(os.path.abspath(path)))


def key_origin(root: Path, step: Step, word: str) -> Origin:
    """The position of a key of a step: in the step itself, else in the defaults, else the step's own position."""
    at = step.origin
    doc = load_document(root / at.file, at.file)
    tables: list[tuple[document.Path, Any]] = [((key,), doc.value.get(key, {})) for key in ("steps", "replace")]
    for key in ("insert_before", "insert_after"):
        tables += [((key, anchor), steps) for anchor, steps in doc.value.get(key, {}).items()]
    for path, table in tables:
        if word in table.get(step.id, ()):
            return Origin(at.file, *doc.where((*path, step.id, word)))
    return Origin(at.file, *doc.where(("defaults", word))) if word in doc.value.get("defaults", ()) else at


def packaged_flows() -> Path:
    """The folder of the flows shipped with doflow."""
    return schema.data_folder("flows")


def load_document(path: Path, name: str = "", any_key: bool = False) -> Doc:
    """A strict YAML file with a mapping at the top, and the position of everything in it."""
    return parse_document(document.read_text(str(path), name), name or str(path), any_key)


def parse_document(text: str, name: str, any_key: bool = False) -> Doc:
    """The same for a text."""
    root, value = document.parse_nodes(text, name, any_key)
    if root is None:
        raise FlowError((Problem(name, 1, 1, "the file is empty", "write `key: value` lines in it"),))
    if not isinstance(value, dict):
        message = "the top of the file must be a mapping"
        raise FlowError((Problem(name, *document.position(root), message, "write `key: value` lines"),))
    return Doc(name, value, root)


def parse_yaml(text: str, name: str) -> object:
    """The plain values of a strict YAML text."""
    return document.parse_nodes(text, name)[1]


@dataclass(frozen=True, slots=True)
class _FlowFiles:
    """The flow files of a project by name, and their documents."""

    root: Path
    packaged: Path
    by_name: dict[str, Path]
    prompts: Prompts
    docs: dict[Path, Doc] = field(default_factory=dict)

    def flow(self, path: Path) -> Flow:
        own = path.parent == self.packaged
        if path.suffix != ".yaml":
            hint = f"rename it to {path.stem}.yaml"
            raise FlowError((Problem(self.shown(path), 1, 1, "flow files must end in .yaml", hint),))
        names = frozenset(self.by_name)
        around = FlowContext(str(path), path.stem, own, self.prompts, names, self.root)
        return builder.build_flow(self.draft(path, ()), around)

    def draft(self, path: Path, below: tuple[Path, ...]) -> RawFlow:
        doc = self.doc(path)
        return inheritance.apply_extends(doc, lambda name: self.base(name, doc, (*below, path)))

    def base(self, name: str, doc: Doc, below: tuple[Path, ...]) -> RawFlow:
        """The raw flow called `name`; a flow that extends its own name extends the packaged one."""
        path = self.by_name.get(name)
        if path in below and (self.packaged / f"{name}.yaml").is_file():
            path = self.packaged / f"{name}.yaml"
        if path is None:
            hint = nearest(name, sorted(self.by_name)) or f"flows: {', '.join(sorted(self.by_name))}"
            raise FlowError((doc.problem(("extends",), f"unknown flow {name!r}", hint),))
        if path in below:
            cycle = " -> ".join(entry.stem for entry in (*below, path))
            hint = "remove `extends` from one of them"
            raise FlowError((doc.problem(("extends",), f"`extends` cycle: {cycle}", hint),))
        try:
            return self.draft(path, below)
        except FlowError as error:
            first = doc.problem(("extends",), f"flow {name!r} cannot be extended", "fix its errors first; see below")
            raise FlowError((first, *error.problems)) from error

    def doc(self, path: Path) -> Doc:
        if path not in self.docs:
            doc = load_document(self.allowed(path), self.shown(path))
            found = schema.faults(doc.value, "flow")
            if found:
                raise FlowError(tuple(doc.problem(f.path, f.message, f.hint, f.key) for f in found))
            self.docs[path] = doc
        return self.docs[path]

    def allowed(self, path: Path) -> Path:
        inside = (os.path.join(os.path.realpath(folder), "") for folder in (self.root, self.packaged))
        if path.is_symlink() and not os.path.realpath(path).startswith(tuple(inside)):
            message = "the file is a symlink to outside the project"
            raise FlowError((Problem(self.shown(path), 1, 1, message, "copy the flow into flows/"),))
        return path

    def shown(self, path: Path) -> str:
        return os.path.relpath(path, self.root) if path.is_relative_to(self.root) else str(path)

    def named(self, path: Path) -> str:
        """The flow name in a broken file, as far as it can be known."""
        name = self.docs[path].value["flow"] if path in self.docs else path.stem
        return name if isinstance(name, str) else path.stem

    def sources(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for folder in (self.root / "flows", self.packaged):
            found.update({str(folder): None, str(folder / "prompts"): None})
            found.update({str(path): None for path in _flow_files(folder)})
        return tuple(os.path.abspath(path) for path in {**found, **self.prompts.used})


def _flow_files_of(root: Path, variant: str) -> _FlowFiles:
    root = Path(os.path.abspath(root))
    shipped = packaged_flows()
    files: dict[str, Path] = {}
    for folder in (shipped, root / "flows"):
        files.update({path.stem: path for path in _flow_files(folder)})
    return _FlowFiles(root, shipped, files, Prompts(root, shipped, variant))


def _flow_files(folder: Path) -> Iterator[Path]:
    """`.yml` comes first so that a `.yaml` of the same name wins."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else ()
    for suffix in (".yml", ".yaml"):
        yield from (folder / name for name in names if name.endswith(suffix) and not name.startswith("."))
