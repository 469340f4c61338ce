"""`doflow validate`, `show` and `config`: problems are found with their place before anything runs."""

from __future__ import annotations

import json

import pytest
from tests.support.json_output import ASKING, ROUTED, looked
from tests.support.project import Project

# config


@pytest.mark.smoke
def test_config_says_where_each_value_came_from(project: Project):
    project.settings("budget: {usd: 20}\n")
    shown = project.doflow("config", "--json", env={"DOFLOW_SET_TIMEOUTS__IDLE": "5m"})

    settings = json.loads(shown.stdout)["settings"]
    assert settings["budget.usd"] == {"value": "20", "from": "doflow.yaml:3"}
    assert settings["timeouts.idle"] == {"value": "5m", "from": "DOFLOW_SET_TIMEOUTS__IDLE"}
    assert settings["layout"] == {"value": "specs", "from": "default"}
    assert "budget.usd" in project.doflow("config", "budget").stdout
    assert "layout" not in project.doflow("config", "budget").stdout


def test_config_of_broken_settings_says_where(project: Project):
    project.write("doflow.yaml", "agents: {default: {use: nobody}}\n")
    told = project.doflow("config")

    assert told.returncode == 1
    assert told.stderr.startswith("ERROR: doflow.yaml:1:")


# validate


def test_validate_of_a_good_project(project: Project):
    project.flow("asking", ASKING)
    told = project.doflow("validate")

    assert told.returncode == 0
    assert "ok  tiny  (packaged, 4 steps)\n" in told.stdout
    assert "ok  asking  (flows/asking.yaml, 3 steps)\n" in told.stdout


@pytest.mark.smoke
def test_validate_finds_every_problem_with_its_place(project: Project):
    project.flow("one", "flow: one\nsteps:\n  a: {prompt: x, makes: a.md, colour: red}\n")
    project.flow("two", "flow: two\nsteps:\n  a: {prompt: x, makes: a.md, after: [nobody]}\n")
    project.flow("three", "flow: three\nsteps:\n  a: {prompt: x, makes: a.md, agent: nobody}\n")
    project.settings("colour: red\n")

    told = project.doflow("validate")
    assert told.returncode == 1
    assert "ok  tiny" in told.stdout
    for place in ("flows/one.yaml:3:", "flows/two.yaml:3:", "flows/three.yaml:3:", "doflow.yaml:3:"):
        assert f"\n{place}" in told.stdout
    shown = json.loads(project.doflow("validate", "--json").stdout)
    assert shown["ok"] is False
    assert [problem["file"] for problem in shown["problems"] if not problem["file"].startswith("/")] == [
        *("doflow.yaml", "flows/one.yaml", "flows/two.yaml", "flows/three.yaml")
    ]
    assert all(problem["hint"] for problem in shown["problems"])


def test_validate_of_single_flows_and_files(project: Project):
    project.flow("bad", "flow: bad\nsteps: {}\n")
    project.write("drafts/new.yaml", "flow: new\nsteps:\n  a: {prompt: x, makes: a.md}\n")

    assert project.doflow("validate", "tiny").returncode == 0
    assert project.doflow("validate", "drafts/new.yaml").returncode == 0
    assert project.doflow("validate", "bad").returncode == 1
    assert project.doflow("validate", "doflow.yaml").returncode == 0
    told = project.doflow("validate", "tinny")
    assert (told.returncode, "did you mean tiny?" in told.stderr) == (1, True)


# show


@pytest.mark.smoke
def test_show_draws_a_flow(project: Project):
    project.flow("routed", ROUTED)

    assert "<> triage.route" in project.doflow("show", "routed").stdout
    assert project.doflow("show", "routed", "--format", "mermaid").stdout.startswith("flowchart TD\n")
    assert project.doflow("show", "routed", "--format", "dot").stdout.startswith("digraph routed {\n")
    assert project.doflow("show", "routed", "--format", "svg").stdout.startswith("<svg ")
    edges = looked(project, "show", "routed")["edges"]
    assert {"from": "routed:triage.route", "to": "routed:plan", "when": "LARGE"} in edges


