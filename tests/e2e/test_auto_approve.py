"""`--auto-approve`: the yes that it gives is kept, however the run goes on."""

from __future__ import annotations

import pytest
from tests.support.project import Project

FLOW = """\
    flow: dev
    params:
      goal: {about: What to build, required: true}
    steps:
      spec: {prompt: Specify it, makes: spec.md, gate: Is it right?}
      plan: {prompt: Plan it, reads: [spec.md], makes: plan.md}
"""


@pytest.fixture
def dev(project: Project) -> Project:
    project.settings("retry: {enabled: false}\n")
    project.flow("dev", FLOW)
    project.commit("A flow")
    return project


@pytest.mark.parametrize(("ends", "code"), [("stop(75)", 3), ("stop(1)", 1)])
def test_the_yes_is_kept_if_the_next_step_ends_without_a_commit(dev: Project, ends: str, code: int):
    dev.agent(f"if step == 'plan': {ends}\nusual()")
    assert dev.doit("dev", "--goal=x", "--auto-approve").returncode == code
    assert "Is it right?" not in dev.doflow("status").stdout
    assert "approved by auto_approve" in dev.doflow("why", "spec.gate").stdout
    dev.agent("usual()")

    done = dev.doit("dev")

    assert (done.returncode, dev.calls().count("spec")) == (0, 1), done.stdout
    assert '"by": "auto_approve"' in dev.git("show", f"HEAD:specs/{dev.runs()[0]}/doflow.lock")
    assert dev.doflow("verify").returncode == 0


@pytest.mark.smoke
def test_a_kept_yes_is_to_the_bytes_that_were_there_and_can_be_taken_back(dev: Project):
    dev.agent("if step == 'plan': stop(75)\necho()")
    assert dev.doit("dev", "--goal=x", "--auto-approve").returncode == 3

    assert dev.doflow("reset", "spec.gate").returncode == 0
    assert dev.doit("dev").returncode == 2

    assert dev.doit("dev", "--auto-approve").returncode == 3
    assert dev.doflow("reject", "spec", "--note", "shorter").returncode == 0
    again = dev.doit("dev")
    assert (again.returncode, "Is it right?" in again.stdout) == (2, True)


def test_a_yes_is_to_the_bytes_and_holds_again_when_they_are_back(dev: Project):
    dev.agent("if step == 'plan': stop(75)\nusual()")
    assert dev.doit("dev", "--goal=x", "--auto-approve").returncode == 3
    spec = dev.run_dir() / "spec.md"
    approved = spec.read_text()
    spec.write_text("# Mine\n")
    asked = dev.doit("dev")
    assert (asked.returncode, "Is it right?" in asked.stdout) == (2, True), asked.stdout
    spec.write_text(approved)

    assert dev.doit("dev").returncode == 3

    assert dev.calls() == ["spec", "plan", "plan"]


def test_resetting_the_run_takes_back_the_yes_of_a_gate_that_only_asks(dev: Project):
    dev.flow(
        "dev", FLOW.replace(", gate: Is it right?", "") + "      ok: {kind: gate, reads: [spec.md], gate: Sure?}\n"
    )
    dev.agent("if step == 'plan': stop(75)\nusual()")
    text = dev.read("flows/dev.yaml").replace("steps:", "pipeline: [spec, ok, plan]\nsteps:")
    dev.write("flows/dev.yaml", text)
    dev.commit("A gate of its own")
    assert dev.doit("dev", "--goal=x", "--auto-approve").returncode == 3
    assert "Sure?" not in dev.doflow("status").stdout

    assert dev.doflow("reset", "--yes").returncode == 0

    assert dev.doit("dev").returncode == 2


def test_the_yes_of_a_last_gate_that_only_asks_is_committed_with_the_end(dev: Project):
    dev.flow(
        "dev", FLOW.replace(", gate: Is it right?", "") + "      ok: {kind: gate, reads: [plan.md], gate: Sure?}\n"
    )
    dev.commit("A gate at the end")

    assert dev.doit("dev", "--goal=x", "--auto-approve").returncode == 0

    assert '"auto_approve"' in dev.git("show", f"HEAD:specs/{dev.runs()[0]}/doflow.lock")
    assert dev.git("status", "--porcelain") == ""
