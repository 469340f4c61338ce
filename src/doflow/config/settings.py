"""Settings: the effective value of each, with its origin.

defaults < doflow.yaml < DOFLOW_SET_<PATH> < flags
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from doflow.config.layers import FILE, PREFIX, Keys, LayeredSettings, from_environment, from_flag
from doflow.flow.model import Budget, Profile, Retry, Settings, Supervision
from doflow.flow.parsing import document, loader, schema, syntax
from doflow.flow.parsing.document import Doc, nearest
from doflow.flow.parsing.syntax import COMMANDS
from doflow.util.errors import FlowError, Problem
from doflow.util.process.runner import Timeout

_TEXTS = ("model", "executable", "fallback", "sandbox", "workspace", "sessions")
_NO_FLAGS: Mapping[str, object] = {}


def load(root: Path, environ: Mapping[str, str], flags: Mapping[str, object] = _NO_FLAGS) -> Settings:
    """The settings of a project; raises FlowError with every problem in them."""
    layers = LayeredSettings(_file(root))
    found: list[Problem] = []
    for name, value in sorted(environ.items()):
        if name.startswith(PREFIX):
            found += from_environment(layers, name, value)
    for name, flag in flags.items():
        if flag is not None:
            found += from_flag(layers, name, flag)
    _drop_foreign_model(layers)
    found = found or list(_problems(layers))
    if found:
        raise FlowError(tuple(found))
    return _settings(layers)


def sources(root: Path) -> tuple[str, ...]:
    """The file that the settings depend on, whether it exists or not."""
    return (os.path.abspath(root / FILE),)


def _file(root: Path) -> Doc | None:
    if not os.path.lexists(root / FILE):
        return None
    text = document.read_text(str(root / FILE), FILE)
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        return None
    doc = loader.parse_document(text, FILE)
    found = schema.faults(doc.value, "doflow")
    if found:
        raise FlowError(tuple(doc.problem(f.path, f.message, f.hint, f.key) for f in found))
    return doc


def _drop_foreign_model(layers: LayeredSettings) -> None:
    """The default model belongs to the default program: drop it if another program is chosen."""
    model = ("agents", "default", "model")
    if layers.where.get(model) == "default" and layers.where["agents", "default", "use"] != "default":
        del layers.value["agents"]["default"]["model"], layers.where[model]


def _problems(layers: LayeredSettings) -> Iterator[Problem]:
    agents = layers.value["agents"]
    for name, profile in agents.items():
        yield from _bad_profile(layers, name, profile, agents)
    for step, name in layers.value["route_agents"].items():
        if name not in agents:
            hint = nearest(name, list(agents)) or f"agents: {', '.join(agents)}"
            yield layers.problem(("route_agents", step), f"unknown agent {name!r}", hint)
    for gate in layers.value["gates"]:
        if not gate.startswith("after-") or not _is_name(gate[6:]):
            yield layers.problem(
                ("gates", gate), f"{gate!r} is not a gate", "write `after-` and a step id: `after-plan: true`", key=True
            )
    if layers.value["pipelines"]:
        yield from _bad_pipelines(layers)
    for word in ("reviewer", "judge"):
        name = layers.value["supervision"][word]
        if name and name not in agents:
            hint = nearest(name, list(agents)) or f"agents: {', '.join(agents)}"
            yield layers.problem(("supervision", word), f"unknown agent {name!r}", hint)
    for glob in _listed(layers.value["protect"]):
        try:
            syntax.pattern(glob)
        except syntax.InvalidSyntax as bad:
            yield layers.problem(("protect",), bad.message, bad.hint, item=glob)


def _bad_profile(
    layers: LayeredSettings, name: str, profile: Mapping[str, Any], agents: Mapping[str, Any]
) -> Iterator[Problem]:
    at = ("agents", name)
    if not _is_name(name):
        yield layers.problem(at, f"agent name {name!r} is not a valid name", "use a-z, 0-9, - and _", key=True)
    if "use" not in profile:
        yield layers.problem(at, f"agent {name!r} has no `use`", "add `use: claude`")
    if profile.get("use") == "command" and not profile.get("argv"):
        yield layers.problem(at, f"agent {name!r} has no `argv`", "add `argv: [program, argument]`")
    seen, other = [name], profile.get("fallback")
    while other and other in agents and other not in seen:
        seen.append(other)
        other = agents[other].get("fallback")
    if other and other not in agents:
        if len(seen) == 1:
            hint = nearest(other, list(agents)) or f"agents: {', '.join(agents)}"
            yield layers.problem((*at, "fallback"), f"unknown agent {other!r}", hint)
    elif other == name:
        message = f"fallback cycle: {' -> '.join((*seen, name))}"
        yield layers.problem((*at, "fallback"), message, "remove one of the fallbacks")


def _bad_pipelines(layers: LayeredSettings) -> Iterator[Problem]:
    for name, path in layers.value["pipelines"].items():
        at = ("pipelines", name)
        if not _is_name(name):
            yield layers.problem(at, f"pipeline name {name!r} is not a valid name", "use a-z, 0-9, - and _")
        elif name in COMMANDS:
            yield layers.problem(at, f"pipeline name {name!r} is a doit command", "choose another name")
        try:
            syntax.artifact(path)
        except syntax.InvalidSyntax as bad:
            yield layers.problem(at, bad.message, bad.hint)
        if not path.endswith((".dot", ".gv")):
            yield layers.problem(at, f"{path} is not a DOT file", "use a file name that ends in .dot")


def _is_name(text: str) -> bool:
    try:
        return bool(syntax.name(text))
    except syntax.InvalidSyntax:
        return False


def _settings(layers: LayeredSettings) -> Settings:
    value = layers.value
    times, retry, budget, git = value["timeouts"], value["retry"], value["budget"], value["git"]
    usd, tokens, wait = budget["usd"], budget["tokens"], value["rate_limit"]["wait"]
    return Settings(
        agents=tuple(_profile(name, profile) for name, profile in value["agents"].items()),
        route_agents=tuple(value["route_agents"].items()),
        gates=tuple(gate for gate, on in value["gates"].items() if on),
        auto_approve=value["auto_approve"],
        review_mode=value["review_mode"],
        command_variant=value["command_variant"],
        timeout=Timeout(syntax.seconds(times["idle"]), syntax.seconds(times["max"])),
        step_timeouts=tuple(
            (step, _time(limits, "idle"), _time(limits, "max")) for step, limits in times["steps"].items()
        ),
        retry_enabled=retry["enabled"],
        retry=Retry(int(retry["max_retries"]), syntax.seconds(retry["backoff_seconds"])),
        rate_limit_wait=0.0 if wait is False else syntax.seconds(wait),
        budget=Budget(None if usd is None else float(usd), None if tokens is None else int(tokens)),
        budget_on_exceed=budget["on_exceed"],
        prices={model: _rates(price) for model, price in value["prices"].items()},
        triggers=tuple(value["triggers"]),
        review_command=tuple(value["review_command"]),
        notify=tuple(value["notify"]["command"]),
        protect=tuple(_listed(value["protect"])),
        branch=git["branch"],
        commit_artifacts=git["commit_artifacts"],
        verify=git["verify"],
        pipelines=tuple(value["pipelines"].items()),
        layout=value["layout"],
        workspace=value["workspace"],
        test_command=_command(value["test_command"]),
        max_tasks=int(value["phases"]["max_tasks"]),
        supervision=_supervision(value["supervision"]),
        origins=tuple((".".join(path), _shown(leaf), layers.origin(path)) for path, leaf in _leaves(value)),
    )


def _command(said: str | list[str]) -> tuple[str, ...]:
    """A command: a list is its argv, a text is run with sh -c."""
    return (("sh", "-c", said) if said.strip() else ()) if isinstance(said, str) else tuple(said)


def _supervision(said: Mapping[str, Any]) -> Supervision:
    return Supervision(
        said["signals"], int(said["parallel"]), int(said["retries"]), syntax.seconds(said["stuck"]),
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


def _rates(price: Mapping[str, Any]) -> dict[str, float]:
    return {word: float(usd) for word, usd in price.items()}


def _time(limits: Mapping[str, object], word: str) -> float | None:
    return syntax.seconds(limits[word]) if word in limits else None


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
