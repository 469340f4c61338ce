"""`via: tmux` and `judge:` on a step of a flow: the same run as headless, in a pane that a person can watch."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.supervision import Site, eventually, left_over, needs_tmux

pytestmark = needs_tmux

FLOW = """
    flow: notes
    params: {goal: {about: What, required: true}}
    steps:
      write: {prompt: "Write the note for {goal}.", makes: note.md, via: tmux}
      end: {prompt: "End it.", makes: end.md}
"""
WRITES = 'for path in $DOFLOW_MAKES; do grep "^Write" "$DOFLOW_PROMPT" > "$path"; done; echo "all written"'


def tmux_site(site: Any, agent: str, flow: str = FLOW, settings: str = "") -> Site:
    """The panes run `agent`; headless steps run the project's usual agent."""
    here: Site = site(agent)
    shell = f"{{use: command, argv: [sh, {here.outside / 'agent.sh'}]}}"
    here.settings(settings)
    here.write("doflow.yaml", here.read("doflow.yaml").replace("agents:\n", f"agents:\n  pane: {shell}\n"))
    here.flow("notes", flow.replace("via: tmux", "via: tmux, agent: pane"))
    here.commit("A flow")
    return here


@pytest.mark.smoke
def test_a_step_in_a_pane_makes_its_artifact_and_the_run_goes_on(site: Any) -> None:
    here = tmux_site(site, WRITES)

    done = here.doit("notes", "--goal=Ada")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (here.run_dir() / "note.md").read_text() == "Write the note for Ada.\n"
    assert "write runs in tmux; watch it with: tmux -L doflow-" in done.stdout
    assert here.subjects()[-2:] == ["write: note.md", "end: end.md"]
    assert "all written" in here.doflow("logs", "write").stdout
    assert here.doit("notes").returncode == 0
    assert here.calls() == ["end"], "nothing is done twice"
    assert eventually(lambda: left_over(here.root / ".doflow") == [])


def test_a_program_that_stays_says_when_it_is_done(site: Any) -> None:
    here = tmux_site(site, f'{WRITES}; echo "DOFLOW: done"; sleep 600')

    done = here.doit("notes", "--goal=Ada")

    assert done.returncode == 0, done.stdout + done.stderr
    assert eventually(lambda: left_over(here.root / ".doflow") == []), "its pane is closed"


@pytest.mark.parametrize(
    ("agent", "words"), [('echo "I did nothing"; exit 0', "note.md"), (f"{WRITES}; echo x > stray.txt", "stray.txt")]
)
def test_the_contract_holds_in_a_pane_as_anywhere(agent: str, words: str, site: Any) -> None:
    here = tmux_site(site, agent, settings="retry: {enabled: false}\n")

    done = here.doit("notes", "--goal=Ada")

    assert done.returncode == 1
    assert words in done.stdout
    assert not (here.root / "stray.txt").exists()


@pytest.mark.parametrize(
    ("agent", "code", "words"),
    [
        ("echo broken; exit 3", 1, "exit code 3"),
        ('echo "RESUME-AT: 2099-01-01T00:00:00Z"; exit 75', 3, "rate limited"),
    ],
)
def test_an_exit_code_means_the_same_in_a_pane(agent: str, code: int, words: str, site: Any) -> None:
    here = tmux_site(site, agent, settings="retry: {enabled: false}\n")

    done = here.doit("notes", "--goal=Ada")

    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stdout


def test_silence_in_a_pane_reaches_the_limit_and_the_session_is_ended(site: Any) -> None:
    settings = "retry: {enabled: false}\ntimeouts: {idle: 2s}\n"
    here = tmux_site(site, "setsid sleep 600 & echo hm; sleep 600", settings=settings)

    done = here.doit("notes", "--goal=Ada")

    assert done.returncode == 1
    assert "no output for 2" in done.stdout or "silent" in done.stdout or "idle" in done.stdout, done.stdout
    assert eventually(lambda: left_over(here.root / ".doflow") == [])


