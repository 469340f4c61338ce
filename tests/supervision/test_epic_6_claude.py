"""Epic 6 with real Claude Code in tmux, against a scripted model on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.supervision import FLOW_OF_SIGNALS, Site, eventually, gated, needs_tmux, proven

models = pytest.importorskip("tests.support.model", reason="the scripted model is not here")
clis = pytest.importorskip("tests.support.clis", reason="the vendors' CLIs are not here")
pytestmark = [needs_tmux, pytest.mark.timeout(240)]


#: a turn that a CLI without hooks ends as it was told to
DONE = "It is written.\n\nDOFLOW: done"


@pytest.mark.parametrize("name", clis.cases("codex", "gemini", "opencode"))
def test_a_pipeline_is_done_by_another_cli_that_is_read_from_its_pane(name: str, site: Any) -> None:
    here = site()
    hello = str(here.root / "hello.txt")
    with models.Model(models.play(models.Write(hello, "Hello, guardian.\n"), models.Say(DONE))) as model:
        clis.use(here, name, model, "supervision: {answers: {trust this folder: Trust and continue}}\n")
        gated(here)
        done = here.doflow("guardian", "launch", "p.dot", timeout=120)

    proven(here, done.returncode, done.stdout + done.stderr)
    assert here.kinds("p")[-4:] == FLOW_OF_SIGNALS


@pytest.mark.parametrize("name", clis.cases("codex", "gemini", "opencode"))
def test_another_cli_fixes_in_its_own_session_what_was_found_wrong(name: str, site: Any) -> None:
    here = site()
    hello = str(here.root / "hello.txt")

    def scenario(heard: Any) -> Any:
        text = "Hello, guardian.\n" if "attempt 3 starts now" in heard.prompt else "Hullo\n"
        return (models.Write(hello, text), models.Say(DONE))[min(heard.done, 1)]

    with models.Model(scenario) as model:
        clis.use(here, name, model, "supervision: {stuck: 1h, answers: {trust this folder: Trust and continue}}\n")
        gated(here)
        done = here.doflow("guardian", "launch", "p.dot", timeout=120)

    proven(here, done.returncode, done.stdout + done.stderr)
    assert here.kinds("p").count("VALIDATION_FAILED") == 2
    assert [one["event"] for one in here.diary("p")].count("orchestrator_spawned") == 1, "the same session"


@pytest.fixture
def scripted(site: Any) -> Iterator[Any]:
    """A site whose default agent is Claude Code at a model that plays a scenario."""
    opened: list[Any] = []

    def make(scenario: Any, settings: str = "") -> tuple[Site, Any]:
        here = site()
        model = models.Model(scenario).__enter__()
        opened.append(model)
        clis.use(here, "claude", model, settings)
        key = here.env["ANTHROPIC_API_KEY"]
        trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        (here.home / ".claude.json").write_text(json.dumps({
            "hasCompletedOnboarding": True, "theme": "dark", "projects": {str(here.root): trusted},
            "customApiKeyResponses": {"approved": [key, key[-20:]], "rejected": []},
        }))  # fmt: skip
        return here, model

    yield make
    for model in opened:
        model.__exit__(None, None, None)


@clis.needed("claude")
def test_ac_1_to_7_with_real_claude_code_in_tmux(scripted: Any) -> None:
    """R2.112 to R2.119, R2.45."""
    here, model = scripted(models.play(models.Write("hello.txt", "Hello, guardian.\n"), models.Say("It is written.")))
    gated(here, prd_section="Epic 6", solution_design="docs/sd.md")

    done = here.doflow("guardian", "launch", "p.dot", timeout=120)

    proven(here, done.returncode, done.stdout + done.stderr)
    assert here.kinds("p") == FLOW_OF_SIGNALS
    prompt = model.heard[0].raw
    for words in ("PRD-1", "Epic 6", "docs/sd.md", "hello.txt holds: Hello, guardian.", "You coordinate."):
        assert words in prompt, "its assignment and its style are what the model was told"
    complete = next(one for one in here.said("p") if one["signal_type"] == "NODE_COMPLETE")
    assert complete["payload"]["summary"] == "It is written."
    memory = json.loads((here.root / ".doflow/guardian/p/nodes/impl_hello/runner.json").read_text())
    assert memory["health"]["tokens_in"] > 0, "R2.38"


@clis.needed("claude")
def test_a_failed_validation_is_fixed_in_the_same_session(scripted: Any) -> None:
    def scenario(heard: Any) -> Any:
        right = "hello.txt is not right" in heard.prompt
        text = "Hello, guardian.\n" if right else "Hello.\n"
        return (models.Write("hello.txt", text), models.Say("mended" if right else "written"))[min(heard.done, 1)]

    here, _ = scripted(scenario)
    gated(here)

    done = here.doflow("guardian", "launch", "p.dot", timeout=120)

    proven(here, done.returncode, done.stdout + done.stderr)
    assert here.kinds("p") == ["NEEDS_REVIEW", "VALIDATION_FAILED", *FLOW_OF_SIGNALS]
    seats = here.root / ".doflow/guardian/p/nodes/impl_hello/seats"
    assert [path.name for path in seats.iterdir()] == ["1"], "one session for both attempts"


@clis.needed("claude")
def test_a_question_dialog_is_answered_by_keys(scripted: Any) -> None:
    """R2.34, R2.37, R2.87."""
    question = {
        "question": "Which greeting shall I use?", "header": "Greeting", "multiSelect": False,
        "options": [{"label": "Hi", "description": "short"}, {"label": "Hello", "description": "long"}],
    }  # fmt: skip
    deeds = (
        models.Tool("AskUserQuestion", {"questions": [question]}),
        models.Write("hello.txt", "Hello, guardian.\n"), models.Say("written"),
    )  # fmt: skip
    here, model = scripted(models.play(*deeds), "supervision: {answers: {which greeting: Hello}}\n")
    gated(here)

    done = here.doflow("guardian", "launch", "p.dot", timeout=120)

    proven(here, done.returncode, done.stdout + done.stderr)
    assert here.kinds("p") == ["NEEDS_INPUT", "INPUT_RESPONSE", *FLOW_OF_SIGNALS]
    asked = here.said("p")[0]["payload"]
    assert "Which greeting shall I use?" in asked["question_text"]
    assert asked["options"][:2] == ["Hi", "Hello"]
    assert any("Hello" in heard.raw and "Which greeting" in heard.raw for heard in model.heard[1:])


@clis.needed("claude")
def test_a_permission_prompt_goes_to_the_person_and_no_is_no(scripted: Any) -> None:
    outside = "../forbidden.txt"

    def scenario(heard: Any) -> Any:
        deeds = (
            models.Write(outside, "x"), models.Write("hello.txt", "Hello, guardian.\n"), models.Say("written"),
        )  # fmt: skip
        return deeds[min(heard.done, 2)]

    here, _ = scripted(scenario)
    gated(here)
    terminal = here.launch("launch", "p.dot")
    assert eventually(lambda: "ESCALATION" in here.kinds("p"), 60)
    (question,) = json.loads(here.doflow("signal", "list", "--json").stdout)["questions"]
    assert "forbidden.txt" in question["payload"]["issue"]
    number = next(place for place, said in enumerate(question["payload"]["options"], 1) if said.startswith("No"))
    assert here.doflow("signal", "answer", question["question"], str(number)).returncode == 0
    assert eventually(lambda: not json.loads(here.doflow("signal", "list", "--json").stdout)["questions"])
    assert not Path(here.root.parent / "forbidden.txt").exists()
    terminal.kill()
    terminal.communicate()


@clis.needed("claude")
def test_a_direct_write_where_only_workers_may_is_a_violation_by_hook(scripted: Any) -> None:
    """R2.35, R2.18."""
    here, _ = scripted(models.play(models.Write("hello.txt", "Hello, guardian.\n"), models.Say("written")))
    gated(here, forbid="Edit,Write")
    terminal = here.launch("launch", "p.dot")

    assert eventually(lambda: "VIOLATION" in here.kinds("p"), 60)
    found = next(one for one in here.said("p") if one["signal_type"] == "VIOLATION")
    assert found["payload"]["violation_type"] == "direct_edit"
    assert found["payload"]["evidence"].startswith("Write(")
    assert eventually(lambda: "GUIDANCE" in here.kinds("p"))
    terminal.kill()
    terminal.communicate()
