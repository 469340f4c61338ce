"""One entry of a flow file becomes a `Step`: every word of it read, every default filled in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from doflow.flow.model import Check, Origin, Prompt, Route, Step
from doflow.flow.parsing import limits, syntax as notation
from doflow.flow.parsing.document import Path, nearest
from doflow.flow.parsing.inheritance import Entry
from doflow.flow.parsing.prompts import Prompts
from doflow.flow.parsing.syntax import Bad
from doflow.util.errors import Problem
from doflow.util.records import dataclass, field, filled_in, replace

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
)  # said on the steps of a flow, not on one that runs it
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
_ON_ARTIFACTS = ("not_empty", "headings", "ends", "schema", "tasks", "backlog")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bench:
    """What building a step needs besides its words; `found` gathers the problems."""

    prompts: Prompts
    defaults: Mapping[str, Any] = field(default_factory=dict)
    filled: Mapping[str, Any] = field(default_factory=dict)
    params: frozenset[str] = notation.RUN_WORDS
    found: list[Problem] = field(default_factory=list)


Reader = Callable[[Entry, str, Bench], object]


def build(entry: Entry, origin: Origin, bench: Bench) -> Step:
    """Only the words that are there are read; the type itself fills in the rest."""
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
    return filled_in(Step, fields)


def filled(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a flow as a step holds them."""
    return {word: limits.make(word, said) if word in limits.WORDS else said for word, said in defaults.items()}


def _refuse_misplaced(entry: Entry, kind: str, bench: Bench) -> None:
    value = entry.value
    if _FOREIGN[kind].isdisjoint(value) and "from" not in value:
        return
    for word in value:
        kinds = _ONLY.get(word, (kind,))
        if kind not in kinds:
            message = f"the key {word!r} is for kind {' or '.join(kinds)}, this step is of kind {kind}"
            hint = f"leave it out, or add `kind: {kinds[0]}`"
            if kind == "flow" and word in _INNER:
                message = f"the key {word!r} has no effect on a step that runs a flow"
                hint = f"say it on the steps of the flow {value.get('flow', '')!r}"
            bench.found.append(entry.problem((word,), message, hint, key=True))
    makes = _listed(value.get("makes"))
    if "from" in value and len(makes) != 1:
        message = f"from: text fills one artifact, this step makes {len(makes)}"
        bench.found.append(entry.problem(("from",), message, "write `makes: NAME.md`, one file"))


def _voice(entry: Entry, name: str, bench: Bench) -> Prompt | None:
    """What a persona is told about itself: prompts/personas/NAME.md. Nobody reviews as somebody who is not there."""
    try:
        found = bench.prompts.get(f"personas/{name}.md")
    except Bad as bad:
        known, at = bench.prompts.personas(), entry.doc.item((*entry.path, "personas"), name)
        message, hint = bad.message, bad.hint
        if name not in known:
            message = f"there is no persona {name!r}"
            hint = nearest(name, known) or f"write who that is into flows/prompts/personas/{name}.md"
        bench.found.append(entry.doc.problem(at, message, hint))
        return None
    return replace(found, name=name)


def _prompt(entry: Entry, word: str, bench: Bench) -> Prompt | None:
    text = entry.value[word]
    try:
        prompt = bench.prompts.get(text)
    except Bad as bad:
        bench.found.append(entry.problem(("prompt",), bad.message, bad.hint))
        return None
    if not text.strip():
        bench.found.append(entry.problem(("prompt",), "the prompt is empty", "say what the agent is to do"))
    _know(entry, ("prompt",), prompt.text, bench, strictly=not prompt.name)
    return prompt


def _paths(convert: Callable[[str], T]) -> Callable[[Entry, str, Bench], tuple[T, ...]]:
    """Reads one path or a list of them."""

    def read(entry: Entry, word: str, bench: Bench) -> tuple[T, ...]:
        value = entry.value[word]
        texts = [value] if isinstance(value, str) else value
        if "{" not in "".join(texts):
            try:
                return tuple([convert(text) for text in texts])
            except Bad:
                pass  # all that is wrong is told, not only the first
        return tuple(each(entry, word, texts, bench))

    def each(entry: Entry, word: str, texts: list[str], bench: Bench) -> Iterator[T]:
        for index, text in enumerate(texts):
            at: Path = (word,) if isinstance(entry.value[word], str) else (word, index)
            _know(entry, at, text, bench)
            try:
                yield convert(text)
            except Bad as bad:
                bench.found.append(entry.problem(at, bad.message, bad.hint))

    return read


_artifacts = _paths(notation.artifact)


def _path(entry: Entry, word: str, bench: Bench) -> str:
    return "".join(_artifacts(entry, word, bench))


def _texts(entry: Entry, word: str, _bench: Bench) -> tuple[str, ...]:
    return tuple(_listed(entry.value[word]))


def _some(entry: Entry, word: str, bench: Bench) -> tuple[str, ...]:
    """Texts, at least one of them."""
    found = _texts(entry, word, bench)
    if not found:
        bench.found.append(entry.problem((word,), f"{word!r} is an empty list", "list at least one, or leave it out"))
    return found


