"""Where a node leads: conditions, labels, weights; the script of a step decides."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from doflow.flow.dot import compiler, conditions, dialect, parser, routing
from doflow.flow.model import Profile
from doflow.util.errors import FlowError

EDGES = """
    n -> a [condition="outcome=success && context.size=big"]
    n -> b [condition="outcome=partial_success || preferred_label=Later"]
    n -> c [condition="outcome!=success && context.why contains net", weight=3]
    n -> d [condition="outcome=needs_more"]; n -> e [condition="outcome=needs_more"]
    n -> e [condition="tool.output contains 'IDs' && !context.off"]
"""


def text(edges: str, more: str = "") -> str:
    names = "; ".join(f"{name} [prompt=P]" for name in "abcde")
    ends = "; ".join(f"{name} -> exit" for name in "abcde")
    return f"digraph g {{ start [shape=Mdiamond]; exit [shape=Msquare]; n [prompt=N {more}]; {names}\nstart -> n {edges}\n{ends} }}"


@pytest.mark.parametrize(
    ("report", "targets"),
    [
        ("CONTEXT: size=big\nRESULT: pass", "a"),
        ("CONTEXT: size=big\nCONTEXT: size=small\nRESULT: pass", ""),
        ("RESULT: partial", "b"),
        ("LABEL: later\nRESULT: pass", "b"),
        ("CONTEXT: why=no network\nRESULT: partial", "c"),
        ("RESULT: needs_more", "d, e"),
        ("RESULT: fail", ""),
        ("two IDs\nRESULT: later_or_now", "e"),
        ("CONTEXT: off=yes\ntwo IDs\nRESULT: later_or_now", ""),
    ],
)
def test_the_script_of_a_step_decides_by_the_last_result(tmp_path: Path, report: str, targets: str) -> None:
    path = tmp_path / "g.dot"
    path.write_text(text(EDGES))
    (tmp_path / "results").mkdir()
    (tmp_path / "results/n.md").write_text(f"report\n{report}\n")
    flow = compiler.compile_pipeline(str(path), "g", "g.dot")
    step = flow.step("n-next")
    assert step is not None
    argv = [word.replace("{run_dir}", str(tmp_path)) for word in step.run]

    done = subprocess.run(argv, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == f"NEXT: {targets or '?'}"


@pytest.mark.parametrize("words", ["maybe", "outcome>3", "outcome=a &&", "", "x<y"])
def test_a_condition_that_cannot_be_evaluated_is_refused(words: str) -> None:
    with pytest.raises(conditions.InvalidCondition):
        conditions.parse_condition(words)


@pytest.mark.parametrize(
    ("label", "key", "bare"),
    [("[A] Approve it", "a", "approve it"), ("F) Fix", "f", "fix"), ("S - Ship", "s", "ship"), ("Wait", "", "wait")],
)
def test_a_label_has_a_key_and_a_text(label: str, key: str, bare: str) -> None:
    assert (conditions.accelerator(label), conditions.canonical_label(label)) == (key, bare)


def test_a_loop_is_bounded_by_the_file_or_by_a_default() -> None:
    def limit(more: str, graph: str = "") -> int:
        found = parser.parse_pipeline(text('; n -> n [condition="outcome=fail"]; n -> a ' + graph, more))
        return routing.Graph(found).limit("n", ("n",))

    assert (limit(""), limit("max_visits=5"), limit("", "; default_max_retry=7")) == (3, 4, 7)


def test_branches_that_decide_for_themselves_meet_again(tmp_path: Path) -> None:
    path = tmp_path / "g.dot"
    path.write_text(
        "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; f [shape=component]; a [prompt=A]; b [prompt=B]; j [prompt=J]\n"
        'start -> f -> {a b}; a -> j [condition="outcome=success"]; a -> a [condition="outcome=fail"]\n'
        'b -> j [condition="outcome=success"]; b -> b [condition="outcome=fail"]; j -> exit }'
    )

    flow = compiler.compile_pipeline(str(path), "g", "g.dot")
    routes = {step.id: {route.when: route.then for route in step.routes} for step in flow.steps if step.routes}

    assert flow.pipeline == ("a", "a-next")
    assert routes["a-next"]["NEXT: j"] == ("b", "b-next")
    assert routes["b-next"]["NEXT: j"] == ("j",)
    assert routes["a-next"]["NEXT: a"] == ("a-2", "a-2-next")


def test_models_of_a_stylesheet_go_to_profiles_or_are_named() -> None:
    sheet = "* { llm_model: small; llm_provider: acme; } .hard { llm_model: large; } #b { llm_provider: openai; llm_model: o; }"
    found = parser.parse_pipeline(text(f'-> a -> b -> c; model_stylesheet="{sheet}"; a [class=hard]'))
    profiles = (Profile("default", "claude"), Profile("best", "claude", "large"), Profile("other", "codex"))
    nodes = {node.id: node for node in found.nodes}

    assert dialect.agent_and_model(nodes["a"], profiles) == ("best", "", "")
    assert dialect.agent_and_model(nodes["b"], profiles) == ("other", "o", "")
    assert dialect.agent_and_model(nodes["c"], profiles) == ("", "", "small")


def test_bare_values_of_other_tools_are_read_whole() -> None:
    found = parser.parse_pipeline(
        "digraph g {\n  # a comment\n  a [timeout=900s llm_model=claude-opus-4.5, x.y=1] }"
    ).node("a")

    assert found is not None
    assert [found.get(name) for name in ("timeout", "llm_model", "x.y")] == ["900s", "claude-opus-4.5", "1"]


def test_a_loop_without_a_way_out_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "g.dot"
    path.write_text(text("; n -> n; n -> a"))

    with pytest.raises(FlowError, match="leads back without a condition"):
        compiler.compile_pipeline(str(path), "g", "g.dot")


def test_a_prompt_in_a_file_and_short_names_in_a_stylesheet_are_understood() -> None:
    sheet = "* { model: big; } .x { provider: openai }"
    found = parser.parse_pipeline(
        f'digraph g {{ model_stylesheet="{sheet}"; a [prompt="@prompts/a.md" class=x] }}', "flows/g.dot"
    )

    assert dict(found.nodes[0].attributes) == {
        "prompt": "Read the file `flows/prompts/a.md` and do what it says.",
        "class": "x",
        "llm_model": "big",
        "llm_provider": "openai",
    }


def test_an_exit_that_is_reached_early_does_not_make_its_other_edges_lead_back() -> None:
    edges = """-> a [condition="outcome=success"]; n -> exit
    a -> b [condition="outcome=success"]; a -> c; c -> a; b -> d; d -> e [condition=pass]; d -> c2; c2 -> d; c2 [prompt=C]"""
    pipeline = parser.parse_pipeline(
        f"digraph g {{ start [shape=Mdiamond]; exit [shape=Msquare]; n; a; b; c; d; e; start -> n {edges}\ne -> exit }}"
    )

    assert [(edge.start, edge.to) for edge in routing.Graph(pipeline).back_edges] == [("c", "a"), ("c2", "d")]


@pytest.mark.parametrize(("more", "handler"), [("prompt=P", "codergen"), ("prompt=P script=ls", "tool"), ("", "tool")])
def test_a_tool_with_a_prompt_and_no_command_is_work_for_an_agent(more: str, handler: str) -> None:
    assert parser.parse_pipeline(f"digraph g {{ a [shape=parallelogram {more}] }}").nodes[0].handler == handler
