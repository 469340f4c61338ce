"""`doflow VERB …`: parses arguments, returns the exit code. Imports only the command that is used."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from types import ModuleType

VERBS = {
    "init": "make this git repository a doflow project",
    "import": "write flows from the files of spec-kit, OpenSpec, Kiro, BMAD, taskmaster, beads",
    "demo": "run a complete flow in a temporary project, offline",
    "run": "run or continue a flow (same as `doit FLOW`)",
    "status": "show the progress of each run and what it is waiting for",
    "plan": "show what would run, and why (dry run)",
    "why": "explain why a step is or is not up to date",
    "approve": "approve a gate",
    "reject": "reject a step's result, with a note for the agent",
    "answer": "answer an agent's open questions",
    "adopt": "keep your files as a step's result",
    "reset": "mark steps as not done",
    "logs": "show the output of agents and commands",
    "show": "draw a flow as text, mermaid, dot or svg",
    "validate": "check all flows; problems with file, line and column",
    "tasks": "show, check and refresh task lists of any format",
    "dot": "DOT pipelines: status, edit nodes and edges, generate",
    "config": "show every setting and its origin",
    "agents": "list agents, and check that each can be used here",
    "cost": "usage of agents: tokens, US dollars, time",
    "verify": "check doflow.lock against files and git history",
    "hooks": "agent hooks that enforce the order of sub-agents: install, remove, show",
    "hook": "called by those hooks; reads the agent's request from standard input",
    "machine": "state machine for sub-agents: status, history, complete, reset, restore, show, metrics, check",
    "workspace": "what interrupted jobs have written: show, diff, discard",
    "quarantine": "files moved to quarantine: list, show, restore",
    "guardian": "run pipelines under supervision, and the guardian's tools",
    "runner": "supervise one orchestrator in tmux, and the runner's tools",
    "signal": "messages between the layers of a pipeline: list, answer, log",
    "clean": "remove old logs, caches and other unneeded state",
}
ERROR, INTERRUPTED = 1, 130
GUARDIAN_TOOLS = ("spawn-runner", "wait-for-signal", "read-signal", "respond-to-runner", "escalate-to-terminal")


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    try:
        code = _verb(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _failed(error, words)


def tool_main() -> int:
    """Entry point of the eleven tool scripts: `doflow-signal-guardian …` is `doflow runner signal-guardian …`."""
    name = os.path.basename(sys.argv[0]).removesuffix(".py").removesuffix(".exe").removeprefix("doflow-")
    return main(["guardian" if name in GUARDIAN_TOOLS else "runner", name, *sys.argv[1:]])


def _verb(words: list[str]) -> int:
    if words[:1] == ["hook"] and words[1:] and words[1] not in ("-h", "--help"):
        from doflow.hooks import handler

        return handler.run(words[1:])
    from doflow.util import stdio

    stdio.open_(patient=words[:1] == ["run"])
    if words[:1] == ["run"]:
        from doflow.cli.commands import run

        return run.run(words[1:])
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if not words or words[0] in ("-h", "--help", "help"):
        return _help(words[1:])
    if words[0] in ("-V", "--version", "version"):
        from doflow.util.version import VERSION

        sys.stdout.write(f"doflow {VERSION}\n")
        return 0
    if words[0] not in VERBS:
        raise _unknown(words[0])
    return _command(words[0], words[1:])


def _help(words: list[str]) -> int:
    if words and words[0] in VERBS:
        return _verb([words[0], "--help"])
    lines = [f"  {verb:<11} {about}" for verb, about in VERBS.items()]
    sys.stdout.write(
        "usage: doflow VERB …\n\nMake for coding agents: flows in YAML, steps run by agents, each step a doit task.\n\n"
        + "\n".join(lines)
        + '\n\nRun `doflow VERB --help` for details. `doit list` shows the flows; `doit FLOW --goal="…"` runs one.\n'
        "Exit codes: 0 done, 1 error, 2 paused (waiting for you), 3 rate limited, 130 interrupted.\n"
    )
    return 0


def _unknown(word: str) -> Exception:
    import difflib

    from doflow.util.errors import UsageError

    near = difflib.get_close_matches(word, VERBS, 1)
    hint = f"did you mean: doflow {near[0]}" if near else "doflow --help lists the commands; to run a flow: doit FLOW"
    return UsageError(f"unknown command: {word!r}", hint)


def _command(verb: str, words: list[str]) -> int:
    from importlib import import_module
    from keyword import iskeyword

    name = f"{verb}_" if iskeyword(verb) else verb
    module = import_module(f"doflow.cli.commands.{name}")
    parser = _parser(verb, module)
    module.arguments(parser)
    try:
        args = parser.parse_args(words)
    except SystemExit as end:  # --help; errors raise UsageError, since exit code 2 means paused
        return ERROR if end.code else 0
    return int(getattr(module, name)(args))


def _parser(verb: str, module: ModuleType) -> ArgumentParser:
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:  # type: ignore[override]
            from doflow.util.errors import UsageError

            raise UsageError(f"{self.prog}: {message}", f"{self.prog} --help")

    return Parser(
        prog=f"doflow {verb}",
        description=module.ABOUT,
        epilog=f"examples:\n{module.EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _failed(error: Exception, words: list[str]) -> int:
    """Print doflow's and I/O errors as messages; anything else is a bug and is raised."""
    from doflow.util.errors import DoflowError, error_json

    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        error = DoflowError(f"{name}{error.strerror or error}", "check the file and the disk, then try again")
    if not isinstance(error, DoflowError):
        raise error
    if words[:1] in (["guardian"], ["runner"]) and words[1:2] not in (["run"], ["launch"], ["stop"]):
        from doflow.cli.output import say_json

        say_json({"status": "error", "message": error.message, "hint": error.hint})  # the tools always print JSON
    elif "--json" in words:
        problems = [problem._asdict() for problem in getattr(error, "problems", ())]
        sys.stderr.write(error_json(error.message, error.hint, **({"problems": problems} if problems else {})))
    else:
        from doflow.util.text import clean

        sys.stderr.write(clean(f"ERROR: {error}") + "\n")
    try:
        sys.stdout.flush()
    except OSError:
        from doflow.util import stdio

        stdio.give_up()
    return ERROR
