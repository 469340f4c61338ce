"""What no run of a flow could do well, seen in its words alone: refused before the first call is paid for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from doflow import notation
from doflow.draft import Entry
from doflow.errors import Problem
from doflow.model import Step


def problems(pairs: Sequence[tuple[Entry, Step]]) -> Iterator[Problem]:
    for entry, step in pairs:
        if step.foreach and step.makes:
            yield from _of_items(entry, step)


def _of_items(entry: Entry, step: Step) -> Iterator[Problem]:
    """Every item makes files of its own."""
    listed = step.foreach if isinstance(step.foreach, tuple) else ()
    for index, said in enumerate(step.makes):
        named = notation.params(said)
        at = ("makes", index) if isinstance(entry.value["makes"], list) else ("makes",)
        if len(listed) != 1 and not any(name in ("item", "index") or name.startswith("item_") for name in named):
            hint = "put {item} or {index} into its name, or for items with keys {item_name}"
            yield entry.problem(at, f"every item would make the same file {said!r}", hint)
        elif "index" not in named:
            for place, item in enumerate(listed):
                if item in listed[:place]:
                    hint = "leave one out, or put {index} into `makes`"
                    yield entry.problem(
                        ("foreach", place), f"the item {item!r} is listed twice: both make one file", hint
                    )
                    return
