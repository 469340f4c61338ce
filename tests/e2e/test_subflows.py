"""A flow inside a flow, run by real doit: its own parameters, routes, gates, reviews and items, also nested."""

from __future__ import annotations

import pytest
import yaml
from tests.support.project import Project

DESIGN = """
    flow: design
    params:
      topic: {about: What it is about, default: everything}
    defaults: {retry: {attempts: 0}}
    steps:
      plan: {prompt: "Plan {topic} for {goal}.", reads: [input.md], makes: plan.md}
      check: {kind: review, reads: [plan.md], personas: [ann], rounds: 2}
      list: {prompt: List the parts., reads: [plan.md], makes: parts.yaml}
      part: {prompt: "Write {item}.", foreach: parts.yaml, makes: "{item}.md"}
"""
MIDDLE = """
    flow: middle
    params: {area: {about: Where}}
    steps:
      draft: {kind: flow, flow: design, params: {goal: "A part of {area}", topic: keys}}
      note: {prompt: Note it., reads: [draft/plan.md], makes: note.md}
"""
BIG = """
    flow: big
    params: {goal: {about: What, required: true}}
    defaults: {retry: {attempts: 0}}
    steps:
      first: {prompt: Begin., makes: first.md}
      d: {kind: flow, flow: design}
      m: {kind: flow, flow: middle, params: {area: "the {goal}"}}
      last: {prompt: End., reads: [d/plan.md, m/draft/plan.md, m/note.md], makes: last.md}
"""
GOOD = """
if role == "persona":
    say("VERDICT: GO")
elif step.endswith("list"):
    make("- a\\n- b\\n")
else:
    usual()
"""
INNER = ["plan", "check persona ann", "list", "part:a", "part:b"]


