"""Markers, verdicts and reported errors are read in one way."""

from __future__ import annotations

import pytest

from doflow.flow import markdown

WANTED = ("SCALE: SMALL", "SCALE: LARGE")


@pytest.mark.parametrize(
    "line",
    [
        "SCALE: SMALL", "  SCALE: SMALL  ", "[SCALE: SMALL]", "**SCALE: SMALL**", "**SCALE:** SMALL", "`SCALE: SMALL`",
        "- SCALE: SMALL", "* `SCALE: SMALL`", "1. SCALE: SMALL", "### SCALE: SMALL", "__SCALE: SMALL__", "SCALE:SMALL",
        "**[SCALE: SMALL]**.", "```SCALE: SMALL```", "SCALE:   SMALL", "✅ SCALE: SMALL",
    ],
)  # fmt: skip
def test_markup_around_a_marker_does_not_matter(line):
    assert markdown.read_markers(f"words\n\n{line}\n\n---\n", WANTED) == ("SCALE: SMALL",)


@pytest.mark.parametrize(
    "text",
    [
        "", "words", "SCALE: SMALL\nand a last word", "the SCALE: SMALL is", "scale: small", "SCALE: SMALL or SCALE: LARGE",
        "```\nSCALE: SMALL\n```", "~~~ text\nSCALE: SMALL\n~~~\n", "````\n```\nSCALE: SMALL\n```\n````", "> SCALE: SMALL",
        "- > SCALE: SMALL", "<!-- SCALE: SMALL -->", "<!--\nSCALE: SMALL\n-->", "- example:\n    ```\n    SCALE: SMALL\n    ```",
        "```\nSCALE: SMALL", "<!-- open\nSCALE: SMALL", "~~SCALE: SMALL~~", "SCALE: SMALL?",
    ],
)  # fmt: skip
def test_only_the_last_line_of_the_answer_itself_is_a_marker(text):
    assert markdown.read_markers(text, WANTED) == ()


@pytest.mark.parametrize(
    "after",
    ["\n```\nSCALE: LARGE\n```\n", "\n> SCALE: LARGE\n", "\n<!-- SCALE: LARGE -->\n", "\n<!--\nSCALE: LARGE\n--> "],
)
def test_what_is_quoted_behind_the_marker_does_not_count(after):
    assert markdown.read_markers(f"SCALE: SMALL{after}", WANTED) == ("SCALE: SMALL",)


def test_two_markers_that_disagree_are_both_returned():
    assert markdown.read_markers("SCALE: SMALL\nNo, wait.\n**SCALE: LARGE**", WANTED) == (
        "SCALE: LARGE",
        "SCALE: SMALL",
    )
    assert markdown.read_markers("SCALE: SMALL\nAs I said:\n`SCALE: SMALL`", WANTED) == ("SCALE: SMALL",)


def test_a_comment_in_a_code_span_is_not_a_comment():
    assert markdown.read_markers("It starts with `<!--`.\nSCALE: SMALL", WANTED) == ("SCALE: SMALL",)


def test_a_comment_around_a_fence_ends_with_the_comment():
    assert markdown.read_markers("<!--\n```\n-->\nSCALE: SMALL", WANTED) == ("SCALE: SMALL",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[ERROR: no such file]", "no such file"),
        ("I tried.\n\n**[ERROR: no such file]**\n\nSorry.", "no such file"),
        ("- [ERROR: it broke] and more", "it broke] and more"),
        ("[ERROR:]", "no reason given"),
        ("```\n[ERROR: quoted]\n```", ""),
        ("> [ERROR: quoted]", ""),
        ("The log says [ERROR: x] somewhere", ""),
        ("[ERROR] not the agreed line", ""),
        ("I could not do it.", ""),
    ],
)
def test_a_line_of_the_answer_reports_an_error(text, reason):
    assert markdown.reported_error(text) == reason


def test_a_program_finds_the_marker_as_the_plain_last_line():
    wanted = ("RESULT: pass", "RESULT: fail")

    assert markdown.with_plain_end("Fine.\n**RESULT: pass**\n", wanted) == "Fine.\n**RESULT: pass**\n\nRESULT: pass\n"
    assert markdown.with_plain_end("Fine.\nRESULT: pass\n", wanted) == "Fine.\nRESULT: pass\n"
    assert markdown.with_plain_end("RESULT: fail\nRESULT: pass\n", wanted) == "RESULT: fail\nRESULT: pass\n"


def test_a_tick_on_either_side_wins_and_equal_lines_are_told_apart() -> None:
    mine = "- [x] 1 a\n- [ ] write tests\n- [-] 2 b\n- [ ] write tests\n- [ ] 3 c\r\n- [ ] only here\n"
    theirs = "- [ ] 1 a\n- [ ] write tests\n* [X] 2 b\n- [x] write tests\n- [~] 3 c\n- [x] only there\n"

    merged = markdown.tick_boxes(mine, theirs)

    assert merged == "- [x] 1 a\n- [ ] write tests\n- [x] 2 b\n- [x] write tests\n- [ ] 3 c\r\n- [ ] only here\n"
