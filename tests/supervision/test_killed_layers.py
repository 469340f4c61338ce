"""R2.1, R2.124: `kill -9` of each layer in turn at each state of a node: the pipeline still ends validated, no node twice."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from tests.support.supervision import Site, eventually, left_over, needs_tmux

pytestmark = [needs_tmux, pytest.mark.slow]

#: the work stops where the test wants to look: before it, and while it is validated
AGENT = (
    'echo "$DOFLOW_NODE $DOFLOW_ATTEMPT" >> "$calls"; while [ ! -e go-work ]; do sleep 0.05; done; '
    'if [ "$DOFLOW_NODE" = asks ] && [ ! -e answered ]; then echo "DOFLOW: ask Which?"; read c; echo "$c" > answered; fi; '
    'echo hi > "$DOFLOW_NODE.txt"; echo "DOFLOW: done"; while read line; do :; done'
)
VALIDATE = "while [ ! -e go-check ]; do sleep 0.05; done; test -s impl.txt"
LAYERS = ("terminal", "guardian", "runner", "orchestrator", "tmux")


def victims(here: Site, layer: str, terminal: Any) -> list[int]:
    if layer == "terminal":
        return [terminal.pid]
    if layer == "guardian":
        return [here.holder("p", "guardian.lock")]
    if layer == "runner":
        return [here.holder("p", "nodes", "impl", "runner.lock")]
    (socket,) = here.servers()
    if layer == "tmux":
        return [int(pid) for pid in here.tmux(socket, "display-message", "-p", "#{pid}").split()]
    return [int(pid) for pid in here.tmux(socket, "list-panes", "-a", "-F", "#{pane_pid}").split()]


def shoot(here: Site, layer: str, terminal: Any) -> None:
    assert eventually(
        lambda: any(pid > 0 for pid in victims(here, layer, terminal)) or layer in ("tmux", "orchestrator")
    )
    for pid in victims(here, layer, terminal):
        if pid > 0:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("state", ["active", "impl_complete"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_that_is_killed_at_a_state_does_not_keep_the_pipeline_from_its_end(
    layer: str, state: str, site: Any
) -> None:
    here = site(AGENT)
    here.pipeline(
        "p", here.node("impl", validate=VALIDATE), here.node("gate", "wait.human", validate="test -s impl.txt")
    )
    terminal = here.launch("launch", "p.dot")
    if state == "impl_complete":
        (here.root / "go-work").touch()
    assert eventually(lambda: here.statuses("p")["impl"] == state and here.panes(), 30)

    shoot(here, layer, terminal)
    if layer == "terminal":
        terminal.communicate()
        terminal = here.launch("launch", "p.dot")
    for name in ("go-work", "go-check"):
        (here.root / name).touch()
    out, err = terminal.communicate(timeout=90)

    assert terminal.returncode == 0, (out, err, here.diary("p"))
    assert set(here.statuses("p").values()) == {"validated"}
    again = layer in ("orchestrator", "tmux") and state == "active"
    assert here.panes() == (["impl 1", "impl 2"] if again else ["impl 1"]), "only a dead orchestrator is started again"
    assert [kind for kind in here.kinds("p") if kind == "PIPELINE_COMPLETE"] == ["PIPELINE_COMPLETE"]
    assert eventually(lambda: left_over(here.root / ".doflow" / "guardian" / "p" / "nodes") == [])


@pytest.mark.parametrize("layer", ["terminal", "guardian"])
def test_a_layer_that_is_killed_while_a_gate_is_validated_finds_its_way_too(layer: str, site: Any) -> None:
    here = site('echo "$DOFLOW_NODE" >> "$calls"; echo hi > impl.txt; echo done')
    gate = here.node("gate", "wait.human", validate="echo x >> checked; while [ ! -e go-gate ]; do sleep 0.05; done")
    here.pipeline("p", here.node("impl", validate="test -s impl.txt"), gate)
    terminal = here.launch("launch", "p.dot")
    assert eventually(lambda: (here.root / "checked").exists(), 30)

    shoot(here, layer, terminal)
    if layer == "terminal":
        terminal.communicate()
        terminal = here.launch("launch", "p.dot")
    (here.root / "go-gate").touch()
    out, err = terminal.communicate(timeout=60)

    assert terminal.returncode == 0, (out, err, here.diary("p"))
    assert set(here.statuses("p").values()) == {"validated"}
    assert here.panes() == ["impl"]
    assert here.read("checked").count("x") == (2 if layer == "guardian" else 1), (
        "a verdict that was not in is asked for again"
    )


@pytest.mark.parametrize("layer", ["terminal", "guardian", "runner"])
def test_a_layer_that_is_killed_while_a_person_is_asked_asks_only_once(layer: str, site: Any) -> None:
    here = site(AGENT)
    (here.root / "go-work").touch()
    here.pipeline("p", here.node("asks", validate="test -s answered"))
    terminal = here.launch("launch", "p.dot")
    assert eventually(lambda: "ESCALATION" in here.kinds("p"), 30)

    pid = {
        "terminal": terminal.pid,
        "guardian": here.holder("p", "guardian.lock"),
        "runner": here.holder("p", "nodes", "asks", "runner.lock"),
    }[layer]
    os.kill(pid, signal.SIGKILL)
    if layer == "terminal":
        terminal.communicate()
        terminal = here.launch("launch", "p.dot")
    assert here.doflow("signal", "answer", "input", "blue").returncode == 0
    out, err = terminal.communicate(timeout=60)

    assert terminal.returncode == 0, (out, err, here.diary("p"))
    assert here.read("answered") == "blue\n"
    assert [kind for kind in here.kinds("p") if kind in ("NEEDS_INPUT", "ESCALATION", "INPUT_RESPONSE")] == [
        "NEEDS_INPUT", "ESCALATION", "INPUT_RESPONSE",
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(6))
def test_guardian_and_runner_shot_again_and_again_come_to_the_same_end(number: int, site: Any) -> None:
    """Whoever holds a lock is killed at moments that fall differently each time."""
    import random
    import time

    chance = random.Random(number)
    here = site('echo "$DOFLOW_NODE $DOFLOW_ATTEMPT" >> "$calls"; sleep 0.5; echo hi > "$DOFLOW_NODE.txt"; echo done')
    here.pipeline("p", here.node("a", validate="sleep 0.3; test -s a.txt"), here.node("b", validate="test -s b.txt"))
    for _ in range(4):
        guardian = here.launch("run", "p.dot", "--check", "0.3")
        time.sleep(chance.uniform(0.3, 2.0))
        runner = max((here.holder("p", "nodes", name, "runner.lock") for name in ("a", "b")), default=0)
        for pid in (guardian.pid, runner if chance.random() < 0.5 else 0):
            if pid > 0 and guardian.poll() is None:
                os.kill(pid, signal.SIGKILL)
        guardian.communicate(timeout=20)

    done = here.doflow("guardian", "run", "p.dot", timeout=60)

    assert done.returncode == 0, (done.stdout, done.stderr, here.diary("p"))
    assert set(here.statuses("p").values()) == {"validated"}
    assert here.panes() == ["a 1", "b 1"]
    kinds = here.kinds("p")
    assert {kind: kinds.count(kind) for kind in ("NEEDS_REVIEW", "VALIDATION_PASSED", "PIPELINE_COMPLETE")} == {
        "NEEDS_REVIEW": 2, "VALIDATION_PASSED": 2, "PIPELINE_COMPLETE": 1,
    }  # fmt: skip
