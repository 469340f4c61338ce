"""With the vendors' own programs: what a call used is counted, and a budget, a wait and a recording hold."""

from __future__ import annotations

import json
import signal
import time

import pytest
from tests.support import clis
from tests.support.model import Fail, Hang, Model, Say, Scenario, Write, first, play
from tests.support.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FLOW = """
    flow: notes
    params: {goal: {about: What, required: true}}
    steps:
      write: {prompt: "Write the note of the day.", makes: note.md}
      more: {prompt: "Write one more.", reads: [note.md], makes: more.md}
"""
NOTE = "specs/001-a-note/note.md"
MORE = "specs/001-a-note/more.md"


def both() -> Scenario:
    """A model that writes whichever note it is asked for."""
    return lambda heard: play(Write(MORE if "one more" in heard.prompt else NOTE, "# A note\n"), Say("done"))(heard)


def costs(project: Project) -> dict:
    return json.loads(project.doflow("cost", "--json").stdout)


@pytest.mark.parametrize("name", clis.cases("claude", "codex", "gemini"))
def test_what_a_program_says_it_used_is_counted_and_only_claude_names_a_price(name: str, project: Project) -> None:
    project.flow("notes", FLOW)
    with Model(both()) as model:
        clis.use(project, name, model)
        done = project.doit("notes", "--goal=a note", timeout=240)

    assert done.returncode == 0, done.stdout + done.stderr
    found = costs(project)
    assert [one["name"] for one in found["sums"]] == ["write", "more"]
    assert all(call["in"] > 0 and call["out"] > 0 and call["seconds"] > 0 for call in found["calls"])
    assert [call["usd"] is not None for call in found["calls"]] == [name == "claude"] * 2


@clis.needed("claude")
def test_claude_stops_by_itself_at_what_is_left_and_the_run_pauses(project: Project) -> None:
    project.flow("notes", FLOW)
    with Model(both()) as model:
        clis.use(project, "claude", model, "budget: {usd: 0.0001}\n")
        done = project.doit("notes", "--goal=a note", timeout=240)
        heard = len(model.heard)
        again = project.doit("notes", timeout=240)
        still = len(model.heard)
        more = project.doit("notes", "--budget=50", timeout=240)

    assert (done.returncode, again.returncode, more.returncode) == (2, 2, 0), done.stdout + more.stdout
    assert "the budget of this run is used up" in done.stdout and "--budget=" in done.stdout
    assert heard == still == 1, "the limit was kept inside the call, and no call follows"
    assert costs(project)["calls"][0]["usd"] > 0


@clis.needed("claude")
def test_what_claude_told_before_it_was_killed_is_counted(project: Project) -> None:
    project.flow("notes", FLOW)
    with Model(play(Write(NOTE, "# Half\n"), Hang())) as model:
        clis.use(project, "claude", model, "timeouts: {idle: 8s}\nretry: {enabled: false}\n")
        started = project.start("doit", "notes", "--goal=a note")
        assert eventually(lambda: len(model.heard) >= 2, 60)
        time.sleep(1)
        started.kill()
        started.communicate(timeout=60)
        stopped = project.doit("notes", timeout=120)

    assert stopped.returncode == 1
    first_, second = costs(project)["calls"]
    assert (first_["status"], second["status"]) == ("cancelled", "timeout")
    assert first_["in"] > 0 and first_["usd"] is None


@pytest.mark.parametrize("name", clis.cases("codex", "gemini"))
@pytest.mark.parametrize("end", ["timeout", "cancelled"])
def test_what_a_stopped_call_used_is_unknown_and_never_nothing(name: str, end: str, project: Project) -> None:
    """Codex and Gemini CLI tell what they used at their end alone: a call that is stopped took tokens all the same."""
    project.flow("notes", FLOW)
    idle = {"codex": 8, "gemini": 15}[name] if end == "timeout" else 120
    with Model(play(Write(str(project.root / NOTE), "# Half\n"), Hang())) as model:
        price = f"prices: {{{clis.MODELS[name]}: {{in: 1, out: 1}}}}\n"
        clis.use(project, name, model, f"timeouts: {{idle: {idle}s}}\nretry: {{enabled: false}}\n{price}")
        started = project.start("doit", "notes", "--goal=a note")
        assert eventually(lambda: len(model.heard) >= 2, 60)
        if end == "cancelled":
            started.send_signal(signal.SIGINT)
        started.communicate(timeout=60)

    (call,) = costs(project)["calls"]
    told = project.doflow("cost").stdout
    assert started.returncode == (1 if end == "timeout" else 130)
    assert (call["status"], call["in"], call["out"], call["usd"]) == (end, None, None, None)
    assert call["seconds"] > 0 and "$0" not in told and "free" not in told
    assert "1 call did not report usage (1 of them failed); not included in the totals." in told
    assert costs(project)["total"]["usd"] is None


@clis.needed("claude")
def test_a_run_waits_for_claudes_limit_and_goes_on_by_itself(project: Project) -> None:
    project.flow("notes", FLOW)
    with Model(first(1, Fail(429, resets=15, after=120), both())) as model:
        clis.use(project, "claude", model, "rate_limit: {wait: 2m}\n")
        token = {"CLAUDE_CODE_OAUTH_TOKEN": "a-token", "ANTHROPIC_API_KEY": ""}
        done = project.doit("notes", "--goal=a note", timeout=240, env=token)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "waiting" in done.stdout and "then it continues by itself" in done.stdout


@clis.needed("claude")
def test_a_recording_of_claude_is_played_without_it(project: Project) -> None:
    project.flow("notes", FLOW)
    with Model(both()) as model:
        clis.use(project, "claude", model)
        done = project.doit("notes", "--goal=a note", "--record", timeout=240)
    assert done.returncode == 0, done.stdout
    kept = "".join(path.read_text() for path in project.root.glob(".doflow/runs/*/sessions/*/*"))
    assert '"type":"result"' in kept and clis.KEY not in kept
    project.git("switch", "-q", "main")

    played = project.doit("notes", "--goal=a note", "--new", "--agent=replay", timeout=60)

    assert played.returncode == 0, played.stdout + played.stderr
    assert (project.root / "specs/002-a-note/more.md").read_text() == "# A note\n"
