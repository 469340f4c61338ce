"""Epic 1: the signal protocol and the eleven tools, run as the programs that they are."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.supervision import PROGRAMS, needs_tmux

from doflow.supervise.signal_store import Signal, SignalStore, read_signal

pytestmark = pytest.mark.smoke

TOOLS = (
    *("spawn-runner", "wait-for-signal", "read-signal", "respond-to-runner", "escalate-to-terminal"),
    *("spawn-orchestrator", "capture-output", "send-to-orchestrator", "signal-guardian", "wait-for-guardian"),
    "check-orchestrator-alive",
)


def test_ac_1_signal_guardian_creates_a_valid_signal_file(site: Any) -> None:
    """R2.77: signal_guardian NEEDS_REVIEW --node impl_auth --evidence /path."""
    here = site()

    answer = here.tool("signal-guardian", "NEEDS_REVIEW", "--node", "impl_auth", "--evidence", "/path")

    path = Path(answer["signal_file"])
    assert (answer["status"], answer["signal_type"], answer["exit"]) == ("ok", "NEEDS_REVIEW", 0)
    assert path.parent == here.root / ".claude" / "attractor" / "signals"
    head = here.git("rev-parse", "HEAD").strip()
    assert json.loads(path.read_text())["payload"] == {
        "node_id": "impl_auth", "evidence_path": "/path", "commit_hash": head,
    }  # fmt: skip
    assert here.git("status", "--short") == "", "signals are nothing to commit"


def test_ac_2_wait_for_signal_blocks_and_returns_when_a_signal_appears(site: Any) -> None:
    """R2.78: wait_for_signal --source runner --timeout 30; R2.72: and moves it to processed."""
    here = site()
    waiter = here.start("doflow-wait-for-signal", "--source", "runner", "--timeout", "30")
    time.sleep(1)
    assert waiter.poll() is None
    sent = here.tool("signal-guardian", "NODE_COMPLETE", "--node", "a", "--summary", "done", "--commit", "abc")
    told = time.monotonic()

    out, _ = waiter.communicate(timeout=60)

    assert time.monotonic() - told < 15
    answer = json.loads(out)
    assert (waiter.returncode, answer["signal_type"], answer["payload"]["summary"]) == (0, "NODE_COMPLETE", "done")
    assert not Path(sent["signal_file"]).exists()
    assert (Path(sent["signal_file"]).parent / "processed" / Path(sent["signal_file"]).name).exists()


def test_no_signal_in_time_is_said_and_is_no_success(site: Any) -> None:
    answer = site().tool("wait-for-signal", "--timeout", "0.2")

    assert (answer["status"], answer["exit"]) == ("timeout", 1)


@needs_tmux
def test_ac_3_and_4_spawn_orchestrator_creates_a_session_that_capture_output_shows(site: Any) -> None:
    """R2.79, R2.80: --node impl_auth gives the session orch-impl-auth, with style and attributes in its prompt."""
    here = site('echo "I am $DOFLOW_NODE in $(pwd)"; cat "$DOFLOW_PROMPT"; read answer; echo "got $answer"; sleep 60')

    made = here.tool("spawn-orchestrator", "--node", "impl_auth", "--prd", "PRD-AUTH-001", "--worktree", "trees/auth")

    assert (made["status"], made["session"]) == ("ok", "orch-impl-auth")
    prompt = Path(made["prompt"]).read_text()
    assert "You coordinate." in prompt, "the output style"
    assert "PRD: PRD-AUTH-001" in prompt
    seen = _until(here, "I am impl_auth")
    assert seen["session"] == "orch-impl-auth"
    assert str(here.root / "trees" / "auth") in seen["content"].replace("\n", "")
    assert here.git("branch", "--list", "node/impl_auth").strip().endswith("node/impl_auth"), "a worktree was made"

    assert here.tool("check-orchestrator-alive", "--session", "orch-impl-auth")["alive"] is True
    sent = here.tool("send-to-orchestrator", "--session", "orch-impl-auth", "--message", "forty two")
    assert (sent["status"], sent["session"], sent["message"]) == ("ok", "orch-impl-auth", "forty two")
    assert "got forty two" in _until(here, "got forty two")["content"]
    assert here.tool("capture-output", "--session", "orch-impl-auth", "--lines", "1")["lines"] == 1


def _until(here: Any, words: str) -> dict[str, Any]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        seen = here.tool("capture-output", "--session", "orch-impl-auth", "--lines", "50")
        if words in seen["content"]:
            return seen
        time.sleep(0.2)
    raise AssertionError(f"never shown: {words}\n{seen['content']}")


@pytest.mark.smoke("spawn-runner", "signal-guardian")
@pytest.mark.parametrize("tool", TOOLS)
def test_ac_5_every_tool_has_help_and_answers_with_one_json_object_also_on_errors(tool: str, site: Any) -> None:
    """R2.81, R2.82."""
    here = site()
    helped = here.program(f"doflow-{tool}", "--help")
    assert helped.returncode == 0
    assert tool in helped.stdout
    wrong = here.program(f"doflow-{tool}", "--no-such-option")

    answer = json.loads(wrong.stdout)
    assert (wrong.returncode, wrong.stderr, answer["status"]) == (1, "", "error")
    assert answer["message"]
    assert answer["hint"]


def test_ac_6_the_protocol_writes_reads_parses_and_moves_to_processed(site: Any) -> None:
    """R2.83: by the library as by the tools, and each reads what the other wrote."""
    here = site()
    store = SignalStore(str(here.root / ".claude" / "attractor" / "signals" / "p"), "p")
    payload = {"node_id": "impl_auth", "violation_type": "direct_edit", "evidence": "Edit(a.py) ünd mehr"}

    written = store.write(Signal("VIOLATION", payload))
    name = Path(written.path).name
    assert re.fullmatch(r"\d{8}T\d{6}Z-runner-guardian-VIOLATION-[\w.-]+\.json", name), "R2.55"
    assert json.loads(Path(written.path).read_text())["payload"] == payload
    assert read_signal(written.path) == written, "what is read is what was written"
    by_tool = here.tool("read-signal", name, "--pipeline", "p")
    assert (by_tool["source"], by_tool["target"], by_tool["payload"]) == ("runner", "guardian", payload)

    taken = here.tool("wait-for-signal", "--source", "runner", "--pipeline", "p", "--timeout", "5")
    assert taken["payload"] == payload
    assert list(store.waiting()) == []
    assert read_signal(Path(store.folder) / "processed" / name).payload == payload
    assert here.tool("read-signal", name, "--pipeline", "p")["payload"] == payload, "it is found there, too"


@needs_tmux
def test_a_dead_session_is_an_answer_and_a_missing_one_an_error(site: Any) -> None:
    here = site()

    gone = here.tool("check-orchestrator-alive", "--node", "impl_auth")
    lost = here.tool("capture-output", "--session", "orch-impl-auth")

    assert (gone["exit"], gone["alive"], gone["session"]) == (0, False, "orch-impl-auth")
    assert (lost["exit"], lost["status"]) == (1, "error")
    assert "no session orch-impl-auth" in lost["message"]


@pytest.mark.smoke("words0-unknown signal 'NEEDS_COFFEE'")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("signal-guardian", "NEEDS_COFFEE", "--node", "a"), "unknown signal 'NEEDS_COFFEE'"),
        (("signal-guardian", "GUIDANCE", "--node", "a"), "GUIDANCE goes from guardian to runner"),
        (("signal-guardian", "NEEDS_INPUT", "--node", "a"), "NEEDS_INPUT needs --question"),
        (("signal-guardian", "NEEDS_REVIEW"), "NEEDS_REVIEW needs --node"),
        (("respond-to-runner", "NEEDS_REVIEW", "--node", "a"), "NEEDS_REVIEW goes from runner to guardian"),
        (("escalate-to-terminal",), "ESCALATION needs --issue"),
        (("escalate-to-terminal", "GUIDANCE"), "GUIDANCE is not a signal to the terminal"),
        (("read-signal", "nothing.json"), "no signal file nothing.json"),
    ],
)
def test_wrong_words_are_refused_with_an_object_that_says_why(words: tuple[str, ...], message: str, site: Any) -> None:
    answer = site().tool(*words)

    assert (answer["exit"], answer["status"]) == (1, "error")
    assert message in answer["message"]


def test_the_other_tools_of_the_guardian_write_and_read(site: Any) -> None:
    """R2.25 to R2.28, R2.43."""
    here = site()
    for words, kind in (
        (("respond-to-runner", "VALIDATION_FAILED", "--node", "a", "--feedback", "x", "--retry-count", "2"), "retry"),
        (("respond-to-runner", "INPUT_RESPONSE", "--node", "a", "--response", "yes"), "response"),
    ):
        assert here.tool(*words)["status"] == "ok", kind
    asked = here.tool("escalate-to-terminal", "--issue", "Which?", "--option", "A", "--option", "B")
    done = here.tool("escalate-to-terminal", "PIPELINE_COMPLETE", "--summary", "all", "--pipeline", "shop")

    assert here.tool("read-signal", asked["signal_file"])["payload"] == {
        "pipeline_id": "", "issue": "Which?", "options": ["A", "B"],
    }  # fmt: skip
    assert Path(done["signal_file"]).parent.name == "shop"
    first = here.tool("wait-for-guardian", "--node", "a", "--type", "INPUT_RESPONSE", "--timeout", "5")
    assert first["payload"] == {"node_id": "a", "response_text": "yes"}
    assert here.tool("wait-for-guardian", "--node", "b", "--timeout", "0.1")["status"] == "timeout"


def test_two_pipelines_do_not_hear_each_other(site: Any) -> None:
    here = site()
    here.tool("signal-guardian", "NODE_COMPLETE", "--node", "a", "--summary", "x", "--pipeline", "one")

    assert here.tool("wait-for-signal", "--pipeline", "two", "--timeout", "0.1")["status"] == "timeout"
    assert here.tool("wait-for-signal", "--timeout", "0.1")["status"] == "timeout"
    assert here.tool("wait-for-signal", "--pipeline", "one", "--timeout", "5")["pipeline"] == "one"


def test_a_folder_that_cannot_be_made_is_said(site: Any) -> None:
    """R2.75."""
    here = site()
    here.write("blocked", "a file")

    answer = here.tool(
        "signal-guardian", "NODE_COMPLETE", "--node", "a", "--summary", "x", "--signals-dir", "blocked/s"
    )

    assert answer["status"] == "error"
    assert "blocked" in answer["message"]


def test_every_tool_is_installed() -> None:
    assert [tool for tool in TOOLS if not (PROGRAMS / f"doflow-{tool}").exists()] == []
    assert subprocess.run((PROGRAMS / "doflow", "runner", "--help"), capture_output=True, check=False).returncode == 0
