"""`doflow demo`: a complete flow in a temporary project: offline, without an API key or the user's git settings."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from doflow.cli.commands import init
from doflow.cli.output import say
from doflow.util.errors import UsageError, WorldError

ABOUT = "Run a complete flow in a temporary project. Works offline, needs no API key and changes nothing of yours."
EXAMPLES = """\
  doflow demo               run it and keep the project
  doflow demo --remove      run it and remove the project at the end
  doflow demo --dir try     in this folder"""

GOAL = "Let people log in by a link in an email"
_TRAILERS = "%(trailers:key=Doflow-Step,separator=%x20) %(trailers:key=Doflow-Phase,separator=%x20)"
_LOG = ("git", "--no-pager", "log", "--reverse", "--no-color", f"--format=%h %<(28,trunc)%s {_TRAILERS}")


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", default="", metavar="D", help="folder for the project (new or empty)")
    parser.add_argument("--remove", action="store_true", help="remove the project at the end")


def demo(args: Namespace) -> int:
    folder = _folder(args.dir)
    try:
        _play(folder)
        _farewell(folder, kept=not args.remove)
    finally:
        if args.remove:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _folder(name: str) -> Path:
    if not name:
        return Path(tempfile.mkdtemp(prefix="doflow-demo-"))
    folder = Path(os.path.abspath(name))
    if folder.is_dir() and not any(folder.iterdir()):
        return folder
    if os.path.lexists(folder):
        raise UsageError(f"{folder} already exists and is not an empty folder", "use another one: doflow demo --dir …")
    folder.mkdir(parents=True)
    return folder


def _play(folder: Path) -> None:
    env = _environment()
    say(f"created a project in {folder} with the rehearsal agent, which makes placeholders offline\n")
    (folder / "dodo.py").write_text(init.DODO)
    (folder / "doflow.yaml").write_text("agents:\n  default: {use: rehearsal}\n")
    (folder / ".gitignore").write_text(init.IGNORED)
    _run(folder, env, ("git", "init", "-q", "-b", "main"), quiet=True)
    for name, value in (("user.name", "Doflow Demo"), ("user.email", "demo@localhost"), ("commit.gpgsign", "false")):
        _run(folder, env, ("git", "config", name, value), quiet=True)
    _run(folder, env, ("git", "add", "."), quiet=True)
    _run(folder, env, ("git", "commit", "-q", "-m", "Begin"), quiet=True)
    _run(folder, env, (*_doit(), "feature", f"--goal={GOAL}"))
    say("\neach step is a commit with trailers that identify it:\n")
    _run(folder, env, _LOG)
    say("\nrunning the same command again does nothing:\n")
    _run(folder, env, (*_doit(), "feature"))


def _environment() -> dict[str, str]:
    """The environment without GIT_ and DOFLOW_ variables and without the user's git settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "DOFLOW_"))}
    return kept | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0"}


def _doit() -> tuple[str, ...]:
    beside = Path(sys.executable).with_name("doit")
    return (str(beside),) if os.access(beside, os.X_OK) else (sys.executable, "-m", "doit")


def _run(folder: Path, env: dict[str, str], argv: Sequence[str], quiet: bool = False) -> None:
    """Run a program in that folder with our output. It receives ^C itself; wait for it in any case."""
    if not quiet:
        short = shlex.join([os.path.basename(argv[0]), *argv[1:]])
        say("$ git --no-pager log --reverse --no-color --format=…" if argv is _LOG else f"$ {short}")
    sys.stdout.flush()
    program = shutil.which(argv[0])
    if program is None:
        raise WorldError(f"{argv[0]} was not found on the PATH", "install it and try again")
    os.chdir(folder)
    child = os.posix_spawn(program, list(argv), env, setsigdef=[signal.SIGINT, signal.SIGPIPE])
    try:
        status = os.waitpid(child, 0)[1]
    except KeyboardInterrupt:
        os.waitpid(child, 0)
        raise
    if code := os.waitstatus_to_exitcode(status):
        raise WorldError(f"{shlex.join(argv)} exited with {code} in {folder}", "the project is kept for inspection")


def _farewell(folder: Path, kept: bool) -> None:
    if not kept:
        say("\nremoved the project. `doflow demo` without --remove keeps it; `doflow init` sets up your own.")
        return
    doflow, doit = _program("doflow"), _program("doit")
    say(f"\nthe project is in {shlex.quote(str(folder))}. Try there:")
    say(f"  {doflow} status 1                   what was done, by which agent, in which commit")
    say(f"  echo 'More.' >> specs/001-*/spec.md; {doflow} plan; {doit}     an edit: only steps that read it run again")
    say(f"  {doflow} why plan                   why it is out of date")
    say(f'  {doit} feature --goal="…"           a new run with another goal')


def _program(name: str) -> str:
    """The command to type: its name if the PATH finds our installation, else the full path."""
    beside = Path(sys.executable).with_name(name)
    found = shutil.which(name)
    if not os.access(beside, os.X_OK) or (found and os.path.realpath(found) == os.path.realpath(beside)):
        return name
    return shlex.quote(str(beside))
