"""`doflow adopt` and `doflow reset`, and who may decide when."""

from __future__ import annotations

import json

import pytest
from tests.support.decisions import CALM, at_terminal, clean_tree, lock, status
from tests.support.project import eventually


def test_a_stale_step_with_an_edit_is_kept_by_adopt_and_rebuilt_by_force(finished):
    plan = finished.run_dir() / "plan.md"
    plan.write_text("# Mine\n")
    (finished.run_dir() / "spec.md").write_text("# Spec\n\nChanged too.\n")
    assert (finished.doit("ask").returncode, plan.read_text()) == (2, "# Mine\n")

    assert finished.doflow("adopt", "plan").returncode == 0

    finished.doflow("approve")
    assert (finished.doit("ask").returncode, finished.calls()) == (0, ["tasks"])
    (finished.run_dir() / "spec.md").write_text("# Spec\n\nChanged again.\n")
    assert finished.doit("ask").returncode == 2
    assert finished.doit("ask", "--force=plan").returncode == 2
    assert (finished.calls(), plan.read_text() != "# Mine\n") == (["tasks", "plan"], True)


def test_a_file_that_was_there_before_is_taken_as_the_steps_result(asking):
    asking.agent("say('I could not')")
    asking.doit("ask", "--goal=Log in")
    asking.forget_calls()
    asking.agent(CALM)
    (asking.run_dir() / "spec.md").write_text("no heading\n")
    assert asking.doit("ask").returncode == 2

    refused = asking.doflow("adopt", "specify")
    assert (refused.returncode, "failed its checks" in refused.stderr) == (1, True)
    assert asking.doflow("adopt", "specify", "--anyway").returncode == 0

    assert (asking.doit("ask").returncode, asking.calls()) == (2, ["plan"])
    assert (asking.run_dir() / "spec.md").read_text() == "no heading\n"
    assert clean_tree(asking)


@pytest.mark.smoke
def test_what_a_refused_step_made_is_had_without_another_call(asking):
    asking.agent("make('# Spec\\n'); put('stray.txt', 'x') if step == 'specify' and not nth else None")
    assert asking.doit("ask", "--goal=Log in").returncode == 1

    done = asking.doflow("adopt", "specify")

    assert (done.returncode, (asking.run_dir() / "spec.md").read_text()) == (0, "# Spec\n")
    assert (asking.doit("ask").returncode, asking.calls()) == (2, ["specify", "plan"])
    assert not (asking.root / "stray.txt").exists()


def test_there_is_nothing_to_adopt_where_nothing_changed(finished):
    head = finished.git("rev-parse", "HEAD")

    done = finished.doflow("adopt", "plan")

    assert (done.returncode, "nothing to adopt" in done.stdout, finished.git("rev-parse", "HEAD")) == (0, True, head)


def test_a_step_without_a_file_is_adopted_only_anyway(gated):
    gated.doflow("approve")

    refused = gated.doflow("adopt", "count")
    assert (refused.returncode, "--anyway" in refused.stderr) == (1, True)
    assert gated.doflow("adopt", "count", "--anyway").returncode == 0

    assert gated.doit("ask").returncode == 0
    assert not (gated.outside / "count.log").exists()


def test_adopt_ends_what_doit_was_told_to_forget(finished):
    finished.doit("forget", "ask:tasks")
    (finished.run_dir() / "tasks.md").write_text("# Mine\n")

    assert finished.doflow("adopt", "tasks").returncode == 0

    assert (finished.doit("ask").returncode, finished.calls()) == (0, [])


