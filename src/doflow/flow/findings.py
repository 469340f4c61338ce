"""Review findings: parsing reviewers' answers, one list of findings with stable ids, and the verdict. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from doflow.flow import markdown

VERDICTS = ("GO", "CONDITIONAL", "NO-GO")
BLOCKING = ("C", "H")
_ORDER = "CHML"
_VERDICT = {f"{word}: {verdict}": verdict for verdict in VERDICTS for word in ("VERDICT", "v")}
#: list and markup characters, ISSUE, severity, a bar (or a dash or colon), the text
_ISSUE = re.compile(
    r"^(?:[\W_\d]|\[x\])*(ISSUE)[\s*_`#\d]*(:?)[\s*_`\[(]*(critical|crit|high|medium|med|low|[chml])[\s*_`\])]*?"
    r"(\||\s[-\u2013\u2014]\s|\s*[\u2013\u2014]|:)[\s*_]*(\S.*)$", re.IGNORECASE
)  # fmt: skip
_MEANT = re.compile(r"^(?:[\W_\d]|\[[xX]\])*ISSUE[\s*_`#\d]*:[\s*_`]*(.*)$")
_NONE = re.compile(r"^(?:none|no issues?|n/a|-+)\W*$", re.IGNORECASE)
_PLACE = re.compile(r"^(.*?)\s*(?:\|\s*([^|]*?)\s*)?$")
_ID = re.compile(r"\[?([a-z0-9][a-z0-9_/-]*-\d{3,})\b")


class Issue(NamedTuple):
    """One issue of a reviewer: severity (C, H, M, L), text, place; `known` = the id of the finding it repeats."""

    severity: str
    text: str
    place: str = ""
    known: str = ""


class Answer(NamedTuple):
    """A reviewer's answer. `verdict` '' = none, which never passes; `unread` = issue lines that could not be parsed;
    `disagreeing` = different verdicts in one answer, of which none counts."""

    persona: str
    verdict: str
    issues: tuple[Issue, ...] = ()
    unread: tuple[str, ...] = ()
    disagreeing: tuple[str, ...] = ()

    @property
    def lack(self) -> str:
        """Why the answer cannot be used; '' = it can."""
        if self.unread:
            return f"wrote an issue that cannot be read, `{self.unread[0].strip()[:80]}`,"
        if self.disagreeing:
            return f"gave verdicts that disagree ({', '.join(self.disagreeing)})"
        return "" if self.verdict else "gave no verdict"


@dataclass(frozen=True, slots=True)
class Finding:
    """An issue in the review's list of findings, with a stable id."""

    id: str
    severity: str
    text: str
    place: str
    by: tuple[str, ...]
    round: int
    status: str = "open"

    @property
    def blocks(self) -> bool:
        return self.status == "open" and self.severity in BLOCKING


def parse_answer(persona: str, text: str) -> Answer:
    """Parse an agent's final text: the verdict in its last line, and every issue line."""
    verdicts = tuple(dict.fromkeys(_VERDICT[marker] for marker in markdown.read_markers(text, _VERDICT)))
    verdict = verdicts[0] if len(verdicts) == 1 else ""
    issues, unread = [], []
    for line in text.splitlines():
        if issue := _issue(line):
            issues.append(issue)
        elif (found := _MEANT.match(line)) and not _NONE.match(found[1]):
            unread.append(line)
    if verdict in ("NO-GO", "CONDITIONAL") and not any(issue.severity in BLOCKING for issue in issues):
        severity = "C" if verdict == "NO-GO" else "H"
        issues.append(Issue(severity, f"{persona} says {verdict} and names no blocking issue", f"({persona})"))
    return Answer(persona, verdict, tuple(issues), tuple(unread), verdicts if len(verdicts) > 1 else ())


def merge_findings(step: str, known: Sequence[Finding], answers: Iterable[Answer], round_: int) -> tuple[Finding, ...]:
    """The findings after a round: repeated ones stay open, others are fixed, new ones get the next id.

    In later rounds only blocking issues may be new: otherwise a review would never end.
    """
    said = [(answer.persona, issue) for answer in answers for issue in answer.issues]
    found = {finding.id: replace(finding, status="fixed") for finding in known}
    places = {_place(finding.place): finding.id for finding in known if finding.place}
    for persona, issue in said:
        name = issue.known if issue.known in found else places.get(_place(issue.place), "") if issue.place else ""
        if name:
            found[name] = _again(found[name], persona, issue)
        elif round_ == 1 or issue.severity in BLOCKING:
            name = f"{step}-{len(found) + 1:03d}"
            found[name] = Finding(name, issue.severity, issue.text, issue.place, (persona,), round_)
            if issue.place:
                places[_place(issue.place)] = name
    return tuple(found.values())


