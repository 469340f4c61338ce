"""Answers as people write them."""

from __future__ import annotations

import pytest

from doflow.cli.commands import answer
from doflow.util.errors import UsageError


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.yaml", "- by email\n- 7 days\n", {1: "by email", 2: "7 days"}),
        ("a.yaml", "2: 7 days\n1: by email\n", {1: "by email", 2: "7 days"}),
        ("a.yml", "2: |\n  first line\n  1: not a key\n", {2: "first line\n1: not a key"}),
        ("a.yaml", "[yes, 1.50, null]\n", {1: "yes", 2: "1.50", 3: "null"}),
        ("a.yaml", '"3": "quoted: text"\n', {3: "quoted: text"}),
        ("a.json", '["by email", "7 days"]', {1: "by email", 2: "7 days"}),
        ("a.json", '{"2": "7 days", "3": 1.50}', {2: "7 days", 3: "1.50"}),
        ("a.txt", "by email\n\n  7 days  \n", {1: "by email", 2: "7 days"}),
        ("a.txt", "- by email\n- 7 days\n", {1: "by email", 2: "7 days"}),
        ("a.txt", "2: 7 days", {2: "7 days"}),
        ("a.txt", "time: 12:30 is fine", {1: "time: 12:30 is fine"}),
    ],
)
def test_a_file_may_hold_a_list_a_map_or_lines(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)

    assert answer.number_answers(answer.answers_from_file(str(tmp_path / name)), 3) == expected


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "two: 7 days\n", "is not a question number"),
        ("a.yaml", "- [a, b]\n", "must be plain text"),
        ("a.yaml", "- a\n  b: - c\n", "a.yaml:2"),
        ("a.json", "[1,", "this is not JSON"),
        ("a.yaml", "9: too far\n", "no question 9"),
        ("a.txt", "\n\n", "no answers given"),
        ("a.yaml", "- ''\n", "the answer to question 1 is empty"),
        ("a.json", "[null]", "the answer to question 1 is empty"),
        ("a.txt", "a\nb\nc\nd\n", "4 answers for 3 open questions"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_words(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)

    with pytest.raises(UsageError, match=words):
        answer.number_answers(answer.answers_from_file(str(tmp_path / name)), 3)


def test_words_fill_the_questions_that_no_flag_names():
    assert answer.number_answers(answer.answers_from_arguments(["a", "c"], ["2=b = b"]), 3) == {
        1: "a",
        2: "b = b",
        3: "c",
    }


@pytest.mark.parametrize("flags", [["text"], ["x=text"], ["1=a", "1=b"], ["0=a"], ["=a"]])
def test_a_flag_that_names_no_question_is_refused(flags):
    with pytest.raises(UsageError):
        answer.number_answers(answer.answers_from_arguments([], flags), 3)


def test_a_missing_file_is_refused_in_words(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        answer.answers_from_file(str(tmp_path / "none.yaml"))
