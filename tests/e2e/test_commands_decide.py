"""A person decides: answer, approve, reject, adopt, reset; from outside, with real doit, git and a scripted agent."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest
from tests.support.project import PROGRAMS, Project, eventually

FLOW = """\
    flow: ask
    params:
      goal: {about: What to build, required: true}
    steps:
      specify: {prompt: "Specify {goal}", reads: [input.md], makes: spec.md, clarify: true, check: {headings: [Spec]}}
      plan: {prompt: Plan it, reads: [spec.md], makes: plan.md, gate: Is the plan good?}
      count: {kind: shell, run: [sh, -c, "echo counted >> ../outside/count.log"]}
      tasks: {prompt: List the tasks, reads: [plan.md], makes: tasks.md}
"""
ASKS = """\
    if step == "specify":
        days = "[NEEDS CLARIFICATION: how many days [7 or 14]?]"
        make(f"# Spec\\n\\nBy [NEEDS CLARIFICATION: email or sms?], for {days}.\\n")
    else:
        echo()
"""
CALM = "if step == 'specify': make('# Spec\\n')\nelse: echo()"


@pytest.fixture
def asking(project: Project) -> Project:
    project.flow("ask", FLOW)
    project.agent(ASKS)
    project.commit("A flow")
    return project


@pytest.fixture
def gated(asking: Project) -> Project:
    """At the gate of the plan, with no question open."""
    asking.agent(CALM)
    assert asking.doit("ask", "--goal=Log in").returncode == 2
    return asking


@pytest.fixture
def finished(gated: Project) -> Project:
    assert gated.doflow("approve").returncode == 0
    assert gated.doit("ask").returncode == 0
    gated.forget_calls()
    return gated


def lock(project: Project) -> str:
    return (project.run_dir() / "doflow.lock").read_text()


def status(project: Project) -> tuple[str, object]:
    state = project.state()
    return state["status"], state["pendingApproval"]


def clean_tree(project: Project) -> bool:
    """Nothing is left uncommitted, and all records agree."""
    told = project.doflow("verify")
    assert told.returncode == 0, told.stdout
    return project.git("status", "--porcelain") == ""


def at_terminal(project: Project, typed: str, *words: str) -> tuple[int, str]:
    """The program on a terminal of its own, with what a person types."""
    ours, theirs = pty.openpty()
    program = (str(PROGRAMS / "doflow"), *words)
    done = subprocess.Popen(program, cwd=project.root, env=project.env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, typed.encode())
    said = b""
    try:
        while chunk := os.read(ours, 4096):
            said += chunk
    except OSError:
        pass  # the terminal closes when the program ends
    os.close(ours)
    return done.wait(60), said.decode()


@pytest.mark.smoke
def test_the_way_from_questions_over_a_gate_to_the_end(asking):
    first = asking.doit("ask", "--goal=Log in")
    waits = {"type": "clarification", "step": "specify"}
    assert (first.returncode, status(asking)) == (2, ("awaiting-approval", waits))
    assert "doflow answer" in first.stdout

    answered = asking.doflow("answer", "email", "7")
    assert (answered.returncode, status(asking)) == (0, ("paused", None))
    assert "continue with:\n  doit ask" in answered.stdout

    second = asking.doit("ask")
    assert (second.returncode, status(asking)) == (2, ("awaiting-approval", {"type": "gate", "step": "plan"}))
    assert asking.calls() == ["specify", "plan"]
    assert "By email, for 7." in asking.prompts()[-1]

    assert asking.doit("ask").returncode == 2
    assert asking.doflow("approve").returncode == 0
    assert asking.doit("ask").returncode == 0
    assert (asking.calls(), status(asking)) == (["specify", "plan", "tasks"], ("completed", None))
    assert clean_tree(asking)


@pytest.mark.smoke
def test_an_answer_takes_the_place_of_its_marker_and_no_other_byte_changes(asking):
    begin = b"# Spec\r\n\xff \xe9 [a] \r\n\r\nBy [NEEDS CLARIFICATION: email\r\n or sms?]\tand "
    body = begin + b"[NEEDS CLARIFICATION:  days?]\r"
    asking.agent(f"""
        if step == "specify":
            makes[0].write_bytes({body!r})
        else:
            usual()
    """)
    asking.doit("ask", "--goal=Log in")

    asking.doflow("answer", "--answer", "2=7 = seven")

    assert (asking.run_dir() / "spec.md").read_bytes() == begin + b"7 = seven\r"
    assert '"author": "answer"' in lock(asking)
    assert clean_tree(asking)


def test_some_answers_leave_the_rest_open(asking):
    asking.doit("ask", "--goal=Log in")

    done = asking.doflow("answer", "--json", "--answer", "2=7")

    assert (done.returncode, json.loads(done.stdout)["left"]) == (0, 1)
    assert status(asking) == ("awaiting-approval", {"type": "clarification", "step": "specify"})
    assert asking.doit("ask").returncode == 2
    listed = json.loads(asking.doflow("answer", "--list", "--json").stdout)["questions"]
    folder = f"specs/{asking.runs()[0]}"
    assert listed == [{"number": 1, "step": "specify", "file": f"{folder}/spec.md", "question": "email or sms?"}]


@pytest.mark.parametrize(
    "words",
    [(), ("",), ("a", "  "), ("a", "b", "c"), ("--answer", "3=x"), ("--answer", "x"), ("--file", "none.txt"),
     ("--file", "x", "a")],
)  # fmt: skip
def test_an_answer_that_does_not_fit_writes_nothing(asking, words):
    asking.doit("ask", "--goal=Log in")
    before, events = asking.tree(), asking.events()

    done = asking.doflow("answer", *words)

    assert (done.returncode, asking.tree(), asking.events()) == (1, before, events)
    assert "hint: " in done.stderr


def test_without_an_answer_the_questions_and_the_command_are_said(asking):
    asking.doit("ask", "--goal=Log in")

    done = asking.doflow("answer")

    assert done.returncode == 1
    assert "1. email or sms?" in done.stderr and 'doflow answer "answer 1" "answer 2"' in done.stderr


def test_answers_come_from_a_file(asking):
    asking.doit("ask", "--goal=Log in")
    (asking.outside / "answers.yaml").write_text("2: |\n  two\n  weeks\n1: email\n")

    assert asking.doflow("answer", "--file", str(asking.outside / "answers.yaml")).returncode == 0

    assert (asking.run_dir() / "spec.md").read_text() == "# Spec\n\nBy email, for two\nweeks.\n"


def test_on_a_terminal_the_questions_are_asked_one_by_one(asking):
    asking.doit("ask", "--goal=Log in")

    code, said = at_terminal(asking, "\nemail\n\x04", "answer")

    assert (code, "1. email or sms?" in said, "2. how many days" in said) == (0, True, True)
    assert "By email, for [NEEDS" in (asking.run_dir() / "spec.md").read_text()


def test_there_is_nothing_to_answer_where_nothing_is_asked(gated):
    done = gated.doflow("answer", "email")

    assert (done.returncode, "no open questions" in done.stderr) == (1, True)
    assert gated.doflow("answer", "--list").returncode == 0


def test_an_answer_beside_an_edit_by_hand_leaves_the_text_the_persons(asking):
    asking.doit("ask", "--goal=Log in")
    spec = asking.run_dir() / "spec.md"
    spec.write_text(spec.read_text() + "\nMy own line.\n")
    asking.doflow("answer", "email", "7")
    text = spec.read_text()
    (asking.run_dir() / "input.md").write_text("Log in, and out\n")

    done = asking.doit("ask")

    assert (done.returncode, spec.read_text(), asking.calls()) == (2, text, ["specify"])
    assert "My own line." in text and "doflow adopt specify" in done.stdout


@pytest.mark.smoke
def test_a_yes_counts_for_exactly_what_was_shown(finished):
    plan = finished.run_dir() / "plan.md"
    plan.write_text("# Another plan\n")

    assert finished.doit("ask").returncode == 2
    plan.write_text("# Yet another\n")
    assert finished.doflow("approve", "plan", "--note", "better so").returncode == 0
    done = finished.doit("ask")

    assert (done.returncode, finished.calls()) == (0, ["tasks"])
    assert '"by": "Ada Person", "note": "better so"' in lock(finished)


def test_the_same_bytes_made_again_are_not_asked_about_again(finished):
    text = finished.run_dir().joinpath("plan.md").read_text()
    finished.agent(f"make({text!r})")

    done = finished.doit("ask", "--force=plan")

    assert (done.returncode, finished.calls()) == (0, ["plan"])


def test_approving_twice_changes_nothing(gated):
    gated.doflow("approve")
    before, head = lock(gated), gated.git("rev-parse", "HEAD")

    again = gated.doflow("approve", "ask:plan.gate")

    assert (again.returncode, lock(gated), gated.git("rev-parse", "HEAD")) == (0, before, head)
    assert "already approved by Ada Person" in again.stdout


@pytest.mark.parametrize(
    ("step", "words"),
    [("specify", "has no gate"), ("nosuch", "has no step nosuch"), ("plna", "did you mean plan")],
)
def test_what_has_no_gate_cannot_be_approved(gated, step, words):
    done = gated.doflow("approve", step)

    assert (done.returncode, words in done.stderr) == (1, True)


def test_a_gate_that_is_not_reached_cannot_be_approved(asking):
    asking.doit("ask", "--goal=Log in")

    named, unnamed = asking.doflow("approve", "plan"), asking.doflow("approve")

    assert (named.returncode, unnamed.returncode) == (1, 1)
    assert "has not been reached (specify.clarify" in named.stderr
    assert "no gate" in unnamed.stderr and "doit ask" in unnamed.stderr


def test_a_gate_of_its_own_shows_what_it_reads(project):
    project.flow(
        "own",
        """\
        flow: own
        steps:
          write: {prompt: Write, makes: text.md}
          sign: {kind: gate, reads: [text.md], gate: Sign it?}
          send: {prompt: Send, reads: [text.md], makes: sent.md}
    """,
    )
    project.commit("A flow")
    assert project.doit("own", "--goal=x").returncode == 2

    refused = project.doflow("reject", "sign", "--note", "no")
    assert (refused.returncode, 'doflow reject write --note "no"' in refused.stderr) == (1, True)
    assert project.doflow("adopt", "sign").returncode == 1
    assert project.doflow("approve").returncode == 0
    assert (project.doit("own").returncode, project.calls()) == (0, ["write", "send"])

    (project.run_dir() / "text.md").write_text("other\n")
    assert project.doit("own").returncode == 2
    assert project.doflow("reset", "sign", "--yes").returncode == 0
    assert '"sign"' not in lock(project)


@pytest.mark.smoke("flag")
@pytest.mark.parametrize("way", ["flag", "settings"])
def test_auto_approve_passes_gates_and_never_questions(asking, way):
    if way == "settings":
        asking.settings("auto_approve: true\n")
        asking.commit("Settings")
    flag = ("--auto-approve",) if way == "flag" else ()

    assert asking.doit("ask", "--goal=Log in", *flag).returncode == 2
    assert status(asking)[1] == {"type": "clarification", "step": "specify"}
    asking.doflow("answer", "email", "7")
    assert asking.doit("ask", *flag).returncode == 0


@pytest.mark.smoke
def test_a_no_makes_the_step_again_with_the_note_in_its_prompt(gated):
    gated.doflow("approve")
    gated.forget_calls()

    done = gated.doflow("reject", "plan", "--note", "Leave the app out: it's too much")

    assert (done.returncode, status(gated)[0]) == (0, "paused")
    assert gated.doflow("reject", "plan", "--note", "Leave the app out: it's too much").returncode == 0
    assert gated.doit("ask").returncode == 2
    assert gated.calls() == ["plan"]
    assert "Leave the app out: it's too much" in gated.prompts()[-1]
    assert gated.subjects()[-1] == "plan: plan.md" and clean_tree(gated)
    assert gated.doit("ask").returncode == 2
    assert gated.calls() == ["plan"]


def test_the_same_no_to_the_next_result_counts_again(gated):
    for count in (1, 2, 3):
        gated.forget_calls()
        gated.doflow("reject", "plan", "--note", "too long")
        assert gated.doit("ask").returncode == 2
        assert gated.calls() == ["plan"], f"the {count}. time"
        assert "too long" in gated.prompts()[-1]


@pytest.mark.smoke
def test_an_identical_result_after_a_no_is_asked_about_again(finished):
    text = (finished.run_dir() / "plan.md").read_text()
    finished.agent(f"make({text!r})")
    finished.doflow("reject", "plan", "--note", "hm")

    assert (finished.doit("ask").returncode, finished.calls()) == (2, ["plan"])


@pytest.mark.parametrize(
    ("words", "said"),
    [(("plan",), "--note"), (("plan", "--note", " "), "the note is empty"), (("tasks", "--note", "x"), "has not made"),
     (("count", "--note", "x"), "by a command")],
)  # fmt: skip
def test_a_no_that_nobody_could_follow_is_refused(gated, words, said):
    before = lock(gated)

    done = gated.doflow("reject", *words)

    assert (done.returncode, said in done.stderr, lock(gated)) == (1, True, before)


def test_a_no_to_an_edit_by_hand_says_that_the_next_run_pauses(gated):
    plan = gated.run_dir() / "plan.md"
    plan.write_text("# Mine\n")

    done = gated.doflow("reject", "plan", "--note", "longer")

    assert "has manual edits" in done.stdout and "--force=plan" in done.stdout
    assert (gated.doit("ask").returncode, plan.read_text()) == (2, "# Mine\n")
    assert gated.doflow("adopt", "plan").returncode == 0
    assert gated.doflow("approve").returncode == 0
    assert gated.doit("ask").returncode == 0
    assert (plan.read_text(), gated.calls()) == ("# Mine\n", ["specify", "plan", "tasks"])


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


@pytest.mark.smoke
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


@pytest.mark.smoke
def test_nobody_decides_while_an_agent_works(asking):
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


TWO = """\
    flow: two
    steps:
      one: {prompt: One, makes: one.md, clarify: true, after: []}
      other: {prompt: Other, makes: other.md, clarify: true, after: []}
