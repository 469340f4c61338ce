"""What cannot be worked on in tmux is said before anything is moved or started: by `doflow validate`, and by the guardian."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.supervision import Site

AGENTS = "  room: {use: command, argv: [sh], sandbox: bwrap}\n  tape: {use: replay}\nsupervision: {validate: [sh]}\n"
#: what a node says, the words that refuse it, what to do instead, and whether it is wrong under `doit` too
WRONG = [
    ({"agent": "room"}, "`sandbox: bwrap` is not supported in a tmux pane", "an agent without `sandbox`", False),
    ({"agent": "tape"}, "`use: replay` cannot run in a tmux pane", "(a pipeline: `doit NAME`)", False),
    ({"agent": "rehearsal"}, "`use: rehearsal` cannot run in a tmux pane", "use another agent", False),
    ({"agent": "nobody"}, "unknown agent 'nobody' (doflow.yaml has:", "doflow config", True),
    ({"judge": "nobody"}, "the judge of impl: unknown agent 'nobody'", "doflow config", True),
    ({"judge": "room"}, "the judge of impl is the agent room, which has a sandbox", "without `sandbox`", True),
    ({"reviewer": "nobody"}, "the reviewer of impl: unknown agent 'nobody'", "doflow config", True),
    ({"output_style": "baroque"}, "unknown output style 'baroque'", ".claude/output-styles/baroque.md", True),
]  # fmt: skip
NAMES = [next(iter(said.items())) for said, *_ in WRONG]


def made(site: Any, **said: str) -> Site:
    here: Site = site("true", AGENTS)
    here.pipeline("p", here.node("impl", **said), here.node("gate", "wait.human"))
    return here


@pytest.mark.smoke("agent-room", "judge-nobody")
@pytest.mark.parametrize(("said", "words", "hint", "anyway"), WRONG, ids=["-".join(pair) for pair in NAMES])
def test_what_no_pane_can_do_is_refused_before_anything_is_moved_or_started(
    said: dict[str, str], words: str, hint: str, anyway: bool, site: Any
) -> None:
    here = made(site, **said)
    before = here.read("p.dot")

    for verb in ("run", "launch"):
        done = here.doflow("guardian", verb, "p.dot", "--no-wait")
        assert (done.returncode, done.stdout) == (1, ""), done.stdout
        assert f"{here.root}/p.dot:3:1: " in done.stderr, "the line of the node"
        assert words in done.stderr and hint in done.stderr, done.stderr
    assert (here.read("p.dot"), here.diary("p"), here.panes(), here.servers()) == (before, [], [], [])


@pytest.mark.smoke("agent-room")
@pytest.mark.parametrize(("said", "words", "hint", "anyway"), WRONG, ids=["-".join(pair) for pair in NAMES])
def test_validate_says_it_and_counts_it_only_if_doit_would_stumble_too(
    said: dict[str, str], words: str, hint: str, anyway: bool, site: Any
) -> None:
    here = made(site, **said)

    strict = here.doflow("validate", "p.dot", "--strict", "--json")

    found = json.loads(strict.stdout)
    ((one,), none) = (found["errors"], found["notes"]) if anyway else (found["notes"], found["errors"])
    assert (strict.returncode, none) == (1 if anyway else 0, []), strict.stdout
    assert words in one["message"] and hint in one["hint"] and one["line"] == 3
    assert one["message"].startswith("not under a guardian: ") == (not anyway)


def test_nodes_that_would_share_a_session_are_told_before_one_of_them_begins(site: Any) -> None:
    here: Site = site("true", AGENTS)
    here.pipeline("p", here.node("impl_a"), here.node("impl__a"), here.node("gate", "wait.human"))

    done = here.doflow("guardian", "run", "p.dot", "--no-wait")

    assert done.returncode == 1
    assert "impl__a and impl_a would share the session orch-impl-a" in done.stderr
    assert here.diary("p") == []


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            "via: tmux, machine: context-first, agent: claude",
            "step build has a `machine`, which is not enforced in a pane",
        ),
        ("via: tmux, agent: room", "agents.room: `sandbox: bwrap` is not supported in a tmux pane"),
        ("via: tmux, agent: tape", "agents.tape: `use: replay` cannot run in a tmux pane"),
        ("judge: default", "step build has a `judge`, which needs `via: tmux`"),
    ],
)
def test_validate_finds_a_step_in_a_pane_that_no_run_would_begin(keys: str, words: str, site: Any) -> None:
    here: Site = site("true", AGENTS)
    here.flow("w", f"flow: w\nsteps:\n  build: {{prompt: Build., makes: a.md, {keys}}}\n")

    done = here.doflow("validate", "w")
    started = here.doflow("run", "w", "--goal", "x")

    assert done.returncode == 1
    assert "flows/w.yaml:3:" in done.stdout and words in done.stdout, done.stdout
    assert started.returncode == 1 and words in started.stdout + started.stderr, (
        "the run refuses it with the same words"
    )
    assert here.runs() == []


def test_an_agent_that_is_routed_to_is_looked_at_too(site: Any) -> None:
    here: Site = site("true", AGENTS + "route_agents: {build: room}\n")
    here.flow("w", "flow: w\nsteps:\n  build: {prompt: Build., makes: a.md, via: tmux}\n")

    done = here.doflow("validate", "w")

    assert (done.returncode, "agents.room: `sandbox: bwrap`" in done.stdout) == (1, True), done.stdout


def test_a_solution_design_or_a_folder_that_is_not_there_is_warned_of_and_an_error_with_strict(site: Any) -> None:
    here: Site = site("true", AGENTS)
    here.pipeline(
        "p", here.node("impl", solution_design="docs/design.md", target_dir="app"), here.node("gate", "wait.human")
    )

    lax, strict = here.doflow("validate", "p.dot"), here.doflow("validate", "p.dot", "--strict")

    words = "p.dot:3: {}: impl refers to the solution design docs/design.md, which does not exist"
    assert (lax.returncode, words.format("warning") in lax.stdout) == (0, True), lax.stdout
    assert (strict.returncode, words.format("error") in strict.stdout) == (1, True), strict.stdout
    assert "--set solution_design=" in strict.stdout
    assert "impl refers to the folder app, which does not exist" in strict.stdout
    here.write("docs/design.md", "# Design\n")
    here.write("app/x.py", "")
    assert here.doflow("validate", "p.dot", "--strict").returncode == 0
