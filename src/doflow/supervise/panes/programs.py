"""How each agent is started where a person can watch: its arguments, its settings, and how it tells that a turn is over.

Claude Code tells by hooks, each of which leaves a file. Codex, Gemini CLI and OpenCode are asked for a last line that says so.
A program of your own (`use: command`) finds its prompt in the file that DOFLOW_PROMPT names, has the terminal for itself, and
is done when it exits with 0 or writes the line `DOFLOW: done`.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping

from doflow.agents.adapters import claude, codex, gemini, opencode, vendor_cli as endings
from doflow.agents.adapters.vendor_cli import Program
from doflow.flow.model import Profile
from doflow.util.errors import FlowError, Problem, UsageError
from doflow.util.process import environment
from doflow.util.process.command import Command
from doflow.util.records import dataclass, field, replace

EVENTS = "events"
EDITS = "Edit|Write|MultiEdit|NotebookEdit"
LONG = 100_000
#: a program without hooks is told how to end; in words that are not the sign itself, since its prompt may be on the screen
ENDING = "When all is done, write one line that holds the word DOFLOW, a colon, a blank and the word done."
_FREE = ("--permission-mode", "acceptEdits", "--allowedTools", "Bash,WebFetch,WebSearch")
_QUIET = ("DISABLE_", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of an agent in a pane. `style` names an output style, `style_text` is one; `words` of Claude Code and
    `may` of the others (read, write, run) say what it may do."""

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
class Start:
    """A program for a pane: `files` are put into its folder first; `tells` = its hooks say when a turn is over."""

    command: Command
    files: tuple[tuple[str, str], ...] = ()
    tells: bool = False


def start(wish: Wish, environ: Mapping[str, str]) -> Start:
    known(wish.profile)
    return _STARTS[wish.profile.use](wish, environ)


def known(profile: Profile) -> None:
    """Refuse an agent that cannot work in a pane."""
    if profile.use not in _STARTS:
        raise UsageError(
            f"agents.{profile.name}: `use: {profile.use}` cannot work in a tmux pane (these can: {', '.join(_STARTS)})",
            "let it run headless (a pipeline: `doit NAME`), name another agent, or start it yourself by `use: command`",
        )
    if profile.sandbox:
        raise UsageError(
            f"agents.{profile.name}: `sandbox: {profile.sandbox}` does not hold in a tmux pane",
            "let it run headless (a pipeline: `doit NAME`), or name an agent without `sandbox`",
        )


def tells(use: str) -> bool:
    return use == claude.NAME


def _claude(wish: Wish, environ: Mapping[str, str]) -> Start:
    profile, program = wish.profile, claude.PROGRAM
    endings.refuse_managed(program, profile)
    words = ["--settings", os.path.join(wish.folder, "settings.json"), *(wish.words or _FREE)]
    words += ["--resume", wish.resume] if wish.resume else []
    words += ["--model", wish.model or profile.model] if wish.model or profile.model else []
    words += ["--append-system-prompt", wish.style_text] if wish.style_text else []
    quiet = {name: value for name, value in program.settings if name.startswith(_QUIET)}
    env = _environment(wish, environ, program.names, quiet)
    argv = (profile.executable or program.name, *words, *profile.args, "--", _short(wish))
    files = (("settings.json", json.dumps(_settings(wish), indent=1)), ("hook.sh", _HOOK), ("prompt.md", wish.prompt))
    return Start(Command(argv, b"", env, wish.cwd), files, tells=True)


