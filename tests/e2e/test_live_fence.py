"""Claude Code and Codex themselves, with a scripted model: a write outside of the step's scope is refused while it runs, the
model is told why, and the step goes on to a good end."""

from __future__ import annotations

import pytest
from tests.support import clis
from tests.support.model import Model, Say, Shell, Write, play
from tests.support.project import Project

FLOW = """\
flow: work
steps:
  write: {prompt: Write it, makes: /out.md}
  build: {kind: implement, phases: /tasks.md, prompt: Build}
"""
TASKS = "# Tasks\n\n## Phase 1: All\n\n- [ ] [T001] Do it in src/new.py\n"


@pytest.fixture
def real(project: Project) -> Project:
    project.write("src/app.py", "as it was\n")
    project.write("tasks.md", TASKS)
    project.write("PRD.md", "as it was\n")
    project.flow("work", FLOW)
    return project


def run(project: Project, name: str, step: str, *deeds: object) -> tuple[str, Model]:
    more = f"agents:\n  default: {{use: {name}, executable: {clis.executable(name)}, model: {clis.MODELS[name]}}}\n"
    project.write("doflow.yaml", more + "protect: [PRD.md]\n")
    project.commit("Ground")
    with Model(play(*deeds)) as model:
        (project.home / "tmp").mkdir()
        env = clis.variables(name, model.url, project.home) | {"TMPDIR": str(project.home / "tmp")}
        done = project.doit(f"work:{step}", "--goal=x", env=env, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, model


@clis.needed("claude")
def test_claude_code_is_told_at_once_and_the_step_ends_well(real):
    root = real.root
    deeds = (
        Write(f"{root}/src/app.py", "evil"),
        Write(f"{root}/PRD.md", "evil"),
        Write(f"{root}/out.md", "fine"),
        Say("done"),
    )

    said, model = run(real, "claude", "write", *deeds)

    assert "src/app.py is outside the allowed paths of step write (out.md)" in model.heard[1].raw
    assert "PRD.md is protected" in model.heard[2].raw
    assert real.read("src/app.py") == real.read("PRD.md") == "as it was\n"
    assert real.read("out.md") == "fine"
    assert "quarantine" not in said


@clis.needed("claude")
def test_in_a_phase_claude_code_writes_code_and_leaves_git_alone(real):
    run(real, "claude", "write", Write(f"{real.root}/out.md", "fine"), Say("done"))
    deeds = (Write(f"{real.root}/src/new.py", "NEW = 1\n"), Shell("git commit -q -a -m mine"), Say("done"))
    with Model(play(*deeds)) as model:
        done = real.doit("work", env=clis.variables("claude", model.url, real.home), timeout=110)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "git commit: doflow commits a step's changes itself" in model.heard[2].raw
    assert real.subjects()[-1] == "Phase 1: All"
    assert real.git("show", "HEAD:src/new.py") == "NEW = 1\n"
    assert "changed git state" not in done.stdout


@clis.needed("codex")
def test_codex_is_told_at_once_and_the_step_ends_well(real):
    patch = "*** Begin Patch\n*** Update File: src/app.py\n@@\n-as it was\n+evil\n*** End Patch\n"
    deeds = (Shell(f"apply_patch <<'EOF'\n{patch}EOF"), Write("out.md", "fine"), Say("done"))

    _, model = run(real, "codex", "write", *deeds)

    assert "src/app.py is outside the allowed paths of step write (out.md)" in model.heard[1].raw
    assert (real.read("src/app.py"), real.read("out.md").strip()) == ("as it was\n", "fine")
