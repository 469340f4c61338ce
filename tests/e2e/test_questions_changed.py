"""`doflow answer` asks on a terminal while the artifact is changed: an answer is never written to another question."""

from __future__ import annotations

from tests.support.project import Project
from tests.support.terminal import Terminal

FLOW = """
    flow: work
    steps:
      spec: {prompt: Specify, makes: spec.md, clarify: true}
"""
COLOUR, SIZE = "[NEEDS CLARIFICATION: Which colour?]", "[NEEDS CLARIFICATION: Which size?]"


def test_questions_that_were_swapped_while_they_were_asked_are_not_answered(project: Project) -> None:
    project.flow("work", FLOW)
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
