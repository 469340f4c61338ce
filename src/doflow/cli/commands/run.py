"""`doflow run`: same as `doit FLOW`, with any characters in values, and a fast answer if there is nothing to do."""

from __future__ import annotations

import json
import os
import sys

from doflow.config import uptodate_stamp
from doflow.runs import mutex
from doflow.util.errors import UsageError
from doflow.util.timestamps import now

ABOUT = "run a flow: same as `doit FLOW`, with --json and any characters in goals"
FLAGS = ("next", "record", "optional", "auto-approve", "reopen", "new", "json", "help")
_QUICK = frozenset({"flow", "goal", "run", "json", "project-dir"})
HELP = """usage: doflow run [FLOW[:STEP]] [options]

Run or continue a flow. Finished steps are not repeated.

options:
  --goal TEXT          what to build (any characters; --goal=TEXT works too)
  --run NAME           run name or number
  --new                start a new run
  --next               run only the next step that is not done
  --force STEP[,STEP]  run these steps again
  --redo PHASE[,PHASE] run these phases again, also if their boxes are ticked
  --task ID            do only this task of the task list
  --optional           do the optional tasks of the task list, too
  --agent NAME         the agent for all steps, overriding the flow
  --budget LIMIT       total budget of the run: 5 (US dollars), 500000tokens, none
  --record             record every agent call, to read and for the agent `replay`
  --auto-approve       pass gates (never clarifications)
  --reopen             continue a finished run, or continue on another branch
  --issue N            the issue this run belongs to
  --branch NAME        the branch of a new run
  --feature-dir DIR    the run's folder
  --completed A,B      mark these steps as done
  --flow FLOW          the flow (instead of the first argument)
  --project-dir DIR    the project (default: the one that contains the current folder)
  --jobs N, -n N       run up to N independent steps in parallel
  --json               one JSON object per line on stdout
  --dry-run STEP       print the exact prompt of this step and its size; nothing is run
  --NAME TEXT          a parameter of the flow

examples:
  doflow run tiny --goal "Let people log in by a link in an email"
  doflow run                    continue the run of this branch
  doflow run tiny --force plan  make the plan again

exit codes: 0 done, 1 error, 2 paused (waiting for you), 3 rate limited, 130 interrupted
"""


def run(words: list[str]) -> int:
    if os.environ.get("PRP_PIPELINE_RUNNING") and not {"-h", "--help"} & set(words):
        mutex.validate_nested_execution(mutex.session_path(words, os.getcwd()))
    asked = _parse(words)
    if "help" in asked:
        sys.stdout.write(HELP)
        return 0
    root = uptodate_stamp.find_project_root(asked.get("project-dir", ""))
    if not os.environ.get("PRP_PIPELINE_RUNNING") and asked.get("flow") and _QUICK.issuperset(asked):
        goal, name = asked.get("goal"), asked.get("run", "")
        stamp = uptodate_stamp.valid_stamp(root, asked["flow"], goal, name, dict(os.environ))
        if stamp is not None:
            return _nothing(asked, stamp)
    # everything above answers without importing doit, yaml or git
    from doflow.cli import run_flow

    return run_flow.run_flow(root, asked)


def _parse(words: list[str]) -> dict[str, str]:
    """Options by name. Values are taken literally, even with a leading dash."""
    asked: dict[str, str] = {}
    left = iter(words)
    for word in left:
        if word in ("-h", "--help"):
            return {"help": ""}
        if word == "-n":
            word = "--jobs"
        if not word.startswith("--"):
            if "flow" in asked or word.startswith("-"):
                raise UsageError(f"unexpected argument: {word!r}", "doflow run --help")
            asked["flow"] = word
            continue
        name, equals, value = word[2:].partition("=")
        if name in FLAGS:
            value = "yes"
        elif not equals:
            given = next(left, None)
            if given is None:
                raise UsageError(f"--{name} needs a value", "doflow run --help")
            value = given
        asked[name] = value
    return asked


def _nothing(asked: dict[str, str], stamp: dict[str, object]) -> int:
    steps: list[str] = stamp["steps"]  # type: ignore[assignment]
    if "json" not in asked:
        sys.stdout.write(f"{stamp['run']}: nothing to do, {stamp['count']} steps are up to date\n")
        return 0

    end = {"event": "pipeline_complete", "at": now(), "run": stamp["run"], "flow": steps[0].partition(":")[0]}
    for step in steps:
        line = {"event": "step_skipped", "at": now(), "run": stamp["run"], "step": step.partition(":")[2]}
        sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.write(json.dumps(end) + "\n")
    return 0
