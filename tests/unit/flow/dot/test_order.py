"""What waits for what: ready nodes, retry edges, branches, and loops as a row of steps."""

from __future__ import annotations

import pytest

from doflow.flow.dot import order, parser, unroll
from doflow.flow.dot.model import Pipeline
from doflow.util.errors import FlowError

KINDS = {"s": "Mdiamond", "x": "Msquare", "d": "diamond", "g": "hexagon", "t": "parallelogram", "p": "component"}


def pipeline(ways: str, **statuses: str) -> Pipeline:
    """`s > a > d1 pass> x; d1 fail> a`: the first letter of a name says what the node is, any other is a worker."""
    lines, names = [], dict[str, None]()
    for way in ways.split(";"):
        words = way.split()
        for start, arrow, to in zip(words[::2], words[1::2], words[2::2], strict=False):
            condition = f' [condition="{arrow[:-1]}"]' if arrow != ">" else ""
            lines.append(f"{start} -> {to}{condition};")
            names |= dict.fromkeys((start, to))
    for name in names:
        back = ' retry_count="1"' if name in statuses.get("back", "").split() else ""
        lines.append(f'{name} [shape={KINDS.get(name[0], "box")} status="{statuses.get(name, "pending")}"{back}];')
    return parser.parse_pipeline("digraph p {\n" + "\n".join(lines) + "\n}\n")


def ready(ways: str, **statuses: str) -> list[str]:
    return [node.id for node in order.ready_nodes(pipeline(ways, **statuses))]


LOOP = "s > a > g > d pass> x; d fail> a"
DONE = "validated"


def test_r2_90_a_node_is_ready_when_it_is_pending_and_all_before_it_is_validated() -> None:
    ways = "s > a > c > x; s > b > c"

    assert ready(ways) == ["s"]
    assert ready(ways, s=DONE) == ["a", "b"]
    assert ready(ways, s=DONE, a=DONE) == ["b"]
    assert ready(ways, s=DONE, a="active", b="failed") == []
    assert ready(ways, s=DONE, a=DONE, b=DONE) == ["c"]


def test_a_retry_edge_is_nothing_to_wait_for() -> None:
    assert ready(LOOP, s=DONE) == ["a"]
    assert order.dependencies(pipeline(LOOP), "a") == ("s",)
    assert order.retry_body(pipeline(LOOP), "d") == ("a", "g", "d")


def test_a_diamond_decides_also_on_what_failed() -> None:
    assert ready(LOOP, s=DONE, a=DONE, g="failed") == ["d"]
    assert ready(LOOP, s=DONE, a=DONE, g="active") == []


def test_the_exit_waits_for_every_gate() -> None:
    ways = "s > a > x; s > g > b"

    assert ready(ways, s=DONE, a=DONE) == ["g"]
    assert ready(ways, s=DONE, a=DONE, g=DONE) == ["x", "b"]


def test_the_branch_that_was_not_taken_is_waited_for_no_longer() -> None:
    ways = "s > d pass> a > j > x; d fail> b > j"

    assert ready(ways, s=DONE, d=DONE) == ["a"]
    assert ready(ways, s=DONE, d="failed") == ["b"]
    assert ready(ways, s=DONE, d=DONE, a=DONE) == ["j"]
    assert order.skipped_nodes(pipeline(ways, s=DONE, d=DONE)) == ("b",)


def test_a_node_that_repairs_runs_only_after_the_diamond_has_sent_the_work_back() -> None:
    ways = "s > a > d pass> x; d fail> mend > a"

    assert ready(ways, s=DONE) == ["a"]
    assert ready(ways, s=DONE, back="d") == ["mend"]
    assert ready(ways, s=DONE, mend=DONE, back="d") == ["a"]
    assert order.retry_body(pipeline(ways), "d") == ("mend", "a", "d")


