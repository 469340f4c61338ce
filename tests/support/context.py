"""A RunContext over a temporary folder, from the text of a flow and by the real loader, without any process.

    context = new_context(tmp_path, "one: {prompt: Write., makes: one.md}")
    step = context.step("one")

`flow` is the text of the steps, or of a whole flow when it names itself (`flow: tiny`, other keys, `steps:`). The run is
`001-login` on the branch main; its folder exists, and its lock and event log are read as they are on the disk.
"""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from doflow.config import settings
from doflow.flow import expansion, plan
from doflow.flow.model import Outcome, Status, Step
from doflow.flow.parsing import loader
from doflow.runs import catalogue, event_log
from doflow.runs.catalogue import Run
from doflow.runs.context import Options, RunContext, run_params
from doflow.runs.jobs import Job

GOAL = "Log in by a link"
RUN = "001-login"
AT = "2026-01-01T10:00:00Z"


def new_context(
    root: Path,
    flow: str,
    configuration: str = "",
    params: Mapping[str, str] | None = None,
    fresh: bool = False,
    **options: Any,
) -> RunContext:
    """`configuration`: the text of doflow.yaml; `options`: of the command line."""
    text = textwrap.dedent(flow)
    if "steps:" not in text:
        text = "flow: tiny\nsteps:\n" + textwrap.indent(text, "  ")
    path = write(root, "flows/tiny.yaml", text)
    if configuration:
        write(root, "doflow.yaml", textwrap.dedent(configuration))
    chosen = settings.load(root, {})
    found = loader.load_flow(path, root)
    run = Run(
        RUN, found.name, f"specs/{RUN}", GOAL, catalogue.digest(GOAL), "main", params=params or {}, fresh=fresh
    )  # fmt: skip
    (root / run.dir).mkdir(parents=True, exist_ok=True)
    context = RunContext(
        root, expansion.expand_flow(found, run_params(run, found)), run, chosen, plan.build_plan(found, chosen), {}, print,
        Options(**options), True,
    )  # fmt: skip
    context.state_dir.mkdir(parents=True, exist_ok=True)
    return context


def step_of(context: RunContext, name: str = "one") -> Step:
    found = context.step(name)
    assert found is not None, name
    return found


def new_job(context: RunContext, name: str = "one", **values: Any) -> Job:
    """The job of a step as the step itself would ask for it: it may write what it makes, and its `writes`."""
    step = step_of(context, name)
    makes = tuple(context.files.path(path) for path in step.makes)
    return Job(step, context.key(step), makes, **{"writes": step.writes or ()} | values)


def done(text: str = "", **values: Any) -> Outcome:
    return Outcome(Status.DONE, text=text, **values)


def write(root: Path, path: str, text: str | bytes) -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text.encode() if isinstance(text, str) else text)
    return target


def new_repository(root: Path) -> Path:
    """A repository with one commit of what is there, by a person whom it knows itself."""
    git(root, "init", "-q", "-b", "main")
    with (root / ".git" / "config").open("a") as config:
        config.write("[user]\n\tname = Ann\n\temail = ann@example.org\n[commit]\n\tgpgsign = false\n")
    write(root, ".gitignore", ".doflow/\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Begin")
    return root


def git(root: Path, *args: str) -> str:
    ended = subprocess.run(("git", "-C", str(root), *args), check=True, capture_output=True, text=True)
    return ended.stdout.strip()


def events(context: RunContext) -> list[str]:
    """The names of what the event log holds, in order."""
    return [entry["event"] for entry in event_log.read_events(context.state_dir / "events.jsonl")]
