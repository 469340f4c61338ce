"""The `opencode` agent: OpenCode, headless. One JSON record per line; a last `step_finish` with the reason `stop` counts.

A refused tool ends its stream without one. It tries again by itself, five times, for as long as a server asks it to and in
silence: only its own log, asked for on standard error, says why, and not for how long. Its prices come from its own
configuration; no price there is no price here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from doflow.agents.adapters import json_stream as stream, reset_times as resets, vendor_cli as endings
from doflow.agents.adapters.json_stream import Record
from doflow.agents.adapters.vendor_cli import Answer, Program
from doflow.flow.model import Ask, Outcome, Usage
from doflow.util.process import runner as process
from doflow.util.process.command import Command, Result
from doflow.util.records import replace

NAME = "opencode"

PROGRAM = Program(
    NAME,
    title="OpenCode",
    package="opencode-ai",
    tried="1.18.33",
    login="opencode auth login",
    names=(
        *("OPENCODE_*", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
        *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"),
        "GOOGLE_GENERATIVE_AI_API_KEY",
    ),
    settings=(("OPENCODE_DISABLE_AUTOUPDATE", "1"), ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")),
    managed=(
        *("run", "--format", "--title", "-m", "--model", "-s", "--session", "-c", "--continue", "--fork", "--command"),
        *("--dir", "--attach", "--auto", "-i", "--interactive", "--share", "--print-logs", "--log-level"),
    ),
    asks=(("run --help", "--format --print-logs --log-level --title --model --session"),),
    signs=(
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_GENERATIVE_AI_API_KEY",
    ),
    status=("auth", "list"),
)

_KINDS = ("step_start", "text", "tool_use", "step_finish", "error")
TOUCHING = ("edit", "bash", "webfetch")


def call(ask: Ask, environ: Mapping[str, str]) -> Command:
    import json

    words: tuple[str, ...] = ("run", "--format", "json", "--print-logs", "--log-level", "ERROR")
    words += ("--title", f"doflow {ask.run} {ask.step}")
    words += ("--model", ask.model) if ask.model else ()
    words += ("--session", ask.resume) if ask.resume else ()
    granted = () if ask.read_only else TOUCHING if endings.shell(ask) else ("edit",)
    permission = {tool: "allow" if tool in granted else "deny" for tool in TOUCHING}
    return endings.command(PROGRAM, ask, environ, words, more={"OPENCODE_PERMISSION": json.dumps(permission)})


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    answer = _answer(stream.records(result, text, _KINDS))
    if answer.error.startswith("UnknownError"):
        answer = replace(answer, error=_logged(result.err) or answer.error)
    return endings.outcome(PROGRAM, ask, result, answer)


def _logged(err: str) -> str:
    """The last error in its log: what its records call unknown and send the reader to the log for."""
    import re

    found = re.findall(r' error="((?:[^"\\]|\\.)*)"', process.tail(err, 8000))
    return found[-1] if found else ""


def _answer(records: stream.Records) -> Answer:
    answer, said = Answer(), stream.Said()
    for record in records:
        kind, part = record.get("type"), stream.record(record, "part")
        answer = replace(answer, session=stream.words(record.get("sessionID")) or answer.session)
        if kind == "step_start":
            said.clear()
            answer = replace(answer, success=False, note="")
        elif kind == "text":
            said.add(stream.words(part.get("text")))
        elif kind == "tool_use" and (tool := _refused(part)):
            answer = replace(answer, refused=(*answer.refused, tool))
        elif kind == "step_finish":
            answer = _finished(answer, part)
        elif kind == "error":
            answer = _failed(answer, stream.record(record, "error"))
    return replace(answer, text=said.text)


def _refused(part: Record) -> str:
    """The tool that somebody or some rule said no to."""
    state = stream.record(part, "state")
    said = stream.words(state.get("error"))
    no = state.get("status") == "error" and ("rejected permission" in said or "prevents you from using" in said)
    return stream.deed(part.get("tool"), state.get("input")) if no else ""


def _finished(answer: Answer, part: Record) -> Answer:
    reason = stream.words(part.get("reason"))
    well = reason == "stop"
    error = "" if well else answer.error
    return replace(answer, success=well, error=error, note=f"it ended with {reason}", usage=_usage(answer, part))


def _failed(answer: Answer, error: Record) -> Answer:
    data = stream.record(error, "data")
    name = stream.words(error.get("name")) or "error"
    said = stream.words(data.get("message"))
    status = stream.count(data.get("statusCode")) or (401 if name == "ProviderAuthError" else 0)
    until = _until(stream.record(data, "responseHeaders")) if status == 429 else ""
    return replace(answer, success=False, error=f"{name}: {said}", status=status, resets=until)


def _until(headers: Record) -> str:
    """What the server asked for: milliseconds, seconds or a date."""
    said = ""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        said = stream.words(headers.get(name))
        if said.isascii() and said.replace(".", "", 1).isdigit():
            return resets.after(float(said) * unit)
    return resets.dated(said)


def _usage(answer: Answer, part: Record) -> Usage:
    """What was used so far and in this step; all that is not input is output."""
    so_far, used = answer.usage or Usage(), stream.record(part, "tokens")
    cached = stream.count(stream.record(used, "cache").get("read"))
    taken = stream.count(used.get("input")) + cached + stream.count(stream.record(used, "cache").get("write"))
    given = max(stream.count(used.get("output")), stream.count(used.get("total")) - taken)
    cost = stream.price(part.get("cost"))
    usd = so_far.usd if cost is None else (so_far.usd or 0.0) + cost
    return Usage(so_far.tokens_in + taken, so_far.tokens_out + given, so_far.tokens_cached + cached, usd)
