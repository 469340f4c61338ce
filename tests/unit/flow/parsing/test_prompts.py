"""Prompt files: which one wins, and which are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from doflow.flow.model import Prompt
from doflow.flow.parsing import loader
from doflow.util.errors import FlowError


def project(root: Path, **flows: str) -> Path:
    (root / "flows" / "prompts").mkdir(parents=True)
    for name, text in flows.items():
        (root / "flows" / f"{name}.yaml").write_text(text)
    return root


def test_a_project_prompt_wins_over_the_packaged_one_and_loses_its_front_matter(tmp_path: Path) -> None:
    project(tmp_path, f="flow: f\nsteps:\n  a: {prompt: plan.md}\n")
    (tmp_path / "flows/prompts/plan.md").write_text("---\nabout: Mine.\n---\n\nPlan it.\n---\nEnd.\n")

    step = loader.load_flow(tmp_path / "flows/f.yaml", tmp_path).steps[0]

    assert step.prompt == Prompt("Plan it.\n---\nEnd.\n", "plan.md")


def test_a_variant_wins_where_it_exists(tmp_path: Path) -> None:
    project(tmp_path, f="flow: f\nsteps:\n  a: {prompt: one.md}\n  b: {prompt: two.md}\n")
    for name in ("one", "one-simple", "two", "two-other"):
        (tmp_path / f"flows/prompts/{name}.md").write_text(name)

    steps = loader.load_flow(tmp_path / "flows/f.yaml", tmp_path, "simple").steps

    assert [step.prompt for step in steps] == [Prompt("one-simple", "one-simple.md"), Prompt("two", "two.md")]


def test_a_prompt_that_is_empty_or_a_pipe_or_a_link_out_is_refused(tmp_path: Path) -> None:
    root = project(tmp_path / "p", f="flow: f\nsteps:\n  a: {prompt: a.md}\n  b: {prompt: b.md}\n  c: {prompt: c.md}\n")
    (root / "flows/prompts/a.md").write_text("---\nx: 1\n---\n \n")
    os.mkfifo(root / "flows/prompts/b.md")
    (tmp_path / "secret.md").write_text("secret")
    (root / "flows/prompts/c.md").symlink_to(tmp_path / "secret.md")

    with pytest.raises(FlowError) as caught:
        loader.load_flow(root / "flows/f.yaml", root)

    assert [problem.message for problem in caught.value.problems] == [
        "the prompt flows/prompts/a.md is empty",
        "the prompt flows/prompts/b.md is not a regular file",
        "the prompt flows/prompts/c.md is a symlink to outside the project",
    ]