def ran(project: Project, *words: str, code: int = 0, name: str = "doit") -> str:
    done = project.program(name, *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def inside(step: str, names: list[str] = INNER) -> list[str]:
    return [f"{step}/{name}" for name in names]


@pytest.fixture
def big(project: Project) -> Project:
    for name, text in (("design", DESIGN), ("middle", MIDDLE), ("big", BIG)):
        project.flow(name, text)
    project.agent(GOOD)
    project.commit("Flows")
    return project


@pytest.mark.smoke
def test_sub_flows_with_parameters_of_their_own_run_in_their_place_nested_and_side_by_side(big, tmp_path):
    ran(big, "-n", "2", "big", "--goal=house")

    calls = big.calls()
    assert (calls[0], calls[-2:]) == ("first", ["m/note", "last"])
    assert sorted(calls[1:-2]) == sorted([*inside("d"), *inside("m/draft")])
    told = dict(zip(calls, big.prompts(), strict=True))
    assert "Plan everything for house." in told["d/plan"]
    assert "Plan keys for A part of the house." in told["m/draft/plan"]
    run = big.run_dir()
    assert (run / "m/draft/input.md").read_text() == "A part of the house\n"
    assert not (run / "d/input.md").exists() and "## Input: specs/001-house/input.md" in told["d/plan"]
    made = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    design = ["a.md", "b.md", "parts.yaml", "plan.md", "review-check.yaml"]
    assert made == sorted(["doflow.lock", "first.md", "input.md", "last.md", "m/draft/input.md", "m/note.md",
                           *inside("d", design), *inside("m/draft", design)])  # fmt: skip
    state = big.state()
    steps = ["plan", "check", "list", "part"]
    assert state["pipeline"] == ["first", *inside("d", steps), *inside("m/draft", steps), "m/note", "last"]
    assert (state["completed"], state["status"]) == (state["pipeline"], "completed")
    assert big.git("status", "--porcelain") == ""

    ran(big, "big")
    clone = tmp_path / "clone"
    big.git("clone", "-q", str(big.root), str(clone))
    done = big.doit("big", "--goal=house", cwd=clone)
    assert (done.returncode, big.calls()) == (0, calls), done.stdout + done.stderr

    big.forget_calls()
    (run / "m/draft/plan.md").write_text("# Plan\n\nMine.\n")
    ran(big, "big")
    assert big.calls() == ["m/draft/check persona ann", "m/draft/list", "m/note", "last"], "the other one is fresh"


def test_a_changed_parameter_of_a_sub_flow_makes_only_its_steps_stale(big):
    ran(big, "big", "--goal=house")
    big.forget_calls()

    big.flow("big", BIG.replace("flow: design}", "flow: design, params: {topic: doors}}"))
    ran(big, "big")

    assert big.calls()[0] == "d/plan"
    assert {call.split("/")[0] for call in big.calls()} == {"d"}
    assert "Plan doors for house." in big.prompts()[0]


def test_a_review_inside_a_sub_flow_fixes_and_its_findings_lie_beside_it(big):
    big.agent("""
        if role == "persona":
            bad = "FINE" not in (run_dir / step).with_name("plan.md").read_text()
            say("ISSUE: C | Bad | plan.md\\nVERDICT: NO-GO" if bad and step.startswith("d/") else "VERDICT: GO")
        elif role == "fixer":
            (run_dir / "d/plan.md").write_text("# Plan\\n\\nFINE\\n")
        elif step.endswith("list"):
            make("- a\\n")
        else:
            usual()
    """)

    ran(big, "big", "--goal=house")

    found = yaml.safe_load((big.run_dir() / "d/review-check.yaml").read_text())
    assert [(one["id"], one["status"]) for one in found["findings"]] == [("d/check-001", "fixed")]
    assert "d/check:fix1 fixer" in big.calls()


ROUTED = """
    flow: routed
    pipeline: [look]
    steps:
      look:
        prompt: Look.
        makes: look.md
        routes:
          - {when: "SCALE: SMALL", then: [mend], variant: small}
          - {when: "STOP", pause: Nothing is to be done}
      mend: {prompt: Mend., reads: [look.md], makes: mend.md}
"""
AROUND = """
    flow: around
    defaults: {retry: {attempts: 0}}
    steps:
      first: {prompt: Begin., makes: first.md}
      r: {kind: flow, flow: routed, gate: "Mended well?"}
      s: {kind: flow, flow: routed}
      last: {prompt: End., reads: ["r/mend.md?"], makes: last.md}
"""


@pytest.mark.parametrize("jobs", [(), ("-n", "2")], ids=["one", "two"])
def test_a_route_inside_a_sub_flow_goes_on_with_the_outer_steps_over_its_gate(project, jobs, tmp_path):
    project.flow("routed", ROUTED)
    project.flow("around", AROUND)
    project.commit("Flows")
    project.agent('usual(); say("SCALE: SMALL" if step.endswith("look") else "")')

    said = ran(project, *jobs, "around", "--goal=x", code=2)

    assert "Mended well?" in said
    assert project.calls() == ["first", "r/look", "r/mend"]
    assert project.state()["pendingApproval"] == {"type": "gate", "step": "r"}
    ran(project, "around", code=2)
    assert project.doflow("approve", "r").returncode == 0
    ran(project, *jobs, "around")
    assert project.calls() == ["first", "r/look", "r/mend", "s/look", "s/mend", "last"]
    assert project.state()["status"] == "completed"
    assert project.state()["pipeline"] == ["first", "r/look", "r/mend", "r", "s/look", "s/mend", "last"]

    calls = project.calls()
    clone = tmp_path / "clone"
    project.git("clone", "-q", str(project.root), str(clone))
    done = project.doit("around", "--goal=x", cwd=clone)
    assert (done.returncode, project.calls()) == (0, calls), done.stdout + done.stderr
    (project.run_dir() / "r/mend.md").write_text("Mine.\n")
    ran(project, "around", code=2)
    assert project.state()["pendingApproval"] == {"type": "gate", "step": "r"}, "a yes to what was there before"


def test_what_a_route_leaves_out_is_not_run_for_the_sake_of_its_gate(project):
    project.flow("routed", ROUTED)
    project.flow(
        "around",
        """
        flow: around
        steps:
          ask:
            prompt: Ask.
            makes: ask.md
            routes: [{when: "NO", then: [last]}, {when: "YES", then: [more, r, last]}]
          more: {prompt: More., makes: more.md, gate: "Enough?"}
          r: {kind: flow, flow: routed, gate: "Mended well?"}
          last: {prompt: End., makes: last.md}
    """,
    )
    project.commit("Flows")
    project.agent('usual(); say("NO")')

    ran(project, "around", "--goal=x")

    assert project.calls() == ["ask", "last"]
    assert (project.state()["pipeline"], project.state()["status"]) == (["ask", "last"], "completed")


def test_a_pause_inside_a_sub_flow_pauses_the_whole(project):
    project.flow("routed", ROUTED)
    project.flow("around", AROUND)
    project.commit("Flows")
    project.agent('usual(); say("STOP" if step.endswith("look") else "")')

    assert "Nothing is to be done" in ran(project, "around", "--goal=x", code=2)

    assert (project.state()["status"], project.calls()) == ("paused", ["first", "r/look"])


def test_gates_and_questions_of_inner_steps_pause_and_can_be_answered_by_their_names(big):
    big.flow("design", DESIGN.replace("makes: plan.md", 'makes: plan.md, gate: "This plan?", clarify: true'))
    big.agent('if step == "d/plan": make("[NEEDS CLARIFICATION: Which?]\\n"); stop(0)\n' + GOOD.lstrip())

    assert "Which?" in ran(big, "big", "--goal=house", code=2)
    assert big.state()["pendingApproval"] == {"type": "clarification", "step": "d/plan"}
    ran(big, "answer", "That", name="doflow")
    assert "This plan?" in ran(big, "big", code=2)
    ran(big, "approve", "d/plan", name="doflow")
    ran(big, "big", code=2)

    assert big.state()["pendingApproval"] == {"type": "gate", "step": "m/draft/plan"}
    assert (big.run_dir() / "d/plan.md").read_text() == "That\n"


def test_code_in_phases_inside_a_sub_flow(project):
    project.flow(
        "code",
        """
        flow: code
        steps:
          tasks: {prompt: List tasks., makes: tasks.md, check: {tasks: true}}
          implement: {kind: implement, phases: tasks.md, prompt: Do it.}
          check: {kind: review, reads: [tasks.md], personas: [ann]}
    """,
    )
    project.flow("outer", "flow: outer\nsteps:\n  c: {kind: flow, flow: code}\n")
    project.commit("Flows")
    project.agent('say("VERDICT: GO") if role == "persona" else usual()')

    ran(project, "outer", "--goal=x")

    assert project.calls() == ["c/tasks", "c/implement:1", "c/implement:2", "c/check persona ann"]
    assert "+PHASE = '2'" in project.prompts()[-1]
    assert project.state()["implement_phases_completed"] == ["phase_1", "phase_2"]
    ran(project, "outer")
    assert len(project.calls()) == 4


def test_a_sub_flow_per_item_is_refused_before_anything_is_paid(big):
    big.flow("big", BIG.replace("{kind: flow, flow: design}", "{kind: flow, flow: design, foreach: [a, b]}")
             .replace("d/plan.md, ", "", 1))  # fmt: skip

    done = big.doit("big", "--goal=house")

    assert (done.returncode, big.calls(), big.runs()) == (1, [], [])
    assert "key 'foreach' is only for kind agent or shell" in done.stdout + done.stderr


@pytest.mark.smoke("broken")
@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("design", "makes: plan.md", "mkes: plan.md", ["flows/big.yaml:7:3", "runs flow 'design', which has errors"]),
        ("design", "default: everything", "required: true", ["flows/big.yaml:7:3", "requires the param 'topic'"]),
        ("middle", "topic: keys", "topik: keys", ["flows/middle.yaml:5:3", "has no param 'topik'", "topic"]),
    ],
    ids=["broken", "without what it needs", "with what it does not know"],
)
def test_a_sub_flow_that_cannot_be_run_is_said_with_its_place_and_the_other_flows_run(big, name, old, new, words):
    text = {"design": DESIGN, "middle": MIDDLE}[name]
    big.flow(name, text.replace(old, new))
    big.flow("small", "flow: small\nsteps:\n  one: {prompt: One., makes: one.md}\n")

    done = big.doit("big", "--goal=house")

    said = done.stdout + done.stderr
    assert (done.returncode, big.calls(), big.runs(), "Traceback" in said) == (1, [], [], False), said
    told = said if name == "design" else said + big.doflow("validate").stdout
    assert all(word in told for word in words), told
    ran(big, "small", "--goal=x")
