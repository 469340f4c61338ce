"""`doflow run` through doit: the part of the command that runs something."""

from __future__ import annotations

import difflib
import os
from argparse import Namespace

from doflow.cli.commands import plan
from doflow.cli.commands.run import FLAGS
from doflow.config import project
from doflow.engine.doit import namespace
from doflow.engine.doit.namespace import Bridge
from doflow.engine.lifecycle import resolve_run
from doflow.engine.lifecycle.session import Session
from doflow.util.errors import UsageError

_VALUES = (
    "flow", "goal", "run", "feature-dir", "branch", "project-dir", "dry-run", "completed", "issue", "agent",
    "budget", "force", "redo", "task", "jobs",
)  # fmt: skip
#: options that are not handed to doit
_OURS = ("flow", "json", "project-dir", "jobs")
_DRY = frozenset({"flow", "goal", "run", "json", "project-dir", "jobs", "dry-run", "next", "record"})


def run_flow(root: str, asked: dict[str, str]) -> int:
    """Run through doit, as `doit FLOW` does; with --dry-run only print the prompt of a step."""
    if not os.path.isdir(root):
        raise UsageError(f"{root} is not a folder", "name an existing folder with --project-dir")
    os.chdir(root)
    if "dry-run" in asked:
        return _show_prompt(root, asked)
    from doit.cmd_base import ModuleTaskLoader
    from doit.doit_cmd import DoitMain

    names = namespace.dodo_names(root, [asked["flow"]] if asked.get("flow") else [])
    bridge = names[namespace.BRIDGE]
    assert isinstance(bridge, Bridge)
    session = bridge.session
    session.json = "json" in asked
    if not asked.get("flow"):
        asked = _completed(asked, session)
    _check_options(asked, session.project.params.get(asked.get("flow", "").partition(":")[0], []))

    class Main(DoitMain):  # type: ignore[misc]
        BIN_NAME = "doflow"

        def process_args(self, args: list[str]) -> list[str]:
            return args  # no argument sets a doit variable, whatever it contains

    jobs = ["-n", asked["jobs"]] if asked.get("jobs") else []
    flow = [asked["flow"]] if asked.get("flow") else []
    given = {name: value for name, value in asked.items() if name not in (*_OURS, "help")}
    options = [f"--{name}" if name in FLAGS else f"--{name}={value}" for name, value in given.items()]
    return int(Main(ModuleTaskLoader(names)).run(["run", *jobs, *flow, *options]))


def _completed(asked: dict[str, str], session: Session) -> dict[str, str]:
    """Options without a flow apply to the run of this branch, or to the named run."""
    if all(name in _OURS for name in asked):
        return asked
    _check_options(asked, [])
    for name in ("goal", "new"):
        if name in asked:
            hint = f"doflow run FLOW --{name}{' …' * (name == 'goal')}"
            raise UsageError(f"--{name} starts a run, so it needs a flow", hint)
    found = resolve_run.default_arguments(session, asked.get("run", "") or asked.get("feature-dir", ""))
    if not found:
        raise UsageError("no run to continue", "doflow run FLOW --goal '…'")
    flow, run = found
    kept = {name: value for name, value in asked.items() if name != "feature-dir"}
    return {**kept, "flow": flow, "run": run.partition("=")[2]}


def _check_options(asked: dict[str, str], params: list[tuple[str, str, bool, str]]) -> None:
    known = [*_VALUES, *FLAGS, *(param[0] for param in params)]
    for name in asked:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean --{near[0]}?" if near else "doflow run --help"
            raise UsageError(f"unknown option: --{name}", hint)


def _show_prompt(root: str, asked: dict[str, str]) -> int:
    """Print the exact prompt, like `doflow plan --prompt`."""
    flow, _, step = asked["dry-run"].partition(":")
    opened = project.open_project(project.find(root), os.environ)
    if flow in opened.about and opened.flow(flow).step(step.partition(":")[0]):
        asked.setdefault("flow", flow)
    _check_options(asked, opened.params.get(asked.get("flow", ""), []))
    given = {name.replace("-", "_"): value for name, value in asked.items() if name not in _DRY}
    options = {"flow": asked.get("flow", ""), "run": asked.get("run", ""), "goal": asked.get("goal")}
    return plan.plan(Namespace(**options, prompt=asked["dry-run"], json="json" in asked, given=given))