def _settings(wish: Wish) -> dict[str, object]:
    def hook(event: str, matcher: str = "") -> list[dict[str, object]]:
        words = f"sh {shlex.quote(os.path.join(wish.folder, 'hook.sh'))} {shlex.quote(wish.folder)} {event}"
        found: dict[str, object] = {"hooks": [{"type": "command", "command": words, "timeout": 20}]}
        return [found | ({"matcher": matcher} if matcher else {})]

    hooks = {name: hook(name) for name in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd")}
    style = {"outputStyle": wish.style} if wish.style and not wish.style_text else {}
    return {"hooks": {**hooks, "PreToolUse": hook("PreToolUse", EDITS)}, **style}


def _codex(wish: Wish, environ: Mapping[str, str]) -> Start:
    sandbox = "read-only" if wish.may == "read" else "workspace-write"
    words = ("-a", "on-request", "-s", sandbox, "--no-alt-screen", *codex.QUIET)
    return _by_screen(codex.PROGRAM, wish, environ, words, "-m", ("--",))


def _gemini(wish: Wish, environ: Mapping[str, str]) -> Start:
    mode = {"read": "default", "write": "auto_edit"}.get(wish.may, "yolo")
    return _by_screen(gemini.PROGRAM, wish, environ, ("--skip-trust", "--approval-mode", mode), "--model", ("-i",))


def _opencode(wish: Wish, environ: Mapping[str, str]) -> Start:
    granted = {"read": (), "write": ("edit",)}.get(wish.may, opencode.TOUCHING)
    permission = {tool: "allow" if tool in granted else "deny" for tool in opencode.TOUCHING}
    more = {"OPENCODE_PERMISSION": json.dumps(permission)}
    return _by_screen(opencode.PROGRAM, wish, environ, (), "--model", ("--prompt",), more)


def _by_screen(
    program: Program,
    wish: Wish,
    environ: Mapping[str, str],
    words: tuple[str, ...],
    model: str,
    last: tuple[str, ...],
    more: Mapping[str, str] | None = None,
) -> Start:
    """A CLI that is read from its pane: its prompt ends with how to end, and the style is a part of it."""
    profile = wish.profile
    endings.refuse_managed(program, profile)
    chosen = wish.model or profile.model
    text = f"{wish.style_text}\n\n{wish.prompt}" if wish.style_text else wish.prompt
    argv = (profile.executable or program.name, *words, *((model, chosen) if chosen else ()), *profile.args)
    env = _environment(wish, environ, program.names, {**dict(program.settings), **(more or {})})
    return Start(
        Command((*argv, *last, _short(replace(wish, prompt=text))), b"", env, wish.cwd), (("prompt.md", text),)
    )


def _command(wish: Wish, environ: Mapping[str, str]) -> Start:
    profile = wish.profile
    if not profile.argv:
        message = f"agents.{profile.name}: `use: command` needs an `argv`"
        hint = f"write {profile.name}: {{use: command, argv: [python3, tools/agent.py]}}"
        raise FlowError((Problem("doflow.yaml", 0, 0, message, hint),))
    text = f"{wish.style_text}\n\n{wish.prompt}" if wish.style_text else wish.prompt
    env = _environment(wish, environ, (), {})
    return Start(Command((*profile.argv, *profile.args), b"", env, wish.cwd), (("prompt.md", text),))


def _environment(
    wish: Wish, environ: Mapping[str, str], names: tuple[str, ...], more: Mapping[str, str]
) -> dict[str, str]:
    own = {"DOFLOW_PROMPT": os.path.join(wish.folder, "prompt.md"), "DOFLOW_SEAT": wish.folder}
    extra = {**more, **wish.variables, **own}
    return environment.for_agent(environ, names, wish.profile.env, extra, root=wish.root)


def _short(wish: Wish) -> str:
    """The prompt as an argument; too long a one is to be read from its file."""
    if len(wish.prompt) <= LONG:
        return wish.prompt
    return f"Read the file {os.path.join(wish.folder, 'prompt.md')} and do what it says."


_HOOK = f"""\
# what the agent tells by a hook becomes a file: FOLDER EVENT, JSON on standard input
t=$(mktemp "$1/.hook.XXXXXX") && cat > "$t" && mv "$t" "$1/{EVENTS}/$2-$(date +%s)-$$.json"
"""
_STARTS: dict[str, Callable[[Wish, Mapping[str, str]], Start]] = {
    "claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode, "command": _command,
}  # fmt: skip
