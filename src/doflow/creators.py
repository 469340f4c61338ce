"""Task creators for doit, in a file of their own: doit reads the source of each to order them, so it is short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def creator(flow: str, build: Callable[[str, dict[str, Any]], Iterator[Any]], params: list[dict[str, Any]]) -> Any:
    def create(**given: Any) -> Iterator[Any]:
        yield from build(flow, given)

    create._task_creator_params = params  # type: ignore[attr-defined]
    return create
