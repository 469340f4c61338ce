"""workflow.yml of spec-kit: what each type of step becomes, and what is listed as not mapped."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from doflow.flow.parsing import loader
from doflow.importers import speckit
from doflow.importers.model import Imported
from doflow.importers.project_tree import list_project
from doflow.util.errors import FlowError

HEAD = 'schema_version: "1.0"\nworkflow: {id: ship, name: Ship, description: Ships it.}\n'
INPUTS = "inputs:\n  spec: {type: string, required: true, prompt: What}\n  size: {type: string, default: big}\n"


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def converted(root: Path, steps: str, inputs: str = INPUTS, **files: str) -> tuple[Imported, dict[str, Any]]:
    """The import of a workflow with these steps, and the steps of its flow, which must be valid."""
    write(root, {".specify/workflows/ship/workflow.yml": HEAD + inputs + "steps:\n" + steps, **files})
    (made,) = speckit.convert_file(list_project(root), ".specify/workflows/ship/workflow.yml")
    write(root, {file.path: file.text for file in made.files})
    loader.load_flow(root / f"flows/{made.flow}.yaml", root)
    return made, loader.load_document(root / f"flows/{made.flow}.yaml").value


def notes(made: Imported) -> list[str]:
    return [f"{note.line}: {note.what}: {note.why}" for note in made.not_mapped]


def test_commands_use_the_prompts_of_the_project_where_they_are(tmp_path: Path) -> None:
    steps = """\
  - {id: specify, command: speckit.specify, input: {args: "{{ inputs.spec }}"}}
  - {id: plan, command: speckit.plan, input: {args: "{{ inputs.spec }} ({{ inputs.size }})"}, model: opus}
"""
    commands = {f".claude/commands/speckit.{name}.md": f"Do {name}: $ARGUMENTS\n" for name in ("specify", "plan")}

    made, flow = converted(tmp_path, steps, **commands)

    assert made.not_mapped == ()
    assert flow["params"] == {"goal": {"about": "What", "required": True}, "size": {"about": "size", "default": "big"}}
    assert flow["protect"] == [".claude/commands/speckit.specify.md", ".claude/commands/speckit.plan.md"]
    assert flow["steps"]["specify"] == {
        "prompt": "/.claude/commands/speckit.specify.md",
        "reads": ["input.md"],
        "makes": "spec.md",
        "writes": ["{run_dir}/**"],
        "check": {"not_empty": True},
    }
    assert flow["steps"]["plan"]["arguments"] == "{goal} ({size})"
    assert flow["steps"]["plan"]["model"] == "opus"
    assert flow["steps"]["plan"]["reads"] == ["spec.md", "/.specify/memory/constitution.md?"]


def test_a_command_without_a_prompt_is_listed(tmp_path: Path) -> None:
    made, flow = converted(tmp_path, "  - {id: p, command: speckit.plan}\n  - {id: x, command: speckit.x.go}\n")

    assert flow["steps"]["p"]["prompt"] == "plan.md"
    assert flow["steps"]["x"]["makes"] == "x.md"
    assert notes(made) == [
        "7: command speckit.plan: no prompt file of it found; doflow's own plan.md is used",
        "8: command speckit.x.go: no prompt file of it found; write what it does into the prompt of this step",
    ]


def test_a_toml_command_becomes_a_prompt_file(tmp_path: Path) -> None:
    toml = {".gemini/commands/speckit.audit.toml": 'prompt = """\nAudit {{args}} in {goal}.\n"""\n'}

    made, flow = converted(tmp_path, '  - {command: speckit.audit, input: {args: "{{ inputs.spec }}"}}\n', **toml)

    assert flow["steps"]["audit"]["prompt"] == "speckit-audit.md"
    assert made.files[1].text == "Audit {goal} in {{goal}}.\n"


def test_gates_ask_about_what_was_made_since_the_last_one(tmp_path: Path) -> None:
    steps = """\
  - {id: s, command: speckit.specify}
  - {id: g1, type: gate, message: "Fine, {name}?", options: [approve, reject], on_reject: abort}
  - {id: p, command: speckit.plan}
  - {id: g2, type: gate, message: Fine?, options: [ok, later], on_reject: skip}
