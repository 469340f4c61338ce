"""Reviews: personas, a fixer, rounds that converge, a verdict; with real doit, real git and a scripted agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from tests.support.crash import none_left
from tests.support.project import Project, eventually

FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      plan: {prompt: Write a plan., makes: plan.md}
      check: {kind: review, prompt: Look for gaps., reads: [plan.md], personas: [ann, bob], rounds: 3}
      build: {prompt: Build on the plan., reads: [plan.md], makes: built.md}
"""

#: what is wrong stands in the plan as words; each persona sees its own word
SCRIPT = """
plan = run_dir / "plan.md"
if role == "persona":
    text = plan.read_text()
    if "CRITICAL" in text: say("ISSUE: C | It is broken | plan.md#One")
    if "HIGH" in text: say("ISSUE: H | It is slow | plan.md#Two")
    if persona == "bob" and round == 1: say("ISSUE: M | A word is odd | plan.md:1")
    if persona == "bob" and round > 1: say("ISSUE: L | A late thought | plan.md:9")
    say("VERDICT: " + ("NO-GO" if "CRITICAL" in text else "CONDITIONAL" if "HIGH" in text else "GO"))
elif role == "fixer":
    {fixer}
    say("mended")
elif step == "plan":
    make("# Plan\\n\\n{plan}\\n")
else:
    usual()
"""
FIX = 'plan.write_text(plan.read_text().replace("CRITICAL ", "", 1).replace("HIGH ", "", 1))'
WORDS = 'plan.write_text(plan.read_text() + "\\nA word more.\\n")'
ASKED = ["check persona ann", "check persona bob"]
NOTHING = "pass"


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    return project


def script(plan: str = "All is well.", fixer: str = FIX, before: str = "") -> str:
    return before + SCRIPT.format(plan=plan, fixer=fixer)


def ran(project: Project, *words: str, code: int = 0, name: str = "doit") -> str:
    done = project.program(name, *(words or ("work", "--goal=x")))
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def reviewers(project: Project) -> list[str]:
    return sorted(line for line in project.calls() if "persona" in line)


def review_record(project: Project, step: str = "check") -> dict:
    return yaml.safe_load((project.run_dir() / f"review-{step}.yaml").read_text())


def findings(project: Project) -> list[tuple[str, str, str]]:
    return [(found["id"], found["severity"], found["status"]) for found in review_record(project)["findings"]]


def test_a_go_of_all_ends_it_at_once_and_small_things_do_not_stop_it(work, tmp_path):
    work.agent(script())

    ran(work)

    assert (reviewers(work), "check:fix1 fixer" in work.calls()) == (ASKED, False)
    assert (review_record(work)["verdict"], review_record(work)["rounds"]) == ("GO", 1)
    assert findings(work) == [("check-001", "M", "open")]
    told = work.prompts()[work.calls().index("check persona ann")]
    assert all(words in told for words in ("review as **ann**", "Look for gaps.", "All is well.", "VERDICT: NO-GO"))
    assert work.subjects()[-3:] == ["plan: plan.md", "check: GO", "build: built.md"]
    assert work.git("status", "--porcelain") == ""

    calls = work.calls()
    ran(work, "work")
    clone = tmp_path / "clone"
    work.git("clone", "-q", str(work.root), str(clone))
    done = work.doit("work", "--goal=x", cwd=clone)
    assert (done.returncode, work.calls()) == (0, calls), done.stdout


def test_a_fixer_is_told_its_round_and_of_no_phase(work):
    told = 'if role == "fixer": (outside / "told").write_text(f"{known.get(\'DOFLOW_PHASE\')} {known[\'DOFLOW_ROUND\']}")\n'
    work.agent(told + script("CRITICAL HIGH and well."))

    ran(work)

    assert (work.outside / "told").read_text() == "None 1"


