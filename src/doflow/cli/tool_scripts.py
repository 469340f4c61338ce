"""The eleven tools under names of their own: `doflow-signal-guardian …` is `doflow runner signal-guardian …`."""

from __future__ import annotations

import os
import sys

from doflow.cli.main import main

GUARDIAN = ("spawn-runner", "wait-for-signal", "read-signal", "respond-to-runner", "escalate-to-terminal")
RUNNER = (
    *("spawn-orchestrator", "capture-output", "send-to-orchestrator", "signal-guardian", "wait-for-guardian"),
    "check-orchestrator-alive",
)


def tool() -> int:
    """Which tool is meant says the name that we were started under."""
    name = os.path.basename(sys.argv[0]).removesuffix(".py").removesuffix(".exe").removeprefix("doflow-")
    return main(["guardian" if name in GUARDIAN else "runner", name, *sys.argv[1:]])
