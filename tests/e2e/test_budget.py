"""A budget is kept: no call begins above it, the run pauses with exit code 2, nothing is lost, and it says how to go on."""

from __future__ import annotations

import pytest
from tests.e2e.test_cost import TELLS
from tests.support.project import Project, eventually

from doflow.flow.model import Settings
from doflow.runs import usage

FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      one: {prompt: Write., makes: one.md}
      two: {prompt: Write., makes: two.md}
      three: {prompt: Write., makes: three.md}
"""
REVIEW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      plan: {prompt: Write., makes: plan.md}
      check: {kind: review, reads: [plan.md], personas: [ann, bob], rounds: 3, budget: {usd: %s}}
      build: {prompt: Build., reads: [plan.md], makes: built.md}
"""
PRICED = "price: {in: 1, out: 1}"


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.agent(TELLS + "uses(100, 10, 0, 0.30); work()")
    project.commit("A flow")
    return project


@pytest.mark.smoke
def test_a_run_pauses_when_its_budget_is_used_up_and_goes_on_when_it_is_raised(work):
    work.settings("budget: {usd: 0.5}\n", agent=PRICED)
    done = work.doit("work", "--goal=x")

    assert (done.returncode, work.calls()) == (2, ["one", "two"])
    assert "the budget of this run is used up: $0.60 of $0.50" in done.stdout
    assert "calls that were already running went over it" in done.stdout
    assert "doit work --budget=1.1" in done.stdout
    assert (work.state()["status"], work.state()["completed"]) == ("paused", ["one", "two"])
    assert "is used up" in work.state()["pauseReason"]
    again = work.doit("work")
    assert (again.returncode, work.calls()) == (2, ["one", "two"]), "nothing is paid twice, nothing more is paid"
    more = work.doit("work", "--budget=1.1")
    assert (more.returncode, work.calls()) == (0, ["one", "two", "three"]), more.stdout
    assert work.state()["status"] == "completed"


@pytest.mark.parametrize(
    ("words", "code", "calls"),
    [("--budget=0.6", 2, 2), ("--budget=none", 0, 3), ("--budget=300tokens", 2, 3), ("--budget=$0.10", 2, 1)],
)
def test_the_command_line_sets_the_limit_whatever_the_settings_say(work, words, code, calls):
    work.settings("budget: {usd: 0.1}\n", agent=PRICED)
    work.flow(
        "work", FLOW.replace("two.md}", "two.md, budget: {usd: 0}}") + "      four: {prompt: W., makes: four.md}\n"
    )

    done = work.doit("work", "--goal=x", words)

    assert (done.returncode, len(work.calls())) == (code, calls if code else 4), done.stdout


def test_a_limit_that_is_none_is_refused_before_anything_begins(work):
    done = work.doit("work", "--goal=x", "--budget=plenty")

    assert (done.returncode, work.calls(), work.runs()) == (1, [], [])
    assert "invalid --budget=plenty" in done.stderr and "500000tokens" in done.stderr


def test_a_step_has_a_budget_of_its_own_and_its_repairs_count(work):
    work.flow("work", FLOW.replace("two.md}", "two.md, check: {headings: [Nowhere]}, repair: 5, budget: {usd: 0.7}}"))
    work.settings("", agent=PRICED)

    done = work.doit("work", "--goal=x")

    assert (done.returncode, work.calls()) == (2, ["one", "two", "two repair", "two repair"])
    assert "the budget of step two is used up: $0.90 of $0.70" in done.stdout
    assert "`budget:` of two in " in done.stdout and "flows/work.yaml" in done.stdout
    again = work.doit("work", "--budget=1.5")
    assert work.calls()[4:] == ["two repair"], "what it had returned is still there, and only handed back"
    assert again.returncode == 2


def test_tokens_are_counted_in_and_out(work):
    work.settings("budget: {tokens: 200}\n")

    done = work.doit("work", "--goal=x")

    assert (done.returncode, work.calls()) == (2, ["one", "two"])
    assert "220 of 200 tokens" in done.stdout and "--budget=420tokens" in done.stdout


