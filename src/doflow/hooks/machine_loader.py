"""Load machines from YAML: find them, validate them, and compile them into the tables that `state_machine` reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doflow.flow.parsing import loader, schema, syntax
from doflow.flow.parsing.document import Doc
from doflow.hooks import state_machine
from doflow.util import file_signature
from doflow.util.errors import FlowError, Problem, UsageError

if TYPE_CHECKING:
    from doflow.hooks.state_machine import Machine

Place = tuple[str | int, ...]
Found = tuple[Place, str, str]  # where, what is wrong, and a hint

FOLDER = "machines"
HISTORY = 1000
LIMIT = 20_000


def machine_paths(root: str | os.PathLike[str], name: str) -> tuple[Path, Path]:
    """The files that can define a machine: the project's own comes before the packaged one."""
    file = f"{syntax.name(name)}.yaml"
    return Path(root) / "flows" / FOLDER / file, loader.packaged_flows() / FOLDER / file


def machine_names(root: str | os.PathLike[str]) -> tuple[str, ...]:
    folders = (loader.packaged_flows() / FOLDER, Path(root) / "flows" / FOLDER)
    return tuple(sorted({path.stem for folder in folders if folder.is_dir() for path in folder.glob("*.yaml")}))


def load_machine(root: str | os.PathLike[str], name: str) -> Machine:
    """The machine `name` of a project, compiled; FlowError with every problem in it."""
    try:
        found = machine_paths(root, name)
    except syntax.InvalidSyntax as error:
        raise UsageError(f"{error.message}: not a valid machine name", error.hint) from error
    signs = [[str(path), file_signature.from_path(path)] for path in found]
    path = next((path for path in found if path.is_file()), None)
    if path is None:
        known = ", ".join(machine_names(root)) or "none"
        raise UsageError(
            f"unknown machine {name!r} (available: {known})", f"create flows/machines/{name}.yaml, or use another name"
        )
    return load_machine_file(path, os.path.relpath(path, root) if path == found[0] else str(path)) | {"sources": signs}


def load_machine_file(path: Path, shown: str = "") -> Machine:
    """Load one machine from any file."""
    doc = loader.load_document(path, shown or str(path))
    faults = schema.faults(doc.value, "machine")
    if faults:
        raise FlowError(tuple(doc.problem(f.path, f.message, f.hint, f.key) for f in faults))
    if doc.value["machine"] != path.stem:
        hint = f"write `machine: {path.stem}`, or rename the file"
        raise FlowError((doc.problem(("machine",), "the machine's name differs from the file name", hint),))
    machine, problems = _build(doc)
    problems = problems or [doc.problem(*found) for found in machine_problems(machine)]
    if problems:
        raise FlowError(tuple(problems))
    return machine


def _build(doc: Doc) -> tuple[Machine, list[Problem]]:
    value = doc.value
    groups: dict[str, list[str]] = value.get("groups", {})
    problems: list[Problem] = []
    states = {name: _state(rules, groups) for name, rules in value["states"].items()}
    first = next(iter(states))
    try:
        expires = syntax.seconds(value.get("expires", 0))
    except syntax.InvalidSyntax as bad:
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
    """Replace a group by its members; an entry for a member itself takes precedence."""
    found: dict[str, Any] = {name: value for name, value in table.items() if name not in groups}
    for name, value in table.items():
        for member in groups.get(name, ()):
            found.setdefault(member, value)
    return found