def _command(entry: Entry, word: str, bench: Bench) -> tuple[str, ...]:
    found = _some(entry, word, bench)
    for text in found:
        if "{" in text:
            _know(entry, (word,), text, bench, strictly=False)
    return found


def _items(entry: Entry, word: str, bench: Bench) -> tuple[str, ...] | str:
    return _path(entry, word, bench) if isinstance(entry.value[word], str) else _some(entry, word, bench)


def _text(entry: Entry, word: str, bench: Bench) -> str:
    text: str = entry.value[word]
    _know(entry, (word,), text, bench)
    return text


def _question(entry: Entry, word: str, bench: Bench) -> str:
    """What a person is asked. A word that other readers of YAML take for true or false is no question."""
    if entry.value[word].lower() in ("yes", "no", "on", "off", "y", "n", "true", "false"):
        message = f"{entry.value[word]!r} is no question"
        bench.found.append(entry.problem((word,), message, f"write what is asked: `{word}: Approve {entry.id}?`"))
    return _text(entry, word, bench)


def _whole(entry: Entry, word: str, _bench: Bench) -> int:
    return int(entry.value[word])


def _yes(_entry: Entry, _word: str, _bench: Bench) -> bool:
    return True


def _limit(entry: Entry, word: str, bench: Bench) -> object:
    """Each word of a limit from the step, else from the flow's defaults."""
    return limits.make(word, bench.defaults.get(word), entry.value[word])


def _know(entry: Entry, at: Path, text: str, bench: Bench, strictly: bool = True) -> None:
    """Params must be declared. In long texts and commands braces are common: there only a near miss counts."""
    for name in dict.fromkeys(notation.params(text) if "{" in text else ()):
        if name in bench.params or _here(entry, name):
            continue
        local = [word for word in notation.LOCAL_WORDS if _here(entry, word)]
        near = nearest(name, sorted((*bench.params, *local)), 0.6 if strictly else 0.8)
        if strictly or near:
            hint = near or f"declare it under `params:`, or write {{{{{name}}}}} for the word itself"
            bench.found.append(entry.problem(at, f"{{{name}}} is not a param of this flow", hint))


def _here(entry: Entry, name: str) -> bool:
    """Does this step itself know the word: of the item or of the phase that it is at?"""
    listed = entry.value.get("foreach")
    if name.startswith("item_"):
        return isinstance(listed, str)
    return name in notation.LOCAL_WORDS and notation.LOCAL_WORDS[name] == (
        "foreach" if listed else entry.value.get("kind")
    )


def _check(entry: Entry, word: str, bench: Bench) -> Check:
    value = entry.value[word]
    artifact = next((word for word in _ON_ARTIFACTS if value.get(word)), "")
    if artifact and not entry.value.get("makes") and entry.value.get("kind") != "review":
        hint = "add `makes: NAME`, or check with `run`"
        bench.found.append(
            entry.problem(("check", artifact), f"{artifact!r} looks at artifacts, the step makes none", hint)
        )
    schema = value.get("schema", "")
    run = value.get("run", ())
    for text in _listed(run):
        _know(entry, ("check", "run"), text, bench, strictly=False)
    try:
        schema = notation.artifact(schema).lstrip("/") if schema else ""
    except Bad as bad:
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


def _routes(entry: Entry, word: str, bench: Bench) -> tuple[Route, ...]:
    routes: list[Route] = []
    for index, rule in enumerate(entry.value[word]):
        at = (word, index)
        if ("then" in rule) == ("pause" in rule):
            what = "both `then` and `pause`" if "then" in rule else "neither `then` nor `pause`"
            hint = "write `then: [steps]` to go on, or `pause: text` to stop for a person"
            bench.found.append(entry.problem(at, f"the rule has {what}", hint))
        when = _marker(rule["when"])
        if not when or "\n" in when:
            bench.found.append(entry.problem((*at, "when"), "a marker is one line", 'write `when: "SCALE: SMALL"`'))
        if any(route.when == when for route in routes):
            bench.found.append(
                entry.problem((*at, "when"), f"the marker {when!r} has a rule already", "keep one of them")
            )
        routes.append(Route(when, tuple(rule.get("then", ())), rule.get("variant", ""), rule.get("pause", "")))
    return tuple(routes)


def _params(entry: Entry, word: str, _bench: Bench) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(said)) for name, said in entry.value[word].items())


def _only(entry: Entry, word: str, bench: Bench) -> tuple[tuple[str, str], ...]:
    return tuple(entry.value[word].items())


def _marker(text: str) -> str:
    text = text.strip()
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text


def _listed(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


_READERS: dict[str, Reader] = {
    "prompt": _prompt,
    "reads": _paths(notation.read),
    "needs": _paths(notation.read),
    "makes": _artifacts,
    "writes": _paths(notation.pattern),
    "protect": _paths(notation.pattern),
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
    **dict.fromkeys(limits.WORDS, _limit),
}
