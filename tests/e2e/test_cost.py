"""What agents used is written down call by call and added up: `doflow cost`, the lock, the forecast of `doflow plan`."""

from __future__ import annotations

import json
import signal

import pytest
from tests.support.project import Project, eventually

FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      plan: {prompt: Write a plan., makes: plan.md}
      check: {kind: review, prompt: Look., reads: [plan.md], personas: [ann, bob], rounds: 1}
      build: {prompt: Build on the plan., reads: [plan.md], makes: built.md}
"""
TELLS = """
import json, sys

def uses(taken, given, cached=0, usd=None, model=""):
    said = {"in": taken, "out": given, "cached": cached, "usd": usd, "model": model}
    print("USAGE: " + json.dumps(said), file=sys.stderr, flush=True)

def work():
    if role == "persona":
        say("VERDICT: GO")
    else:
        usual()
"""


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    return project


def ended(project: Project) -> list[dict]:
    return [entry for entry in project.events() if entry["event"] == "call_ended"]


def costs(project: Project, *words: str) -> dict:
    done = project.doflow("cost", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.smoke
def test_every_call_is_on_the_account_of_its_step_persona_and_model(work):
    work.agent(TELLS + 'uses(1000, 100, 400, 0.25 if step == "plan" else None, "m1"); work()')

    assert work.doit("work", "--goal=x").returncode == 0

    found = costs(work)
    assert [(one["name"], one["calls"], one["in"], one["out"], one["cached"], one["usd"]) for one in found["sums"]] == [
        ("plan", 1, 1000, 100, 400, 0.25), ("check", 2, 2000, 200, 800, None), ("build", 1, 1000, 100, 400, None),
    ]  # fmt: skip
    assert {(call["step"], call["persona"], call["model"]) for call in found["calls"]} == {
        ("plan", "", "m1"), ("check", "ann", "m1"), ("check", "bob", "m1"), ("build", "", "m1"),
    }  # fmt: skip
    assert all(call["seconds"] > 0 for call in found["calls"])
    told = work.doflow("cost").stdout
    assert "unpriced" in told and "$0.25 +" in told and "$0.00" not in told
    assert "price: {in: …, out: …}" in told
    assert '"usd":"0.2500"' in work.read(f"{work.run_dir().relative_to(work.root)}/doflow.lock").replace(" ", "")


def test_a_price_table_in_the_settings_prices_what_the_program_does_not(work):
    work.settings("prices: {m1: {in: 1000000, out: 0}}\n", agent="price: {in: 10, out: 100, cached: 1}")
    work.agent(TELLS + 'uses(1000000, 10000, 500000, None, "m1" if step == "build" else ""); work()')

    assert work.doit("work", "--goal=x").returncode == 0

    sums = {one["name"]: one["usd"] for one in costs(work)["sums"]}
    assert sums == {"plan": 5 + 0.5 + 1, "check": 13.0, "build": 1_000_000.0}


def test_a_price_that_comes_later_prices_what_was_counted_before(work):
    work.agent(TELLS + "uses(1000, 0); work()")
    assert work.doit("work", "--goal=x").returncode == 0

    work.settings("", agent="price: {in: 1000}")

    assert costs(work)["total"]["usd"] == 4.0


def test_a_call_that_fails_is_paid_all_the_same_and_one_that_tells_nothing_is_unknown(work):
    work.agent(TELLS + "uses(50, 5, 0, 0.5)\nstop(1)")
    assert work.doit("work", "--goal=x").returncode == 1
    work.agent(TELLS + "work()")
    assert work.doit("work", "--goal=x").returncode == 0

    sums = {one["name"]: (one["calls"], one["usd"], one["silent"]) for one in costs(work)["sums"]}
    assert sums == {"plan": (2, 0.5, 1), "check": (2, None, 2), "build": (1, None, 1)}
    told = work.doflow("cost").stdout
    assert "4 calls did not report usage (0 of them failed)" in told
    assert [entry["status"] for entry in ended(work)][:2] == ["failed", "done"]


def test_what_a_call_told_before_doflow_was_killed_is_counted_at_the_next_start(work):
    work.agent(TELLS + 'uses(70, 7, 0, 0.75)\nif not nth and step == "plan": time.sleep(60)\nwork()')
    started = work.start("doit", "work", "--goal=x")
    log = work.root / ".doflow/runs/001-x/logs/plan.1.err.log"
    assert eventually(lambda: log.exists() and "USAGE" in log.read_text())
    started.send_signal(signal.SIGKILL)
    started.communicate(timeout=60)

    assert work.doit("work", "--goal=x").returncode == 0

    first, second = [call for call in costs(work)["calls"] if call["step"] == "plan"]
    assert (first["status"], first["usd"], second["status"], second["usd"]) == ("cancelled", 0.75, "done", 0.75)


def test_an_interrupted_call_is_counted(work):
    work.agent(TELLS + "uses(70, 7, 0, 0.75)\ntime.sleep(60)")
    started = work.start("doit", "work", "--goal=x")
    log = work.root / ".doflow/runs/001-x/logs/plan.1.err.log"
    assert eventually(lambda: log.exists() and "USAGE" in log.read_text())
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=60)

    assert started.returncode == 130
    assert [(call["status"], call["usd"]) for call in costs(work)["calls"]] == [("cancelled", 0.75)]


def test_all_runs_are_added_up_run_by_run(work):
    work.agent(TELLS + "uses(100, 10, 0, 0.5); work()")
    for goal in ("x", "y"):
        assert work.doit("work", f"--goal={goal}").returncode == 0
        work.git("switch", "-q", "main")

    found = costs(work, "--all")
    assert {one["name"]: (one["calls"], one["usd"]) for one in found["sums"]} == {"001-x": (4, 2.0), "002-y": (4, 2.0)}
    assert (found["total"]["calls"], found["total"]["usd"]) == (8, 4.0)
    assert "in all" in work.doflow("cost", "--all").stdout
    by_persona = {one["name"]: one["calls"] for one in costs(work, "--all", "--by", "persona")["sums"]}
    assert by_persona == {"plan step": 2, "check ann": 2, "check bob": 2, "build step": 2}


def test_a_clone_without_the_event_log_says_what_the_lock_knows(work, tmp_path):
    work.agent(TELLS + "uses(100, 10, 0, 0.5); work()")
    assert work.doit("work", "--goal=x").returncode == 0
    (work.root / ".doflow").rename(tmp_path / "gone")

    told = work.doflow("cost").stdout

    assert "$2.00 for plan, check, build according to its lock file; its event log is not here" in told


def test_a_rehearsal_is_free(work):
    assert work.doit("work", "--goal=x", "--agent=rehearsal").returncode == 0

    told = work.doflow("cost").stdout

    assert "free" in told and "unpriced" not in told and "did not report" not in told


def test_a_plan_forecasts_from_what_the_steps_took_before_and_says_what_is_unknown(work):
    assert "cost: unknown (no history for these steps)" in work.doflow("plan", "work", "--goal=x").stdout
    work.agent(TELLS + 'uses(1000, 100, 0, {"x": 0.1, "y": 0.2, "z": 0.9}[run_dir.name[-1]]); work()')
    for goal in "xyz":
        assert work.doit("work", f"--goal={goal}").returncode == 0
        work.git("switch", "-q", "main")
    work.flow("work", FLOW + "      last: {prompt: The last., makes: last.md}\n")

    told = work.doflow("plan", "work", "--goal=new").stdout

    assert "$0.20 (p90 $0.90)" in told and "$0.40 (p90 $1.80)" in told, told
    assert "forecast: $0.80 (p90 $3.60); time " in told and "unknown: last" in told
    plan = json.loads(work.doflow("plan", "work", "--goal=new", "--json").stdout)
    (step,) = [step for step in plan["steps"] if step["step"] == "plan"]
    assert step["forecast"]["usd"] == {"median": 0.2, "p90": 0.9} and step["forecast"]["samples"] == 3
    assert (plan["forecast"]["unknown"], round(plan["forecast"]["usd"]["median"], 4)) == (["last"], 0.8)


def test_a_forecast_of_unpriced_calls_is_in_tokens(work):
    work.agent(TELLS + "uses(1000, 100); work()")
    assert work.doit("work", "--goal=x").returncode == 0
    work.git("switch", "-q", "main")

    told = work.doflow("plan", "work", "--goal=new").stdout

    assert "1,100 tokens (p90 1,100)" in told and "unpriced tokens 4,400 (p90 4,400)" in told


UNKNOWN = "cost: unknown (no history for these steps)"


def test_what_a_rehearsal_took_says_nothing_of_the_agent_that_is_paid(work):
    assert work.doit("work", "--goal=x", "--agent=rehearsal").returncode == 0
    work.git("switch", "-q", "main")

    told = work.doflow("plan", "work", "--goal=new").stdout

    assert UNKNOWN in told and "free" not in told
    data = json.loads(work.doflow("plan", "work", "--goal=new", "--json").stdout)
    assert {step["forecast"] for step in data["steps"]} == {None}
    work.write("doflow.yaml", "agents:\n  default: {use: rehearsal}\n")  # under its name, another program
    assert UNKNOWN in work.doflow("plan", "work", "--goal=new").stdout


def test_what_another_agent_or_model_took_says_nothing_of_this_one(work):
    work.settings("", agent="model: small")
    work.agent(TELLS + 'uses(1000, 100, 0, 0.5, "small-2026"); work()')
    assert work.doit("work", "--goal=x").returncode == 0
    work.git("switch", "-q", "main")
    assert "$0.50 (p90 $0.50)" in work.doflow("plan", "work", "--goal=new").stdout

    work.settings("", agent="model: large")

    assert UNKNOWN in work.doflow("plan", "work", "--goal=new").stdout


@pytest.mark.parametrize("ends", ["uses(0, 0)\nstop(1)", "stop(127)", "stop(75)"])
def test_a_call_that_did_not_get_to_work_says_nothing_of_the_cost(work, ends):
    work.agent(TELLS + ends)
    assert work.doit("work", "--goal=x").returncode in (1, 3), ends

    told = work.doflow("plan").stdout

    assert UNKNOWN in told and "0 tokens" not in told, told


@pytest.mark.smoke
def test_a_dry_run_prints_exactly_what_is_sent_and_its_size(work):
    work.agent(TELLS + "work()")
    dry = work.doflow("run", "work", "--goal", "x", "--dry-run", "plan")
    named = work.doflow("run", "--dry-run", "work:plan", "--goal=x", "--json")

    assert (dry.returncode, work.calls(), work.runs()) == (0, [], [])
    assert work.doit("work", "--goal=x").returncode == 0
    assert dry.stdout == work.prompts()[0]
    assert f"{len(dry.stdout.encode()):,} bytes, about " in dry.stderr
    told = json.loads(named.stdout)
    assert (told["prompt"], told["bytes"]) == (dry.stdout, len(dry.stdout.encode()))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("work", "--dry-run", "plam"), "has no step plam"),
        (("work", "--dry-run", "plan", "--gaol=x"), "unknown option: --gaol"),
    ],
)
def test_a_dry_run_of_what_is_not_there_is_refused_with_words(work, words, said):
    done = work.doflow("run", *words)

    assert (done.returncode, done.stdout) == (1, "") and said in done.stderr
