"""Do statuses move as the table says, durably, one writer at a time, and does the file keep its looks?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doflow.flow.dot import order, parser, transitions
from doflow.flow.dot.model import COLOURS, MOVES, STATUSES
from doflow.util.errors import UsageError

TEXT = """// the graph of a test
digraph "PRD-1" {
    start [shape=Mdiamond];
    impl [shape=box, acceptance="it works"]; // by hand
    gate [shape=hexagon];
    decide [shape=diamond];
    exit [shape=Msquare];
    start -> impl -> gate -> decide;
    decide -> exit [condition="pass"];
    decide -> impl [condition="fail"];   /* the way back */
}
"""


@pytest.fixture
def dot(tmp_path: Path) -> Path:
    path = tmp_path / "p.dot"
    path.write_text(TEXT)
    return path


def walk(dot: Path, *names: str) -> None:
    for name in names:
        transitions.transition(dot, name, "active")
        transitions.transition(dot, name, "validated")


def ready(dot: Path) -> list[str]:
    return [node.id for node in order.ready_nodes(parser.read_pipeline(dot))]


@pytest.mark.parametrize(("start", "to"), [(start, to) for start in STATUSES for to in STATUSES if start != to])
def test_only_the_moves_of_the_table_are_allowed(dot: Path, start: str, to: str) -> None:
    text = TEXT.replace("acceptance=", f'status="{start}", acceptance=')
    dot.write_text(text)
    if to in MOVES[start]:
        assert transitions.transition(dot, "impl", to).node("impl").status == to
    else:
        with pytest.raises(transitions.Refused, match=f"impl is {start} and cannot become {to}") as refused:
            transitions.transition(dot, "impl", to)
        assert refused.value.hint
        assert dot.read_text() == text
        assert not Path(transitions.log_path(dot)).exists()


def test_a_move_changes_status_and_colour_and_nothing_else(dot: Path) -> None:
    transitions.transition(dot, "impl", "active")

    new = f'acceptance="it works", status="active", fillcolor="{COLOURS["active"]}", style="filled"'
    assert dot.read_text() == TEXT.replace('acceptance="it works"', new)


def test_a_graph_with_a_retry_edge_starts_loops_and_ends(dot: Path) -> None:
    assert ready(dot) == ["start"]
    walk(dot, "start", "impl", "gate")
    assert ready(dot) == ["decide"]
    transitions.transition(dot, "decide", "active")
    transitions.transition(dot, "decide", "failed")
    assert ready(dot) == []

    transitions.requeue(dot, "decide", note="tests fail")

    assert ready(dot) == ["impl"]
    walk(dot, "impl", "gate", "decide")
    assert ready(dot) == ["exit"]
    walk(dot, "exit")
    assert ready(dot) == []


def test_every_move_is_a_line_of_the_log_and_a_checkpoint(dot: Path) -> None:
    walk(dot, "start")

    lines = [json.loads(line) for line in Path(transitions.log_path(dot)).read_text().splitlines()]
    saved = json.loads(Path(transitions.checkpoint_path(dot)).read_text())
    assert [(line["node"], line["from"], line["to"]) for line in lines] == [
        ("start", "pending", "active"),
        ("start", "active", "validated"),
    ]
    assert saved["version"] == "1.0.0"
    assert {node["id"]: node["status"] for node in saved["nodes"]}["start"] == "validated"
    assert saved["content_hash"] == transitions.digest(dot.read_text()) == lines[-1]["after"]


def test_work_is_sent_back_at_most_as_often_as_the_diamond_allows(dot: Path) -> None:
    dot.write_text(TEXT.replace("[shape=diamond]", "[shape=diamond, max_retries=1]"))
    walk(dot, "start", "impl", "gate")
    for _ in range(2):
        transitions.transition(dot, "decide", "active")
        transitions.transition(dot, "decide", "failed")
        if order.retry_count(parser.read_pipeline(dot).node("decide")) == 0:
            transitions.requeue(dot, "decide")
            walk(dot, "impl", "gate")

    with pytest.raises(transitions.Refused, match="decide has used all 1 retries") as refused:
        transitions.requeue(dot, "decide")

    assert "max_retries" in refused.value.hint
    assert parser.read_pipeline(dot).node("decide").status == "failed"


@pytest.mark.parametrize(
    ("node", "message"),
    [("gate", "gate has no retry edge"), ("decide", "decide is pending: only a failed diamond can be retried")],
)
def test_only_a_failed_diamond_with_a_way_back_sends_work_back(dot: Path, node: str, message: str) -> None:
    with pytest.raises(transitions.Refused, match=message):
        transitions.requeue(dot, node)


def test_a_move_that_was_made_already_is_left_alone_and_a_claim_is_refused(dot: Path) -> None:
    transitions.transition(dot, "impl", "active")
    text, log = dot.read_text(), Path(transitions.log_path(dot)).read_text()

    transitions.transition(dot, "impl", "active")
    with pytest.raises(transitions.Refused, match="impl is active, not pending: another process moved it"):
        transitions.transition(dot, "impl", "active", expect="pending")

    assert (dot.read_text(), Path(transitions.log_path(dot)).read_text()) == (text, log)


def test_a_run_brings_nodes_where_they_are_by_the_moves_of_the_table(dot: Path) -> None:
    walk(dot, "start", "impl")

    transitions.follow(
        dot, {"impl": ("active", 0), "gate": ("validated", 0), "decide": ("pending", 2)}, by="run 1", note="why"
    )

    lines = [json.loads(line) for line in Path(transitions.log_path(dot)).read_text().splitlines()[4:]]
    assert [(line["node"], line["from"], line["to"]) for line in lines] == [
        ("impl", "validated", "pending"),
        ("impl", "pending", "active"),
        ("gate", "pending", "active"),
        ("gate", "active", "validated"),
        ("decide", "pending", "pending"),
    ]
    assert {line["by"] for line in lines} == {"run 1"}
    assert order.retry_count(parser.read_pipeline(dot).node("decide")) == 2
    assert {node.status for node in transitions.restart(dot).nodes} == {"pending"}
    assert order.retry_count(parser.read_pipeline(dot).node("decide")) == 0


def test_an_unknown_node_or_status_is_said_with_those_there_are(dot: Path) -> None:
    with pytest.raises(UsageError, match="there is no node nobody") as unknown:
        transitions.transition(dot, "nobody", "active")
    with pytest.raises(transitions.Refused, match="'done' is no status of a node") as odd:
        transitions.transition(dot, "impl", "done")

    assert unknown.value.hint == "nodes: start, impl, gate, decide, exit"
    assert odd.value.hint == "statuses: pending, active, impl_complete, validated, failed"
