"""Builds a `Step` from an entry of a flow file: every key parsed, every default filled in; and limits such as budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from doflow.flow.model import Budget, Check, Origin, Prompt, Retry, Route, Step
from doflow.flow.parsing import syntax
from doflow.flow.parsing.document import Path, nearest
from doflow.flow.parsing.inheritance import RawStep
from doflow.flow.parsing.prompts import Prompts
from doflow.flow.parsing.syntax import InvalidSyntax
from doflow.util.errors import Problem, UsageError
from doflow.util.process.runner import Timeout

PERSONAS = ("pm", "critical", "risk", "value")
ROUNDS = 3

_OF_STEPS = ("agent", "review", "implement", "shell", "gate")
_INNER = (
    "reads",
    "needs",
    "writes",
    "timeout",
    "retry",
    "budget",
)  # belong on the steps of the inner flow, not on the step that runs it
_ONLY = {
    "run": ("shell",),
    "phases": ("implement",),
    "commit": ("implement",),
    "personas": ("review",),
    "rounds": ("review",),
    "fixer": ("review",),
    "mode": ("review",),
    "flow": ("flow",),
    "params": ("flow",),
    "clarify": ("agent",),
    "from": ("agent", "review"),
    "prompt": ("agent", "implement", "review", "shell"),
    "makes": ("agent", "implement", "review", "shell", "install"),
    "check": ("agent", "implement", "review", "shell", "install"),
    "repair": ("agent", "implement", "review", "shell"),
    "routes": ("agent", "review", "shell"),
    "foreach": ("agent", "shell"),
    **dict.fromkeys(_INNER, _OF_STEPS),
    "reads": (*_OF_STEPS, "install", "session"),
}
_KINDS = ("agent", "review", "implement", "shell", "gate", "flow", "install", "session")
_FOREIGN = {kind: frozenset(word for word, kinds in _ONLY.items() if kind not in kinds) for kind in _KINDS}
LIMITS = ("timeout", "retry", "budget")
_ON_ARTIFACTS = ("not_empty", "headings", "ends", "schema", "tasks", "backlog")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepContext:
    """What building a step needs besides its keys; `found` collects the problems."""

    prompts: Prompts
    defaults: Mapping[str, Any] = field(default_factory=dict)
    filled: Mapping[str, Any] = field(default_factory=dict)
    params: frozenset[str] = syntax.RUN_WORDS
    found: list[Problem] = field(default_factory=list)


Reader = Callable[[RawStep, str, StepContext], object]


def build_step(entry: RawStep, origin: Origin, bench: StepContext) -> Step:
    """Only the keys that are present are parsed; the dataclass fills in the rest."""
    value = entry.value
    kind = value.get("kind", "agent")
    _refuse_misplaced(entry, kind, bench)
    fields: dict[str, Any] = {"id": entry.id, "origin": origin, **bench.filled}
    for word, said in value.items():
        reader = _READERS.get(word)
        fields[word] = reader(entry, word, bench) if reader else said
    if "from" in fields:
        fields["from_text"] = fields.pop("from")
    if "phases" in fields:
        first, *rest = fields["phases"] or ("",)
        fields["phases"], fields["phases_or"] = first, tuple(rest)
    if isinstance(value.get("run"), str):
        fields["run"], fields["shell"] = (), value["run"]
    if kind == "shell" and "retry" in value:
        fields["again"] = fields["retry"]
    if kind == "review":
        fields = {"personas": PERSONAS, **fields}
        fields["voices"] = tuple(found for name in fields["personas"] if (found := _voice(entry, name, bench)))
    return Step(**fields)


def fill_defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a flow as fields of a step."""
    return {word: build_limit(word, said) if word in LIMITS else said for word, said in defaults.items()}


def _refuse_misplaced(entry: RawStep, kind: str, bench: StepContext) -> None:
    value = entry.value
    if _FOREIGN[kind].isdisjoint(value) and "from" not in value:
        return
    for word in value:
        kinds = _ONLY.get(word, (kind,))
        if kind not in kinds:
            message = f"key {word!r} is only for kind {' or '.join(kinds)}, this step has kind {kind}"
            hint = f"remove it, or add `kind: {kinds[0]}`"
            if kind == "flow" and word in _INNER:
                message = f"key {word!r} has no effect on a step that runs a flow"
                hint = f"set it on the steps of flow {value.get('flow', '')!r}"
            bench.found.append(entry.problem((word,), message, hint, key=True))
    makes = _listed(value.get("makes"))
    if "from" in value and len(makes) != 1:
        message = f"`from: text` needs exactly one artifact, this step makes {len(makes)}"
        bench.found.append(entry.problem(("from",), message, "write `makes: NAME.md`, one file"))


