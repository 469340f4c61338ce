"""DOT nodes as steps: each kind of node, each try of a loop, and what cannot be a step."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.support import checkout

from doflow.config import project
from doflow.flow.dot import compiler, parser, validate
from doflow.flow.dot.model import MOVES, SHAPES, STATUSES
from doflow.flow.model import Check, Flow, Read, Step
from doflow.util.errors import FlowError, UsageError

HEAD = """digraph p {
    prd_ref="PRD-1"; label="What it\\nis for";
    s [shape=Mdiamond];
    a [shape=box bead_id="B" worker_type="w" acceptance="works"];
    x [shape=Msquare];
"""


def flow(tmp_path: Path, *lines: str) -> Flow:
    path = tmp_path / "p.dot"
    path.write_text(HEAD + "\n".join(lines) + "\n}\n")
    return compiler.compile_pipeline(str(path), "p", "dots/p.dot")


def step(found: Flow, name: str) -> Step:
    return next(one for one in found.steps if one.id == name)


def test_a_worker_reports_in_the_run_and_may_change_what_is_not_protected(tmp_path: Path) -> None:
    found = flow(tmp_path, 'a [agent=cheap model=small timeout="90" solution_design="docs/d.md"]; s -> a -> x')

    work = step(found, "a")

    assert (found.name, found.about, found.pipeline) == ("p", "What it is for", ("a",))
    assert found.protect == ("/dots/p.dot", "/dots/p.dot.transitions.jsonl", "/dots/p.dot.checkpoint.json")
    assert (work.kind, work.agent, work.model, work.writes) == ("agent", "cheap", "small", ("**",))
    assert (work.makes, work.from_text, work.check) == (("results/a.md",), True, Check(not_empty=True))
    assert work.reads == (Read("/docs/d.md", optional=True),)
    assert (work.timeout.max, work.origin.file, work.origin.line) == (90.0, "dots/p.dot", 4)
    assert "PRD-1" in work.prompt.text


def test_a_worker_can_have_a_scope_and_a_check(tmp_path: Path) -> None:
    work = step(flow(tmp_path, 'a [writes="src/**, docs/*.md" check="make test"]; s -> a -> x'), "a")

    assert work.writes == ("src/**", "docs/*.md")
    assert (work.check.run, work.repair) == (("sh", "-c", "make test"), 1)


def test_a_tool_is_a_command_in_its_folder_and_is_done_again_when_the_report_changes(tmp_path: Path) -> None:
    tool = step(
        flow(tmp_path, 't [shape=parallelogram command="npm test" working_dir="my app"]; s -> a -> t -> x'), "t"
    )

    assert (tool.kind, tool.shell) == ("shell", "cd 'my app' && { npm test\n}")
    assert (tool.after, tool.reads) == (("a",), (Read("results/a.md", optional=True),))


def test_a_gate_is_a_person_a_command_or_another_agent(tmp_path: Path) -> None:
    found = flow(
        tmp_path,
        'g1 [shape=hexagon label="Good"]; g2 [shape=hexagon command="true"]; g3 [shape=hexagon agent=judge];',
        "s -> a -> g1 -> g2 -> g3 -> x",
    )

    person, command, judge = (step(found, name) for name in ("g1", "g2", "g3"))

    assert (person.kind, person.gate, person.reads) == ("gate", "Good?", (Read("results/a.md", optional=True),))
    assert (command.kind, command.shell) == ("shell", "true")
    assert (judge.kind, judge.agent, judge.writes, judge.check.ends) == (
        "agent", "judge", None, (compiler.PASS, compiler.FAIL),
    )  # fmt: skip
    assert judge.check.run, "nobody decides on it: it must be a pass"


def test_a_reviewer_is_told_the_assignment_that_it_judges(tmp_path: Path) -> None:
    judge = step(flow(tmp_path, 'g [shape=hexagon prompt="Be hard."]; s -> a -> g -> x'), "g")

    assert "Be hard." in judge.prompt.text
    assert "The assignment of a" in judge.prompt.text
    assert "works" in judge.prompt.text


LOOP = (
    'g [shape=hexagon command="make"]; d [shape=diamond max_retries=1];',
    "s -> a -> g -> d",
    "d -> x [label=pass]; d -> a [label=fail];",
)


def test_a_diamond_routes_by_the_result_and_the_last_one_asks_for_a_person(tmp_path: Path) -> None:
    found = flow(tmp_path, *LOOP)

    first, last = step(found, "d"), step(found, "d-2")

    assert [(rule.when, rule.then) for rule in first.routes] == [
        (compiler.PASS, ()), (compiler.FAIL, ("a-2", "g-2", "d-2")),
    ]  # fmt: skip
    assert first.reads == (Read("results/g.md"),)
    assert last.routes[1].pause == "d still fails after 1 retry; fix it by hand"
    assert last.routes[1].again == ("g-2",), "whose result it read"
    assert Read("results/g.md", optional=True) in step(found, "a-2").reads
    assert step(found, "a-2").about == "a (try 2)"


def outcome(tmp_path: Path, found: Step) -> subprocess.CompletedProcess[str]:
    argv = [word.replace("{run_dir}", str(tmp_path)) for word in found.run]
    (tmp_path / "results").mkdir(exist_ok=True)
    return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("command", "code", "last"),
    [
        ("echo fine", 0, "RESULT: pass"),
        ("echo RESULT: pass; exit 1", 0, "RESULT: fail"),
        ("seq 100000; exit 3", 0, "RESULT: fail"),
        ("no-such-program", 127, None),
        ("kill -9 $$", 137, None),
    ],
)
def test_a_command_that_is_judged_passes_fails_or_breaks(
    tmp_path: Path, command: str, code: int, last: str | None
) -> None:
    found = flow(tmp_path, LOOP[0].replace('"make"', f'"{command}"'), *LOOP[1:])

    done = outcome(tmp_path, step(found, "g"))

    lines = (tmp_path / "results/g.md").read_text().splitlines()
    assert done.returncode == code, done.stderr
    assert (lines[-1] if lines and lines[-1].startswith("RESULT") else None) == last
    assert (tmp_path / "results/g.md").stat().st_size < 110_000


@pytest.mark.parametrize(
    ("text", "code", "out"),
    [
        ("all is well\nRESULT: pass\n", 0, "RESULT: pass\n"),
        ("RESULT: pass\nno\nRESULT: fail\n", 0, "RESULT: fail\n"),
        ("RESULT: pass, I think\n", 1, ""),
        ("", 1, ""),
        (None, 1, ""),
    ],
)
def test_a_diamond_takes_only_a_whole_last_line_for_an_answer(
    tmp_path: Path, text: str | None, code: int, out: str
) -> None:
    found = flow(tmp_path, *LOOP)
    if text is not None:
        (tmp_path / "results").mkdir()
        (tmp_path / "results/g.md").write_text(text)

    done = outcome(tmp_path, step(found, "d"))

    assert done.returncode == code
    assert done.stdout.endswith(out)
    assert ("RESULT" in done.stdout) == bool(out)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("r [shape=trapezium]; s -> a -> r -> x",), "r is a route, which only a flow supports"),
        (("s -> x; a [shape=component]; s -> a -> x",), "the pipeline has nothing to do"),
        (('a [timeout="soon"]; s -> a -> x',), "'soon' is not a duration"),
        (('a [writes="../other/**"]; s -> a -> x',), "a: the path '../other/**' has a .."),
        (('t [shape=parallelogram command=make working_dir="../.."]; s -> a -> t -> x',), "t: the path '../..' has a .."),
        (('"a-2" [shape=box bead_id=C worker_type=w];', *LOOP[:1], 's -> a -> "a-2" -> g -> d', LOOP[2]),
         "a and a-2 would have the same step name a-2"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_with_its_line(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(FlowError) as refused:
        flow(tmp_path, *lines)

    found = [problem for problem in refused.value.problems if message in problem.message]
    assert found, refused.value
    assert found[0].file == "dots/p.dot"
    assert found[0].line > 0


def test_a_name_or_a_path_finds_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "doflow.yaml").write_text("pipelines: {auth: dots/auth.dot}\n")

    assert project.locate(tmp_path, "auth", {}) == tmp_path / "dots/auth.dot"
    assert project.locate(tmp_path, "other.dot", {}) == Path("other.dot")
    with pytest.raises(UsageError, match="no such file or pipeline: other"):
        project.locate(tmp_path, "other", {})


def test_the_pipeline_of_the_page_is_valid_and_runs(tmp_path: Path) -> None:
    page = (checkout.TOP / "docs" / "pipelines.md").read_text(encoding="utf-8")
    text = page.partition("```dot\n")[2].partition("```")[0]

    assert validate.check_pipeline(parser.parse_pipeline(text)) == ()
    (tmp_path / "auth.dot").write_text(text)
    found = compiler.compile_pipeline(str(tmp_path / "auth.dot"), "auth", "auth.dot")
    assert found.pipeline == ("impl_auth", "check", "good", "ship")
    assert [one.id for one in found.steps if one.kind == "gate"] == ["ship"]


def test_every_handler_and_every_status_is_on_the_page() -> None:
    page = (checkout.TOP / "docs" / "pipelines.md").read_text(encoding="utf-8")

    assert [word for pair in SHAPES.items() for word in pair if f"`{word}`" not in page] == []
    assert [status for status in STATUSES if f"`{status}`" not in page] == []
    table = {row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", page, re.M) if row[0] in MOVES}
    assert {start: set(re.findall(r"`(\w+)`", to)) - {"pending"} for start, to in table.items()} == {
        start: set(to) for start, to in MOVES.items()
    }
