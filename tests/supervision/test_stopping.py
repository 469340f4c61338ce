"""A person stops a pipeline, and goes on with it later."""

from __future__ import annotations

from typing import Any

from tests.support.supervision import eventually, left_over, needs_tmux

pytestmark = needs_tmux

AGENT = (
    'echo "$DOFLOW_NODE $DOFLOW_ATTEMPT" >> "$calls"; while [ ! -e "go-$DOFLOW_NODE" ]; do sleep 0.05; done; echo ok'
)


def test_a_stopped_pipeline_leaves_nothing_running_and_goes_on_without_a_retry_used_up(site: Any) -> None:
    here = site(AGENT)
    here.pipeline("p", here.node("a", validate="true"), here.node("b", validate="true", max_retries="0"))
    (here.root / "go-a").touch()
    terminal = here.launch("launch", "p.dot")
    assert eventually(lambda: here.panes() == ["a 1", "b 1"])
    guardian, runner = here.holder("p", "guardian.lock"), here.holder("p", "nodes", "b", "runner.lock")

    stopped = here.doflow("guardian", "stop", "p.dot")

    assert stopped.returncode == 0, stopped.stderr
    for words in (f"guardian (pid {guardian})", f"runner of b (pid {runner})", "session orch-b"):
        assert f"ended: {words}" in stopped.stdout
    assert "resume with: doflow guardian launch p.dot" in stopped.stdout
    out, _ = terminal.communicate(timeout=60)
    assert terminal.returncode == 2, "it does not start again what a person has stopped"
    assert "p: stopped; resume with: doflow guardian launch p.dot" in out
    assert eventually(lambda: left_over(here.root / ".doflow" / "guardian") == [])
    assert (here.servers(), here.statuses("p")["a"], here.statuses("p")["b"]) == ([], "validated", "active")

    (here.root / "go-b").touch()
    again = here.launch("launch", "p.dot")
    out, err = again.communicate(timeout=60)

    assert again.returncode == 0, (out, err, here.diary("p"))
    assert here.panes() == ["a 1", "b 1", "b 2"], "b had no retry left, and needed none"


def test_what_no_one_works_on_is_said_and_what_is_not_there_is_refused(site: Any) -> None:
    here = site(AGENT)
    here.pipeline("p", here.node("a", validate="true"))

    idle, missing = here.doflow("guardian", "stop", "p.dot"), here.doflow("guardian", "stop", "q.dot")

    assert (idle.returncode, "nothing was running; resume with: doflow guardian launch p.dot" in idle.stdout) == (
        0,
        True,
    )
    assert (missing.returncode, "unknown pipeline 'q'" in missing.stderr) == (1, True)


def test_launch_shows_what_moves_and_how_to_watch(site: Any) -> None:
    here = site(AGENT)
    (here.root / "go-a").touch()
    here.pipeline("p", here.node("a", validate="true"))

    out, _ = (terminal := here.launch("launch", "p.dot")).communicate(timeout=60)

    assert terminal.returncode == 0
    (socket,) = {one["attach"].split()[2] for one in here.diary("p") if one["event"] == "orchestrator_spawned"}
    said = [line.partition(" ")[2] for line in out.splitlines()]
    seen = [line for line in said if line.startswith("p: a: ")]
    assert seen == [
        "p: a: active",
        f"p: a: attempt 1 runs in tmux; watch it with: tmux -L {socket} attach -t orch-a",
        "p: a: impl_complete (attempt 1)",
        "p: a: validated (by true)",
    ]
