"""Settings that name a step which is not there are told of: a gate that stands nowhere stops nobody."""

from __future__ import annotations

import json

import pytest
from tests.support.project import Project

FLOW = "flow: small\nsteps:\n  plan: {prompt: Plan it., makes: plan.md}\n  tasks: {prompt: List., makes: list.md}\n"
NO_STEP = "no flow has a step for"


@pytest.mark.smoke("gates")
@pytest.mark.parametrize(
    ("line", "place", "told", "near"),
    [
        ("gates: {after-plna: true}", "3:9", f"{NO_STEP} 'after-plna' in gates", "did you mean 'after-plan'?"),
        ("timeouts: {steps: {plna: {max: 1h}}}", "3:20", f"{NO_STEP} 'plna' in timeouts.steps", "did you mean 'plan'?"),
        ("route_agents: {taskss: default}", "3:16", f"{NO_STEP} 'taskss' in route_agents", "did you mean 'tasks'?"),
    ],
    ids=["gates", "timeouts", "route_agents"],
)
def test_a_setting_for_a_step_that_no_flow_has_is_a_warning(project: Project, line, place, told, near) -> None:
    project.flow("small", FLOW)
    project.settings(line + "\n")

    for words in ((), ("small",)):
        plain = project.doflow("validate", *words)
        strict = project.doflow("validate", "--strict", *words)
        assert (plain.returncode, strict.returncode) == (0, 1), plain.stdout + strict.stdout
        assert f"warning: doflow.yaml:{place}: {told}, so it has no effect\n  hint: {near}\n" in plain.stdout
        assert f"\ndoflow.yaml:{place}: {told}" in strict.stdout
    ran = project.doit("small", "--goal=x")
    assert (ran.returncode, project.calls()) == (0, ["plan", "tasks"]), ran.stdout
    assert f"doflow.yaml:3: {told}, so it has no effect; {near}" in ran.stdout + ran.stderr
    assert [entry["event"] for entry in project.events()].count("warning") == 1


def test_names_of_steps_of_any_flow_and_beginnings_of_them_are_no_strangers(project: Project) -> None:
    project.flow("small", FLOW)
    project.flow("other", "flow: other\nsteps:\n  plna: {prompt: x, makes: a.md}\n  in: {kind: flow, flow: small}\n")
    project.settings("gates: {after-plna: true}\nroute_agents: {in/: default, ta: default}\n")

    assert "warning" not in project.doflow("validate", "--strict").stdout
    ran = project.doit("small", "--goal=x")

    assert (ran.returncode, "warning" in {entry["event"] for entry in project.events()}) == (0, False), ran.stdout


def test_a_stranger_from_the_environment_is_told_by_its_name(project: Project) -> None:
    told = json.loads(project.doflow("validate", "--json", env={"DOFLOW_SET_GATES__AFTER_PLNA": "true"}).stdout)

    assert (told["ok"], [one["file"] for one in told["warnings"]]) == (True, ["DOFLOW_SET_GATES__AFTER_PLNA"])


def test_validate_of_one_flow_says_that_the_settings_are_broken(project: Project) -> None:
    project.flow("small", FLOW)
    project.settings("protekt: [LICENSE]\n")

    told = project.doflow("validate", "small")

    assert (told.returncode, "doflow.yaml:3:1: unknown key 'protekt'" in told.stdout) == (1, True)
