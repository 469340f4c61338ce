"""doflow.yaml with every default filled in: which value holds, and who said it.

defaults < doflow.yaml < DOFLOW_SET_<PATH> < flags
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from doflow.config.layers import FILE, PREFIX, Book, Keys, from_environment, from_flag
from doflow.flow.model import Budget, Profile, Retry, Settings
from doflow.flow.model_oversight import Supervision
from doflow.flow.parsing import document as strict, schema, syntax as notation
from doflow.flow.parsing.document import Doc, nearest
from doflow.util.errors import FlowError, Problem
from doflow.util.process.command import Timeout

_TEXTS = ("model", "executable", "fallback", "sandbox", "sessions")
_NO_FLAGS: Mapping[str, object] = {}


def load(root: Path, environ: Mapping[str, str], flags: Mapping[str, object] = _NO_FLAGS) -> Settings:
    """The settings of a project; raises FlowError with everything that is wrong in them."""
    book = Book(_file(root))
    found: list[Problem] = []
    for name, value in sorted(environ.items()):
        if name.startswith(PREFIX):
            found += from_environment(book, name, value)
    for name, flag in flags.items():
        if flag is not None:
            found += from_flag(book, name, flag)
    _drop_foreign_model(book)
    found = found or list(_senseless(book))
    if found:
        raise FlowError(tuple(found))
    return _settings(book)


def sources(root: Path) -> tuple[str, ...]:
    """The file whose change could change the settings, whether it is there or not."""
    return (os.path.abspath(root / FILE),)


def _file(root: Path) -> Doc | None:
    if not os.path.lexists(root / FILE):
        return None
    text = strict.read(str(root / FILE), FILE)
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        return None
    from doflow.flow.parsing import loader as yaml_door

    doc = yaml_door.tree(text, FILE)
    found = schema.faults(doc.value, "doflow")
    if found:
        raise FlowError(tuple(doc.problem(f.path, f.message, f.hint, f.key) for f in found))
    return doc


def _drop_foreign_model(book: Book) -> None:
    """The default model is of the default program: whoever chooses another one starts without it."""
    model = ("agents", "default", "model")
    if book.where.get(model) == "default" and book.where["agents", "default", "use"] != "default":
        del book.value["agents"]["default"]["model"], book.where[model]


def _senseless(book: Book) -> Iterator[Problem]:
    agents = book.value["agents"]
    for name, profile in agents.items():
        yield from _bad_profile(book, name, profile, agents)
    for step, name in book.value["route_agents"].items():
        if name not in agents:
            hint = nearest(name, list(agents)) or f"agents: {', '.join(agents)}"
            yield book.problem(("route_agents", step), f"there is no agent {name!r}", hint)
    for gate in book.value["gates"]:
        if not gate.startswith("after-") or not _is_name(gate[6:]):
            yield book.problem(
                ("gates", gate), f"{gate!r} is not a gate", "write after- and the step: `after-plan: true`", key=True
            )
    if book.value["pipelines"]:
        yield from _bad_pipelines(book)
    for word in ("reviewer", "judge"):
        name = book.value["supervision"][word]
        if name and name not in agents:
            hint = nearest(name, list(agents)) or f"agents: {', '.join(agents)}"
            yield book.problem(("supervision", word), f"there is no agent {name!r}", hint)
    for glob in _listed(book.value["protect"]):
        try:
            notation.pattern(glob)
        except notation.Bad as bad:
            yield book.problem(("protect",), bad.message, bad.hint, item=glob)


def _bad_profile(book: Book, name: str, profile: Mapping[str, Any], agents: Mapping[str, Any]) -> Iterator[Problem]:
    at = ("agents", name)
    if not _is_name(name):
        yield book.problem(at, f"the agent's name {name!r} is not a name", "use a-z, 0-9, - and _", key=True)
    if "use" not in profile:
        yield book.problem(at, f"the agent {name!r} does not say which program to use", "add `use: claude`")
    if profile.get("use") == "command" and not profile.get("argv"):
        yield book.problem(at, f"the agent {name!r} has no command", "add `argv: [program, argument]`")
    seen, other = [name], profile.get("fallback")
    while other and other in agents and other not in seen:
        seen.append(other)
        other = agents[other].get("fallback")
    if other and other not in agents:
        if len(seen) == 1:
            hint = nearest(other, list(agents)) or f"agents: {', '.join(agents)}"
            yield book.problem((*at, "fallback"), f"there is no agent {other!r}", hint)
    elif other == name:
        message = f"the agents fall back on each other: {' -> '.join((*seen, name))}"
        yield book.problem((*at, "fallback"), message, "let the last one have no fallback")


def _bad_pipelines(book: Book) -> Iterator[Problem]:
    from doflow.flow.parsing.reserved_names import COMMANDS

    for name, path in book.value["pipelines"].items():
        at = ("pipelines", name)
        if not _is_name(name):
            yield book.problem(at, f"the pipeline's name {name!r} is not a name", "use a-z, 0-9, - and _")
        elif name in COMMANDS:
            yield book.problem(at, f"the pipeline's name {name!r} is a command of doit", "choose another name")
        try:
            notation.artifact(path)
        except notation.Bad as bad:
            yield book.problem(at, bad.message, bad.hint)
        if not path.endswith((".dot", ".gv")):
            yield book.problem(at, f"{path} is no DOT file", "name a file that ends in .dot")


def _is_name(text: str) -> bool:
    try:
        return bool(notation.name(text))
    except notation.Bad:
        return False


def _settings(book: Book) -> Settings:
    value = book.value
    times, retry, budget, git = value["timeouts"], value["retry"], value["budget"], value["git"]
    usd, tokens, wait = budget["usd"], budget["tokens"], value["rate_limit"]["wait"]
    return Settings(
        agents=tuple(_profile(name, profile) for name, profile in value["agents"].items()),
        route_agents=tuple(value["route_agents"].items()),
        gates=tuple(gate for gate, on in value["gates"].items() if on),
        auto_approve=value["auto_approve"],
        review_mode=value["review_mode"],
        command_variant=value["command_variant"],
        timeout=Timeout(notation.seconds(times["idle"]), notation.seconds(times["max"])),
        step_timeouts=tuple((step, _time(said, "idle"), _time(said, "max")) for step, said in times["steps"].items()),
        retry_enabled=retry["enabled"],
        retry=Retry(int(retry["max_retries"]), notation.seconds(retry["backoff_seconds"])),
        rate_limit_wait=0.0 if wait is False else notation.seconds(wait),
        budget=Budget(None if usd is None else float(usd), None if tokens is None else int(tokens)),
        budget_on_exceed=budget["on_exceed"],
        prices={model: _rates(said) for model, said in value["prices"].items()},
        triggers=tuple(value["triggers"]),
        review_command=tuple(value["review_command"]),
        notify=tuple(value["notify"]["command"]),
        protect=tuple(_listed(value["protect"])),
        branch=git["branch"],
        commit_artifacts=git["commit_artifacts"],
        verify=git["verify"],
        pipelines=tuple(value["pipelines"].items()),
        layout=value["layout"],
        supervision=_supervision(value["supervision"]),
        origins=tuple((".".join(path), _shown(leaf), book.said(path)) for path, leaf in _leaves(value)),
    )


def _supervision(said: Mapping[str, Any]) -> Supervision:
    return Supervision(
        said["signals"], int(said["parallel"]), int(said["retries"]), notation.seconds(said["stuck"]),
        tuple(said["validate"]), said["reviewer"], said["judge"], tuple(said["answers"].items()), said["style"],
        int(said["keep_days"]),
    )  # fmt: skip


def _profile(name: str, said: Mapping[str, Any]) -> Profile:
    limit = said.get("rate_limit", {})
    fields: dict[str, Any] = {word: said[word] for word in _TEXTS if word in said}
    fields |= {word: tuple(said[word]) for word in ("argv", "args", "env") if word in said}
    return Profile(
        name,
        said["use"],
        **fields,
        rate_limit_exit=int(limit.get("exit", 75)),
        rate_limit_match=limit.get("match", ""),
        price=_rates(said.get("price", {})),
    )


def _rates(said: Mapping[str, Any]) -> dict[str, float]:
    return {word: float(usd) for word, usd in said.items()}


def _time(said: Mapping[str, object], word: str) -> float | None:
    return notation.seconds(said[word]) if word in said else None


def _leaves(value: Mapping[str, Any], at: Keys = ()) -> Iterator[tuple[Keys, object]]:
    for key, entry in value.items():
        if isinstance(entry, dict) and entry:
            yield from _leaves(entry, (*at, key))
        else:
            yield (*at, key), entry


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_shown(entry) for entry in value)}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return '""' if value == "" else str(value)


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
