"""The keys of a step: how the value of each is checked and converted, and the prompt files they name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from doflow.flow.model import Check, Prompt, Route
from doflow.flow.parsing import document, syntax
from doflow.flow.parsing.document import nearest
from doflow.flow.parsing.inheritance import RawStep, as_list
from doflow.flow.parsing.syntax import InvalidSyntax
from doflow.util.errors import FlowError, Problem

_ON_ARTIFACTS = ("not_empty", "headings", "ends", "schema", "tasks", "backlog")

T = TypeVar("T")


@dataclass(frozen=True)
class Prompts:
    """The prompts of a project, each read once; `used` lists the files that were read."""

    root: Path
    packaged: Path
    variant: str = ""
    used: dict[str, None] = field(default_factory=dict)
    _read: dict[str, Prompt] = field(default_factory=dict)

    @property
    def folders(self) -> tuple[Path, Path]:
        return self.root / "flows" / "prompts", self.packaged / "prompts"

    def get(self, text: str) -> Prompt:
        """The prompt for `text`: a file if it ends in .md, else the text itself."""
        if not text.endswith(".md"):
            return Prompt(text)
        if text not in self._read:
            self._read[text] = self._load(text)
        return self._read[text]

    def names(self, inner: str = "") -> list[str]:
        """The names of all prompt files in a folder."""
        listed = (os.listdir(folder / inner) for folder in self.folders if (folder / inner).is_dir())
        return sorted({name for names in listed for name in names if name.endswith(".md")})

    def _load(self, name: str) -> Prompt:
        path, packaged = self._find(syntax.artifact(name))
        shown = path if packaged else os.path.relpath(path, self.root)
        self.used.update({path: None, os.path.dirname(path): None})
        inside = os.path.realpath(path).startswith(os.path.join(os.path.realpath(self.root), ""))
        if not packaged and not inside:
            raise InvalidSyntax(f"the prompt {shown} is a symlink to outside the project", "copy the file there")
        try:
            text = _without_front_matter(document.read_text(path, shown))
        except FlowError as error:
            problem = error.problems[0]
            raise InvalidSyntax(f"the prompt {shown} {problem.message}", problem.hint) from error
        if not text.strip():
            raise InvalidSyntax(f"the prompt {shown} is empty", "write what the agent should do")
        return Prompt(text, os.path.join(os.path.dirname(name), os.path.basename(path)), packaged)

    def _find(self, name: str) -> tuple[str, bool]:
        if name.startswith("/"):
            path = os.path.join(self.root, name[1:])
            if not os.path.lexists(path):
                raise InvalidSyntax(f"prompt file {name!r} not found", "write its path from the project root")
            return path, False
        chosen = f"{name.removesuffix('.md')}-{self.variant}.md"
        for wanted in (chosen, name) if self.variant else (name,):
            for folder, packaged in zip(self.folders, (False, True), strict=True):
                path = os.path.join(folder, wanted)
                if os.path.lexists(path):
                    return path, packaged
        hint = nearest(name, self.names()) or f"create flows/prompts/{name}, or write the prompt itself as text"
        if " " in name:
            hint = "a text that ends in .md is read as a file name; end it with a full stop"
        raise InvalidSyntax(f"prompt file {name!r} not found", hint)


def _without_front_matter(text: str) -> str:
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        return "\n".join(lines)
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)
    return "\n".join(lines[end + 1 :]).lstrip("\n") if end else "\n".join(lines)


@dataclass(frozen=True)
class StepContext:
    """What building a step needs besides its keys; `problems` collects what is wrong."""

    prompts: Prompts
    defaults: Mapping[str, Any]
    filled: Mapping[str, Any]
    params: frozenset[str]
    problems: list[Problem] = field(default_factory=list)


Reader = Callable[[RawStep, str, StepContext], object]


def persona_prompt(entry: RawStep, name: str, context: StepContext) -> Prompt | None:
    """The prompt of a persona: prompts/personas/NAME.md. An unknown persona is a problem."""
    try:
        return replace(context.prompts.get(f"personas/{name}.md"), name=name)
    except InvalidSyntax as bad:
        known = [file.removesuffix(".md") for file in context.prompts.names("personas")]
        message, hint = bad.message, bad.hint
        if name not in known:
            message = f"unknown persona {name!r}"
            hint = nearest(name, known) or f"describe it in flows/prompts/personas/{name}.md"
        path = entry.doc.item((*entry.path, "personas"), name)
        context.problems.append(entry.doc.problem(path, message, hint))
        return None


def _prompt(entry: RawStep, word: str, context: StepContext) -> Prompt | None:
    text = entry.value[word]
    try:
        prompt = context.prompts.get(text)
    except InvalidSyntax as bad:
        context.problems.append(entry.problem((word,), bad.message, bad.hint))
        return None
    if not text.strip():
        context.problems.append(entry.problem((word,), "the prompt is empty", "write what the agent should do"))
    if prompt.name.startswith("/"):
        return _command_prompt(entry, prompt, context)
    if "arguments" in entry.value:
        message = "`arguments` is only for a prompt that starts with /"
        context.problems.append(entry.problem(("arguments",), message, "put the text into the prompt", key=True))
    _check_params(entry, (word,), prompt.text, context, strictly=not prompt.name)
    return prompt


def _command_prompt(entry: RawStep, prompt: Prompt, context: StepContext) -> Prompt:
    """The prompt of another tool's command: $ARGUMENTS becomes the step's `arguments`, all braces stay as they are."""
    given = str(entry.value.get("arguments", "{goal}"))
    known = {*context.params, *syntax.LOCAL_WORDS}
    text = syntax.escape(prompt.text, known)
    if "$ARGUMENTS" in text:
        text = text.replace("$ARGUMENTS", given)
    elif given.strip():
        text = f"{text.rstrip()}\n\n## User input\n\n{given}\n"
    return replace(prompt, text=text)


def _paths(convert: Callable[[str], T]) -> Callable[[RawStep, str, StepContext], tuple[T, ...]]:
    """A reader of one path or a list of paths."""

    def read(entry: RawStep, word: str, context: StepContext) -> tuple[T, ...]:
        value, found = entry.value[word], list[T]()
        for index, text in enumerate(as_list(value)):
            at: document.Path = (word,) if isinstance(value, str) else (word, index)
            _check_params(entry, at, text, context)
            try:
                found.append(convert(text))
            except InvalidSyntax as bad:
                context.problems.append(entry.problem(at, bad.message, bad.hint))
        return tuple(found)

    return read


_artifacts = _paths(syntax.artifact)


def _some(entry: RawStep, word: str, context: StepContext) -> tuple[str, ...]:
    """One or more texts."""
    found = as_list(entry.value[word])
    if not found:
        problem = entry.problem((word,), f"{word!r} is an empty list", "list at least one, or remove the key")
        context.problems.append(problem)
    return tuple(found)


def _command(entry: RawStep, word: str, context: StepContext) -> tuple[str, ...]:
    found = _some(entry, word, context)
    for text in found:
        _check_params(entry, (word,), text, context, strictly=False)
    return found


def _items(entry: RawStep, word: str, context: StepContext) -> tuple[str, ...] | str:
    if isinstance(entry.value[word], str):
        return "".join(_artifacts(entry, word, context))
    return _some(entry, word, context)


def _text(entry: RawStep, word: str, context: StepContext) -> str:
    text: str = entry.value[word]
    _check_params(entry, (word,), text, context)
    return text


def _question(entry: RawStep, word: str, context: StepContext) -> str:
    """The question of a gate. A YAML 1.1 boolean such as `yes` is not a question."""
    if entry.value[word].lower() in ("yes", "no", "on", "off", "y", "n", "true", "false"):
        hint = f"write the question: `{word}: Approve {entry.id}?`"
        context.problems.append(entry.problem((word,), f"{entry.value[word]!r} is not a question", hint))
    return _text(entry, word, context)


def _limit(entry: RawStep, word: str, context: StepContext) -> object:
    """Each key of a limit from the step, else from the flow's defaults."""
    return syntax.build_limit(word, context.defaults.get(word), entry.value[word])