def test_show_resolved_says_which_file_each_step_comes_from(project: Project):
    plan = "{prompt: Plan it., makes: plan.md, reads: [spec.md]}"
    project.flow("mine", f"flow: mine\nextends: tiny\nreplace:\n  plan: {plan}\n")

    rows = {row["step"]: row for row in looked(project, "show", "mine")["resolved"]}
    assert rows["plan"]["from"] == "flows/mine.yaml:4"
    assert rows["plan"]["prompt"] == "in the flow"
    assert rows["tasks"]["from"].startswith("packaged/tiny.yaml:")
    assert rows["tasks"]["prompt"] == "packaged/tasks.md"
    assert "flows/mine.yaml:4" in project.doflow("show", "mine", "--resolved").stdout


BASE = """\
    flow: base
    pipeline: [triage, big]
    steps:
      triage: {prompt: Say, makes: t.md, routes: [{when: "S: A", then: [small]}, {when: "S: B", then: [big]}]}
      big: {prompt: x, makes: big.md}
      small: {prompt: x, makes: small.md, after: [ground]}
      ground: {prompt: x, makes: ground.md}
"""


def test_a_step_that_nothing_leads_to_is_a_warning(project: Project):
    project.flow("base", BASE)
    project.flow("mine", "flow: mine\nextends: base\ninsert_after: {triage: {extra: {prompt: x, makes: e.md}}}\n")
    project.flow(
        "plain", "flow: plain\npipeline: [a]\nsteps:\n  a: {prompt: x, makes: a}\n  b: {prompt: x, makes: b}\n"
    )

    told = looked(project, "validate")
    shown = project.doflow("show", "mine")

    never = "never runs: neither the pipeline nor a route of"
    words = [f"step extra {never} mine leads to it", f"step b {never} plain leads to it"]
    assert [one["message"] for one in told["warnings"]] == words
    assert (told["warnings"][0]["file"], told["warnings"][0]["line"]) == ("flows/mine.yaml", 3)
    assert (shown.returncode, words[0] in shown.stderr) == (0, True)
    assert project.doflow("show", "base").stderr == ""


def test_show_of_a_flow_that_is_not_there(project: Project):
    project.flow("bad", "flow: bad\nsteps: {}\n")

    assert "did you mean tiny?" in project.doflow("show", "tinny").stderr
    told = project.doflow("show", "bad")
    assert (told.returncode, told.stderr.startswith("ERROR: flows/bad.yaml:2:")) == (1, True)


# --- what no run could do well


HEAD = "flow: small\nparams:\n  tone: {default: plain}\nprotect: [LICENSE]\nsteps:\n"


LATE = "  early: {prompt: Read., reads: [c.md], makes: b.md}\n  late: {prompt: Write., makes: c.md}"


PLACES = [
    ("  a: {prompt: x, makes: /flows/x.yaml}", "6:25", "agents may not write '/flows/x.yaml': /flows/ is protected"),
    ("  a: {prompt: x, makes: [b.md, /LICENSE]}", "6:32", "agents may not write '/LICENSE': LICENSE is protected"),
    ("  a: {prompt: x, makes: b.md, protect: '*.md'}", "6:25", "agents may not write 'b.md': *.md is protected"),
    ("  a: {prompt: x, makes: input.md}", "6:25", "'input.md' is written by doflow itself"),
    ("  a: {kind: shell, run: x, makes: doflow.lock}", "6:35", "'doflow.lock' is written by doflow itself"),
    ("  a: {kind: review, reads: [input.md], personas: [pm, nobody]}", "6:55", "unknown persona 'nobody'"),
    (
        "  a: {prompt: x, makes: b.md, only: {param: ton}}",
        "6:45",
        "param 'ton' is never set, so this step would never run",
    ),
    ("  a: {prompt: x, makes: b.md, only: {param: goal}}", "6:45", "param 'goal' is never set"),
    (LATE, "6:34", "'c.md' is only made by step 'late', which runs later"),
    ("  a: {prompt: x, reads: [b.md], makes: b.md}", "6:26", "'b.md' is only made by this step itself"),
    (
        "  a: {kind: implement, phases: t.md, prompt: x}\n  t: {prompt: x, makes: t.md}",
        "6:32",
        "'t.md' is only made by",
    ),
    ('  a: {prompt: x, makes: "{item}.md"}', "6:25", "{item} is not a param of this flow"),
    ('  a: {prompt: "{index}", makes: b.md}', "6:15", "{index} is not a param of this flow"),
    ('  a: {prompt: "{phase}", makes: b.md}', "6:15", "{phase} is not a param of this flow"),
    ('  a: {kind: shell, run: x, check: {run: "test {tonee}"}}', "6:41", "{tonee} is not a param of this flow"),
]


