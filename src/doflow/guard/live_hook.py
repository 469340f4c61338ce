"""The live fence: Claude Code and Codex ask before they write, and are told at once what their step may not.

Given with the call (`--settings`, `-c`), never written into the project. An early word only: the comparison after the step
is the judge.
"""

from __future__ import annotations

import json
import os

from doflow.flow.model import Ask, Hook
from doflow.guard.fence.scope import Scope
from doflow.hooks import call_settings as settings
from doflow.runs.context import World
from doflow.runs.job import Job
from doflow.util import atomic_files as files
from doflow.util.records import replace

_TOOLS = {
    "claude": "Write|Edit|MultiEdit|NotebookEdit|Bash",
    "codex": "apply_patch|Edit|Write|Bash",
}


def arm(ask: Ask, job: Job, world: World, log: str) -> Ask:
    """The call with a hook that knows the step's scope."""
    path = f"{log.removesuffix('.log')}.scope.json"
    scope = Scope(job, world)
    told = {
        "root": str(world.root), "step": job.name, "makes": sorted(scope.makes), "protect": scope.protect,
        "writes": None if scope.writes is None else list(scope.writes), "earlier": sorted(scope.earlier),
    }  # fmt: skip
    os.makedirs(os.path.dirname(path), exist_ok=True)
    files.write(path, json.dumps(told).encode(), sync=False)
    hook = Hook("PreToolUse", settings.command("write", "--scope", path), _TOOLS[ask.profile.use], closed=True)
    return replace(ask, hooks=(*ask.hooks, hook))
