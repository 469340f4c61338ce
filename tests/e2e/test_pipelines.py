"""DOT pipelines that doit runs: each node a step, each status in the file, loops that end."""

from __future__ import annotations

import json
import re

import pytest
from tests.support.project import Project

from doflow.flow.dot import parser

LOOP = """\
// The login, as drawn on the wall.
digraph auth {
    graph [prd_ref="PRD-AUTH-001" label="Log in by a link"];   // the requirements
    start [shape=Mdiamond];
    build [shape=box bead_id="A-1" worker_type="backend" acceptance="ok.txt says yes"];
    check [shape=hexagon command="grep yes ok.txt"];  /* nobody judges his own work */
    good  [shape=diamond];
    exit  [shape=Msquare];
    start -> build -> check -> good;
    good -> exit  [condition="pass"];
    good -> build [condition="fail"];
}
"""


@pytest.fixture
def piped(project: Project) -> Project:
    project.settings("pipelines: {auth: pipelines/auth.dot}\n")
    project.write("pipelines/auth.dot", LOOP)
    project.agent('put("ok.txt", "yes\\n" if step == "build-3" else f"no, {step}\\n"); say("built")')
    project.commit("A pipeline")
    return project


def statuses(project: Project) -> dict[str, str]:
    return {node.id: node.status for node in parser.read_pipeline(project.root / "pipelines/auth.dot").nodes}


def moved(project: Project) -> list[tuple[str, str]]:
    lines = project.read("pipelines/auth.dot.transitions.jsonl").splitlines()
    return [(line["node"], line["to"]) for line in map(json.loads, lines)]


def hints(text: str) -> list[str]:
    """The commands that force something, each once."""
    return sorted(set(re.findall(r"doit auth --force=\S+", text)))


@pytest.mark.smoke
def test_the_graph_with_a_retry_edge_starts_loops_on_fail_and_ends(piped: Project) -> None:
    done = piped.doit("auth")

    assert done.returncode == 0, done.stdout + done.stderr
    assert piped.calls() == ["build", "build-2", "build-3"]
    assert set(statuses(piped).values()) == {"validated"}
    tries = [pair for pair in moved(piped) if pair[0] in ("build", "good")]
    once = [("build", "active"), ("build", "impl_complete"), ("build", "validated"), ("good", "active")]
    back = [("good", "failed"), ("good", "pending")]
    assert [pair for pair in tries if pair != ("build", "pending")] == [
        *once, *back, *once, *back, *once, ("good", "validated"),
    ]  # fmt: skip
    text = piped.read("pipelines/auth.dot")
    assert "// The login, as drawn on the wall.\n" in text
    assert "/* nobody judges his own work */" in text
    assert 'good  [shape=diamond, status="validated"' in text
    assert piped.git("status", "--short") == ""
    assert piped.doit("auth").returncode == 0
    assert len(piped.calls()) == 3
    saved = json.loads(piped.read("pipelines/auth.dot.checkpoint.json"))
    assert {node["id"]: node["status"] for node in saved["nodes"]} == statuses(piped)


def test_the_next_try_is_told_why_the_last_one_failed(piped: Project) -> None:
    piped.write("pipelines/auth.dot", LOOP.replace("grep yes ok.txt", "cat ok.txt; grep -q yes ok.txt"))

    assert piped.doit("auth").returncode == 0

    first, second = piped.prompts()[:2]
    assert "PRD-AUTH-001" in first
    assert "ok.txt says yes" in first
    assert "no, build\n\nRESULT: fail" in second


def test_a_loop_that_never_gets_better_pauses_for_a_person_and_goes_on_after_a_hand(piped: Project) -> None:
    piped.agent('put("ok.txt", f"no, {step}\\n"); say("built")')
    piped.write("pipelines/auth.dot", LOOP.replace("[shape=diamond]", "[shape=diamond max_retries=1]"))

    done = piped.doit("auth")

    assert done.returncode == 2, done.stdout + done.stderr
    assert "good still fails after 1 retry; fix it by hand" in done.stdout
    assert hints(done.stdout) == ["doit auth --force=check-2"], "one command, and it is the one that goes on"
    assert hints(piped.doflow("status").stdout) == ["doit auth --force=check-2"]
    assert piped.calls() == ["build", "build-2"]
    assert statuses(piped) == {
        "start": "validated", "build": "validated", "check": "failed", "good": "failed", "exit": "pending",
    }  # fmt: skip
    piped.write("ok.txt", "yes, by hand\n")
    assert piped.doit("auth", "--force=check-2").returncode == 0
    assert set(statuses(piped).values()) == {"validated"}
    assert piped.calls() == ["build", "build-2"]


