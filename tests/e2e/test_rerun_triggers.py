"""What may change without a step running again: limits, agents, models, packaged prompts; and what to set so that it counts."""

from __future__ import annotations

import json
import re

import pytest
from tests.support.project import Project
from tests.support.reruns import CHAIN, again, chain, edit, work

from doflow.util.version import VERSION

LIMITS = (
    "timeout: 20m, retry: {attempts: 3, backoff: 1s}, repair: 2, gate: Good?, after: [one], protect: [x.md], "
    "budget: {tokens: 500}"
)


SHOWN = [
    "its timeout was 2h, now 20m",
    "its retry was never, now 3 times, after 1s",
    "its repair was 0, now 2",
    "its gate was none, now Good?",
    "its after was the step before it, now one",
    "its protect was nothing, now x.md",
    "its budget was none, now 500 tokens",
]


def remarks(project: Project, step: str) -> list[str]:
    return json.loads(project.doflow("why", step, "--json").stdout)["remarks"]


def limited(project: Project) -> Project:
    """A finished run whose flow has other limits now."""
    chain(project, script="usual()")
    project.flow("chain", CHAIN.replace("makes: three.md}", f"makes: three.md, {LIMITS}}}"))
    project.commit("Other limits")
    return project


def test_why_shows_the_limits_that_changed_and_nothing_of_it_is_paid(project):
    limited(project)

    assert (remarks(project, "three"), remarks(project, "one")) == (SHOWN, [])
    assert (
        "(not run again for this; to run it again: doit chain --force=three)" in project.doflow("why", "three").stdout
    )
    assert again(project, code=2) == []  # only its new gate asks
    assert project.doflow("approve", "three").returncode == 0
    assert again(project, "chain", "--force=three", "--budget=none") == ["three"]
    assert remarks(project, "three") == []


def test_why_shows_limits_that_were_taken_out_and_those_of_the_settings(project):
    chain(project, CHAIN.replace("makes: two.md}", "makes: two.md, timeout: {idle: 5m, max: 10m}, repair: 1}"))
    project.flow("chain", CHAIN)
    project.settings("timeouts: {max: 1h}\nretry: {enabled: false}\nprotect: [PRD.md]\ngates: {after-two: true}\n")

    shown = [
        "its timeout was 10m (silence: 5m), now 1h",
        "its repair was 1, now 0",
        "its gate was none, now Approve two?",
    ]
    assert remarks(project, "two") == [*shown, "its protect was nothing, now PRD.md"]


def test_a_lock_from_before_limits_were_recorded_gives_no_remark(project):
    limited(project)
    path = project.run_dir() / "doflow.lock"
    path.write_text(path.read_text().replace('"with": ', '"doflow": '))

    assert remarks(project, "three") == []


def test_what_is_as_usual_makes_the_lock_no_longer(project):
    chain(project, CHAIN.replace("{attempts: 0}", "{attempts: 2}") + "      test: {kind: shell, run: 'true'}\n")

    held = (project.run_dir() / "doflow.lock").read_text()

    version = f'"with": "{VERSION}"'
    told = [f'{{{version}, "agent": "default"}}'] * 3 + [f"{{{version}}}"]
    assert re.findall(r'"by": (\{.*?\})', held) == told


def test_a_changed_comment_in_the_flow_runs_nothing(project):
    chain(project)
    project.flow("chain", CHAIN + "    # a word\n")
    project.commit("A word")

    assert again(project) == []


@pytest.mark.smoke
def test_another_model_or_agent_runs_nothing_and_why_says_so(project):
    chain(project)
    project.settings(agent="model: better")
    project.commit("Another model")

    assert again(project) == []
    assert "default better" in project.doflow("why", "two").stdout


def test_another_agent_on_the_command_line_runs_nothing(project):
    chain(project)

    assert again(project, "chain", "--agent=rehearsal") == []


def test_another_model_counts_when_the_settings_say_so(project):
    project.settings("triggers: [agent]\n")
    chain(project, script="usual()")
    project.settings("triggers: [agent]\n", agent="model: better")
    project.commit("Another model")

    assert again(project) == ["one", "two", "three"]
    assert again(project) == []


MIXED = CHAIN + "      test: {kind: shell, run: 'true'}\n      fix: {kind: shell, run: 'true', repair: 1}\n"


def test_adding_a_trigger_or_taking_it_back_runs_nothing(project):
    chain(project, MIXED)
    for said in ("triggers: [agent, packaged]\n", "triggers: [agent]\n", ""):
        project.settings(said)
        project.commit("Another trigger")

        assert "changed" not in project.doflow("plan").stdout
        assert again(project) == []