def _check_params(entry: RawStep, at: document.Path, text: str, context: StepContext, strictly: bool = True) -> None:
    """Params must be declared. Long texts and commands often contain braces: there only near misses are reported."""
    for name in dict.fromkeys(syntax.params(text)):
        if name in context.params or _is_local(entry, name):
            continue
        local = [word for word in syntax.LOCAL_WORDS if _is_local(entry, word)]
        near = nearest(name, sorted((*context.params, *local)), 0.6 if strictly else 0.8)
        if strictly or near:
            hint = near or f"declare it under `params:`, or write {{{{{name}}}}} for literal braces"
            context.problems.append(entry.problem(at, f"{{{name}}} is not a param of this flow", hint))


def _is_local(entry: RawStep, name: str) -> bool:
    """Is it a word that this step defines, for its current item or phase?"""
    listed = entry.value.get("foreach")
    if name.startswith("item_"):
        return isinstance(listed, str)
    return name in syntax.LOCAL_WORDS and syntax.LOCAL_WORDS[name] == ("foreach" if listed else entry.value.get("kind"))


def _check(entry: RawStep, word: str, context: StepContext) -> Check:
    value = entry.value[word]
    artifact = next((key for key in _ON_ARTIFACTS if value.get(key)), "")
    if artifact and not entry.value.get("makes") and entry.value.get("kind") != "review":
        message = f"{artifact!r} checks artifacts, but the step makes none"
        context.problems.append(entry.problem((word, artifact), message, "add `makes: NAME`, or check with `run`"))
    schema, run = value.get("schema", ""), value.get("run", ())
    for text in as_list(run):
        _check_params(entry, (word, "run"), text, context, strictly=False)
    try:
        schema = syntax.artifact(schema).lstrip("/") if schema else ""
    except InvalidSyntax as bad:
        context.problems.append(entry.problem((word, "schema"), bad.message, bad.hint))
    lists = {key: tuple(as_list(value[key])) for key in ("headings", "ends") if key in value}
    tasks = {False: "", True: "any"}.get(value.get("tasks", False), "strict")
    command = ("sh", "-c", run) if isinstance(run, str) else tuple(run)
    return Check(**{**value, **lists, "schema": schema, "tasks": tasks, "run": command})