"""
    made, flow = converted(tmp_path, steps)

    assert flow["steps"]["g1"] == {"kind": "gate", "gate": "Fine, {{name}}?", "reads": ["spec.md"]}
    assert flow["steps"]["g2"] == {"kind": "gate", "gate": "Fine?", "reads": ["plan.md"]}
    assert notes(made)[-2:] == [
        "10: options later: a gate waits for `doflow approve`; `doflow reject STEP --note …` sends work back",
        "10: `on_reject: skip`: a gate is passed by `doflow approve` only",
    ]


def test_shell_steps_keep_command_and_timeout(tmp_path: Path) -> None:
    steps = """\
  - {id: a, type: shell, run: "awk '{print}' x", timeout: 90}
  - {id: b, type: shell, run: "make {{ inputs.size }}", continue_on_error: true}
"""
    made, flow = converted(tmp_path, steps)

    assert flow["steps"]["a"] == {"kind": "shell", "run": "awk '{print}' x", "timeout": 90}
    assert flow["steps"]["b"] == {"kind": "shell", "run": "{ make {size}\n} || true\n"}
    assert notes(made) == ["8: an input in a command: its value becomes part of the command as it is, as in spec-kit"]


def test_a_switch_on_an_output_becomes_routes_of_that_step(tmp_path: Path) -> None:
    steps = """\
  - {id: size-up, command: speckit.classify}
  - id: route
    type: switch
    expression: "{{ steps.size-up.output.size }}"
    cases:
      small: [{id: small-plan, command: speckit.plan}]
      Big One: [{id: warn, type: shell, run: echo big}, {id: big-plan, command: speckit.plan}]
    default: [{id: plan, command: speckit.plan}]
  - {id: last, type: prompt, prompt: "Sum up {{ inputs.spec }}"}
"""
    _, flow = converted(tmp_path, steps)

    assert flow["pipeline"] == ["size-up", "plan", "last"]
    assert flow["steps"]["size-up"]["routes"] == [
        {"when": "size: small", "then": ["plan", "last"]},
        {"when": "size: big-one", "then": ["warn", "plan", "last"]},
        {"when": "size: other", "then": ["plan", "last"]},
    ]
    assert flow["steps"]["last"]["prompt"] == "Sum up {goal}"


SIZES = [("== 'big'", "big", "size-is: big"), ("== 'big'", "tiny", "size-is: other"), ("!= 'big'", "big", "size-is: big"),
         ("", "x", "size-is: yes"), ("", "", "size-is: other"), ("== ''", "", "size-is: other")]  # fmt: skip


@pytest.mark.parametrize(("sign", "value", "marker"), SIZES)
def test_an_if_on_an_input_is_a_command_that_compares(tmp_path: Path, sign: str, value: str, marker: str) -> None:
    steps = f"""\
  - id: size-is
    type: if
    condition: "{{{{ inputs.size {sign} }}}}"
    then: [{{id: yes-step, type: shell, run: echo y}}]
    else: [{{id: no-step, type: shell, run: echo n}}]
"""
    _, flow = converted(tmp_path, steps)

    step = flow["steps"]["size-is"]
    done = subprocess.run(
        [word.replace("{size}", value) for word in step["run"]], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{marker}\n"
    taken = {rule["when"]: rule["then"] for rule in step["routes"]}[marker]
    wanted = (value == "big") if "'big'" in sign else bool(value) if not sign else not value
    wanted = not wanted if sign.startswith("!=") else wanted
    assert taken == (["yes-step"] if wanted else ["no-step"])


def test_a_value_that_looks_like_shell_is_only_an_argument(tmp_path: Path) -> None:
    steps = '  - {id: f, type: switch, expression: "{{ inputs.size }}", cases: {a: [{type: shell, run: "true"}]}}\n'
    _, flow = converted(tmp_path, steps)

    words = [word.replace("{size}", '$(touch bad); "') for word in flow["steps"]["f"]["run"]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout == "f: other\n"
    assert not (tmp_path / "bad").exists()


def test_cases_may_be_numbers_and_booleans(tmp_path: Path) -> None:
    steps = """\
  - id: f
    type: switch
    expression: "{{ inputs.size }}"
    cases: {true: [{type: shell, run: echo t}], 2: [{type: shell, run: echo 2}]}