def test_a_used_up_budget_is_an_error_if_the_settings_say_so(work):
    work.settings("budget: {usd: 0.5, on_exceed: fail}\n", agent=PRICED)

    done = work.doit("work", "--goal=x")

    assert (done.returncode, work.calls(), work.state()["status"]) == (1, ["one", "two"], "failed")


@pytest.mark.smoke
def test_a_budget_in_dollars_without_a_price_is_refused_before_anything_begins(work):
    work.settings("budget: {usd: 20}\n")

    done = work.doit("work", "--goal=x")

    assert (done.returncode, work.calls(), work.runs()) == (1, [], [])
    told = done.stdout + done.stderr
    assert "there is no price for the agent 'default' (command)" in told
    assert "price: {in: 3, out: 15}" in told and "budget: {tokens: 500000}" in told


@pytest.mark.parametrize("limit", ["usd: 5", "tokens: 5000"])
def test_a_budget_pauses_when_calls_do_not_tell_what_they_used(work, limit):
    work.settings(f"budget: {{{limit}}}\n", agent=PRICED)
    work.agent("usual()")

    done = work.doit("work", "--goal=x")

    assert (done.returncode, work.calls()) == (2, ["one"])
    assert "the budget of this run cannot be enforced: 1 call" in done.stdout
    assert work.doit("work", "--budget=none").returncode == 0


def test_a_program_is_told_what_is_left(work):
    work.settings("budget: {usd: 1}\n", agent=PRICED)
    work.agent(TELLS + 'put("left", known["DOFLOW_BUDGET_USD"]) if step == "none" else say(known["DOFLOW_BUDGET_USD"])\n'
               "uses(100, 10, 0, 0.30); work()")  # fmt: skip

    assert work.doit("work", "--goal=x").returncode == 0

    logs = work.root / ".doflow/runs/001-x/logs"
    assert [(logs / f"{step}.1.log").read_text().split()[0] for step in ("one", "two", "three")] == [
        "1.0000", "0.7000", "0.4000",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("severity", "limit", "code", "verdict"),
    [
        ("C", "0.5", 2, "NO-GO"),
        ("H", "0.5", 0, "CONDITIONAL"),
        ("C", "0.8", 2, "NO-GO"),
        ("H", "1.1", 0, "CONDITIONAL"),
    ],
)
def test_a_review_ends_with_what_is_open_when_the_budget_is_used_up(work, severity, limit, code, verdict):
    """0.5: no fixer is called; 0.8: no one looks again; 1.1: one of two cannot look again."""
    work.flow("work", REVIEW % limit)
    work.settings("", agent=PRICED)
    work.agent(TELLS + f"""
uses(100, 10, 0, 0.30)
if role == "persona":
    if round > 1 and persona == "bob" and {limit} > 1: stop(1)
    say("ISSUE: {severity} | It is broken | plan.md#One\\nVERDICT: CONDITIONAL" if round == 1 else "VERDICT: GO")
elif role == "fixer":
    make("# Plan, mended\\n", "plan.md")
else:
    usual()
""")  # fmt: skip

    done = work.doit("work", "--goal=x")

    assert done.returncode == code, done.stdout
    assert f'verdict: "{verdict}"' in (work.run_dir() / "review-check.yaml").read_text()
    assert "the budget of step check is used up" in done.stdout
    assert ("build" in work.calls()) is (code == 0)
    if code:
        more = work.doit("work", "--budget=9")
        assert (more.returncode, work.calls().count("check persona ann")) == (0, 2), more.stdout


def test_a_review_that_no_one_could_finish_is_a_pause_and_no_pass(work):
    work.flow("work", REVIEW % "0.2")
    work.settings("", agent=PRICED)
    work.agent(TELLS + 'uses(100, 10, 0, 0.30)\nif persona == "bob": time.sleep(0.2)\nwork()')

    done = work.doit("-n", "1", "work", "--goal=x", "--budget=0.3")

    assert done.returncode == 2 and "build" not in work.calls() and "is used up" in done.stdout
    assert work.doit("work", "--budget=9").returncode == 0
    assert sorted(line for line in work.calls() if "persona" in line) == ["check persona ann", "check persona bob"]