def _routes(entry: RawStep, word: str, context: StepContext) -> tuple[Route, ...]:
    routes: list[Route] = []

    def refuse(at: document.Path, message: str, hint: str) -> None:
        context.problems.append(entry.problem((word, len(routes), *at), message, hint))

    for rule in entry.value[word]:
        if ("then" in rule) == ("pause" in rule):
            what = "both `then` and `pause`" if "then" in rule else "neither `then` nor `pause`"
            hint = "write `then: [steps]` to continue, or `pause: text` to stop for a person"
            refuse((), f"the rule has {what}", hint)
        when = rule["when"].strip()
        when = when[1:-1].strip() if when.startswith("[") and when.endswith("]") else when
        if not when or "\n" in when:
            refuse(("when",), "a marker must be one line", 'write `when: "SCALE: SMALL"`')
        if any(route.when == when for route in routes):
            refuse(("when",), f"duplicate rule for marker {when!r}", "remove one of them")
        routes.append(Route(when, tuple(rule.get("then", ())), rule.get("variant", ""), rule.get("pause", "")))
    return tuple(routes)


#: how keys are converted that need no check
CONVERTERS: dict[str, Callable[[Any], object]] = {
    "from": bool,
    "after": lambda value: tuple(as_list(value)),
    "only": lambda value: tuple(value.items()),
    "params": lambda value: tuple((name, str(given)) for name, given in value.items()),
    "repair": int,
    "rounds": int,
}
#: how the other keys are checked and converted; a key in neither table is taken as it is
READERS: dict[str, Reader] = {
    "prompt": _prompt,
    "reads": _paths(syntax.parse_read),
    "needs": _paths(syntax.parse_read),
    "makes": _artifacts,
    "writes": _paths(syntax.pattern),
    "protect": _paths(syntax.pattern),
    "phases": _artifacts,
    "check": _check,
    "routes": _routes,
    "personas": _some,
    "run": _command,
    "foreach": _items,
    "gate": _question,
    "agent": _text,
    "arguments": _text,
    "commit": _text,
    **dict.fromkeys(syntax.LIMITS, _limit),
}
