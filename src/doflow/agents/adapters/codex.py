"""The `codex` agent: Codex CLI, headless. One JSON record per line; `turn.completed` or `turn.failed` counts.

Every tool of it is a shell in a sandbox: what a step may do is what the sandbox allows. A write that the sandbox stops leaves
no record; the step's contract finds it. A resumed session reports the tokens of all its calls together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from doflow.agents.adapters import json_stream as stream, vendor_cli as endings
from doflow.agents.adapters.json_stream import Record
from doflow.agents.adapters.vendor_cli import Answer, Program
from doflow.flow.model import Ask, Outcome, Usage
from doflow.hooks import call_settings as settings
from doflow.util.process import runner as process
from doflow.util.process.command import Command, Result
from doflow.util.records import replace

NAME = "codex"

PROGRAM = Program(
    NAME,
    title="Codex CLI",
    package="@openai/codex",
    tried="0.166.0",
    login="codex login",
    names=("OPENAI_*", "CODEX_HOME", "CODEX_API_KEY", "AZURE_OPENAI_*"),
    settings=(("RUST_LOG", "error,codex_core::responses_retry=warn"),),
    managed=(
        *("exec", "resume", "--json", "-m", "--model", "-s", "--sandbox", "--full-auto", "--approve-for-me"),
        *("--dangerously-bypass-approvals-and-sandbox", "--yolo", "--skip-git-repo-check", "-C", "--cd", "--worktree"),
        *("--last", "--ephemeral", "-o", "--output-last-message", "sandbox_mode", "approval_policy", "-"),
    ),
    asks=(
        ("exec --help", "resume --json --skip-git-repo-check -s -c -m --dangerously-bypass-hook-trust"),
        ("exec resume --help", "-"),
    ),
    signs=("OPENAI_API_KEY", "CODEX_API_KEY"),
    status=("login", "status"),
    counts="tokens",
)

_KINDS = ("thread.started", "turn.started", "turn.completed", "turn.failed", "error", "item.completed")
_HEARD = 65_536
QUIET = ("-c", "check_for_update_on_startup=false", "-c", "analytics.enabled=false")


def call(ask: Ask, environ: Mapping[str, str]) -> Command:
    sandbox = "read-only" if ask.read_only else "workspace-write"
    words: tuple[str, ...] = ("exec", "--json", "--skip-git-repo-check", "-s", sandbox, *QUIET)
    words += ("-m", ask.model) if ask.model else ()
    words += settings.for_codex(ask.hooks)
    return endings.command(PROGRAM, ask, environ, words, ("resume", ask.resume, "-") if ask.resume else ("-",))


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    answer = _answer(stream.records(result, text, _KINDS))
    return endings.outcome(PROGRAM, ask, result, replace(answer, denied=_denied(result.err)) if ask.hooks else answer)


def _answer(records: stream.Records) -> Answer:
    session = text = error = note = ""
    usage: Usage | None = None
    success = False
    refused: list[str] = []
    for record in records:
        kind, item = record.get("type"), stream.record(record, "item")
        note = _retrying(record) or ("" if kind in ("item.completed", "turn.completed") else note)
        if kind == "thread.started":
            session = stream.words(record.get("thread_id"))
        elif kind == "turn.started":
            success, error = False, ""
        elif kind == "turn.completed":
            success, error, usage = True, "", _usage(stream.record(record, "usage"))
        elif kind in ("turn.failed", "error"):
            success, error = False, _error(record) or error
        elif kind == "item.completed" and item.get("type") == "agent_message":
            text = stream.words(item.get("text"))
        elif kind == "item.completed" and item.get("status") == "declined":
            refused.append(stream.words(item.get("command")) or stream.words(item.get("type")) or "a tool")
    return Answer(success, text, session, "", usage, tuple(refused), error, _status(error), note=note)


def _denied(err: str) -> tuple[str, ...]:
    """What our hooks refused: it is told on standard error alone, with the command behind it."""
    if settings.MARK not in (said := process.tail(err, _HEARD)):
        return ()
    return tuple(line.partition(settings.MARK)[2].partition(". Command: ")[0].strip()
                 for line in said.splitlines() if settings.MARK in line)  # fmt: skip


def _retrying(record: Record) -> str:
    """Its words when it tries again by itself, for as long as the server asks it to."""
    said = stream.words(record.get("message"))
    return said if record.get("type") == "error" and said.startswith("Reconnecting") else ""


def _error(record: Record) -> str:
    """An error's words. `Reconnecting…` is none: the CLI tries again by itself."""
    said = stream.words(stream.record(record, "error").get("message")) or stream.words(record.get("message"))
    if record.get("type") == "turn.failed":
        return said or "the turn failed"
    return "" if _retrying(record) else said


def _status(error: str) -> int:
    """The HTTP status, which is told in words only: `unexpected status 401 Unauthorized`, `last status: 429`."""
    import re

    found = re.search(r"status:? (\d{3})\b", error)
    return int(found.group(1)) if found else 0


def _usage(used: Record) -> Usage:
    counted = (stream.count(used.get(f"{name}_tokens")) for name in ("input", "output", "cached_input"))
    return Usage(*counted)
