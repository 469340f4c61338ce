"""Inspect agent programs: installed, version, supported flags, login.

Only `make_test_call` calls a model: one short question, in a temporary folder.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from doflow.agents import registry
from doflow.agents.adapters.vendor_cli import Program
from doflow.flow.model import Ask, Outcome, Profile, Status
from doflow.util.process import environment, runner
from doflow.util.process.runner import Command, Result, Timeout

QUESTION = "Answer with the one word: ready. Use no tool.\n"
PATIENCE = Timeout(0, 60)
_UNSEEN = "not found"


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """Status of one agent. `missing`: flags that its help does not list; `problem` '' = usable."""

    profile: str
    use: str
    program: str
    path: str = ""
    version: str = ""
    tried: str = ""
    missing: tuple[str, ...] = ()
    login: str = ""
    answered: str = ""
    problem: str = ""
    hint: str = ""


def inspect_agent(profile: Profile, environ: Mapping[str, str], root: str) -> AgentStatus:
    """Inspect an agent by its version, help and login status, without calling a model."""
    program = vendor_program(profile.use)
    name = profile.executable or (program.name if program else next(iter(profile.argv), "?"))
    found = AgentStatus(profile.name, profile.use, name, tried=program.tried if program else "")
    if profile.use == "rehearsal":
        return replace(found, program="inside doflow", login="none needed")
    names = program.names if program else ()
    env = environment.for_agent(environ, names, profile.env, dict(program.settings) if program else {}, root=root)
    path = _path(name, env, root)
    if not path:
        return replace(found, problem=f"{name} is not installed", hint=_install(profile, program))
    if program is None:
        return replace(found, path=path)
    with tempfile.TemporaryDirectory(prefix="doflow-probe-") as folder:
        return _asked(replace(found, path=path), program, Command((path,), b"", env, folder), folder)


def make_test_call(found: AgentStatus, profile: Profile, environ: Mapping[str, str]) -> AgentStatus:
    """Send one short question: an answer proves installation, login and model."""
    if found.problem or vendor_program(profile.use) is None:
        return found
    with tempfile.TemporaryDirectory(prefix="doflow-probe-") as folder:
        named = replace(profile, executable=found.path)
        ask = Ask("probe", QUESTION, named, folder, "probe", "probe", profile.model)
        agent = registry.find_agent(profile.use)
        out, err = os.path.join(folder, "out.log"), os.path.join(folder, "err.log")
        command = agent.call(ask, environ)
        result = runner.run(command, out, err, Timeout(0, 120))
        outcome = agent.outcome(ask, result, lambda: Path(out).read_text("utf-8", "replace"))
    return _called(found, outcome, result, command)


def vendor_program(use: str) -> Program | None:
    """The vendor's CLI of an agent; None = not a vendor's CLI."""
    return getattr(registry.find_agent(use), "PROGRAM", None) if use in registry.CLIS else None


def _called(found: AgentStatus, outcome: Outcome, result: Result, command: Command) -> AgentStatus:
    if outcome.ok:
        used = outcome.usage
        tokens = f", {used.tokens_in + used.tokens_out} tokens" if used else ""
        return replace(found, answered=f"in {result.elapsed:.1f}s{tokens}", login="yes, it answered")
    if outcome.status is Status.RATE_LIMITED:
        hint = f"try again at {outcome.resume_at}"
        reason = outcome.reason.removeprefix(f"{found.profile} ")
        return replace(found, login="yes", answered="rate limited", problem=reason, hint=hint)
    if outcome.status is Status.AUTH:
        login = f"{found.login}: refused" if found.login.startswith("by ") else "no"
        return replace(found, login=login, answered="no", problem=outcome.reason, hint=outcome.hint)
    hint = f"try it: echo 'Say: ready' | {shlex.join(command.argv)}"
    return replace(found, answered="no", problem=outcome.reason, hint=hint)


def _asked(found: AgentStatus, program: Program, bare: Command, folder: str) -> AgentStatus:
    """Version, flags and login, each from its own program call."""
    result, said = _run(bare, ("--version",), folder)
    if result.code != 0 or result.stopped:
        why = runner.explain(result, bare.argv)
        hint = f"try it: {found.path} --version   or reinstall it: {program.install}"
        return replace(found, problem=f"cannot get its version: {why}", hint=hint)
    version = re.search(r"\d+\.\d+[\w.+-]*", said)
    found = replace(found, version=version.group() if version else "?")
    missing = tuple(flag for words, flags in program.asks for flag in _missing(bare, words, flags, folder))
    if missing:
        hint = f"install the tested version: {program.install}@{program.tried}"
        problem = f"its help does not list {', '.join(missing)}, which doflow relies on"
        return replace(found, missing=missing, problem=problem, hint=hint)
    login = _login(program, bare, folder)
    return replace(found, login=login, hint=program.login if login == _UNSEEN else "")


def _missing(bare: Command, words: str, flags: str, folder: str) -> list[str]:
    _, said = _run(bare, tuple(words.split()), folder)
    return [flag for flag in flags.split() if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", said)]


def _login(program: Program, bare: Command, folder: str) -> str:
    """How the user is logged in: by a variable, a file, or the program's status command."""
    for sign in program.signs:
        if sign.startswith("~"):
            if os.path.exists(os.path.join(bare.env.get("HOME", ""), sign[2:])):
                return f"by {sign}"
        elif found := [name for name, value in bare.env.items() if value and fnmatchcase(name, sign)]:
            return f"by {found[0]}"
    if not program.status:
        return _UNSEEN
    result, said = _run(bare, program.status, folder)
    return "yes" if result.code == 0 and not result.stopped and "0 credentials" not in said else _UNSEEN


def _run(bare: Command, words: tuple[str, ...], folder: str) -> tuple[Result, str]:
    out = os.path.join(folder, "-".join(words).replace("/", "") + ".log")
    result = runner.run(replace(bare, argv=(*bare.argv, *words)), out, out, PATIENCE)
    return result, runner.tail(out, 200_000)


def _path(name: str, env: Mapping[str, str], root: str) -> str:
    if "/" in name:
        full = os.path.join(root, name)
        return full if os.access(full, os.X_OK) and os.path.isfile(full) else ""
    return shutil.which(name, path=env.get("PATH", os.defpath)) or ""


def _install(profile: Profile, program: Program | None) -> str:
    if program is None:
        return f"check `agents.{profile.name}.argv` in doflow.yaml"
    where = f"   or set its path: `agents.{profile.name}.executable` in doflow.yaml"
    return program.install + (where if profile.name != "-" else "")