def steps(ways: str, retries: int = 3) -> unroll.Unrolled:
    found = pipeline(ways)
    text = found.text.replace("digraph p {", f"digraph p {{ max_retries={retries};")
    return unroll.unroll(parser.parse_pipeline(text))


def test_a_loop_becomes_a_row_of_tries() -> None:
    found = steps(LOOP, 2)

    assert found.first == ("a", "g", "d")
    assert {name: turn.after for name, turn in found.turns.items()} == {
        "a": (), "g": ("a",), "d": ("g",), "a-2": ("d",), "g-2": ("a-2",), "d-2": ("g-2",),
        "a-3": ("d-2",), "g-3": ("a-3",), "d-3": ("g-3",),
    }  # fmt: skip
    assert found.turns["d"].otherwise == ("a-2", "g-2", "d-2")
    assert (found.turns["d-3"].otherwise, found.turns["d-3"].last) == ((), True)


def test_loops_inside_of_loops_count_both() -> None:
    found = steps("s > a > d1 pass> b > d2 pass> c > x; d1 fail> a; d2 fail> a", 1)

    assert found.first == ("a", "d1", "b", "d2", "c")
    assert found.turns["d1"].otherwise == ("a-1-2", "d1-1-2", "b", "d2", "c")
    assert found.turns["d2"].otherwise == ("a-2-1", "d1-2-1", "b-2", "d2-2", "c")
    assert found.turns["b-2"].after == ("d1-2-1", "d1-2-2")
    assert found.turns["c"].after == ("d2", "d2-2")


def test_loops_that_overlap_are_kept_apart() -> None:
    found = steps("s > a > b > d1 pass> c > d2 pass> x; d1 fail> a; d2 fail> b", 1)

    assert found.turns["d2"].otherwise == ("b-2-1", "d1-2-1", "c-2", "d2-2")
    assert found.turns["d1-2-1"].otherwise == ("a-2-2", "b-2-2", "d1-2-2", "c-2", "d2-2")
    assert len({turn.id for turn in found.turns.values()}) == len(found.turns)


def test_a_branch_that_does_not_lead_back_is_left_out_when_it_is_not_taken() -> None:
    found = steps("s > d pass> a > j > x; d fail> b > j")

    assert found.turns["d"].then == ("a", "j")
    assert found.turns["d"].otherwise == ("b", "j")
    assert found.turns["j"].after == ("a", "b")


def test_no_step_waits_for_one_that_comes_later_whatever_the_diamonds_say() -> None:
    """Every way through two loops and a branch: each step's waits lie before it."""
    found = steps("s > a > b > d1 pass> c > d2 pass> d3 pass> e > x; d1 fail> a; d2 fail> b; d3 fail> f > x", 1)
    ways, ends = [(found.first, 0)], []
    while ways:
        order, place = ways.pop()
        names = [name for name in order[place:] if found.turns[name].then or found.turns[name].otherwise]
        if not names:
            ends.append(order)
            continue
        here = order.index(names[0]) + 1
        turn = found.turns[names[0]]
        ways += [((*order[:here], *then), here) for then in (turn.then, turn.otherwise) if then]
    assert len(ends) == len(set(ends)) > 8
    for order in ends:
        assert len(order) == len(set(order))
        for name in order:
            assert all(order.index(one) < order.index(name) for one in found.turns[name].after if one in order)


def test_loops_that_would_make_thousands_of_steps_are_refused_with_words() -> None:
    ways = "s > " + " > ".join(f"a{n} > d{n} pass> b{n}" for n in range(5)) + " > x"
    ways += "".join(f"; d{n} fail> a0" for n in range(5))

    with pytest.raises(FlowError, match="more than 400 steps"):
        steps(ways, 9)


def test_names_that_doit_does_not_take_become_names_that_it_does() -> None:
    text = 'digraph p { s [shape=Mdiamond]; "Build It!" [shape=box]; x [shape=Msquare]; s -> "Build It!" -> x }'

    assert unroll.unroll(parser.parse_pipeline(text)).first == ("build-it",)