def _voice(entry: RawStep, name: str, bench: StepContext) -> Prompt | None:
    """The prompt of a persona: prompts/personas/NAME.md. An unknown persona is a problem."""
    try:
        found = bench.prompts.get(f"personas/{name}.md")
    except InvalidSyntax as bad:
        known, at = bench.prompts.personas(), entry.doc.item((*entry.path, "personas"), name)
        message, hint = bad.message, bad.hint
        if name not in known:
            message = f"unknown persona {name!r}"
            hint = nearest(name, known) or f"describe it in flows/prompts/personas/{name}.md"
        bench.found.append(entry.doc.problem(at, message, hint))
        return None
    return replace(found, name=name)


def _prompt(entry: RawStep, word: str, bench: StepContext) -> Prompt | None:
    text = entry.value[word]
    try:
        prompt = bench.prompts.get(text)
    except InvalidSyntax as bad:
        bench.found.append(entry.problem(("prompt",), bad.message, bad.hint))
        return None
    if not text.strip():
        bench.found.append(entry.problem(("prompt",), "the prompt is empty", "write what the agent should do"))
    _check_params(entry, ("prompt",), prompt.text, bench, strictly=not prompt.name)
    return prompt


def _paths(convert: Callable[[str], T]) -> Callable[[RawStep, str, StepContext], tuple[T, ...]]:
    """A reader of one path or a list of paths."""

    def read(entry: RawStep, word: str, bench: StepContext) -> tuple[T, ...]:
        value = entry.value[word]
        texts = [value] if isinstance(value, str) else value
        if "{" not in "".join(texts):
            try:
                return tuple([convert(text) for text in texts])
            except InvalidSyntax:
                pass  # report every problem, not only the first
        return tuple(each(entry, word, texts, bench))

    def each(entry: RawStep, word: str, texts: list[str], bench: StepContext) -> Iterator[T]:
        for index, text in enumerate(texts):
            at: Path = (word,) if isinstance(entry.value[word], str) else (word, index)
            _check_params(entry, at, text, bench)
            try:
                yield convert(text)
            except InvalidSyntax as bad:
                bench.found.append(entry.problem(at, bad.message, bad.hint))

    return read


_artifacts = _paths(syntax.artifact)


def _path(entry: RawStep, word: str, bench: StepContext) -> str:
    return "".join(_artifacts(entry, word, bench))


def _texts(entry: RawStep, word: str, _bench: StepContext) -> tuple[str, ...]:
    return tuple(_listed(entry.value[word]))


def _some(entry: RawStep, word: str, bench: StepContext) -> tuple[str, ...]:
    """One or more texts."""
    found = _texts(entry, word, bench)
    if not found:
        bench.found.append(entry.problem((word,), f"{word!r} is an empty list", "list at least one, or remove the key"))
    return found


def _command(entry: RawStep, word: str, bench: StepContext) -> tuple[str, ...]:
    found = _some(entry, word, bench)
    for text in found:
        if "{" in text:
            _check_params(entry, (word,), text, bench, strictly=False)
    return found


def _items(entry: RawStep, word: str, bench: StepContext) -> tuple[str, ...] | str:
    return _path(entry, word, bench) if isinstance(entry.value[word], str) else _some(entry, word, bench)


def _text(entry: RawStep, word: str, bench: StepContext) -> str:
    text: str = entry.value[word]
    _check_params(entry, (word,), text, bench)
    return text


def _question(entry: RawStep, word: str, bench: StepContext) -> str:
    """The question of a gate. A YAML 1.1 boolean such as `yes` is not a question."""
    if entry.value[word].lower() in ("yes", "no", "on", "off", "y", "n", "true", "false"):
        message = f"{entry.value[word]!r} is not a question"
        bench.found.append(entry.problem((word,), message, f"write the question: `{word}: Approve {entry.id}?`"))
    return _text(entry, word, bench)


def _whole(entry: RawStep, word: str, _bench: StepContext) -> int:
    return int(entry.value[word])


def _yes(_entry: RawStep, _word: str, _bench: StepContext) -> bool:
    return True


def _limit(entry: RawStep, word: str, bench: StepContext) -> object:
    """Each key of a limit from the step, else from the flow's defaults."""
    return build_limit(word, bench.defaults.get(word), entry.value[word])


def _check_params(entry: RawStep, at: Path, text: str, bench: StepContext, strictly: bool = True) -> None:
    """Params must be declared. Long texts and commands often contain braces: there only near misses are reported."""
    for name in dict.fromkeys(syntax.params(text) if "{" in text else ()):
        if name in bench.params or _is_local(entry, name):
            continue
        local = [word for word in syntax.LOCAL_WORDS if _is_local(entry, word)]
        near = nearest(name, sorted((*bench.params, *local)), 0.6 if strictly else 0.8)
        if strictly or near:
            hint = near or f"declare it under `params:`, or write {{{{{name}}}}} for literal braces"
            bench.found.append(entry.problem(at, f"{{{name}}} is not a param of this flow", hint))


