"""`doflow plan` and `doflow why`: what would run, what it would be told, and for which reason."""

from __future__ import annotations

import pytest
from tests.support.json_output import ASKING, ROUTED, looked, states
from tests.support.project import Project

# plan


def verdicts(project: Project, *words: str) -> dict[str, str]:
    return {row["step"]: row["verdict"] for row in looked(project, "plan", *words)["steps"]}


@pytest.mark.smoke
def test_plan_of_a_run_that_has_not_started(project: Project):
    assert verdicts(project, "tiny", "--goal=x") == dict.fromkeys(("specify", "plan", "tasks", "implement"), "runs")
    assert looked(project, "plan", "tiny", "--goal=x")["stops"] == []


def test_plan_says_what_would_stop_the_run(project: Project):
    (project.home / ".gitconfig").write_text("")

    stops = looked(project, "plan", "tiny")["stops"]
    assert "Git identity is not configured" in stops[0]
    assert '--goal="…" is needed' in stops[1]


def test_plan_tells_what_runs_from_what_may(done: Project):
    assert set(verdicts(done).values()) == {"up to date"}
    assert done.doflow("plan").stdout.endswith("nothing to run: everything is up to date\n")

    done.write("specs/001-log-in-by-a/plan.md", "# Mine\n")
    shown = looked(done, "plan")["steps"]
    assert [(row["step"], row["verdict"], row["maybe"]) for row in shown] == [
        ("specify", "up to date", ""),
        ("plan", "up to date", ""),
        ("tasks", "runs", ""),
        ("implement:1", "may run", "if tasks changes specs/001-log-in-by-a/tasks.md"),
        ("implement:2", "may run", "if tasks changes specs/001-log-in-by-a/tasks.md"),
    ]
    assert shown[2]["reasons"] == ["specs/001-log-in-by-a/plan.md was edited by hand"]


@pytest.mark.smoke
def test_what_plan_says_is_what_doit_does(done: Project):
    done.write("specs/001-log-in-by-a/spec.md", "# Spec\n\n## Requirements\n\nMine.\n")
    said = verdicts(done)
    done.forget_calls()
    assert done.doit("tiny").returncode == 0

    called = done.calls()
    assert [name for name, word in said.items() if word == "runs"] == ["plan", "tasks"]
    assert {name for name, word in said.items() if word != "up to date"} >= set(called) >= {"plan", "tasks"}
    assert set(verdicts(done).values()) == {"up to date"}


def test_plan_knows_what_doit_was_told_to_forget(done: Project):
    assert done.doit("forget", "tiny:plan").returncode == 0

    assert looked(done, "why", "plan")["reasons"] == ["forgotten with doit forget"]
    assert verdicts(done)["plan"] == "runs"


def test_plan_pauses_where_an_edit_is_in_the_way(done: Project):
    done.write("specs/001-log-in-by-a/plan.md", "# Mine\n")
    done.write("specs/001-log-in-by-a/spec.md", "# Spec\n\n## Requirements\n\nMine.\n")

    assert verdicts(done)["plan"] == "pauses"
    assert "has manual edits" in done.doflow("plan").stdout


def test_plan_of_a_router_that_has_not_answered(project: Project):
    project.flow("routed", ROUTED)

    assert verdicts(project, "routed", "--goal=x") == {"triage": "runs", "plan": "may run", "build": "may run"}
    told = project.doflow("plan", "routed", "--goal=x").stdout
    assert "triage says `SMALL`: build\n" in told
    assert "triage says `NONE`: pause: Nothing to do\n" in told


def test_plan_after_the_router_has_answered(project: Project):
    project.flow("routed", ROUTED)
    project.commit()
    project.agent('make("SMALL\\n")')
    assert project.doit("routed", "--goal=x").returncode == 0

    assert verdicts(project) == {"triage": "up to date", "triage.route": "up to date", "build": "up to date"}
    assert "plan is not on the route of this run" in project.doflow("why", "plan").stdout


