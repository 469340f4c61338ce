"""Epic 5: the terminal guardian: launches, restarts, shows, answers; several pipelines at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.support.supervision import Site, eventually, needs_tmux
from tests.support.terminal import Terminal

pytestmark = needs_tmux

WORK = 'echo "$DOFLOW_PIPELINE $DOFLOW_NODE $DOFLOW_ATTEMPT" >> "$calls"; echo hi > "$DOFLOW_NODE.txt"; echo done'
WAITS = 'echo "$DOFLOW_NODE" >> "$calls"; while [ ! -e go ]; do sleep 0.05; done; echo done'


def end(process: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out + err


def test_ac_1_the_guardian_is_launched_without_claudecode(site: Any) -> None:
    """R2.106, R2.7: the variable is removed, not emptied."""
    here = site(WAITS)
    here.env |= {"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "cli"}
    here.pipeline("p", here.node("a", validate="true"))
    terminal = here.launch("launch", "p.dot")
    assert eventually(lambda: here.holder("p", "nodes", "a", "runner.lock") > 0)

    for pid in (here.holder("p", "guardian.lock"), here.holder("p", "nodes", "a", "runner.lock")):
        assert pid != terminal.pid
        assert b"CLAUDECODE" not in Path(f"/proc/{pid}/environ").read_bytes()
    (here.root / "go").touch()

    assert end(terminal)[0] == 0


def test_ac_2_pipeline_complete_is_seen_and_processed(site: Any) -> None:
    """R2.107; R2.120: from the launch on no one did anything."""
    here = site(WORK)
    here.configure(f'notify: {{command: [sh, -c, "cat >> {here.outside}/told.jsonl"]}}\n')
    here.pipeline("p", here.node("a", validate="true"))

    code, said = end(here.launch("launch", "p.dot"))

    assert code == 0, said
    assert "p: PIPELINE_COMPLETE: 3 of 3 nodes validated" in said
    assert list((here.root / ".claude/attractor/signals/p").glob("*PIPELINE_COMPLETE*")) == []
    told = [json.loads(line) for line in (here.outside / "told.jsonl").read_text().splitlines()]
    assert [(one["event"], one["run"]) for one in told] == [("done", "p")]


def test_ac_3_an_escalation_is_shown_notified_and_answered_by_command(site: Any) -> None:
    """R2.108, R2.9."""
    here = site('echo "DOFLOW: ask Which colour? | red | blue"; read c; echo "$c" > colour.txt; echo ok')
    here.configure(
        f'notify: {{command: [sh, -c, "cat >> {here.outside}/told.jsonl"]}}\nsupervision: {{validate: ["true"]}}\n'
    )
    here.pipeline("p", here.node("a"))
    terminal = here.launch("launch", "p.dot")

    def questions() -> list[Any]:
        return json.loads(here.doflow("signal", "list", "--json").stdout)["questions"]

    assert eventually(questions)
    assert eventually(lambda: (here.outside / "told.jsonl").exists())
    answered = here.doflow("signal", "answer", questions()[0]["question"], "2")
    assert answered.stdout == "answered: blue\n"

    code, said = end(terminal)
    assert code == 0, said
    assert "p: ESCALATION: a asks: Which colour?" in said
    assert "next: doflow signal answer input." in said
    assert here.read("colour.txt") == "blue\n"
    told = json.loads((here.outside / "told.jsonl").read_text().splitlines()[0])
    assert (told["event"], told["message"]) == ("paused", "a asks: Which colour?")


def test_an_escalation_is_answered_where_it_is_shown(site: Any) -> None:
    here = site('echo "DOFLOW: ask Which colour? | red | blue"; read c; echo "$c" > colour.txt; echo ok')
    here.configure('supervision: {validate: ["true"]}\n')
    here.pipeline("p", here.node("a"))

    with Terminal(here, "doflow", "guardian", "launch", "p.dot", width=120) as terminal:
        terminal.until("your answer to: a asks: Which colour?")
        terminal.press("2\r")
        code = terminal.wait()
        said = terminal.text()

    assert code == 0, said
    assert "answered: blue" in said
    assert here.read("colour.txt") == "blue\n"


def test_a_gate_is_approved_by_a_person_and_nothing_else_is_asked(site: Any) -> None:
    """R2.120."""
    here = site(WORK)
    here.pipeline("p", here.node("a", validate="true"), here.node("ship", "wait.human", label="Ship it?"))

    with Terminal(here, "doflow", "guardian", "launch", "p.dot", width=120) as terminal:
        terminal.until("ship (Ship it?) is a gate")
        terminal.press("approve\r")
        code = terminal.wait()
        said = terminal.text()

    assert code == 0, said
    assert said.count("ESCALATION") == 1


def test_ac_4_a_guardian_that_crashed_is_started_again_with_all_that_was_done(site: Any) -> None:
    """R2.109, R2.10."""
    here = site(WAITS)
    here.pipeline("p", here.node("a", validate="true"), here.node("b", validate="true"))
    terminal = here.launch("launch", "p.dot")
    assert eventually(lambda: here.panes() == ["a"])
    first = here.holder("p", "guardian.lock")
    os.kill(first, signal.SIGKILL)

    assert eventually(lambda: here.holder("p", "guardian.lock") not in (0, first))
    (here.root / "go").touch()
    code, said = end(terminal)

    assert code == 0, said
    assert "p: its guardian ended (exit code -9); restarting it" in said
    assert here.panes() == ["a", "b"], "no node twice"


def test_a_guardian_that_only_falls_is_not_started_for_ever(site: Any) -> None:
    here = site(WAITS)
    here.pipeline("p", here.node("a", validate="true"))
    terminal = here.launch("launch", "p.dot")
    fallen: set[int] = set()

    def fell_often() -> bool:
        pid = here.holder("p", "guardian.lock")
        if pid > 0 and pid not in fallen:
            fallen.add(pid)
            os.kill(pid, signal.SIGKILL)
        return terminal.poll() is not None

    assert eventually(fell_often, 60)
    code, said = end(terminal)

    assert (code, len(fallen)) == (1, 5), said
    assert "its guardian crashed 5 times; giving up" in said


def test_ac_5_two_pipelines_run_at_once_without_hearing_each_other(site: Any) -> None:
    """R2.110, R2.11: the same node in both, at the same time."""
    here = site(
        'echo "$DOFLOW_PIPELINE $DOFLOW_NODE" >> "$calls"; echo "DOFLOW: ask Which for $DOFLOW_PIPELINE?"; read c; '
        'echo "$c" > "$DOFLOW_PIPELINE.txt"; echo ok'
    )
    here.configure("supervision: {answers: {'for one': uno, 'for two': due}}\n")
    for name in ("one", "two"):
        here.pipeline(name, here.node("impl", validate=f"test -s {name}.txt"))

    code, said = end(here.launch("launch", "one.dot", "two.dot"))

    assert code == 0, said
    assert (here.read("one.txt"), here.read("two.txt")) == ("uno\n", "due\n")
    for name in ("one", "two"):
        signals = here.said(name)
        assert {one["pipeline"] for one in signals} == {name}
        assert [one["signal_type"] for one in signals] == [
            "NEEDS_INPUT", "INPUT_RESPONSE", "NEEDS_REVIEW", "VALIDATION_PASSED", "NODE_COMPLETE", "PIPELINE_COMPLETE",
        ]  # fmt: skip
    started = {name: _times(here, name) for name in ("one", "two")}
    assert started["one"][0] < started["two"][1]
    assert started["two"][0] < started["one"][1], "they overlapped"
    seats = {one["attach"] for name in started for one in here.diary(name) if one["event"] == "orchestrator_spawned"}
    assert len(seats) == 2, "the sessions have the same name, on a tmux server each"


def _times(here: Site, name: str) -> tuple[str, str]:
    diary = here.diary(name)
    return diary[0]["at"], diary[-1]["at"]


def test_a_launch_finds_the_guardian_of_a_killed_one_at_work(site: Any) -> None:
    """R2.1."""
    here = site(WAITS)
    here.pipeline("p", here.node("a", validate="true"))
    first = here.launch("launch", "p.dot")
    assert eventually(lambda: here.panes() == ["a"])
    guardian = here.holder("p", "guardian.lock")
    first.kill()
    first.communicate()
    assert here.holder("p", "guardian.lock") == guardian, "it goes on without its terminal"

    second = here.launch("launch", "p.dot")
    time.sleep(1.5)
    assert here.holder("p", "guardian.lock") == guardian
    (here.root / "go").touch()

    code, said = end(second)
    assert code == 0, said
    assert "PIPELINE_COMPLETE" in said


def test_pipelines_that_are_not_there_or_alike_are_refused_before_anything_begins(site: Any) -> None:
    here = site(WORK)
    here.pipeline("p", here.node("a", validate="true"))
    here.write("other/p.dot", here.read("p.dot"))

    missing = here.doflow("guardian", "launch", "p.dot", "nothing.dot")
    twice = here.doflow("guardian", "launch", "p.dot", "other/p.dot")

    assert (missing.returncode, "unknown pipeline 'nothing.dot'" in missing.stderr) == (1, True)
    assert twice.returncode == 1
    assert "p is already used by" in twice.stderr or "two pipelines are named p" in twice.stderr
    assert here.panes() == []


def test_what_only_a_person_can_decide_ends_a_launch_that_does_not_wait(site: Any) -> None:
    here = site(WORK)
    here.pipeline("p", here.node("a"))

    code, said = end(here.launch("launch", "p.dot", "--no-wait"))

    assert code == 2, said
    assert "next: doflow signal answer verdict.a.1 '…' --pipeline p" in said


def test_an_unknown_question_is_refused_with_those_that_are_open(site: Any) -> None:
    here = site(WORK)
    here.pipeline("p", here.node("a"), here.node("b"), edges="  start -> a -> finish\n  start -> b -> finish")
    end(here.launch("launch", "p.dot", "--no-wait"))

    lost = here.doflow("signal", "answer", "verdict.c", "approve")
    vague = here.doflow("signal", "answer", "verdict.", "approve")

    assert (lost.returncode, vague.returncode) == (1, 1)
    assert "'verdict.c' isn't an open question" in lost.stderr
    assert "'verdict.' matches several questions: " in vague.stderr
    assert {"verdict.a.1", "verdict.b.1"} <= set(vague.stderr.replace(",", " ").split())


def test_ac_6_the_page_describes_the_four_layers_and_the_launch() -> None:
    """R2.111."""
    from tests.support import checkout

    page = (checkout.TOP / "docs" / "supervision.md").read_text()

    for words in (
        "Layer 0",
        "Layer 1",
        "Layer 2",
        "Layer 3",
        "doflow guardian launch",
        "doflow signal answer",
        "tmux -L",
    ):
        assert words in page
    from doflow.supervise.signal_store import KINDS

    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []
