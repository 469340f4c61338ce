"""R2.1, R2.124: `kill -9` of each layer in turn at each state of a node: the pipeline still ends validated, no work that had
ended is done twice, and nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import Any

import pytest
from tests.support.supervision import Site, eventually, left_over, needs_tmux

from doflow.flow.dot import editor
from doflow.supervise.panes.tmux import session_name

pytestmark = needs_tmux

#: it stops where the test wants to look, and goes on when it is told
AGENT = """\
echo "$DOFLOW_NODE $DOFLOW_ATTEMPT" >> "$calls"
while [ ! -e "go-$DOFLOW_NODE" ]; do sleep 0.05; done
if [ -e ask ] && [ ! -e answered ]; then echo "DOFLOW: ask Which?"; read c || exit 1; echo "$c" > answered; fi
echo hi >> "$DOFLOW_NODE.txt"; echo "DOFLOW: done"
while read line; do case "$line" in *"finish as before"*)
  echo "$DOFLOW_NODE $DOFLOW_ATTEMPT again" >> "$calls"; echo hi >> "$DOFLOW_NODE.txt"; echo "DOFLOW: done";;
esac; done
"""
VALIDATE = "echo x >> checked; while [ ! -e go-check ]; do sleep 0.05; done; test $(wc -l < impl.txt) -ge $(cat want)"
LAYERS = ("terminal", "guardian", "runner", "orchestrator", "tmux")
STATES = ("pending", "active", "impl_complete", "retry", "gate", "question", "complete")
#: the runner is made to sleep here, so that what the guardian says is not heard yet
UNHEARD = {"retry": "VALIDATION_FAILED", "complete": "VALIDATION_PASSED"}


class Scene:
    """A pipeline brought to a state. `node`: whose runner, orchestrator and tmux server are there to be killed."""

    def __init__(self, here: Site, state: str, node: str = "impl") -> None:
        self.here, self.state, self.node = here, state, node
        self.runner = 0
        (here.root / "want").write_text("2\n" if state == "retry" else "1\n")
        self.terminal = self.launch()

    def launch(self) -> subprocess.Popen[str]:
        return self.here.launch("launch", "p.dot", "--check", "0.5")

    def go(self, *names: str) -> None:
        for name in names:
            (self.here.root / name).touch()

    def said(self, kind: str, times: int = 1) -> bool:
        folder = self.here.root / ".claude" / "attractor" / "signals" / "p"
        return len(list(folder.glob(f"**/*-{kind}-*.json"))) >= times

    def reach(self) -> None:
        here = self.here
        if self.state not in ("pending", "active"):
            self.go("go-impl")
        if self.state == "gate":
            self.go("go-check")
        status = {"gate": "validated", "pending": "pending", "question": "active", "active": "active"}
        assert eventually(lambda: here.statuses("p")["impl"] == status.get(self.state, "impl_complete"))
        assert eventually(lambda: any(line.startswith(f"{self.node} 1") for line in here.panes())), here.diary("p")
        if self.state in ("impl_complete", *UNHEARD):
            assert eventually(lambda: (here.root / "checked").exists()), "the validation is under way"
        if self.state in UNHEARD:
            self.runner = here.holder("p", "nodes", "impl", "runner.lock")
            os.kill(self.runner, signal.SIGSTOP)
            self.go("go-check")
            assert eventually(lambda: self.said(UNHEARD[self.state])), here.diary("p")
        if self.state in ("gate", "question"):
            assert eventually(lambda: self.said("ESCALATION")), here.diary("p")

    def victims(self, layer: str) -> list[int]:
        if layer == "terminal":
            return [self.terminal.pid]
        if layer == "guardian":
            return [self.here.holder("p", "guardian.lock")]
        if layer == "runner":
            return [self.here.holder("p", "nodes", self.node, "runner.lock")]
        (socket,) = self.here.servers()
        asked: tuple[str, ...] = ("display-message", "-p", "#{pid}")
        if layer == "orchestrator":  # of this node: the session of one that has just passed may still be on its way out
            asked = ("list-panes", "-s", "-t", "=" + session_name(self.node), "-F", "#{pane_pid}")
        return [int(pid) for pid in self.here.tmux(socket, *asked).split()]

    def victim(self, layer: str) -> int:
        found: list[int] = []

        def there() -> bool:
            found[:] = self.victims(layer)
            return min(found, default=0) > 0

        assert eventually(there)
        (victim,) = found
        return victim

    def shoot(self, layer: str) -> None:
        os.kill(self.victim(layer), signal.SIGKILL)
        if layer == "terminal":
            self.terminal.communicate()
            self.terminal = self.launch()
        if self.runner and layer != "runner":
            os.kill(self.runner, signal.SIGCONT)

    def answer(self, again: bool) -> None:
        """The person answers what is open: of a session that was killed, what the next one asks."""
        if self.state == "question":
            assert not again or eventually(lambda: self.said("ESCALATION", 2)), self.here.diary("p")
            assert self.here.doflow("signal", "answer", "input", "blue").returncode == 0
        elif self.state == "gate":
            assert self.here.doflow("signal", "answer", "verdict.gate", "approve").returncode == 0

    def end(self) -> None:
        self.go("go-impl", "go-other", "go-check")
        out, err = self.terminal.communicate(timeout=120)
        assert self.terminal.returncode == 0, (out, err, self.here.diary("p"))


def scene_of(here: Site, state: str) -> Scene:
    """The pipeline in which a state can be looked at: beside `impl`, where no one works on it, `other` is worked on."""
    impl, other = here.node("impl", validate=VALIDATE), here.node("other", validate="test -s other.txt")
    gate = here.node("gate", "wait.human", **({} if state == "gate" else {"validate": "test -s impl.txt"}))
    if state == "pending":
        here.configure("supervision: {parallel: 1}\n")
    if state == "question":
        (here.root / "ask").touch()
    if state in ("pending", "gate"):
        here.pipeline("p", other, impl, gate, edges="  start -> other -> finish\n  start -> impl -> gate -> finish")
        return Scene(here, state, "other")
    here.pipeline("p", impl, gate)
    return Scene(here, state)


def expected(state: str, again: bool) -> list[str]:
    """Which sessions were started: only one that died at work is started again."""
    if state in ("pending", "gate"):
        return ["impl 1", "other 1", *(["other 2"] if again else [])]
    if state == "retry":
        return ["impl 1", "impl 2" if again else "impl 1 again"]
    return ["impl 1", *(["impl 2"] if again and state in ("active", "question") else [])]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_that_is_killed_at_a_state_does_not_keep_the_pipeline_from_its_end(
    layer: str, state: str, site: Any
) -> None:
    scene = scene_of(here := site(AGENT), state)
    scene.reach()
    again = layer in ("orchestrator", "tmux")

    scene.shoot(layer)
    scene.answer(again)
    scene.end()

    assert set(here.statuses("p").values()) == {"validated"}
    assert sorted(here.panes()) == expected(state, again)
    checked = 2 if state == "retry" or (state, layer) == ("impl_complete", "guardian") else 1
    assert here.read("checked").count("x") == checked, "a verdict that was in is not asked for again"
    kinds = here.kinds("p")
    asked = {"gate": 1, "question": 2 if again else 1}.get(state, 0)
    assert (kinds.count("PIPELINE_COMPLETE"), kinds.count("ESCALATION")) == (1, asked)
    assert eventually(lambda: left_over(here.root / ".doflow" / "guardian") == []), "nothing runs any more"
    assert here.servers() == [], "no tmux server, no socket"
    waiting = [path.name for path in (here.root / ".claude/attractor/signals/p").glob("*.json")]
    assert waiting == [], "every signal was heard, or put away"


@pytest.mark.parametrize("layer", ["terminal", "guardian"])
def test_a_layer_that_is_killed_before_anything_has_moved_leaves_all_to_do(layer: str, site: Any) -> None:
    """The other three layers do not exist yet."""
    here = site(AGENT)
    dot = here.pipeline("p", here.node("impl", validate=VALIDATE))
    with editor.lock_file(dot):  # no one can move a node now
        scene = Scene(here, "pending")
        assert eventually(lambda: scene.victims("guardian")[0] > 0 and here.diary("p"))
        scene.shoot(layer)
        assert set(here.statuses("p").values()) == {"pending"}
    scene.end()

    assert set(here.statuses("p").values()) == {"validated"}
    assert (here.panes(), here.read("checked")) == (["impl 1"], "x\n")
    assert here.kinds("p").count("PIPELINE_COMPLETE") == 1


def test_a_guardian_that_was_killed_on_its_way_through_a_node_without_work_is_followed_by_one_that_goes_on(
    site: Any,
) -> None:
    here = site("echo hi > impl.txt")
    dot = here.pipeline("p", here.node("impl", validate="test -s impl.txt"))
    dot.write_text(dot.read_text().replace('shape=Mdiamond, label="Start"', 'shape=Mdiamond, status="active"'))

    done = here.doflow("guardian", "run", "p.dot")

    assert done.returncode == 0, (done.stdout, here.diary("p"))
    assert set(here.statuses("p").values()) == {"validated"}


@pytest.mark.parametrize("layer", ["terminal", "guardian"])
def test_a_layer_that_is_killed_while_a_gate_is_validated_finds_its_way_too(layer: str, site: Any) -> None:
    here = site('echo "$DOFLOW_NODE" >> "$calls"; echo hi > impl.txt; echo done')
    gate = here.node("gate", "wait.human", validate="echo x >> checked; while [ ! -e go-gate ]; do sleep 0.05; done")
    here.pipeline("p", here.node("impl", validate="test -s impl.txt"), gate)
    scene = Scene(here, "gate")
    assert eventually(lambda: (here.root / "checked").exists())

    scene.shoot(layer)
    scene.go("go-gate")
    scene.end()

    assert set(here.statuses("p").values()) == {"validated"}
    assert here.panes() == ["impl"]
    assert here.read("checked").count("x") == (2 if layer == "guardian" else 1), (
        "a verdict that was not in is asked for again"
    )


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
                with suppress(ProcessLookupError):  # a runner that had done its work just now
                    os.kill(pid, signal.SIGKILL)
        guardian.communicate(timeout=60)

    done = here.doflow("guardian", "run", "p.dot")

    assert done.returncode == 0, (done.stdout, done.stderr, here.diary("p"))
    assert set(here.statuses("p").values()) == {"validated"}
    assert here.panes() == ["a 1", "b 1"]
    kinds = here.kinds("p")
    assert {kind: kinds.count(kind) for kind in ("NEEDS_REVIEW", "VALIDATION_PASSED", "PIPELINE_COMPLETE")} == {
        "NEEDS_REVIEW": 2, "VALIDATION_PASSED": 2, "PIPELINE_COMPLETE": 1,
    }  # fmt: skip
