"""The commands that only look: what they say, what they never write, and the exit codes of the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.project import PROGRAMS, Project, clean_environment, eventually

ASKING = """\
flow: asking
params: {goal: {about: What, required: true}}
steps:
  spec: {prompt: Write it., reads: [input.md], makes: spec.md, clarify: true}
  plan: {prompt: Plan it., reads: [spec.md], makes: plan.md, gate: Good plan?}
  code: {kind: implement, phases: plan.md, prompt: Code it.}
"""
ROUTED = """\
flow: routed
params: {goal: {about: What, required: true}}
steps:
  triage:
    prompt: How big?
    reads: [input.md]
    makes: triage.md
    routes: [{when: SMALL, then: [build]}, {when: LARGE, then: [plan, build]}, {when: NONE, pause: Nothing to do}]
  plan: {prompt: Plan it., reads: [input.md], makes: plan.md}
  build: {kind: shell, run: ["true"]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def done(project: Project) -> Project:
    """A project with one finished run."""
    assert project.doit("tiny", "--goal=Log in by a link").returncode == 0
    return project


def everything(root: Path) -> dict[str, tuple[int, int]]:
    """Every path of the project, .git and .doflow included, with its size and time."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in (*names, "."):
            stat = os.lstat(os.path.join(folder, name))
            found[os.path.join(folder, name)] = (stat.st_size, stat.st_mtime_ns)
    return found


def looked(project: Project, *words: str) -> dict:
    shown = project.doflow(*words, "--json")
    assert (shown.returncode, shown.stderr) == (0, "")
    return json.loads(shown.stdout)


def states(project: Project, run: str = "1") -> dict[str, str]:
    return {row["step"]: row["state"] for row in looked(project, "status", run)["steps"]}


# the command line itself


@pytest.mark.smoke
def test_without_words_it_lists_every_verb(project: Project):
    plain, asked = project.doflow(), project.doflow("--help")

    assert plain.stdout == asked.stdout
    assert (plain.returncode, asked.returncode) == (0, 0)
    for verb in ("init", "demo", "run", "status", "plan", "why", "approve", "logs", "show", "validate", "config"):
        assert f"\n  {verb} " in plain.stdout


def test_every_verb_has_help_with_examples(project: Project):
    from doflow.cli import main

    for verb in main.VERBS:
        told = project.doflow(verb, "--help")
        assert told.returncode == 0, verb
        assert f"usage: doflow {verb}" in told.stdout
        assert "examples:" in told.stdout


def test_the_version_is_told(project: Project):
    from doflow.util.version import VERSION

    assert project.doflow("--version").stdout == f"doflow {VERSION}\n"


def test_a_mistyped_verb_is_an_error_that_names_the_right_one(project: Project):
    told = project.doflow("staus")

    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == "ERROR: unknown command: 'staus'\n  hint: did you mean: doflow status\n"


BAD = [("status", "--nonsense"), ("why",), ("logs", "--attempt", "x"), ("show", "--format", "png")]


@pytest.mark.smoke("words0")
@pytest.mark.parametrize("words", BAD)
def test_bad_arguments_never_look_like_a_pause(project: Project, words: tuple[str, ...]):
    told = project.doflow(*words)

    assert (told.returncode, told.stdout) == (1, "")
    assert f"hint: doflow {words[0]} --help" in told.stderr


@pytest.mark.smoke
def test_with_json_an_error_is_one_object_on_stderr(project: Project):
    told = project.doflow("status", "77", "--json")

    assert (told.returncode, told.stdout) == (1, "")
    found = json.loads(told.stderr)
    assert found.pop("at")
    assert found == {
        "event": "error",
        "run": "",
        "message": "no run named 77 (runs: none yet)",
        "hint": "doflow status lists them",
    }


def test_a_reader_that_goes_away_is_no_news(done: Project):
    for _ in range(3):
        started = done.start("doflow", "show", "tiny", "--format", "svg")
        assert started.stdout is not None
        started.stdout.close()
        assert started.wait(60) in (0, 1)
        assert started.stderr is not None
        assert started.stderr.read() == ""


def test_looking_does_not_import_the_heavy_libraries(project: Project):
    heavy = "{'argparse', 'yaml', 'doit', 'git'}"
    code = f"import sys; from doflow.cli import main as cli; cli.main(['--help']); print(sorted({heavy} & set(sys.modules)))"
    shown = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, env=project.env, check=True)

    assert shown.stdout.splitlines()[-1] == "[]"


@pytest.mark.smoke
def test_nothing_that_looks_writes_anything(done: Project):
    done.write("specs/001-log-in-by-a/spec.md", "# Spec\n\n## Requirements\n\nMine.\n")
    before = everything(done.root)

    for words in (
        *(("status",), ("status", "1"), ("plan",), ("plan", "tiny", "--goal=Another"), ("plan", "--prompt", "plan")),
        *(("why", "plan"), ("why", "implement"), ("config",), ("validate", "tiny")),
        *(("show", "tiny"), ("logs",), ("logs", "plan")),
    ):
        assert done.doflow(*words).returncode == 0, words
    assert everything(done.root) == before


# status


def test_status_without_a_run_says_how_to_start_one(project: Project):
    told = project.doflow("status")

    assert told.returncode == 0
    assert told.stdout.startswith('No runs yet. Start one: doit FLOW --goal="…"')


@pytest.mark.smoke
def test_status_of_a_finished_run(done: Project):
    row = looked(done, "status")["runs"][0]

    assert row == {
        "run": "001-log-in-by-a", "flow": "tiny", "status": "completed", "died": False, "changed": False,
        "completed": 4, "steps": 4, "branch": "001-log-in-by-a", "goal": "Log in by a link", "dir": "specs/001-log-in-by-a",
        "current": True, "waits": "", "next": "",
    }  # fmt: skip
    detail = looked(done, "status", "1")
    assert (detail["waits"], detail["next"]) == ("", "")
    assert [(step["step"], step["state"]) for step in detail["steps"]] == [
        (name, "done") for name in ("specify", "plan", "tasks", "implement:1", "implement:2")
    ]
    commits = done.git("log", "--format=%H").split()
    assert all(step["commit"] in commits for step in detail["steps"])
    assert done.doflow("status", "001-log-in-by-a").stdout.endswith("nothing to do\n")


def test_status_tells_an_edit_from_what_it_makes_stale(done: Project):
    done.write("specs/001-log-in-by-a/plan.md", "# Mine\n")

    assert states(done) == {
        "specify": "done", "plan": "edited", "tasks": "stale", "implement:1": "done", "implement:2": "done",
    }  # fmt: skip
    told = done.doflow("status", "1").stdout
    assert "completed (changed since)" in told
    assert "may run, if tasks changes specs/001-log-in-by-a/tasks.md" in told
    assert told.endswith("next: doit tiny\n")


@pytest.mark.smoke
def test_status_names_the_gate_and_the_command_that_passes_it(project: Project):
    project.flow("asking", ASKING)
    project.commit()
    assert project.doit("asking", "--goal=x").returncode == 2

    row = looked(project, "status")["runs"][0]
    assert (row["status"], row["waits"]) == ("awaiting-approval", "Good plan? (specs/001-x/plan.md)")
    assert row["next"].startswith("doflow approve plan   or   doflow reject plan")
    assert states(project) == {"spec": "done", "plan": "done", "plan.gate": "asks", "code:all": "waiting"}


def test_status_shows_open_questions(project: Project):
    project.flow("asking", ASKING)
    project.commit()
    project.agent('make("# Spec\\n\\n[NEEDS CLARIFICATION: Which mail?]\\n")')
    assert project.doit("asking", "--goal=x").returncode == 2

    told = project.doflow("status", "1").stdout
    assert "waits: spec asks:\n  1. Which mail?\nnext: doflow answer   then: doit asking\n" in told


def test_status_of_a_failed_run_says_why_and_what_next(project: Project):
    project.agent('if step == "plan": stop(3)\nusual()')
    assert project.doit("tiny", "--goal=x", env={"DOFLOW_SET_RETRY__ENABLED": "false"}).returncode == 1

    row = looked(project, "status")["runs"][0]
    assert row["status"] == "failed"
    assert "exit code 3" in row["waits"]
    assert states(project) == {"specify": "done", "plan": "next", "tasks": "waiting", "implement": "waiting"}


def test_a_failed_run_keeps_its_reason_when_something_else_is_told_after_it(project: Project):
    project.agent('if step == "plan": stop(3)\nusual()')
    assert project.doit("tiny", "--goal=x", env={"DOFLOW_SET_RETRY__ENABLED": "false"}).returncode == 1
    with (project.root / ".doflow/runs/001-x/events.jsonl").open("a") as ledger:
        ledger.write('{"event":"warning","at":"2026-01-01T00:00:00.000Z","run":"001-x","message":"by the way"}\n')

    row = looked(project, "status")["runs"][0]
    assert (row["waits"].startswith("plan: "), "exit code 3" in row["waits"]) == (True, True)
    assert row["next"].endswith("then: doit tiny")


def test_from_another_branch_every_command_that_status_tells_goes_there_first(project: Project):
    project.flow("asking", ASKING)
    project.commit()
    assert project.doit("asking", "--goal=x").returncode == 2
    project.git("switch", "-q", "main")

    told = looked(project, "status")["runs"][0]["next"]
    there = "git switch 001-x && "
    assert told == (
        f"{there}doflow approve plan   or   {there}doflow reject plan --note '…'   then: {there}doit asking"
    )


def test_a_run_whose_rest_was_adopted_is_completed(project: Project):
    project.flow("two", "flow: two\nsteps:\n  a: {prompt: Do., makes: a.md}\n  b: {kind: shell, run: ['false']}\n")
    project.commit()
    assert project.doit("two", "--goal=x").returncode == 1
    assert project.doflow("adopt", "b", "--anyway").returncode == 0

    row = looked(project, "status")["runs"][0]
    assert (row["status"], row["waits"], row["next"]) == ("completed", "", "")


def test_outside_a_project_it_says_how_to_make_one(project: Project, tmp_path: Path):
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()

    assert "doflow init" in project.doflow("status", cwd=nowhere).stdout
    assert "doflow init" in project.doflow("plan", cwd=nowhere).stderr


def test_a_refusal_before_there_is_a_run_asks_for_the_same_command(project: Project):
    (project.home / ".gitconfig").write_text("")

    told = project.doit("tiny", "--goal=x", env={"GIT_CONFIG_GLOBAL": os.devnull, "EMAIL": ""}).stdout
    assert "Git identity is not configured" in told
    assert "then the same command again" in told
    assert "then: doit tiny" not in told


def test_a_lost_pipeline_state_is_derived(done: Project):
    (done.root / ".doflow/runs/001-log-in-by-a/pipeline-state.json").unlink()

    assert looked(done, "status")["runs"][0]["status"] == "completed"


def test_a_clone_knows_what_is_done(done: Project, tmp_path: Path):
    done.git("clone", "-q", str(done.root), str(tmp_path / "clone"))
    shown = done.doflow("status", "--json", cwd=tmp_path / "clone")

    row = json.loads(shown.stdout)["runs"][0]
    assert (row["status"], row["completed"], row["next"]) == ("completed", 4, "")


def test_a_run_on_another_branch_is_told_from_its_records(done: Project):
    done.git("switch", "-q", "main")

    row = looked(done, "status")["runs"][0]
    assert (row["status"], row["current"]) == ("completed", False)
    told = done.doflow("status", "1").stdout
    assert "its files are on branch 001-log-in-by-a, which is not checked out" in told
    assert set(states(done).values()) == {"done"}


def test_status_works_while_a_run_holds_the_lock_and_says_who_does(project: Project):
    project.agent('if step == "plan": time.sleep(60)\nusual()')
    started = project.start("doit", "tiny", "--goal=x")
    try:
        assert eventually(lambda: project.calls() == ["specify", "plan"])
        shown = looked(project, "status")
        assert shown["holder"]["pid"] == started.pid
        assert (shown["runs"][0]["status"], shown["runs"][0]["died"]) == ("active", False)
        assert states(project)["plan"] == "running"
        assert f"working now: pid {started.pid}" in project.doflow("status", "1").stdout
    finally:
        started.kill()
        started.communicate(timeout=60)


def test_a_killed_run_is_told_as_dead_with_the_command_that_goes_on(project: Project):
    project.agent('if step == "plan": time.sleep(60)\nusual()')
    started = project.start("doit", "tiny", "--goal=x")
    assert eventually(lambda: project.calls() == ["specify", "plan"])
    started.kill()
    started.communicate(timeout=60)
    assert eventually(lambda: looked(project, "status")["holder"] is None)

    row = looked(project, "status")["runs"][0]
    assert (row["status"], row["died"], row["next"]) == ("active", True, "doit tiny")
    assert "died" in project.doflow("status", "1").stdout
    project.agent("usual()")
    assert project.doit("tiny").returncode == 0


def test_asking_never_makes_a_run_believe_that_somebody_works(done: Project):
    """The lock is only looked at; a run that starts in that moment still gets it."""
    code = "import sys; from pathlib import Path; from doflow.runs import mutex\nwhile True: mutex.is_held(Path(sys.argv[1]))"
    asking = subprocess.Popen((sys.executable, "-c", code, str(done.root)))
    try:
        time.sleep(0.2)
        codes = [done.doit("tiny", "--force=plan").returncode for _ in range(4)]
    finally:
        asking.kill()
        asking.wait()
    assert codes == [0, 0, 0, 0]


@pytest.mark.smoke
def test_hostile_text_in_a_goal_cannot_reach_the_terminal(project: Project):
    assert project.doit("tiny", "--goal=red \x1b[31m and \u202e back").returncode == 0

    for words in (("status",), ("status", "1"), ("plan",)):
        told = project.doflow(*words).stdout
        assert "\x1b" not in told
        assert "\u202e" not in told
    assert "\\x1b[31m" in project.doflow("status").stdout


# plan


def verdicts(project: Project, *words: str) -> dict[str, str]:
    return {row["step"]: row["verdict"] for row in looked(project, "plan", *words)["steps"]}


@pytest.mark.smoke
def test_plan_of_a_run_that_has_not_begun(project: Project):
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
    """Of a run that has not begun, of one in the middle, of a phase."""
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


def test_gates_that_were_passed_count_as_done(project: Project):
    project.flow("inner", "flow: inner\nsteps:\n  draft: {prompt: Draft., makes: draft.md}\n")
    project.flow(
        "work",
        """
        flow: work
        steps:
          a: {prompt: Write., makes: a.md}
          ok: {kind: gate, reads: [a.md], gate: Build it?}
          design: {kind: flow, flow: inner, gate: Design good?}
          b: {prompt: Write., makes: b.md}
        """,
    )
    project.commit("A flow")
    assert project.doit("work", "--goal=x").returncode == 2
    assert [(row["completed"], row["steps"]) for row in looked(project, "status")["runs"]] == [(1, 5)]
    for gate in ("ok", "design"):
        assert project.doflow("approve", gate).returncode == 0
        project.doit("work")

    assert project.state()["completed"] == project.state()["pipeline"] == ["a", "ok", "design/draft", "design", "b"]
    assert "completed  5/5" in project.doflow("status").stdout
    assert project.doflow("verify").returncode == 0
    (project.run_dir() / "a.md").write_text("# Mine\n")
    assert project.doit("work").returncode == 2, "a yes to something else does not count"
    assert project.state()["completed"] == ["a", "design/draft", "design", "b"]


# logs


LOGGED = """
    flow: work
    defaults: {retry: {attempts: 1, backoff: 0s}}
    steps:
      a: {prompt: Write., makes: a.md}
"""


@pytest.mark.smoke
def test_logs_lists_and_prints_what_was_said(done: Project):
    listed = looked(done, "logs")["logs"]
    assert {row["step"] for row in listed} == {"specify", "plan", "tasks", "implement:1", "implement:2"}

    assert done.doflow("logs", "plan").stdout == "plan is done\n"
    assert done.doflow("logs", "tiny:implement:1").stdout == "implement:1 is done\n"
    assert done.doflow("logs", "implement").stdout == "implement:2 is done\n"


def test_logs_of_one_attempt_and_of_the_complaints(project: Project):
    project.agent('print("bad" if nth == 0 else "good"); print("oh", file=sys.stderr)\nif nth == 0: stop(1)\nusual()')
    assert project.doit("tiny", "--goal=x", env={"DOFLOW_SET_RETRY__ENABLED": "false"}).returncode in (0, 1)

    assert project.doflow("logs", "specify", "--attempt", "1").stdout.startswith("bad\n")
    assert project.doflow("logs", "specify", "--err").stdout == "oh\n"
    told = project.doflow("logs", "specify", "--attempt", "9")
    assert (told.returncode, "has no log of specify, attempt 9" in told.stderr) == (1, True)


def test_the_logs_of_an_earlier_command_stay_and_attempts_are_numbered_on(project: Project):
    project.flow("work", LOGGED)
    project.commit("A flow")
    project.agent("say(f'call {len(before)}'); stop(1)")
    for _ in range(2):
        assert project.doit("work", "--goal=x").returncode == 1

    said = [project.doflow("logs", "a", "--attempt", str(number)).stdout for number in (1, 2, 3, 4)]
    missing = project.doflow("logs", "a", "--attempt", "5")

    assert said == [f"call {number}\n" for number in range(4)]
    told = [entry["log"] for entry in project.events() if entry["event"] == "call_ended"]
    assert [project.read(path) for path in told] == said, "the ledger names each call's own log"
    assert (missing.returncode, "its attempts: 1, 2, 3, 4" in missing.stderr) == (1, True), missing.stderr
    assert project.doflow("logs", "a").stdout == "call 3\n"


def test_each_repair_has_a_log_of_its_own(project: Project):
    project.flow("work", LOGGED.replace("makes: a.md", "makes: a.md, check: {headings: [Good]}, repair: 2"))
    project.commit("A flow")
    project.agent("make('# Bad\\n'); say(f'call {len(before)}')")
    for _ in range(2):
        assert project.doit("work", "--goal=x").returncode == 1

    told = [entry["log"] for entry in project.events() if entry["event"] == "call_ended"]
    assert len(told) == len(project.calls()) == len(set(told))
    assert [project.read(path) for path in told] == [f"call {number}\n" for number in range(len(told))]


def test_the_logs_of_commands_and_reviewers_stay_too(project: Project):
    project.flow(
        "work",
        """
        flow: work
        defaults: {retry: {attempts: 0}}
        steps:
          t: {kind: shell, run: "echo hello; test -e go"}
          look: {kind: review, reads: [input.md], personas: [ann], rounds: 1}
        """,
    )
    project.commit("A flow")
    project.agent("say('no verdict')")
    for _ in range(2):
        assert project.doit("work", "--goal=x").returncode == 1
    project.write("go", "")
    project.commit("Go")
    for _ in range(2):
        assert project.doit("work").returncode == 1

    names = {path.name for path in (project.root / ".doflow/runs/001-x/logs").iterdir()}
    assert {"t.1.log", "t.2.log", "t.3.log"} <= names
    told = [entry["log"] for entry in project.events() if entry["event"] == "call_ended"]
    assert len(told) == len(project.calls()) == len(set(told)) >= 2, told


def test_the_log_of_a_mended_command_is_its_own_output(project: Project):
    project.flow("work", 'flow: work\nsteps:\n  t: {kind: shell, run: "echo hello; test -e go", repair: 2}\n')
    project.commit("A flow")
    project.agent("say('mended'); put('go', '')")
    assert project.doit("work", "--goal=x").returncode == 0

    first, last = project.doflow("logs", "t", "--attempt", "1"), project.doflow("logs", "t")
    mended = project.doflow("logs", "t", "--role", "repair")

    assert (first.stdout, last.stdout, mended.stdout) == ("hello\n", "hello\n", "mended\n")


def test_nobody_is_sent_to_the_log_of_a_command_that_said_nothing(project: Project):
    project.flow("work", "flow: work\nsteps:\n  t: {kind: shell, run: [test, -e, go], repair: 1}\n")
    project.commit("A flow")
    project.agent("say('I looked')")

    done = project.doit("work", "--goal=x")
    silent = project.doflow("logs", "t")

    assert done.returncode == 1 and "doflow logs" not in done.stdout, done.stdout
    assert (silent.returncode, silent.stdout) == (0, "")
    assert silent.stderr == "t printed nothing\n  output of its agent: doflow logs t --role repair\n"


def test_an_empty_log_is_told_in_words(project: Project):
    project.agent('print("oh", file=sys.stderr)\nmake("# Spec\\n\\n## Requirements\\n\\nAll.\\n")\nstop(0)')
    project.doit("tiny", "--goal=x", "--next")

    silent = project.doflow("logs", "specify")
    assert (silent.returncode, silent.stdout) == (0, "")
    assert silent.stderr == (
        "specify printed nothing on standard output (attempt 1)\n  its standard error: doflow logs specify --attempt 1 --err\n"
    )
    project.agent("usual()")
    project.doit("tiny", "--next")
    assert project.doflow("logs", "plan", "--err").stderr.startswith(
        "plan printed nothing on standard error (attempt 1)\n"
    )


def test_logs_are_harmless(project: Project):
    project.agent('say("\\x1b]0;owned\\x07 \\u202e evil\\rgone")\nusual()')
    assert project.doit("tiny", "--goal=x").returncode == 0

    told = project.doflow("logs", "specify").stdout
    assert told.startswith("\\x1b]0;owned\\x07 \\u202e evil\\x0dgone\n")


def test_a_log_as_one_json_document(project: Project):
    project.agent('say("\\x1b]0;owned\\x07 \\u202e")\nusual()')
    assert project.doit("tiny", "--goal=x").returncode == 0

    told = looked(project, "logs", "specify")

    assert told["text"] == "\x1b]0;owned\x07 \u202e\nspecify is done\n"
    assert (told["run"], told["step"], told["attempt"], told["err"]) == ("001-x", "specify", 1, False)
    assert looked(project, "logs", "specify", "--err")["text"] == ""
    assert "one object per line" in project.doflow("logs", "--help").stdout


def test_a_followed_log_is_one_json_object_per_line(project: Project):
    project.agent('say("first")\nif step == "specify": time.sleep(1)\nusual()')
    started = project.start("doit", "tiny", "--goal=x")
    assert eventually(lambda: project.calls()[:1] == ["specify"])

    lines = project.doflow("logs", "specify", "--follow", "--json").stdout.splitlines()

    assert "".join(json.loads(line)["text"] for line in lines) == "first\nspecify is done\n"
    assert started.wait(60) == 0


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


def test_a_log_that_is_a_link_is_not_followed(done: Project):
    secret = done.home / "secret"
    secret.write_text("secret\n")
    log = done.root / ".doflow/runs/001-log-in-by-a/logs/plan.1.log"
    log.unlink()
    log.symlink_to(secret)

    told = done.doflow("logs", "plan")
    assert told.returncode == 1
    assert "secret\n" not in told.stdout


def test_logs_follow_a_step_until_the_run_ends(project: Project):
    project.agent("""
        say("first")
        while not (outside / "go").exists():
            time.sleep(0.02)
        say("last")
        usual()
    """)
    started = project.start("doit", "tiny", "--goal=x")
    assert eventually(lambda: project.calls() == ["specify"])
    following = project.start("doflow", "logs", "specify", "--follow")
    assert following.stdout is not None
    assert following.stdout.readline() == "first\n"
    assert started.poll() is None
    (project.outside / "go").touch()

    assert following.communicate(timeout=60)[0] == "last\nspecify is done\n"
    assert following.returncode == 0
    assert started.wait(60) == 0


def test_an_interrupted_follow_ends_with_130(project: Project):
    project.agent('say("first")\ntime.sleep(60)')
    started = project.start("doit", "tiny", "--goal=x")
    try:
        assert eventually(lambda: project.calls() == ["specify"])
        following = project.start("doflow", "logs", "specify", "--follow")
        assert following.stdout is not None
        assert following.stdout.readline() == "first\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 130
        assert following.stderr is not None
        assert following.stderr.read() == ""
    finally:
        started.kill()
        started.communicate(timeout=60)


# init


def bare(tmp_path: Path) -> Project:
    """A repository that knows nothing of doflow."""
    made = Project(tmp_path)
    for name in made.tree():
        (made.root / name).unlink()
    made.commit()
    return made


@pytest.mark.smoke
def test_init_makes_a_project_that_runs(tmp_path: Path):
    project = bare(tmp_path)
    told = project.doflow("init", "--agent", "rehearsal", "--flow", "release")

    assert told.returncode == 0, told.stderr
    assert "wrote dodo.py\nwrote doflow.yaml\n" in told.stdout
    assert 'git add dodo.py doflow.yaml flows/release.yaml .gitignore && git commit -m "Add doflow"' in told.stdout
    assert project.doflow("validate", "release", "doflow.yaml").returncode == 0
    project.commit()
    assert project.doit("tiny", "--goal=x").returncode == 0
    project.git("switch", "-q", "main")
    assert project.doit("release", "--goal=y").returncode == 2


def test_init_twice_changes_nothing(tmp_path: Path):
    project = bare(tmp_path)
    project.doflow("init", "--flow", "release")
    before = project.tree()
    told = project.doflow("init", "--flow", "release", "--agent", "rehearsal")

    assert (told.returncode, project.tree()) == (0, before)
    for name in ("dodo.py", "doflow.yaml", "flows/release.yaml"):
        assert f"{name} already exists" in told.stdout


def test_init_leaves_a_dodo_file_of_your_own_alone(tmp_path: Path):
    project = bare(tmp_path)
    project.write("dodo.py", "def task_mine():\n    return {'actions': []}\n")
    told = project.doflow("init")

    assert project.read("dodo.py").startswith("def task_mine")
    assert "Add these two lines to it:\n    import doflow\n    globals().update(doflow.dodo())\n" in told.stdout


def test_init_says_which_agent_it_chose_and_why(tmp_path: Path):
    project = bare(tmp_path)
    told = project.doflow("init", env={"PATH": f"{PROGRAMS}:/usr/bin:/bin"})

    assert "agent: rehearsal (none of claude, codex, opencode, gemini is on your PATH" in told.stdout
    assert project.doflow("config", "agents.default.use").stdout.split()[-2:] == ["rehearsal", "doflow.yaml:3"]


def test_init_outside_of_git_is_refused_and_writes_nothing(tmp_path: Path):
    project = Project(tmp_path, git=False)
    for path in project.root.iterdir():
        path.unlink()
    project.env["GIT_CEILING_DIRECTORIES"] = str(tmp_path)  # whatever stands in the system's temporary folder
    told = project.doflow("init")

    assert told.returncode == 1
    assert "is not in a git repository" in told.stderr
    assert f"git -C '{project.root}' init" in told.stderr
    assert project.tree() == {}


@pytest.mark.parametrize("words", [("--agent", "clod"), ("--flow", "list"), ("--flow", "Bad Name")])
def test_init_with_bad_words_writes_nothing(tmp_path: Path, words: tuple[str, ...]):
    project = bare(tmp_path)
    told = project.doflow("init", *words)

    assert (told.returncode, project.tree()) == (1, {})
    assert "hint: " in told.stderr


# demo


@pytest.mark.smoke
def test_the_demo_needs_no_identity_no_network_and_touches_nothing(tmp_path: Path):
    """Also from inside another repository, with git variables that lead elsewhere."""
    project = Project(tmp_path)
    before = everything(project.root)
    env = clean_environment(tmp_path / "nobody")
    env |= {"TMPDIR": str(tmp_path / "tmp"), "GIT_DIR": str(project.root / ".git")}
    (tmp_path / "tmp").mkdir()
    words = (PROGRAMS / "doflow", "demo", "--remove")
    told = subprocess.run(words, cwd=project.root, env=env, capture_output=True, text=True, timeout=60, check=False)

    assert (told.returncode, told.stderr) == (0, "")
    assert "done: 001-let-people-log-in (feature)" in told.stdout
    assert "Doflow-Step: implement Doflow-Phase: 3" in told.stdout
    assert told.stdout.index("running the same command again") < told.stdout.rindex("-- feature:specify")
    assert everything(project.root) == before
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_demo_that_the_path_does_not_know_names_its_programs_in_full(project: Project, tmp_path: Path):
    way = os.pathsep.join(name for name in project.env["PATH"].split(os.pathsep) if not Path(name, "doflow").exists())
    told = project.doflow("demo", "--dir", str(tmp_path / "try"), env={"PATH": way})

    assert f"\n  {PROGRAMS / 'doflow'} status 1 " in told.stdout
    assert f"\n  {PROGRAMS / 'doit'} feature " in told.stdout


def test_a_kept_demo_is_a_project_to_play_with(project: Project, tmp_path: Path):
    told = project.doflow("demo", "--dir", str(tmp_path / "try"))

    assert told.returncode == 0
    assert f"the project is in {tmp_path / 'try'}" in told.stdout
    assert ("\n  doflow status 1 " in told.stdout, "log --reverse --no-color --format=…\n" in told.stdout) == (
        True,
        True,
    )
    shown = json.loads(project.doflow("status", "--json", cwd=tmp_path / "try").stdout)
    assert [row["status"] for row in shown["runs"]] == ["completed"]
    assert (tmp_path / "try" / "__pycache__").exists(), "doit leaves it, and a new user is not to stumble over it"
    assert project.git("status", "--porcelain", cwd=tmp_path / "try") == ""
    again = project.doflow("demo", "--dir", str(tmp_path / "try"))
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
