"""The `gemini` agent: Gemini CLI, headless. One JSON record per line; the last `result` counts.

It exits with 0 when it is stopped, and with the HTTP status (modulo 256) on an API error. Without permission to write
or to run programs it does not offer those tools to the model. It reports no price.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from doflow.agents.adapters import json_stream, vendor_cli
from doflow.agents.adapters.json_stream import Record, Records, count_value, nested_record, text_value
from doflow.agents.adapters.vendor_cli import Answer, Program
from doflow.flow.model import Ask, Outcome, Usage
from doflow.util.process import runner
from doflow.util.process.runner import Command, Result

NAME = "gemini"

PROGRAM = Program(
    NAME,
    title="Gemini CLI",
    package="@google/gemini-cli",
    tried="0.61.0",
    login="start `gemini` once and choose how",
    names=("GEMINI_*", "GOOGLE_*"),
    settings=(("GEMINI_TELEMETRY_ENABLED", "false"),),
    managed=(
        *("-p", "--prompt", "-i", "--prompt-interactive", "-o", "--output-format", "-m", "--model", "-y", "--yolo"),
        *("--approval-mode", "--skip-trust", "-r", "--resume", "--session-id", "--session-file", "-w", "--worktree"),
        *("--allowed-tools", "--acp", "--experimental-acp"),
    ),
    asks=(("--help", "--output-format --skip-trust --approval-mode --model --resume"),),
    signs=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_*", "~/.gemini/oauth_creds.json"),
)

_KINDS = ("init", "message", "tool_use", "tool_result", "result", "error")
#: exit code without a login, with the reason on standard error
_NO_LOGIN = 41
_STATUSES = (400, 401, 403, 404, 408, 429, 500, 502, 503, 504)


def call(ask: Ask, environ: Mapping[str, str]) -> Command:
    mode = "default" if ask.read_only else "yolo" if vendor_cli.may_run_programs(ask) else "auto_edit"
    words: tuple[str, ...] = ("--output-format", "stream-json", "--skip-trust", "--approval-mode", mode)
    words += ("--model", ask.model) if ask.model else ()
    words += ("--resume", ask.resume) if ask.resume else ()
    return vendor_cli.build_command(PROGRAM, ask, environ, words)


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    answer = _answer(json_stream.records(result, text, _KINDS))
    if answer.error:
        answer = replace(answer, status=_status(answer.error, result.code))
    elif result.code == _NO_LOGIN and not result.stopped:
        said = runner.tail(result.err, 1000).strip().splitlines()
        answer = replace(answer, error=" ".join(said[-2:]) or "not logged in", status=401)
    return vendor_cli.outcome(PROGRAM, ask, result, answer)


def _answer(records: Records) -> Answer:
    answer, tools, said = Answer(), dict[str, str](), json_stream.TextBuffer()
    for record in records:
        kind = record.get("type")
        if kind == "init":
            session, model = text_value(record.get("session_id")), text_value(record.get("model"))
            answer = replace(answer, session=session, model=model)
        elif kind == "message" and record.get("role") == "assistant":
            said.add(text_value(record.get("content")))
            answer = replace(answer, success=False)
        elif kind == "tool_use":
            said.clear()
            tool = json_stream.describe_tool_use(record.get("tool_name"), record.get("parameters"))
            tools[text_value(record.get("tool_id"))] = tool
            answer = replace(answer, success=False)
        elif kind == "tool_result":
            answer = _told_no(answer, record, tools)
        elif kind == "result":
            answer = _ended(answer, record)
        elif kind == "error":
            answer = replace(answer, note=text_value(record.get("message")))
    return replace(answer, text=said.text)


def _told_no(answer: Answer, record: Record, tools: dict[str, str]) -> Answer:
    """Record a tool denied by policy, or a path outside the project (only a warning)."""
    tool = tools.pop(text_value(record.get("tool_id")), "") or "a tool"
    error = nested_record(record, "error")
    if error.get("type") == "policy_violation":
        return replace(answer, refused=(*answer.refused, tool))
    if "not in workspace" in text_value(error.get("message")):
        return replace(answer, denied=(*answer.denied, f"{tool}: outside the project"))
    return answer


def _ended(answer: Answer, record: Record) -> Answer:
    stats = nested_record(record, "stats")
    names = [name for name in nested_record(stats, "models") if name]
    well = record.get("status") == "success"
    error = "" if well else text_value(nested_record(record, "error").get("message")) or "it ended with an error"
    model = names[0] if well and len(names) == 1 else answer.model
    return replace(answer, success=well, error=error, usage=_usage(stats), model=model)


def _status(error: str, code: int) -> int:
    """The HTTP status: in the words of the error, else in the exit code."""
    found = re.search(r'"code":\s*(\d{3})\b', error)
    return int(found.group(1)) if found else next((status for status in _STATUSES if status % 256 == code), 0)


def _usage(stats: Record) -> Usage:
    """Thinking tokens are neither input nor output, and are priced as output."""
    names = ("input_tokens", "output_tokens", "total_tokens", "cached")
    taken, given, total, cached = (count_value(stats.get(name)) for name in names)
    return Usage(taken, max(given, total - taken), cached)
