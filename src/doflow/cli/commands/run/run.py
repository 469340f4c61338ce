"""`doflow run`: the same path as plain `doit FLOW`, with words of any shape, and a fast answer when nothing is to be done."""

from __future__ import annotations

import gc
import os
import sys

from doflow.config import uptodate_stamp as hot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from doflow.engine.lifecycle.session import Session

ABOUT = "run a flow: the same as `doit FLOW`, with --json and goals of any shape"
_FLAGS = ("next", "record", "auto-approve", "reopen", "new", "json", "help")
_VALUES = (
    "flow", "goal", "run", "feature-dir", "branch", "project-dir", "dry-run", "completed", "issue", "agent",
    "budget", "force", "jobs",
)  # fmt: skip
_DRY = frozenset({"flow", "goal", "run", "json", "project-dir", "jobs", "dry-run", "next", "record"})
_QUICK = frozenset({"flow", "goal", "run", "json", "project-dir"})
HELP = """usage: doflow run [FLOW[:STEP]] [options]

Run a flow, or go on with one. What is done stays done.

options:
  --goal TEXT          what to build (any characters; --goal=TEXT works too)
  --run NAME           the run that is meant: its name or number
  --new                start a new run
  --next               do only the next step that is not done
  --force STEP[,STEP]  do these steps again
  --agent NAME         who does the steps, instead of what the flow says
  --budget LIMIT       what the run may cost in all: 5 (US dollars), 500000tokens, none
  --record             keep every call of an agent, for reading and for the agent `replay`
  --auto-approve       pass gates (never clarifications)
  --reopen             let a finished run go on, or go on on another branch
  --issue N            the issue this run belongs to
  --branch NAME        the branch of a new run
  --feature-dir DIR    the run's folder
  --completed A,B      take these steps as done
  --flow FLOW          the flow (instead of the first word)
  --project-dir DIR    the project (default: the one this folder is in)
  --jobs N, -n N       independent steps side by side
  --json               one JSON object per line on stdout
  --dry-run STEP       print exactly what the agent of this step would be told, and its size; nothing is run
  --NAME TEXT          a parameter of the flow

examples:
  doflow run tiny --goal "Let people log in by a link in an email"
  doflow run                    go on with the run of this branch
  doflow run tiny --force plan  make the plan again

exit codes: 0 done, 1 error, 2 paused (a person is needed), 3 rate limited, 130 interrupted
"""


def run(words: list[str]) -> int:
    if os.environ.get("PRP_PIPELINE_RUNNING") and not {"-h", "--help"} & set(words):
        refused = _nested(words)
        if refused:
            return _refuse(refused, "--json" in words, "")
    asked = _parse(words)
    if isinstance(asked, str):
        return _refuse(asked, "--json" in words)
    if "help" in asked:
        sys.stdout.write(HELP)
        return 0
    root = hot.find(asked.get("project-dir", ""))
    if "dry-run" in asked:
        return _dry(root, asked)
    if not os.environ.get("PRP_PIPELINE_RUNNING") and asked.get("flow") and _QUICK.issuperset(asked):
        stamp = hot.holds(root, asked["flow"], asked.get("goal"), asked.get("run", ""), dict(os.environ))
        if stamp is not None:
            return _nothing(asked, stamp)
    return _slow(root, asked)


def _nested(words: list[str]) -> str:
    """Before anything else is looked at: may this process run at all?"""
    from doflow.guard import nested_runs as nested

    try:
        nested.validate_nested_execution(nested.session_path(words, os.getcwd()))
    except nested.NestedExecutionError as error:
        return error.message
    return ""


def _parse(words: list[str]) -> dict[str, str] | str:
    """Options by name, or what is wrong. A value is taken as it is, also when it begins with a dash."""
    asked: dict[str, str] = {}
    left = iter(words)
    for word in left:
        if word in ("-h", "--help"):
            return {"help": ""}
        if word == "-n":
            word = "--jobs"
        if not word.startswith("--"):
            if "flow" in asked or word.startswith("-"):
                return f"doflow run does not understand {word!r}"
            asked["flow"] = word
            continue
        name, equals, value = word[2:].partition("=")
        if name in _FLAGS:
            asked[name] = "yes"
            continue
        if not equals:
            given = next(left, None)
            if given is None:
                return f"--{name} needs a value"
            value = given
        asked[name] = value
    return asked


def _dry(root: str, asked: dict[str, str]) -> int:
    """What would be sent, byte by byte: the same as `doflow plan --prompt`."""
    from argparse import Namespace

    from doflow.cli.commands.run import plan
    from doflow.config import project
    from doflow.util.errors import DoflowError

    if not os.path.isdir(root):
        return _refuse(f"{root} is not a folder", "json" in asked, "name an existing folder with --project-dir")
    os.chdir(root)
    flow, colon, _ = asked["dry-run"].partition(":")
    opened = project.open_(project.find(root), os.environ)
    if colon and flow in opened.about:
        asked.setdefault("flow", flow)
    unknown = _unknown(asked, opened.params.get(asked.get("flow", ""), []))
    if unknown:
        return _refuse(unknown[0], _for_programs(asked), unknown[1])
    given = {name.replace("-", "_"): value for name, value in asked.items() if name not in _DRY}
    words = {"flow": asked.get("flow", ""), "run": asked.get("run", ""), "goal": asked.get("goal")}
    try:
        return plan.plan(Namespace(**words, prompt=asked["dry-run"], json="json" in asked, given=given))
    except DoflowError as error:
        return _refuse(error.message, "json" in asked, error.hint or "doflow run --help")


def _nothing(asked: dict[str, str], stamp: dict[str, object]) -> int:
    steps: list[str] = stamp["steps"]  # type: ignore[assignment]
    if "json" not in asked:
        sys.stdout.write(f"{stamp['run']}: nothing to do, {stamp['count']} steps are up to date\n")
        return 0
    import json

    from doflow.util.timestamps import now

    end = {"event": "pipeline_complete", "at": now(), "run": stamp["run"], "flow": steps[0].partition(":")[0]}
    for step in steps:
        line = {"event": "step_skipped", "at": now(), "run": stamp["run"], "step": step.partition(":")[2]}
        sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.write(json.dumps(end) + "\n")
    return 0


def _slow(root: str, asked: dict[str, str]) -> int:
    """Through doit, as plain `doit FLOW` goes."""
    if not os.path.isdir(root):
        return _refuse(f"{root} is not a folder", "json" in asked, "name an existing folder with --project-dir")
    os.chdir(root)
    gc.disable()  # until the first step has begun (`session.begin`): what is made up to there stays
    from doit.cmd_base import ModuleTaskLoader
    from doit.doit_cmd import DoitMain

    from doflow.engine.doit import tasks
    from doflow.util.errors import DoflowError

    try:
        namespace = tasks.namespace(root, [asked["flow"]] if asked.get("flow") else [])
    except DoflowError as error:
        return _refuse(error.message, "json" in asked, error.hint)
    session = tasks.session_of(namespace)
    session.json = "json" in asked
    if not asked.get("flow"):
        try:
            asked = _completed(asked, session)
        except DoflowError as error:
            return _refuse(error.message, "json" in asked, error.hint)
    unknown = _unknown(asked, session.project.params.get(asked.get("flow", "").partition(":")[0], []))
    if unknown:
        return _refuse(unknown[0], _for_programs(asked), unknown[1])

    class Main(DoitMain):  # type: ignore[misc]
        BIN_NAME = "doflow"

        def process_args(self, args: list[str]) -> list[str]:
            return args  # no word of ours sets a doit variable, whatever characters it holds

    jobs = ["-n", asked["jobs"]] if asked.get("jobs") else []
    flow = [asked["flow"]] if asked.get("flow") else []
    plain = [
        (name, value) for name, value in asked.items() if name not in ("flow", "json", "project-dir", "jobs", "help")
    ]
    options = [f"--{name}" if name in _FLAGS else f"--{name}={value}" for name, value in plain]
    return int(Main(ModuleTaskLoader(namespace)).run(["run", *jobs, *flow, *options]))


def _completed(asked: dict[str, str], session: Session) -> dict[str, str]:
    """Options without a flow are for the run of this branch, or for the one that is named."""
    from doflow.engine.lifecycle import resolve_run as meant
    from doflow.util.errors import UsageError

    options = [name for name in asked if name not in ("flow", "json", "project-dir", "jobs")]
    if not options or _unknown(asked, []):
        return asked
    for name in ("goal", "new"):
        if name in asked:
            raise UsageError(
                f"--{name} starts a run: of which flow?", f"doflow run FLOW --{name}{' …' * (name == 'goal')}"
            )
    found = meant.default(session, asked.get("run", "") or asked.get("feature-dir", ""))
    if not found:
        raise UsageError("no run to go on with", "doflow run FLOW --goal '…'")
    flow, run = found
    return {
        **{name: asked[name] for name in asked if name != "feature-dir"},
        "flow": flow,
        "run": run.partition("=")[2],
    }


def _unknown(asked: dict[str, str], params: list[tuple[str, str, bool, str]]) -> tuple[str, str] | None:
    known = [*_VALUES, *_FLAGS, *(param[0] for param in params)]
    for name in asked:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, 1)
            return f"doflow run has no option --{name}", f"did you mean --{near[0]}?" if near else "doflow run --help"
    return None


def _for_programs(asked: dict[str, str]) -> bool:
    """Was --json said? An option that nobody knows may have taken it for its value."""
    return "json" in asked or "--json" in asked.values()


def _refuse(words: str, as_json: bool, hint: str = "doflow run --help") -> int:
    if as_json:
        from doflow.util import json_error as early

        sys.stderr.write(early.line(words, hint))
    else:
        sys.stderr.write(f"ERROR: {words}\n  hint: {hint}\n" if hint else f"ERROR: {words}\n")
    return 1
