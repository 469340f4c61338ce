"""The packaged flows, each way through each of them, with real doit, real git and a scripted agent."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml
from tests.support import checkout, script
from tests.support.project import Project

FEATURE = ["specify", "suggest", "plan", "planreview", "tasks", "tasksreview", "implement",
           "architecturereview", "qualityreview", "phasereview"]  # fmt: skip
SMALL = ["bugfix", "planreview", "implement", "qualityreview", "phasereview"]
LARGE = ["bugfix", "plan", "planreview", "tasks", "tasksreview", "implement", "architecturereview", "qualityreview",
         "phasereview"]  # fmt: skip
REBUILD = ["rebuildcheck", "harvest", *LARGE[1:]]
PERSONAS = {
    "planreview": ["pm", "critical", "risk", "value"],
    "tasksreview": ["junior", "senior", "techlead", "devops"],
    "architecturereview": ["architect", "performance", "security", "sre"],
    "qualityreview": ["code", "qa", "security", "testdesign"],
    "phasereview": ["qa", "ux", "regression", "docs"],
}

# flow, markers, variant, pipeline, what the run's folder holds besides input.md, doflow.lock and the reviews
WAYS = {
    "feature": ("feature", {}, "", FEATURE, ["plan.md", "spec.md", "suggestions.yaml", "tasks.md"]),
    "bugfix small": ("bugfix", {"bugfix": "SCALE: SMALL"}, "bugfix-small", SMALL,
                     ["fix-plan.md", "investigation.md", "spec.md"]),
    "bugfix large": ("bugfix", {"bugfix": "[SCALE: LARGE]"}, "bugfix-large", LARGE,
                     ["fix-plan.md", "investigation.md", "plan.md", "spec.md", "tasks.md"]),
    "rebuild": ("discovery-rebuild", {"rebuildcheck": "VERDICT: REBUILD"}, "discovery-rebuild", REBUILD,
                ["constitution.md", "learnings.md", "plan.md", "rebuildcheck.md", "spec.md", "tasks.md"]),
    "roadmap": ("roadmap", {}, "", ["concept", "goals", "milestones", "roadmap"],
                ["concept.md", "goals.md", "milestones.md", "roadmap.md"]),
    "discovery": ("discovery-init", {}, "", ["discovery"], ["discovery-memo.md"]),
    "investigation": ("investigation", {}, "", ["investigate"], ["report.md"]),
}  # fmt: skip


def ran(project: Project, *words: str, code: int = 0, **more: object) -> subprocess.CompletedProcess[str]:
    done = project.doit(*words, **more)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def expected_calls(pipeline: list[str], phases: int) -> list[str]:
    """What the agent is asked to do, in order; personas of one review in any order, so they are sorted."""
    calls: list[str] = []
    for step in pipeline:
        if step in PERSONAS:
            calls += sorted(f"{step} persona {name}" for name in PERSONAS[step])
        elif step == "implement":
            calls += [f"implement:{number}" for number in range(1, phases + 1)]
        else:
            calls.append(step)
    return calls


def calls(project: Project) -> list[str]:
    """The calls as they were made, the personas of one review sorted."""
    found: list[str] = []
    group: list[str] = []
    for line in [*project.calls(), ""]:
        if group and group[0].split()[0] != line.partition(" ")[0]:
            found += sorted(group)
            group = []
        if " persona " in line:
            group.append(line)
        elif line:
            found.append(line)
    return found


@pytest.mark.smoke("feature", "bugfix-small", "roadmap")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.replace(" ", "-"))
def test_every_way_through_every_flow_is_walked_to_its_end_by_one_command(way, project):
    flow, markers, variant, pipeline, artifacts = WAYS[way]
    project.agent(script.good(**markers))

    ran(project, flow, "--goal=Make it so")

    state = project.state()
    assert (state["status"], state["variant"], state["pipeline"]) == ("completed", variant, pipeline)
    assert (state["completed"], state["current"], state["flow"]) == (pipeline, "", flow)
    phases = 1 if way == "bugfix small" else 2 if "implement" in pipeline else 0
    assert state["implement_phases_completed"] == [f"phase_{number}" for number in range(1, phases + 1)]
    assert calls(project) == expected_calls(pipeline, phases)
    reviews = [f"review-{step}.yaml" for step in pipeline if step in PERSONAS]
    names = sorted(path.name for path in project.run_dir().iterdir())
    assert names == sorted(["doflow.lock", "input.md", *artifacts, *reviews])
    assert project.git("status", "--porcelain") == ""
    assert sorted(project.git("ls-tree", "-r", "--name-only", "HEAD", "specs/").split()) == [
        f"specs/{project.runs()[0]}/{name}" for name in names
    ]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.replace(" ", "-"))
def test_a_finished_flow_calls_no_agent_again(way, project):
    flow, markers, *_ = WAYS[way]
    project.agent(script.good(**markers))
    ran(project, flow, "--goal=Make it so")
    project.forget_calls()
    head = project.git("rev-parse", "HEAD")

    ran(project, flow)
    (project.root / ".doflow" / "stamps" / flow).unlink()
    ran(project, flow)

    assert (project.calls(), project.git("rev-parse", "HEAD")) == ([], head)


@pytest.mark.smoke("bugfix-bugfix-RECLASSIFY: FEATURE--doit feature")
@pytest.mark.parametrize(
    ("flow", "step", "marker", "variant", "words"),
    [
        ("bugfix", "bugfix", "RECLASSIFY: FEATURE", "", "doit feature"),
        ("bugfix", "bugfix", "[RECLASSIFY: FEATURE]", "", "doit feature"),
        ("discovery-rebuild", "rebuildcheck", "VERDICT: CONTINUE", "discovery-continue", "no rebuild"),
        ("discovery-rebuild", "rebuildcheck", "[VERDICT: CONTINUE]", "discovery-continue", "no rebuild"),
    ],
)
def test_what_needs_a_person_pauses_with_exit_code_two_and_the_pipeline_as_it_was(
    flow, step, marker, variant, words, project
):
    project.agent(script.good(**{step: marker}))

    done = ran(project, flow, "--goal=Make it so", code=2)

    state = project.state()
    assert (state["status"], state["pipeline"], state["completed"]) == ("paused", [step], [step])
    assert (state["variant"], project.calls()) == (variant, [step])
    assert words in state["pauseReason"]
    assert words in done.stdout + done.stderr
    ran(project, flow, code=2)
    assert (project.calls(), project.state()["status"]) == ([step], "paused")


@pytest.mark.smoke("bugfix-bugfix")
@pytest.mark.parametrize(("flow", "step"), [("bugfix", "bugfix"), ("discovery-rebuild", "rebuildcheck")])
def test_no_marker_is_handed_back_once_and_then_an_error_never_a_way_through(flow, step, project):
    project.agent(script.good())

    ran(project, flow, "--goal=Make it so", code=1)

    assert (project.state()["status"], project.calls()) == ("failed", [step, f"{step} repair"])


def test_a_marker_that_comes_when_it_is_handed_back_leads_on(project):
    before = 'if step == "bugfix" and role == "repair": MARKERS["bugfix"] = "SCALE: SMALL"'
    project.agent(script.good(before))

    ran(project, "bugfix", "--goal=Make it so")

    assert project.state()["pipeline"] == SMALL
    assert "none of the lines" in project.prompts()[1]


def test_the_phases_of_a_small_fix_are_those_of_the_fix_plan_and_its_boxes_are_ticked(project):
    project.agent(script.good(bugfix="SCALE: SMALL"))

    ran(project, "bugfix", "--goal=Make it so")

    run = project.runs()[0]
    assert "Phase 1: Shown and mended" in project.subjects()
    assert project.git("show", f"HEAD:specs/{run}/fix-plan.md") == script.FIX_PLAN.replace("- [ ]", "- [x]")
    assert "Show the bug in tests/test_bug.py" in project.prompts()[5], "what it is told to do"
    assert "R1: It MUST work." in project.prompts()[5], "what it must meet"


def test_a_fix_plan_without_phases_is_done_in_one_call(project):
    project.agent(script.good(bugfix="SCALE: SMALL", texts={"fix-plan.md": "Turn the sign around in src/bug.py.\n"}))

    ran(project, "bugfix", "--goal=Make it so")

    assert "implement:all" in project.calls()
    assert (project.state()["status"], project.state()["pipeline"]) == ("completed", SMALL)


def test_an_edited_fix_plan_is_built_again_and_nothing_before_it(project):
    project.agent(script.good(bugfix="SCALE: SMALL"))
    ran(project, "bugfix", "--goal=Make it so")
    project.forget_calls()
    path = project.run_dir() / "fix-plan.md"
    path.write_text(path.read_text().replace("Mend it in", "Mend it well in"))
    project.commit("A better plan")

    ran(project, "bugfix")

    assert "implement:1" in project.calls()
    assert "bugfix" not in project.calls()


def test_a_large_fix_takes_its_phases_from_the_task_list_not_from_the_fix_plan(project):
    project.agent(script.good(bugfix="SCALE: LARGE"))

    ran(project, "bugfix", "--goal=Make it so")

    assert [line for line in project.subjects() if line.startswith("Phase")] == ["Phase 1: Ground", "Phase 2: House"]


def test_a_flow_that_was_rewritten_goes_on_where_it_stopped(project):
    project.settings("retry: {enabled: false}\n")
    project.commit("No retries")
    project.agent(script.good('if step == "tasks" and not nth: stop(1)', bugfix="SCALE: LARGE"))

    ran(project, "bugfix", "--goal=Make it so", code=1)
    assert (project.state()["variant"], project.state()["completed"]) == ("bugfix-large", LARGE[:3])
    before = len(project.calls())
    ran(project, "bugfix")

    assert project.calls()[before] == "tasks"
    assert "bugfix" not in project.calls()[before:]
    assert project.state()["completed"] == LARGE


@pytest.mark.smoke
def test_a_bad_task_list_is_handed_back_with_its_lines_and_fixed(project):
    bad = json.dumps("# T\n\n## Phase 1: x\n- [ ] T001 no brackets\n")
    before = f'if step == "tasks" and role != "repair": TEXTS["tasks.md"] = {bad}'
    project.agent(script.good(before))

    ran(project, "feature", "--goal=Make it so")

    asked = project.calls().index("tasks repair")
    assert "tasks.md:4: a task is `- [ ] [T001] text`" in project.prompts()[asked]
    assert project.state()["status"] == "completed"
    assert [entry["step"] for entry in project.events() if entry["event"] == "warning"] == ["tasks"]


def test_a_task_list_that_stays_bad_fails_the_step_and_is_not_committed(project):
    project.agent(script.good(texts={"tasks.md": "# T\n\n## Phase 1: x\n- [ ] T001 no brackets\n"}))

    done = ran(project, "feature", "--goal=Make it so", code=1)

    assert "tasks.md:4:" in done.stdout + done.stderr
    assert [line for line in project.calls() if line.startswith("tasks")] == ["tasks", "tasks repair", "tasks repair"]
    assert (project.state()["status"], "tasks" in project.state()["completed"]) == ("failed", False)
    assert not (project.run_dir() / "tasks.md").exists()


def test_a_task_list_without_phases_is_done_in_one_call_with_a_warning(project):
    project.agent(script.good(texts={"tasks.md": "# T\n\n- [ ] [T001] All of it\n"}))

    ran(project, "feature", "--goal=Make it so")

    assert [line for line in project.calls() if line.startswith("implement")] == ["implement:all"]
    warned = [entry["message"] for entry in project.events() if entry["event"] == "warning"]
    assert "the whole list is one phase" in warned[0]


def test_a_fixer_that_spoils_the_task_list_gets_it_back(project):
    before = """