def _is_local(entry: RawStep, name: str) -> bool:
    """Is it a word that this step defines, for its current item or phase?"""
    listed = entry.value.get("foreach")
    if name.startswith("item_"):
        return isinstance(listed, str)
    return name in syntax.LOCAL_WORDS and syntax.LOCAL_WORDS[name] == ("foreach" if listed else entry.value.get("kind"))


def _check(entry: RawStep, word: str, bench: StepContext) -> Check:
    value = entry.value[word]
    artifact = next((word for word in _ON_ARTIFACTS if value.get(word)), "")
    if artifact and not entry.value.get("makes") and entry.value.get("kind") != "review":
        hint = "add `makes: NAME`, or check with `run`"
        bench.found.append(
            entry.problem(("check", artifact), f"{artifact!r} checks artifacts, but the step makes none", hint)
        )
    schema = value.get("schema", "")
    run = value.get("run", ())
    for text in _listed(run):
        _check_params(entry, ("check", "run"), text, bench, strictly=False)
    try:
        schema = syntax.artifact(schema).lstrip("/") if schema else ""
    except InvalidSyntax as bad:
        bench.found.append(entry.problem(("check", "schema"), bad.message, bad.hint))
    return Check(
        not_empty=value.get("not_empty", False),
        headings=tuple(_listed(value.get("headings"))),
        ends=tuple(_listed(value.get("ends"))),
        schema=schema,
        tasks=value.get("tasks", False),
        backlog=value.get("backlog", False),
        run=("sh", "-c", run) if isinstance(run, str) else tuple(run),
    )


def _routes(entry: RawStep, word: str, bench: StepContext) -> tuple[Route, ...]:
    routes: list[Route] = []
    for index, rule in enumerate(entry.value[word]):
        at = (word, index)
        if ("then" in rule) == ("pause" in rule):
            what = "both `then` and `pause`" if "then" in rule else "neither `then` nor `pause`"
            hint = "write `then: [steps]` to continue, or `pause: text` to stop for a person"
            bench.found.append(entry.problem(at, f"the rule has {what}", hint))
        when = _marker(rule["when"])
        if not when or "\n" in when:
            bench.found.append(
                entry.problem((*at, "when"), "a marker must be one line", 'write `when: "SCALE: SMALL"`')
            )
        if any(route.when == when for route in routes):
            bench.found.append(
                entry.problem((*at, "when"), f"duplicate rule for marker {when!r}", "remove one of them")
            )
        routes.append(Route(when, tuple(rule.get("then", ())), rule.get("variant", ""), rule.get("pause", "")))
    return tuple(routes)


def _params(entry: RawStep, word: str, _bench: StepContext) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(said)) for name, said in entry.value[word].items())


def _only(entry: RawStep, word: str, bench: StepContext) -> tuple[tuple[str, str], ...]:
    return tuple(entry.value[word].items())


def _marker(text: str) -> str:
    text = text.strip()
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text


def _listed(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def build_limit(word: str, *layers: object) -> Timeout | Retry | Budget:
    """The limit called `word`; later layers win, key by key."""
    said: dict[str, Any] = {}
    for layer in layers:
        said.update(_parts(layer))
    if word == "timeout":
        return Timeout(**{part: syntax.seconds(value) for part, value in said.items()})
    if word == "retry":
        base = Retry()
        return Retry(int(said.get("attempts", base.attempts)), syntax.seconds(said.get("backoff", base.backoff)))
    usd, tokens = said.get("usd"), said.get("tokens")
    return Budget(None if usd is None else float(usd), None if tokens is None else int(tokens))


def parse_budget(text: str) -> Budget:
    """A budget from the command line: `5`, `$5`, `500000tokens`, `none`."""
    said = text.strip().lower().removeprefix("$").removesuffix("usd").strip()
    if said == "none":
        return Budget()
    tokens = said.endswith(("tokens", "token"))
    number = said.removesuffix("s").removesuffix("token").strip().replace(",", "").replace("_", "")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise UsageError(f"invalid --budget={text}", "write US dollars, tokens or none: 5, 500000tokens, none")
    return Budget(tokens=int(value)) if tokens else Budget(usd=value)


def _parts(value: object) -> dict[str, Any]:
    """A single duration is the time limit of the whole step."""
    if value is None:
        return {}
    return dict(value) if isinstance(value, dict) else {"max": value}


_READERS: dict[str, Reader] = {
    "prompt": _prompt,
    "reads": _paths(syntax.parse_read),
    "needs": _paths(syntax.parse_read),
    "makes": _artifacts,
    "writes": _paths(syntax.pattern),
    "protect": _paths(syntax.pattern),
    "phases": _artifacts,
    "from": _yes,
    "check": _check,
    "routes": _routes,
    "only": _only,
    "params": _params,
    "after": _texts,
    "personas": _some,
    "run": _command,
    "foreach": _items,
    "gate": _question,
    "agent": _text,
    "commit": _text,
    "repair": _whole,
    "rounds": _whole,
    **dict.fromkeys(LIMITS, _limit),
}