@pytest.mark.smoke("implement:2")
@pytest.mark.parametrize("step", ["specify", "plan", "implement:2"])
def test_the_prompt_shown_is_the_prompt_sent(project: Project, step: str):
    """Of a run that has not started, of one in the middle, of a phase."""
    names = {"specify": 0, "plan": 1, "implement:2": 4}
    goal = "--goal=Log in by a link"
    stop = step.partition(":")[0]
    if step != "specify":
        project.agent(f'if step == "{stop}" and phase in ("", "2"): stop(1)\nusual()')
        assert project.doit("tiny", goal, env={"DOFLOW_SET_RETRY__ENABLED": "false"}).returncode == 1
    shown = project.doflow("plan", "tiny", goal, "--prompt", step)
    project.agent("usual()")
    project.forget_calls()
    for prompt in (project.outside / "prompts").iterdir():
        prompt.unlink()
    assert project.doit("tiny", goal).returncode == 0

    sent = project.prompts()[0]
    assert project.calls()[0] == step, names[step]
    assert shown.stdout == sent
    assert shown.stderr == f"{len(sent.encode()):,} bytes, about {len(sent.encode()) // 4:,} tokens, for default\n"


EACH = """\
flow: each
params: {goal: {about: What, required: true}}
steps:
  page: {prompt: "Write about {item}.", reads: [input.md], makes: "{item}.md", foreach: [cats, dogs]}
  check: {kind: review, reads: ["*s.md"], personas: [pm, critical]}
"""


VERDICTS = 'say("VERDICT: GO") if role == "persona" else usual()'


def test_items_and_reviews_are_told_one_by_one(project: Project):
    project.flow("each", EACH)
    project.commit()
    project.agent(VERDICTS)
    assert verdicts(project, "each", "--goal=x") == dict.fromkeys(("page:cats", "page:dogs", "check"), "runs")
    words = ("plan", "each", "--goal=x", "--prompt")
    shown = {name: project.doflow(*words, name).stdout for name in ("page", "page:dogs")}
    assert project.doit("each", "--goal=x").returncode == 0

    sent = dict(zip(project.calls(), project.prompts(), strict=True))
    assert sorted(sent) == ["check persona critical", "check persona pm", "page:cats", "page:dogs"]
    assert (shown["page"], shown["page:dogs"]) == (sent["page:cats"], sent["page:dogs"])
    assert set(verdicts(project).values()) == {"up to date"}
    asked = project.doflow("plan", "--prompt", "check:critical")
    assert asked.stdout == sent["check persona critical"]
    project.write("specs/001-x/dogs.md", "Mine.\n")
    assert states(project) == {"page:cats": "done", "page:dogs": "edited", "check": "stale"}
    assert looked(project, "why", "check")["reasons"] == ["specs/001-x/dogs.md was edited by hand"]
    assert looked(project, "why", "page:dogs")["makes"][0]["edited"] is True
    assert project.doflow("logs", "check").stdout == "VERDICT: GO\n"


def test_a_command_has_no_prompt(project: Project):
    project.flow("routed", ROUTED)
    told = project.doflow("plan", "routed", "--goal=x", "--prompt", "build")

    assert told.returncode == 1
    assert "build has no prompt: it runs a command: true" in told.stderr


def test_plan_asks_which_run_is_meant(project: Project):
    project.agent("stop(1)")
    for goal in ("one", "two"):
        project.git("switch", "-q", "main")
        project.doit("tiny", f"--goal={goal}", env={"DOFLOW_SET_RETRY__ENABLED": "false"})
    project.git("switch", "-q", "main")

    told = project.doflow("plan", "tiny")
    assert told.returncode == 1
    assert "tiny has 2 unfinished runs; which one do you mean?" in told.stderr


def test_plan_says_that_a_bad_list_of_items_fails_and_names_what_is_wrong_below(project: Project):
    each = "each: {prompt: 'Do {item_name}', foreach: list.yaml, makes: '{item_name}.md'}"
    project.flow("dev", f"flow: dev\nsteps:\n  list: {{prompt: x, makes: list.yaml}}\n  {each}\n")
    project.commit("A flow")
    project.agent("make('- {nam: x}\\n')")

    done = project.doit("dev", "--goal=x")
    told = project.doflow("plan").stdout.splitlines()

    assert done.returncode == 1
    assert told[3].startswith("  fails       each  you      step each uses {item_name}"), told
    assert told[4].startswith("  each: next: write `name: …` in every item; fix specs/001-x/list.yaml")
    assert told[5] == "1 to fail, 1 up to date"


# why


