"""`doflow VERB …`: arguments in, exit code out. Only the verb asked for is imported; `hook` and `run` before all else."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from types import ModuleType

VERBS = {
    "init": "make this git repository a doflow project",
    "demo": "watch a whole flow in a throw-away project, offline",
    "run": "run a flow, or go on with one (the same as `doit FLOW`)",
    "status": "what each run has done, and what it waits for",
    "plan": "what would run now, and why; nothing is run",
    "why": "why a step is, or is not, up to date",
    "approve": "say yes at a gate",
    "reject": "say no at a gate, with a note for the agent",
    "answer": "answer the questions that an agent left",
    "adopt": "keep what you wrote as a step's result",
    "reset": "let steps count as not done",
    "logs": "what agents and commands said",
    "show": "a flow as a graph: text, mermaid, dot, svg",
    "validate": "every problem of every flow, with file, line and column",
    "dot": "DOT pipelines: status, nodes, edges, new ones",
    "config": "every setting, and where it came from",
    "agents": "which agents there are, and whether each can do its work here",
    "cost": "what agents used: tokens, US dollars, time",
    "verify": "does the history bear out what the lock says?",
    "hooks": "let an agent's hooks enforce the order of its sub-agents: install, remove, show",
    "hook": "what those hooks call; it reads the agent's question on standard input",
    "machine": "the order of sub-agents: status, history, complete, reset, restore, show, metrics, check",
    "quarantine": "what was moved out of the way: list, show, restore",
    "guardian": "run pipelines under supervision; the guardian's tools",
    "runner": "watch one orchestrator in tmux; the runner's tools",
    "signal": "what the layers of a pipeline told each other; answer a question",
    "clean": "remove state that is not needed any more",
}
#: folder of `cli/commands` → its verbs
FOLDERS = {
    "run": ("run", "plan", "status", "why", "logs", "show", "cost", "verify"),
    "decide": ("approve", "reject", "answer", "adopt", "reset"),
    "project": ("init", "demo", "validate", "config", "agents", "clean", "quarantine"),
    "supervise": ("dot", "guardian", "runner", "signal", "hook", "hooks", "machine"),
}
ERROR, INTERRUPTED = 1, 130


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    try:
        code = _verb(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return _failed(error, "--json" in words, _tool(words))


def _verb(words: list[str]) -> int:
    if words and words[0] == "hook" and words[1:] and words[1] not in ("-h", "--help"):
        from doflow.hooks import handler as hook

        return hook.run(words[1:])
    from doflow.util import stdio as outlet

    outlet.open_(patient=words[:1] == ["run"])
    if words and words[0] == "run":
        from doflow.cli.commands.run import run

        return run.run(words[1:])
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if not words or words[0] in ("-h", "--help", "help"):
        return _help(words[1:] if words else [])
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
        "usage: doflow VERB …\n\nMake for coding agents: flows in YAML, done by agents, every step a doit task.\n\n"
        + "\n".join(lines)
        + '\n\n`doflow VERB --help` says more. `doit list` shows the flows; `doit FLOW --goal="…"` runs one.\n'
        "Exit codes: 0 done, 1 error, 2 paused (a person is needed), 3 rate limited, 130 interrupted.\n"
    )
    return 0


def _unknown(word: str) -> Exception:
    import difflib

    from doflow.util.errors import UsageError

    near = difflib.get_close_matches(word, VERBS, 1)
    hint = f"did you mean: doflow {near[0]}" if near else "doflow --help lists the verbs; a flow runs with: doit FLOW"
    return UsageError(f"doflow has no verb {word!r}", hint)


def _command(verb: str, words: list[str]) -> int:
    from importlib import import_module

    module = import_module(f"doflow.cli.commands.{_folder(verb)}.{verb}")
    parser = _parser(verb, module)
    module.arguments(parser)
    try:
        args = parser.parse_args(words)
    except SystemExit as end:  # --help; a bad word raises UsageError, since 2 means paused
        return ERROR if end.code else 0
    return int(getattr(module, verb)(args))


def _folder(verb: str) -> str:
    return next(folder for folder, verbs in FOLDERS.items() if verb in verbs)


def _parser(verb: str, module: ModuleType) -> ArgumentParser:
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:  # type: ignore[override]
            from doflow.util.errors import UsageError

            raise UsageError(f"{self.prog}: {message}", f"{self.prog} --help")

    examples: str = module.EXAMPLES
    return Parser(
        prog=f"doflow {verb}",
        description=module.ABOUT,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _tool(words: list[str]) -> bool:
    """The tools of the guardian and the runner answer with one JSON object on standard output, whatever happens."""
    if not words or words[0] not in ("guardian", "runner"):
        return False
    return len(words) < 2 or words[1] not in ("run", "launch", "stop")


def _failed(error: Exception, as_json: bool, tool: bool = False) -> int:
    """Our own errors and the disk's as words; anything else is a bug and shows itself whole."""
    from doflow.util.errors import DoflowError

    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        error = DoflowError(f"{name}{error.strerror or error}", "look at the file or the disk, then try again")
    if not isinstance(error, DoflowError):
        raise error
    if tool:
        from doflow.cli.output import say_json

        say_json({"status": "error", "message": error.message, "hint": error.hint})
    elif as_json:
        from doflow.util import json_error as early

        problems = [{name: getattr(p, name) for name in p.__slots__} for p in getattr(error, "problems", ())]
        sys.stderr.write(early.line(error.message, error.hint, **({"problems": problems} if problems else {})))
    else:
        from doflow.util.text import clean

        sys.stderr.write(clean(f"ERROR: {error}") + "\n")
    try:
        sys.stdout.flush()
    except OSError:
        from doflow.util import stdio as outlet

        outlet.give_up()
    return ERROR
