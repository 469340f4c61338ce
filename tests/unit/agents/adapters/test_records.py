"""What single records of the vendors' CLIs mean: tokens, limits, a turn that fails after one that went well."""

from __future__ import annotations

import json

import pytest

from doflow.agents import registry
from doflow.flow.model import Ask, Profile, Status, Usage
from doflow.util.process.runner import Result


@pytest.fixture
def judge(tmp_path):
    def act(use, *records, code=0):
        out = tmp_path / "out.log"
        out.write_text("".join(json.dumps(record) + "\n" for record in records))
        ask = Ask("plan", "Do it.", Profile("mine", use), "/project", "001-x", "specs/001-x")
        return registry.find_agent(use).outcome(ask, Result(code, str(out), str(tmp_path / "err.log")), lambda: "")

    return act


def result(**more):
    used = {
        "input_tokens": 10, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 1000, "output_tokens": 5,
    }  # fmt: skip
    base = {
        "type": "result", "subtype": "success", "is_error": False, "result": "Done.", "num_turns": 1, "usage": used,
        "total_cost_usd": 0.5, "session_id": "s",
    }  # fmt: skip
    return base | more


def limit(status):
    return {"type": "rate_limit_event", "rate_limit_info": {"status": status, "resetsAt": 4_102_444_800}}


def test_tokens_of_claude_are_all_that_it_read_cached_or_not(judge):
    assert judge("claude", result()).usage == Usage(1110, 5, 1000, 0.5)


@pytest.mark.parametrize(("status", "expected"), [("rejected", Status.RATE_LIMITED), ("allowed", Status.FAILED)])
def test_only_a_limit_that_was_reached_makes_an_error_of_claude_a_limit(judge, status, expected):
    broken = result(is_error=True, result="Something broke", subtype="error_during_execution")

    assert judge("claude", limit(status), broken, code=1).status is expected


def test_a_limit_that_was_reached_on_the_way_does_not_spoil_a_success_of_claude(judge):
    assert judge("claude", limit("rejected"), result()).status is Status.DONE


def test_an_error_of_codex_without_words_is_no_success(judge):
    turn = {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}}

    assert judge("codex", {"type": "turn.started"}, turn).status is Status.DONE
    assert judge("codex", {"type": "turn.started"}, turn, {"type": "error"}).status is Status.FAILED
