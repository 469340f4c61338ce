"""Does every rule of a pipeline speak up, with the right line, and stay silent where all is well?"""

from __future__ import annotations

import pytest
from tests.support.dots import NODE

from doflow.flow.dot import parser, validate

GOOD = """digraph p {
    graph [prd_ref="PRD-1" promise_id="promise-1"];
    start [shape=Mdiamond handler="start" status="validated"];
    impl [
        shape=box
        handler="codergen"
        bead_id="B-1"
        worker_type="backend"
        acceptance="it works"
        promise_ac="AC-1"
    ];
    gate [shape=hexagon handler="wait.human" gate="technical"];
    good [shape=diamond];
    exit [shape=Msquare];
    start -> impl [label="begin"];
    impl -> gate -> good;
    good -> exit [condition="pass"];
    good -> impl [condition="fail" label="retry"];
}
"""

#: the node of the requirements, with what a pipeline needs around it
AROUND = "    start [shape=Mdiamond]; exit [shape=Msquare]; gate [shape=hexagon];\n"
FULL = "digraph auth {\n" + AROUND + NODE + "    start -> impl_auth -> gate -> exit\n}\n"


def said(text: str) -> list[tuple[str, str, int, str]]:
    return [(one.level, one.rule, one.line, one.node) for one in validate.check_pipeline(parser.parse_pipeline(text))]


def test_a_good_pipeline_with_a_retry_edge_is_left_in_peace() -> None:
    assert said(GOOD) == []


def test_r2_53_the_full_example_node_validates_without_error() -> None:
    assert validate.errors(validate.check_pipeline(parser.parse_pipeline(FULL))) == ()


def test_r2_99_and_r2_100_a_worker_without_prd_ref_or_acceptance_is_warned_of() -> None:
    text = GOOD.replace('prd_ref="PRD-1" ', "").replace('        acceptance="it works"\n', "")

    assert said(text) == [("warning", "acceptance", 4, "impl"), ("warning", "prd_ref", 4, "impl")]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("[shape=Mdiamond ", "[shape=box ", ("warning", "shape", 3, "start")),
        ("exit [shape=Msquare];", "exit [shape=Msquare]; s2 [shape=Mdiamond]; s2 -> gate;", ("error", "one-start", 14, "s2")),
        ("impl -> gate -> good;", "impl -> gate -> good; gate -> start;", ("error", "start-edges", 16, "start")),
        ("impl -> gate -> good;", "impl -> gate -> good; exit -> gate;", ("error", "exit-edges", 16, "exit")),
        ("exit [shape=Msquare];", "exit [shape=Msquare]; lone [shape=hexagon];", ("error", "orphan", 14, "lone")),
        ("exit [shape=Msquare];", "exit [shape=Msquare]; a [shape=hexagon]; a -> exit;", ("error", "unreachable", 14, "a")),
        ("exit [shape=Msquare];", "exit [shape=Msquare]; a [shape=hexagon]; impl -> a;", ("warning", "dead-end", 14, "a")),
        ('gate [shape=hexagon handler="wait.human"', "gate [shape=ellipse", ("error", "handler", 12, "gate")),
        ('handler="wait.human"', 'handler="wait.forever"', ("warning", "handler", 12, "gate")),
        ("good [shape=diamond]", "good [shape=egg]", ("error", "handler", 13, "good")),
        ('        bead_id="B-1"\n', "", ("warning", "bead_id", 4, "impl")),
        ('        worker_type="backend"\n', "", ("warning", "worker_type", 4, "impl")),
        ("gate [shape=hexagon ", "gate [shape=parallelogram ", ("warning", "shape", 12, "gate")),
        ('gate [shape=hexagon handler="wait.human"', "gate [shape=parallelogram", ("error", "required", 12, "gate")),
        ("exit [shape=Msquare];", "exit [shape=Msquare]; d [shape=diamond]; impl -> d;", ("error", "diamond", 14, "d")),
        ("impl -> gate -> good;", "impl -> gate -> good; gate [retry_target=nowhere];", ("error", "retry-target", 12, "gate")),
        ('condition="pass"', 'condition="perhaps"', ("error", "condition", 17, "good")),
        ('status="validated"', 'status="finished"', ("error", "status", 3, "start")),
        ("impl -> gate -> good;", "impl -> gate -> good; gate -> impl;", ("error", "circle", 16, "gate")),
        ("impl -> gate -> good;", "impl -> gate -> good; impl -> r -> q -> r; r [shape=box];", ("error", "circle", 16, "q")),
        ("        acceptance=", "        colour=red acceptance=", ("warning", "attribute", 9, "")),
        ("good [shape=diamond]", "good [shape=diamond max_retries=often]", ("error", "number", 13, "good")),
        (' promise_id="promise-1"', "", ("warning", "promise", 4, "impl")),
        ("impl -> gate -> good;", "impl -> gate -> good; impl -> gate;", ("warning", "twice", 16, "impl")),
        ("digraph p", "graph p", ("error", "digraph", 1, "")),
    ],
)  # fmt: skip
def test_every_rule_says_what_is_wrong_and_in_which_line(old: str, new: str, found: tuple[str, str, int, str]) -> None:
    text = GOOD.replace(old, new, 1)
    assert text != GOOD

    assert found in said(text)
    for remark in validate.check_pipeline(parser.parse_pipeline(text)):
        assert remark.message


def test_strict_makes_every_warning_an_error() -> None:
    text = GOOD.replace('prd_ref="PRD-1" ', "")

    assert [one.level for one in validate.check_pipeline(parser.parse_pipeline(text), strict=True)] == ["error"]


def test_r2_104_pipelines_in_the_words_of_others_still_validate() -> None:
    """Conditions as `outcome=success`, labels for conditions, a start that is validated from the beginning."""
    text = GOOD.replace('condition="pass"', 'condition="outcome=success"').replace(
        'condition="fail" label="retry"', "label=fail"
    )

    assert said(text) == []
