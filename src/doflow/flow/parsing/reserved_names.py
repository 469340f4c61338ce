"""Names of doit's own commands, which no flow can have."""

from __future__ import annotations

#: doit's own; a flow cannot be called like one of them
COMMANDS = frozenset({
    "run", "list", "help", "info", "forget", "clean", "ignore", "dumpdb", "strace", "tabcompletion", "reset-dep", "auto",
})  # fmt: skip
