"""The loader: what a flow becomes, and what a catalogue holds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from doflow.flow.model import Budget, Check, Flow, Origin, Param, Prompt, Read, Retry, Route, Step
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


def test_the_packaged_tiny_flow_loads_whole() -> None:
    tiny = loader.load_flow(loader.packaged_flows() / "tiny.yaml", Path("/nowhere"))

    assert tiny.pipeline == ("specify", "plan", "tasks", "implement")
    assert tiny.params == (Param("goal", "What to build", required=True),)
    assert tiny.packaged
    specify = tiny.steps[0]
    assert specify.prompt is not None
    assert (specify.prompt.name, specify.prompt.packaged) == ("specify.md", True)
    assert specify.prompt.text.startswith("# Your role")
    assert specify.check == Check(not_empty=True, headings=("Requirements",))
    assert specify.timeout == Timeout(600, 3600)
    assert specify.retry == Retry(2, 30)
    assert tiny.steps[3].phases == "tasks.md"


def test_every_word_of_a_step_arrives_in_the_model(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}")
    text = """
flow: f
params: {n: {default: 3}}
protect: PRD.md
pipeline: [a]
steps:
  a:
    about: First.
    prompt: Make {n} of {goal}.
    agent: cheap
    model: big
    fallback: other
    via: tmux
    judge: cheap
    machine: order
    reads: [input.md, "notes.md?", "src/*.py", "tasks.md#Phase 2", "x.md#Why?"]
    needs: /README.md
    makes: [out.yaml, /docs/x.md]
    writes: ["src/**"]
    protect: ["*.json"]
    check: {schema: /s.json, run: make test, headings: One}
    repair: 2
    clarify: true
    gate: Is {goal} fine?
    after: []
    foreach: [x]
    timeout: 1h30m
    retry: {attempts: 5}
    budget: {usd: 2}
    routes:
      - {when: "[SCALE: SMALL]", then: [b], variant: small}
      - {when: "SCALE: LARGE", pause: Too large.}
  b: {kind: review, personas: [pm], rounds: 2, fixer: cheap, mode: command}
"""
    found = flow(tmp_path, text)

    assert found.step("a") == Step(
        id="a",
        about="First.",
        prompt=Prompt("Make {n} of {goal}."),
        agent="cheap",
        model="big",
        fallback="other",
        via="tmux",
        judge="cheap",
        machine="order",
        reads=(
            Read("input.md"),
            Read("notes.md", optional=True),
            Read("src/*.py"),
            Read("tasks.md", "Phase 2"),
            Read("x.md", "Why", optional=True),
        ),
        needs=(Read("/README.md"),),
        makes=("out.yaml", "/docs/x.md"),
        writes=("src/**",),
        protect=("*.json",),
        check=Check(schema="s.json", run=("sh", "-c", "make test"), headings=("One",)),
        repair=2,
        clarify=True,
        gate="Is {goal} fine?",
        after=(),
        foreach=("x",),
        timeout=Timeout(max=5400),
        retry=Retry(5, 30),
        budget=Budget(usd=2),
        routes=(Route("SCALE: SMALL", ("b",), "small"), Route("SCALE: LARGE", pause="Too large.")),
        origin=Origin("flows/f.yaml", 7, 3),
    )
    assert found.params == (Param("n", default="3"),)
    assert (found.protect, found.pipeline) == (("PRD.md",), ("a",))
    review = found.step("b")
    assert review is not None
    assert (review.personas, review.rounds, review.fixer, review.mode) == (("pm",), 2, "cheap", "command")


def test_a_list_to_run_is_an_argv_and_a_text_goes_to_the_shell(tmp_path: Path) -> None:
    found = flow(tmp_path, "flow: f\nsteps:\n  a: {kind: shell, run: [ls, -l]}\n  b: {kind: shell, run: ls | wc}\n")

    assert [(step.run, step.shell) for step in found.steps] == [(("ls", "-l"), ""), ((), "ls | wc")]


def test_defaults_fill_what_a_step_does_not_say_word_by_word(tmp_path: Path) -> None:
    text = """
