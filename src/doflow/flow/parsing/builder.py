"""A draft becomes a `Flow`: its name, params and defaults read, every step built and wired."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doflow.flow.model import Flow, Origin, Param, Step
from doflow.flow.parsing import (
    graph_checks as wiring,
    reserved_names,
    static_checks as foresight,
    step_builder as steps,
    syntax as notation,
)
from doflow.flow.parsing.document import Doc, nearest
from doflow.flow.parsing.inheritance import Draft
from doflow.flow.parsing.prompts import Prompts
from doflow.flow.parsing.step_builder import Bench
from doflow.flow.parsing.syntax import Bad
from doflow.util.errors import FlowError, Problem
from doflow.util.records import dataclass

_FLAGS = frozenset(
    "flow feature-dir project-dir completed next agent budget record auto-approve force reopen new run json".split()  # noqa: SIM905
)
_MERGED = ("timeout", "retry", "budget")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a flow may refer to: its file, the prompts, the names of all flows, the project."""

    file: str
    stem: str
    packaged: bool
    prompts: Prompts
    names: frozenset[str]
    root: Path


def build(draft: Draft, around: Surroundings) -> Flow:
    """The finished flow, or every problem of it at once."""
    params = tuple(_param(name, value) for name, value, _ in draft.params)
    names = frozenset(param.name for param in params) | notation.RUN_WORDS
    defaults = _defaults(draft)
    bench = Bench(around.prompts, defaults, steps.filled(defaults), names)
    origins = _origins(draft)
    built = tuple(steps.build(entry, origins[entry.id], bench) for entry in draft.entries)
    pipeline = tuple(step.id for step in built) if draft.pipeline is None else draft.pipeline
    name = draft.doc.value["flow"]
    found = [*_name(draft.doc, name, around), *_words(draft), *bench.found]
    found += wiring.problems(draft, built, pipeline)
    found += foresight.problems(draft, built, tuple(pipeline))
    found += [*_elsewhere(draft, built, around), *_doflows(draft, built, names)]
    if found:
        raise FlowError(tuple(found))
    protect = tuple(glob for glob, _ in draft.protect)
    varies = any(step.only for step in built) or any(param.env for param in params)
    return Flow(
        name, draft.about, params, built, pipeline, protect, around.file, around.packaged,
        layout=draft.layout, varies=varies,
    )  # fmt: skip


def _param(name: str, value: dict[str, Any]) -> Param:
    default = value.get("default", "")
    text = str(default).lower() if isinstance(default, bool) else str(default)
    more = (value.get("env", ""), value.get("file", ""))
    return Param(name, value.get("about", ""), value.get("required", False), text, *more)


def _defaults(draft: Draft) -> dict[str, Any]:
    """The defaults of the file over those of the flow it extends, limits merged word by word."""
    out: dict[str, Any] = {}
    for said, _ in draft.defaults:
        for word, value in said.items():
            mixed = word in _MERGED and isinstance(value, dict) and isinstance(out.get(word), dict)
            out[word] = {**out[word], **value} if mixed else value
    return out


def _origins(draft: Draft) -> dict[str, Origin]:
    tables: dict[tuple[str, object], dict[str, Origin]] = {}
    for entry in draft.entries:
        place = (entry.doc.file, entry.path[:-1])
        if place not in tables:
            tables[place] = entry.doc.origins(entry.path[:-1])
    if len(tables) == 1:
        return next(iter(tables.values()))
    return {entry.id: tables[entry.doc.file, entry.path[:-1]][entry.id] for entry in draft.entries}


def _name(doc: Doc, name: str, around: Surroundings) -> Iterator[Problem]:
    try:
        notation.name(name)
    except Bad as bad:
        yield doc.problem(("flow",), f"the flow's name: {bad.message}", bad.hint)
        return
    if name in reserved_names.COMMANDS:
        yield doc.problem(("flow",), f"the flow's name {name!r} is a command of doit", "choose another name")
    if name != around.stem:
        hint = f"write `flow: {around.stem}`, or rename the file to {name}.yaml"
        yield doc.problem(("flow",), f"the flow is named {name!r}, its file {around.stem!r}", hint)


def _words(draft: Draft) -> Iterator[Problem]:
    """Names of steps and params, and globs of the flow itself."""
    for entry in draft.entries:
        try:
            notation.name(entry.id)
        except Bad as bad:
            yield entry.problem((), f"the step's name: {bad.message}", bad.hint, key=True)
    for name, _, doc in draft.params:
        if name in _FLAGS:
            yield doc.problem(("params", name), f"the param {name!r} is an option of doflow", "rename it", key=True)
        elif notation.params(f"{{{name}}}") != (name,):
            hint = "use a-z, 0-9, - and _, beginning with a letter"
            yield doc.problem(("params", name), f"the param {name!r} is not a name", hint, key=True)
    for glob, doc in draft.protect:
        try:
            notation.pattern(glob)
        except Bad as bad:
            yield doc.problem(doc.item(("protect",), glob), bad.message, bad.hint)


def _doflows(draft: Draft, built: tuple[Step, ...], params: frozenset[str]) -> Iterator[Problem]:
    """Steps that doflow does itself: one file in, one file out; a session only where there are sessions."""
    for entry, step in zip(draft.entries, built, strict=True):
        if step.kind not in ("install", "session"):
            continue
        if len(step.reads) != 1 or any(mark in step.reads[0].path for mark in "*?["):
            yield entry.problem(("reads",), f"a step of kind {step.kind} reads one file", "name it: `reads: draft.md`")
        if step.kind == "install" and len(step.makes) != 1:
            hint = "name it: `makes: plan.md`"
            yield entry.problem(("makes",), "a step of kind install makes one file", hint)
        if step.kind == "session" and (draft.layout != "plan" or "prd" not in params):
            hint = "add `layout: plan`, and `prd: {default: PRD.md}` to the params"
            yield entry.problem(("kind",), "only a flow in sessions, with a param `prd`, has bug-fix sessions", hint)


def _elsewhere(draft: Draft, built: tuple[Step, ...], around: Surroundings) -> Iterator[Problem]:
    """What a step refers to outside its flow: other flows, schema files."""
    for entry, step in zip(draft.entries, built, strict=True):
        if step.flow == around.stem:
            yield entry.problem(("flow",), f"the flow {step.flow!r} runs itself", "name another flow")
        elif step.flow and step.flow not in around.names:
            hint = nearest(step.flow, sorted(around.names)) or f"flows: {', '.join(sorted(around.names))}"
            yield entry.problem(("flow",), f"there is no flow {step.flow!r}", hint)
        if step.check.schema:
            path = around.root / step.check.schema
            around.prompts.used.update({str(path): None})
            if not path.is_file():
                hint = "write the path from the project's root, as in schemas/report.schema.json"
                yield entry.problem(("check", "schema"), f"no schema file {step.check.schema!r}", hint)