@pytest.mark.parametrize("limit", ["usd: 5", "tokens: 5000"])
def test_what_calls_did_not_tell_stops_every_command_until_a_limit_is_named(work, limit):
    work.settings(f"budget: {{{limit}}}\n", agent=PRICED)
    work.agent("usual()")
    said = "--budget=5" if "usd" in limit else "--budget=5000tokens"
    work.doit("work", "--goal=x")

    again = work.doit("work")

    assert (again.returncode, work.calls()) == (2, ["one"]), "typing the command again lifts nothing"
    assert "1 call did not report usage" in again.stdout and f"doit work {said}" in again.stdout
    more = work.doit("work", said)
    assert (more.returncode, work.calls()) == (2, ["one", "two"]), more.stdout
    assert f"1 call did not report usage; {said} continues" in more.stdout
    assert (work.doit("work").returncode, work.calls()) == (2, ["one", "two"]), "the one since then is not accepted"
    work.agent(TELLS + "uses(100, 10, 0, 0.30); work()")
    last = work.doit("work", said)
    assert (last.returncode, work.calls()) == (0, ["one", "two", "three"]), last.stdout


def test_once_accepted_it_stops_no_later_command(work):
    work.settings("budget: {usd: 0.5}\n", agent=PRICED)
    work.agent(TELLS + "uses(100, 10, 0, 0.30) if step != 'one' else None; work()")
    work.doit("work", "--goal=x")
    assert work.doit("work", "--budget=0.2").returncode == 2

    done = work.doit("work")

    assert (done.returncode, work.calls()) == (0, ["one", "two", "three"]), done.stdout


@pytest.mark.parametrize(
    ("ends", "calls", "code", "then"),
    [("time.sleep(30)", 1, 2, 2), ("stop(1)", 2, 1, 2), ("stop(75)", 1, 3, 0)],
    ids=["timed out", "failed", "rate limited"],
)
def test_a_call_that_ended_badly_and_told_nothing_stops_the_next_command(work, ends, calls, code, then):
    """A failure is tried again once, as `retry` says; whoever met a rate limit has used nothing."""
    head = "defaults: {retry: {attempts: 1, backoff: 0s}, timeout: {max: 5s}}"
    work.flow("work", FLOW.replace("defaults: {retry: {attempts: 0}}", head))
    work.settings("budget: {usd: 5}\n", agent=PRICED)
    work.agent(ends)
    first = work.doit("work", "--goal=x")
    assert (first.returncode, len(work.calls())) == (code, calls), first.stdout
    work.agent(TELLS + "uses(100, 10, 0, 0.30); work()")

    done = work.doit("work")

    assert (done.returncode, len(work.calls())) == (then, calls + (0 if then else 3)), done.stdout


def test_a_call_that_was_killed_with_doflow_stops_the_next_one(work):
    work.settings("budget: {usd: 5}\n", agent=PRICED)
    work.agent("time.sleep(30)")
    running = work.start("doit", "work", "--goal=x")
    assert eventually(lambda: work.calls() == ["one"])
    running.kill()
    running.communicate(timeout=60)
    work.agent(TELLS + "uses(100, 10, 0, 0.30); work()")

    done = work.doit("work")

    assert (done.returncode, work.calls()) == (2, ["one"]), done.stdout + done.stderr
    assert work.doit("work", "--budget=5").returncode == 0


def test_a_price_that_is_added_later_counts_for_the_calls_before_it():
    spent = usage.Spent()
    for model in ("known", "odd"):
        spent.add({"status": "done", "in": 1_000_000, "out": 0, "usd": None, "agent": "a", "model": model}, now=False)

    priced = usage.apply_prices(spent, Settings(prices={"known": {"in": 2.0}}))

    assert (priced.usd, [entry["model"] for entry in priced.unpriced]) == (2.0, ["odd"])
    assert (spent.usd, len(spent.unpriced), priced.tokens, priced.calls) == (0.0, 2, 2_000_000, 2)