"""
    _, flow = converted(tmp_path, steps)

    assert [rule["when"] for rule in flow["steps"]["f"]["routes"]] == ["f: true", "f: 2", "f: other"]


def test_the_choice_of_a_gate_is_its_first_option(tmp_path: Path) -> None:
    steps = """\
  - {id: g, type: gate, message: Fine?, options: [go, stop]}
  - id: c
    type: if
    condition: "{{ steps.g.output.choice == 'go' }}"
    then: [{id: a, type: shell, run: echo a}]
    else: [{id: b, type: shell, run: echo b}]
"""
    made, flow = converted(tmp_path, steps)

    assert list(flow["steps"]) == ["g", "a"]
    assert notes(made)[-1] == (
        "12: the branch for other values of gate g: a gate is passed by `doflow approve` only; left out"
    )


def test_an_exit_code_chooses_the_branch_if_the_command_may_fail(tmp_path: Path) -> None:
    steps = """\
  - {id: lint, type: shell, run: make lint, continue_on_error: true}
  - {id: c, type: if, condition: "{{ steps.lint.output.exit_code != 0 }}", then: [{id: f, type: shell, run: echo f}]}
  - {id: test, type: shell, run: make test}
  - {id: d, type: if, condition: "{{ steps.test.output.exit_code != 0 }}", then: [{id: g, type: shell, run: echo g}]}
"""
    made, flow = converted(tmp_path, steps)

    assert flow["steps"]["lint"]["run"] == (
        "{ make lint\n}; case $? in 0) echo 'exit_code: 0';; *) echo 'exit_code: other';; esac\n"
    )
    assert flow["steps"]["lint"]["routes"] == [
        {"when": "exit_code: 0", "then": ["test"]},
        {"when": "exit_code: other", "then": ["f", "test"]},
    ]
    assert notes(made) == ["10: the branch for other values of step test: a command that fails stops the run; left out"]


def test_a_loop_around_a_command_that_may_fail_repairs_the_command_itself(tmp_path: Path) -> None:
    steps = """\
  - id: l
    type: do-while
    condition: "{{ steps.t.output.exit_code != 0 }}"
    steps: [{id: t, type: shell, run: make test, continue_on_error: true}]
"""
    _, flow = converted(tmp_path, steps)

    assert flow["steps"]["t"] == {"kind": "shell", "run": "make test", "repair": 3}


def test_a_condition_that_is_not_understood_is_decided_by_an_agent(tmp_path: Path) -> None:
    steps = """\
  - id: c
    type: if
    condition: "{{ inputs.size in 'a,b' and steps.x.output.y }}"
    then: [{id: a, type: shell, run: echo a}]
  - {id: t, type: if, condition: true, then: [{id: b, type: shell, run: echo b}]}
  - {id: e, type: if, condition: "{{ false }}", then: [{id: n, type: shell, run: echo n}]}
"""
    made, flow = converted(tmp_path, steps)

    assert flow["steps"]["c"]["routes"] == [{"when": "c: yes", "then": ["a", "b"]}, {"when": "c: other", "then": ["b"]}]
    assert list(flow["steps"]) == ["c", "a", "b"]
    assert notes(made) == [
        "7: `inputs.size in 'a,b' and steps.x.output.y`: an agent decides; check the prompt of this step"
    ]


def test_a_branch_that_leads_nowhere_ends_the_run(tmp_path: Path) -> None:
    steps = '  - {id: c, type: if, condition: "{{ inputs.size }}", then: [{id: a, type: shell, run: echo a}]}\n'

    _, flow = converted(tmp_path, steps)

    assert flow["steps"]["c"]["routes"][1] == {"when": "c: other", "then": ["end"]}


def test_loops_are_repairs_or_run_once_and_the_rest_is_listed(tmp_path: Path) -> None:
    steps = """\
  - {id: test, type: shell, run: make test}
  - {id: l1, type: while, condition: "{{ steps.test.output.exit_code != 0 }}", max_iterations: 5, steps: [{id: f, command: x}]}
  - {id: l2, type: do-while, condition: "{{ steps.z.output.ok }}", steps: [{id: z, type: shell, run: echo z}]}
  - {id: f1, type: fan-out, items: "{{ steps.z.output.list }}", step: {id: each, type: shell, run: echo each}}
  - {id: f2, type: fan-in, wait_for: [f1]}
  - {id: i, type: init, here: true}
  - {id: u, type: teleport}
  - {id: p, type: prompt, prompt: "Use {{ steps.z.output.file }}", integration: claude, colour: red}