@pytest.mark.smoke
def test_two_rounds_with_a_fixer_converge_and_keep_the_ids(work):
    work.agent(script("CRITICAL HIGH and well."))

    ran(work)

    assert work.calls()[0] == "plan"
    assert sorted(work.calls()[1:3]) == sorted(work.calls()[4:6]) == ASKED
    assert (work.calls()[3], work.calls()[6:]) == ("check:fix1 fixer", ["build"])
    assert findings(work) == [("check-001", "C", "fixed"), ("check-002", "H", "fixed"), ("check-003", "M", "fixed")]
    both = [found["by"] for found in review_record(work)["findings"]]
    assert both == [["ann", "bob"], ["ann", "bob"], ["bob"]]
    assert (review_record(work)["verdict"], review_record(work)["rounds"]) == ("GO", 2)
    prompts = work.prompts()
    assert "[check-001] C: It is broken (plan.md#One)" in prompts[3]
    assert "check-003" not in prompts[3], "a fixer gets what blocks, not every small thing"
    assert f"Change only `specs/{work.runs()[0]}/plan.md`" in prompts[3]
    again = prompts[4]
    assert all(words in again for words in ("Round 2", "[check-001]", "-CRITICAL HIGH and well.", "+and well."))
    assert "## Input: specs" not in again, "in a later round only what changed is shown"
    assert "and well." in prompts[6]
    assert work.subjects()[-4:] == ["plan: plan.md", "check: 2 findings of round 1", "check: GO", "build: built.md"]
    held = yaml.safe_load((work.run_dir() / "doflow.lock").read_text())
    assert held["artifacts"][f"specs/{work.runs()[0]}/plan.md"]["author"] == "check:fix1"

    rounds = [told for told in work.events() if told["event"] == "review_round"]
    assert [(told["round"], told["verdict"], told["blocking"]) for told in rounds] == [(1, "NO-GO", 2), (2, "GO", 0)]
    before = work.calls()
    ran(work, "work")
    assert work.calls() == before


@pytest.mark.smoke("the fixer changes nothing")
@pytest.mark.parametrize(
    ("plan", "fixer", "rounds", "words"),
    [
        ("CRITICAL CRITICAL CRITICAL CRITICAL bad.", NOTHING, 1, "NO-GO after 1 round,"),
        ("CRITICAL bad.", WORDS, 2, "NO-GO after 2 rounds,"),
    ],
    ids=["the fixer changes nothing", "the same findings twice"],
)
def test_a_critical_finding_that_is_left_pauses_also_a_rerun_which_asks_no_one(work, plan, fixer, rounds, words):
    work.agent(script(plan, fixer))

    said = ran(work, code=2)

    assert words in said and "[check-001] C: It is broken" in said and "doflow adopt check" in said
    assert (review_record(work)["verdict"], review_record(work)["rounds"]) == ("NO-GO", rounds)
    assert (work.state()["status"], work.state()["completed"]) == ("paused", ["plan"])
    assert "NO-GO" in work.state()["pauseReason"]
    calls = work.calls()
    assert len(reviewers(work)) == 2 * rounds and "build" not in calls
    assert "NO-GO" in ran(work, "work", code=2)
    assert (work.calls(), work.state()["status"]) == (calls, "paused")


def test_after_a_no_go_an_edit_is_reviewed_again(work):
    work.flow("work", FLOW.replace("rounds: 3", "rounds: 1"))
    work.commit("One round")
    work.agent(script("CRITICAL bad."))
    ran(work, code=2)
    assert "check:fix1 fixer" not in work.calls(), "after the last round nobody would look at what a fixer does"
    work.forget_calls()

    (work.run_dir() / "plan.md").write_text("# Plan\n\nMine, and good.\n")
    ran(work, "work")

    assert (reviewers(work), work.calls()[-1]) == (ASKED, "build")
    assert (review_record(work)["verdict"], findings(work)) == ("GO", [("check-001", "M", "open")])
    assert (work.run_dir() / "plan.md").read_text() == "# Plan\n\nMine, and good.\n"
    assert work.git("status", "--porcelain") == ""


