"""The `claude` agent: Claude Code, headless. One JSON record per line; the last `result` counts.

Its `subtype` is `success` even for API errors and its exit code is 0 for denied tools, so neither is trusted.
A resumed session reports the price of all its calls together.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from doflow.agents import rate_limits
from doflow.agents.adapters import json_stream, vendor_cli
from doflow.agents.adapters.json_stream import Record, Records, count_value, nested_record, text_value
from doflow.agents.adapters.vendor_cli import Answer, Program
from doflow.flow.model import Ask, Outcome, Usage
from doflow.hooks import call_settings, events
from doflow.util.errors import UsageError
from doflow.util.process.runner import Command, Result

NAME = "claude"
_FLAGS = (
    "-p --output-format --verbose --tools --allowedTools --permission-mode --model --resume --settings --max-budget-usd"
)

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
    asks=(("--help", _FLAGS),),
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
    words += call_settings.claude_arguments(ask.hooks)
    _refuse_settings(ask)
    return vendor_cli.build_command(PROGRAM, ask, environ, words)


def outcome(ask: Ask, result: Result, text: Callable[[], str]) -> Outcome:
    kinds = (*_KINDS, "user") if ask.hooks else _KINDS
    return vendor_cli.outcome(PROGRAM, ask, result, _answer(json_stream.records(result, text, kinds)))


def _refuse_settings(ask: Ask) -> None:
    """Claude Code uses only the last `--settings`, so the profile's own would disable doflow's hooks."""
    if ask.hooks and any(word == "--settings" or word.startswith("--settings=") for word in ask.profile.args):
        raise UsageError(
            f"agents.{ask.profile.name}.args: '--settings': {ask.step} needs hooks, which doflow passes with --settings",
            "move those settings to .claude/settings.json or .claude/settings.local.json instead",
        )


def permissions(ask: Ask) -> tuple[str, ...]:
    """The allowed tools. An agent with a shell also gets the web tools."""
    agents = _AGENTS if ask.machine else ""
    if ask.read_only:
        return ("--tools", _READ + agents, "--permission-mode", "default")
    if vendor_cli.may_run_programs(ask):
        return ("--allowedTools", _SHELL, "--permission-mode", "acceptEdits")
    return ("--tools", _WRITE + agents, "--permission-mode", "acceptEdits")


def _answer(records: Records) -> Answer:
    session = model = until = ""
    results: list[Record] = []
    ours: dict[str, str] = {}
    turn: dict[str, Record] = {}  # usage per message since the last result; a message may have several records
    open_turn = False
    for record in records:
        kind = record.get("type")
        session = text_value(record.get("session_id")) or session
        if kind == "system":
            model = text_value(record.get("model")) or model
        elif kind == "rate_limit_event":
            until = _until(nested_record(record, "rate_limit_info"))
        elif kind == "user":
            ours.update(_refused_by_us(record))
        elif kind == "result":
            results.append(_kept(record, ours))
            turn = {}
        elif kind == "assistant":
            message = nested_record(record, "message")
            turn[text_value(message.get("id"))] = nested_record(message, "usage")
        open_turn = kind == "assistant" or (open_turn and kind != "result")
    denied = tuple(ours.values())
    if not results or open_turn:
        return Answer(session=session, model=model, usage=_usage(results, turn), resets=until, denied=denied)
    return _judged(results, Answer(session=session, model=model, usage=_usage(results), denied=denied), until)


def _refused_by_us(record: Record) -> dict[str, str]:
    """Tool calls that doflow's hook denied, with the message to the model."""
    blocks = json_stream.record_list(nested_record(record, "message").get("content"))
    said = (
        (text_value(block.get("tool_use_id")), str(block.get("content"))) for block in blocks if block.get("is_error")
    )
    return {name: words.partition(events.MARK)[2].strip() for name, words in said if events.MARK in words}


def _kept(record: Record, ours: Container[str] = ()) -> Record:
    """The needed fields of a result; calls that doflow's own hook denied do not count as refused."""
    names = ("subtype", "is_error", "api_error_status", "result", "errors", "num_turns", "usage", "total_cost_usd")
    denied = [
        row for row in json_stream.record_list(record.get("permission_denials")) if row.get("tool_use_id") not in ours
    ]
    refused = [json_stream.describe_tool_use(row.get("tool_name"), row.get("tool_input")) for row in denied]
    return {name: record.get(name) for name in names} | {"refused": refused}


def _judged(results: list[Record], known: Answer, until: str) -> Answer:
    last = results[-1]
    said = text_value(last["result"])
    well = last["is_error"] is False and last["subtype"] == "success"
    refused = [name for result in results for name in result["refused"]]
    if well and last["num_turns"] == 0:
        refused.append(f"the prompt ({said})")
    return Answer(
        well, said, known.session, known.model, known.usage, tuple(refused),
        error="" if well else _error(last), status=count_value(last["api_error_status"]),
        resets="" if well else until, denied=known.denied,
    )  # fmt: skip


def _error(last: Record) -> str:
    errors = last["errors"] if isinstance(last["errors"], list) else []
    said = "; ".join(error for error in errors if isinstance(error, str)) or text_value(last["result"])
    kind = text_value(last["subtype"])
    return said if said and kind == "success" else f"{kind or 'error'}: {said}".removesuffix(": ")


def _until(info: Record) -> str:
    """The reset time of a rate limit that was reached."""
    moment = count_value(info.get("resetsAt"))
    return rate_limits.time_from_epoch(moment) if moment and info.get("status") == "rejected" else ""


def _usage(results: list[Record], turn: Mapping[str, Record] = _NO_TURN) -> Usage | None:
    """The tokens of all results and of an interrupted turn, as far as reported; the price of the last
    result, which covers all of them. An interrupted turn has no price."""
    parts = [nested_record(result, "usage") for result in results] + [used for used in turn.values() if used]
    if not parts:
        return None
    fresh = made = cached = out = 0
    for used in parts:
        fresh += count_value(used.get("input_tokens"))
        made += count_value(used.get("cache_creation_input_tokens"))
        cached += count_value(used.get("cache_read_input_tokens"))
        out += count_value(used.get("output_tokens"))
    usd = json_stream.price_value(results[-1]["total_cost_usd"]) if results and not any(turn.values()) else None
    return Usage(fresh + made + cached, out, cached, usd)
