"""A bug-fix session: this flow once more, in a folder below this run's, for what a report says. The one run inside a run.

It is a process of its own under the same lock, which it inherits. What it has done is in its own lock and ledger, so it goes
on where it was, too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from doflow.engine.jobs import runner as frame
from doflow.flow.model import Outcome, Status, Step
from doflow.guard.fence.fence import Fence
from doflow.runs import mutex as holder, session_layout as sessionpaths, step_logs as watching
from doflow.runs.context import STATE, World
from doflow.runs.job import Job
from doflow.util.process import environment, runner as process
from doflow.util.process.command import Command, Timeout
from doflow.util.records import replace

_SELF = "import sys; from doflow.cli.main import main; sys.exit(main())"


def run(step: Step, world: World, fence: Fence) -> Outcome:
    return frame.perform(Job(step, world.key(step), (), ()), world, fence, _session)


def _session(job: Job, world: World, attempt: int) -> Outcome:
    report = world.path(job.step.reads[0].path)
    folder = _folder(world, world.place.text(report) or "")
    world.ledger.add("session", step=job.step.id, dir=folder, message=f"bug-fix session {folder}/")
    log = watching.log_path(job, world, attempt)
    Path(log).unlink(missing_ok=True)
    env = environment.for_shell(world.environ, {sessionpaths.FLAG: "true", holder.LENT: "3"})
    command = Command(_argv(folder, report, world), env=env, cwd=str(world.root))
    with process.lending(holder.mine(world.root)):
        limits = job.step.timeout or Timeout(0, 0)
        result = process.run(command, log, log, limits, watching.beat(job, world, log))
    world._head = None  # it has committed on the same branch
    if result.stopped == "cancelled":
        return Outcome(Status.CANCELLED, "interrupted")
    return _outcome(result.code if not result.stopped else 1, folder, process.tail(log, 1500), world)


def _folder(world: World, text: str) -> str:
    """The session that was begun for this very report, else the next one."""
    above = f"{world.run.dir}/{sessionpaths.BUGFIX}"
    there = sorted(os.listdir(world.root / above)) if (world.root / above).is_dir() else []
    mine = [name for name in there if name.endswith(f"_{sessionpaths.hashed(text)}")]
    return f"{above}/{mine[-1]}" if mine else sessionpaths.folder(above, there, text)


def _argv(folder: str, report: str, world: World) -> tuple[str, ...]:
    words = [f"--feature-dir={folder}", f"--prd={report}", f"--branch={world.run.branch}"]
    words += [f"--issue={world.run.issue}"] if world.run.issue else []
    words += [f"--agent={world.options.agent}"] if world.options.agent else []
    words += ["--auto-approve"] if world.options.auto_approve else []
    words += ["--reopen"] if world.options.reopen else []
    return (sys.executable, "-P", "-c", _SELF, "run", world.flow.name, *words)


def _outcome(code: int, folder: str, said: str, world: World) -> Outcome:
    """How the session ended, as its exit code and its state tell it."""
    name = sessionpaths.name(folder)
    state = _state(world.root / STATE / "runs" / name / "pipeline-state.json")
    why = state.get("pauseReason") or said.strip() or f"it ended with exit code {code}"
    hint = f"doflow status {name} shows where it stands; then: {world.again}"
    told = Outcome(Status.FAILED, f"the bug-fix session {folder} did not succeed: {why}", hint)
    if code == 0 and state.get("status") == "completed":
        return Outcome(Status.DONE, marker=name.rpartition(".")[2])
    if code == 2:
        return replace(told, status=Status.PAUSED, reason=f"the bug-fix session {folder} waits: {why}")
    if code == 3:
        resume_at = str(state.get("resumeAt", ""))
        return replace(told, status=Status.RATE_LIMITED, reason=why, hint="", resume_at=resume_at)
    return replace(told, status=Status.CANCELLED) if code == 130 else told


def _state(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
