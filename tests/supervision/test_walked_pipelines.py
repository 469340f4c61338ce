"""Pipelines whose nodes decide the way, under a guardian: the same nodes in the same order as with doit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.e2e.test_dot_dialects import CHOICE, SHOP
from tests.support.supervision import Site, needs_tmux

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