def test_an_adopted_router_leads_where_its_text_says(project):
    project.flow(
        "way",
        """\
        flow: way
        pipeline: [size, big]
        steps:
          size:
            prompt: How big?
            makes: size.md
            routes: [{when: "SCALE: SMALL", then: [small]}, {when: "SCALE: BIG", then: [big]}]
          big: {prompt: Big, makes: big.md}
          small: {prompt: Small, makes: small.md}
    """,
    )
    project.commit("A flow")
    project.agent("say('I could not')")
    project.doit("way", "--goal=x")
    project.agent("usual()")
    project.forget_calls()
    (project.run_dir() / "size.md").write_text("a guess\n")
    assert "SCALE: SMALL" in project.doflow("adopt", "size").stderr

    (project.run_dir() / "size.md").write_text("a guess\nSCALE: SMALL\n")
    assert project.doflow("adopt", "size").returncode == 0

    assert (project.doit("way").returncode, project.calls()) == (0, ["small"])


def test_what_a_killed_agent_left_cannot_be_adopted(asking):
    asking.agent("make('# Spec half')\nif not nth: import time; say('.'); time.sleep(60)")
    run = asking.start("doit", "ask", "--goal=Log in")
    assert eventually(lambda: any(asking.root.glob("specs/*/spec.md")))
    run.kill()
    run.communicate()
    assert eventually(lambda: asking.doflow("answer", "--list").returncode == 0)

    done = asking.doflow("adopt", "specify")

    assert (done.returncode, "is in quarantine: nothing was adopted" in done.stderr) == (1, True), done.stderr
    assert "doflow quarantine restore " in done.stderr
    assert "spec.md" in asking.doflow("quarantine", "list").stdout


@pytest.mark.smoke
def test_reset_lets_a_step_and_what_follows_it_be_done_again(finished):
    before = finished.tree()
    assert finished.doflow("reset", "plan").returncode == 1

    done = finished.doflow("reset", "plan", "--yes", "--json")

    assert json.loads(done.stdout)["forgotten"] == ["plan", "count", "tasks"]
    after = finished.tree()
    changed = [path for path in after if after[path] != before.get(path)]
    assert (changed, status(finished)[0]) == ([f"specs/{finished.runs()[0]}/doflow.lock"], "paused")
    assert finished.doit("ask").returncode == 2
    assert "Revise, do not rewrite" in finished.prompts()[0]
    finished.doflow("approve")
    assert finished.doit("ask").returncode == 0
    assert finished.calls() == ["plan", "tasks"]
    assert (finished.outside / "count.log").read_text() == "counted\n" * 2
    finished.forget_calls()
    assert (finished.doit("ask").returncode, finished.calls()) == (0, [])


def test_reset_of_a_gate_takes_back_the_approval_and_nothing_else(finished):
    done = finished.doflow("reset", "plan.gate")

    assert (done.returncode, "its gate asks again; all steps stay done" in done.stdout) == (0, True), done.stderr
    assert (status(finished)[0], finished.subjects()[-1]) == ("paused", "Withdraw approval of plan")
    assert "doflow approve plan" in finished.doflow("status").stdout
    assert finished.doit("ask").returncode == 2
    again = finished.doflow("reset", "ask:plan.gate", "--json")
    assert (again.returncode, json.loads(again.stdout)["forgotten"]) == (0, []), again.stderr
    assert finished.doflow("approve").returncode == 0
    assert (finished.doit("ask").returncode, finished.calls()) == (0, [])
    assert clean_tree(finished)


@pytest.mark.parametrize(
    ("said", "words"),
    [("tasks.gate", "tasks has no gate"), ("specify.clarify", "its answers are in its artifact"),
     ("specify.route", "its route follows from its marker"), ("nosuch.gate", "has no step nosuch")],
)  # fmt: skip
def test_reset_refuses_a_pause_that_has_nothing_to_forget(finished, said, words):
    before = finished.tree()

    done = finished.doflow("reset", said, "--yes")

    assert (done.returncode, words in done.stderr, finished.tree() == before) == (1, True, True), done.stderr


