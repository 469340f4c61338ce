"""`doflow answer`: each answer takes the place of its question, and nothing else changes."""

from __future__ import annotations

import json

import pytest
from tests.support.decisions import at_terminal, clean_tree, lock, status
from tests.support.project import Project
from tests.support.terminal import Terminal


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


# --- questions that change while they are asked


CLARIFIED = """
    flow: work
    steps:
      spec: {prompt: Specify, makes: spec.md, clarify: true}
"""


COLOUR, SIZE = "[NEEDS CLARIFICATION: Which colour?]", "[NEEDS CLARIFICATION: Which size?]"


def test_questions_that_were_swapped_while_they_were_asked_are_not_answered(project: Project) -> None:
    project.flow("work", CLARIFIED)
    project.commit("A flow")
    project.agent(f'make("# Spec\\n\\n{COLOUR}\\n")')
    assert project.doit("work", "--goal=x").returncode == 2
    spec = project.run_dir() / "spec.md"
    head = project.git("rev-parse", "HEAD")

    with Terminal(project, "doflow", "answer") as screen:
        screen.until("1. Which colour?")
        spec.write_text(f"# Spec\n\n{SIZE}\n")
        screen.press("red\r")
        code = screen.wait()
        said = screen.text()

    assert (code, spec.read_text(), project.git("rev-parse", "HEAD")) == (1, f"# Spec\n\n{SIZE}\n", head), said
    assert "the questions have changed in the meantime; nothing was written" in said
    assert project.doflow("answer", "large").returncode == 0
    assert "large" in spec.read_text()
