"""The `codex` agent: Codex CLI, headless. One JSON record per line; `turn.completed` or `turn.failed` counts.

All its tools run in its sandbox. A write that the sandbox blocks leaves no record; the step's checks find it. A resumed
session reports the tokens of all its calls together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from doflow.agents.adapters import json_stream, vendor_cli
from doflow.agents.adapters.json_stream import Record, Records, count_value, nested_record, text_value
from doflow.agents.adapters.vendor_cli import Answer, Program
from doflow.flow.model import Ask, Outcome, Usage
from doflow.hooks import call_settings, events
from doflow.util.process import runner
from doflow.util.process.runner import Command, Result

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
    words += call_settings.codex_arguments(ask.hooks)
    return vendor_cli.build_command(PROGRAM, ask, environ, words, ("resume", ask.resume, "-") if ask.resume else ("-",))


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    answer = _answer(json_stream.records(result, text, _KINDS))
    if ask.hooks:
        answer = replace(answer, denied=_denied(result.err))
    return vendor_cli.outcome(PROGRAM, ask, result, answer)


def _answer(records: Records) -> Answer:
    session = text = error = note = ""
    usage: Usage | None = None
    success = False
    refused: list[str] = []
    for record in records:
        kind, item = record.get("type"), nested_record(record, "item")
        note = _retrying(record) or ("" if kind in ("item.completed", "turn.completed") else note)
        if kind == "thread.started":
            session = text_value(record.get("thread_id"))
        elif kind == "turn.started":
            success, error = False, ""
        elif kind == "turn.completed":
            success, error, usage = True, "", _usage(nested_record(record, "usage"))
        elif kind in ("turn.failed", "error"):
            success, error = False, _error(record) or error
        elif kind == "item.completed" and item.get("type") == "agent_message":
            text = text_value(item.get("text"))
        elif kind == "item.completed" and item.get("status") == "declined":
            refused.append(text_value(item.get("command")) or text_value(item.get("type")) or "a tool")
    return Answer(success, text, session, "", usage, tuple(refused), error, _status(error), note=note)


def _denied(err: str) -> tuple[str, ...]:
    """What doflow's hooks denied, which Codex reports only on standard error."""
    if events.MARK not in (said := runner.tail(err, _HEARD)):
        return ()
    return tuple(line.partition(events.MARK)[2].partition(". Command: ")[0].strip()
                 for line in said.splitlines() if events.MARK in line)  # fmt: skip


def _retrying(record: Record) -> str:
    """The message of an automatic retry, else ''."""
    said = text_value(record.get("message"))
    return said if record.get("type") == "error" and said.startswith("Reconnecting") else ""


def _error(record: Record) -> str:
    """The message of an error. `Reconnecting…` is not an error: the CLI retries by itself."""
    said = text_value(nested_record(record, "error").get("message")) or text_value(record.get("message"))
    if record.get("type") == "turn.failed":
        return said or "the turn failed"
    return "" if _retrying(record) else said


def _status(error: str) -> int:
    """The HTTP status from the error text: `unexpected status 401 Unauthorized`, `last status: 429`."""
    found = re.search(r"status:? (\d{3})\b", error)
    return int(found.group(1)) if found else 0


def _usage(used: Record) -> Usage:
    counted = (count_value(used.get(f"{name}_tokens")) for name in ("input", "output", "cached_input"))
    return Usage(*counted)
