"""Is DOT read as Graphviz reads it, and can every value be written back where it stands?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tests.support.dots import NODE

from doflow.flow.dot import editor, parser
from doflow.util.errors import FlowError, UsageError

FULL = "digraph auth {\n" + NODE + "}\n"


def edges(text: str) -> list[tuple[str, str]]:
    return [(edge.start, edge.to) for edge in parser.parse_pipeline(text).edges]


def test_r2_98_the_reader_finds_section_design_and_folder() -> None:
    node = parser.parse_pipeline(FULL).node("impl_auth")

    assert (node.line, node.handler, node.status) == (2, "codergen", "pending")
    assert node.get("prd_section") == "Epic 2: JWT Authentication"
    assert node.get("solution_design") == ".claude/documentation/SOLUTION-DESIGN-AUTH.md"
    assert node.get("target_dir") == "zenagent/agencheck/agencheck-support-agent"
    assert [one.line for one in node.own] == list(range(3, 14))


def test_every_form_of_a_name_and_of_a_value_is_read() -> None:
    text = 'strict DiGraph "a b" { "x y" [a=1.5, b=-.5; c="q\\"r" d=<<b>&lt;</b>> e f="one" + " two" g="l\\\nm"] ü_1 }'

    found = parser.parse_pipeline(text)

    assert (found.name, [node.id for node in found.nodes]) == ("a b", ["x y", "ü_1"])
    assert dict(found.nodes[0].attributes) == {
        "a": "1.5", "b": "-.5", "c": 'q"r', "d": "<<b>&lt;</b>>", "e": "true", "f": "one two", "g": "lm",
    }  # fmt: skip


def test_chains_groups_ports_and_subgraphs_give_every_edge() -> None:
    assert edges("digraph { a:p:n -> b -> {c; d} -> e }") == [
        ("a", "b"), ("b", "c"), ("b", "d"), ("c", "e"), ("d", "e"),
    ]  # fmt: skip
    assert edges("digraph { subgraph cluster_1 { x -> y } -> z }") == [("x", "y"), ("x", "z"), ("y", "z")]


def test_defaults_hold_from_where_they_stand_and_inside_their_braces_only() -> None:
    text = (
        "digraph { early; node [shape=box k=1]; a; subgraph s { node [k=2] b [k=3]; c } d; edge [w=9]; a -> d [v=1] }"
    )

    found = parser.parse_pipeline(text)

    assert {node.id: (node.shape, node.get("k")) for node in found.nodes} == {
        "early": ("", ""), "a": ("box", "1"), "b": ("box", "3"), "c": ("box", "2"), "d": ("box", "1"),
    }  # fmt: skip
    assert {node.id: node.group for node in found.nodes}["b"] == "s"
    assert found.edges[0].attributes == (("w", "9"), ("v", "1"))


def test_graph_attributes_are_those_of_the_graph_not_of_its_subgraphs() -> None:
    found = parser.parse_pipeline('digraph g { prd_ref="P-1"; graph [label="x"]; subgraph s { label="y" } }')

    assert found.attributes == (("prd_ref", "P-1"), ("label", "x"))


def test_comments_of_every_kind_are_passed_over() -> None:
    assert edges("# a line\ndigraph { // a -> x\n a /* -> y\n -> z */ -> b\n# c -> d\n}") == [("a", "b")]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("digraph {\n  a [x=]\n}", 2, 8, "x= has no value, but `]`"),
        ('digraph {\n a [x="open]\n}', 2, 7, "unterminated quoted string"),
        ("digraph {\n a [l=<<b>]\n}", 2, 7, "unterminated HTML label"),
        ("digraph { a -> }", 1, 16, "expected a node, an edge or an attribute, not `}`"),
        ("digraph {\n a\n", 3, 1, "expected `}`, not the end of the file"),
        ("digraph {} x", 1, 12, "something stands after the last `}`"),
        ("flow: tiny\n", 1, 1, "a pipeline begins with `digraph NAME {`"),
        ("digraph { a ! b }", 1, 13, "unexpected '!'"),
    ],
)
def test_what_is_no_dot_is_refused_with_line_and_column(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(FlowError) as refused:
        parser.parse_pipeline(text, "p.dot")

    (problem,) = refused.value.problems
    assert (problem.file, problem.line, problem.column, problem.message) == ("p.dot", line, column, message)


def test_a_file_that_is_not_there_is_said_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"cannot read .*p\.dot: No such file"):
        parser.read_pipeline(tmp_path / "p.dot")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_a_value_and_comes_back_as_it_was(value: str) -> None:
    assert parser.unquoted(parser.quoted(value)) == value

    written = editor.set_attributes(parser.parse_pipeline("digraph { a [k=1] }"), "a", {"k": value, "new key": value})

    assert dict(written.node("a").attributes) == {"k": value, "new key": value}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("digraph { a }", 'digraph { a [k="v"] }'),
        ("digraph { a [] }", 'digraph { a [k="v"] }'),
        ("digraph { a [x=1] }", 'digraph { a [x=1, k="v"] }'),
        ("digraph { a [x=1,] }", 'digraph { a [x=1, k="v",] }'),
        ("digraph {\n  a [\n    x=1 // one\n  ]\n}", 'digraph {\n  a [\n    x=1\n    k="v" // one\n  ]\n}'),
        ("digraph {\n  a [\n    x=1,\n    y=2\n  ]\n}", 'digraph {\n  a [\n    x=1,\n    y=2,\n    k="v"\n  ]\n}'),
        ("digraph {\n  a -> b\n}", 'digraph {\n    a [k="v"];\n  a -> b\n}'),
        ("digraph { a [k=old] }", "digraph { a [k=v] }"),
        ('digraph { a [k="old"] /* k */ }', 'digraph { a [k="v"] /* k */ }'),
        ("digraph { a [k=1] a [k=2] }", "digraph { a [k=1] a [k=v] }"),
    ],
)
def test_an_attribute_is_written_where_a_person_would_write_it(before: str, after: str) -> None:
    assert editor.set_attributes(parser.parse_pipeline(before), "a", {"k": "v"}).text.replace(
        '"v"', "v"
    ) == after.replace('"v"', "v")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("digraph { a [x=1, k=2, y=3] }", "digraph { a [x=1, y=3] }"),
        ("digraph { a [x=1, k=2] }", "digraph { a [x=1] }"),
        ("digraph { a [k=2] }", "digraph { a [] }"),
        ("digraph {\n a [\n  x=1\n  k=2\n ]\n}", "digraph {\n a [\n  x=1\n ]\n}"),
    ],
)
def test_an_attribute_is_taken_out_with_its_comma(before: str, after: str) -> None:
    assert editor.unset_attributes(parser.parse_pipeline(before), "a", ["k"]).text == after


def test_a_node_is_added_before_the_edges_and_taken_out_with_its_own() -> None:
    text = "digraph {\n    a;\n    b;\n    // ways\n    a -> b -> c [w=1];\n    b -> d;\n}\n"

    more = editor.add_node(parser.parse_pipeline(text), "new one", {"prd_ref": "P"})
    less = editor.remove_node(parser.parse_pipeline(text), "b")

    assert '    b;\n    // ways\n    "new one" [\n        prd_ref="P"\n    ];\n    a -> b' in more.text
    assert less.text == "digraph {\n    a;\n    // ways\n}\n"
    assert editor.remove_node(parser.parse_pipeline(text), "a").text == text.replace("    a;\n", "").replace(
        "a -> b -> c", "b -> c"
    )


def test_edges_are_added_and_taken_out_one_by_one() -> None:
    start = parser.parse_pipeline("digraph {\n    a -> b -> c;\n}\n")

    more = editor.add_edge(start, "a", "c", {"condition": "fail"})
    less = editor.remove_edge(more, "a", "b")

    assert more.text == 'digraph {\n    a -> b -> c;\n    a -> c [condition="fail"];\n}\n'
    assert less.text == 'digraph {\n    b -> c;\n    a -> c [condition="fail"];\n}\n'


def test_what_is_not_there_or_is_there_already_is_said() -> None:
    start = parser.parse_pipeline("digraph { a; a -> b }")

    with pytest.raises(UsageError, match="there is no node z") as refused:
        editor.set_attributes(start, "z", {"k": "v"})
    assert refused.value.hint == "nodes: a, b"
    with pytest.raises(UsageError, match="node a already"):
        editor.add_node(start, "a", {})
    with pytest.raises(UsageError, match="there is an edge a -> b already"):
        editor.add_edge(start, "a", "b", {})