@pytest.mark.smoke(
    "agents may not write 'b.md': *.md is protected",
    "'doflow.lock' is written by doflow itself",
    "param 'goal' is never set",
    "'c.md' is only made by step 'late', which runs later",
)
@pytest.mark.parametrize(("steps", "place", "told"), PLACES, ids=[told for _, _, told in PLACES])
def test_what_could_never_go_well_is_refused_at_its_place(project: Project, steps: str, place: str, told: str) -> None:
    project.flow("small", HEAD + steps + "\n")

    for done in (project.doflow("validate", "small"), project.doit("small", "--goal=x")):
        assert done.returncode == 1, done.stdout
        assert f"flows/small.yaml:{place}: {told}" in done.stdout + done.stderr
        assert "hint: " in done.stdout + done.stderr
    assert (project.calls(), project.runs()) == ([], [])


def test_a_file_may_be_made_later_in_the_list_where_the_order_is_another(project: Project) -> None:
    text = LATE.replace("  late: {", "  late: {after: [], ")
    waits = text.replace("c.md]", "c.md], after: [late]")
    project.flow("waits", HEAD.replace("small", "waits") + waits + "\n")
    project.flow(
        "piped", HEAD.replace("small", "piped").replace("steps", "pipeline: [late, early]\nsteps") + text + "\n"
    )
    routed = '  go: {prompt: x, makes: g.md, routes: [{when: "A", then: [late, early]}, {when: "B", pause: Stop.}]}\n'
    project.flow(
        "routed", HEAD.replace("small", "routed").replace("steps", "pipeline: [go]\nsteps") + routed + LATE + "\n"
    )

    told = project.doflow("validate", "--strict", "waits", "piped", "routed")

    assert told.returncode == 0, told.stdout


@pytest.mark.smoke("agent", "protect")
@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("{prompt: x, makes: a.md, fallback: typo}", "names the agent 'typo'"),
        ("{prompt: x, makes: a.md, agent: typo}", "names the agent 'typo'"),
        ("{kind: review, reads: [input.md], personas: [pm], fixer: typo}", "names the agent 'typo'"),
        (
            "{prompt: x, makes: /docs/a.md}",
            "step a makes '/docs/a.md', which agents may not write: doflow.yaml protects",
        ),
    ],
    ids=["fallback", "agent", "fixer", "protect"],
)
def test_what_flow_and_settings_rule_out_together_is_refused(project: Project, step: str, told: str) -> None:
    project.flow("small", f"flow: small\nsteps:\n  a: {step}\n")
    project.settings("protect: ['docs/**']\n")
    project.commit("A flow")

    for done in (project.doflow("validate", "small"), project.doit("small", "--goal=x")):
        assert done.returncode == 1, done.stdout
        assert told in done.stdout + done.stderr
    assert (project.calls(), project.runs()) == ([], [])


def test_a_word_in_the_braces_of_a_command_that_is_no_param_is_a_warning(project: Project) -> None:
    run = "\"echo {zz} | awk '{print}'\""
    project.flow("small", f"flow: small\nsteps:\n  a: {{kind: shell, run: {run}, check: {{run: 'true {{yy}}'}}}}\n")

    told = project.doflow("validate", "small")

    assert told.returncode == 0
    assert [line for line in told.stdout.splitlines() if line.startswith("warning: ")] == [
        "warning: flows/small.yaml:3:3: step a: {zz} in `run` is not a param of small and is left unchanged",
        "warning: flows/small.yaml:3:3: step a: {yy} in `check.run` is not a param of small and is left unchanged",
    ]
    assert project.doit("small", "--goal=x").returncode == 0


def test_an_agent_that_is_not_there_is_told_where_it_is_named(project: Project) -> None:
    project.flow("small", "flow: small\ndefaults: {agent: nobody}\nsteps:\n  a: {prompt: x, makes: a.md}\n")
    more = "  a:\n    b: {prompt: x, makes: b.md, agent: typo}\n"
    project.flow("more", f"flow: more\nextends: small\ninsert_after:\n{more}")

    told = project.doflow("validate", "small", "more").stdout

    assert "flows/small.yaml:2:19: step a names the agent 'nobody'" in told
    assert "flows/more.yaml:5:40: step b names the agent 'typo'" in told


# --- settings that name a step which no flow has


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
