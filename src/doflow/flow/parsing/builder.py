"""Builds a `Flow` from a parsed file: name, params, defaults and steps, then every check of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from doflow.flow.model import Flow, Origin, Param, Step
from doflow.flow.parsing import graph_checks, step_keys, syntax
from doflow.flow.parsing.document import Doc, nearest
from doflow.flow.parsing.inheritance import RawFlow, RawStep, as_list
from doflow.flow.parsing.step_keys import Prompts, StepContext
from doflow.flow.parsing.syntax import InvalidSyntax
from doflow.util import globs
from doflow.util.errors import FlowError, Problem

_FLAGS = frozenset(
    "flow feature-dir project-dir completed next agent budget record auto-approve force reopen new run json".split()  # noqa: SIM905
)
PERSONAS = ("pm", "critical", "risk", "value")

_OF_STEPS = ("agent", "review", "implement", "shell", "gate")
#: keys that belong on the steps of the inner flow, not on the step that runs it
_INNER = ("reads", "needs", "writes", *syntax.LIMITS)
#: the kinds of steps that a key is for; a key that is not listed is for all
_KINDS = {
    "run": ("shell",),
    "phases": ("implement",),
    "commit": ("implement",),
    **dict.fromkeys(("personas", "rounds", "fixer", "mode"), ("review",)),
    **dict.fromkeys(("flow", "params"), ("flow",)),
    "clarify": ("agent",),
    "from": ("agent", "review"),
    **dict.fromkeys(("prompt", "arguments", "repair"), ("agent", "implement", "review", "shell")),
    **dict.fromkeys(("makes", "check"), ("agent", "implement", "review", "shell", "install")),
    "routes": ("agent", "review", "shell"),
    "foreach": ("agent", "shell"),
    **dict.fromkeys(_INNER, _OF_STEPS),
    "reads": (*_OF_STEPS, "install", "session"),
}


class FlowContext(NamedTuple):
    """What a flow may refer to: its file, the prompts, the names of all flows, the project root."""

    file: str
    stem: str
    packaged: bool
    prompts: Prompts
    names: frozenset[str]
    root: Path


def build_flow(draft: RawFlow, around: FlowContext) -> Flow:
    """The finished flow; raises FlowError with every problem in it."""
    params = tuple(_param(name, value) for name, value, _ in draft.params)
    names = frozenset(param.name for param in params) | syntax.RUN_WORDS
    defaults = _defaults(draft)
    limits = {word: syntax.build_limit(word, defaults[word]) for word in syntax.LIMITS if word in defaults}
    context = StepContext(around.prompts, defaults, {**defaults, **limits}, names)
    built = tuple(_build_step(entry, context) for entry in draft.entries)
    pipeline = tuple(step.id for step in built) if draft.pipeline is None else draft.pipeline
    name = draft.doc.value["flow"]
    found = [*_name(draft.doc, name, around), *_words(draft), *context.problems]
    found += graph_checks.problems(draft, built, pipeline)
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


def _defaults(draft: RawFlow) -> dict[str, Any]:
    """The defaults of the file over those of the flow it extends; limits are merged key by key."""
    out: dict[str, Any] = {}
    for layer, _ in draft.defaults:
        for word, value in layer.items():
            mixed = word in syntax.LIMITS and isinstance(value, dict) and isinstance(out.get(word), dict)
            out[word] = {**out[word], **value} if mixed else value
    return out


def _build_step(entry: RawStep, context: StepContext) -> Step:
    """Only the keys that are present are parsed; the dataclass fills in the rest."""
    kind = entry.value.get("kind", "agent")
    context.problems.extend(_misplaced(entry, kind))
    origin = Origin(entry.doc.file, *entry.doc.where(entry.path, key=True))
    fields: dict[str, Any] = {"id": entry.id, "origin": origin, **context.filled}
    for word, value in entry.value.items():
        reader = step_keys.READERS.get(word)
        convert = step_keys.CONVERTERS.get(word)
        fields[word] = reader(entry, word, context) if reader else convert(value) if convert else value
    fields.pop("arguments", None)  # now part of the prompt
    if "from" in fields:
        fields["from_text"] = fields.pop("from")
    if "phases" in fields:
        fields["phases"], *rest = fields["phases"] or ("",)
        fields["phases_or"] = tuple(rest)
    if isinstance(entry.value.get("run"), str):
        fields["run"], fields["shell"] = (), entry.value["run"]
    if kind == "shell" and "retry" in entry.value:
        fields["again"] = fields["retry"]
    if kind == "review":
        fields = {"personas": PERSONAS, **fields}
        voices = [step_keys.persona_prompt(entry, name, context) for name in fields["personas"]]
        fields["voices"] = tuple(voice for voice in voices if voice)
    return Step(**fields)


def _misplaced(entry: RawStep, kind: str) -> Iterator[Problem]:
    value = entry.value
    for word in value:
        kinds = _KINDS.get(word, (kind,))
        if kind not in kinds:
            message = f"key {word!r} is only for kind {' or '.join(kinds)}, this step has kind {kind}"
            hint = f"remove it, or add `kind: {kinds[0]}`"
            if kind == "flow" and word in _INNER:
                message = f"key {word!r} has no effect on a step that runs a flow"
                hint = f"set it on the steps of flow {value.get('flow', '')!r}"
            yield entry.problem((word,), message, hint, key=True)
    made = len(as_list(value.get("makes")))
    if "from" in value and made != 1:
        message = f"`from: text` needs exactly one artifact, this step makes {made}"
        yield entry.problem(("from",), message, "write `makes: NAME.md`, one file")


def _name(doc: Doc, name: str, around: FlowContext) -> Iterator[Problem]:
    try:
        syntax.name(name)
    except InvalidSyntax as bad:
        yield doc.problem(("flow",), f"flow name: {bad.message}", bad.hint)
        return
    if name in syntax.COMMANDS:
        yield doc.problem(("flow",), f"flow name {name!r} is a doit command", "choose another name")
    if name != around.stem:
        hint = f"write `flow: {around.stem}`, or rename the file to {name}.yaml"
        yield doc.problem(("flow",), f"flow name {name!r} does not match the file name {around.stem!r}", hint)


def _words(draft: RawFlow) -> Iterator[Problem]:
    """Names of steps and params, and the globs under `protect`."""
    for entry in draft.entries:
        try:
            syntax.name(entry.id)
        except InvalidSyntax as bad:
            yield entry.problem((), f"step name: {bad.message}", bad.hint, key=True)
    for name, _, doc in draft.params:
        if name in _FLAGS:
            message = f"param {name!r} has the name of a doflow option"
            yield doc.problem(("params", name), message, "rename it", key=True)
        elif syntax.params(f"{{{name}}}") != (name,):
            hint = "use a-z, 0-9, - and _, starting with a letter"
            yield doc.problem(("params", name), f"param {name!r} is not a valid name", hint, key=True)
    for glob, doc in draft.protect:
        try:
            syntax.pattern(glob)
        except InvalidSyntax as bad:
            yield doc.problem(doc.item(("protect",), glob), bad.message, bad.hint)


def _doflows(draft: RawFlow, built: tuple[Step, ...], params: frozenset[str]) -> Iterator[Problem]:
    """Steps that doflow itself runs: `install` has one input and one output, `session` needs a flow with sessions."""
    for entry, step in zip(draft.entries, built, strict=True):
        if step.kind not in ("install", "session"):
            continue
        if len(step.reads) != 1 or globs.is_pattern(step.reads[0].path):
            message = f"a step of kind {step.kind} must read exactly one file"
            yield entry.problem(("reads",), message, "name it: `reads: draft.md`")
        if step.kind == "install" and len(step.makes) != 1:
            hint = "name it: `makes: plan.md`"
            yield entry.problem(("makes",), "a step of kind install must make exactly one file", hint)
        if step.kind == "session" and (draft.layout != "plan" or "prd" not in params):
            hint = "add `layout: plan`, and `prd: {default: PRD.md}` to the params"
            yield entry.problem(("kind",), "bug-fix sessions need `layout: plan` and a param `prd`", hint)


def _elsewhere(draft: RawFlow, built: tuple[Step, ...], around: FlowContext) -> Iterator[Problem]:
    """References of steps to other flows and to schema files."""
    for entry, step in zip(draft.entries, built, strict=True):
        if step.flow == around.stem:
            yield entry.problem(("flow",), f"flow {step.flow!r} runs itself", "name another flow")
        elif step.flow and step.flow not in around.names:
            hint = nearest(step.flow, sorted(around.names)) or f"flows: {', '.join(sorted(around.names))}"
            yield entry.problem(("flow",), f"unknown flow {step.flow!r}", hint)
        if step.check.schema:
            path = around.root / step.check.schema
            around.prompts.used.update({str(path): None})
            if not path.is_file():
                hint = "write the path from the project root, as in schemas/report.schema.json"
                yield entry.problem(("check", "schema"), f"schema file {step.check.schema!r} not found", hint)
