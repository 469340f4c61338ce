"""`doflow run` through doit: the part of the command that runs something."""

from __future__ import annotations

import difflib
import os
from argparse import Namespace

from doflow.cli.commands import plan
from doflow.cli.output import refuse
from doflow.config import project
from doflow.engine.doit import namespace
from doflow.engine.doit.namespace import Bridge
from doflow.engine.lifecycle import resolve_run
from doflow.engine.lifecycle.session import Session
from doflow.util.errors import DoflowError, UsageError

FLAGS = ("next", "record", "auto-approve", "reopen", "new", "json", "help")
_VALUES = (
    "flow", "goal", "run", "feature-dir", "branch", "project-dir", "dry-run", "completed", "issue", "agent",
    "budget", "force", "jobs",
)  # fmt: skip
_DRY = frozenset({"flow", "goal", "run", "json", "project-dir", "jobs", "dry-run", "next", "record"})


def run_flow(root: str, asked: dict[str, str]) -> int:
    """Run through doit, as `doit FLOW` does."""
    if not os.path.isdir(root):
        return refuse(f"{root} is not a folder", "json" in asked, "name an existing folder with --project-dir")
    os.chdir(root)
    from doit.cmd_base import ModuleTaskLoader
    from doit.doit_cmd import DoitMain

    try:
        names = namespace.dodo_names(root, [asked["flow"]] if asked.get("flow") else [])
    except DoflowError as error:
        return refuse(error.message, "json" in asked, error.hint)
    bridge = names[namespace.BRIDGE]
    assert isinstance(bridge, Bridge)
    session = bridge.session
    session.json = "json" in asked
    if not asked.get("flow"):
        try:
            asked = _completed(asked, session)
        except DoflowError as error:
            return refuse(error.message, "json" in asked, error.hint)
    unknown = _unknown(asked, session.project.params.get(asked.get("flow", "").partition(":")[0], []))
    if unknown:
        return refuse(unknown[0], _for_programs(asked), unknown[1])

    class Main(DoitMain):  # type: ignore[misc]
        BIN_NAME = "doflow"

        def process_args(self, args: list[str]) -> list[str]:
            return args  # no argument sets a doit variable, whatever it contains

    jobs = ["-n", asked["jobs"]] if asked.get("jobs") else []
    flow = [asked["flow"]] if asked.get("flow") else []
    plain = [
        (name, value) for name, value in asked.items() if name not in ("flow", "json", "project-dir", "jobs", "help")
    ]
    options = [f"--{name}" if name in FLAGS else f"--{name}={value}" for name, value in plain]
    return int(Main(ModuleTaskLoader(names)).run(["run", *jobs, *flow, *options]))


def _completed(asked: dict[str, str], session: Session) -> dict[str, str]:
    """Options without a flow apply to the run of this branch, or to the named run."""
    options = [name for name in asked if name not in ("flow", "json", "project-dir", "jobs")]
    if not options or _unknown(asked, []):
        return asked
    for name in ("goal", "new"):
        if name in asked:
            raise UsageError(
                f"--{name} starts a run, so it needs a flow", f"doflow run FLOW --{name}{' …' * (name == 'goal')}"
            )
    found = resolve_run.default_arguments(session, asked.get("run", "") or asked.get("feature-dir", ""))
    if not found:
        raise UsageError("no run to continue", "doflow run FLOW --goal '…'")
    flow, run = found
    return {
        **{name: asked[name] for name in asked if name != "feature-dir"},
        "flow": flow,
        "run": run.partition("=")[2],
    }


def _unknown(asked: dict[str, str], params: list[tuple[str, str, bool, str]]) -> tuple[str, str] | None:
    known = [*_VALUES, *FLAGS, *(param[0] for param in params)]
    for name in asked:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            return f"unknown option: --{name}", f"did you mean --{near[0]}?" if near else "doflow run --help"
    return None


def _for_programs(asked: dict[str, str]) -> bool:
    """Was --json given? An unknown option may have taken it as its value."""
    return "json" in asked or "--json" in asked.values()


def show_prompt(root: str, asked: dict[str, str]) -> int:
    """Print the exact prompt, like `doflow plan --prompt`."""
    if not os.path.isdir(root):
        return refuse(f"{root} is not a folder", "json" in asked, "name an existing folder with --project-dir")
    os.chdir(root)
    flow, colon, _ = asked["dry-run"].partition(":")
    opened = project.open_project(project.find(root), os.environ)
    if colon and flow in opened.about:
        asked.setdefault("flow", flow)
    unknown = _unknown(asked, opened.params.get(asked.get("flow", ""), []))
    if unknown:
        return refuse(unknown[0], _for_programs(asked), unknown[1])
    given = {name.replace("-", "_"): value for name, value in asked.items() if name not in _DRY}
    words = {"flow": asked.get("flow", ""), "run": asked.get("run", ""), "goal": asked.get("goal")}
    try:
        return plan.plan(Namespace(**words, prompt=asked["dry-run"], json="json" in asked, given=given))
    except DoflowError as error:
        return refuse(error.message, "json" in asked, error.hint or "doflow run --help")