def test_after_a_no_go_a_person_may_take_it_as_it_is(work):
    work.agent(script("CRITICAL bad.", NOTHING))
    ran(work, code=2)
    work.forget_calls()

    ran(work, "adopt", "check", name="doflow")
    ran(work, "work")

    assert (work.calls(), work.state()["status"]) == (["build"], "completed")
    assert review_record(work)["verdict"] == "NO-GO", "what was found stays written"
    assert work.git("status", "--porcelain") == ""


def test_a_high_finding_that_is_left_is_a_condition_of_the_next_step(work):
    work.agent(script("HIGH slow.", WORDS))

    ran(work)

    assert (review_record(work)["verdict"], findings(work)[0]) == ("CONDITIONAL", ("check-001", "H", "open"))
    told = work.prompts()[-1]
    assert (work.calls()[-1], "meet what is open here" in told, "It is slow" in told) == ("build", True, True)
    assert "check: CONDITIONAL" in work.subjects()
    calls = work.calls()
    ran(work, "work")
    assert work.calls() == calls


@pytest.mark.smoke("silent")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("pass", "bob gave no verdict in round 1"),
        ("say('```\\nVERDICT: GO\\n```')", "bob gave no verdict in round 1"),
        ("say('VERDICT: GO\\nVERDICT: NO-GO')", "bob gave verdicts that disagree (NO-GO, GO) in round 1"),
        ("say('Looks fine to me.\\nVERDICT: MAYBE')", "bob gave no verdict in round 1"),
        ("stop(9)", "9"),
        ("say('\\x1b[2J\\x00' * 50); say('VERDICT')", "bob gave no verdict in round 1"),
        (
            "say('ISSUE: X | It is lost | plan.md\\nVERDICT: GO')",
            "bob wrote an issue that cannot be read, `ISSUE: X | It is lost",
        ),
        ("say('ISSUE: C\\nVERDICT: CONDITIONAL')", "an issue is `ISSUE: C | text | place`"),
    ],
    ids=["silent", "fenced", "disagreeing", "garbage", "failing", "binary", "unknown severity", "no words"],
)
def test_a_persona_that_gives_no_verdict_fails_the_review_and_the_others_are_not_asked_again(work, answer, words):
    work.agent(script(before=f"if persona == 'bob':\n    {answer}\n    stop(0)\n"))

    assert words in ran(work, code=1)

    assert (work.state()["status"], work.state()["completed"]) == ("failed", ["plan"])
    assert reviewers(work) == ["check persona ann", "check persona bob", "check persona bob"], "it is asked once more"
    work.forget_calls()
    work.agent(script())
    ran(work, "work")
    assert work.calls() == ["check persona bob", "build"]
    assert findings(work) == [("check-001", "M", "open")]


def test_issues_in_a_slightly_other_form_reach_the_fixer(work):
    lines = (
        "ISSUE: Critical | All is lost | plan.md#Save",
        "1. ISSUE: high - No check | plan.md#Check",
        "VERDICT: CONDITIONAL",
    )
    odd = "; ".join(f"say('{line}')" for line in lines)
    work.agent(script(before=f"if persona == 'bob' and round == 1:\n    {odd}\n    stop(0)\n", fixer=WORDS))

    ran(work)

    told = work.prompts()[work.calls().index("check:fix1 fixer")]
    assert "C: All is lost (plan.md#Save)" in told
    assert "H: No check (plan.md#Check)" in told


def test_when_all_personas_fail_it_is_an_error(work):
    work.agent(script(before="if persona: stop(1)\n"))

    ran(work, code=1)

    assert (work.state()["status"], "build" in work.calls()) == ("failed", False)
    assert not (work.run_dir() / "review-check.yaml").exists()


#: bob meets his limit when all four are at work, and the others answer when doflow knows of it
FOUR_AT_ONCE = """
def until(found):
    for _ in range(3000):
        if found():
            return
        time.sleep(0.02)
    stop(99)

if persona:
    (outside / f"{persona}.there").touch()
    until(lambda: len(list(outside.glob("*.there"))) == 4)
if persona == "bob":
    say("RESUME-AT: WHEN")
    stop(75)
if persona:
    until(lambda: '"status":"rate_limited"' in (root / ".doflow/runs/001-x/events.jsonl").read_text())
    time.sleep(1)
"""


