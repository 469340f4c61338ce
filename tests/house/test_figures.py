"""The figures we keep: short functions, short files, everything typed, more test than source."""

from __future__ import annotations

import ast

from tests.support import house

FUNCTION_P95, FUNCTION_MAX = 25, 40
FILE_P95, FILE_MAX = 250, 350
TESTS_TO_SOURCE = 0.75  # on the way to 1.3


def _functions() -> dict[str, int]:
    return {
        f"{module}.{name}": lines
        for module, path in house.modules().items()
        for name, lines, _ in house.functions(path)
    }


def _files() -> dict[str, int]:
    return {module: len(path.read_text(encoding="utf-8").splitlines()) for module, path in house.modules().items()}


def test_functions_are_short() -> None:
    lengths = _functions()

    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_MAX} == {}
    assert house.percentile(list(lengths.values()), 0.95) <= FUNCTION_P95


def test_files_are_short() -> None:
    lengths = _files()

    assert {name: lines for name, lines in lengths.items() if lines > FILE_MAX} == {}
    assert house.percentile(list(lengths.values()), 0.95) <= FILE_P95


def test_every_function_is_typed() -> None:
    bare = [
        f"{module}.{name}"
        for module, path in house.modules().items()
        for name, _, node in house.functions(path)
        if node.returns is None or any(given.annotation is None for given in _given(node))
    ]

    assert bare == []


def _given(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    args = node.args
    extra = [given for given in (args.vararg, args.kwarg) if given]
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *extra]
    return [given for given in every if given.arg not in ("self", "cls")]


def test_every_module_says_what_it_is() -> None:
    silent = [module for module, path in house.modules().items() if not ast.get_docstring(house.tree(path))]

    assert silent == []


def test_there_is_as_much_test_as_source() -> None:
    source, tests = (
        sum(1 for path in root.rglob("*.py") for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
        for root in (house.SOURCES, house.TESTS)
    )

    assert tests / source >= TESTS_TO_SOURCE


def test_a_percentile_is_the_value_that_so_many_do_not_exceed() -> None:
    assert [house.percentile(list(range(1, 101)), share) for share in (0.5, 0.95, 1.0)] == [50, 95, 100]
    assert house.percentile([7], 0.95) == 7
