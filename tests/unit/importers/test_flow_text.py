"""Flows as YAML text: what is written is read back as it was."""

from __future__ import annotations

from hypothesis import given, strategies as st

from doflow.flow.parsing import loader
from doflow.importers import flow_text

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
VALUES = st.recursive(
    TEXTS | st.booleans() | st.integers(-99, 99),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS.filter(lambda key: key != "<<"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, min_size=1))
def test_what_is_written_is_read_back(steps: dict[str, object]) -> None:
    text = flow_text.write_flow({"flow": "f", "steps": steps}, "x.yml")

    assert _ended(loader.parse_document(text, "f.yaml").value["steps"]) == _ended(steps)


def _ended(value: object) -> object:
    """A block of lines gets a newline at its end."""
    if isinstance(value, dict):
        return {key: _ended(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_ended(inner) for inner in value]
    return f"{value.rstrip(chr(10))}\n" if isinstance(value, str) and "\n" in value else value


def test_a_flow_is_laid_out_for_people() -> None:
    step = {"prompt": "Do it.\n\nAll of it.\n", "reads": ["input.md", "/a b.md?"], "from": "text"}

    text = flow_text.write_flow(
        {"flow": "f", "about": "On: this", "steps": {"a": step, "b": {"gate": "Yes?"}}}, "w.yml"
    )

    assert text == (
        "# Imported from w.yml by `doflow import`. It is yours: edit it as you like.\n"
        "flow: f\n"
        'about: "On: this"\n'
        "steps:\n"
        "  a:\n"
        "    prompt: |\n"
        "      Do it.\n"
        "\n"
        "      All of it.\n"
        '    reads: [input.md, "/a b.md?"]\n'
        "    from: text\n"
        '  b: {gate: "Yes?"}\n'
    )


def test_names_are_valid_and_not_taken() -> None:
    assert flow_text.step_name("Über Größe: 1.2!") == "ber-gr-e-1-2"
    assert flow_text.step_name("a", {"a": 1, "a-2": 1}) == "a-3"
    assert flow_text.step_name("…") == "step"
