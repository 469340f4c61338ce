"""`doit prd`: requirements become a backlog, subtasks, code, a validation, a bug hunt; sessions, deltas, bug-fix sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support import prd
from tests.support.prd import CHANGED, DONE, FIX, MAIN, hashed, markers
from tests.support.project import Project

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    return prd.project(tmp_path)


@pytest.mark.smoke
def test_backlog_code_bug_bug_fix_session_clean_done(shop: Project) -> None:
    shop.agent(prd.good(bugs=1))

    done = shop.doit("prd", timeout=120)

    main = f"plan/001_{hashed(prd.REQUIREMENTS)}"
    report = shop.read(f"{main}/hunt/report.md")
    child = f"{main}/bugfix/001_{hashed(report)}"
    assert (done.returncode, done.stderr, shop.calls()) == (0, "", [*MAIN, *FIX, "hunt-2"])
    assert prd.sessions(shop) == [main, child]
    assert shop.read(f"{main}/prd_snapshot.md") == prd.REQUIREMENTS
    assert shop.read(f"{main}/TEST_RESULTS.md") == shop.read(f"{child}/prd_snapshot.md") == report
    assert prd.statuses(shop, main) == DONE
    assert set(prd.statuses(shop, child).values()) == {"Complete"}
    found = markers(shop, main)
    assert (found["hunt"], found["hunt-2"], found["fix"]) == ("BUGS: FOUND", "BUGS: NONE", child.rpartition("/")[2])
    assert f"bug-fix session {child}/" in done.stdout
    assert shop.git("status", "--porcelain") == ""
    assert [line for line in shop.subjects() if line.startswith("P1")] == [
        "P1.M1.T1.S1: Do P1.M1.T1.S1", "P1.M1.T1.S2: Do P1.M1.T1.S2", "P1.M1.T1.S1: Do P1.M1.T1.S1"
    ]  # fmt: skip


def test_changed_requirements_of_a_finished_session_begin_a_delta_session(shop: Project) -> None:
    assert shop.doit("prd", timeout=120).returncode == 0
    shop.write("PRD.md", CHANGED)
    shop.forget_calls()

    done = shop.doit("prd", timeout=120)

    assert (done.returncode, shop.calls()) == (0, ["delta", *MAIN])
    first, second = prd.sessions(shop)
    assert second == f"plan/002_{hashed(CHANGED)}"
    assert (shop.read(f"{second}/delta_from.txt"), shop.read(f"{second}/prd_snapshot.md")) == ("001\n", CHANGED)
    assert shop.read(f"{second}/delta_prd.md") == shop.read(f"{second}/delta/draft.md")
    prompt = shop.prompts()[0]
    assert (f"## Input: {first}/prd_snapshot.md" in prompt, f"## Input: {first}/tasks.json" in prompt) == (True, True)
    assert "## Input: " + second + "/delta_prd.md" in shop.prompts()[1]
    assert shop.git("ls-files", second).split()[-1].startswith(second)
    assert f"{second}/delta_from.txt" in shop.git("ls-files", second)


def test_the_plan_says_of_an_edited_backlog_what_then_runs(shop: Project) -> None:
    assert "hunt says `BUGS: NONE`: the run ends\n" in shop.doflow("plan", "prd").stdout
    assert shop.doit("prd", timeout=120).returncode == 0
    (session,) = prd.sessions(shop)
    backlog = shop.read(f"{session}/tasks.json")
    assert "Do P1.M1.T1.S2" in backlog
    shop.write(f"{session}/tasks.json", backlog.replace("Do P1.M1.T1.S2", "Do it otherwise"))
    shop.forget_calls()

    planned = {line["step"]: line for line in json.loads(shop.doflow("plan", "prd", "--json").stdout)["steps"]}
    done = shop.doit("prd", timeout=120)

    assert done.returncode == 0, done.stdout + done.stderr
    assert {"implement:P1.M1.T1.S2", "validate", "hunt"} <= set(shop.calls())
    said = {name for name, line in planned.items() if line["verdict"] == "runs" and name != "validation"}
    assert said == set(shop.calls())
    assert planned["validation"]["verdict"] == "runs"
    assert planned["validate"]["reasons"] == ["the phases of implement, which it follows, change"]
    assert "nothing to run" in shop.doflow("plan", "prd").stdout


def test_the_commit_of_a_subtask_holds_its_code_and_its_status(shop: Project) -> None:
    shop.doit("prd", timeout=120)
    (main,) = prd.sessions(shop)

    commit = shop.git("log", "--format=%H", "--grep=^P1.M1.T1.S1").strip()

    names = shop.git("show", "--format=", "--name-only", commit).split()
    assert names == [f"{main}/doflow.lock", f"{main}/tasks.json", f"src/built_P1_M1_T1_S1_{main[-6:]}.py"]
    shown = json.loads(shop.git("show", f"{commit}:{main}/tasks.json"))["backlog"][0]
    inner = shown["milestones"][0]["tasks"][0]["subtasks"]
    assert [item["status"] for item in inner] == ["Complete", "Ready"]
    assert shown["status"] == "Implementing"


def test_a_hunt_that_finds_nothing_says_so_and_leaves_no_report(shop: Project) -> None:
    done = shop.doit("prd", timeout=120)

    (main,) = prd.sessions(shop)
    assert (done.returncode, shop.calls()) == (0, MAIN)
    assert (markers(shop, main)["hunt"], (shop.root / main / "TEST_RESULTS.md").exists()) == ("BUGS: NONE", False)
    shop.forget_calls()
    assert (shop.doit("prd").returncode, shop.calls()) == (0, [])


def test_after_two_bug_fix_sessions_a_person_is_asked(shop: Project) -> None:
    shop.agent(prd.good(bugs=3))

    done = shop.doit("prd", timeout=120)

    assert (done.returncode, len(prd.sessions(shop))) == (2, 3)
    assert "two bug-fix sessions were not enough" in done.stdout
    assert shop.read(f"{prd.sessions(shop)[0]}/TEST_RESULTS.md").startswith("# Hunt 2 in")


def test_what_a_hunt_without_a_verdict_says_is_no_pass(shop: Project) -> None:
    shop.agent(prd.good(before='if step == "hunt": make("It looks fine to me.\\n"); done = True'))

    done = shop.doit("prd", timeout=120)

    assert (done.returncode, shop.state()["status"]) == (1, "failed")
    assert "none of the lines `BUGS: NONE`, `BUGS: FOUND`" in done.stdout


def test_a_delta_that_is_lost_is_put_back_without_an_agent(shop: Project) -> None:
    shop.doit("prd", timeout=120)
    shop.write("PRD.md", CHANGED)
    shop.doit("prd", timeout=120)
    session = prd.sessions(shop)[1]
    text = shop.read(f"{session}/delta_prd.md")
    (shop.root / session / "delta_prd.md").unlink()
    shop.forget_calls()

    assert (shop.doit("prd").returncode, shop.calls()) == (0, [])

    assert shop.read(f"{session}/delta_prd.md") == text


def test_changed_requirements_of_an_unfinished_session_are_a_persons_to_decide(shop: Project) -> None:
    assert shop.doit("prd", "--next").returncode == 0
    shop.write("PRD.md", CHANGED)
    before = shop.tree()

    asked = shop.doit("prd")

    assert (asked.returncode, shop.calls(), shop.tree() == before) == (2, ["backlog"], True)
    (name,) = (path.rpartition("/")[2] for path in prd.sessions(shop))
    assert f"PRD.md changed since session {name} started, and that session is not finished" in asked.stderr
    assert f"doit prd --run={name}" in asked.stderr

    finished = shop.doit("prd", f"--run={name}", timeout=120)
    assert (finished.returncode, shop.calls()) == (0, MAIN)
    shop.forget_calls()
    assert (shop.doit("prd", "--next").returncode, shop.calls()) == (0, ["delta"])


def test_a_person_may_begin_with_the_change_at_once(shop: Project) -> None:
    shop.doit("prd", "--next")
    shop.write("PRD.md", CHANGED)

    assert shop.doit("prd", "--new", "--next").returncode == 0

    assert shop.calls() == ["backlog", "delta"]
    assert shop.read(f"{prd.sessions(shop)[1]}/delta_from.txt") == "001\n"


@pytest.mark.parametrize("text", ["", " \n", None])
def test_without_requirements_nothing_begins(shop: Project, text: str | None) -> None:
    if text is None:
        (shop.root / "PRD.md").unlink()
    else:
        shop.write("PRD.md", text)

    done = shop.doit("prd")

    assert (done.returncode, shop.calls(), prd.sessions(shop)) == (1, [], [])
    assert f"prd needs PRD.md, which {'does not exist' if text is None else 'is empty'}" in done.stderr


def test_the_requirements_may_stand_elsewhere(shop: Project) -> None:
    shop.write("docs/wanted.md", "# Something else\n")
    shop.commit("Elsewhere")

    assert shop.doit("prd", "--prd=docs/wanted.md", "--next").returncode == 0

    assert prd.sessions(shop) == [f"plan/001_{hashed('# Something else' + chr(10))}"]
    assert shop.doit("prd", "--prd=../x.md").returncode == 1


@pytest.mark.parametrize(
    "path",
    ["SESSION/tasks.json", "SESSION/prd_snapshot.md", "SESSION/delta_prd.md", "SESSION/delta_from.txt",
     "SESSION/TEST_RESULTS.md", "PRD.md", "src/my-tasks-old.json", "SESSION/notes.md", "plan/002_0123456789ab/x.md"],
    ids=["r0_41", "r0_42", "r0_43", "r0_44", "r0_45", "r0_46", "r0_47", "r0_48", "another session"],
)  # fmt: skip
def test_no_agent_touches_the_files_of_the_pipeline(shop: Project, path: str) -> None:
    touch = f'if phase: put("{path}".replace("SESSION", str(run_dir.relative_to(root))), "{{}}\\n")'
    shop.agent(prd.good(before=touch))
    shop.settings("retry: {enabled: false}\n")
    shop.commit("No second try")

    done = shop.doit("prd", timeout=120)

    (main,) = prd.sessions(shop)
    named = path.replace("SESSION", main)
    assert done.returncode == 1
    assert f"implement:P1.M1.T1.S1 modified files outside its scope: {named}" in done.stdout
    kept = (shop.root / named).read_text() if (shop.root / named).exists() else None
    assert kept != "{}\n"
    assert shop.git("status", "--porcelain", "--", "PRD.md", "src") == ""
    assert prd.statuses(shop, main)["P1.M1.T1.S1"] == "Failed"


def test_a_subtask_that_failed_is_tried_again_and_then_complete(shop: Project) -> None:
    shop.settings("retry: {enabled: false}\n")
    shop.commit("No second try")
    shop.agent(prd.good(before='if phase == "P1.M1.T1.S2": stop(1)'))
    assert shop.doit("prd", timeout=120).returncode == 1
    (main,) = prd.sessions(shop)
    assert prd.statuses(shop, main) | {"P1.M1.T1.S2": "Failed"} == prd.statuses(shop, main)
    shop.agent(prd.good())
    shop.forget_calls()

    assert (shop.doit("prd", timeout=120).returncode, shop.calls()) == (0, MAIN[4:])

    assert prd.statuses(shop, main) == DONE


def test_a_person_may_change_the_backlog_and_only_what_changed_is_done_again(shop: Project) -> None:
    shop.doit("prd", timeout=120)
    (main,) = prd.sessions(shop)
    text = shop.read(f"{main}/tasks.json")
    shop.write(f"{main}/tasks.json", text.replace('"title": "Do P1.M1.T1.S2"', '"title": "Do it well"'))
    shop.forget_calls()

    done = shop.doit("prd", timeout=120)

    assert (done.returncode, shop.calls()) == (0, ["research:p1-m1-t1-s2", "implement:P1.M1.T1.S2", "validate", "hunt"])
    assert f"kept your edits to {main}/tasks.json" in done.stdout
    assert prd.statuses(shop, main) == DONE


def test_a_backlog_that_a_person_broke_is_told_in_words(shop: Project) -> None:
    shop.doit("prd", timeout=120)
    (main,) = prd.sessions(shop)
    shop.write(f"{main}/tasks.json", '{"backlog": []}')

    done = shop.doit("prd")

    assert done.returncode == 1
    assert f"{main}/tasks.json: $.backlog" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_backlog_that_breaks_its_contract_is_handed_back_to_the_agent(shop: Project) -> None:
    bad = 'if step == "backlog" and role == "step": make(backlog("P1.M1.T1.S1", "P1.M1.T1.S1")); done = True'
    shop.agent(prd.good(before=bad))

    assert shop.doit("prd", "--next").returncode == 0

    assert shop.calls() == ["backlog", "backlog repair"]
    assert "P1.M1.T1.S1: duplicate id" in shop.prompts()[1]


def test_r0_33_and_r0_35_stages_can_be_skipped_and_are_made_good_later(shop: Project) -> None:
    shop.doit("prd", "--next")

    skipped = shop.doit("prd", env={"SKIP_EXECUTION_LOOP": "true", "SKIP_BUG_FINDING": "true"}, timeout=120)
    assert (skipped.returncode, shop.calls()) == (
        1,
        ["backlog", *MAIN[1:3], "validate", "validation repair"] + ["validation repair"] * 2,
    )
    shop.forget_calls()

    shop.write("src/by_hand.py", "HERE = 1\n")
    shop.commit("By hand")
    assert shop.doit("prd", env={"SKIP_EXECUTION_LOOP": "true"}, timeout=120).returncode == 0
    assert shop.calls() == ["hunt"]
    shop.forget_calls()

    assert shop.doit("prd", timeout=120).returncode == 0
    assert shop.calls() == ["implement:P1.M1.T1.S1", "implement:P1.M1.T1.S2", "validate", "hunt"]


@pytest.mark.parametrize("value", ["TRUE", "1", "yes"])
def test_a_flag_that_is_not_exactly_true_skips_nothing(shop: Project, value: str) -> None:
    assert shop.doit("prd", env={"SKIP_BUG_FINDING": value}, timeout=120).returncode == 0

    assert shop.calls() == MAIN


def test_r0_17_and_r0_18_in_bug_fix_mode_no_session_begins_in_the_plan_folder(shop: Project) -> None:
    env = {"SKIP_BUG_FINDING": "true"}

    main = shop.doit("prd", env=env)
    stray = shop.doit("prd", "--feature-dir=plan/fixes", env=env)

    assert [main.returncode, stray.returncode, shop.calls()] == [1, 1, []]
    assert "SKIP_BUG_FINDING=true is only for bug-fix sessions, and plan/001_" in main.stderr
    assert not (shop.root / "plan").exists()
    assert shop.git("branch", "--format=%(refname:short)").split() == ["main"]


@pytest.mark.parametrize("folder", ["plan/001_0123456789ab/bugfix/001_0123456789ab", "plan/fixes", "specs/x"])
def test_a_session_begins_only_where_sessions_are(shop: Project, folder: str) -> None:
    done = shop.doit("prd", f"--feature-dir={folder}")

    assert (done.returncode, shop.calls(), (shop.root / folder).exists()) == (1, [], False)


def test_r0_21_to_r0_23_the_guard_says_what_it_saw(shop: Project) -> None:
    shop.agent(prd.good(bugs=1))

    done = shop.doit("prd", env={"DOFLOW_DEBUG": "1"}, timeout=120)

    main, child = prd.sessions(shop)
    assert done.stderr == f"[Guard] PLAN_DIR=plan\n[Guard] SESSION_DIR={main}\n[Guard] SKIP_BUG_FINDING=\n"
    log = shop.root / ".doflow" / "runs" / f"{main[5:]}.bugfix.{child[-16:]}" / "logs" / "guard.log"
    assert log.read_text() == (
        f"[Guard] PLAN_DIR={main}/bugfix\n[Guard] SESSION_DIR={child}\n[Guard] SKIP_BUG_FINDING=true\n"
    )


def test_r0_36_to_r0_38_the_hunt_is_set_up_by_the_environment(shop: Project) -> None:
    shop.agent(prd.good(bugs=1))
    settings = shop.read("doflow.yaml")
    shop.write("doflow.yaml", settings.replace("  default:", "  finder:", 1) + settings.partition("\n")[2])
    shop.commit("Two agents")
    env = {"BUG_FINDER_AGENT": "finder", "BUG_RESULTS_FILE": "BUGS.md", "BUGFIX_SCOPE": "task"}

    assert shop.doit("prd", env=env, timeout=120).returncode == 0

    main = prd.sessions(shop)[0]
    names = [(shop.root / main / name).exists() for name in ("BUGS.md", "TEST_RESULTS.md")]
    lock = shop.read(f"{main}/doflow.lock")
    assert (names, '"agent": "finder"' in lock, "into one task per bug" in shop.prompts()[len(MAIN)]) == (
        [True, False],
        True,
        True,
    )


def test_a_bug_fix_session_that_fails_fails_the_step_and_goes_on_where_it_was(shop: Project) -> None:
    shop.settings("retry: {enabled: false}\n")
    shop.commit("No second try")
    shop.agent(prd.good(bugs=1, before='if phase and "bugfix" in run_dir.parts: stop(1)'))
    failed = shop.doit("prd", timeout=120)
    main, child = prd.sessions(shop)
    assert failed.returncode == 1
    assert f"the bug-fix session {child} did not succeed" in failed.stdout
    assert f"doflow status {main[5:]}.bugfix.{child[-16:]}" in failed.stdout
    shop.agent(prd.good(bugs=1))
    shop.forget_calls()

    assert (shop.doit("prd", timeout=120).returncode, shop.calls()) == (0, [*FIX[2:], "hunt-2"])

    assert prd.sessions(shop) == [main, child]


def test_a_rate_limit_in_a_bug_fix_session_is_the_runs_own(shop: Project) -> None:
    limited = 'if phase and "bugfix" in run_dir.parts: say("RESUME-AT: 2099-01-01T00:00:00Z"); stop(75)'
    shop.agent(prd.good(bugs=1, before=limited))

    done = shop.doit("prd", timeout=120)

    main, child = prd.sessions(shop)
    outer, inner = shop.state(main[5:]), shop.state(f"{main[5:]}.bugfix.{child[-16:]}")
    assert (done.returncode, outer["status"], inner["status"]) == (3, "rate-limited", "rate-limited")
    assert outer["resumeAt"] == inner["resumeAt"] > "2026"


def test_a_clone_knows_that_everything_is_done(shop: Project, tmp_path: Path) -> None:
    shop.agent(prd.good(bugs=1))
    shop.doit("prd", timeout=120)
    shop.git("clone", "-q", str(shop.root), str(tmp_path / "clone"), cwd=tmp_path)
    shop.forget_calls()

    done = shop.doit("prd", cwd=tmp_path / "clone", timeout=120)

    assert (done.returncode, shop.calls()) == (0, [])


def test_looking_shows_the_session_and_its_bug_fix_session(shop: Project) -> None:
    shop.agent(prd.good(bugs=1))
    shop.doit("prd", timeout=120)
    main, child = prd.sessions(shop)

    rows = json.loads(shop.doflow("status", "--json").stdout)["runs"]
    steps = shop.doflow("status", main[5:])
    inner = shop.doflow("status", f"{main[5:]}.bugfix.{child[-16:]}")

    assert [(row["dir"], row["status"]) for row in rows] == [(main, "completed"), (child, "completed")]
    assert ("implement:P1.M1.T1.S2" in steps.stdout, "hunt" in inner.stdout) == (True, False)
    assert shop.doflow("plan").returncode == 0
    assert shop.doflow("show", "prd").returncode == 0


def test_the_rehearsal_agent_plays_the_whole_flow(shop: Project) -> None:
    done = shop.doit("prd", "--agent=rehearsal", timeout=120)

    assert (done.returncode, shop.calls()) == (0, [])
    assert prd.statuses(shop, prd.sessions(shop)[0]) == DONE


def test_a_project_may_keep_every_run_in_the_plan_folder(shop: Project) -> None:
    shop.settings("layout: plan\n")
    shop.flow(
        "small", "flow: small\nparams: {goal: {required: true}}\nsteps:\n  plan: {prompt: Plan it., makes: plan.md}\n"
    )
    shop.commit("In plan/")

    assert shop.doit("small", "--goal=Log in").returncode == 0

    assert prd.sessions(shop) == [f"plan/001_{hashed('Log in')}"]
    assert (shop.doit("small").returncode, shop.calls()) == (0, ["plan"])
