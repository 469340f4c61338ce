"""Pipelines in the dialect of Attractor, run by doit: any node decides, loops end, a person chooses, goals are met."""

from __future__ import annotations

import pytest
from tests.support.project import Project

from doflow.flow.dot import parser

SHOP = """\
digraph Shop {
    graph [goal="Sell tea", default_max_retry=2, retry_target="brew"]
    node [shape=box, timeout=900s]
    Start [shape=Mdiamond]
    Done  [shape=Msquare]
    subgraph cluster_work {
        # an indented comment
        node [class="hard"]
        brew  [prompt="Brew for: $goal", llm.note="hot"]
        taste [prompt="Taste it", goal_gate=true]
    }
    count [shape=parallelogram, tool_command="test -s cups.txt", max_retries=0]
    route [shape=diamond]
    Start -> brew -> count -> route
    route -> taste [condition="outcome=success"]
    route -> brew  [condition="outcome=fail && context.cause!=none"]
    route -> Done
    taste -> Done [condition="outcome=success", weight=2]
    taste -> brew [condition="outcome=needs_sugar"]
    taste -> brew
}
"""


@pytest.fixture
def shop(project: Project) -> Project:
    project.settings("pipelines: {shop: shop.dot}\n")
    project.write("shop.dot", SHOP)
    project.commit("A pipeline")
    return project


def statuses(project: Project, name: str = "shop") -> dict[str, str]:
    return {node.id: node.status for node in parser.read_pipeline(project.root / f"{name}.dot").nodes}


@pytest.mark.smoke
def test_any_node_decides_where_the_pipeline_goes_on(shop: Project) -> None:
    shop.agent("""
        if step.startswith("brew"):
            if step != "brew": put("cups.txt", step)
            say("brewed")
        else: say("RESULT: pass" if step == "taste-3" else "Bitter.\\nRESULT: needs_sugar")
    """)

    done = shop.doit("shop")

    assert done.returncode == 0, done.stdout + done.stderr
    assert shop.calls() == ["brew", "brew-2", "taste-2", "brew-3", "taste-3"]
    assert set(statuses(shop).values()) == {"validated"}
    first, second, *_, last = shop.prompts()
    assert "Brew for: Sell tea" in first
    assert "RESULT: fail" in second, "the result that led back"
    assert "RESULT: needs_sugar" in last
    assert shop.git("status", "--short") == ""
    assert shop.doit("shop").returncode == 0
    assert len(shop.calls()) == 5


def test_a_loop_ends_at_its_bound_and_pauses_for_a_person(shop: Project) -> None:
    shop.agent('say("brewed")')

    done = shop.doit("shop")

    assert done.returncode == 2, done.stdout + done.stderr
    assert shop.calls() == ["brew", "brew-2", "brew-3"]
    assert "route may lead back only 2 times; fix it by hand" in done.stdout
    shop.write("cups.txt", "by hand")
    shop.agent('say("RESULT: pass")')
    assert shop.doit("shop", "--force=count-3").returncode == 0
    assert shop.calls()[3:] == ["taste-3"]


CHOICE = """\
digraph Choice {
    start [shape=Mdiamond]; exit [shape=Msquare]
    draft  [shape=box, prompt="Draft it"]
    review [shape=hexagon, label="Review the draft", type="wait.human"]
    fix    [shape=box, prompt="Fix it"]
    start -> draft -> review
    review -> exit [label="[A] Approve"]
    review -> fix  [label="[F] Fix it"]
    fix -> review
}
"""


def test_a_person_chooses_the_way_by_its_label(shop: Project) -> None:
    shop.write("shop.dot", CHOICE)
    shop.agent('say("done")')

    done = shop.doit("shop")

    assert done.returncode == 2, done.stdout + done.stderr
    assert "Review the draft? [A] Approve or [F] Fix it" in done.stdout
    assert shop.doflow("answer", "f").returncode == 0
    assert shop.doit("shop").returncode == 2
    assert shop.calls() == ["draft", "fix"]
    assert shop.doflow("answer", "Approve").returncode == 0
    assert shop.doit("shop").returncode == 0
    assert set(statuses(shop).values()) == {"validated"}