"""
    made, flow = converted(tmp_path, steps)

    assert list(flow["steps"]) == ["test", "z", "each", "p"]
    assert flow["steps"]["test"]["repair"] == 5
    assert notes(made) == [
        "8: loop until `test` succeeds: `repair: 5` hands its output to an agent instead",
        "9: loop `{{ steps.z.output.ok }}`: its steps run once",
        "10: fan-out `{{ steps.z.output.list }}`: its step runs once: use `foreach` with a list or a file",
        "11: step of type `fan-in`: steps of a flow wait for the ones before them",
        "12: step of type `init`: doflow init sets up a project",
        "13: step of type `teleport`: this type of step is not known; left out",
        "14: key `colour`: not known for a step of type prompt",
        "14: integration claude: choose the agent in doflow.yaml, by `agent:` on the step, or by --agent",
        "14: `{{ steps.z.output.file }}`: a flow has no such value; left empty",
    ]


def test_implement_works_through_the_task_list(tmp_path: Path) -> None:
    steps = "".join(
        f"  - {{id: {name}, command: speckit.{name}}}\n" for name in ("specify", "plan", "tasks", "implement")
    )

    _, flow = converted(tmp_path, f"{steps}  - {{id: again, command: speckit.implement, model: m}}\n")

    assert flow["steps"]["tasks"]["check"] == {"tasks": True}
    assert (flow["steps"]["implement"]["kind"], flow["steps"]["implement"]["phases"]) == ("implement", "tasks.md")
    assert flow["steps"]["again"]["writes"] == ["**"]


def test_a_step_with_the_name_of_an_artifact_makes_a_file_of_its_own(tmp_path: Path) -> None:
    _, flow = converted(
        tmp_path, "  - {id: first, command: speckit.plan}\n  - {id: plan, type: prompt, prompt: Compare.}\n"
    )

    assert [step["makes"] for step in flow["steps"].values()] == ["plan.md", "plan-2.md"]


def test_inputs_with_taken_names_are_renamed(tmp_path: Path) -> None:
    inputs = "inputs: {issue: {required: true}, Branch: {default: x}, integration: {default: auto}, n: {enum: [a]}}\n"

    made, flow = converted(tmp_path, '  - {type: shell, run: "echo {{ inputs.Branch }}"}\n', inputs)

    assert list(flow["params"]) == ["goal", "branch-input", "n"]
    assert flow["steps"]["shell"]["run"] == "echo {branch-input}"
    assert notes(made)[:3] == [
        "3: input Branch: called branch-input: the name is taken",
        "3: input integration: the agent is `agents: default` in doflow.yaml, or --agent",
        "3: values of input n: any value is accepted",
    ]


HOSTILE = {
    "alias": ("steps:\n  - &a {id: x, type: shell, run: y}\n  - *a\n", 4, "the anchor 'a' is not allowed"),
    "duplicate": ("steps: []\nsteps: []\n", 4, "duplicate key 'steps'"),
    "deep": ("steps: " + "[" * 60 + "]" * 60 + "\n", 3, "nested deeper than 30 levels"),
    "none": ("steps: {}\n", 1, "not a workflow of spec-kit: it needs `workflow` and a list of `steps`"),
    "empty": ("steps: [1, {type: shell}]\n", 3, "no step of this workflow can be a step of a flow"),
    "tag": (
        "steps: !!python/object:os.system [x]\n",
        3,
        "the tag 'tag:yaml.org,2002:python/object:os.system' is not allowed",
    ),
    "many": ("steps:\n" + "  - {type: shell, run: x}\n" * 501, 504, "more than 500 steps"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_broken_workflow_is_one_error_with_a_line(tmp_path: Path, name: str) -> None:
    text, line, message = HOSTILE[name]
    write(tmp_path, {".specify/workflows/bad.yml": HEAD + text})

    with pytest.raises(FlowError) as caught:
        list(speckit.convert_file(list_project(tmp_path), ".specify/workflows/bad.yml"))

    assert [(problem.line, problem.message) for problem in caught.value.problems] == [(line, message)]
