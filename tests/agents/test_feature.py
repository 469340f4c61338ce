"""Does the packaged flow `feature` go all its ten steps with real Claude Code? Only the model is scripted."""

from __future__ import annotations

import re

import pytest
from tests.support import clis
from tests.support.model import Deed, Heard, Model, Say, Shell, Tool, Write
from tests.support.project import Project
from tests.support.script import SPEC, TASKS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), clis.needed("claude")]

TEXTS = {"spec.md": SPEC, "tasks.md": TASKS, "suggestions.yaml": "suggestions: []\n", "plan.md": "# Plan\n\nA door.\n"}
STEPS = (
    *("specify", "suggest", "plan", "planreview", "tasks", "tasksreview", "implement"),
    *("architecturereview", "qualityreview", "phasereview"),
)


def builder(project: Project) -> object:
    """A good engineer, and four reviewers of whom one has something to say about the plan."""

    def scenario(heard: Heard) -> Deed:
        deeds = _deeds(heard.prompt, project)
        return deeds[min(heard.done, len(deeds) - 1)]

    return scenario


def _deeds(prompt: str, project: Project) -> tuple[Deed, ...]:
    if found := re.search(r"You review as \*\*(\w+)\*\*", prompt):
        plan = "# Plan" in prompt and found[1] == "critical" and "A better door" not in prompt
        return (Say("ISSUE: H | The door does not open | plan.md\nVERDICT: NO-GO" if plan else "VERDICT: GO"),)
    if "Fix what the review" in prompt:
        path = str(project.run_dir() / "plan.md")
        return Tool("Read", {"file_path": path}), Write(path, "# Plan\n\nA better door.\n"), Say("mended")
    if found := re.search(r"^## Phase (\d)", prompt, re.M):
        tasks = project.run_dir() / "tasks.md"
        ticks = f"sed -i '/## Phase {found[1]}/,/^$/ s/- \\[ \\]/- [x]/' {tasks}"
        return Shell(f"mkdir -p src && echo PHASE = {found[1]} > src/phase_{found[1]}.py && {ticks}"), Say("built")
    path = re.search(r"- Write `([^`]+)`", prompt)
    assert path, f"a prompt without a file to write:\n{prompt}"
    name = path[1].rpartition("/")[2]
    return Write(str(project.root / path[1]), TEXTS[name]), Say(f"{name} is there")


def test_a_feature_is_built_in_ten_steps_by_claude_code(project: Project) -> None:
    with Model(builder(project)) as model:  # type: ignore[arg-type]
        clis.use(project, "claude", model)
        done = project.doit("feature", "--goal=A door that opens", timeout=500)

    assert done.returncode == 0, done.stdout + done.stderr
    state = project.state()
    assert (state["status"], tuple(state["completed"])) == ("completed", STEPS)
    assert state["implement_phases_completed"] == ["phase_1", "phase_2"]
    subjects = project.subjects()
    assert [found for found in subjects if found.startswith("Phase ")] == ["Phase 1: Ground", "Phase 2: House"]
    assert {"specify: spec.md", "suggest: suggestions.yaml", "plan: plan.md", "tasks: tasks.md"} < set(subjects)
    assert [f"{name}: GO" in subjects for name in STEPS if name.endswith("review")] == [True] * 5
    assert project.read("src/phase_1.py") == "PHASE = 1\n" and project.read("src/phase_2.py") == "PHASE = 2\n"
    assert "A better door" in (project.run_dir() / "plan.md").read_text(), "the fixer's round is in it"
    assert project.git("status", "--porcelain") == ""
    heard = len(model.heard)
    again = project.doit("feature", timeout=60)
    assert (again.returncode, len(model.heard)) == (0, heard), "the model is gone, and nobody asked for it"
    rounds = [entry for entry in project.events() if entry["event"] == "review_round"]
    assert [(entry["step"], entry["round"], entry["blocking"]) for entry in rounds] == [
        ("planreview", 1, 1),
        *((name, 2 if name == "planreview" else 1, 0) for name in STEPS if name.endswith("review")),
    ]
