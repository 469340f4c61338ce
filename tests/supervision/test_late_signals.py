"""Words that cross on their way: what is said about an attempt that is over moves nothing any more, and what a runner was
killed over is said by the next one, once."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from tests.support.supervision import eventually, needs_tmux

from doflow.supervise.signal_store import Signal, SignalStore

pytestmark = needs_tmux


def test_a_node_that_was_sent_back_is_not_validated_by_the_late_word_of_its_first_attempt(site: Any) -> None:
    """The first runner sleeps while its node is validated and sent back by a diamond; then it wakes and reports."""
    here = site(
        'echo "$DOFLOW_ATTEMPT" >> "$calls"; while [ ! -e "go-$DOFLOW_ATTEMPT" ]; do sleep 0.05; done; '
        'echo "$DOFLOW_ATTEMPT" > out.txt; echo "DOFLOW: done"; while read line; do :; done'
    )
    here.pipeline(
        "p", here.node("impl", validate="while [ ! -e go-check ]; do sleep 0.05; done"),
        here.node("good", "conditional", command="grep -q 2 out.txt"),
        edges='  start -> impl -> good\n  good -> finish [condition="pass"]\n  good -> impl [condition="fail"]',
    )  # fmt: skip
    guardian = here.launch("run", "p.dot", "--check", "0.3")
    (here.root / "go-1").touch()
    assert eventually(lambda: here.statuses("p")["impl"] == "impl_complete")
    runner = here.holder("p", "nodes", "impl", "runner.lock")
    os.kill(runner, signal.SIGSTOP)
    (here.root / "go-check").touch()

    def moves() -> list[str]:
        return [one["to"] for one in here.diary("p") if one["event"] == "transition" and one["node"] == "impl"]

    assert eventually(lambda: moves() == ["active", "impl_complete", "validated", "active"]), moves()
    os.kill(runner, signal.SIGCONT)
    assert eventually(lambda: here.panes() == ["1", "2"]), (here.panes(), here.diary("p"))
    assert here.statuses("p")["impl"] == "active", "the first attempt's NODE_COMPLETE has come, and moved nothing"

    (here.root / "go-2").touch()
    assert guardian.wait(timeout=60) == 0, here.diary("p")
    assert here.read("out.txt") == "2\n"


@pytest.mark.parametrize("sent", [True, False])
def test_a_runner_that_was_killed_while_it_asked_is_followed_by_one_that_knows_the_answer(
    sent: bool, site: Any
) -> None:
    """Its last deed was to keep what it asks (`sent` off), or to ask; the answer lies there before the next one looks."""
    here = site('echo x >> "$calls"; echo "DOFLOW: ask Which?"; read c; echo "$c" >> answered; echo done')
    here.pipeline("p", here.node("impl"))
    pid = here.tool("spawn-runner", "--node", "impl", "--pipeline", "p.dot")["pid"]
    words = ("--pipeline", "p", "--type", "NEEDS_INPUT", "--timeout", "60", "--peek")
    asked = here.tool("wait-for-signal", *words)
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not here.holder("p", "nodes", "impl", "runner.lock"))
    if not sent:
        os.unlink(asked["signal_file"])
        here.tool("spawn-runner", "--node", "impl", "--pipeline", "p.dot")
        asked = here.tool("wait-for-signal", *words)
        assert asked["status"] == "ok", "the next one asks"
    said = {"node_id": "impl", "response_text": "blue"}
    folder = os.path.dirname(asked["signal_file"])
    SignalStore(folder, "p").write(Signal("INPUT_RESPONSE", said, reply=asked["id"].partition("-re-")[0], attempt=1))
    if sent:
        here.tool("spawn-runner", "--node", "impl", "--pipeline", "p.dot")

    assert eventually(lambda: "NEEDS_REVIEW" in here.kinds("p")), here.diary("p")
    assert (here.read("answered"), here.panes(), here.kinds("p").count("NEEDS_INPUT")) == ("blue\n", ["x"], 1)
