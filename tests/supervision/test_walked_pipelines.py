"""Pipelines whose nodes decide the way, under a guardian: the same nodes in the same order as with doit."""

from __future__ import annotations

from typing import Any

import pytest
from tests.e2e.test_dot_dialects import CHOICE, LABELS, SHOP
from tests.support.supervision import Site, eventually, needs_tmux

from doflow.flow.dot import parser

pytestmark = needs_tmux

SETTINGS = "supervision: {validate: ['true']}\n"
#: brews without cups at first, and tastes sugar only in the third lap
BARISTA = """
echo "$DOFLOW_NODE $DOFLOW_ATTEMPT" >> "$calls"; cp "$DOFLOW_PROMPT" "$(dirname "$calls")/$DOFLOW_NODE-$DOFLOW_ATTEMPT.txt"
case $DOFLOW_NODE-$DOFLOW_ATTEMPT in
  brew-1) echo brewed;;
  brew-*) echo "$DOFLOW_ATTEMPT" > cups.txt; echo brewed;;
  taste-1) echo Bitter.; echo "RESULT: needs_sugar";;
  *) echo "RESULT: pass";;
esac
"""


def run(here: Site, *words: str) -> tuple[int, str]:
    done = here.doflow("guardian", "run", "shop.dot", "--no-wait", "--check", "0.2", *words, timeout=120)
    return done.returncode, done.stdout + done.stderr


def statuses(here: Site) -> dict[str, str]:
    return {node.id: node.status for node in parser.read_pipeline(here.root / "shop.dot").nodes}


def shop(site: Any, text: str, agent: str, settings: str = SETTINGS) -> Site:
    here: Site = site(agent, settings)
    here.write("shop.dot", text)
    here.commit("A pipeline")
    return here


@pytest.mark.smoke
def test_any_node_decides_where_the_pipeline_goes_on(site: Any) -> None:
    here = shop(site, SHOP, BARISTA)

    code, said = run(here)

    assert code == 0, said
    assert here.panes() == ["brew 1", "brew 2", "taste 1", "brew 3", "taste 2"]
    assert set(statuses(here).values()) == {"validated"}
    prompts = {name: (here.outside / f"{name}.txt").read_text() for name in ("brew-1", "brew-2", "brew-3", "taste-1")}
    assert "Brew for: Sell tea" in prompts["brew-1"]
    assert "> RESULT: fail" in prompts["brew-2"], "the result that led back"
    assert "> RESULT: needs_sugar" in prompts["brew-3"]
    assert "`RESULT: pass` or `RESULT: fail` or `RESULT: needs_sugar`" in prompts["taste-1"]
    assert run(here)[0] == 0
    assert len(here.panes()) == 5


def answer(here: Site, token: str, words: str) -> None:
    done = here.doflow("signal", "answer", token, words, "--pipeline", "shop")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_loop_ends_at_its_bound_and_a_person_lets_it_be_tried_again(site: Any) -> None:
    here = shop(site, SHOP, 'echo "$DOFLOW_NODE" >> "$calls"; echo "RESULT: pass"')

    code, said = run(here)

    assert code == 2, said
    assert here.panes() == ["brew", "brew", "brew"]
    assert "route may lead back only 2 times; fix it by hand, then retry." in said
    here.write("cups.txt", "by hand")
    answer(here, "paused.route-3", "retry")
    code, said = run(here)
    assert code == 0, said
    assert here.panes()[3:] == ["taste"]


def test_a_person_stops_where_the_pipeline_cannot_continue(site: Any) -> None:
    here = shop(site, SHOP, "echo done")
    assert run(here)[0] == 2

    answer(here, "paused.route-3", "stop")
    code, said = run(here)

    assert code == 1, said
    assert "not reached: route" in said


def test_a_person_chooses_the_way_by_its_label(site: Any) -> None:
    here = shop(site, CHOICE, 'echo "$DOFLOW_NODE" >> "$calls"; echo done')

    code, said = run(here)

    assert code == 2, said
    assert "1. [A] Approve\n    2. [F] Fix it" in said
    odd = here.doflow("signal", "answer", "verdict.review", "perhaps", "--pipeline", "shop")
    assert odd.returncode == 1 and "isn't one of the options" in odd.stderr
    answer(here, "verdict.review", "f")
    assert run(here)[0] == 2
    assert here.panes() == ["draft", "fix"]
    answer(here, "verdict.review", "Approve")
    code, said = run(here)
    assert code == 0, said
    assert set(statuses(here).values()) == {"validated"}


def test_an_agent_chooses_the_way_by_its_label(site: Any) -> None:
    here = shop(
        site,
        LABELS,
        'echo "$DOFLOW_NODE" >> "$calls"; case $DOFLOW_NODE-$DOFLOW_ATTEMPT in review-1) echo "LABEL: Rework";; esac\n'
        'echo "RESULT: pass"',
    )

    code, said = run(here)

    assert code == 0, said
    assert here.panes() == ["draft", "review", "draft", "review"]


def test_a_goal_gate_that_failed_leads_back_from_the_exit(site: Any) -> None:
    text = (
        "digraph G { start [shape=Mdiamond]; exit [shape=Msquare]; retry_target=build\n"
        "build [prompt=Build]; check [prompt=Check goal_gate=true]\nstart -> build -> check -> exit }\n"
    )
    agent = """
echo "$DOFLOW_NODE" >> "$calls"
case $DOFLOW_NODE-$DOFLOW_ATTEMPT in check-1) echo "RESULT: fail";; *) echo "RESULT: pass";; esac
"""
    here = shop(site, text, agent)

    code, said = run(here)

    assert code == 0, said
    assert here.panes() == ["build", "check", "build", "check"]


