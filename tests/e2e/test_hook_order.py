"""Does a hook let through who may run, and no one else? As processes, with payloads as Claude Code and Codex send them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.support.hooks import DOOR, ORDER, STATES, Asking, said

UTILITY = ("Explore", "Plan", "general-purpose")
LANGUAGES = ("bash-expert", "nix-builder", "c-worker")
OTHERS = ("python-pro", "bash", "bash_x", "Context-Gatherer", "context-gatherer ", "c", "claude", "my:bash-expert", "")
MAY = {
    "IDLE": {"context-gatherer"},
    "GATHERING": {"context-refiner", *UTILITY},
    "REFINING": {"strategic-orchestrator", *UTILITY},
    "EXECUTING": {*LANGUAGES, *UTILITY},
    "COMPLETE": {"context-gatherer"},
}


@pytest.mark.smoke("IDLE", "GATHERING")
@pytest.mark.parametrize("state", STATES)
def test_in_every_state_exactly_the_agents_of_the_table_may_run(state: str, tmp_path: Path) -> None:
    """R3.2–R3.14, R3.32–R3.34: an empty name is what Claude Code takes for general-purpose."""
    asking = Asking(tmp_path)
    asking.reach(state)
    assert asking.state()["state"] == state

    for agent in (*ORDER, *UTILITY, *LANGUAGES, *OTHERS):
        done = asking.may(agent)
        may = (agent or "general-purpose") in MAY[state]
        decision = said(done)["hookSpecificOutput"]
        assert (done.returncode, decision["permissionDecision"]) == ((0, "allow") if may else (2, "deny")), (
            state,
            agent,
        )
        told = done.stderr.decode()
        assert re.fullmatch(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\] \[doflow-hook\] PreToolUse: .+\n", told), told
        assert decision["permissionDecisionReason"].removeprefix("[doflow-hook] ") in told
        assert may or f"in state {state}" in told
    assert asking.state()["state"] == state, "asking moves nothing"


@pytest.mark.smoke
def test_the_order_runs_through_and_what_each_stage_said_is_kept(tmp_path: Path) -> None:
    """R3.15–R3.18, R3.38–R3.41, R3.49, R3.50."""
    asking = Asking(tmp_path)
    asking.reach("EXECUTING")
    asking.stop("bash-expert", "b1", "not kept")
    asking.stop("Explore", "e1", "not kept either")

    doc = asking.state()
    assert (doc["version"], doc["state"], doc["session_id"]) == ("1.0", "EXECUTING", "s1")
    assert doc["context"] == {
        "gathered": "context-gatherer said this",
        "refined": "context-refiner said this",
        "orchestration": "strategic-orchestrator said this",
    }
    moves = [(entry["agent"], entry["state_before"], entry["state_after"]) for entry in doc["history"]]
    assert moves == [
        ("context-gatherer", "IDLE", "GATHERING"),
        ("context-refiner", "GATHERING", "REFINING"),
        ("strategic-orchestrator", "REFINING", "EXECUTING"),
        ("bash-expert", "EXECUTING", "EXECUTING"),
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["timestamp"]) for entry in doc["history"])


def test_a_restart_after_complete_begins_a_new_round(tmp_path: Path) -> None:
    """R3.19, R3.20: the gatherer leads out of COMPLETE, and what the last round knew is gone."""
    asking = Asking(tmp_path)
    asking.reach("COMPLETE")

    asking.stop("context-gatherer", "again", "the new door is blue")

    doc = asking.state()
    assert doc["state"] == "GATHERING"
    assert doc["context"] == {"gathered": "the new door is blue", "refined": "", "orchestration": ""}


@pytest.mark.smoke("payload0-2", "payload1-0")
@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"subagent_type": "Explore"}, 2),  # flat, as the manual tests of the original were
        ({"subagent_type": "context-gatherer"}, 0),
        ({"tool_name": "Task", "tool_input": {"subagent_type": "bash-expert"}}, 2),
        ({"tool_name": "Task", "tool_input": {"subagent_type": "context-gatherer"}}, 0),
        ({"tool_name": "Agent", "tool_input": {"prompt": "do it", "description": "x"}}, 2),  # = general-purpose
        ({"tool_name": "Agent", "tool_input": {"prompt": "do it", "subagent_type": None}}, 2),
        ({"tool_name": "Agent", "agent_type": "context-gatherer", "tool_input": {"subagent_type": "Explore"}}, 2),
        ({"tool_name": "Bash", "tool_input": {"command": "ls"}}, 0),
        ({"tool_name": "spawn_agent", "tool_input": {"message": "x", "agent_type": "worker"}}, 2),
        ({"tool_name": "spawn_agent", "tool_input": {"message": "x"}}, 2),  # = default
        ({"tool_name": "spawn_agent", "tool_input": {"message": "x", "agent_type": "context-gatherer"}}, 0),
    ],
)
def test_a_name_is_found_wherever_the_agents_put_it(payload: dict, code: int, tmp_path: Path) -> None:
    asking = Asking(tmp_path)

    done = asking.raw("PreToolUse", json.dumps(payload).encode())

    assert done.returncode == code, done.stderr


HOSTILE = {
    "empty": b"",
    "blank": b" \n\t",
    "not JSON": b"subagent_type=Explore",
    "torn": b'{"session_id": "s1", "tool_name": "Agent", "tool_input": {"subagent_type": "Expl',
    "a list": b'["Explore"]',
    "a text": b'"Explore"',
    "null": b"null",
    "wrong nesting": b'{"tool_name": "Agent", "tool_input": {"tool_input": {"subagent_type": "Explore"}}}',
    "a name that is no text": b'{"tool_name": "Agent", "tool_input": {"subagent_type": ["Explore"]}}',
    "an input that is no object": b'{"tool_name": "Agent", "tool_input": "Explore"}',
    "not UTF-8": b'\xff\xfe{"tool_name"',
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 50_000,
    "NUL": b"\0" * 1000,
    "odd session": b'{"session_id": ["x"], "cwd": 5, "tool_name": "Agent", "tool_input": {"subagent_type": 7}}',
}


@pytest.mark.smoke("empty", "torn", "wrong nesting", "deep")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_question_that_makes_no_sense_blocks_nothing_and_is_loud(name: str, tmp_path: Path) -> None:
    """R3.35, R3.60."""
    asking = Asking(tmp_path)

    done = asking.raw("PreToolUse", HOSTILE[name])

    assert done.returncode == 0
    assert b"ALLOWS IT" in done.stderr and b"Traceback" not in done.stderr
    assert "hookSpecificOutput" not in said(done)


@pytest.mark.parametrize(
    "event", ["SessionStart", "UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop", "SessionEnd"]
)
def test_no_event_ever_crashes_or_blocks_on_nonsense(event: str, tmp_path: Path) -> None:
    asking = Asking(tmp_path)

    for data in (
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"session_id": 5, "agent_id": {}, "agent_type": [], "background_tasks": "x"}',
    ):
        done = asking.raw(event, data)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
        said(done)


def test_bytes_that_are_no_utf8_inside_a_good_question_do_not_open_the_gate(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    data = json.dumps(asking.payload("PreToolUse", tool_input={"subagent_type": "Explore", "prompt": "PLACE"})).encode()

    done = asking.raw("PreToolUse", data.replace(b"PLACE", b"\xff\xfe\x80"))

    assert done.returncode == 2


def test_a_large_question_is_answered_like_a_small_one(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    big = {"prompt": "x" * 5_000_000}

    assert asking.ask("PreToolUse", tool_input=asking.wanted("Explore") | big).returncode == 2
    assert asking.ask("PreToolUse", tool_input=asking.wanted("context-gatherer") | big).returncode == 0


@pytest.mark.smoke("../../../etc/passwd", "a/b")
@pytest.mark.parametrize(
    "name", ["../../../etc/passwd", "a/b", ".", "..", "", "x" * 500, "s\n1", "ü", "\ud800", "%2E%2E"]
)
def test_no_session_id_leads_out_of_its_folder(name: str, tmp_path: Path) -> None:
    asking = Asking(tmp_path)

    done = asking.ask("SessionStart", session_id=name)

    assert done.returncode == 0
    written = [path for path in tmp_path.rglob("pipeline-state.json") if not path.is_symlink()]
    assert [path.parent.parent.parent for path in written] == [asking.home / ".claude" / "state" / "doflow"]


@pytest.mark.smoke
def test_codex_is_kept_in_order_like_claude(tmp_path: Path) -> None:
    asking = Asking(tmp_path, agent="codex")
    asking.ask("SessionStart")

    assert asking.may("worker").returncode == 2
    assert asking.may("context-gatherer").returncode == 0
    asking.start("context-gatherer", "thread-1")
    asking.stop("context-gatherer", "thread-1", "gathered by codex")
    assert asking.may("context-refiner").returncode == 0
    assert asking.state()["context"]["gathered"] == "gathered by codex"


@pytest.mark.smoke
def test_the_order_is_said_with_a_prompt_in_idle_and_never_later_nor_to_a_sub_agent(tmp_path: Path) -> None:
    """R3.26–R3.28."""
    asking = Asking(tmp_path, agent="codex")

    first = said(asking.ask("UserPromptSubmit"))["hookSpecificOutput"]
    inner = said(asking.ask("UserPromptSubmit", agent_id="t1", agent_type="context-gatherer"))
    asking.stop("context-gatherer", "a1")
    later = said(asking.ask("UserPromptSubmit"))

    assert first["hookEventName"] == "UserPromptSubmit"
    assert first["additionalContext"].index("context-gatherer") < first["additionalContext"].index("context-refiner")
    assert "hookSpecificOutput" not in inner and "hookSpecificOutput" not in later


def test_an_event_that_is_not_known_is_refused_in_words_and_blocks_nothing(tmp_path: Path) -> None:
    done = Asking(tmp_path).raw("Whatever", b"{}")

    assert done.returncode == 1
    assert b"usage: doflow hook" in done.stderr


@pytest.mark.smoke
def test_the_former_file_of_hooks_answers_as_the_present_one(tmp_path: Path) -> None:
    """Hooks that 0.1.0 installed with `--absolute` name door.py."""
    *python, entry = DOOR
    asking = Asking(tmp_path)
    asking.reach("GATHERING")

    for agent, code in (("context-refiner", 0), ("context-gatherer", 2)):
        data = json.dumps(asking.payload("PreToolUse", tool_input=asking.wanted(agent))).encode()
        present, former = (
            subprocess.run(
                (*python, str(path), "PreToolUse"),
                input=data, env=asking.env, cwd=asking.root, capture_output=True, timeout=60, check=False,
            )
            for path in (Path(entry), Path(entry).with_name("door.py"))
        )  # fmt: skip
        complaints = [done.stderr.partition(b"] ")[2] for done in (former, present)]  # without the time
        assert (former.returncode, former.stdout, complaints[0]) == (code, present.stdout, complaints[1])
        assert said(former)["hookSpecificOutput"]["permissionDecision"] == ("deny" if code else "allow")