flow: f
defaults:
  {agent: d, model: m, fallback: o, via: tmux, timeout: {idle: 5m, max: 1h}, retry: {attempts: 7, backoff: 1s},
   budget: {usd: 9}}
steps:
  a: {prompt: X}
  b: {prompt: X, agent: e, timeout: {max: 2h}, retry: {backoff: 3}, budget: {tokens: 10}}
"""
    a, b = flow(tmp_path, text).steps

    assert (a.agent, a.model, a.fallback, a.via) == ("d", "m", "o", "tmux")
    assert (a.timeout, a.retry, a.budget) == (Timeout(300, 3600), Retry(7, 1), Budget(usd=9))
    assert (b.agent, b.model) == ("e", "m")
    assert (b.timeout, b.retry, b.budget) == (Timeout(300, 7200), Retry(7, 3), Budget(9, 10))


def test_all_problems_of_a_flow_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    error = refusal(tmp_path, "flow: g\nsteps:\n  a: {prompt: no.md, makes: ../x}\n  b: {prompt: X, after: [c]}\n")

    assert [problem.line for problem in error.problems] == [1, 3, 3, 4]


def test_all_misfits_with_the_schema_are_told_at_once(tmp_path: Path) -> None:
    error = refusal(tmp_path, "flow: f\nabuot: x\nsteps:\n  a: {prompt: 3, clarify: maybe, kind: shel}\n")

    assert sorted((problem.line, problem.column) for problem in error.problems) == [(2, 1), (4, 15), (4, 27), (4, 40)]


def test_braces_that_are_no_params_are_left_alone_in_prompt_files_and_commands(tmp_path: Path) -> None:
    project(tmp_path, f="flow: f\nsteps:\n  a: {prompt: p.md}\n  b: {kind: shell, run: \"awk '{print}' ${HOME}\"}\n")
    (tmp_path / "flows/prompts/p.md").write_text('Answer {"a": {x}} and {{goall}}.')

    found = loader.load_flow(tmp_path / "flows/f.yaml", tmp_path)

    assert found.steps[0].prompt == Prompt('Answer {"a": {x}} and {{goall}}.', "p.md")


def test_a_thousand_steps_in_one_chain_load_quickly(tmp_path: Path) -> None:
    step = "  s{0}:\n    prompt: Do {0}.\n    reads: [in.md, 'a{0}.md?']\n    makes: a{1}.md\n"
    step += "    clarify: true\n    repair: 1\n"
    text = "flow: f\nsteps:\n" + "".join(step.format(n, n + 1) for n in range(1000))
    project(tmp_path, f=text)
    loader.load_flow(tmp_path / "flows/f.yaml", tmp_path)
    times = []

    for _ in range(5):
        begin = time.process_time()
        found = loader.load_flow(tmp_path / "flows/f.yaml", tmp_path)
        times.append(time.process_time() - begin)

    assert len(found.steps) == 1000
    assert min(times) < 1  # about 0.2 on an idle machine


def test_importing_the_loader_imports_no_library() -> None:
    code = (
        "import sys; from doflow.flow.parsing import loader\n"
        "print([name for name in ('yaml', 'jsonschema', 'git') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["[]"]


def test_a_project_flow_replaces_the_packaged_one_even_when_it_is_broken(tmp_path: Path) -> None:
    project(tmp_path, tiny="flow: tiny\nsteps: 3\n")

    found = loader.load_catalogue(tmp_path)

    assert "tiny" not in found.flows
    assert str(found.broken["tiny"]).startswith("flows/tiny.yaml:2:8: 3 is not a mapping")


def test_a_link_out_of_the_project_a_pipe_and_a_yml_are_broken_flows(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    (tmp_path / "out.yaml").write_text("flow: out\nsteps:\n  a: {prompt: X}\n")
    (root / "flows/out.yaml").symlink_to(tmp_path / "out.yaml")
    os.mkfifo(root / "flows/pipe.yaml")
    (root / "flows/short.yml").write_text("flow: short\nsteps:\n  a: {prompt: X}\n")

    broken = loader.load_catalogue(root).broken

    assert "symlink to outside the project" in str(broken["out"])
    assert "is not a regular file" in str(broken["pipe"])
    assert "rename it to short.yaml" in str(broken["short"])


def test_flows_that_run_each_other_are_broken(tmp_path: Path) -> None:
    step = "flow: {0}\nsteps:\n  x: {{kind: flow, flow: {1}}}\n"
    project(tmp_path, a=step.format("a", "b"), b=step.format("b", "a"), c=step.format("c", "tiny"))

    found = loader.load_catalogue(tmp_path)

    assert "flows/a.yaml:3:3: flow cycle: a -> b -> a" in str(found.broken["a"])
    assert set(found.broken) == {"a", "b"}
    assert "c" in found.flows


def test_sources_name_every_file_and_folder_that_matters(tmp_path: Path) -> None:
    project(tmp_path, f="flow: f\nsteps:\n  a: {prompt: sub/p.md}\n  b: {prompt: plan.md}\n", bad="flow: bad\n")
    (tmp_path / "flows/prompts/sub").mkdir()
    (tmp_path / "flows/prompts/sub/p.md").write_text("P")

    found = loader.load_catalogue(tmp_path).sources

    own = {
        str(tmp_path / "flows" / name)
        for name in ("", "prompts", "f.yaml", "bad.yaml", "prompts/sub", "prompts/sub/p.md")
    }
    shipped = {str(loader.packaged_flows() / name) for name in ("", "prompts", "tiny.yaml", "prompts/plan.md")}
    assert {path.rstrip("/") for path in own | shipped} <= set(found)
    assert all(os.path.isabs(path) for path in found)


def test_a_project_without_flows_has_the_packaged_ones_and_watches_for_its_own(tmp_path: Path) -> None:
    found = loader.load_catalogue(tmp_path)

    assert "tiny" in found.flows
    assert str(tmp_path / "flows") in found.sources


def test_a_flow_with_more_ways_than_can_be_looked_at_is_loaded_all_the_same(tmp_path):
    def rest(number: int) -> str:
        return ", ".join([*(f"s{other}" for other in range(number, 40)), "last"])

    def routes(number: int) -> str:
        return "".join(f'      - {{when: "{way}: {number}", then: [{rest(number + way)}]}}\n' for way in (1, 2))

    steps = "".join(
        f"  s{number}:\n    prompt: x\n    makes: m{number}.md\n    reads: [late.md]\n    routes:\n{routes(number)}"
        for number in range(40)
    )
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows/big.yaml").write_text(f"flow: big\nsteps:\n{steps}  last: {{prompt: x, makes: late.md}}\n")

    assert len(loader.load_catalogue(tmp_path).flows["big"].steps) == 41


@pytest.mark.parametrize(
    ("first", "second"), [("a", "a/b.md"), ("a/b.md", "a"), ("/x/y", "/x/y/z/w.md"), ("[q, q/r]", "s")]
)
def test_a_file_that_another_step_needs_as_a_folder_is_refused(tmp_path, first, second):
    (tmp_path / "flows").mkdir()
    path = tmp_path / "flows" / "f.yaml"
    path.write_text(f"flow: f\nsteps:\n  one: {{prompt: x, makes: {first}}}\n  two: {{prompt: x, makes: {second}}}\n")

    with pytest.raises(FlowError) as caught:
        loader.load_flow(path, tmp_path)

    (problem,) = caught.value.problems
    assert (problem.line, "cannot be both a file and a folder" in problem.message) == (3 if "[" in first else 4, True)