def test_a_report_without_a_result_is_sent_back_and_never_a_pass(site: Any) -> None:
    text = (
        "digraph G { start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt=A max_retries=1]\n"
        'start -> a\na -> exit [condition="outcome=success"]; a -> start2 [condition="outcome=fail"]\n'
        "start2 [prompt=B]; start2 -> exit }\n"
    )
    here = shop(site, text, 'echo "$DOFLOW_NODE $DOFLOW_ATTEMPT" >> "$calls"; echo finished')

    code, said = run(here)

    assert code == 2, said
    assert here.panes() == ["a 1", "a 2"]
    assert "the last line must be one of: RESULT: pass, RESULT: fail" in said


def test_a_tool_that_cannot_run_is_an_error_and_not_the_way_of_a_failure(site: Any) -> None:
    text = (
        "digraph G { start [shape=Mdiamond]; exit [shape=Msquare]; t [shape=parallelogram tool_command=no-such-tool]\n"
        'fix [prompt=Fix]; start -> t\nt -> exit [condition="outcome=success"]; t -> fix [condition="outcome=fail"]; fix -> t }\n'
    )
    here = shop(site, text, 'echo "$DOFLOW_NODE" >> "$calls"; echo done')

    code, said = run(here)

    assert code == 2, said
    assert here.panes() == []
    assert "t has failed after attempt 1" in said


def test_a_half_done_file_continues_where_it_stands(site: Any) -> None:
    text = SHOP.replace('brew  [prompt="', 'brew  [status=validated, prompt="')
    here = shop(site, text, 'echo "$DOFLOW_NODE" >> "$calls"; echo "RESULT: pass"')
    here.write("cups.txt", "three")

    code, said = run(here)

    assert code == 0, said
    assert here.panes() == ["taste"]


@pytest.mark.parametrize("walked", [True, False], ids=["decides", "plain"])
def test_work_that_was_complete_is_validated_and_not_done_again(site: Any, walked: bool) -> None:
    edges = (
        'a -> exit [condition="outcome=success"]; a -> b [condition="outcome=fail"]; b -> exit'
        if walked
        else "a -> b -> exit"
    )
    text = (
        "digraph G { start [shape=Mdiamond]; exit [shape=Msquare]\n"
        f'a [prompt=A status=impl_complete validate="test -s a.txt"]; b [prompt=B]\nstart -> a; {edges} }}\n'
    )
    here = shop(site, text, 'echo "$DOFLOW_NODE" >> "$calls"; echo "RESULT: pass"')
    here.write("a.txt", "done by another tool")

    code, said = run(here)

    assert code == 0, said
    assert here.panes() == ([] if walked else ["b"])


def test_a_restarted_file_begins_again(site: Any) -> None:
    here = shop(site, SHOP, BARISTA)
    assert run(here)[0] == 0
    calls = len(here.panes())

    assert here.doflow("dot", "restart", "shop.dot").returncode == 0
    code, said = run(here)

    assert code == 0, said
    assert len(here.panes()) > calls


def test_a_killed_guardian_continues_in_the_same_lap(site: Any) -> None:
    here = shop(site, SHOP, BARISTA.replace("brew-*) ", "brew-*) while [ ! -e go ]; do sleep 0.1; done; "))
    guardian = here.launch("run", "shop.dot")
    assert eventually(lambda: here.panes() == ["brew 1", "brew 2"])
    guardian.kill()
    guardian.communicate()
    (here.root / "go").touch()

    code, said = run(here)

    assert code == 0, said
    assert here.panes() == ["brew 1", "brew 2", "taste 1", "brew 3", "taste 2"]


@pytest.mark.parametrize("walked", [True, False], ids=["decides", "plain"])
def test_a_node_that_a_person_makes_pending_is_done_again(site: Any, walked: bool) -> None:
    edges = 'b -> exit [condition="outcome=success"]; b -> a [condition="outcome=fail"]' if walked else "b -> exit"
    text = f"digraph G {{ start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt=A]; b [prompt=B]\nstart -> a -> b; {edges} }}\n"
    here = shop(site, text, 'echo "$DOFLOW_NODE" >> "$calls"; echo "RESULT: pass"')
    assert run(here)[0] == 0

    assert here.doflow("dot", "transition", "shop.dot", "b", "pending").returncode == 0
    code, said = run(here)

    assert code == 0, said
    assert here.panes() == ["a", "b", "b"]
    assert set(statuses(here).values()) == {"validated"}


def test_a_node_that_failed_before_is_tried_again_when_a_person_says_so(site: Any) -> None:
    text = (
        "digraph G { start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt=A status=failed]; b [prompt=B]\nstart -> a\n"
        'a -> b [condition="outcome=success"]; a -> exit [condition="outcome=skip"]; b -> exit }\n'
    )
    here = shop(site, text, 'echo "$DOFLOW_NODE" >> "$calls"; echo "RESULT: pass"')
    guardian = here.launch("run", "shop.dot", "--check", "0.2")
    assert eventually(lambda: "ESCALATION" in here.kinds("shop"))
    assert here.panes() == []

    answer(here, "paused.a-next", "retry")
    said = guardian.communicate(timeout=60)[0]

    assert guardian.returncode == 0, said
    assert "no edge of a fits its result (outcome=success; outcome=skip)" in said
    assert here.panes() == ["a", "b"]
