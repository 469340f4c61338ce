"""The proof of a machine: every state can be reached, and no sequence of allowed calls skips a stage. Pure.

A round begins in the first state, or in the one that a person sets when work is complete. From there every allowed call
is followed, and of a stage that can be reached without the stage before it the calls are named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from doflow.hooks import state_machine as rules

if TYPE_CHECKING:
    from doflow.hooks.state_machine import Machine

Found = tuple[tuple[str | int, ...], str, str]


def problems(machine: Machine) -> Iterator[Found]:
    """Where, what, and what to do: of everything that is wrong."""
    yield from _forbidden(machine)
    yield from _unreachable(machine)
    yield from _skipped(machine)
    yield from _early(machine)


def ways(machine: Machine, without: str = "") -> dict[str, list[str]]:
    """Every state that allowed calls lead to, and the calls of a shortest way there; `without` is never entered."""
    found: dict[str, list[str]] = {state: [] for state in _entries(machine) if state != without}
    queue = list(found)
    for state in queue:
        for agent, to in moves(machine, state):
            if to != without and to not in found:
                found[to] = [*found[state], agent]
                queue.append(to)
    return found


def moves(machine: Machine, state: str) -> Iterator[tuple[str, str]]:
    """Which agents lead where from a state."""
    table = machine["states"][state]
    for when in ("on_start", "on_stop"):
        yield from table[when].items()


def _entries(machine: Machine) -> list[str]:
    return [state for state in (machine["start"], machine["complete"]) if state]


def _forbidden(machine: Machine) -> Iterator[Found]:
    """A move of an agent that is not allowed there can never happen: one of the two is a mistake."""
    for state, table in machine["states"].items():
        for when in ("on_start", "on_stop"):
            for agent in table[when]:
                if agent not in table["allow"] and not rules.match(table["allow"], agent.removesuffix("*")):
                    hint = f"add it to `allow` of {state}, or take the move away"
                    yield ("states", state, when), f"{agent} is to move {state} on, and {state} does not allow it", hint


def _unreachable(machine: Machine) -> Iterator[Found]:
    reached = ways(machine)
    for state in machine["states"]:
        if state not in reached:
            hint = "let an agent lead there (on_stop, on_start), or take the state away"
            yield ("states", state), f"no sequence of allowed calls reaches {state}", hint


def _skipped(machine: Machine) -> Iterator[Found]:
    stages = machine["stages"]
    for place, stage in enumerate(stages):
        if place < 2:  # the first stage is where a round begins; whoever leaves it has passed it
            continue
        before = stages[place - 1]
        way = ways(machine, before).get(stage)
        if way is not None:
            calls = " -> ".join(way) or "nothing at all"
            hint = f"let only {before} lead to {stage}, or change `stages`"
            yield ("stages", place), f"{stage} can be reached without {before}: {calls}", hint


def _early(machine: Machine) -> Iterator[Found]:
    """An agent that does the work of a later stage must not be allowed before it."""
    stages = machine["stages"]
    for place, early in enumerate(stages):
        for late in stages[place + 1 :]:
            for agent, _ in moves(machine, late):
                if any(agent == name for name, _ in moves(machine, early)):
                    continue
                pattern = _allowing(machine["states"][early]["allow"], agent)
                if pattern:
                    message = f"{early} allows {pattern}, so {agent}, whose place is {late}, could run before its stage"
                    yield ("states", early, "allow"), message, f"take {pattern} out of `allow` of {early}"


def _allowing(allow: dict[str, bool], agent: str) -> str:
    """The entry of a list of allowed names that would let an agent, or some agent of a prefix, run."""
    stem = agent.removesuffix("*")
    for pattern in allow:
        start = pattern.removesuffix("*")
        if (
            pattern == agent
            or (pattern != start and stem.startswith(start))
            or (agent != stem and start.startswith(stem))
        ):
            return pattern
    return ""
