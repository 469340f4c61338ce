"""Prompt files: which one wins, and which are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from doflow.flow.model import Prompt
from doflow.flow.parsing import loader
from doflow.flow.parsing.syntax import substitute
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


COMMAND = "---\ndescription: Plan\n---\nPlan: $ARGUMENTS\nKeep {goal}, {FEATURE} and ${step}.\n"


def test_a_prompt_from_the_root_is_a_command_with_arguments_and_literal_braces(tmp_path: Path) -> None:
    steps = "a: {prompt: /.x/plan.md}\n  b: {prompt: /.x/plan.md, arguments: '{goal} in {scope}'}\n  c: {prompt: /.x/bare.md}"
    project(tmp_path, f=f"flow: f\nparams: {{scope: {{default: all}}}}\nsteps:\n  {steps}\n")
    (tmp_path / ".x").mkdir()
    (tmp_path / ".x/plan.md").write_text(COMMAND)
    (tmp_path / ".x/bare.md").write_text("Plan it.\n")

    prompts = [step.prompt.text for step in loader.load_flow(tmp_path / "flows/f.yaml", tmp_path).steps if step.prompt]

    filled = [substitute(text, {"goal": "a {scope}", "scope": "src", "step": "s"}) for text in prompts]
    assert filled == [
        "Plan: a {scope}\nKeep {goal}, {FEATURE} and ${step}.\n",
        "Plan: a {scope} in src\nKeep {goal}, {FEATURE} and ${step}.\n",
        "Plan it.\n\n## User input\n\na {scope}\n",
    ]


def test_arguments_need_a_prompt_from_the_root_that_exists_inside(tmp_path: Path) -> None:
    steps = (
        "a: {prompt: Do it, arguments: x}\n  b: {prompt: /none.md}\n  c: {prompt: /out.md}\n  d: {prompt: /../up.md}"
    )
    root = project(tmp_path / "p", f=f"flow: f\nsteps:\n  {steps}\n")
    (tmp_path / "secret.md").write_text("secret")
    (root / "out.md").symlink_to(tmp_path / "secret.md")

    with pytest.raises(FlowError) as caught:
        loader.load_flow(root / "flows/f.yaml", root)

    assert [problem.message for problem in caught.value.problems] == [
        "`arguments` is only for a prompt that starts with /",
        "prompt file '/none.md' not found",
        "the prompt out.md is a symlink to outside the project",
        "the path '/../up.md' has a ..",
    ]
