"""Epic 6: all four layers on a pipeline of one node and one gate: with a shell agent, and with real Claude Code in tmux."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.supervision import Site, eventually, left_over, needs_tmux

pytestmark = [needs_tmux, pytest.mark.timeout(240)]

FLOW_OF_SIGNALS = ["NEEDS_REVIEW", "VALIDATION_PASSED", "NODE_COMPLETE", "PIPELINE_COMPLETE"]


def gated(here: Site, **more: str) -> None:
    validate = "grep -qx 'Hello, guardian.' hello.txt || { echo hello.txt is not right; exit 1; }"
    here.pipeline(
        "p", here.node("impl_hello", acceptance="hello.txt holds: Hello, guardian.", **{"validate": validate, **more}),
        here.node("gate", "wait.human", gate="technical", validate="test -s hello.txt"),
    )  # fmt: skip


def proven(here: Site, code: int, said: str) -> None:
    """AC-2 to AC-7, from what is on the disk."""
    assert code == 0, (said, here.diary("p"))
    diary = here.diary("p")
    layers = [(entry["layer"], entry["event"]) for entry in diary]
    spawned = [layers.index(one) for one in (("guardian", "runner_spawned"), ("runner", "orchestrator_spawned"))]
    assert spawned == sorted(spawned), "AC-2: the guardian spawned a runner, the runner an orchestrator in tmux"
    assert here.read("hello.txt") == "Hello, guardian.\n", "AC-3: the trivial task is done"
    assert set(here.statuses("p").values()) == {"validated"}, "AC-5"
    signals = here.said("p")
    kinds = [one["signal_type"] for one in signals]
    assert kinds[0] in ("NEEDS_REVIEW", "NEEDS_INPUT"), "AC-4: the runner saw the end, and signalled"
    assert kinds[-1] == "PIPELINE_COMPLETE", "AC-6"
    for one in signals:
        datetime.fromisoformat(one["timestamp"])
    assert [one["timestamp"] for one in signals] == sorted(one["timestamp"] for one in signals), "AC-7: the log"
    log = here.doflow("signal", "log", "--pipeline", "p").stdout
    assert len(re.findall(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z +p +\w+ > \w+ +[A-Z_]+", log, re.M)) == len(signals)
    assert eventually(lambda: left_over(here.root / ".doflow" / "guardian") == []), "no process is left"


@pytest.mark.always
def test_ac_1_to_7_with_a_shell_agent(site: Any) -> None:
    """R2.112 to R2.118, where no CLI of a vendor is installed."""
    here = site(
        'echo "$DOFLOW_NODE at work"; echo "Hello, guardian." > hello.txt; git add hello.txt; git commit -qm hello'
    )
    gated(here)

    done = here.doflow("guardian", "launch", "p.dot", timeout=60)

    proven(here, done.returncode, done.stdout + done.stderr)
    assert here.kinds("p") == FLOW_OF_SIGNALS
    review = next(one for one in here.said("p") if one["signal_type"] == "NEEDS_REVIEW")
    assert review["payload"]["commit_hash"] == here.git("rev-parse", "HEAD").strip()


models = pytest.importorskip("tests.support.model", reason="the scripted model is not here")
clis = pytest.importorskip("tests.support.clis", reason="the vendors' CLIs are not here")
claude = [clis.needed("claude"), pytest.mark.slow]


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


def about_node(heard: Any) -> bool:
    return "orchestrator of the node" in heard.raw


@pytest.mark.usefixtures("site")
class TestClaude:
    """Real Claude Code in tmux, a scripted model on loopback."""

    pytestmark = claude

    def test_ac_1_to_7_with_real_claude_code_in_tmux(self, scripted: Any) -> None:
        """R2.112 to R2.119, R2.45."""
        here, model = scripted(
            models.play(models.Write("hello.txt", "Hello, guardian.\n"), models.Say("It is written."))
        )
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

    def test_a_failed_validation_is_mended_in_the_same_session(self, scripted: Any) -> None:
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

    def test_a_question_dialog_is_answered_by_keys(self, scripted: Any) -> None:
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

    def test_a_permission_prompt_goes_to_the_person_and_no_is_no(self, scripted: Any) -> None:
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

    def test_a_direct_write_where_only_workers_may_is_a_violation_by_hook(self, scripted: Any) -> None:
        """R2.35, R2.18."""
        here, _ = scripted(models.play(models.Write("hello.txt", "Hello, guardian.\n"), models.Say("written")))
        gated(here, forbid="Edit,Write")
        terminal = here.launch("launch", "p.dot")

        assert eventually(lambda: "VIOLATION" in here.kinds("p"), 60)
        found = next(one for one in here.said("p") if one["signal_type"] == "VIOLATION")
        assert found["payload"]["violation_type"] == "direct_edit"
        assert found["payload"]["evidence"].startswith("Write(")
        assert eventually(lambda: "GUIDANCE" in here.kinds("p"), 30)
        terminal.kill()
        terminal.communicate()
