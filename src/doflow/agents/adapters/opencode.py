"""The `opencode` agent: OpenCode, headless. One JSON record per line; a last `step_finish` with the reason `stop` counts.

A denied tool ends its stream without one. It retries five times by itself, silently and for as long as a server asks; only
its log on standard error says why. Its prices come from its own configuration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from doflow.agents import rate_limits
from doflow.agents.adapters import json_stream, vendor_cli
from doflow.agents.adapters.json_stream import Record, Records, count_value, nested_record, text_value
from doflow.agents.adapters.vendor_cli import Answer, Program
from doflow.flow.model import Ask, Outcome, Usage
from doflow.util.process import runner
from doflow.util.process.runner import Command, Result

NAME = "opencode"
_KEYS = (
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"),
    "GOOGLE_GENERATIVE_AI_API_KEY",
)

PROGRAM = Program(
    NAME,
    title="OpenCode",
    package="opencode-ai",
    tried="1.18.33",
    login="opencode auth login",
    names=(
        *("OPENCODE_*", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
        *_KEYS,
    ),
    settings=(("OPENCODE_DISABLE_AUTOUPDATE", "1"), ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")),
    managed=(
        *("run", "--format", "--title", "-m", "--model", "-s", "--session", "-c", "--continue", "--fork", "--command"),
        *("--dir", "--attach", "--auto", "-i", "--interactive", "--share", "--print-logs", "--log-level"),
    ),
    asks=(("run --help", "--format --print-logs --log-level --title --model --session"),),
    signs=_KEYS,
    status=("auth", "list"),
)

_KINDS = ("step_start", "text", "tool_use", "step_finish", "error")
TOUCHING = ("edit", "bash", "webfetch")


def call(ask: Ask, environ: Mapping[str, str]) -> Command:
    words: tuple[str, ...] = ("run", "--format", "json", "--print-logs", "--log-level", "ERROR")
    words += ("--title", f"doflow {ask.run} {ask.step}")
    words += ("--model", ask.model) if ask.model else ()
    words += ("--session", ask.resume) if ask.resume else ()
    granted = () if ask.read_only else TOUCHING if vendor_cli.may_run_programs(ask) else ("edit",)
    permission = {tool: "allow" if tool in granted else "deny" for tool in TOUCHING}
    return vendor_cli.build_command(PROGRAM, ask, environ, words, more={"OPENCODE_PERMISSION": json.dumps(permission)})


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    answer = _answer(json_stream.records(result, text, _KINDS))
    if answer.error.startswith("UnknownError"):
        answer = replace(answer, error=_logged(result.err) or answer.error)
    return vendor_cli.outcome(PROGRAM, ask, result, answer)


def _logged(err: str) -> str:
    """The last error in its log, for records that only say `UnknownError`."""
    found = re.findall(r' error="((?:[^"\\]|\\.)*)"', runner.tail(err, 8000))
    return found[-1] if found else ""


def _answer(records: Records) -> Answer:
    answer, said = Answer(), json_stream.TextBuffer()
    for record in records:
        kind, part = record.get("type"), nested_record(record, "part")
        answer = replace(answer, session=text_value(record.get("sessionID")) or answer.session)
        if kind == "step_start":
            said.clear()
            answer = replace(answer, success=False, note="")
        elif kind == "text":
            said.add(text_value(part.get("text")))
        elif kind == "tool_use" and (tool := _refused(part)):
            answer = replace(answer, refused=(*answer.refused, tool))
        elif kind == "step_finish":
            answer = _finished(answer, part)
        elif kind == "error":
            answer = _failed(answer, nested_record(record, "error"))
    return replace(answer, text=said.text)


def _refused(part: Record) -> str:
    """The denied tool call, else ''."""
    state = nested_record(part, "state")
    said = text_value(state.get("error"))
    no = state.get("status") == "error" and ("rejected permission" in said or "prevents you from using" in said)
    return json_stream.describe_tool_use(part.get("tool"), state.get("input")) if no else ""


def _finished(answer: Answer, part: Record) -> Answer:
    reason = text_value(part.get("reason"))
    well = reason == "stop"
    error = "" if well else answer.error
    return replace(answer, success=well, error=error, note=f"it ended with {reason}", usage=_usage(answer, part))


def _failed(answer: Answer, error: Record) -> Answer:
    data = nested_record(error, "data")
    name = text_value(error.get("name")) or "error"
    said = text_value(data.get("message"))
    status = count_value(data.get("statusCode")) or (401 if name == "ProviderAuthError" else 0)
    until = _until(nested_record(data, "responseHeaders")) if status == 429 else ""
    return replace(answer, success=False, error=f"{name}: {said}", status=status, resets=until)


def _until(headers: Record) -> str:
    """The reset time from the response headers: milliseconds, seconds or a date."""
    said = ""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        said = text_value(headers.get(name))
        if said.isascii() and said.replace(".", "", 1).isdigit():
            return rate_limits.time_from_now(float(said) * unit)
    return rate_limits.parse_http_date(said)


def _usage(answer: Answer, part: Record) -> Usage:
    """The usage so far plus this step; everything that is not input is output."""
    so_far, used = answer.usage or Usage(), nested_record(part, "tokens")
    cached = count_value(nested_record(used, "cache").get("read"))
    taken = count_value(used.get("input")) + cached + count_value(nested_record(used, "cache").get("write"))
    given = max(count_value(used.get("output")), count_value(used.get("total")) - taken)
    cost = json_stream.price_value(part.get("cost"))
    usd = so_far.usd if cost is None else (so_far.usd or 0.0) + cost
    return Usage(so_far.tokens_in + taken, so_far.tokens_out + given, so_far.tokens_cached + cached, usd)
