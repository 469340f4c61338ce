"""Running the user's notify command when a run ends: `notify: {command: [...]}` in doflow.yaml.

It gets DOFLOW_EVENT (paused, rate_limited, failed, done), DOFLOW_RUN, DOFLOW_FLOW, DOFLOW_MESSAGE and DOFLOW_HINT, and
the same as a JSON object on stdin. Its failure is only a warning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from doflow.util import state_folder
from doflow.util.errors import DoflowError
from doflow.util.process import environment, runner
from doflow.util.process.runner import Command, Timeout

LIMIT = 10.0

_KINDS = {
    "paused": "paused", "gate": "paused", "clarification": "paused", "rate_limited": "rate_limited",
    "error": "failed", "pipeline_complete": "done",
}  # fmt: skip
_CODES = {0: "done", 2: "paused", 3: "rate_limited"}
_WORST_FIRST = ("failed", "rate_limited", "paused", "done")


def news(ends: Mapping[str, Mapping[str, object]], code: int) -> tuple[str, str, str]:
    """Event, message and hint of a run, from its last entries and the exit code.

    The event is '' if there is nothing to notify about: a single step was requested, and it is done."""
    said = {_KINDS[name]: entry for name, entry in ends.items() if name in _KINDS}
    wanted = _CODES.get(code, "failed")
    event = next((kind for kind in (wanted, *_WORST_FIRST) if kind in said), wanted if code else "")
    entry = said.get(event, {})
    usual = "every step is done" if event == "done" else f"the run ended with exit code {code}"
    return event, str(entry.get("message") or usual), str(entry.get("hint", ""))


def run_notify_command(
    command: tuple[str, ...],
    event: str,
    run: str,
    flow: str,
    message: str,
    hint: str,
    environ: Mapping[str, str],
    *,
    root: Path,
    limit: float = LIMIT,
) -> str:
    """Run the command, with a time limit; returns a warning to show, '' on success."""
    about = {"event": event, "run": run, "flow": flow, "message": message, "hint": hint}
    extra = {f"DOFLOW_{name.upper()}": text.replace("\0", "") for name, text in about.items()}
    stdin = (json.dumps(about) + "\n").encode()
    log = str(root / state_folder.RUNS / run / "logs" / "notify.log")
    asked = Command(command, stdin, environment.for_shell(environ, extra), str(root))
    try:
        Path(log).unlink(missing_ok=True)
        result = runner.run(asked, log, log, Timeout(0, limit), grace=1.0)
    except (DoflowError, OSError) as error:
        return f"warning: could not run the notify command ({event}): {error}"
    if result.code == 0 and not result.stopped:
        return ""
    why = runner.explain(result, command, Timeout(0, limit))
    last = runner.tail(log, 500).strip().rpartition("\n")[2]
    because = f": {last}" if last else ""
    return f"warning: the notify command {why}{because}\n  hint: `notify.command` in doflow.yaml; its output: {log}"