def _unknown(doc: Doc, machine: Machine, groups: dict[str, list[str]]) -> list[Problem]:
    """Unknown states and invalid agent names."""
    states: list[tuple[Place, str]] = [((word,), machine[word]) for word in ("start", "complete") if machine[word]]
    states += [(("stages", at), state) for at, state in enumerate(machine["stages"])]
    agents: list[tuple[Place, str]] = []
    for group, members in groups.items():
        agents += [(("groups", group, at), agent) for at, agent in enumerate(members)]
    for name, rules in doc.value["states"].items():
        for when in ("on_start", "on_stop"):
            states += [(("states", name, when, agent), to) for agent, to in rules.get(when, {}).items()]
        agents += [(("states", name, "allow", at), agent) for at, agent in enumerate(rules.get("allow", ()))]
    known, star = f"states: {', '.join(machine['states'])}", "a * is only allowed at the end of a prefix: bash-*"
    return [
        *(
            doc.problem(path, f"unknown state {name!r}", known)
            for path, name in states
            if name not in machine["states"]
        ),
        *(
            doc.problem(path, f"{name!r} isn't an agent name or prefix", star)
            for path, name in agents
            if "*" in name[:-1]
        ),
    ]


def machine_problems(machine: Machine) -> Iterator[Found]:
    """Every problem of a machine: where, what, and a hint."""
    yield from _forbidden(machine)
    yield from _unreachable(machine)
    yield from _skipped(machine)
    yield from _early(machine)


def reachable_states(machine: Machine, without: str = "") -> dict[str, list[str]]:
    """Every reachable state with the calls of a shortest path to it; `without` is never entered."""
    entries = (machine["start"], machine["complete"])
    found: dict[str, list[str]] = {state: [] for state in entries if state and state != without}
    queue = list(found)
    for state in queue:
        for agent, to in state_moves(machine, state):
            if to != without and to not in found:
                found[to] = [*found[state], agent]
                queue.append(to)
    return found


def state_moves(machine: Machine, state: str) -> Iterator[tuple[str, str]]:
    """The moves out of a state: agent and next state."""
    table = machine["states"][state]
    for when in ("on_start", "on_stop"):
        yield from table[when].items()


def _forbidden(machine: Machine) -> Iterator[Found]:
    """A move by an agent that the state doesn't allow can never happen."""
    for state, table in machine["states"].items():
        for when in ("on_start", "on_stop"):
            for agent in table[when]:
                if agent not in table["allow"] and not state_machine.lookup(table["allow"], agent.removesuffix("*")):
                    hint = f"add it to `allow` of {state}, or remove the move"
                    yield ("states", state, when), f"{state} has a move for {agent}, but doesn't allow it", hint


def _unreachable(machine: Machine) -> Iterator[Found]:
    reached = reachable_states(machine)
    for state in machine["states"]:
        if state not in reached:
            hint = "add a move to it (on_stop, on_start), or remove the state"
            yield ("states", state), f"no sequence of allowed calls reaches {state}", hint


def _skipped(machine: Machine) -> Iterator[Found]:
    stages = machine["stages"]
    for place, stage in enumerate(stages[2:], 2):  # a round starts in the first stage, so it can't be skipped
        before = stages[place - 1]
        way = reachable_states(machine, before).get(stage)
        if way is not None:
            calls = " -> ".join(way) or "no call at all"
            hint = f"allow {stage} only after {before}, or change `stages`"
            yield ("stages", place), f"{stage} can be reached without {before}: {calls}", hint


def _early(machine: Machine) -> Iterator[Found]:
    """An agent of a later stage must not be allowed in an earlier one."""
    stages = machine["stages"]
    for place, early in enumerate(stages):
        for late in stages[place + 1 :]:
            for agent, _ in state_moves(machine, late):
                if any(agent == name for name, _ in state_moves(machine, early)):
                    continue
                pattern = _allowing(machine["states"][early]["allow"], agent)
                if pattern:
                    message = f"{early} allows {pattern}, so {agent} could run before its stage {late}"
                    yield ("states", early, "allow"), message, f"remove {pattern} from `allow` of {early}"


def _allowing(allow: dict[str, bool], agent: str) -> str:
    """The entry of `allow` that matches an agent, or an agent with that prefix."""
    stem = agent.removesuffix("*")
    for pattern in allow:
        start = pattern.removesuffix("*")
        inside = pattern != start and stem.startswith(start)
        if pattern == agent or inside or (agent != stem and start.startswith(stem)):
            return pattern
    return ""
