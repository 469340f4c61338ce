"""Schema errors are described in words, and editors find a description of every key."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from doflow.flow.parsing import schema


def _describes(value: object, name: str) -> None:
    """Each invalid value has at least one fault, each fault a message; a valid value has none."""
    found = schema.faults(value, name)

    assert bool(found) == (not schema.validator(name).is_valid(value)), found
    assert all(fault.message and "\n" not in fault.message for fault in found)


WORDS = st.sampled_from(
    [*schema.load_schema("flow")["$defs"]["step"]["properties"], "flow", "steps", "then", "when", "odd"]
)
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
def test_every_error_in_a_mutated_flow_is_described(step: dict[str, object], more: dict[str, object]) -> None:
    _describes({"flow": "f", "steps": {"a": step}, **more}, "flow")
    _describes({"flow": "f", "steps": {"a": {"prompt": "X", **step}}}, "flow")


SETTINGS = st.sampled_from([*schema.load_schema("doflow")["properties"], "usd", "wait", "use", "steps", "idle", "odd"])


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(SETTINGS, st.dictionaries(SETTINGS, ODD, max_size=2) | ODD, max_size=3))
def test_every_error_in_mutated_settings_is_described(value: dict[str, object]) -> None:
    _describes(value, "doflow")


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

    assert missing(schema.load_schema(name), name) == []


def test_a_validator_is_built_once_per_schema() -> None:
    assert schema.validator("flow") is schema.validator("flow")


def test_a_schema_given_as_data_is_checked_the_same_way() -> None:
    found = schema.check_against({"a": "x", "b": 1}, {"properties": {"a": {"type": "integer"}}})

    assert [(fault.path, fault.message) for fault in found] == [(("a",), "'x' is not a whole number")]
