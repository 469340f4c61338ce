"""The `claude` agent: Claude Code, headless. One JSON record per line; the last `result` counts.

Its `subtype` says success on errors of the API too, its exit code says 0 for refused tools: neither is believed.
A resumed session reports the price of all its calls together.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from doflow.agents.adapters import json_stream as stream, reset_times as resets, vendor_cli as endings
from doflow.agents.adapters.json_stream import Record
from doflow.agents.adapters.vendor_cli import Answer, Program
from doflow.flow.model import Ask, Outcome, Usage
from doflow.hooks import call_settings as settings
from doflow.util.errors import UsageError
from doflow.util.process.command import Command, Result

NAME = "claude"

PROGRAM = Program(
    NAME,
    title="Claude Code",
    package="@anthropic-ai/claude-code",
    tried="2.1.325",
    login="start `claude` once and type /login",
    names=(
        *("ANTHROPIC_*", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK"),
        *("CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "API_TIMEOUT_MS"),
    ),
    settings=(
        ("CLAUDE_CODE_MAX_RETRIES", "1"),
        ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
        ("DISABLE_TELEMETRY", "1"),
    ),
    managed=(
        *("-p", "--print", "--output-format", "--input-format", "--verbose", "--model", "--permission-mode"),
        *("--tools", "--dangerously-skip-permissions", "--allow-dangerously-skip-permissions"),
        *("-r", "--resume", "-c", "--continue", "--session-id", "--fork-session"),
        *("--bg", "--background", "--no-session-persistence", "-w", "--worktree", "--max-budget-usd"),
    ),
    asks=(
        (
            "--help",
            "-p --output-format --verbose --tools --allowedTools --permission-mode --model --resume --settings "
            "--max-budget-usd",
        ),
    ),
    signs=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_*"),
    status=("auth", "status"),
    counts="usd",
)

_READ = "Read,Glob,Grep"
_WRITE = "Read,Glob,Grep,Write,Edit,NotebookEdit"
_SHELL = "Bash,WebFetch,WebSearch"
_AGENTS = ",Agent,Task"
_NO_TURN: Mapping[str, Record] = {}
_KINDS = ("init", "assistant", "result", "rate_limit_event")


def call(ask: Ask, environ: Mapping[str, str]) -> Command:
    words: tuple[str, ...] = ("-p", "--output-format", "stream-json", "--verbose", *permissions(ask))
    words += ("--model", ask.model) if ask.model else ()
    words += ("--resume", ask.resume) if ask.resume else ()
    if ask.budget is not None:  # of this call alone, also in a session
        words += ("--max-budget-usd", f"{ask.budget:.4f}")
    words += settings.for_claude(ask.hooks)
    _refuse_settings(ask)
    return endings.command(PROGRAM, ask, environ, words)


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    kinds = (*_KINDS, "user") if ask.hooks else _KINDS
    return endings.outcome(PROGRAM, ask, result, _answer(stream.records(result, text, kinds)))


def _refuse_settings(ask: Ask) -> None:
    """Of two `--settings` the last one counts alone: a profile's own would switch our hooks off."""
    if ask.hooks and any(word == "--settings" or word.startswith("--settings=") for word in ask.profile.args):
        raise UsageError(
            f"agents.{ask.profile.name}.args: '--settings': {ask.step} needs hooks, which doflow passes by --settings itself",
            "put those settings into .claude/settings.json or .claude/settings.local.json instead",
        )


def permissions(ask: Ask) -> tuple[str, ...]:
    """Which tools there are. A shell can do what the web tools do: who has one gets them too."""
    agents = _AGENTS if ask.machine else ""
    if ask.read_only:
        return ("--tools", _READ + agents, "--permission-mode", "default")
    if endings.shell(ask):
        return ("--allowedTools", _SHELL, "--permission-mode", "acceptEdits")
    return ("--tools", _WRITE + agents, "--permission-mode", "acceptEdits")