if step == "tasksreview" and persona == "senior" and round == 1:
    done = not say("ISSUE: H | T002 is too big | tasks.md\\nVERDICT: CONDITIONAL")
if step == "tasksreview" and role == "fixer":
    put(run_dir / "tasks.md", "# Tasks\\n\\n## Phase 1: Ground\\n- [ ] lost its id\\n")
    done = not say("mended")
if step == "tasksreview" and role == "repair":
    put(run_dir / "tasks.md", TEXTS["tasks.md"].replace("House", "Home"))
    done = not say("mended again")
"""
    project.agent(script.good(before))

    ran(project, "feature", "--goal=Make it so")

    asked = next(place for place, line in enumerate(project.calls()) if line.endswith("repair"))
    assert "tasks.md:4: a task is" in project.prompts()[asked]
    assert "Phase 2: Home" in project.subjects()


FIND = """
if step == "{step}" and role == "persona" and persona == "{persona}" and round == 1:
    done = not say("ISSUE: H | Say more | {place}\\nVERDICT: CONDITIONAL")
if step == "{step}" and role == "fixer":
    put({path}, "# Mended\\n")
    done = not say("mended")
"""


@pytest.mark.parametrize(
    ("step", "persona", "path"),
    [("planreview", "pm", 'run_dir / "plan.md"'), ("qualityreview", "code", '"src/phase_1.py"')],
)
def test_what_a_fixer_fixes_makes_no_step_before_it_stale(step, persona, path, project):
    project.agent(script.good(FIND.format(step=step, persona=persona, place="x", path=path)))
    ran(project, "feature", "--goal=Make it so")
    assert sum(" fixer" in line for line in project.calls()) == 1
    project.forget_calls()

    (project.root / ".doflow" / "stamps" / "feature").unlink()
    ran(project, "feature")

    assert project.calls() == []


@pytest.mark.parametrize(("step", "persona"), [("planreview", "pm"), ("qualityreview", "code")])
def test_a_fixer_may_not_change_what_finished_steps_were_made_from(step, persona, project):
    project.agent(script.good(FIND.format(step=step, persona=persona, place="x", path='run_dir / "spec.md"')))

    done = ran(project, "feature", "--goal=Make it so", code=1)

    assert "spec.md" in done.stdout + done.stderr
    assert (project.run_dir() / "spec.md").read_text() == script.SPEC
    told = project.prompts()[next(place for place, line in enumerate(project.calls()) if "fixer" in line)]
    assert "spec.md`" not in told.partition("## Findings")[0]


@pytest.mark.smoke
def test_the_rehearsal_agent_walks_all_ten_steps_in_one_command(project):
    project.write("doflow.yaml", "agents: {default: {use: rehearsal}}\n")
    project.commit("Rehearse")

    ran(project, "feature", "--goal=Make it so")

    state = project.state()
    assert (state["status"], state["completed"]) == ("completed", FEATURE)
    assert state["implement_phases_completed"] == ["phase_1", "phase_2", "phase_3"]
    assert sum(line.startswith("Phase ") for line in project.subjects()) == 3


@pytest.mark.parametrize("flow", ["bugfix", "roadmap", "discovery-init", "discovery-rebuild", "investigation"])
def test_the_rehearsal_agent_finishes_every_flow(flow, project):
    project.write("doflow.yaml", "agents: {default: {use: rehearsal}}\n")
    project.commit("Rehearse")

    ran(project, flow, "--goal=Make it so")

    assert project.state()["status"] == "completed"


@pytest.mark.smoke
def test_a_question_in_the_specification_stops_the_feature(project):
    project.agent(script.good(texts={"spec.md": script.SPEC + "\n[NEEDS CLARIFICATION: by mail or by phone?]\n"}))

    done = ran(project, "feature", "--goal=Make it so", code=2)

    assert "by mail or by phone?" in done.stdout + done.stderr
    assert (project.state()["status"], project.state()["pendingApproval"]) == (
        "awaiting-approval",
        {"type": "clarification", "step": "specify"},
    )
    assert project.calls() == ["specify"]


def test_discovery_needs_no_goal(project):
    project.agent(script.good(rebuildcheck="VERDICT: CONTINUE"))

    ran(project, "discovery-init")
    project.git("switch", "-q", "main")
    ran(project, "discovery-rebuild", code=2)

    assert project.calls() == ["discovery", "rebuildcheck"]


@pytest.mark.smoke
def test_an_investigation_changes_nothing_and_its_report_is_committed(project):
    project.agent(script.good(texts={"report.md": "# Why\n\nBecause.\n"}))
    before = project.tree()

    ran(project, "investigation", "--goal=Why is it slow?")

    run = project.runs()[0]
    assert project.git("show", f"HEAD:specs/{run}/report.md") == "# Why\n\nBecause.\n"
    assert {path for path in project.tree() if not path.startswith("specs/")} == set(before)


def test_a_report_that_the_agent_wrote_itself_is_not_covered_up_by_its_chat(project):
    project.agent('make("# The report\\n\\nAll of it.\\n")\nsay("I wrote the report.")')

    ran(project, "investigation", "--goal=Why is it slow?")

    assert (project.run_dir() / "report.md").read_text() == "# The report\n\nAll of it.\n"


def test_timeouts_and_retries_of_the_settings_hold_in_the_packaged_flows(project):
    for path in sorted((checkout.TOP / "flows").glob("*.yaml")):
        flow = yaml.safe_load(path.read_text())
        if path.stem != "tiny":
            assert "defaults" not in flow, f"{path.name}: a default of the flow would beat doflow.yaml"
            for step in flow["steps"].values():  # an agent only where a param of the flow names it
                assert not {"timeout", "retry"} & set(step) and step.get("agent", "{").startswith("{")


def test_the_simple_variant_gives_the_short_prompts(project):
    project.agent(script.good())
    project.settings("command_variant: simple\n")
    project.commit("Simple")

    ran(project, "feature", "--goal=Make it so")

    said = dict(zip(project.calls(), project.prompts(), strict=True))
    folder = checkout.TOP / "flows" / "prompts"
    for step, name in (("specify", "specify"), ("plan", "plan"), ("tasks", "tasks"), ("implement:1", "implement")):
        body = (folder / f"{name}-simple.md").read_text().split("---\n", 2)[2].strip()
        assert said[step].startswith(body), step
    assert said["suggest"].startswith((folder / "suggest.md").read_text().split("---\n", 2)[2].strip())


def test_every_reviewer_is_told_who_it_is_and_code_reviews_see_the_code(project):
    project.agent(script.good())

    ran(project, "feature", "--goal=Make it so")

    said = dict(zip(project.calls(), project.prompts(), strict=True))
    for step, names in PERSONAS.items():
        for name in names:
            told = said[f"{step} persona {name}"]
            voice = (checkout.TOP / "flows" / "prompts" / "personas" / f"{name}.md").read_text().split("---\n", 2)[2]
            assert voice.strip() in told
            assert ("PHASE = '1'" in told) == (step in ("architecturereview", "qualityreview", "phasereview"))


def test_the_state_is_one_json_object_that_other_programs_can_read(project):
    project.agent(script.good(bugfix="SCALE: SMALL"))
    ran(project, "bugfix", "--goal=Make it so")

    path = project.root / ".doflow" / "runs" / project.runs()[0] / "pipeline-state.json"
    assert json.loads(path.read_bytes())["variant"] == "bugfix-small"
    assert "variant: " in (project.run_dir() / "doflow.lock").read_text()
