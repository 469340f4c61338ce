"""Pipelines that people have written, through the reader that users get: which are accepted, and which run to an end."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.supervision import Site, needs_tmux

from doflow.flow.dot import compiler, editor, parser, validate
from doflow.util.errors import FlowError

CORPUS = Path(os.environ.get("DOFLOW_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")
LISTED = CORPUS / "graphviz-accepts.txt"
needs_corpus = pytest.mark.skipif(not LISTED.is_file(), reason=f"no files of others in {CORPUS}; set DOFLOW_CORPUS")
#: says what the prompt asks for, and never fails
AGENT = """
case ${DOFLOW_ROLE:-} in reviewer) echo "VERDICT: GO"; exit 0;; esac
printf %s "${DOFLOW_NODE:-$DOFLOW_STEP}" | tr '[:upper:]' '[:lower:]' >> "$calls"
echo >> "$calls"
echo done
echo "RESULT: pass"
"""


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


class Ran(NamedTuple):
    """How one pipeline ended, and which nodes its agent was called for."""

    code: int
    nodes: tuple[str, ...]
    said: str

    @property
    def well(self) -> bool:
        """It came to its end, or to a question."""
        return self.code in (0, 2)


def run_both(folder: Path, name: str) -> tuple[Ran, Ran]:
    return tuple(run_one(folder / kind, name, kind) for kind in ("doit", "guardian"))  # type: ignore[return-value]


def run_one(place: Path, name: str, kind: str) -> Ran:
    site = Site(place, AGENT, "pipelines: {wild: wild.dot}\nsupervision: {validate: ['true']}\n")
    words = {"doit": ("doit", "wild"), "guardian": ("doflow", "guardian", "run", "wild.dot", "--no-wait")}[kind]
    try:
        site.write("wild.dot", tamed(CORPUS / name))
        for node in parser.read_pipeline(site.root / "wild.dot").nodes:
            folder = node.get("target_dir")
            if folder and not folder.startswith(("/", "~", ".")):
                site.root.joinpath(folder).mkdir(parents=True, exist_ok=True)
        site.commit("A pipeline")
        done = site.program(*words, timeout=150)
        return Ran(done.returncode, tuple(sorted(site.panes())), (done.stdout + done.stderr).strip())
    finally:
        site.close()


@needs_corpus
@needs_tmux
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_most_accepted_pipelines_run_to_an_end_or_a_question(tmp_path: Path) -> None:
    accepted = [name for name in files() if not refusals(CORPUS / name)]
    with ThreadPoolExecutor(4) as pool:
        ran = dict(zip(accepted, pool.map(lambda name: run_both(tmp_path / name, name), accepted), strict=True))

    well = [sum(pair[place].well for pair in ran.values()) for place in (0, 1)]
    # two branches before a question: doit asks after the first, a guardian works on both at once
    same = sum(set(doit.nodes) <= set(guardian.nodes) for doit, guardian in ran.values())
    print(
        f"\nof {len(files())}: accepted {len(accepted)}, with doit {well[0]}, under a guardian {well[1]}, same nodes {same}"
    )
    for name, pair in ran.items():
        print(f"  {name}: doit {pair[0].code}, guardian {pair[1].code}")
        for one in pair:
            print("".join(f"    {line}\n" for line in one.said.splitlines()[-3:]) if not one.well else "", end="")
    assert min(well) >= 0.8 * len(accepted)
    assert same >= 0.9 * len(accepted)
