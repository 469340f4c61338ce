"""Pipelines that people have written, through the reader that users get: which are accepted, and which run to an end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.project import Project

from doflow.flow.dot import compiler, editor, parser, validate
from doflow.util.errors import FlowError

CORPUS = Path(os.environ.get("DOFLOW_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")
LISTED = CORPUS / "graphviz-accepts.txt"
needs_corpus = pytest.mark.skipif(not LISTED.is_file(), reason=f"no files of others in {CORPUS}; set DOFLOW_CORPUS")
#: says what the prompt asks for, and never fails
AGENT = 'say("done\\nRESULT: pass")'


def files() -> list[str]:
    return [line.strip() for line in LISTED.read_text().splitlines() if line.strip()] if LISTED.is_file() else []


def refusals(path: Path) -> list[tuple[int, str]]:
    """Why a file is refused: line and reason; [] = accepted."""
    try:
        found = compiler.check_runnable(parser.read_pipeline(path, path.name))
    except FlowError as error:
        return [(problem.line, problem.message) for problem in error.problems]
    return [(remark.line, remark.message) for remark in validate.errors(found)]


def tamed(path: Path) -> str:
    """The text of a pipeline with `true` for every command: nothing of strangers is executed here."""
    pipeline = parser.read_pipeline(path)
    for node in pipeline.nodes:
        values = {name: "true" for name in ("command", "tool_command", "script", "check") if node.get(name)}
        own = {one.name for one in node.own}
        pipeline = editor.set_attributes(pipeline, node.id, {name: "true" for name in values if name in own})
    return pipeline.text


@needs_corpus
def test_most_pipelines_that_graphviz_accepts_are_accepted() -> None:
    refused = {name: found for name in files() if (found := refusals(CORPUS / name))}

    print(f"\naccepted: {len(files()) - len(refused)} of {len(files())}")
    for name, found in refused.items():
        print(f"  {name}:{found[0][0]}: {found[0][1]}")
    assert len(refused) <= 0.15 * len(files())
    assert all(line > 0 and message for found in refused.values() for line, message in found)


@needs_corpus
def test_a_file_that_graphviz_refuses_is_no_exception_here() -> None:
    others = {f"{path.parent.name}/{path.name}" for path in CORPUS.glob("dot-*/*.dot")} - set(files())

    for name in sorted(others):
        for line, message in refusals(CORPUS / name):
            assert line > 0 and message, name


@needs_corpus
@pytest.mark.slow
def test_most_accepted_pipelines_run_to_an_end_or_a_question(tmp_path: Path) -> None:
    ends: dict[str, tuple[int, str]] = {}
    for number, name in enumerate(name for name in files() if not refusals(CORPUS / name)):
        project = Project(tmp_path / str(number))
        project.settings("pipelines: {wild: wild.dot}\n")
        project.write("wild.dot", tamed(CORPUS / name))
        project.agent(AGENT)
        project.commit("A pipeline")
        done = project.doit("wild", timeout=120)
        shown = (done.stdout + done.stderr).strip().splitlines()
        ends[name] = done.returncode, next((line for line in shown if line.startswith("xx")), "")

    well = [name for name, (code, _) in ends.items() if code in (0, 2)]
    print(f"\nran to an end or a question: {len(well)} of {len(ends)}")
    for name, (code, line) in ends.items():
        if code not in (0, 2):
            print(f"  {name}: exit {code}: {line}")
    assert len(well) >= 0.8 * len(ends)
