"""Machines from YAML: found, held against their schema, proved, and compiled into the tables that `rules` reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doflow.flow.parsing import loader as load, schema, syntax as notation
from doflow.flow.parsing.document import Doc
from doflow.hooks import machine_check as proof, session_store as store
from doflow.util.errors import FlowError, Problem, UsageError

if TYPE_CHECKING:
    from doflow.hooks.state_machine import Machine

Place = tuple[str | int, ...]

FOLDER = "machines"
HISTORY = 1000
LIMIT = 20_000


def places(root: str | os.PathLike[str], name: str) -> tuple[Path, Path]:
    """Where a machine may stand: the project's own wins over the packaged one."""
    file = f"{notation.name(name)}.yaml"
    return Path(root) / "flows" / FOLDER / file, load.packaged() / FOLDER / file


def names(root: str | os.PathLike[str]) -> tuple[str, ...]:
    folders = (load.packaged() / FOLDER, Path(root) / "flows" / FOLDER)
    return tuple(sorted({path.stem for folder in folders if folder.is_dir() for path in folder.glob("*.yaml")}))


def compiled(root: str | os.PathLike[str], name: str) -> Machine:
    """The machine called `name` in a project, ready for use; FlowError with everything that is wrong in it."""
    try:
        found = places(root, name)
    except notation.Bad as error:
        raise UsageError(f"{error.message}: a machine cannot be called so", error.hint) from error
    signs = [[str(path), _sign(path)] for path in found]
    path = next((path for path in found if path.is_file()), None)
    if path is None:
        known = ", ".join(names(root)) or "none"
        raise UsageError(
            f"there is no machine {name!r} (there are: {known})", f"write flows/machines/{name}.yaml, or name another"
        )
    return file(path, os.path.relpath(path, root) if path == found[0] else str(path)) | {"sources": signs}


def file(path: Path, shown: str = "") -> Machine:
    """One machine from a file anywhere."""
    doc = load.document(path, shown or str(path))
    faults = schema.faults(doc.value, "machine")
    if faults:
        raise FlowError(tuple(doc.problem(f.path, f.message, f.hint, f.key) for f in faults))
    if doc.value["machine"] != path.stem:
        hint = f"write `machine: {path.stem}`, or rename the file"
        raise FlowError((doc.problem(("machine",), "the name is not the file's", hint),))
    machine, problems = _build(doc)
    problems = problems or [doc.problem(*found) for found in proof.problems(machine)]
    if problems:
        raise FlowError(tuple(problems))
    return machine


def keep(path: str, machine: Machine) -> None:
    """Put the compiled form where hooks find it."""
    import json

    store.replace(path, json.dumps(machine).encode())


def _sign(path: Path) -> list[int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size]


def _build(doc: Doc) -> tuple[Machine, list[Problem]]:
    value = doc.value
    groups: dict[str, list[str]] = value.get("groups", {})
    problems: list[Problem] = []
    states = {name: _state(rules, groups) for name, rules in value["states"].items()}
    first = next(iter(states))
    try:
        expires = notation.seconds(value.get("expires", 0))
    except notation.Bad as bad:
        expires = 0.0
        problems.append(doc.problem(("expires",), bad.message, bad.hint))
    machine = {
        "machine": value["machine"], "about": value.get("about", ""), "start": value.get("start", first),
        "complete": value.get("complete", ""), "stages": value.get("stages", []), "expires": expires,
        "history": value.get("history", HISTORY), "states": states,
        "context": {slot: _slot(rule, groups) for slot, rule in value.get("context", {}).items()},
    }  # fmt: skip
    return machine, problems + _unknown(doc, machine, groups)


def _state(rules: dict[str, Any], groups: dict[str, list[str]]) -> dict[str, Any]:
    moves = {when: _expanded(rules.get(when, {}), groups) for when in ("on_start", "on_stop")}
    allow = _expanded(dict.fromkeys(rules.get("allow", ()), True), groups)
    return {"about": rules.get("about", ""), "inject": rules.get("inject", ""), "allow": allow, **moves}


def _slot(rule: dict[str, Any], groups: dict[str, list[str]]) -> dict[str, Any]:
    agents = _expanded({rule["agent"]: True}, groups)
    return {"agents": agents, "section": rule.get("section", ""), "limit": rule.get("limit", LIMIT)}


def _expanded(table: dict[str, Any], groups: dict[str, list[str]]) -> dict[str, Any]:
    """A group's name stands for its members; what is said of a member itself comes first."""
    found: dict[str, Any] = {name: value for name, value in table.items() if name not in groups}
    for name, value in table.items():
        for member in groups.get(name, ()):
            found.setdefault(member, value)
    return found


def _unknown(doc: Doc, machine: Machine, groups: dict[str, list[str]]) -> list[Problem]:
    """States that are named and not there, moves of agents that are not allowed, names that are no names."""
    states, value = machine["states"], doc.value
    said: list[tuple[Place, str]] = [((word,), machine[word]) for word in ("start", "complete") if machine[word]]
    said += [(("stages", place), name) for place, name in enumerate(machine["stages"])]
    said += [
        (("states", name, when, agent), to)
        for name, rules in value["states"].items()
        for when in ("on_start", "on_stop")
        for agent, to in rules.get(when, {}).items()
    ]
    hint = f"states: {', '.join(states)}"
    found = [doc.problem(path, f"there is no state {name!r}", hint) for path, name in said if name not in states]
    names: list[tuple[Place, str]] = [
        (("groups", group, at), name) for group, list_ in groups.items() for at, name in enumerate(list_)
    ]
    names += [
        (("states", state, "allow", at), n)
        for state, r in value["states"].items()
        for at, n in enumerate(r.get("allow", ()))
    ]
    odd = "a * stands at the end of a prefix, and nowhere else: bash-*"
    found += [doc.problem(path, f"{name!r} is no name and no prefix", odd) for path, name in names if "*" in name[:-1]]
    return found
