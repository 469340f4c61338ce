"""`doflow …`: arguments in, exit code out. The fast answer comes before anything is imported."""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    from doflow import run

    return run.main(words)
