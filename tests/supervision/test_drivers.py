"""One DOT file is in use by a run of `doit` or by a guardian with its runners, never by both: the other one is told who it
is and what to type, before anything of its own begins."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from tests.support.supervision import Site, eventually, left_over, needs_tmux

AGENT = 'echo "$DOFLOW_STEP" >> "$calls"; while [ ! -e go ]; do sleep 0.05; done; echo hi > impl.txt; echo done'

pytestmark = needs_tmux


def made(site: Any) -> Site:
    here: Site = site(AGENT, "pipelines: {p: p.dot}\n")
    here.pipeline("p", here.node("impl", validate="test -s impl.txt"))
    here.commit("A pipeline")
    return here


@pytest.mark.smoke
def test_a_run_is_refused_while_a_guardian_or_only_its_runner_works_on_the_file(site: Any) -> None:
    here = made(site)
    guardian = here.launch("run", "p.dot", "--check", "0.3")
    assert eventually(lambda: here.panes() == ["impl"])
    before = here.read("p.dot")

    refused = here.doit("p")
    assert refused.returncode == 1
    said = refused.stdout + refused.stderr
    assert f"p.dot is in use by `doflow guardian run p.dot` (pid {guardian.pid}, since 20" in said
    assert "doflow dot status p.dot" in said and "doflow guardian stop p.dot" in said

    os.kill(guardian.pid, signal.SIGKILL)
    guardian.communicate()
    runner = here.holder("p", "nodes", "impl", "runner.lock")
    orphan = here.doflow("run", "p")
    assert orphan.returncode == 1
    assert f"its guardian has ended, but these are still running: impl (pid {runner})" in orphan.stdout + orphan.stderr
    assert "doflow guardian launch p.dot" in orphan.stdout + orphan.stderr
    assert (here.runs(), here.read("p.dot"), here.panes()) == ([], before, ["impl"]), "nothing of the run has begun"

    (here.root / "go").touch()
    assert here.doflow("guardian", "run", "p.dot", "--check", "0.3").returncode == 0
    assert (set(here.statuses("p").values()), here.panes()) == ({"validated"}, ["impl"])
    assert eventually(lambda: left_over(here.root / ".doflow" / "guardian") == [])


def test_a_guardian_is_refused_while_a_run_works_on_the_file(site: Any) -> None:
    here = made(site)
    run = here.start("doit", "p")
    assert eventually(lambda: here.panes() == ["impl"])
    before = here.read("p.dot")

    for verb in ("run", "launch"):
        refused = here.doflow("guardian", verb, "p.dot", "--no-wait")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"p.dot is in use by `doit p` (pid {run.pid}, since 20" in refused.stderr
        assert "wait for it, or stop it (^C" in refused.stderr
    assert (here.read("p.dot"), here.diary("p"), here.servers(), here.panes()) == (before, [], [], ["impl"])

    (here.root / "go").touch()
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0, (out, err)
    assert here.doflow("guardian", "run", "p.dot", "--no-wait").returncode == 0, "the lock went with the run"


def test_a_second_guardian_is_told_who_is_the_first_and_how_to_stop_it(site: Any) -> None:
    here = made(site)
    first = here.launch("run", "p.dot")
    assert eventually(lambda: here.panes() == ["impl"])

    second = here.doflow("guardian", "run", "p.dot")

    assert second.returncode == 1
    assert f"a guardian is working on p already (pid {first.pid})" in second.stderr
    assert "doflow guardian stop p.dot" in second.stderr
    (here.root / "go").touch()
    assert first.wait(timeout=60) == 0