def test_a_diamond_with_a_command_of_its_own_is_what_is_asked_again(piped: Project) -> None:
    piped.agent('put("ok.txt", f"no, {step}\\n"); say("built")')
    own = '[shape=diamond max_retries=1 command="grep yes ok.txt"]'
    piped.write(
        "pipelines/auth.dot",
        LOOP.replace("[shape=diamond]", own).replace('command="grep yes ok.txt"]', 'command="true"]', 1),
    )

    done = piped.doit("auth")

    assert (done.returncode, hints(done.stdout)) == (2, ["doit auth --force=good-2"]), done.stdout
    piped.write("ok.txt", "yes, by hand\n")
    assert piped.doit("auth", "--force=good-2").returncode == 0
    assert piped.calls() == ["build", "build-2"], "the mended work is not done over"


def test_a_gate_without_a_command_waits_for_a_person(piped: Project) -> None:
    text = LOOP.replace('command="grep yes ok.txt"', 'question="Is it good"')
    piped.write("pipelines/auth.dot", text)

    done = piped.doit("auth")

    assert done.returncode == 2
    assert "Is it good?" in done.stdout
    assert (statuses(piped)["check"], statuses(piped)["build"]) == ("active", "validated")
    assert piped.doflow("approve", "check").returncode == 0
    assert piped.doit("auth").returncode == 0
    assert set(statuses(piped).values()) == {"validated"}
    assert piped.git("status", "--short") == ""


@pytest.mark.smoke
def test_an_agent_that_reviews_decides_by_its_last_line_and_no_line_is_never_a_pass(piped: Project) -> None:
    piped.write("pipelines/auth.dot", LOOP.replace('command="grep yes ok.txt"', 'prompt="Read ok.txt."'))
    piped.agent("""
        if step.startswith("build"): put("ok.txt", step); say("built")
        elif step == "check": say("It is bad.\\nRESULT: fail")
        else: say("It is good.\\n**RESULT: pass**" if role == "repair" else "I like it")
    """)

    done = piped.doit("auth")

    assert done.returncode == 0, done.stdout + done.stderr
    assert piped.calls() == ["build", "check", "build-2", "check-2", "check-2 repair"]
    assert "It is bad." in piped.prompts()[2]
    assert set(statuses(piped).values()) == {"validated"}


@pytest.mark.smoke
def test_an_agent_cannot_write_the_statuses_itself(piped: Project) -> None:
    piped.agent("""
        put("ok.txt", "yes")
        put("pipelines/auth.dot", (root / "pipelines/auth.dot").read_text().replace('"active"', '"validated"'))
        say("all validated")
    """)

    done = piped.doit("auth")

    assert done.returncode == 1
    assert "pipelines/auth.dot" in done.stdout
    assert statuses(piped)["build"] == "failed"


def test_a_failing_tool_fails_its_node_and_the_same_command_goes_on(piped: Project) -> None:
    text = LOOP.replace(
        "start -> build", 'prepare [shape=parallelogram command="test -e ready"];\n    start -> prepare -> build'
    )
    piped.write("pipelines/auth.dot", text)

    assert piped.doit("auth").returncode == 1
    assert (statuses(piped)["prepare"], piped.calls()) == ("failed", [])
    piped.write("ready", "")

    assert piped.doit("auth").returncode == 0
    assert [to for node, to in moved(piped) if node == "prepare"] == ["active", "failed", "active", "validated"]


def test_another_run_of_the_pipeline_begins_with_every_node_pending(piped: Project) -> None:
    assert piped.doit("auth").returncode == 0
    piped.forget_calls()

    assert piped.doit("auth", "--new", "--goal=Once more").returncode == 0

    assert piped.calls() == ["build", "build-2", "build-3"]
    assert moved(piped).count(("exit", "validated")) == 2


@pytest.mark.smoke("text0-pipelines/auth.dot:11:1: good -> build has a condition that cannot be evaluated")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            LOOP.replace('"fail"', '"maybe"'),
            "pipelines/auth.dot:11:1: good -> build has a condition that cannot be evaluated",
        ),
        (LOOP.replace('command="grep yes ok.txt"', 'command="'), "pipelines/auth.dot:"),
        (
            LOOP.replace("[shape=hexagon command", "[shape=parallelogram cmd"),
            "pipelines/auth.dot:6:1: check (tool) has no command",
        ),
    ],
)
def test_a_pipeline_with_errors_does_not_begin_and_says_where(piped: Project, text: str, message: str) -> None:
    piped.write("pipelines/auth.dot", text)

    done = piped.doit("auth")

    assert (done.returncode, piped.calls()) == (1, [])
    assert message in done.stdout + done.stderr
    assert not (piped.root / "specs").exists()


NESTED = """\
digraph auth {
    graph [prd_ref="PRD-1" max_retries=2];
    start [shape=Mdiamond]; fork [shape=component]; join [shape=tripleoctagon]; exit [shape=Msquare];
    left  [shape=box bead_id=L worker_type=w acceptance=l];
    right [shape=box bead_id=R worker_type=w acceptance=r];
    small [shape=hexagon command="test \\"$(cat left.txt)\\" != left"];
    fine  [shape=diamond];
    whole [shape=parallelogram command="test $(cat left.txt) = left-2-1"];
    done  [shape=diamond];
    start -> fork -> {left right};
    left -> small -> fine;
    fine -> join [condition=pass];
    fine -> left [condition=fail];
    right -> join -> whole -> done;
    done -> exit [condition=pass];
    done -> left [condition=fail];
}
"""