def test_why_names_the_edit_and_its_author(done: Project):
    done.write("specs/001-log-in-by-a/spec.md", "# Spec\n\n## Requirements\n\nMine.\n")

    shown = looked(done, "why", "plan")
    assert (shown["state"], shown["reasons"]) == ("stale", ["specs/001-log-in-by-a/spec.md was edited by hand"])
    assert [(read["path"], read["author"], read["changed"]) for read in shown["reads"]] == [
        ("specs/001-log-in-by-a/spec.md", "person", True)
    ]
    assert [(made["path"], made["author"], made["edited"]) for made in shown["makes"]] == [
        ("specs/001-log-in-by-a/plan.md", "agent", False)
    ]
    told = done.doflow("why", "tiny:plan").stdout
    assert "  because specs/001-log-in-by-a/spec.md was edited by hand\n" in told
    assert "  reads specs/001-log-in-by-a/spec.md: by person, changed since\n" in told


def test_why_says_up_to_date(done: Project):
    for step in ("plan", "tiny:plan", "implement:2", "tiny:implement:2", "implement"):
        told = done.doflow("why", step)
        assert told.returncode == 0, told.stderr
        assert ": up to date\n" in told.stdout


def test_why_shows_what_is_not_paid_for(done: Project):
    done.settings(agent="model: bigger")

    shown = looked(done, "why", "plan")
    assert shown["fresh"] is True
    assert shown["remarks"] == ["its agent was default, now default bigger"]
    assert "(not run again for this; to run it again: doit tiny --force=plan)" in done.doflow("why", "plan").stdout


def test_why_of_a_changed_phase_names_the_section(done: Project):
    tasks = done.read("specs/001-log-in-by-a/tasks.md")
    done.write("specs/001-log-in-by-a/tasks.md", tasks.replace("Build the house", "Build a tower"))

    assert looked(done, "why", "implement:1")["fresh"] is True
    assert looked(done, "why", "implement:2")["reasons"] == ["its section changed"]


def test_what_implement_reads_is_shown_to_its_agents_and_makes_no_phase_stale(done: Project):
    path = done.run_dir() / "spec.md"
    path.write_text(path.read_text() + "\nMore.\n")
    done.doit("tiny")
    done.forget_calls()

    why = done.doflow("why", "implement:1").stdout

    assert "implement:1" in why.splitlines()[0] and "up to date" in why.splitlines()[0], why
    assert "spec.md: by person (shown to the agent; changes do not invalidate the phase)" in why
    assert (done.doit("tiny").returncode, done.calls()) == (0, [])


def test_why_of_a_step_in_phases_tells_of_each_phase_below_it(done: Project):
    told = done.doflow("why", "implement").stdout.split("implement:2 (")

    assert len(told) == 2
    assert all(part.count("  last completed: ") == 1 for part in told)


def test_why_of_a_gate(project: Project):
    project.flow("asking", ASKING)
    project.commit()
    project.doit("asking", "--goal=x")

    assert looked(project, "why", "plan.gate")["reasons"] == ["Good plan?"]
    assert "plan.gate (asking, run 001-x): waiting for you" in project.doflow("why", "plan.gate").stdout
    assert "passed" in project.doflow("why", "spec.clarify").stdout


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("plam", "hint: did you mean plan?"),
        ("implement:9", "has no phase 9"),
        ("plan.gate", "tiny has no plan.gate (known: plan)"),
    ],
)
def test_why_of_what_is_not_there(done: Project, step: str, words: str):
    told = done.doflow("why", step)

    assert (told.returncode, told.stdout) == (1, "")
    assert words in told.stderr


def test_why_tells_a_file_that_never_was_from_one_that_is_gone(project: Project):
    flow = "flow: one\nsteps:\n  plan: {prompt: Plan it., makes: plan.md}\n"
    project.flow("one", flow)
    project.commit("A flow")
    assert project.doit("one", "--goal=x").returncode == 0
    (project.run_dir() / "plan.md").unlink()
    assert "specs/001-x/plan.md is gone" in project.doflow("why", "plan").stdout
    project.git("checkout", "-q", "--", ".")
    project.flow("one", flow.replace("plan.md", "plan2.md"))

    told = project.doflow("why", "plan").stdout

    assert "specs/001-x/plan2.md does not exist" in told and "is gone" not in told
