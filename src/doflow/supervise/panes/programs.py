"""How each agent is started in a pane: its arguments, its settings, and how the end of a turn is detected.

Claude Code reports it by hooks, which write event files. Codex, Gemini CLI and OpenCode are asked for a final line. A program of
your own (`use: command`) finds its prompt in the file named by DOFLOW_PROMPT, has the terminal to itself, and is done when it
exits with 0 or writes the line `DOFLOW: done`.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from doflow.agents.adapters import claude, codex, gemini, opencode, vendor_cli
from doflow.agents.adapters.vendor_cli import Program
from doflow.flow.model import Profile
from doflow.util.errors import FlowError, Problem, UsageError
from doflow.util.process import environment
from doflow.util.process.runner import Command

EVENTS = "events"
EDITS = "Edit|Write|MultiEdit|NotebookEdit"
LONG = 100_000
#: for programs without hooks; not the literal line, since the prompt may be on the screen
ENDING = "When everything is done, write one line with the word DOFLOW, a colon, a space and the word done."
_FREE = ("--permission-mode", "acceptEdits", "--allowedTools", "Bash,WebFetch,WebSearch")
_QUIET = ("DISABLE_", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")


@dataclass(frozen=True, slots=True)
class PaneRequest:
    """What to run in a pane. `style` names an output style, `style_text` is its text; `words` (Claude Code) and `may` (others:
    read, write, run) are the permissions."""

    profile: Profile
    prompt: str
    folder: str
    root: str
    cwd: str
    model: str = ""
    style: str = ""
    style_text: str = ""
    resume: str = ""
    words: tuple[str, ...] = ()
    may: str = "run"
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PaneProgram:
    """A program for a pane: `files` are written to its folder first; `tells` = its hooks report the end of a turn."""

    command: Command
    files: tuple[tuple[str, str], ...] = ()
    tells: bool = False


def build_program(request: PaneRequest, environ: Mapping[str, str]) -> PaneProgram:
    refuse_unsupported(request.profile)
    return _STARTS[request.profile.use](request, environ)


def refuse_unsupported(profile: Profile) -> None:
    """Refuse an agent that cannot run in a pane."""
    headless = "run it headless (a pipeline: `doit NAME`)"
    if profile.use not in _STARTS:
        raise UsageError(
            f"agents.{profile.name}: `use: {profile.use}` cannot run in a tmux pane (supported: {', '.join(_STARTS)})",
            f"{headless}, use another agent, or start it yourself with `use: command`",
        )
    if profile.sandbox:
        message = f"agents.{profile.name}: `sandbox: {profile.sandbox}` is not supported in a tmux pane"
        raise UsageError(message, f"{headless}, or use an agent without `sandbox`")


def has_stop_hook(use: str) -> bool:
    return use == claude.NAME


def _claude(request: PaneRequest, environ: Mapping[str, str]) -> PaneProgram:
    profile, program = request.profile, claude.PROGRAM
    vendor_cli.refuse_managed(program, profile)
    words = ["--settings", os.path.join(request.folder, "settings.json"), *(request.words or _FREE)]
    words += ["--resume", request.resume] if request.resume else []
    words += ["--model", request.model or profile.model] if request.model or profile.model else []
    words += ["--append-system-prompt", request.style_text] if request.style_text else []
    quiet = {name: value for name, value in program.settings if name.startswith(_QUIET)}
    env = _environment(request, environ, program.names, quiet)
    argv = (profile.executable or program.name, *words, *profile.args, "--", _short(request))
    settings = json.dumps(_settings(request), indent=1)
    files = (("settings.json", settings), ("hook.sh", _HOOK), ("prompt.md", request.prompt))
    return PaneProgram(Command(argv, b"", env, request.cwd), files, tells=True)


def _settings(request: PaneRequest) -> dict[str, object]:
    def hook(event: str, matcher: str = "") -> list[dict[str, object]]:
        words = f"sh {shlex.quote(os.path.join(request.folder, 'hook.sh'))} {shlex.quote(request.folder)} {event}"
        found: dict[str, object] = {"hooks": [{"type": "command", "command": words, "timeout": 20}]}
        return [found | ({"matcher": matcher} if matcher else {})]

    hooks = {name: hook(name) for name in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd")}
    style = {"outputStyle": request.style} if request.style and not request.style_text else {}
    return {"hooks": {**hooks, "PreToolUse": hook("PreToolUse", EDITS)}, **style}


def _codex(request: PaneRequest, environ: Mapping[str, str]) -> PaneProgram:
    sandbox = "read-only" if request.may == "read" else "workspace-write"
    words = ("-a", "on-request", "-s", sandbox, "--no-alt-screen", *codex.QUIET)
    return _by_screen(codex.PROGRAM, request, environ, words, "-m", ("--",))


def _gemini(request: PaneRequest, environ: Mapping[str, str]) -> PaneProgram:
    mode = {"read": "default", "write": "auto_edit"}.get(request.may, "yolo")
    return _by_screen(gemini.PROGRAM, request, environ, ("--skip-trust", "--approval-mode", mode), "--model", ("-i",))


def _opencode(request: PaneRequest, environ: Mapping[str, str]) -> PaneProgram:
    granted = {"read": (), "write": ("edit",)}.get(request.may, opencode.TOUCHING)
    permission = {tool: "allow" if tool in granted else "deny" for tool in opencode.TOUCHING}
    more = {"OPENCODE_PERMISSION": json.dumps(permission)}
    return _by_screen(opencode.PROGRAM, request, environ, (), "--model", ("--prompt",), more)


def _by_screen(
    program: Program,
    request: PaneRequest,
    environ: Mapping[str, str],
    words: tuple[str, ...],
    model: str,
    last: tuple[str, ...],
    more: Mapping[str, str] | None = None,
) -> PaneProgram:
    """A CLI that is read from its screen: the prompt includes the style."""
    profile = request.profile
    vendor_cli.refuse_managed(program, profile)
    chosen = request.model or profile.model
    text = f"{request.style_text}\n\n{request.prompt}" if request.style_text else request.prompt
    argv = (profile.executable or program.name, *words, *((model, chosen) if chosen else ()), *profile.args)
    env = _environment(request, environ, program.names, {**dict(program.settings), **(more or {})})
    argv = (*argv, *last, _short(replace(request, prompt=text)))
    return PaneProgram(Command(argv, b"", env, request.cwd), (("prompt.md", text),))


def _command(request: PaneRequest, environ: Mapping[str, str]) -> PaneProgram:
    profile = request.profile
    if not profile.argv:
        message = f"agents.{profile.name}: `use: command` needs an `argv`"
        hint = f"write {profile.name}: {{use: command, argv: [python3, tools/agent.py]}}"
        raise FlowError((Problem("doflow.yaml", 0, 0, message, hint),))
    text = f"{request.style_text}\n\n{request.prompt}" if request.style_text else request.prompt
    env = _environment(request, environ, (), {})
    return PaneProgram(Command((*profile.argv, *profile.args), b"", env, request.cwd), (("prompt.md", text),))


def _environment(
    request: PaneRequest, environ: Mapping[str, str], names: tuple[str, ...], more: Mapping[str, str]
) -> dict[str, str]:
    own = {"DOFLOW_PROMPT": os.path.join(request.folder, "prompt.md"), "DOFLOW_SEAT": request.folder}
    extra = {**more, **request.variables, **own}
    return environment.for_agent(environ, names, request.profile.env, extra, root=request.root)


def _short(request: PaneRequest) -> str:
    """The prompt as an argument; a long one is read from its file."""
    if len(request.prompt) <= LONG:
        return request.prompt
    return f"Read the file {os.path.join(request.folder, 'prompt.md')} and do what it says."


_HOOK = f"""\
# writes a hook's JSON (standard input) to a file: FOLDER EVENT
t=$(mktemp "$1/.hook.XXXXXX") && cat > "$t" && mv "$t" "$1/{EVENTS}/$2-$(date +%s)-$$.json"
"""
_STARTS: dict[str, Callable[[PaneRequest, Mapping[str, str]], PaneProgram]] = {
    "claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode, "command": _command,
}  # fmt: skip
