"""Is every room on its floor? The table stands in docs/house.md; it is read from there, so that it cannot lie."""

from __future__ import annotations

import re

from tests.support import house

PAGE = house.TOP / "docs" / "house.md"
ROW = re.compile(r"^\| (\d+) \| ((?:`[\w.*]+` ?)+)\|", re.M)


def floors() -> dict[str, int]:
    """Each room of the page with its floor; `repo.*` stands for all rooms of that family that are not named."""
    found: dict[str, int] = {}
    for number, names in ROW.findall(PAGE.read_text(encoding="utf-8")):
        for name in re.findall(r"`([\w.*]+)`", names):
            assert name not in found, f"docs/house.md has {name} on two floors"
            found[name] = int(number)
    return found


def floor(module: str, table: dict[str, int]) -> int:
    return table.get(module, table.get(f"{module.partition('.')[0]}.*", -1))


def family(module: str) -> str:
    return module.partition(".")[0] if "." in module else ""


def test_every_module_is_in_the_table_and_every_room_of_the_table_exists() -> None:
    known, table = house.modules(), floors()

    lost = [module for module in known if floor(module, table) < 0]
    gone = [room for room in table if room not in known and not any(room == f"{family(name)}.*" for name in known)]

    assert (lost, gone) == ([], []), "docs/house.md: a module without a floor, or a room without a module"


def test_a_module_imports_only_from_floors_below_or_from_its_own_family() -> None:
    known, table = house.modules(), floors()
    wrong = []
    for module, path in known.items():
        for other in sorted(house.within(path, known)):
            if family(module) and family(module) in (family(other), other):
                continue
            if floor(other, table) >= floor(module, table):
                wrong.append(f"{module} ({floor(module, table)}) imports {other} ({floor(other, table)})")

    assert wrong == []


def test_no_imports_go_in_a_circle_not_even_lazy_ones() -> None:
    known = house.modules()
    graph = {module: sorted(house.within(path, known)) for module, path in known.items()}

    assert _circle(graph) == []


def test_a_circle_would_be_found() -> None:
    assert _circle({"a": ["b"], "b": ["c"], "c": ["a"], "d": []}) == ["a", "b", "c", "a"]


def _circle(graph: dict[str, list[str]]) -> list[str]:
    done: set[str] = set()

    def follow(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module) :], module]
        if module in done:
            return []
        for other in graph.get(module, []):
            if found := follow(other, [*way, module]):
                return found
        done.add(module)
        return []

    return next((found for module in graph if (found := follow(module, []))), [])