def test_reset_is_of_one_run_only(finished):
    finished.git("switch", "-q", "main")
    assert finished.doit("ask", "--goal=Another").returncode == 2
    assert finished.doflow("approve").returncode == 0
    assert finished.doit("ask").returncode == 0
    first, second = "001-log-in", "002-another"
    finished.git("switch", "-q", first)
    assert finished.doflow("reset", "--yes", "--run", "1").returncode == 0
    finished.git("switch", "-q", second)
    finished.forget_calls()

    assert (finished.doit("ask").returncode, finished.calls()) == (0, [])


def test_reset_of_the_whole_run_asks_on_a_terminal(finished):
    code, said = at_terminal(finished, "n\n", "reset")
    assert (code, "[y/N]" in said, '"plan": {"key"' in lock(finished)) == (1, True, True)

    code, _ = at_terminal(finished, "y\n", "reset")

    assert (code, '"key"' in lock(finished)) == (0, False)
    assert finished.doit("ask").returncode == 2
    assert finished.calls() == ["specify", "plan"]
    assert finished.doflow("reset", "--yes", "--run", "nosuch").returncode == 1


def test_reset_forgets_phases_from_a_phase_on(project):
    project.doit("tiny", "--goal=A house")
    project.forget_calls()
    assert project.doflow("reset", "implement:9", "--yes").returncode == 1

    assert project.doflow("reset", "tiny:implement:2", "--yes").returncode == 0

    project.agent("put('house.py', 'again\\n')")
    assert (project.doit("tiny").returncode, project.calls()) == (0, ["implement:2"])
    assert clean_tree(project)


def test_reset_twice_says_that_there_is_nothing_left(gated):
    gated.doflow("reset", "--yes")

    again = gated.doflow("reset", "--yes")

    assert (again.returncode, "nothing to reset" in again.stdout) == (0, True)


COMMANDS = (
    ("approve",), ("reject", "specify", "--note", "x"), ("answer", "email", "7"), ("adopt", "specify"),
    ("reset", "--yes"), ("clean",),
)  # fmt: skip


def test_no_one_decides_while_an_agent_works(asking):
    asking.doit("ask", "--goal=Log in")
    asking.agent("import time; say('.'); time.sleep(60)")
    run = asking.start("doit", "ask", "--force=specify")
    try:
        assert eventually(lambda: asking.calls() == ["specify", "specify"])
        before = asking.tree()
        told = [asking.doflow(*words) for words in COMMANDS]
        assert [done.returncode for done in told] == [1] * len(COMMANDS)
        assert all(f"pid {run.pid}" in done.stderr for done in told if "question" not in done.stderr)
        assert asking.tree() == before
    finally:
        run.terminate()
        run.communicate(timeout=60)


def test_a_decision_belongs_to_the_runs_own_branch(gated):
    gated.git("switch", "-q", "-c", "elsewhere")
    before = gated.tree()

    done = gated.doflow("approve", "plan")

    assert (done.returncode, "git switch 001-log-in" in done.stderr, gated.tree()) == (1, True, before)


def test_a_clone_can_decide_too(gated, tmp_path):
    clone = tmp_path / "clone"
    gated.git("clone", "-q", "-b", "001-log-in", str(gated.root), str(clone))

    assert gated.doflow("approve", cwd=clone).returncode == 0

    assert gated.doit("ask", cwd=clone).returncode == 0
    assert gated.calls() == ["specify", "plan", "tasks"]


def test_without_a_run_every_command_says_how_to_start_one(project):
    for words in (*COMMANDS[:-1], ("answer", "--list")):
        done = project.doflow(*words)
        assert (done.returncode, "no runs yet" in done.stderr) == (1, True), words
    assert not (project.root / ".doflow").exists()


