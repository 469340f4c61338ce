"""Every malformed flow is refused with file, line, column, the reason and a hint; none of them hangs or crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from doflow.flow.parsing import document, loader
from doflow.util.errors import FlowError

FOLDER = Path(__file__).parent / "malformed"
FILES = sorted(FOLDER.glob("*.yaml"))


def expectation(path: Path) -> tuple[str, list[str]]:
    """The first line of a fixture: `# expect LINE:COLUMN | words | words`."""
    first = path.read_bytes().split(b"\n")[0].decode()
    place, *words = first.removeprefix("# expect ").split(" | ")
    return place, words


def test_there_are_enough_malformed_flows_to_mean_something() -> None:
    assert len(FILES) >= 30


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_malformed_flow_is_refused_at_its_place_with_a_reason_and_a_hint(path: Path, tmp_path: Path) -> None:
    place, words = expectation(path)
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / path.name).write_bytes(path.read_bytes())

    with pytest.raises(FlowError) as caught:
        loader.load_flow(flows / path.name, tmp_path)

    text = str(caught.value)
    assert text.startswith(f"flows/{path.name}:{place}: ")
    assert [word for word in words if word not in text] == []
    assert all(problem.hint for problem in caught.value.problems)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_slow_parser_refuses_what_the_fast_one_refuses(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = document.loader_class(fast=False)
    monkeypatch.setattr(document, "loader_class", lambda: slow)
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / path.name).write_bytes(path.read_bytes())

    with pytest.raises(FlowError) as caught:
        loader.load_flow(flows / path.name, tmp_path)

    first = caught.value.problems[0]
    assert first.line >= 1
    assert first.column >= 1


def test_one_malformed_flow_does_not_hide_the_others(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    for path in FILES:
        (flows / path.name).write_bytes(path.read_bytes())
    (flows / "good.yaml").write_text("flow: good\nsteps:\n  a: {prompt: Do it.}\n")

    found = loader.load_catalogue(tmp_path)

    assert {"good", "tiny"} <= found.flows.keys()
    assert {path.stem for path in FILES} <= found.broken.keys()
    assert "another" in found.broken
