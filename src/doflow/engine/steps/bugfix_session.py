"""A bug-fix session: the same flow for a bug report, in a folder below this run's. The only nested run.

It is a separate process that inherits the run lock. It has its own lock file and event log, so it can be resumed, too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from doflow.engine.jobs import job_runner
from doflow.flow.model import Outcome, Status, Step
from doflow.guard.workspace.interface import Workspace
from doflow.runs import jobs, mutex, next_steps, session_layout
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util import state_folder
from doflow.util.hints import Next
from doflow.util.process import environment, runner as process
from doflow.util.process.runner import Command, Timeout

_SELF = "import sys; from doflow.cli.main import main; sys.exit(main())"


def run(step: Step, context: RunContext, fence: Workspace) -> Outcome:
    return job_runner.run_job(Job(step, context.key(step), (), ()), context, fence, _session)


def _session(job: Job, context: RunContext, attempt: int) -> Outcome:
    report = context.files.path(job.step.reads[0].path)
    folder = _folder(context, context.files.text(report) or "")
    context.events.add("session", step=job.step.id, dir=folder, message=f"bug-fix session {folder}/")
    log = jobs.log_path(job, context, attempt)
    Path(log).unlink(missing_ok=True)
    env = environment.for_shell(context.environ, {session_layout.FLAG: "true", mutex.LENT: "3"})
    command = Command(_argv(folder, report, context), env=env, cwd=str(context.root))
    with process.lending(mutex.own_descriptor(context.root)):
        limits = job.step.timeout or Timeout(0, 0)
        result = process.run(command, log, log, limits, jobs.heartbeat(job, context, log))
    context.reload_git()  # it committed on the same branch
    if result.stopped == "cancelled":
        return Outcome(Status.CANCELLED, "interrupted")
    return _outcome(result.code if not result.stopped else 1, folder, process.tail(log, 1500), context)


def _folder(context: RunContext, text: str) -> str:
    """The session started for this report, else a new one."""
    above = f"{context.run.dir}/{session_layout.BUGFIX}"
    there = sorted(os.listdir(context.root / above)) if (context.root / above).is_dir() else []
    same = [name for name in there if name.endswith(f"_{session_layout.session_hash(text)}")]
    return f"{above}/{same[-1]}" if same else session_layout.new_session_folder(above, there, text)


def _argv(folder: str, report: str, context: RunContext) -> tuple[str, ...]:
    words = [f"--feature-dir={folder}", f"--prd={report}", f"--branch={context.run.branch}"]
    words += [f"--issue={context.run.issue}"] if context.run.issue else []
    words += [f"--agent={context.options.agent}"] if context.options.agent else []
    words += ["--auto-approve"] if context.options.auto_approve else []
    words += ["--reopen"] if context.options.reopen else []
    return (sys.executable, "-P", "-c", _SELF, "run", context.flow.name, *words)


def _outcome(code: int, folder: str, output: str, context: RunContext) -> Outcome:
    """The outcome of the session, from its exit code and its state file."""
    name = session_layout.run_name(folder)
    state = _state(context.root / state_folder.RUNS / name / "pipeline-state.json")
    why = state.get("pauseReason") or output.strip() or f"it ended with exit code {code}"
    steps = (Next(("doflow", "status", name), does="shows its status"), next_steps.resume(context, link="then"))
    if code == 0 and state.get("status") == "completed":
        return Outcome(Status.DONE, marker=name.rpartition(".")[2])
    if code == 2:
        return Outcome(Status.PAUSED, f"the bug-fix session {folder} waits: {why}", next=steps)
    if code == 3:
        return Outcome(Status.RATE_LIMITED, why, resume_at=str(state.get("resumeAt", "")))
    status = Status.CANCELLED if code == 130 else Status.FAILED
    return Outcome(status, f"the bug-fix session {folder} did not succeed: {why}", next=steps)


def _state(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