def test_a_goal_gate_that_failed_leads_back_from_the_exit(shop: Project) -> None:
    shop.write(
        "shop.dot",
        "digraph G { start [shape=Mdiamond]; exit [shape=Msquare]; retry_target=build\n"
        "build [prompt=Build]; check [prompt=Check goal_gate=true]\nstart -> build -> check -> exit }\n",
    )
    shop.agent('say("RESULT: fail" if step == "check" else "RESULT: pass")')

    done = shop.doit("shop")

    assert done.returncode == 0, done.stdout + done.stderr
    assert shop.calls() == ["build", "check", "build-2", "check-2"]


def test_a_result_that_no_edge_fits_pauses_and_says_which_there_are(shop: Project) -> None:
    shop.write(
        "shop.dot",
        "digraph G { start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt=A]; b [prompt=B]\nstart -> a\n"
        'a -> b [condition="outcome=left"]; a -> exit [condition="outcome=right"]; b -> exit }\n',
    )
    shop.agent('say("RESULT: pass")')

    done = shop.doit("shop")

    assert done.returncode == 2
    assert "no edge of a fits its result (outcome=left; outcome=right)" in done.stdout


HALF = """\
digraph Half {
    start [shape=Mdiamond]; exit [shape=Msquare]
    first [prompt="First"]
    agreed [shape=hexagon, question="Is it agreed?"]
    second [prompt="Second"]
    third [prompt="Third", check="test -s third.txt"]
    fourth [prompt="Fourth"]
    start -> first -> agreed -> second -> third -> fourth
    fourth -> exit [condition="outcome=success"]
    fourth -> third [condition="outcome=fail"]
}
"""


def test_a_run_takes_over_what_others_have_done_meanwhile(shop: Project) -> None:
    shop.write("shop.dot", HALF)
    shop.agent('say("RESULT: pass")')
    assert shop.doit("shop").returncode == 2

    for node, *moves in (("second", "active", "validated"), ("third", "active", "impl_complete")):
        for status in moves:
            assert shop.doflow("dot", "transition", "shop.dot", node, status).returncode == 0
    shop.write("third.txt", "by hand")
    shop.commit("By hand")
    assert shop.doflow("approve").returncode == 0
    done = shop.doit("shop")

    assert done.returncode == 0, done.stdout + done.stderr
    assert shop.calls() == ["first", "fourth"]
    assert set(statuses(shop).values()) == {"validated"}


def test_what_a_run_has_to_do_again_is_not_taken_over_from_its_own_file(shop: Project) -> None:
    shop.write("shop.dot", HALF)
    shop.agent('put("third.txt", "done"); say("RESULT: pass")')
    assert shop.doit("shop").returncode == 2
    assert shop.doflow("approve").returncode == 0
    assert shop.doit("shop").returncode == 0

    assert shop.doit("shop", "--force=second").returncode == 0
    assert shop.doit("shop", "--new").returncode == 2

    assert shop.calls().count("second") == 2
    assert shop.calls().count("first") == 2


LABELS = """\
digraph Labels {
    start [shape=Mdiamond]; exit [shape=Msquare]
    draft  [prompt="Draft it"]
    review [prompt="Review it"]
    start -> draft -> review
    review -> exit  [label="Ship"]
    review -> draft [label="Rework"]
}
"""


def test_an_agent_chooses_the_way_by_its_label_or_its_result(shop: Project) -> None:
    shop.write("shop.dot", LABELS)
    shop.agent("""
        words = {"review": "LABEL: Rework\\nRESULT: pass", "review-2": "RESULT: fail", "review-3": "RESULT: pass"}
        say(words.get(step, "done"))
    """)

    done = shop.doit("shop")

    assert done.returncode == 0, done.stdout + done.stderr
    assert shop.calls() == ["draft", "review", "draft-2", "review-2", "draft-3", "review-3"]
    assert "LABEL: …`, one of: ship, rework" in shop.prompts()[1]


def test_a_loop_over_a_plain_edge_is_bounded_by_the_visits_of_its_tool(shop: Project) -> None:
    shop.write(
        "shop.dot",
        "digraph G { start [shape=Mdiamond]; exit [shape=Msquare]; default_max_retry=2\n"
        'pick [shape=parallelogram tool_command="true"]; work [prompt=W]; mark [shape=parallelogram script="true"]\n'
        "start -> pick; work -> mark -> pick\n"
        'pick -> work [condition="outcome=success"]; pick -> exit [condition="outcome=fail"] }\n',
    )
    shop.agent('say("done")')

    done = shop.doit("shop")

    assert done.returncode == 2, done.stdout + done.stderr
    assert shop.calls() == ["work", "work-2", "work-3"]
    assert "mark may lead back only 2 times" in done.stdout
