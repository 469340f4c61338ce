"""What do the CLIs make of a model that fails, and what does a run make of that? Outcome and exit code as designed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support import clis
from tests.support.model import Deed, Fail, Garbage, Hang, Model, Say, Scenario, Shell, Write, first, play
from tests.support.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FLOW = """
    flow: notes
    params: {goal: {about: What, required: true}}
    steps:
      write: {prompt: "Write the note of the day.", makes: note.md}
"""
#: how long a CLI may be silent where its silence is the matter: it needs some time to start
PATIENCE = {"claude": 6, "codex": 6, "opencode": 45, "gemini": 12}
NOTE = "specs/001-a-note/note.md"


def always(deed: Deed) -> Scenario:
    return play(deed)


def run(
    project: Project,
    name: str,
    scenario: Scenario,
    settings: str = "",
    patience: int = 120,
    most: int = 180,
    **env: str,
) -> tuple[int, dict, Model]:
    """The exit code, the last entry that says how it ended, and the model with what it heard."""
    project.flow("notes", FLOW)
    limits = f"timeouts: {{idle: {patience}s, max: {most}s}}\n"
    with Model(scenario) as model:
        clis.use(project, name, model, limits + (settings or "retry: {enabled: false}\n"))
        done = project.doit("notes", "--goal=a note", timeout=240, env=env)
    ends = [entry for entry in project.events() if entry["event"] in ("error", "rate_limited", "pipeline_complete")]
    assert ends, done.stdout + done.stderr
    return done.returncode, ends[-1], model


def wait(entry: dict) -> timedelta:
    return datetime.fromisoformat(entry["resumeAt"]) - datetime.now(UTC)


@pytest.mark.parametrize("name", clis.cases())
def test_a_wrong_key_ends_the_run_at_once(name: str, project: Project) -> None:
    code, end, model = run(project, name, always(Fail(401)), "retry: {max_retries: 2, backoff_seconds: 0}\n")

    assert (code, end["event"], end["status"]) == (1, "error", "auth")
    assert "log in" in end["hint"]
    assert len(model.heard) <= 2, "a wrong key does not become right by trying again"


@pytest.mark.parametrize("name", clis.cases())
def test_a_limit_without_a_time_stops_the_run_for_an_hour(name: str, project: Project) -> None:
    patience = PATIENCE[name] if name == "opencode" else 120  # it waits in silence for as long as it is let

    code, end, _ = run(project, name, always(Fail(429)), patience=patience)

    assert (code, end["event"]) == (3, "rate_limited"), end
    assert timedelta(minutes=58) < wait(end) < timedelta(minutes=61)
    assert project.state()["status"] == "rate-limited"


#: how a server says until when, so that the CLI lets it be known
UNTIL = {
    "claude": Fail(429, resets=7200, after=7200),
    "codex": Fail(429, resets=7200),
    "opencode": Fail(429, after=7200, says="Rate limit reached for tokens per day. Please try again in 2h0m0s."),
    "gemini": Fail(429, after=7200),
}


@pytest.mark.parametrize("name", clis.cases())
def test_a_limit_with_a_time_stops_the_run_until_then(name: str, project: Project) -> None:
    """OpenCode heeds the header in silence, so only the words of the server can be known."""
    token = {"CLAUDE_CODE_OAUTH_TOKEN": "a-token", "ANTHROPIC_API_KEY": ""} if name == "claude" else {}
    patience = PATIENCE[name] if name == "opencode" else 120

    code, end, _ = run(project, name, always(UNTIL[name]), patience=patience, **token)

    assert (code, end["event"]) == (3, "rate_limited"), end
    assert timedelta(minutes=110) < wait(end) < timedelta(minutes=122), end
    if name == "opencode":
        told = [entry["message"] for entry in project.events() if entry["event"] == "warning"]
        assert any("reports a rate limit and may wait" in message for message in told), "while it waits, not after"


@clis.needed("codex")
def test_a_limit_that_codex_waits_out_in_silence_is_told_by_its_complaints(project: Project) -> None:
    code, end, _ = run(project, "codex", always(Fail(429, after=7200)), patience=10)

    assert (code, end["event"]) == (3, "rate_limited"), end
    assert timedelta(minutes=110) < wait(end) < timedelta(minutes=122), end


@pytest.mark.parametrize("name", clis.cases())
def test_a_limit_that_passes_by_itself_is_no_limit(name: str, project: Project) -> None:
    works = play(Write(str(project.root / NOTE), "# Note\n"), Say("written"))

    code, end, _ = run(project, name, first(1, Fail(429, after=1), works))

    assert (code, end["event"]) == (0, "pipeline_complete"), end


@pytest.mark.parametrize("name", clis.cases())
def test_an_overloaded_server_is_tried_again(name: str, project: Project) -> None:
    """OpenCode asks five times more by itself, with long waits unless the server says how long: here it does."""
    fail = Fail(529, after=1 if name == "opencode" else 0)

    code, end, model = run(project, name, always(fail), "retry: {max_retries: 1, backoff_seconds: 0}\n")

    assert (code, end["event"], end["status"]) == (1, "error", "failed")
    assert [entry["attempt"] for entry in project.events() if entry["event"] == "retry"] == [1]
    assert "verloaded" in end["message"] and len(model.heard) >= 4


@pytest.mark.parametrize("name", clis.cases())
def test_a_model_that_hangs_is_stopped_by_the_watchdog(name: str, project: Project) -> None:
    code, end, _ = run(project, name, always(Hang(midway=name == "codex")), patience=PATIENCE[name])

    assert (code, end["event"], end["status"]) == (1, "error", "timeout"), end
    assert "timeouts.idle" in end["hint"]


@pytest.mark.parametrize("name", clis.cases())
def test_garbage_is_an_error_and_no_answer(name: str, project: Project) -> None:
    most = PATIENCE[name] if name == "opencode" else 180  # it asks again and again

    code, end, _ = run(project, name, always(Garbage()), most=most)

    assert (code, end["event"]) == (1, "error"), end
    assert end["status"] in ("failed", "timeout") and name in end["message"]


@pytest.mark.parametrize("name", clis.cases())
def test_a_write_outside_of_the_project_is_refused_and_the_step_is_not_done(name: str, project: Project) -> None:
    outside = Path("/usr/local/doflow-was-here.txt")

    code, end, _ = run(project, name, play(Write(str(outside), "x"), Say("written")))

    assert (code, end["event"]) == (1, "error"), end
    assert not outside.exists()
    if name == "codex":  # it was stopped by the sandbox of its shell, of which it tells no one but its model
        assert end["status"] == "failed" and "note.md was not written" in end["message"]
        return
    assert end["status"] == "refused", end
    assert ("was refused" in end["message"] or "denied" in end["message"]) and str(outside) in end["message"]


PATCH = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: stray.txt\n+x\n*** End Patch\nEOF\n"


@pytest.mark.parametrize("name", clis.cases("claude", "codex"))
def test_what_our_hook_refused_is_named_when_the_artifact_is_missing(name: str, project: Project) -> None:
    deed = Shell(PATCH) if name == "codex" else Write(str(project.root / "stray.txt"), "x")

    code, end, model = run(project, name, play(deed, Say("written")))

    assert (code, end["status"]) == (1, "refused"), end
    denied = f"{NOTE} was not written; it was also denied: stray.txt is outside the allowed paths of step write"
    assert denied in end["message"]
    assert "doflow logs write" in end["hint"]
    assert len(model.heard) == 2, "it was told, and could have done better"


@pytest.mark.parametrize("name", clis.cases("claude", "codex", "gemini"))
def test_who_is_refused_and_then_does_the_right_thing_is_done(name: str, project: Project) -> None:
    outside = "/usr/local/doflow-was-here.txt"
    wrong = Shell(PATCH) if name == "codex" else Write(outside, "x")

    code, end, _ = run(project, name, play(wrong, Write(str(project.root / NOTE), "# Note\n"), Say("written")))

    assert (code, end["event"]) == (0, "pipeline_complete"), end