def _answer(records: stream.Records) -> Answer:
    session = model = until = ""
    results: list[Record] = []
    ours: dict[str, str] = {}
    turn: dict[str, Record] = {}  # what each message used since the last result; several records tell of one
    open_turn = False
    for record in records:
        kind = record.get("type")
        session = stream.words(record.get("session_id")) or session
        if kind == "system":
            model = stream.words(record.get("model")) or model
        elif kind == "rate_limit_event":
            until = _until(stream.record(record, "rate_limit_info"))
        elif kind == "user":
            ours.update(_refused_by_us(record))
        elif kind == "result":
            results.append(_kept(record, ours))
            turn = {}
        elif kind == "assistant":
            message = stream.record(record, "message")
            turn[stream.words(message.get("id"))] = stream.record(message, "usage")
        open_turn = kind == "assistant" or (open_turn and kind != "result")
    denied = tuple(ours.values())
    if not results or open_turn:
        return Answer(session=session, model=model, usage=_usage(results, turn), resets=until, denied=denied)
    return _judged(results, Answer(session=session, model=model, usage=_usage(results), denied=denied), until)


def _refused_by_us(record: Record) -> dict[str, str]:
    """The calls that a hook of ours refused, and what it said to the model."""
    blocks = stream.rows(stream.record(record, "message").get("content"))
    said = (
        (stream.words(block.get("tool_use_id")), str(block.get("content"))) for block in blocks if block.get("is_error")
    )
    return {name: words.partition(settings.MARK)[2].strip() for name, words in said if settings.MARK in words}


def _kept(record: Record, ours: Container[str] = ()) -> Record:
    """A result without what nobody reads: there may be many of them. What we refused ourselves is no refusal."""
    names = ("subtype", "is_error", "api_error_status", "result", "errors", "num_turns", "usage", "total_cost_usd")
    denied = [row for row in stream.rows(record.get("permission_denials")) if row.get("tool_use_id") not in ours]
    refused = [stream.deed(row.get("tool_name"), row.get("tool_input")) for row in denied]
    return {name: record.get(name) for name in names} | {"refused": refused}


def _judged(results: list[Record], known: Answer, until: str) -> Answer:
    last = results[-1]
    said = stream.words(last["result"])
    well = last["is_error"] is False and last["subtype"] == "success"
    refused = [name for result in results for name in result["refused"]]
    if well and last["num_turns"] == 0:
        refused.append(f"the prompt ({said})")
    return Answer(
        well, said, known.session, known.model, known.usage, tuple(refused),
        error="" if well else _error(last), status=stream.count(last["api_error_status"]),
        resets="" if well else until, denied=known.denied,
    )  # fmt: skip


def _error(last: Record) -> str:
    errors = last["errors"] if isinstance(last["errors"], list) else []
    said = "; ".join(error for error in errors if isinstance(error, str)) or stream.words(last["result"])
    kind = stream.words(last["subtype"])
    return said if said and kind == "success" else f"{kind or 'error'}: {said}".removesuffix(": ")


def _until(info: Record) -> str:
    """Until when a limit that was reached holds."""
    moment = stream.count(info.get("resetsAt"))
    return resets.at(moment) if moment and info.get("status") == "rejected" else ""


def _usage(results: list[Record], turn: Mapping[str, Record] = _NO_TURN) -> Usage | None:
    """The tokens of all results together, and of a turn that was broken off as far as it was told; the price of the last
    result, which is that of all. Of a broken turn nobody names the price."""
    parts = [*(stream.record(result, "usage") for result in results), *(used for used in turn.values() if used)]
    if not parts:
        return None
    fresh = made = cached = out = 0
    for used in parts:
        fresh += stream.count(used.get("input_tokens"))
        made += stream.count(used.get("cache_creation_input_tokens"))
        cached += stream.count(used.get("cache_read_input_tokens"))
        out += stream.count(used.get("output_tokens"))
    usd = stream.price(results[-1]["total_cost_usd"]) if results and not any(turn.values()) else None
    return Usage(fresh + made + cached, out, cached, usd)
