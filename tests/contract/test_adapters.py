"""Do the adapters call the vendors' CLIs as they must, and believe their records only? The output was recorded from them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from doflow.agents import rate_limits, registry
from doflow.agents.adapters import json_stream
from doflow.flow.model import Ask, Hook, Outcome, Profile, Status, Usage
from doflow.util.errors import UsageError
from doflow.util.process.runner import Command, Result

SAMPLES = Path(__file__).parent / "samples"
CLIS = ("claude", "codex", "gemini", "opencode")
PERSON = {
    "PATH": os.environ["PATH"], "HOME": "/nowhere", "CLAUDECODE": "1", "SECRET": "x", "AWS_SECRET_ACCESS_KEY": "x",
    "ANTHROPIC_API_KEY": "a", "ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_BASE_URL": "http://a", "CLAUDE_CONFIG_DIR": "/c",
    "OPENAI_API_KEY": "o", "CODEX_HOME": "/x", "GEMINI_API_KEY": "g", "GOOGLE_CLOUD_PROJECT": "p",
    "OPENCODE_CONFIG": "/oc.json", "MY_TOKEN": "mine", "SKIP_BUG_FINDING": "true",
}  # fmt: skip
EXITS = {"auth": 1, "limited": 1, "limited-until": 1, "overloaded": 1, "quota": 1, "usage-limit": 1, "turns": 1}
GEMINI_EXITS = {"auth": 145, "limited": 173, "overloaded": 247}


def ask(use: str, root: str = "/project", **more: object) -> Ask:
    base = Ask("plan", "Do it.\n", Profile("mine", use, env=("MY_TOKEN",)), root, "001-x", "specs/001-x")
    return replace(base, **more)  # type: ignore[arg-type]


def call(use: str, **more: object) -> Command:
    return registry.find_agent(use).call(ask(use, **more), PERSON)


def ended(
    use: str, data: bytes, folder: Path, code: int = 0, stopped: str = "", err: str = "", **more: object
) -> Outcome:
    """What an adapter makes of an output: written to a log, as it is read in a run."""
    out, errors = folder / "out.log", folder / "err.log"
    out.write_bytes(data)
    errors.write_text(err)
    result = Result(code, str(out), str(errors), 1.0, stopped)
    return registry.find_agent(use).outcome(
        ask(use, **more), result, lambda: pytest.fail("the log itself is to be read")
    )


def sample(name: str) -> bytes:
    return (SAMPLES / f"{name}.jsonl").read_bytes()


def judged(name: str, folder: Path) -> Outcome:
    use, _, case = name.partition("-")
    code = GEMINI_EXITS.get(case, 0) if use == "gemini" else EXITS.get(case, 0)
    return ended(use, sample(name), folder, code)


# The call


@pytest.mark.parametrize("use", CLIS)
def test_a_prompt_goes_to_stdin_and_only_known_variables_go_along(use: str) -> None:
    command = call(use, prompt="Grüße\n--model x", makes=("spec.md",))

    assert command.argv[0] == use and command.cwd == "/project"
    assert command.stdin == "Grüße\n--model x".encode()
    assert not any("Grüße" in word for word in command.argv)
    assert command.env["MY_TOKEN"] == "mine" and command.env["DOFLOW_MAKES"] == "/project/specs/001-x/spec.md"
    assert not {"SECRET", "AWS_SECRET_ACCESS_KEY", "CLAUDECODE", "SKIP_BUG_FINDING"} & set(command.env)


@pytest.mark.parametrize(
    ("use", "its", "others"),
    [
        ("claude", "ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_BASE_URL CLAUDE_CONFIG_DIR", "OPENAI_API_KEY"),
        ("codex", "OPENAI_API_KEY CODEX_HOME", "ANTHROPIC_API_KEY GEMINI_API_KEY"),
        ("gemini", "GEMINI_API_KEY GOOGLE_CLOUD_PROJECT", "ANTHROPIC_API_KEY OPENAI_API_KEY"),
        ("opencode", "OPENCODE_CONFIG ANTHROPIC_API_KEY OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN CODEX_HOME"),
    ],
)  # fmt: skip
def test_an_agent_gets_its_own_keys_and_no_others(use: str, its: str, others: str) -> None:
    env = call(use).env

    assert {name: env.get(name) for name in its.split()} == {name: PERSON[name] for name in its.split()}
    assert not set(others.split()) & set(env)


def test_its_own_retries_are_few_and_nothing_is_reported_or_updated() -> None:
    env = call("claude").env
    quiet = (
        "DISABLE_AUTOUPDATER",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
    )

    assert env["CLAUDE_CODE_MAX_RETRIES"] == "1"
    assert {env[name] for name in quiet} == {"1"}
    assert call("gemini").env["GEMINI_TELEMETRY_ENABLED"] == "false"
    assert call("opencode").env["OPENCODE_DISABLE_AUTOUPDATE"] == "1"
    assert "analytics.enabled=false" in call("codex").argv


READ: dict[str, object] = {"read_only": True}
WRITE: dict[str, object] = {"read_only": False}
SHELL: dict[str, object] = {"read_only": False, "phase": "2"}
REPAIR: dict[str, object] = {"read_only": False, "role": "repair"}


@pytest.mark.parametrize(
    ("use", "how", "words"),
    [
        ("claude", READ, "--tools Read,Glob,Grep --permission-mode default"),
        ("claude", WRITE, "--tools Read,Glob,Grep,Write,Edit,NotebookEdit --permission-mode acceptEdits"),
        ("claude", SHELL, "--allowedTools Bash,WebFetch,WebSearch --permission-mode acceptEdits"),
        ("claude", REPAIR, "--allowedTools Bash,WebFetch,WebSearch --permission-mode acceptEdits"),
        ("claude", {"read_only": True, "role": "repair"}, "--tools Read,Glob,Grep --permission-mode default"),
        ("codex", READ, "-s read-only"),
        ("codex", WRITE, "-s workspace-write"),
        ("codex", SHELL, "-s workspace-write"),
        ("gemini", READ, "--approval-mode default"),
        ("gemini", WRITE, "--approval-mode auto_edit"),
        ("gemini", SHELL, "--approval-mode yolo"),
        ("gemini", REPAIR, "--approval-mode yolo"),
    ],
)
def test_a_step_may_do_what_it_is_for_and_no_more(use: str, how: dict[str, object], words: str) -> None:
    assert f" {words} " in f" {' '.join(call(use, **how).argv)} "


@pytest.mark.parametrize(
    ("how", "granted"),
    [(READ, ""), (WRITE, "edit"), (SHELL, "edit bash webfetch"), (REPAIR, "edit bash webfetch")],
)
def test_opencode_is_told_by_a_variable_what_it_may_do(how: dict[str, object], granted: str) -> None:
    said = json.loads(call("opencode", **how).env["OPENCODE_PERMISSION"])

    assert said == {tool: "allow" if tool in granted.split() else "deny" for tool in ("edit", "bash", "webfetch")}


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("claude", "claude -p --output-format stream-json --verbose … --model m --resume s-1 --x y"),
        ("codex", "codex exec --json --skip-git-repo-check -s read-only … -m m --x y resume s-1 -"),
        ("gemini", "gemini --output-format stream-json --skip-trust … --model m --resume s-1 --x y"),
        ("opencode", "opencode run --format json --print-logs … --model m --session s-1 --x y"),
    ],
)
def test_model_session_and_the_profiles_own_words_stand_in_the_call(use: str, words: str) -> None:
    profile = Profile("mine", use, args=("--x", "y"), executable=f"/opt/{use}")
    argv = call(use, profile=profile, model="m", resume="s-1").argv
    head, tail = (part.split() for part in words.split(" … "))

    assert argv[0] == f"/opt/{use}"
    assert list(argv[1 : len(head)]) == head[1:]
    assert list(argv[-len(tail) :]) == tail


def test_a_fresh_codex_session_reads_its_prompt_from_stdin() -> None:
    assert call("codex").argv[-1] == "-" and "resume" not in call("codex").argv


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("claude", "--permission-mode=plan --model --resume -p --dangerously-skip-permissions --output-format --tools"),
        (
            "codex",
            "-s --sandbox=danger-full-access -mgpt --json sandbox_mode=x --dangerously-bypass-approvals-and-sandbox",
        ),
        ("gemini", "--yolo -y --approval-mode=yolo -o -m --resume"),
        ("opencode", "--format=default --model -s --auto --dir"),
    ],
)
def test_what_doflow_sets_itself_is_refused_in_the_profile(use: str, words: str) -> None:
    for word in words.split():
        with pytest.raises(UsageError, match=rf"agents\.mine\.args: '{re.escape(word)}'") as caught:
            call(use, profile=Profile("mine", use, args=("--fine", word)))
        assert "doflow.yaml" in caught.value.hint
        assert ("`model:`" in caught.value.hint) is word.startswith(("-m", "--model"))


def test_what_doflow_leaves_alone_may_be_set_in_the_profile() -> None:
    args = ("--allowedTools", "mcp__docs", "--mcp-config", "m.json", "--permission-prompts", "none")

    assert call("claude", profile=Profile("mine", "claude", args=args)).argv[-6:] == args
    effort = ("-c", "model_reasoning_effort=high")
    assert call("codex", profile=Profile("mine", "codex", args=effort)).argv[-3:] == (*effort, "-")


# The outcome


@pytest.mark.parametrize(
    ("name", "text", "session", "model", "usage"),
    [
        ("claude-done", "step done", "0fa2378a", "claude-sonnet-5-5", Usage(33716, 77, 0, 0.068202)),
        ("claude-twice", "both are done", "0fa2378a", "claude-sonnet-5-5", Usage(67432, 154, 0, 0.12)),
        ("codex-done", "done", "01a1e38d", "", Usage(30225, 147, 0)),
        ("opencode-done", "step done", "ses_e1c714bf", "", Usage(22294, 92, 0)),
        ("gemini-done", "step done", "0df351f1", "gemini-2.5-pro", Usage(35535, 59, 0)),
    ],
)
def test_a_success_is_read_with_its_text_session_and_use(
    name: str, text: str, session: str, model: str, usage: Usage, tmp_path: Path
) -> None:
    outcome = judged(name, tmp_path)

    assert (outcome.status, outcome.text, outcome.model, outcome.usage) == (Status.DONE, text, model, usage)
    assert outcome.session.startswith(session)


@pytest.mark.parametrize(
    ("name", "status", "transient", "words"),
    [
        ("claude-refused", Status.REFUSED, False, "Write /project/spec.md, Bash echo hi > b.txt"),
        ("claude-blocked", Status.REFUSED, False, "blocked by hook: not today"),
        ("claude-turns", Status.FAILED, False, "error_max_turns: Reached maximum number of turns (1)"),
        ("claude-auth", Status.AUTH, False, "Invalid API key"),
        ("claude-limited", Status.RATE_LIMITED, False, "Request rejected (429)"),
        ("claude-overloaded", Status.FAILED, True, "529 Overloaded"),
        ("codex-refused", Status.REFUSED, False, "rm -rf build"),
        ("codex-auth", Status.AUTH, False, "401 Unauthorized"),
        ("codex-limited", Status.RATE_LIMITED, False, "429 Too Many Requests"),
        ("codex-quota", Status.RATE_LIMITED, False, "Quota exceeded"),
        ("codex-overloaded", Status.FAILED, True, "Overloaded"),
        ("opencode-refused", Status.REFUSED, False, "write"),
        ("opencode-auth", Status.AUTH, False, "invalid x-api-key"),
        ("opencode-limited", Status.RATE_LIMITED, False, "per-minute rate limit"),
        ("opencode-overloaded", Status.FAILED, True, "Overloaded"),
        ("gemini-refused", Status.REFUSED, False, "run_shell_command"),
        ("gemini-auth", Status.AUTH, False, "UNAUTHENTICATED"),
        ("gemini-limited", Status.RATE_LIMITED, False, "per-minute rate limit"),
        ("gemini-overloaded", Status.FAILED, True, "overloaded"),
    ],
)
def test_a_failure_is_told_by_its_record(
    name: str, status: Status, transient: bool, words: str, tmp_path: Path
) -> None:
    outcome = judged(name, tmp_path)

    assert (outcome.status, outcome.transient) == (status, transient), outcome
    assert words in outcome.reason
    assert outcome.session
    assert outcome.hint or status is Status.RATE_LIMITED
    assert bool(outcome.resume_at) is (status is Status.RATE_LIMITED)


@pytest.mark.parametrize(
    ("name", "wait"),
    [
        ("claude-limited", timedelta(hours=1)),
        ("claude-limited-until", timedelta(days=7)),
        ("codex-usage-limit", timedelta(hours=2, minutes=30)),
        ("opencode-limited", timedelta(seconds=1)),
        ("gemini-limited", timedelta(hours=1)),
    ],
)
def test_a_limit_says_until_when_it_holds(name: str, wait: timedelta, tmp_path: Path) -> None:
    outcome = judged(name, tmp_path)

    moment = datetime.fromisoformat(outcome.resume_at)
    assert outcome.status is Status.RATE_LIMITED
    assert abs(moment - datetime.now(UTC) - wait) < timedelta(seconds=30)


WAITING = {
    "codex": (
        b'{"type":"thread.started","thread_id":"t"}\n{"type":"turn.started"}\n'
        b'{"type":"error","message":"Reconnecting... 1/1 (exceeded retry limit, last status: 429 Too Many Requests)"}\n',
        "WARN codex_core::responses_retry: stream disconnected - retrying sampling request (1/1 in 7200s)...\n",
        timedelta(hours=2),
    ),
    "opencode": (
        b"",
        'level=ERROR message="stream error" error.error="AI_APICallError: Number of requests exceeded your rate limit"\n',
        timedelta(hours=1),
    ),
    "gemini": (b"", "Attempt 1 failed with status 429. Retrying with backoff...\n", timedelta(hours=1)),
}


@pytest.mark.parametrize("use", WAITING)
def test_a_cli_that_waited_for_a_limit_until_it_was_stopped_is_limited(use: str, tmp_path: Path) -> None:
    data, complaint, wait = WAITING[use]

    outcome = ended(use, data, tmp_path, -15, "idle", complaint)
    other = ended(use, b"", tmp_path, -15, "idle", "Loading the model\n")

    assert outcome.status is Status.RATE_LIMITED
    assert abs(datetime.fromisoformat(outcome.resume_at) - datetime.now(UTC) - wait) < timedelta(seconds=30)
    assert other.status is Status.TIMEOUT


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "5400"}, timedelta(minutes=90)),
        ({"retry-after": "5400.5"}, timedelta(minutes=90)),
        ({"retry-after": "1", "retry-after-ms": "5400000"}, timedelta(minutes=90)),
        ({"retry-after": "%a, %d %b %Y %H:%M:%S GMT"}, timedelta(hours=3)),
        ({"retry-after": "soon"}, timedelta(hours=1)),
        ({"retry-after": "nan"}, timedelta(hours=1)),
        ({}, timedelta(hours=1)),
    ],
)
def test_what_a_server_asked_opencode_to_wait_is_kept(headers: dict[str, str], wait: timedelta, tmp_path: Path) -> None:
    at = (datetime.now(UTC) + wait).strftime
    told = {name: at(said) for name, said in headers.items()}
    data = {"message": "Too many", "statusCode": 429, "responseHeaders": told}
    record = {"type": "error", "sessionID": "s", "error": {"name": "APIError", "data": data}}

    outcome = ended("opencode", json.dumps(record).encode() + b"\n", tmp_path, 1)

    assert outcome.status is Status.RATE_LIMITED
    assert abs(datetime.fromisoformat(outcome.resume_at) - datetime.now(UTC) - wait) < timedelta(seconds=30)


def test_who_is_stopped_while_it_asks_a_busy_server_again_says_so(tmp_path: Path) -> None:
    complaint = 'level=ERROR message="stream error" error.error="AI_APICallError: Overloaded"\n'

    outcome = ended("opencode", b"", tmp_path, -15, "max", complaint)

    assert (outcome.status, outcome.transient) == (Status.TIMEOUT, True)
    assert "last error: " in outcome.reason and "Overloaded" in outcome.reason


def test_a_limit_that_codex_has_waited_out_is_forgotten(tmp_path: Path) -> None:
    went_on = b'{"type":"item.completed","item":{"type":"command_execution","status":"completed"}}\n'

    assert ended("codex", WAITING["codex"][0] + went_on, tmp_path, -15, "idle").status is Status.TIMEOUT


NO = "[doflow-hook] a.txt is protected: no step may change it"
TOLD_NO = {
    "claude": (
        b'{"type":"user","message":{"content":[{"type":"tool_result","is_error":true,"tool_use_id":"t",'
        b'"content":"PreToolUse:Write hook error: ' + NO.encode() + b'"}]}}\n',
        "",
        "a.txt is protected: no step may change it",
    ),
    "codex": (
        b"",
        f"ERROR codex_core: error=Command blocked by PreToolUse hook: {NO}. Command: apply_patch <<'EOF'\nEOF\n",
        "a.txt is protected: no step may change it",
    ),
    "gemini": (
        b'{"type":"tool_use","tool_name":"write_file","tool_id":"w","parameters":{"file_path":"/a.txt","content":"x"}}\n'
        b'{"type":"tool_result","tool_id":"w","status":"error","error":{"type":"invalid_tool_params",'
        b'"message":"Path not in workspace: Attempted path \\"/a.txt\\" resolves outside"}}\n',
        "",
        "write_file /a.txt: outside the project",
    ),
}


@pytest.mark.parametrize("use", TOLD_NO)
def test_who_was_told_no_and_ended_well_is_done_and_the_reason_is_kept(use: str, tmp_path: Path) -> None:
    data, err, reason = TOLD_NO[use]
    hooks = (Hook("PreToolUse", "doflow hook write"),)

    outcome = ended(use, data * 2 + sample(f"{use}-done"), tmp_path, err=err * 2, hooks=hooks)

    assert (outcome.status, outcome.denied) == (Status.DONE, (reason,))


def test_a_gemini_without_a_login_is_told_by_its_exit_code(tmp_path: Path) -> None:
    err = "Loading\nYou must specify the GEMINI_API_KEY environment variable.\nUpdate your environment and try again!\n"

    outcome = ended("gemini", b"", tmp_path, 41, err=err)

    assert (outcome.status, outcome.transient) == (Status.AUTH, False)
    assert "must specify the GEMINI_API_KEY" in outcome.reason and "log in" in outcome.hint
    assert ended("gemini", b"", tmp_path, 41, "idle", err).status is Status.TIMEOUT


def test_what_opencode_calls_unknown_is_looked_up_in_its_log(tmp_path: Path) -> None:
    record = (
        b'{"type":"error","sessionID":"s","error":{"name":"UnknownError","data":{"message":"Check server logs."}}}\n'
    )
    err = 'level=ERROR message=failed ref=err_1 error="ModelNotFound: no \\"x/y\\"." cause="ModelNotFound\\n    at z"\n'

    assert 'opencode: ModelNotFound: no \\"x/y\\".' in ended("opencode", record, tmp_path, 1, err=err).reason
    assert "Check server logs." in ended("opencode", record, tmp_path, 1, err="nothing\n").reason


def test_a_tool_that_was_never_offered_is_no_refusal(tmp_path: Path) -> None:
    assert judged("gemini-absent", tmp_path).status is Status.DONE


@pytest.mark.parametrize("use", CLIS)
def test_a_record_of_success_counts_only_with_exit_0_and_no_stop(use: str, tmp_path: Path) -> None:
    data = sample(f"{use}-done")

    assert ended(use, data, tmp_path, 0).status is Status.DONE
    for code in (1, 137, 143, -9, -15):
        assert ended(use, data, tmp_path, code).status is Status.FAILED
    for stopped, status in (("idle", Status.TIMEOUT), ("max", Status.TIMEOUT), ("cancelled", Status.CANCELLED)):
        outcome = ended(use, data, tmp_path, 0, stopped)
        assert (outcome.status, outcome.text) == (status, "")
        assert outcome.session and outcome.usage, "what it used is known all the same"


@pytest.mark.parametrize("use", CLIS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"step done\n",
        b"{}\n",
        b"[1]\n",
        b"\xff\xfe\0{",
        b'{"type":"result"}\n{"type":"error"}\n',
        b"{" * 9999,
    ],
)
def test_no_record_and_garbage_are_no_success(use: str, data: bytes, tmp_path: Path) -> None:
    outcome = ended(use, data, tmp_path)

    assert outcome.status is Status.FAILED
    assert outcome.reason and outcome.hint


@pytest.mark.parametrize("use", CLIS)
def test_records_of_the_wrong_shape_are_no_success_and_no_crash(use: str, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in sample(f"{use}-done").splitlines()]
    for wrong in (None, 7, "x", [], {}, [7], {"a": [None]}, -1, 1e400):
        for name in {name for line in lines for name in line} - {"type"}:
            bent = [line | ({name: wrong} if name in line else {}) for line in lines]
            ended(use, "\n".join(map(json.dumps, bent)).encode(), tmp_path)
        bent = [dict.fromkeys(line, wrong) | {"type": line["type"]} for line in lines]
        outcome = ended(use, "\n".join(map(json.dumps, bent)).encode(), tmp_path)
        assert outcome.ok is (use == "codex"), "of these four only Codex says it all by the type of its record"


@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.jsonl")))
def test_a_torn_output_is_done_only_when_the_record_of_success_is_whole(name: str, tmp_path: Path) -> None:
    use, data = name.partition("-")[0], sample(name)
    for cut in (*range(0, len(data), 97), *range(len(data) - 3, len(data))):
        outcome = ended(use, data[:cut], tmp_path)
        assert outcome.ok <= has_success(use, data[:cut]), f"{name} cut at {cut}: {outcome}"
        assert outcome.ok or outcome.reason


def has_success(use: str, data: bytes) -> bool:
    """Whether the last whole record that says how it ended says that it ended well; read in another way than doflow does."""
    found: list[bool] = []
    for line in data.decode("utf-8", "replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        found += [ENDS[use](record)] if record["type"] in ("result", "turn.completed", "step_finish") else []
    return bool(found) and found[-1]


ENDS: dict[str, Callable[[json_stream.Record], bool]] = {
    "claude": lambda record: record["is_error"] is False,
    "codex": lambda record: True,
    "opencode": lambda record: record["part"]["reason"] == "stop",
    "gemini": lambda record: record["status"] == "success",
}


@pytest.mark.parametrize("use", CLIS)
def test_lines_of_others_in_between_do_no_harm(use: str, tmp_path: Path) -> None:
    noise = b'warning: {"type":"result"\n\xff\x00\n[]\n"x"\n{"type":\n\n'
    data = noise + noise.join(line + b"\r\n" for line in sample(f"{use}-done").splitlines()) + noise

    assert ended(use, data, tmp_path) == ended(use, sample(f"{use}-done"), tmp_path)


@pytest.mark.parametrize("use", CLIS)
def test_a_record_inside_a_text_or_behind_a_torn_line_is_no_record(use: str, tmp_path: Path) -> None:
    lines = sample(f"{use}-done").splitlines()
    quoted = json.dumps({"type": "note", "text": lines[-1].decode()}).encode()

    assert not ended(use, b"\n".join([*lines[:-1], quoted]), tmp_path).ok
    assert not ended(use, b"\n".join([*lines[:-1], b'{"type":"note","input":' + lines[-1]]), tmp_path).ok


@pytest.mark.parametrize("use", CLIS)
def test_work_that_began_after_a_success_takes_it_back(use: str, tmp_path: Path) -> None:
    lines = sample(f"{use}-done").splitlines()
    started = {
        "claude": b'"assistant"',
        "codex": b'"turn.started"',
        "opencode": b'"step_start"',
        "gemini": b'"tool_use"',
    }
    again = next(line for line in lines if started[use] in line)

    assert ended(use, b"\n".join([*lines, again]), tmp_path).status is Status.FAILED


RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "Done.", "num_turns": 1}
AFTER_WORK = {
    "limit": {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}},
    "init": {"type": "system", "subtype": "init", "session_id": "s", "model": "m"},
    "tool": {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]}},
}


def streamed(*records: dict[str, object]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@pytest.mark.parametrize("last", AFTER_WORK)
def test_a_turn_of_claude_that_broke_off_after_an_earlier_result_is_not_done(last: str, tmp_path: Path) -> None:
    started: dict[str, object] = {"type": "assistant", "message": {"id": "m2", "usage": {"input_tokens": 5}}}
    hooks = (Hook("PreToolUse", "doflow hook write"),)

    broken = ended("claude", streamed(RESULT, started, AFTER_WORK[last]), tmp_path, hooks=hooks)
    whole = ended("claude", streamed(RESULT, started, AFTER_WORK[last], RESULT), tmp_path, hooks=hooks)

    assert (broken.status, broken.transient) == (Status.FAILED, True)
    assert "ended without reporting success" in broken.reason
    assert (whole.status, whole.text) == (Status.DONE, "Done.")


@pytest.mark.parametrize(
    ("status", "words", "expected"),
    [
        (400, "the connection id is not valid", (Status.FAILED, False)),
        (400, "timeout must be a number", (Status.FAILED, False)),
        (400, "unknown parameter: rate limit", (Status.FAILED, False)),
        (404, "no such model; see /login", (Status.FAILED, False)),
        (401, "connection refused by policy", (Status.AUTH, False)),
        (503, "invalid api key store", (Status.FAILED, True)),
        (529, "quota service", (Status.FAILED, True)),
        (429, "connection", (Status.RATE_LIMITED, False)),
        (0, "connection reset", (Status.FAILED, True)),
        (0, "rate limit reached", (Status.RATE_LIMITED, False)),
        (0, "not logged in", (Status.AUTH, False)),
        (0, "the request is not valid", (Status.FAILED, False)),
    ],
)
def test_the_status_of_an_error_outweighs_its_words(
    status: int, words: str, expected: tuple[Status, bool], tmp_path: Path
) -> None:
    record = {"type": "result", "subtype": "success", "is_error": True, "result": words, "num_turns": 1}

    outcome = ended("claude", streamed(record | {"api_error_status": status or None}), tmp_path, 1)

    assert (outcome.status, outcome.transient) == expected


def test_a_long_log_is_read_line_by_line_and_an_endless_line_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_stream, "LONGEST", 3000)
    first, *rest = sample("codex-done").splitlines()
    long = b'{"type":"item.completed","item":{"type":"agent_message","text":"' + b"x" * 10_000 + b'"}}'

    outcome = ended("codex", b"\n".join([first, long, *rest]), tmp_path)
    cut = ended("codex", b"\n".join([first, *rest[:-2], long, rest[-1]]), tmp_path)

    assert (outcome.status, outcome.text) == (Status.DONE, "done")
    assert (cut.status, cut.text) == (Status.DONE, "")


@pytest.mark.parametrize("use", CLIS)
def test_without_a_log_its_text_is_read(use: str, tmp_path: Path) -> None:
    result = Result(0, str(tmp_path / "none"), str(tmp_path / "none"))

    outcome = registry.find_agent(use).outcome(ask(use), result, lambda: sample(f"{use}-done").decode())

    assert outcome.status is Status.DONE


@pytest.mark.parametrize("use", CLIS)
def test_a_program_that_is_missing_or_misused_is_not_tried_again(use: str, tmp_path: Path) -> None:
    missing = ended(use, b"", tmp_path, 127)
    misused = ended(use, b"", tmp_path, 1, err="error: unknown option '--x'\n")
    crashed = ended(use, b"", tmp_path, -11)

    assert [outcome.transient for outcome in (missing, misused, crashed)] == [False, False, True]
    assert "npm install -g" in missing.hint and "agents.mine.executable" in missing.hint
    assert "unknown option '--x'" in misused.reason


NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("try again in 2 hours 30 minutes.", "2026-11-16T14:30:00"),
        ("Please try again in 398ms. Visit", "2026-11-16T12:00:00.398000"),
        ("Suggested retry after 3600s.", "2026-11-16T13:00:00"),
        ("retrying sampling request (1/1 in 3599.5s)...", "2026-11-16T12:59:59.500000"),
        ("Please retry in 41.5s", "2026-11-16T12:00:41.500000"),
        ("Your quota will reset after 5h30m20s.", "2026-11-16T17:30:20"),
        ("try again in 3 days, 1 hour and 5 minutes", "2026-11-19T13:05:00"),
        ("Claude AI usage limit reached|1794830400", "2026-11-16T12:00:00"),
        ("You've hit your limit · resets 4:28am (UTC)", "2026-11-17T04:28:00"),
        ("resets 3pm (UTC)", "2026-11-16T15:00:00"),
        ("resets Nov 20, 3pm (UTC)", "2026-11-20T15:00:00"),
        ("try again at Nov 16th, 2026 4:28 PM (UTC).", "2026-11-16T16:28:00"),
        ("wait until 2026-11-16T18:00:00Z", "2026-11-16T18:00:00"),
        ("try again in a moment", ""),
        ("resets Feb 31, 3pm (UTC)", ""),
        ("resets 3pm (../../etc/passwd)", None),
        ("", ""),
    ],
)
def test_the_end_of_a_limit_is_read_from_its_words(words: str, expected: str | None) -> None:
    found = rate_limits.parse_reset_time(words, NOW)
    moment = datetime.fromisoformat(found).astimezone(UTC).replace(tzinfo=None).isoformat() if found else ""

    assert expected is None or moment == expected


# What it used


def test_claude_is_told_what_is_left_and_a_stop_there_is_a_pause(tmp_path: Path) -> None:
    stopped = (
        b'{"type":"result","subtype":"error_max_budget_usd","is_error":true,"num_turns":1,"total_cost_usd":0.0235,'
    )
    stopped += b'"errors":["Reached maximum budget ($0.02)"],"usage":{"input_tokens":11641,"output_tokens":1}}\n'
    (tmp_path / "out.log").write_bytes(stopped)
    result = Result(1, str(tmp_path / "out.log"), str(tmp_path / "err.log"))

    command = call("claude", budget=0.02)
    outcome = registry.find_agent("claude").outcome(ask("claude", budget=0.02), result, lambda: "")

    assert command.argv[command.argv.index("--max-budget-usd") + 1] == "0.0200"
    assert "--max-budget-usd" not in call("claude").argv
    assert (outcome.status, outcome.usage) == (Status.PAUSED, Usage(11641, 1, 0, 0.0235))
    assert "Reached maximum budget ($0.02)" in outcome.reason


def test_of_a_turn_that_was_broken_off_the_tokens_are_known_once_and_the_price_is_not(tmp_path: Path) -> None:
    said = '{"type":"assistant","session_id":"s","message":{"id":"%s","usage":{"input_tokens":%d,"output_tokens":2}}}\n'
    data = (said % ("m1", 100) + said % ("m1", 100) + said % ("m2", 150)).encode()

    outcome = ended("claude", data, tmp_path, -9, "cancelled")

    assert (outcome.status, outcome.usage) == (Status.CANCELLED, Usage(250, 4, 0, None))
