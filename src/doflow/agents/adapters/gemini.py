"""The `gemini` agent: Gemini CLI, headless. One JSON record per line; the last `result` counts.

It ends with exit 0 when it is asked to stop, and with the HTTP status (less 256) on an error of the API. Without leave to
write or to run programs it does not offer those tools to the model. It says no price.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from doflow.agents.adapters import json_stream as stream, vendor_cli as endings
from doflow.agents.adapters.json_stream import Record
from doflow.agents.adapters.vendor_cli import Answer, Program
from doflow.flow.model import Ask, Outcome, Usage
from doflow.util.process import runner as process
from doflow.util.process.command import Command, Result
from doflow.util.records import replace

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
#: it ends so before it asks anybody, with the reason on standard error
_NO_LOGIN = 41
_STATUSES = (400, 401, 403, 404, 408, 429, 500, 502, 503, 504)


def call(ask: Ask, environ: Mapping[str, str]) -> Command:
    mode = "default" if ask.read_only else "yolo" if endings.shell(ask) else "auto_edit"
    words: tuple[str, ...] = ("--output-format", "stream-json", "--skip-trust", "--approval-mode", mode)
    words += ("--model", ask.model) if ask.model else ()
    words += ("--resume", ask.resume) if ask.resume else ()
    return endings.command(PROGRAM, ask, environ, words)


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    answer = _answer(stream.records(result, text, _KINDS))
    if answer.error:
        answer = replace(answer, status=_status(answer.error, result.code))
    elif result.code == _NO_LOGIN and not result.stopped:
        said = process.tail(result.err, 1000).strip().splitlines()
        answer = replace(answer, error=" ".join(said[-2:]) or "nobody is logged in", status=401)
    return endings.outcome(PROGRAM, ask, result, answer)


def _answer(records: stream.Records) -> Answer:
    answer, tools, said = Answer(), dict[str, str](), stream.Said()
    for record in records:
        kind = record.get("type")
        if kind == "init":
            session, model = stream.words(record.get("session_id")), stream.words(record.get("model"))
            answer = replace(answer, session=session, model=model)
        elif kind == "message" and record.get("role") == "assistant":
            said.add(stream.words(record.get("content")))
            answer = replace(answer, success=False)
        elif kind == "tool_use":
            said.clear()
            tools[stream.words(record.get("tool_id"))] = stream.deed(record.get("tool_name"), record.get("parameters"))
            answer = replace(answer, success=False)
        elif kind == "tool_result":
            answer = _told_no(answer, record, tools)
        elif kind == "result":
            answer = _ended(answer, record)
        elif kind == "error":
            answer = replace(answer, note=stream.words(record.get("message")))
    return replace(answer, text=said.text)


def _told_no(answer: Answer, record: Record, tools: dict[str, str]) -> Answer:
    """A tool that a policy forbids, and a path outside of the project, of which the model is told and may do better."""
    tool, error = tools.pop(stream.words(record.get("tool_id")), "") or "a tool", stream.record(record, "error")
    if error.get("type") == "policy_violation":
        return replace(answer, refused=(*answer.refused, tool))
    if "not in workspace" in stream.words(error.get("message")):
        return replace(answer, denied=(*answer.denied, f"{tool}: that is outside of the project"))
    return answer


def _ended(answer: Answer, record: Record) -> Answer:
    stats = stream.record(record, "stats")
    names = [name for name in stream.record(stats, "models") if name]
    well = record.get("status") == "success"
    error = "" if well else stream.words(stream.record(record, "error").get("message")) or "it ended with an error"
    model = names[0] if well and len(names) == 1 else answer.model
    return replace(answer, success=well, error=error, usage=_usage(stats), model=model)


def _status(error: str, code: int) -> int:
    """The HTTP status: in the words of the error, else in the exit code."""
    import re

    found = re.search(r'"code":\s*(\d{3})\b', error)
    return int(found.group(1)) if found else next((status for status in _STATUSES if status % 256 == code), 0)


def _usage(stats: Record) -> Usage:
    """What is neither input nor answer was thought, and is paid like an answer."""
    taken, given = stream.count(stats.get("input_tokens")), stream.count(stats.get("output_tokens"))
    total = stream.count(stats.get("total_tokens"))
    return Usage(taken, max(given, total - taken), stream.count(stats.get("cached")))
