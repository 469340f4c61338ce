"""The packaged prompts: each says what the flows ask for, forbids what it must, and its examples pass their checks."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.support import checkout

from doflow.engine import checks
from doflow.flow import findings, markdown, tasklist
from doflow.flow.model import Flow, Step
from doflow.flow.parsing import loader
from doflow.runs.fingerprint import ProjectFiles

FOLDER = checkout.TOP / "flows" / "prompts"
PROMPTS = sorted(path.name for path in FOLDER.glob("*.md"))
PERSONAS = sorted(path.stem for path in (FOLDER / "personas").glob("*.md"))
FLOWS = [loader.load_flow(path, checkout.TOP) for path in sorted((checkout.TOP / "flows").glob("*.yaml"))]
USES: list[tuple[Flow, Step]] = [(flow, step) for flow in FLOWS for step in flow.steps if step.prompt]
SIMPLE = ("specify", "plan", "tasks", "implement", "bugfix")
COMMANDS = ("`prd`", "`run-prd.sh`", "`tsk`", "`doflow`", "`doit`", "`git push`", "`git merge`", "`git commit`")
CONTROL = ("doflow.yaml", "dodo.py", "flows/", ".doflow/", "doflow.lock", "input.md", "tasks.json", "PRD.md")
FENCE = re.compile(r"^(`{3,})\w*\n(.*?)^\1$", re.M | re.S)


def parts(name: str) -> tuple[dict[str, Any], str]:
    """Front matter and body of a prompt."""
    _, front, body = (FOLDER / name).read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front), body


def users(name: str) -> list[tuple[Flow, Step]]:
    """The steps that use a prompt, or the one that a variant stands in for."""
    bare = name.removesuffix("-simple.md") + ".md" if name.endswith("-simple.md") else name
    return [(flow, step) for flow, step in USES if step.prompt and step.prompt.name == bare]


def example(name: str, artifact: str) -> str:
    found = markdown.section(parts(name)[1], f"Example: `{artifact}`")
    assert found, f"{name} shows no `# Example: `{artifact}``"
    return FENCE.search(found)[2]


def examples() -> list[tuple[str, str]]:
    return [(name, artifact) for name in PROMPTS for artifact in parts(name)[0]["makes"]]


def test_every_prompt_is_used_and_every_persona_has_a_voice_that_some_review_needs() -> None:
    named = {name for _, step in USES if step.kind == "review" for name in step.personas}

    assert [name for name in PROMPTS if not users(name)] == []
    assert sorted(named) == PERSONAS
    assert [name for name in SIMPLE if f"{name}-simple.md" not in PROMPTS] == []


@pytest.mark.parametrize("name", PROMPTS)
def test_the_front_matter_says_what_the_flows_ask_for(name: str) -> None:
    front, _ = parts(name)

    assert set(front) == {"about", "makes", "prints", "read_only"}
    for flow, step in users(name):
        where = f"{flow.name}:{step.id}"
        verdicts = [f"VERDICT: {word}" for word in findings.VERDICTS] if step.kind == "review" else []
        assert tuple(front["makes"]) == step.makes, where
        assert front["prints"] == ([route.when for route in step.routes] or verdicts), where
        assert front["read_only"] == (step.from_text or step.kind == "review"), where


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_names_what_it_makes_and_what_it_must_print(name: str) -> None:
    front, body = parts(name)

    assert [word for word in (*front["makes"], *front["prints"]) if f"`{word}`" not in body] == []
    assert len(front["about"]) < 100


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_forbids_the_commands_and_files_that_steer_the_run(name: str) -> None:
    forbidden = markdown.section(parts(name)[1], "Forbidden")

    assert forbidden is not None
    assert [word for word in (*COMMANDS, *(f"`{path}`" for path in CONTROL)) if word not in forbidden] == []
    assert "`[0-9]*_*`" in forbidden
    assert "deleting branches" in " ".join(forbidden.split())
    assert "no one will answer" in forbidden


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_never_orders_what_it_forbids(name: str) -> None:
    body = parts(name)[1]
    free = body.replace(markdown.section(body, "Forbidden") or "", "")

    assert [word for word in ("git push", "git merge", "git commit", "CLAUDE.md", "AGENTS.md") if word in free] == []


@pytest.mark.parametrize("name", PROMPTS)
def test_questions_are_allowed_only_where_the_flow_waits_for_answers(name: str) -> None:
    body = parts(name)[1]
    waits = {step.clarify for _, step in users(name)}

    assert len(waits) == 1
    assert ("[NEEDS CLARIFICATION:" in body) == waits.pop()
    assert ("hree" in body) >= ("[NEEDS CLARIFICATION:" in body), "three at most"


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_says_role_inputs_and_result_in_this_order(name: str) -> None:
    titles = [heading.title for heading in markdown.headings(parts(name)[1]) if heading.level == 1]

    places = [next(n for n, title in enumerate(titles) if title.startswith(word)) for word in
              ("Your role", "What you are given", "What you", "Forbidden")]  # fmt: skip
    assert places == sorted(places)


@pytest.mark.parametrize("name", [name for name in PROMPTS if not name.endswith("-simple.md")])
def test_every_input_that_a_step_reads_is_spoken_of(name: str) -> None:
    body = parts(name)[1]

    for flow, step in users(name):
        silent = [read.path for read in step.reads if f"`{read.path}`" not in body]
        if step.kind == "review":
            silent = [path for path in silent if "the other inputs" not in body]
        assert silent == [], f"{flow.name}:{step.id}"


@pytest.mark.parametrize(("name", "artifact"), examples())
def test_an_example_passes_the_check_of_every_step_that_makes_it(name: str, artifact: str, tmp_path: Path) -> None:
    front, _ = parts(name)
    for made in front["makes"]:
        (tmp_path / made).parent.mkdir(exist_ok=True)
        (tmp_path / made).write_text(example(name, made), encoding="utf-8")

    for flow, step in users(name):
        assert checks.problems(step, front["makes"], context(tmp_path, flow)) == "", f"{flow.name}:{step.id}"


def context(root: Path, flow: Flow) -> Any:
    """As much of a run as a check looks at: real files, the real rules of paths."""
    task_lists = frozenset(name for step in flow.steps for name in (step.phases, *step.phases_or) if name)
    return SimpleNamespace(root=root, files=ProjectFiles(root, ".", task_lists))


@pytest.mark.parametrize("name", ["tasks.md", "tasks-simple.md", "bugfix.md", "bugfix-simple.md"])
def test_a_task_list_that_is_shown_has_no_problem_and_no_warning(name: str) -> None:
    artifact = "tasks.md" if name.startswith("tasks") else "fix-plan.md"

    found = tasklist.parse_task_list(example(name, artifact))

    assert (found.problems, found.warnings) == ((), ())
    assert found.phases[0].number == "1"


@pytest.mark.parametrize("name", [name for name in PROMPTS if users(name)[0][1].kind == "review"])
def test_the_answer_that_a_reviewer_is_shown_is_read_as_it_is_meant(name: str) -> None:
    shown = FENCE.search(markdown.section(parts(name)[1], "Example of a good answer") or "")[2]

    answer = findings.parse_answer("anybody", shown)

    lines = [line for line in shown.splitlines() if line.startswith("ISSUE:")]
    assert len(answer.issues) == len(lines) > 0
    assert all(issue.place and issue.text for issue in answer.issues)
    worst = {issue.severity for issue in answer.issues}
    assert answer.verdict == ("NO-GO" if "C" in worst else "CONDITIONAL" if "H" in worst else "GO")


@pytest.mark.parametrize("name", ["bugfix.md", "bugfix-simple.md", "rebuildcheck.md", "prd-hunt.md"])
def test_the_answer_of_a_routing_step_ends_in_one_of_its_markers(name: str) -> None:
    front, body = parts(name)
    shown = markdown.section(body, "Example of a good answer") or example(name, front["makes"][0])
    plain = "\n".join(line.removeprefix("> ") for line in shown.splitlines())

    assert markdown.read_markers(plain, front["prints"])


def test_the_suggestions_that_are_shown_are_data_of_the_form_that_is_asked_for() -> None:
    found = yaml.safe_load(example("suggest.md", "suggestions.yaml"))

    assert list(found) == ["suggestions"]
    wanted = {"id", "kind", "title", "why", "where", "confidence"}
    assert [set(entry) for entry in found["suggestions"]] == [wanted] * len(found["suggestions"])


@pytest.mark.parametrize("name", PERSONAS)
def test_a_persona_is_short_and_tells_the_reviewer_who_it_is(name: str) -> None:
    front, body = parts(f"personas/{name}.md")

    assert set(front) == {"about"}
    assert body.startswith("You ")
    assert 40 <= len(body.split()) <= 120


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.md")), ids=lambda path: path.stem)
def test_a_prompt_leaves_no_brace_that_could_be_taken_for_a_parameter_that_no_flow_has(path: Path) -> None:
    named = set(re.findall(r"\{([a-z]\w*)\}", path.read_text(encoding="utf-8")))

    for flow, step in users(path.name):
        known = {"step", "previous", "work"} | {param.name for param in flow.params}
        items = {name for name in named if name == "item" or name.startswith("item_")} if step.foreach else set()
        assert named <= known | items, f"{flow.name}:{step.id}"
    assert not named or users(path.name)


def ways(flow: Flow, passed: tuple[str, ...], ahead: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Every order of steps that a run can take."""
    if not ahead:
        return [passed]
    here, rest = (*passed, ahead[0]), ahead[1:]
    turns = [rule.then for rule in flow.step(ahead[0]).routes if not rule.pause] or [rest]
    return [way for then in turns for way in ways(flow, here, then)]


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_in_every_variant_every_input_is_made_by_a_step_before_it(flow: Flow) -> None:
    for way in ways(flow, (), flow.pipeline):
        made = {"prd_snapshot.md" if flow.in_sessions else "input.md"}
        for name in way:
            step = flow.step(name)
            needed = {read.path for read in (*step.reads, *step.needs) if not read.optional}
            assert {path for path in needed if not path.startswith("/")} <= made, f"{flow.name}:{name} in {way}"
            if step.phases and not flow.takes_list:
                assert made & {step.phases, *step.phases_or}, f"{flow.name}:{name} in {way}"
            made |= {path.replace("{step}", name).replace("{item_work}", "{work}") for path in step.makes}
