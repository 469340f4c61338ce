"""What reviewers find: reading their answers, one ledger of findings with stable ids, and the verdict. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from doflow.util.records import dataclass, regex, replace

VERDICTS = ("GO", "CONDITIONAL", "NO-GO")
BLOCKING = ("C", "H")
_ORDER = "CHML"
_VERDICT = regex(r"^\W*(?:VERDICT|v):[\s*_`]*(GO|CONDITIONAL|NO-GO)\W*$")
#: list and markup signs, ISSUE, how bad, a bar (or a dash or colon), the words
_ISSUE = regex(
    r"^(?:[\W_\d]|\[x\])*(ISSUE)[\s*_`#\d]*(:?)[\s*_`\[(]*(critical|crit|high|medium|med|low|[chml])[\s*_`\])]*?"
    r"(\||\s[-\u2013\u2014]\s|\s*[\u2013\u2014]|:)[\s*_]*(\S.*)$", re.IGNORECASE
)  # fmt: skip
_MEANT = regex(r"^(?:[\W_\d]|\[[xX]\])*ISSUE[\s*_`#\d]*:[\s*_`]*(.*)$")
_NONE = regex(r"^(?:none|no issues?|n/a|-+)\W*$", re.IGNORECASE)
_PLACE = regex(r"^(.*?)\s*(?:\|\s*([^|]*?)\s*)?$")
_ID = regex(r"\[?([a-z0-9][a-z0-9_/-]*-\d{3,})\b")


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing a reviewer says: how bad (C, H, M, L), what, where; `known` = the id of the finding it repeats."""

    severity: str
    text: str
    place: str = ""
    known: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reviewer's answer. `verdict` '' = there was none: never a pass; `unread` = meant as issues, and not understood."""

    persona: str
    verdict: str
    issues: tuple[Issue, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def lack(self) -> str:
        """Why it cannot be used; '' = it can."""
        if self.unread:
            return f"wrote an issue that cannot be read, `{self.unread[0].strip()[:80]}`,"
        return "" if self.verdict else "gave no verdict"


@dataclass(frozen=True, slots=True)
class Finding:
    """An issue in the review's ledger, under an id that stays."""

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


def read(persona: str, text: str) -> Answer:
    """An answer out of an agent's last words: the last verdict line counts, and every issue line."""
    verdict = ""
    issues, unread = [], []
    for line in text.splitlines():
        if found := _VERDICT.match(line):
            verdict = found[1]
        elif issue := _issue(line):
            issues.append(issue)
        elif (found := _MEANT.match(line)) and not _NONE.match(found[1]):
            unread.append(line)
    if verdict in ("NO-GO", "CONDITIONAL") and not any(issue.severity in BLOCKING for issue in issues):
        severity = "C" if verdict == "NO-GO" else "H"
        issues.append(Issue(severity, f"{persona} says {verdict} and names no blocking issue", f"({persona})"))
    return Answer(persona, verdict, tuple(issues), tuple(unread))


def merge(step: str, known: Sequence[Finding], answers: Iterable[Answer], round_: int) -> tuple[Finding, ...]:
    """The ledger after a round: what is said again stays open, what is not is fixed, new ones get the next id.

    In a later round only blocking issues may be new: a review that keeps finding small things never ends.
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


def file(run_dir: str, step: str) -> str:
    """Where a review's findings are written: beside what a sub-flow makes, if the review is in one."""
    folder, slash, name = step.rpartition("/")
    return f"{run_dir}/{folder}{slash}review-{name}.yaml"


def blocking(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.blocks)


def depth(lines: int, files: int) -> tuple[str, int]:
    """How deep a review of this size goes, and how many rounds that is at most."""
    if lines > 500 or files > 20:
        return "deep", 5
    if lines < 50 and files < 5:
        return "light", 2
    return "standard", 3


def lines(findings: Iterable[Finding]) -> str:
    """For a prompt: one line per finding."""
    return "\n".join(
        f"- [{found.id}] {found.severity}: {found.text} ({found.place or 'no place'})" for found in findings
    )


def document(step: str, verdict_: str, rounds: int, size: str, findings: Sequence[Finding]) -> str:
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


def plain(answer: Answer) -> dict[str, object]:
    """For the ledger."""
    issues = [[issue.severity, issue.text, issue.place, issue.known] for issue in answer.issues]
    return {"persona": answer.persona, "verdict": answer.verdict, "issues": issues}


def typed(entry: dict[str, object]) -> Answer:
    """Back from the ledger."""
    rows: list[list[str]] = entry.get("issues", [])  # type: ignore[assignment]
    return Answer(str(entry["persona"]), str(entry["verdict"]), tuple(Issue(*row) for row in rows))


def _issue(line: str) -> Issue | None:
    """The issue that a line plainly means. `issue` in small letters, or without its colon, is one only with a bar."""
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
    """Said once more: by its id it is the same finding; at its place it may be another, whose words are not lost."""
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
