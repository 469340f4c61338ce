"""One verb per file. A file offers ABOUT, EXAMPLES, `arguments(parser)` and a function named like the verb.

Here is how all of them print: text made safe for a terminal, tables, JSON.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def say(text: str = "") -> None:
    """A line for the person; what could fool a terminal is written out."""
    from doflow.util.text import clean

    sys.stdout.write(clean(text) + "\n")


def warn(text: str) -> None:
    from doflow.util.text import clean

    sys.stdout.flush()
    sys.stderr.write(clean(text) + "\n")


def say_json(value: object) -> None:
    """One JSON document; plain ASCII, so that no locale and no terminal can spoil it."""
    import json

    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def table(rows: Iterable[Sequence[str]], indent: str = "") -> None:
    """Columns as wide as their widest cell; the last one runs free."""
    kept = [tuple(" ".join(cell.split()) for cell in row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*kept, strict=True)]
    for row in kept:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        say(f"{indent}{'  '.join(cells)}".rstrip())
