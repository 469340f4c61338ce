"""The strict reading of YAML: what is typed, what is refused, and where."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

from doflow.flow.parsing import document, loader as load
from doflow.util.errors import FlowError


def test_only_true_false_null_and_plain_numbers_are_typed() -> None:
    text = "a: [true, false, null, ~, 3, -4, 0, 1.5, -0.25]\nb:\n"

    assert load.parse_yaml(text, "x") == {"a": [True, False, None, None, 3, -4, 0, 1.5, -0.25], "b": None}


@pytest.mark.parametrize(
    "word",
    (
        "on",
        "off",
        "yes",
        "no",
        "y",
        "True",
        "FALSE",
        "Null",
        "012",
        "0x1f",
        "0o7",
        "1_000",
        "1e3",
        ".5",
        "5.",
        "+1",
        ".nan",
        ".inf",
        "12:30",
        "12:30:45",
        "2024-01-01",
        "-0x1",
        "-",
        "-.5",
        "00",
        "1.2.3",
    ),
)
def test_words_that_other_readers_turn_into_something_else_stay_text(word: str) -> None:
    assert load.parse_yaml(f"a: [{word}]\n", "x") == {"a": [word]}


def test_a_number_too_long_for_a_number_stays_text() -> None:
    assert load.parse_yaml(f"a: {'9' * 5000}\n", "x") == {"a": "9" * 5000}


def test_quoted_words_stay_text_and_may_be_keys() -> None:
    assert load.parse_yaml("\"1\": 'true'\n'null': \"3\"\n", "x") == {"1": "true", "null": "3"}


def test_stars_and_ampersands_inside_texts_are_no_aliases() -> None:
    text = 'a: "*.md"\nb: |\n  *bold* and & more &x\nc: R&D * 2\n'

    assert load.parse_yaml(text, "x") == {"a": "*.md", "b": "*bold* and & more &x\n", "c": "R&D * 2"}


def test_windows_line_ends_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: |\r\n  x\r\n")

    assert load.load_document(path).value == {"a": 1, "b": "x\n"}


def test_all_twice_given_keys_are_told_at_once() -> None:
    with pytest.raises(FlowError) as caught:
        load.parse_yaml("a: 1\na: 2\nb: {c: 1, c: 2}\n", "x")

    assert [(p.line, p.column) for p in caught.value.problems] == [(2, 1), (3, 11)]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" * 5000 + "]" * 5000, "{a: " * 50_000, "- " * 100_000, "? " * 50_000]
)
def test_deep_nesting_is_refused_quickly_and_never_crashes(text: str) -> None:
    code = (
        "import sys; from doflow.flow.parsing import loader as load\n"
        "try: load.parse_yaml(sys.stdin.read(), 'x')\n"
        "except load.FlowError as error: print(error)\n"
    )
    begin = os.times().children_user

    done = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout[:4]) == (0, "x:1:")
    assert "nested deeper than 30" in done.stdout
    assert os.times().children_user - begin < 5


def test_an_alias_bomb_is_refused_before_it_can_grow() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    begin = time.process_time()

    with pytest.raises(FlowError, match=r"x:1:5: the anchor 'a0' is not allowed"):
        load.parse_yaml("\n".join(lines), "x")

    assert time.process_time() - begin < 2


@pytest.mark.parametrize("fast", [True, False])
def test_both_parsers_read_the_same(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = document.loader_class(fast)
    monkeypatch.setattr(document, "loader_class", lambda: loader)
    text = (load.packaged_flows() / "tiny.yaml").read_text()

    doc = load.parse_document(text, "tiny.yaml")

    assert doc.value["steps"]["plan"]["reads"] == ["spec.md"]
    assert doc.where(("steps", "plan"), key=True) == (text[: text.index("  plan:")].count("\n") + 1, 3)


def test_a_pipe_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f.yaml")

    with pytest.raises(FlowError, match="is not a regular file"):
        load.load_document(tmp_path / "f.yaml")


def test_a_folder_a_missing_and_a_huge_file_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "huge.yaml").write_text("a: " + "x" * 10_000_000)

    for name, words in (
        ("folder", "is not a regular file"),
        ("none", "No such file"),
        ("huge", "larger than 1,000,000"),
    ):
        with pytest.raises(FlowError) as caught:
            load.load_document(tmp_path / f"{name}.yaml")
        assert str(caught.value).startswith(f"{tmp_path}/{name}.yaml:1:1: ")
        assert words in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a: 1")
    path.chmod(0)

    with pytest.raises(FlowError, match="cannot be read: Permission denied"):
        load.load_document(path)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab:-?[]{}&*!|>'\"%@` \t\n#,0~<.é\x00\x85\ufeff", max_size=40))
@example("\x85'\x85")
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    try:
        load.parse_yaml(text, "x")
    except FlowError as error:
        assert all(p.line >= 1 and p.column >= 1 and p.hint for p in error.problems)


def test_a_place_that_does_not_exist_falls_back_on_what_is_around_it() -> None:
    doc = load.parse_document("a:\n  b: [1, 2]\n", "x")

    assert [doc.where(path) for path in ((), ("a", "b", 1), ("a", "b", 9), ("a", "z"), ("q",))] == [
        (1, 1),
        (2, 10),
        (2, 6),
        (2, 3),
        (1, 1),
    ]
    assert document.nearest("plna", ["plan", "spec"]) == "did you mean 'plan'?"


@pytest.mark.parametrize(
    "word",
    "yes no on off True FALSE NULL 012 0x1F 1_000 .5 +1 1e3 12:30 2025-01-31".split(),  # noqa: SIM905 - as the page says it
)
def test_words_that_the_page_calls_texts_are_texts(word: str) -> None:
    assert document.parse_scalar(word) == word


def test_words_that_the_page_calls_values_are_values() -> None:
    words = ("true", "false", "null", "~", "", "5", "-1", "0.5")

    assert [document.parse_scalar(word) for word in words] == [True, False, None, None, None, 5, -1, 0.5]
