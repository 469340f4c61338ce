"""Patches on flows: inserted, replaced and removed steps, and the cycles and routes that come of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from doflow.flow.model import Flow, Param, Prompt
from doflow.flow.parsing import loader
from doflow.util.errors import FlowError
from doflow.util.process.runner import Timeout


def project(root: Path, **flows: str) -> Path:
    (root / "flows" / "prompts").mkdir(parents=True)
    for name, text in flows.items():
        (root / "flows" / f"{name}.yaml").write_text(text)
    return root


def flow(root: Path, text: str, name: str = "f") -> Flow:
    project(root, **{name: text})
    return loader.load_flow(root / "flows" / f"{name}.yaml", root)


def refusal(root: Path, text: str) -> FlowError:
    with pytest.raises(FlowError) as caught:
        flow(root, text)
    return caught.value


def test_a_cycle_that_only_a_route_makes_is_found(tmp_path: Path) -> None:
    text = """
flow: f
pipeline: [a]
steps:
  a: {prompt: X, routes: [{when: "S: L", then: [c, b]}]}
  b: {prompt: X}
  c: {prompt: X, after: [b]}
"""
    assert "dependency cycle after 'S: L': c -> b -> c" in str(refusal(tmp_path, text))


def test_steps_that_wait_for_one_out_of_the_pipeline_are_fine(tmp_path: Path) -> None:
    found = flow(tmp_path, "flow: f\npipeline: [a]\nsteps:\n  a: {prompt: X, after: [b]}\n  b: {prompt: X}\n")

    assert found.pipeline == ("a",)


BASE = """
flow: base
about: The base.
params: {size: {default: s}}
defaults: {agent: one, timeout: {idle: 1m, max: 2m}}
protect: [A.md]
pipeline: [ask, plan, code]
steps:
  ask: {prompt: Ask., routes: [{when: "S: L", then: [plan, test, code]}, {when: "S: S", pause: Stop}]}
  plan: {prompt: Plan., makes: plan.md}
  test: {prompt: Test., after: [ask, plan]}
  code: {prompt: Code.}
"""


def test_a_patch_inserts_replaces_and_removes_by_step_id(tmp_path: Path) -> None:
    patch = """
flow: mine
extends: base
defaults: {agent: two, timeout: {max: 9m}}
params: {size: {default: l}}
protect: B.md
insert_before: {code: {threats: {prompt: Threats.}}}
insert_after: {plan: {cost: {prompt: Cost.}, risk: {prompt: Risk.}}}
replace: {test: {prompt: Other test.}}
"""
    project(tmp_path, base=BASE, mine=patch)

    mine = loader.load_flow(tmp_path / "flows/mine.yaml", tmp_path)

    assert mine.pipeline == ("ask", "plan", "cost", "risk", "threats", "code")
    assert [step.id for step in mine.steps] == ["ask", "plan", "cost", "risk", "test", "threats", "code"]
    assert mine.steps[0].routes[0].then == ("plan", "cost", "risk", "test", "threats", "code")
    assert [step.origin.file for step in mine.steps[:3]] == ["flows/base.yaml", "flows/base.yaml", "flows/mine.yaml"]
    assert mine.steps[4].prompt == Prompt("Other test.")
    assert mine.steps[4].after is None
    assert {step.agent for step in mine.steps} == {"two"}
    assert mine.steps[0].timeout == Timeout(60, 540)
    assert (mine.about, mine.protect, mine.params) == ("The base.", ("A.md", "B.md"), (Param("size", default="l"),))
    assert (mine.name, mine.file) == ("mine", str(tmp_path / "flows/mine.yaml"))


def test_a_removed_step_is_gone_from_the_pipeline_the_routes_and_after(tmp_path: Path) -> None:
    project(tmp_path, base=BASE, mine="flow: mine\nextends: base\nremove: [plan]\n")

    mine = loader.load_flow(tmp_path / "flows/mine.yaml", tmp_path)

    assert mine.pipeline == ("ask", "code")
    assert mine.steps[0].routes[0].then == ("test", "code")
    test = mine.step("test")
    assert test is not None
    assert test.after == ("ask",)


def test_a_flow_that_extends_its_own_name_means_the_packaged_one(tmp_path: Path) -> None:
    project(tmp_path, tiny="flow: tiny\nextends: tiny\nremove: [implement]\n")

    tiny = loader.load_catalogue(tmp_path).flows["tiny"]

    assert tiny.pipeline == ("specify", "plan", "tasks")
    assert not tiny.packaged


def test_flows_that_extend_each_other_are_named(tmp_path: Path) -> None:
    project(tmp_path, a="flow: a\nextends: b\n", b="flow: b\nextends: a\n")

    broken = loader.load_catalogue(tmp_path).broken

    assert "`extends` cycle: a -> b -> a" in str(broken["a"])
    assert "`extends` cycle: b -> a -> b" in str(broken["b"])


def test_a_flow_over_a_broken_one_tells_both(tmp_path: Path) -> None:
    project(tmp_path, a="flow: a\nextends: b\n", b="flow: b\nstep: {}\n")

    text = str(loader.load_catalogue(tmp_path).broken["a"])

    assert text.startswith("flows/a.yaml:2:10: flow 'b' cannot be extended")
    assert "flows/b.yaml:2:1: unknown key 'step'" in text


def test_a_flow_whose_steps_are_all_removed_is_refused_at_its_remove(tmp_path: Path) -> None:
    project(tmp_path, base="flow: base\nsteps:\n  a: {prompt: X}\n  b: {prompt: X}\n",
            f="flow: f\nextends: base\nremove: [a, b]\n")  # fmt: skip

    with pytest.raises(FlowError) as caught:
        loader.load_flow(tmp_path / "flows" / "f.yaml", tmp_path)

    assert str(caught.value).startswith("flows/f.yaml:3:1: the flow has no steps: all of 'base' are removed")
