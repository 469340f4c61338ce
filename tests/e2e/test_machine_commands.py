"""Can a person see where a session stands, and put it right by hand?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.hooks import Asking


def told(asking: Asking, *words: str) -> dict:
    done = asking.doflow("machine", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.smoke
def test_status_tells_state_time_history_and_who_is_at_work(tmp_path: Path) -> None:
    """R3.77, R3.83."""
    asking = Asking(tmp_path)
    asking.reach("GATHERING")
    asking.start("Explore", "e1")

    row = told(asking, "status")
    words = asking.doflow("machine", "status").stdout

    assert (row["state"], row["history_count"], row["active"]) == ("GATHERING", 1, ["Explore"])
    assert row["timestamp"] == asking.state()["timestamp"]
    assert row["file"] == str(asking.folder() / "pipeline-state.json")
    assert "context-first is in GATHERING" in words and "running: Explore" in words


def test_a_broken_state_is_said_to_be_what_the_next_hook_takes_it_for(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    asking.reach("GATHERING")
    (asking.folder() / "pipeline-state.json").write_text("{")

    done = asking.doflow("machine", "status")

    assert (done.returncode, "context-first is in IDLE" in done.stdout) == (0, True)
    assert "is not usable" in done.stderr


def test_history_shows_the_last_ten(tmp_path: Path) -> None:
    """R3.78."""
    asking = Asking(tmp_path)
    asking.reach("EXECUTING")
    for number in range(12):
        asking.stop(f"bash-{number}", f"b{number}")

    assert [entry["agent"] for entry in told(asking, "history")["history"]] == [f"bash-{n}" for n in range(2, 12)]
    assert len(told(asking, "history", "-n", "0")["history"]) == 15
    assert asking.doflow("machine", "history", "-n", "1").stdout.splitlines()[1].split()[1:] == [
        "bash-11",
        "EXECUTING",
        "EXECUTING",
    ]


@pytest.mark.smoke
def test_a_reset_keeps_the_history_and_can_be_taken_back_exactly(tmp_path: Path) -> None:
    """R3.44–R3.48."""
    asking = Asking(tmp_path)
    asking.reach("REFINING")
    before = (asking.folder() / "pipeline-state.json").read_bytes()

    assert asking.doflow("machine", "reset", "--reason", "wrong turn").returncode == 0
    doc = asking.state()
    assert (doc["state"], doc["context"]["gathered"]) == ("IDLE", "")
    assert [entry["agent"] for entry in doc["history"]] == ["context-gatherer", "context-refiner", "reset"]
    assert doc["history"][-1] | {"timestamp": ""} == {
        "agent": "reset", "timestamp": "", "state_before": "REFINING", "state_after": "IDLE", "reason": "wrong turn",
    }  # fmt: skip
    assert (asking.folder() / "pipeline-state.json.backup").read_bytes() == before

    assert asking.doflow("machine", "restore").returncode == 0
    assert (asking.folder() / "pipeline-state.json").read_bytes() == before


def test_without_a_session_there_is_nothing_to_reset_and_the_rest_says_what_to_do(tmp_path: Path) -> None:
    asking = Asking(tmp_path)

    assert asking.doflow("machine", "reset").returncode == 0
    for verb in ("status", "history", "complete", "restore"):
        done = asking.doflow("machine", verb)
        assert (done.returncode, "doflow hooks install" in done.stderr) == (1, True), verb
    assert told(asking, "status", "--all") == {"sessions": []}
    assert "context-gatherer" in asking.doflow("machine", "show").stdout


def test_complete_is_a_person_s_word_and_not_for_work_that_was_never_started(tmp_path: Path) -> None:
    """R3.20."""
    asking = Asking(tmp_path)
    asking.ask("SessionStart")
    assert asking.doflow("machine", "complete").returncode == 1

    asking.reach("EXECUTING")
    assert told(asking, "complete")["state"] == "COMPLETE"
    assert asking.state()["history"][-1]["state_after"] == "COMPLETE"
    assert asking.doflow("machine", "restore").returncode == 1, "nothing was reset, so there is no backup"


def test_metrics_count_by_agent_and_state_and_tell_how_long(tmp_path: Path) -> None:
    asking, other = Asking(tmp_path, "s1"), Asking(tmp_path, "s2")
    asking.may("Explore")
    asking.may("context-gatherer")
    asking.start("context-gatherer", "a1")
    asking.stop("context-gatherer", "a1")
    other.may("Explore")
    other.start("bash-x", "b1")

    every, one = told(asking, "metrics"), told(asking, "metrics", "--session", "s1")

    assert (every["allowed"], every["blocked"], every["escaped"], every["sessions"]) == (1, 2, 1, 2)
    assert (one["allowed"], one["blocked"], one["escaped"], one["sessions"]) == (1, 1, 0, 1)
    assert {"agent": "Explore", "state": "IDLE", "allowed": 0, "blocked": 2, "escaped": 0} in every["by"]
    assert one["durations"]["context-gatherer"]["count"] == 1
    assert 0 <= one["durations"]["context-gatherer"]["longest"] < 60
    assert "2 blocked" in asking.doflow("machine", "metrics").stdout


def test_a_session_is_found_by_its_first_letters_and_an_unknown_one_is_an_error(tmp_path: Path) -> None:
    asking = Asking(tmp_path, "abc-1")
    asking.ask("SessionStart")
    Asking(tmp_path, "xyz-2").ask("SessionStart")

    assert told(asking, "status", "--session", "abc")["session_id"] == "abc-1"
    assert told(asking, "status")["session_id"] == "xyz-2"
    done = asking.doflow("machine", "status", "--session", "nobody")
    assert (done.returncode, "status --all" in done.stderr) == (1, True)


@pytest.mark.smoke
def test_check_names_the_calls_that_would_skip_a_stage(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    path = asking.root / "mine.yaml"
    path.write_text(
        "machine: mine\nstages: [A, B, C]\nstates:\n  A: {allow: [x, y], on_stop: {x: B, y: C}}\n"
        "  B: {allow: [z], on_stop: {z: C}}\n  C: {}\n"
    )

    done = asking.doflow("machine", "check", "mine.yaml")

    assert done.returncode == 1
    assert "mine.yaml:2:16: C can be reached without B: y" in done.stderr
    assert "no stage can be skipped" in asking.doflow("machine", "check").stdout


@pytest.mark.smoke("words0-app/.claude/settings.json", "words3-app/.codex/hooks.json")
@pytest.mark.parametrize(
    ("words", "file"),
    [
        (("--scope", "project"), "app/.claude/settings.json"),
        (("--scope", "local"), "app/.claude/settings.local.json"),
        (("--scope", "user"), "home/.claude/settings.json"),
        (("--agent", "codex"), "app/.codex/hooks.json"),
        (("--agent", "codex", "--scope", "user"), "home/.codex/hooks.json"),
    ],
)
def test_hooks_are_put_where_the_agent_looks_and_taken_out_again(
    words: tuple[str, ...], file: str, tmp_path: Path
) -> None:
    asking, path = Asking(tmp_path), tmp_path / file

    assert asking.doflow("hooks", "install", *words).returncode == 0
    once = path.read_bytes()
    assert asking.doflow("hooks", "install", *words).returncode == 0
    assert path.read_bytes() == once
    agent = words[1] if words[0] == "--agent" else "claude"
    shown = json.loads(asking.doflow("hooks", "show", "--agent", agent, "--json").stdout)
    assert [row["file"] for row in shown["scopes"] if row["machine"] == "context-first"] == [str(path)]
    assert asking.doflow("hooks", "remove", *words).returncode == 0
    assert not path.exists()


@pytest.mark.smoke
def test_what_is_installed_is_what_runs(tmp_path: Path) -> None:
    """The very command of the settings, through a shell, as the agent starts it."""
    import subprocess

    asking = Asking(tmp_path)
    asking.doflow("hooks", "install", "--scope", "local")
    table = json.loads((asking.root / ".claude" / "settings.local.json").read_text())["hooks"]
    (group,) = table["PreToolUse"]
    assert group["matcher"] == "Task|Agent"

    data = json.dumps(asking.payload("PreToolUse", tool_input=asking.wanted("Explore")))
    command = group["hooks"][0]["command"]
    done = subprocess.run(
        command, shell=True, input=data, env=asking.env, cwd="/", capture_output=True, text=True, check=False
    )

    assert (done.returncode, "Explore may not run in state IDLE" in done.stderr) == (2, True)


def test_a_machine_that_is_not_there_is_not_installed(tmp_path: Path) -> None:
    asking = Asking(tmp_path)

    done = asking.doflow("hooks", "install", "--machine", "nothing")

    assert (done.returncode, "unknown machine 'nothing'" in done.stderr) == (1, True)
    assert not (asking.root / ".claude").exists()
    assert asking.doflow("hooks", "install", "--agent", "codex", "--scope", "local").returncode == 1