@pytest.mark.parametrize("jobs", [(), ("-n", "2")], ids=["alone", "-n 2"])
def test_ways_that_part_and_loops_inside_of_loops_end_too(piped: Project, jobs: tuple[str, ...]) -> None:
    piped.write("pipelines/auth.dot", NESTED)
    piped.agent('put(f"{step.partition(chr(45))[0]}.txt", step); say(step)')

    done = piped.doit(*jobs, "auth")

    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(piped.calls()) == ["left", "left-1-2", "left-2-1", "right"]
    assert set(statuses(piped).values()) == {"validated"}
    assert piped.git("status", "--short") == ""


def test_a_pipeline_can_be_tried_out_offline_and_polled_by_programs(piped: Project) -> None:
    piped.write("pipelines/auth.dot", LOOP.replace('command="grep yes ok.txt"', 'prompt="Is it good?"'))
    piped.write("doflow.yaml", "agents: {default: {use: rehearsal}}\npipelines: {auth: pipelines/auth.dot}\n")

    done = piped.doflow("run", "auth", "--json")

    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert (events[0], events[-1]) == ("run_started", "pipeline_complete")
    assert piped.state()["pipeline"] == ["build", "check", "good"]
    assert set(statuses(piped).values()) == {"validated"}


def test_a_pipeline_whose_file_cannot_be_written_goes_on_and_says_so(piped: Project) -> None:
    piped.agent("""
        put("ok.txt", "yes")
        say("built")
    """)
    (piped.root / "pipelines/auth.dot.checkpoint.json").mkdir()

    done = piped.doit("auth")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "the statuses in auth.dot were not written" in done.stdout + done.stderr


def test_a_no_at_a_gate_names_the_worker_whose_work_is_sent_back(piped: Project) -> None:
    piped.write("pipelines/auth.dot", LOOP.replace('command="grep yes ok.txt"', 'question="Is it good?"'))
    piped.agent('put("ok.txt", f"{nth}"); say(f"built {nth}")')

    asked = piped.doit("auth")
    assert "doflow approve check   or   doflow reject build --note" in asked.stdout
    assert piped.doflow("reject", "build", "--note", "Say yes in it.").returncode == 0
    assert piped.doit("auth").returncode == 2

    assert piped.calls() == ["build", "build"]
    assert "Say yes in it." in piped.prompts()[1]
    builds = [to for node, to in moved(piped) if node == "build"]
    assert builds == ["active", "impl_complete", "validated", "pending", "active", "impl_complete", "validated"]


def test_a_fresh_clone_knows_how_far_the_pipeline_is(piped: Project) -> None:
    assert piped.doit("auth").returncode == 0
    other = piped.root.parent / "clone"
    piped.git("clone", "-q", str(piped.root), str(other))
    assert {node.status for node in parser.read_pipeline(other / "pipelines/auth.dot").nodes} == {"validated"}

    done = piped.program("doit", "auth", cwd=other)

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(piped.calls()) == 3, "nothing is paid again"
    assert piped.git("status", "--short", cwd=other) == ""


def half_done(project: Project, status: str) -> None:
    text = LOOP.replace("build [shape=box", f"build [status={status} shape=box").replace(
        "start [", "start [status=validated "
    )
    project.write("pipelines/auth.dot", text)
    project.write("ok.txt", "yes\n")
    project.commit("Half of it is done")


@pytest.mark.smoke
@pytest.mark.parametrize("status", ["validated", "impl_complete"])
def test_a_half_done_file_continues_where_it_stands(piped: Project, status: str) -> None:
    half_done(piped, status)

    done = piped.doit("auth")

    assert done.returncode == 0, done.stdout + done.stderr
    assert piped.calls() == [], "nothing is paid again"
    assert set(statuses(piped).values()) == {"validated"}
    assert ("build", "pending") not in moved(piped)
    assert piped.git("status", "--short") == ""
    assert piped.doit("auth").returncode == 0
    assert piped.calls() == []


def test_finished_work_that_fails_its_gate_is_done_again_with_the_reason(piped: Project) -> None:
    half_done(piped, "impl_complete")
    piped.write("ok.txt", "no\n")
    piped.agent('put("ok.txt", "yes\\n"); say("built")')

    assert piped.doit("auth").returncode == 0

    assert piped.calls() == ["build-2"]


def test_finished_work_that_nothing_validates_is_left_to_a_person(piped: Project) -> None:
    half_done(piped, "impl_complete")
    text = piped.read("pipelines/auth.dot").replace("-> check -> good", "-> good; check -> good; start -> check")
    piped.write("pipelines/auth.dot", text)

    done = piped.doit("auth")

    assert (done.returncode, piped.calls()) == (1, [])
    assert "build is impl_complete, and nothing in the pipeline validates it" in done.stdout + done.stderr