def test_with_the_trigger_only_the_steps_of_the_changed_agent_run_again(project):
    project.settings("triggers: [agent]\n")
    chain(project, MIXED, "usual()")
    project.settings("triggers: [agent]\nroute_agents: {two: other}\n", agent="}\n  other: {use: rehearsal")
    project.commit("Another agent")

    told = project.doflow("why", "two").stdout

    assert "because its agent was default, now other (triggers: agent)" in told and "not redone" not in told
    assert "because" not in project.doflow("why", "one").stdout + project.doflow("why", "test").stdout
    assert [event["step"] for event in started(project)] == ["two", "three"]  # another agent, other bytes


def test_a_phase_of_another_model_is_done_again_when_the_settings_say_so(project):
    work(project)
    project.settings("triggers: [agent]\n", agent="model: better")
    project.commit("Another model")

    assert "implement:1" in again(project, "work") and again(project, "work") == []


def test_a_key_that_holds_the_agent_from_before_is_still_good(project):
    chain(project)
    path = project.run_dir() / "doflow.lock"
    path.write_text(
        path.read_text().replace('"parts": {', '"parts": {"agent": "1234", ').replace('{"key": "', '{"key": "0')
    )
    project.commit("A lock of an older doflow")

    assert again(project) == []


def test_what_a_person_keeps_is_not_done_again_for_another_agent(project):
    project.settings("triggers: [agent]\n")
    chain(project, script="usual()")
    edit(project, "two.md")
    assert project.doflow("adopt", "two").returncode == 0
    project.settings("triggers: [agent]\n", agent="model: better")
    project.commit("Another model")

    assert again(project) == ["one", "three"]


def test_who_stood_in_for_a_limited_agent_makes_nothing_stale(project):
    project.settings("triggers: [agent]\n", agent="fallback: other}\n  other: {use: rehearsal")
    chain(project, script="stop(75) if step == 'two' else usual()")
    project.agent("usual()")

    assert '"agent": "other"' in (project.run_dir() / "doflow.lock").read_text()
    assert again(project) == []


PACKAGED = """
    flow: chain
    params: {goal: {required: true}}
    defaults: {retry: {attempts: 0}}
    steps:
      one: {prompt: specify.md, reads: [input.md], makes: one.md}
      two: {kind: review, reads: [one.md], personas: [pm], rounds: 1}
"""


def packaged(project: Project) -> Project:
    """A finished run with a packaged prompt and a packaged persona; the settings let both count."""
    project.settings("triggers: [packaged]\n")
    return chain(project, PACKAGED, "say('VERDICT: GO') if persona else usual()")


def test_another_text_of_a_packaged_prompt_counts_when_the_settings_say_so(project):
    packaged(project)
    path = project.run_dir() / "doflow.lock"
    path.write_text(re.sub(r'"(packaged|voices)": "[0-9a-f]{8}"', r'"\1": "00000000"', path.read_text()))
    project.commit("A lock of another doflow")

    assert "because its packaged prompt was 00000000, now" in project.doflow("why", "one").stdout
    assert "because its packaged persona prompt was 00000000, now" in project.doflow("why", "two").stdout
    project.settings("")
    assert "(not run again for this" in project.doflow("why", "one").stdout
    project.settings("triggers: [packaged]\n")
    assert again(project) == ["one", "two persona pm"]
    assert again(project) == []


def test_a_packaged_text_that_no_one_wrote_down_counts_as_unchanged_and_that_is_said(project):
    packaged(project)
    path = project.run_dir() / "doflow.lock"
    path.write_text(re.sub(r', "(packaged|voices)": "[0-9a-f]{8}"', "", path.read_text()))
    project.commit("A lock of an older doflow")

    assert (
        "its packaged prompt at that time was not recorded and is treated as unchanged"
        in project.doflow("why", "one").stdout
    )
    assert again(project) == []


def test_a_persona_that_is_told_other_words_is_asked_again(project):
    flow = PACKAGED.replace("personas: [pm]", "personas: [ann]")
    chain(project, flow, "say('VERDICT: GO') if persona else usual()")
    project.write("flows/prompts/personas/ann.md", "You are ann, and strict.\n")
    project.commit("Another ann")

    assert again(project) == ["two persona ann"]
    assert again(project) == []


def started(project: Project) -> list[dict]:
    """What the next command begins."""
    before = len(project.events())
    assert project.doit("chain").returncode == 0
    return [event for event in project.events()[before:] if event["event"] == "step_starting"]