def verdict(findings: Iterable[Finding]) -> str:
    """C open = NO-GO, H open = CONDITIONAL, else GO."""
    open_ = {finding.severity for finding in findings if finding.status == "open"}
    return "NO-GO" if "C" in open_ else "CONDITIONAL" if "H" in open_ else "GO"


class ReviewResult(NamedTuple):
    """How a review ended: its verdict, and which conditions it leaves open. The record of the step keeps it as its marker."""

    verdict: str
    conditions: str = ""

    @property
    def marker(self) -> str:
        return f"{self.verdict} {self.conditions}" if self.conditions else self.verdict


def review_result(marker: str) -> ReviewResult | None:
    """What the marker of a step's record says; None = it is not that of a review."""
    verdict, _, conditions = marker.partition(" ")
    return ReviewResult(verdict, conditions) if verdict in VERDICTS else None


def findings_file(run_dir: str, step: str) -> str:
    """The file of a review's findings: in the sub-flow's folder, if the review is in one."""
    folder, slash, name = step.rpartition("/")
    return f"{run_dir}/{folder}{slash}review-{name}.yaml"


def blocking(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.blocks)


def depth(lines: int, files: int) -> tuple[str, int]:
    """The depth of a review of this size, and its maximum number of rounds."""
    if lines > 500 or files > 20:
        return "deep", 5
    if lines < 50 and files < 5:
        return "light", 2
    return "standard", 3


def format_findings(findings: Iterable[Finding]) -> str:
    """For a prompt: one line per finding."""
    return "\n".join(
        f"- [{found.id}] {found.severity}: {found.text} ({found.place or 'no place'})" for found in findings
    )


def findings_document(step: str, verdict_: str, rounds: int, size: str, findings: Sequence[Finding]) -> str:
    """`review-<step>.yaml`: every value quoted as JSON, which is YAML."""
    head = [f"review: {_json(step)}", f"verdict: {_json(verdict_)}", f"rounds: {rounds}", f"depth: {_json(size)}"]
    if not findings:
        return "\n".join([*head, "findings: []"]) + "\n"
    rows = []
    for found in findings:
        rows.append(f"  - id: {_json(found.id)}")
        rows += [f"    {name}: {_json(getattr(found, name))}" for name in ("severity", "status", "text", "place")]
        rows += [f"    by: {_json(list(found.by))}", f"    round: {found.round}"]
    return "\n".join([*head, "findings:", *rows]) + "\n"


def answer_to_json(answer: Answer) -> dict[str, object]:
    """The answer as the event log stores it."""
    issues = [[issue.severity, issue.text, issue.place, issue.known] for issue in answer.issues]
    return {"persona": answer.persona, "verdict": answer.verdict, "issues": issues}


def answer_from_json(entry: dict[str, object]) -> Answer:
    """The answer from the event log."""
    rows: list[list[str]] = entry.get("issues", [])  # type: ignore[assignment]
    return Answer(str(entry["persona"]), str(entry["verdict"]), tuple(Issue(*row) for row in rows))


def _issue(line: str) -> Issue | None:
    """The issue on a line. `issue` in lower case, or without its colon, needs a bar."""
    found = _ISSUE.match(line)
    if not found or (found[4] != "|" and not (found[1] == "ISSUE" and found[2])):
        return None
    words = found[5].rstrip()
    if line.lstrip().startswith("|"):  # a row of a table
        words = words.removesuffix("|").rstrip()
    if words.count("**") % 2:
        words = words.removesuffix("**").rstrip()
    parts = _PLACE.match(words)
    text, place = (parts[1], parts[2] or "") if parts else (words, "")
    known = _ID.match(text)
    return Issue(found[3][0].upper(), text, place, known[1] if known else "") if text else None


def _again(finding: Finding, persona: str, issue: Issue) -> Finding:
    """A repeated issue: with the same id it is the same finding; at the same place it may differ, and both texts are kept."""
    by = finding.by if persona in finding.by else (*finding.by, persona)
    first = finding.status != "open"
    worse = issue.severity if first else min(finding.severity, issue.severity, key=_ORDER.index)
    text = finding.text
    if issue.known != finding.id:
        both = (issue.text, text) if worse != finding.severity else (text, issue.text)
        text = issue.text if first else text if issue.text in text else "; ".join(both)
    return replace(finding, status="open", severity=worse, text=text, by=by)


def _place(place: str) -> str:
    return " ".join(place.casefold().split()).strip("`'\"")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
