"""The two readers of a schema agree, and editors find every key described."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from doflow.flow.parsing import loader as load, schema
from doflow.util.errors import FlowError

MALFORMED = Path(__file__).parent / "malformed"


def _values() -> list[object]:
    values: list[object] = []
    for path in [*sorted(MALFORMED.glob("*.yaml")), load.packaged() / "tiny.yaml"]:
        try:
            values.append(load.document(path).value)
        except FlowError:
            continue
    return values


def _agree(value: object, name: str) -> None:
    explained = schema.explain(value, schema.read(name))
    assert schema.fits(name)(value) == (not explained), explained


def test_the_quick_reader_and_the_library_agree_on_every_fixture() -> None:
    values = _values()

    for value in values:
        _agree(value, "flow")

    assert len(values) > 30


WORDS = st.sampled_from([*schema.read("flow")["$defs"]["step"]["properties"], "flow", "steps", "then", "when", "odd"])
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.sampled_from([0.5, 2.0, "", "x", "10m", "1d", "agent", "shell", "text"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(step=st.dictionaries(WORDS, ODD, max_size=4), more=st.dictionaries(WORDS, ODD, max_size=2))
def test_the_quick_reader_and_the_library_agree_on_mutated_flows(
    step: dict[str, object], more: dict[str, object]
) -> None:
    _agree({"flow": "f", "steps": {"a": step}, **more}, "flow")
    _agree({"flow": "f", "steps": {"a": {"prompt": "X", **step}}}, "flow")


SETTINGS = st.sampled_from([*schema.read("doflow")["properties"], "usd", "wait", "use", "steps", "idle", "odd"])


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(SETTINGS, st.dictionaries(SETTINGS, ODD, max_size=2) | ODD, max_size=3))
def test_the_quick_reader_and_the_library_agree_on_mutated_settings(value: dict[str, object]) -> None:
    _agree(value, "doflow")


@pytest.mark.parametrize("name", ["flow", "doflow"])
def test_every_key_of_a_schema_is_described_for_editors(name: str) -> None:
    def missing(node: object, at: str) -> list[str]:
        if not isinstance(node, dict):
            return []
        found = [
            f"{at}.{key}"
            for key, rule in node.get("properties", {}).items()
            if at[-3:] != ".if" and not rule.get("description")
        ]
        for key, inner in node.items():
            found += missing(inner, f"{at}.{key}")
        return found

    assert missing(schema.read(name), name) == []


def test_a_schema_with_a_word_the_quick_reader_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="oneOf"):
        schema.compiled({"oneOf": []})