"""


def test_the_first_word_of_an_answer_may_name_the_step_as_with_the_verbs_beside_it(project):
    project.flow("two", TWO)
    project.agent("make(f'# {step}\\n\\nBy [NEEDS CLARIFICATION: how?].\\n')")
    project.commit("A flow")
    assert project.doit("--continue", "two", "--goal=x").returncode == 2

    listed = project.doflow("answer", "other", "--list", "--json")
    done = project.doflow("answer", "other", "by hand")

    assert [row["step"] for row in json.loads(listed.stdout)["questions"]] == ["other"]
    assert done.returncode == 0, done.stderr
    assert "By by hand." in (project.run_dir() / "other.md").read_text()
    assert "NEEDS CLARIFICATION" in (project.run_dir() / "one.md").read_text()
    assert project.doflow("answer", "other").returncode == 0, "no step that asks: it is the answer"
    assert "By other." in (project.run_dir() / "one.md").read_text()


@pytest.mark.parametrize("step", ["one: {kind: shell, run: ['true'], gate: Good?}", "one: {kind: gate, gate: Good?}"])
def test_a_gate_offers_no_note_to_a_step_that_reads_none(project, step):
    project.flow("bare", f"flow: bare\nsteps:\n  {step}\n")
    project.commit("A flow")

    paused = project.doit("bare", "--goal=x")

    said = paused.stdout + paused.stderr
    assert (paused.returncode, "doflow approve one " in said, "reject" in said) == (2, True, False), said