def test_a_decision_sees_the_parameters_that_the_run_was_started_with(project):
    project.flow(
        "tone",
        """\
        flow: tone
        params: {tone: {about: How it sounds, default: plain}}
        steps:
          write: {prompt: "Write, {tone}", makes: text.md, gate: Is it good?}
          send: {prompt: "Send, {tone}", reads: [text.md], makes: sent.md}
    """,
    )
    project.commit("A flow")
    assert project.doit("tone", "--goal=x", "--tone=dry").returncode == 2

    assert project.doflow("approve").returncode == 0

    assert (project.doit("tone").returncode, project.calls()) == (0, ["write", "send"])
    assert "Send, dry" in project.prompts()[-1]
    (project.root / ".doflow/stamps/tone").unlink()
    assert (project.doit("tone", "--tone=wet").returncode, project.calls()[2:]) == (0, ["write", "send"])
    assert "Send, wet" in project.prompts()[-1]


def test_a_review_that_said_no_can_be_taken_as_it_is(project):
    project.flow(
        "look",
        """\
        flow: look
        steps:
          plan: {prompt: Plan, makes: plan.md}
          check: {kind: review, reads: [plan.md], personas: [critical], rounds: 1}
          tasks: {prompt: Tasks, reads: [plan.md], makes: tasks.md}
    """,
    )
    project.commit("A flow")
    project.agent("""
        if role == "persona":
            say("ISSUE: C | it cannot work | plan.md:1\\nVERDICT: NO-GO")
        else:
            usual()
    """)
    assert project.doit("look", "--goal=x").returncode == 2
    refused = project.doflow("reject", "check", "--note", "no")
    assert (refused.returncode, "is a review" in refused.stderr) == (1, True)

    assert project.doflow("adopt", "check").returncode == 0

    assert (project.doit("look").returncode, project.calls()[-1]) == (0, "tasks")
    assert "it cannot work" in project.prompts()[-1]
    assert clean_tree(project)
    project.agent("say('VERDICT: GO') if role == 'persona' else usual()")
    project.forget_calls()
    assert project.doflow("reset", "check", "--yes").returncode == 0
    assert (project.doit("look").returncode, project.calls()[0]) == (0, "check persona critical")
    assert clean_tree(project)


def test_one_item_of_a_foreach_is_reset_or_rejected_alone(project):
    project.flow(
        "each",
        """\
        flow: each
        steps:
          part: {prompt: "Write {item}", foreach: [one, two], makes: "{item}.md"}
    """,
    )
    project.commit("A flow")
    project.agent("echo()")
    assert project.doit("each", "--goal=x").returncode == 0
    project.forget_calls()

    assert project.doflow("reset", "part:two", "--yes").returncode == 0
    assert (project.doit("each").returncode, project.calls()) == (0, ["part:two"])
    assert project.doflow("reject", "part:one", "--note", "shorter").returncode == 0
    assert (project.doit("each").returncode, project.calls()) == (0, ["part:two", "part:one"])
    assert "shorter" in project.prompts()[-1]
    assert clean_tree(project)


def test_adopt_commits_all_that_the_refused_step_was_allowed_to_write(project):
    project.flow("one", 'flow: one\nsteps:\n  c: {prompt: Go, makes: c.md, writes: ["/lib/**"]}\n')
    project.commit("A flow")
    project.agent("""
        usual()
        import os
        os.makedirs("lib", exist_ok=True)
        open("lib/l", "w").write("code")
        open("stray", "w").write("stray")
    """)
    assert project.doit("one", "--goal=x").returncode == 1

    assert project.doflow("adopt", "c").returncode == 0

    done = project.doit("one")
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.git("status", "--porcelain") == ""
    assert {"lib/l", "specs/001-x/c.md", "specs/001-x/input.md"} <= set(project.git("ls-files").split())


def test_a_person_decides_although_the_budget_could_not_be_kept(project):
    project.flow("one", "flow: one\nsteps:\n  c: {prompt: Go, makes: c.md}\n")
    project.commit("A flow")
    project.agent("""
        usual()
        open("stray", "w").write("stray")
    """)
    assert project.doit("one", "--goal=x").returncode == 1
    project.settings("budget: {usd: 1}\n")

    done = project.doflow("adopt", "c")

    assert done.returncode == 0, done.stdout + done.stderr
