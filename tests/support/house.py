"""The house as it is: its modules, what each imports, how long its functions are. Read from the sources alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[2]
SOURCES = TOP / "src" / "doflow"
TESTS = TOP / "tests"


def modules(root: Path = SOURCES) -> dict[str, Path]:
    """Every module by its name inside the package; the package itself is `__init__`, a folder its own name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each import anywhere in a file, the lazy ones too: the module, and the names taken from it."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            yield node.module or "", tuple(alias.name for alias in node.names)


def within(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the house that a file imports."""
    found = set()
    for module, names in imports(path):
        if module == "doflow" or module.startswith("doflow."):
            base = module[len("doflow.") :]
            rooms = [f"{base}.{name}" if base else name for name in names]
            found |= {room if room in known else base or "__init__" for room in rooms or [""]}
    return found - {name for name, file in known.items() if file == path}


def libraries(path: Path) -> set[str]:
    """The first part of every import."""
    return {module.partition(".")[0] for module, _ in imports(path)}


def functions(path: Path) -> Iterator[tuple[str, int, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function: its name with its class, and its lines of code (no docstring, no blank, no comment)."""
    lines = path.read_text(encoding="utf-8").splitlines()

    def walk(node: ast.AST, where: str) -> Iterator[tuple[str, int, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{where}{child.name}", _code(child, lines), child
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            yield from walk(child, f"{where}{getattr(child, 'name', '')}." if named else where)

    yield from walk(tree(path), "")


def _code(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    skipped = set()
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        skipped = set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    body = [(number, lines[number - 1].strip()) for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)]
    return sum(1 for number, line in body if line and not line.startswith("#") and number not in skipped)


def percentile(values: list[int], share: float) -> int:
    """The smallest value that `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(share * 100) // 100) - 1)]
