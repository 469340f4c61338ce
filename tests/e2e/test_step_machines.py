"""Is a step's `machine` enforced in a run, and does an escape fail the step, whatever it made?"""

from __future__ import annotations

import json

import pytest
from tests.support.hooks import ORDER
from tests.support.project import Project
from tests.support.subagents import SubAgents

FLOW = """
    flow: ordered
    params: {goal: {about: What, required: true}}
    steps:
      build: {prompt: "Build {goal}", makes: report.md, machine: %s}
"""


@pytest.fixture
def agents(project: Project) -> SubAgents:
    project.flow("ordered", FLOW % "context-first")
    return SubAgents(project)


@pytest.mark.smoke
def test_the_legal_order_runs_through_and_the_step_is_done(project: Project, agents: SubAgents) -> None:
    agents.calls(*ORDER, "bash-expert", "Explore")

    done = project.doit("ordered", "--goal=a door")

    assert done.returncode == 0, done.stdout + done.stderr
    (argv,) = agents.argv()
    assert argv[argv.index("--tools") + 1].split(",")[-2:] == ["Agent", "Task"]
    assert set(json.loads(argv[argv.index("--settings") + 1])["hooks"]) >= {
        "PreToolUse",
        "SubagentStop",
        "SessionStart",
    }
    status = json.loads(project.doflow("machine", "status", "--json").stdout)
    assert (status["state"], status["context"]["refined"]) == ("EXECUTING", "context-refiner is done")
    assert project.tree().keys().isdisjoint({".claude/settings.json", ".claude/settings.local.json"})


def test_an_agent_that_is_refused_and_respects_it_does_not_fail_the_step(project: Project, agents: SubAgents) -> None:
    agents.calls("bash-expert", "Explore", *ORDER, "bash-expert")

    done = project.doit("ordered", "--goal=a door")

    assert done.returncode == 0, done.stdout + done.stderr
    metrics = json.loads(project.doflow("machine", "metrics", "--json").stdout)
    assert (metrics["allowed"], metrics["blocked"], metrics["escaped"]) == (4, 2, 0)


@pytest.mark.smoke("calls0-Explore ran in IDLE")
@pytest.mark.parametrize(
    ("calls", "words"),
    [
        (("Explore!",), "Explore ran in IDLE"),
        (("context-gatherer", "bash-expert?"), "bash-expert ran in GATHERING"),
        (("context-gatherer?",), "context-gatherer ran without permission from its hook"),
    ],
)
def test_a_sub_agent_that_ran_out_of_order_fails_the_step(
    calls: tuple[str, ...], words: str, project: Project, agents: SubAgents
) -> None:
    agents.calls(*calls)

    done = project.doit("ordered", "--goal=a door")

    assert done.returncode == 1
    assert "build escaped from the machine context-first" in done.stdout and words in done.stdout
    assert "next: " in done.stdout and "doflow machine history" in done.stdout
    assert not (project.run_dir() / "report.md").exists(), "what it made does not count"


@pytest.mark.smoke
def test_hooks_that_were_never_asked_fail_the_step_also_when_no_sub_agent_ran(
    project: Project, agents: SubAgents
) -> None:
    agents.bare()

    done = project.doit("ordered", "--goal=a door")

    assert done.returncode == 1
    assert "its hooks were never called" in done.stdout


def test_settings_of_the_profile_that_would_switch_the_hooks_off_are_refused(
    project: Project, agents: SubAgents
) -> None:
    text = project.read("doflow.yaml").replace("use: claude,", 'use: claude, args: ["--settings", "{}"],')
    project.write("doflow.yaml", text)
    project.commit("Settings of my own")

    done = project.doit("ordered", "--goal=a door")

    assert (done.returncode, agents.argv()) == (1, [])
    assert "doflow passes with --settings" in done.stdout + done.stderr


def test_a_state_that_the_agent_changed_itself_does_not_help_it(project: Project, agents: SubAgents) -> None:
    """The state says EXECUTING, so the hook allows it; what really ran, played again, says otherwise."""
    agents.calls("context-gatherer", "bash-expert")
    forge = agents.folder / "claude"
    text = forge.read_text().replace("def hand_over(number, word):\n", FORGE, 1)
    forge.write_text(text)

    done = project.doit("ordered", "--goal=a door")

    assert done.returncode == 1
    assert "bash-expert ran in GATHERING" in done.stdout


FORGE = """\
def hand_over(number, word):
    for path in pathlib.Path(os.environ["HOME"]).glob(".claude/state/doflow/*/*/pipeline-state.json"):
        doc = json.loads(path.read_text())
        path.write_text(json.dumps(doc | {"state": "EXECUTING" if number else doc["state"]}))
"""


@pytest.mark.parametrize(
    ("machine", "settings", "words"),
    [
        ("nothing", "", "unknown machine 'nothing' (available: broken, context-first)"),
        ("broken", "", "flows/machines/broken.yaml:4:6: no sequence of allowed calls reaches B"),
        ("context-first", "agents: {default: {use: rehearsal}}\n", "default (rehearsal) has no hooks to enforce it"),
    ],
)
def test_what_cannot_be_enforced_is_refused_before_anything_is_written(
    machine: str, settings: str, words: str, project: Project
) -> None:
    project.flow("ordered", FLOW % machine)
    project.write("flows/machines/broken.yaml", "machine: broken\nstates:\n  A: {allow: [x]}\n  B: {}\n")
    if settings:
        project.write("doflow.yaml", settings)
    else:
        SubAgents(project)

    done = project.doit("ordered", "--goal=a door")

    assert (done.returncode, project.runs()) == (1, [])
    assert words in done.stdout + done.stderr


def test_validate_names_what_is_wrong_with_a_machine_and_who_asks_for_one_that_is_not_there(project: Project) -> None:
    project.flow("ordered", FLOW % "nothing")
    project.write("flows/machines/Odd.yaml", "machine: Odd\nstates: {A: {}}\n")
    project.write("flows/machines/broken.yaml", "machine: broken\nstates:\n  A: {allow: [x]}\n  B: {}\n")

    done = project.doflow("validate")

    assert done.returncode == 1
    assert "flows/machines/broken.yaml:4:6: no sequence of allowed calls reaches B" in done.stdout
    assert "flows/ordered.yaml:5:3: unknown machine 'nothing'" in done.stdout
    assert "flows/machines/Odd.yaml:1:1: 'Odd' is not a valid name" in done.stdout
    assert "flows/machines/broken.yaml" not in project.doflow("validate", "tiny").stdout