def test_a_killed_doflow_leaves_no_agent_in_a_pane_and_the_next_run_goes_on(site: Any) -> None:
    here = tmux_site(site, f'echo "$$" >> "$calls"; while [ ! -e {{go}} ]; do sleep 0.1; done; {WRITES}')
    go = here.outside / "go"
    here.script(f'echo "$$" >> "$calls"; while [ ! -e {go} ]; do sleep 0.1; done; {WRITES}')
    run = here.start("doit", "notes", "--goal=Ada")
    assert eventually(lambda: here.panes())
    run.send_signal(signal.SIGKILL)
    run.communicate()

    assert eventually(lambda: left_over(here.root / ".doflow" / "runs") == []), "the leash is loose"
    go.touch()
    done = here.doit("notes")

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(here.panes()) == 2


def test_an_interrupt_ends_the_pane(site: Any) -> None:
    here = tmux_site(site, 'echo up >> "$calls"; sleep 600')
    run = here.start("doit", "notes", "--goal=Ada")
    assert eventually(lambda: here.panes())

    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)

    assert run.returncode == 130
    assert eventually(lambda: left_over(here.root / ".doflow" / "runs") == [])


ASKS = 'echo "DOFLOW: ask Which colour? | red | blue"; read c; for path in $DOFLOW_MAKES; do echo "$c" > "$path"; done'


def test_a_judge_answers_what_an_agent_asks_in_its_pane(site: Any) -> None:
    here = tmux_site(site, ASKS, FLOW.replace("via: tmux", "via: tmux, judge: wise"))
    wise = here.outside / "wise.sh"
    wise.write_text(f"cat > {here.outside}/asked.txt; echo 'DECISION: ANSWER blue'\n")
    settings = here.read("doflow.yaml")
    here.write("doflow.yaml", settings.replace("agents:\n", f"agents:\n  wise: {{use: command, argv: [sh, {wise}]}}\n"))
    here.commit("A judge")

    done = here.doit("notes", "--goal=Ada")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (here.run_dir() / "note.md").read_text() == "blue\n"
    assert "Which colour?" in (here.outside / "asked.txt").read_text()


def test_without_a_judge_the_person_is_told_where_to_answer(site: Any) -> None:
    here = tmux_site(site, ASKS)
    run = here.start("doit", "notes", "--goal=Ada")
    attach: list[str] = []

    def told() -> bool:
        attach[:] = [e["message"] for e in here.events() if "asks: Which colour?" in e.get("message", "")]
        return bool(attach)

    assert eventually(lambda: here.runs() and told())
    words = attach[0].partition("Answer in tmux: ")[2].split()
    here.tmux(words[2], "send-keys", "-t", words[-1], "green", "Enter")
    out, err = run.communicate(timeout=60)

    assert run.returncode == 0, (out, err)
    assert (here.run_dir() / "note.md").read_text() == "green\n"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("judge: pane", "has a `judge`, which needs `via: tmux`"),
        ("via: tmux, judge: nobody", "unknown agent 'nobody'"),
        ("via: tmux, agent: rehearsal", "`use: rehearsal` cannot run in a tmux pane"),
    ],
)
def test_what_cannot_work_in_a_pane_is_refused_before_the_run_begins(keys: str, words: str, site: Any) -> None:
    here = tmux_site(site, WRITES)
    here.flow("other", FLOW.replace("flow: notes", "flow: other").replace("via: tmux", keys))

    done = here.doit("other", "--goal=Ada")

    assert done.returncode == 1
    assert words in done.stdout + done.stderr
    assert here.runs() == []


def test_a_machine_without_tmux_is_told_before_the_run_begins(site: Any, tmp_path: Path) -> None:
    here = tmux_site(site, WRITES)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("git", "sh", "python3"):
        os.symlink(f"/usr/bin/{name}", programs / name)

    done = here.doit("notes", "--goal=Ada", env={"PATH": str(programs)})

    assert done.returncode == 1
    assert "tmux is not on PATH" in done.stdout + done.stderr
