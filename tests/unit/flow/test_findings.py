"""What reviewers say becomes findings that keep their ids; the verdict follows from what is open."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, strategies as st

from doflow.flow import findings
from doflow.flow.findings import Answer, Finding, Issue


def said(persona: str, *lines: str, verdict: str = "GO") -> Answer:
    return findings.parse_answer(persona, "\n".join([*(f"ISSUE: {line}" for line in lines), f"VERDICT: {verdict}"]))


def merged(*rounds: list[Answer]) -> tuple[Finding, ...]:
    known: tuple[Finding, ...] = ()
    for number, answers in enumerate(rounds, 1):
        known = findings.merge_findings("check", known, answers, number)
    return known


def test_an_answer_is_its_verdict_and_every_issue():
    text = "I think:\n- ISSUE: H | It leaks | plan.md#Keys\n  ISSUE: L | A typo\n**VERDICT: NO-GO**\n"

    answer = findings.parse_answer("ann", text)

    assert (answer.persona, answer.verdict) == ("ann", "NO-GO")
    assert answer.issues == (Issue("H", "It leaks", "plan.md#Keys"), Issue("L", "A typo", ""))


@pytest.mark.parametrize(
    "line",
    ["VERDICT: GO", "v: GO", "**VERDICT: GO**", "VERDICT: **GO**", "- VERDICT: `GO`", "VERDICT: GO.", "[VERDICT: GO]"],
)
def test_a_verdict_may_be_dressed(line):
    assert findings.parse_answer("ann", f"words\n{line}\n").verdict == "GO"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "looks good",
        "VERDICT: MAYBE",
        "VERDICT: GO or NO-GO",
        "VERDICT:",
        "the VERDICT: GO is",
        "> VERDICT: GO",
        "```\nVERDICT: GO\n```",
        "VERDICT: GO\nThat is all.",
        "verdict: go",
        "\0",
    ],
)
def test_words_without_a_verdict_are_none(text):
    assert findings.parse_answer("ann", text).verdict == ""


def test_a_fenced_verdict_does_not_replace_the_real_one():
    assert findings.parse_answer("ann", "VERDICT: NO-GO\n\n```\nVERDICT: GO\n```\n").verdict == "NO-GO"


def test_verdicts_that_disagree_are_no_verdict():
    answer = findings.parse_answer("ann", "VERDICT: NO-GO\nOn second thought:\nv: GO")

    assert (answer.verdict, answer.lack) == ("", "gave verdicts that disagree (GO, NO-GO)")


@pytest.mark.parametrize(("verdict", "severity"), [("NO-GO", "C"), ("CONDITIONAL", "H")])
@pytest.mark.parametrize("lines", [(), ("M | small | a.md",), ("L | smaller | a.md",)], ids=["none", "M", "L"])
def test_a_verdict_that_blocks_and_names_nothing_that_does_is_a_finding_itself(verdict, severity, lines):
    answer = said("ann", *lines, verdict=verdict)

    assert [issue.severity for issue in answer.issues][len(lines) :] == [severity]
    assert findings.verdict(merged([answer])) == verdict


def test_a_go_with_a_critical_issue_is_no_pass():
    assert findings.verdict(merged([said("ann", "C | broken | a.md", verdict="GO")])) == "NO-GO"


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [
        ("", "GO"),
        ("M", "GO"),
        ("LM", "GO"),
        ("H", "CONDITIONAL"),
        ("HML", "CONDITIONAL"),
        ("C", "NO-GO"),
        ("CH", "NO-GO"),
    ],
)
def test_the_worst_that_is_open_decides(severities, verdict):
    lines = [f"{severity} | text {place} | a.md:{place}" for place, severity in enumerate(severities)]

    assert findings.verdict(merged([said("ann", *lines)])) == verdict


def test_ids_are_numbered_in_the_order_in_which_they_were_said_and_stay():
    first = [said("ann", "C | one | a.md:1", "H | two | a.md:2"), said("bob", "M | three | a.md:3")]
    second = [said("ann", "H | two | a.md:2", "C | four | a.md:4"), said("bob")]

    found = merged(first, second)

    assert [(one.id, one.text, one.status, one.round) for one in found] == [
        ("check-001", "one", "fixed", 1),
        ("check-002", "two", "open", 1),
        ("check-003", "three", "fixed", 1),
        ("check-004", "four", "open", 2),
    ]


def test_the_same_place_said_by_two_is_one_finding_of_both_and_the_worst():
    found = merged([said("ann", "M | unclear | `Plan.md#Keys`"), said("bob", "C | it leaks | plan.md#keys ")])

    assert [(one.id, one.severity, one.by) for one in found] == [("check-001", "C", ("ann", "bob"))]
    assert found[0].text == "it leaks; unclear"


def test_no_words_are_lost_when_two_things_are_wrong_at_one_place():
    found = merged([said("ann", "H | it leaks | a.md", "H | it is slow | a.md"), said("bob", "H | it leaks | a.md")])

    assert [(one.severity, one.text) for one in found] == [("H", "it leaks; it is slow")]


def test_another_problem_at_a_known_place_is_told_in_its_own_words():
    found = merged([said("ann", "H | no expiry | a.md#Keys")], [said("ann", "C | keys are logged | a.md#Keys")])

    assert [(one.id, one.severity, one.text, one.status) for one in found] == [
        ("check-001", "C", "keys are logged", "open")
    ]


def test_a_finding_named_by_its_id_is_the_same_wherever_it_is_said_to_be():
    found = merged([said("ann", "H | no expiry | a.md#Keys")], [said("bob", "M | [check-001] still so | b.md")])

    assert [(one.id, one.severity, one.text, one.place, one.by) for one in found] == [
        ("check-001", "M", "no expiry", "a.md#Keys", ("ann", "bob"))
    ]


def test_a_finding_of_a_review_inside_a_sub_flow_is_known_by_its_id_too():
    known = findings.merge_findings("design/check", (), [said("ann", "H | no expiry")], 1)

    found = findings.merge_findings("design/check", known, [said("ann", "H | [design/check-001] still so")], 2)

    assert [(one.id, one.status) for one in found] == [("design/check-001", "open")]


def test_an_id_that_no_one_knows_is_part_of_the_words():
    found = merged([said("ann", "C | cve-2024-1234 is open | a.md")])

    assert [(one.id, one.text) for one in found] == [("check-001", "cve-2024-1234 is open")]


def test_later_rounds_may_not_add_small_things():
    found = merged([said("ann", "C | one | a:1")], [said("ann", "M | new | a:2", "L | newer | a:3", "H | real | a:4")])

    assert [(one.text, one.status) for one in found] == [("one", "fixed"), ("real", "open")]


def test_a_small_finding_that_turns_out_to_block_blocks():
    found = merged([said("ann", "M | one | a:1")], [said("ann", "C | one, really | a:1")])

    assert [one.id for one in findings.blocking(found)] == ["check-001"]


def test_issues_without_a_place_are_not_taken_for_each_other():
    assert len(merged([said("ann", "C | one", "C | two")])) == 2


def test_a_pipe_in_the_words_is_part_of_them():
    assert findings.parse_answer("ann", "ISSUE: C | a | b | c.md:1\nVERDICT: GO").issues[0] == Issue(
        "C", "a | b", "c.md:1"
    )


@pytest.mark.parametrize(
    "line",
    [
        "ISSUE: Critical | it leaks | a.md",
        "ISSUE: c | it leaks | a.md",
        "ISSUE: [C] | it leaks | a.md",
        "**ISSUE: C** | it leaks | a.md",
        "**ISSUE:** C | it leaks | a.md",
        "**ISSUE: C | it leaks | a.md**",
        "1. ISSUE: C | it leaks | a.md",
        "- [ ] ISSUE: CRITICAL | it leaks | a.md",
        "| ISSUE: C | it leaks | a.md |",
        "ISSUE: C - it leaks | a.md",
        "ISSUE: C \u2014 it leaks | a.md",
        "ISSUE: C: it leaks | a.md",
        "ISSUE 1: C | it leaks | a.md",
        "Issue: C | it leaks | a.md",
        "ISSUE [C] | it leaks | a.md",
    ],
)
def test_an_issue_is_read_as_it_is_plainly_meant(line):
    answer = findings.parse_answer("ann", f"{line}\nVERDICT: GO")

    assert (answer.issues, answer.lack) == ((Issue("C", "it leaks", "a.md"),), "")


@pytest.mark.parametrize(("word", "severity"), [("High", "H"), ("medium", "M"), ("LOW", "L"), ("h", "H"), ("Med", "M")])
def test_a_severity_may_be_written_out(word, severity):
    assert findings.parse_answer("ann", f"ISSUE: {word} | a `b`\nVERDICT: GO").issues == (Issue(severity, "a `b`"),)


@pytest.mark.parametrize(
    "line",
    ["ISSUE: X | it leaks", "ISSUE: C", "ISSUE: C |", "ISSUE: C | | a.md", "1. **ISSUE: Major** | it leaks", "ISSUE:  it leaks",
     "ISSUE: High load breaks it", "ISSUE: L-shaped rooms | a.md", "- ISSUE: [C]", "**ISSUE:**"],
)  # fmt: skip
def test_a_line_that_is_meant_as_an_issue_and_cannot_be_read_makes_the_answer_unusable(line):
    answer = findings.parse_answer("ann", f"ISSUE: L | small\n{line}\nVERDICT: GO")

    assert (answer.unread, len(answer.issues)) == ((line,), 1)
    assert f"`{line}`" in answer.lack


@pytest.mark.parametrize(
    "line",
    ["The issue: C is not what I would take", "Issue: the door does not open", "issue: high - if ever",
     "I saw no ISSUE: it works", "ISSUES: none", "ISSUE: none", "ISSUE: none.", "NO ISSUE: C | x"],
)  # fmt: skip
def test_prose_about_an_issue_is_prose(line):
    answer = findings.parse_answer("ann", f"{line}\nVERDICT: GO")

    assert (answer.issues, answer.lack) == ((), "")


def test_an_answer_survives_the_event_log():
    answer = said("ann", 'C | [check-001] it\'s "broken" | a.md', "L | ü | b", verdict="NO-GO")

    assert findings.answer_from_json(dict(findings.answer_to_json(answer))) == answer


WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=40)


@given(text=WORDS, place=WORDS, by=st.lists(WORDS, max_size=3), severity=st.sampled_from("CHML"))
def test_the_document_is_yaml_whatever_the_words_are(text, place, by, severity):
    finding = Finding("check-001", severity, text, place, tuple(by), 1)

    read = yaml.safe_load(findings.findings_document("check", "NO-GO", 2, "light", [finding]))

    assert (read["review"], read["verdict"], read["rounds"], read["depth"]) == ("check", "NO-GO", 2, "light")
    assert read["findings"] == [
        {"id": "check-001", "severity": severity, "status": "open", "text": text, "place": place, "by": by, "round": 1}
    ]


def test_a_document_without_findings_says_so():
    assert yaml.safe_load(findings.findings_document("check", "GO", 1, "light", ()))["findings"] == []


@pytest.mark.parametrize(
    ("lines", "files", "name", "rounds"),
    [(0, 0, "light", 2), (49, 4, "light", 2), (50, 1, "standard", 3), (10, 5, "standard", 3), (500, 20, "standard", 3),
     (501, 1, "deep", 5), (1, 21, "deep", 5)],
)  # fmt: skip
def test_the_size_of_a_change_decides_how_deep_it_is_reviewed(lines, files, name, rounds):
    assert findings.depth(lines, files) == (name, rounds)


def test_the_findings_of_a_sub_flow_lie_in_its_folder():
    assert findings.findings_file("specs/001-x", "planreview") == "specs/001-x/review-planreview.yaml"
    assert findings.findings_file("specs/001-x", "design/planreview") == "specs/001-x/design/review-planreview.yaml"