def test_a_rate_limit_in_the_middle_is_told_and_only_who_has_not_answered_is_asked_again(work):
    work.flow("work", FLOW.replace("[ann, bob]", "[ann, bob, cid, dan, eve, fay]"))
    work.commit("Six of them")
    at = (datetime.now(UTC) + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    work.agent(script(before=FOUR_AT_ONCE.replace("WHEN", at)))

    ran(work, code=3)

    state = work.state()
    assert (state["status"], state["resumeAt"]) == ("rate-limited", at)
    assert sorted(work.calls()[1:]) == [f"check persona {name}" for name in ("ann", "bob", "cid", "dan")], (
        "a rate limit stops every other dispatch"
    )
    work.forget_calls()
    work.agent(script())
    ran(work, "work")
    assert reviewers(work) == [f"check persona {name}" for name in ("bob", "eve", "fay")]
    assert work.state()["status"] == "completed"


def test_a_no_go_without_a_word_why_is_never_a_pass(work):
    work.agent(script(fixer=NOTHING, before="if persona == 'ann':\n    say('VERDICT: NO-GO')\n    stop(0)\n"))

    said = ran(work, code=2)

    assert "ann says NO-GO and names no blocking issue" in said
    assert findings(work)[0] == ("check-001", "C", "open")


def test_a_review_without_personas_is_refused_before_anything_is_paid(work):
    work.flow("work", FLOW.replace("[ann, bob]", "[]"))

    done = work.doit("work", "--goal=x")

    assert (done.returncode, work.calls(), work.runs()) == (1, [], [])
    assert "'personas' is an empty list" in done.stdout + done.stderr


def test_a_reviewer_that_writes_is_refused_and_its_files_are_put_back(work):
    writes = "if persona == 'ann':\n    put('src/mine.py', 'x = 1')\n    plan.write_text('All is well, says ann.')\n"
    work.agent(script("CRITICAL bad.", before="plan = run_dir / 'plan.md'\n" + writes))

    said = ran(work, code=1)

    assert "a reviewer of check modified" in said and "src/mine.py" in said and "doflow quarantine list" in said
    assert not (work.root / "src" / "mine.py").exists()
    assert (work.run_dir() / "plan.md").read_text() == "# Plan\n\nCRITICAL bad.\n"
    assert (work.state()["status"], work.git("status", "--porcelain")) == ("failed", "")
    work.forget_calls()
    work.agent(script())
    ran(work, "work", code=0)
    assert sorted(work.calls()[:2]) == ASKED, "no answer of that round counts"


def test_a_fixer_of_documents_may_change_only_what_is_reviewed(work):
    work.agent(script("CRITICAL bad.", FIX + "\n    put('src/mine.py', 'x = 1')"))

    said = ran(work, code=1)

    assert "check:fix1 modified files outside its scope: src/mine.py" in said
    assert "src/mine.py: a fixer may change only the reviewed files" in said and "`writes:`" not in said
    assert not (work.root / "src").exists()
    assert (work.run_dir() / "plan.md").read_text() == "# Plan\n\nCRITICAL bad.\n"
    work.forget_calls()
    work.agent(script("CRITICAL bad."))
    ran(work, "work")
    assert work.calls()[0] == "check:fix1 fixer", "who has answered is not asked again"
    assert sorted(work.calls()[1:]) == ["build", *ASKED]


def test_what_steps_before_it_were_made_from_is_not_the_fixers_to_change(project):
    flow = FLOW.replace("plan: {", "spec: {prompt: Specify., makes: spec.md}\n      plan: {reads: [spec.md], ")
    project.flow("work", flow.replace("reads: [plan.md], personas", "reads: [plan.md, spec.md], personas"))
    project.commit("A flow")
    project.agent(script("CRITICAL bad.", FIX + "\n    (run_dir / 'spec.md').write_text('Easier.')"))

    assert "spec.md" in ran(project, code=1)

    assert (project.run_dir() / "spec.md").read_text() != "Easier."


CODE = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      tasks: {prompt: List tasks., makes: tasks.md, check: {tasks: true}}
      implement: {kind: implement, phases: tasks.md, prompt: Do it.}
      check: {kind: review, reads: [tasks.md], personas: [ann, bob], rounds: 2}
"""


def test_a_code_review_gets_the_diff_of_the_phases_and_its_fixer_may_change_code(project, tmp_path):
    project.flow("work", CODE)
    project.commit("A flow")
    project.agent("""
        if role == "persona":
            bad = "PHASE = '2'" in (root / "src/phase_2.py").read_text()
            say("ISSUE: C | Two is wrong | src/phase_2.py:1\\nVERDICT: NO-GO" if bad else "VERDICT: GO")
        elif role == "fixer":
            put("src/phase_2.py", "PHASE = 'two'\\n")
            put("tests/test_two.py", "def test_two(): pass\\n")
        else:
            usual()
    """)

    ran(project)

    assert project.calls()[:3] == ["tasks", "implement:1", "implement:2"]
    first, fixer, second = (project.prompts()[place] for place in (3, 5, 6))
    assert all(line in first for line in ("+PHASE = '1'", "+PHASE = '2'", "diff --git a/src/phase_1.py"))
    assert "Change the project's files as needed" in fixer and "src/phase_2.py:1" in fixer
    assert "-PHASE = '2'" in second and "+PHASE = 'two'" in second and "+PHASE = '1'" not in second
    assert (review_record(project)["verdict"], project.state()["status"]) == ("GO", "completed")
    assert project.read("tests/test_two.py") and project.git("status", "--porcelain") == ""
    calls = project.calls()
    ran(project, "work")
    clone = tmp_path / "clone"
    project.git("clone", "-q", str(project.root), str(clone))
    assert project.doit("work", "--goal=x", cwd=clone).returncode == 0
    assert project.calls() == calls


# ------------------------------------------------------------------ killed

#: runs doit in a process that is gone the moment the N-th line of this event is in the event log
KILLER = """
import os, signal, sys

event, last = sys.argv[1], int(sys.argv[2])
sys.argv = ["doit", *sys.argv[3:]]
sys.path.pop(0)
from doit.doit_cmd import DoitMain
from doflow.runs import event_log as ledger

add, seen = ledger.EventLog.add, []


def dying(self, name, *args, **given):
    entry = add(self, name, *args, **given)
    seen.extend([1] if name == event else [])
    if len(seen) == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return entry


ledger.EventLog.add = dying
sys.exit(DoitMain().run(sys.argv[1:]))
"""


def killed_at(project: Project, event: str, last: int) -> None:
    program = project.outside / "killer.py"
    program.write_text(KILLER)
    words = (sys.executable, str(program), event, str(last), "work", "--goal=x")
    done = subprocess.run(words, cwd=project.root, env=project.env, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stdout


@pytest.mark.smoke("returned-2")
@pytest.mark.parametrize(
    ("event", "last"),
    [
        ("review_answer", 2),  # all have answered, no one has counted
        ("review_round", 1),  # between persona and fixer
        ("returned", 2),  # the fixer is through, nothing is committed
        ("phase_complete", 1),  # its commit is there, the round has not ended
        ("review_fixed", 1),  # before the second round
        ("intent", 3),  # before the commit of the verdict
    ],
)
def test_killed_at_any_line_no_finding_is_lost_and_no_one_is_paid_twice(work, event, last):
    work.agent(script("CRITICAL HIGH bad."))

    killed_at(work, event, last)
    ran(work, "work")

    assert sorted(work.calls()) == sorted(["plan", *ASKED, *ASKED, "check:fix1 fixer", "build"])
    assert findings(work) == [("check-001", "C", "fixed"), ("check-002", "H", "fixed"), ("check-003", "M", "fixed")]
    assert (review_record(work)["rounds"], work.state()["status"]) == (2, "completed")
    assert work.subjects()[-4:] == ["plan: plan.md", "check: 2 findings of round 1", "check: GO", "build: built.md"]
    assert work.git("status", "--porcelain") == ""


@pytest.mark.parametrize("who", ["persona", "fixer"])
def test_killed_with_its_whole_group_in_the_middle_of_a_call_only_that_call_is_made_again(work, who):
    wait = {
        "persona": "if persona == 'bob': time.sleep(60)\n",
        "fixer": "if role == 'fixer':\n    (run_dir / 'plan.md').write_text('half'); say('…'); time.sleep(60)\n",
    }[who]
    work.agent(script("CRITICAL bad.", before=wait))
    running = subprocess.Popen(
        (str(Path(sys.executable).with_name("doit")), "work", "--goal=x"), cwd=work.root, env=work.env,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    heard = {"persona": lambda: "review_answer" in told(work), "fixer": lambda: half(work)}[who]
    assert eventually(heard), told(work)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(60)
    assert none_left(work.home) == {}, "an agent that was just being started is no call of the next command"

    calls = work.calls()
    work.agent(script("CRITICAL bad."))
    ran(work, "work")

    again = work.calls()[len(calls) :]
    assert again[0] == {"persona": "check persona bob", "fixer": "check:fix1 fixer"}[who]
    assert sorted(again) == sorted([again[0], *(["check:fix1 fixer"] if who == "persona" else []), *ASKED, "build"])
    assert findings(work)[0] == ("check-001", "C", "fixed")
    assert (work.run_dir() / "plan.md").read_text() == "# Plan\n\nbad.\n"


def told(project: Project) -> list[str]:
    return [entry["event"] for entry in project.events()] if project.runs() else []


def half(project: Project) -> bool:
    return (
        bool(project.runs())
        and (project.run_dir() / "plan.md").exists()
        and "half" in (project.run_dir() / "plan.md").read_text()
    )


# ------------------------------------------------------------------ a program of the project's own


@pytest.mark.smoke("2-2-paused-paused-NO-GO")
@pytest.mark.parametrize(
    ("exit_", "code", "status", "event", "words"),
    [
        (0, 0, "completed", "step_complete", ""),
        (1, 1, "failed", "error", "exit code 1"),
        (2, 2, "paused", "paused", "NO-GO"),
        (3, 3, "rate-limited", "rate_limited", "rate limited"),
        (4, 1, "failed", "error", "4"),
        (127, 1, "failed", "error", "review.sh"),
        (255, 1, "failed", "error", "255"),
    ],
)
def test_the_exit_code_of_a_review_program_is_the_whole_contract(work, exit_, code, status, event, words):
    work.write("review.sh", f'#!/bin/sh\necho "$@" > {work.outside}/words\necho "it says so"\nexit {exit_}\n')
    (work.root / "review.sh").chmod(0o755)
    work.settings("review_mode: command\nreview_command: [./review.sh]\n")
    work.commit("A review program")

    said = ran(work, code=code)

    run = work.runs()[0]
    assert (work.outside / "words").read_text().split() == [
        "--type", "check", "--target", f"specs/{run}/plan.md", "--feature-dir", f"specs/{run}",
        "--project-dir", str(work.root),
    ]  # fmt: skip
    assert (work.state()["status"], "check" in work.state()["completed"]) == (status, code == 0)
    assert (words in said, "build" in work.calls()) == (True, code == 0)
    mine = [entry for entry in work.events() if entry.get("step") == "check"]
    assert mine[-1]["event"] == event
    assert "it says so" in mine[-1].get("message", "it says so") or event == "rate_limited"
    calls = work.calls()
    ran(work, "work", code=code)
    assert work.calls() == calls


def test_a_review_program_that_is_missing_or_not_named_is_an_error(work):
    work.flow("work", FLOW.replace("rounds: 3", "mode: command"))
    work.commit("By a program")

    assert "review_command" in ran(work, code=1)
    work.settings("review_command: [./no-such-review]\n")
    assert "no-such-review" in ran(work, "work", code=1)

    assert (work.state()["status"], work.state()["completed"]) == ("failed", ["plan"])
