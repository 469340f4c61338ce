"""Prompt text: built from the flow's prompt, the inputs and the required result. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from doflow.flow import findings
from doflow.flow.findings import Finding
from doflow.flow.model import Step
from doflow.flow.parsing.syntax import substitute

#: a larger input is passed as a path; nothing is truncated silently
INPUT_LIMIT = 200_000
_CANNOT = "If you cannot do this at all, answer with the line `[ERROR: why]`, not quoted: it then counts as failed instead of done."


@dataclass(frozen=True, slots=True)
class Input:
    """An input file: its path and text (None = too large or binary)."""

    path: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Brief:
    """Everything in a prompt besides the flow's own text."""

    run: str
    run_dir: str
    makes: tuple[str, ...] = ()
    writes: tuple[str, ...] | None = ()
    inputs: tuple[Input, ...] = ()
    phase: str = ""
    old: tuple[Input, ...] = ()
    changes: str = ""
    note: str = ""
    trouble: str = ""
    task_list: str = ""


def step_prompt(step: Step, brief: Brief, params: dict[str, str]) -> str:
    """The whole prompt. Sections come in the order in which an agent needs them."""
    words = substitute(step.prompt.text, params).strip() if step.prompt else ""
    parts = [words, _place(step, brief), _contract(step, brief), *_revision(brief)]
    if brief.phase:
        place = f" It is in `{brief.task_list}`: tick its boxes there." if brief.task_list else ""
        parts.append(
            f"## The phase to do now\n\nDo this phase only, and all of it; ticked boxes are done already.{place}\n\n{brief.phase.strip()}"
        )
    if brief.note:
        parts.append(f"## A person rejected the last result\n\n{brief.note.strip()}")
    parts += [_input(given) for given in brief.inputs]
    if brief.trouble:
        parts.append(_trouble(brief))
    return "\n\n".join(part for part in parts if part) + "\n"


def retry_prompt(step: Step, brief: Brief) -> str:
    """The prompt for an existing session, which already has the task and the inputs."""
    return f"{_trouble(brief)}\n\n{_contract(step, brief)}\n"


def review_prompt(
    persona: str, voice: str, own: str, run_dir: str, round_: int, inputs: Sequence[Input], code: str,
    known: Sequence[Finding],
) -> str:  # fmt: skip
    """The prompt of a reviewer. Later rounds contain only the changes and the open findings."""
    parts = [
        f"You review as **{persona}**. {voice.strip()}".strip(),
        own.strip(),
        f"Read only: change no file, run nothing that writes. The run's folder is `{run_dir}/`. {_CANNOT}",
    ]
    if round_ > 1:
        parts.append(
            f"## Round {round_}\n\nThese findings were open. Say again those that still hold, with their id; name a new "
            f"one only if it blocks (C or H).\n\n{findings.format_findings(found for found in known if found.status == 'open')}"
        )
    parts += [_input(given) for given in inputs]
    if code:
        large = "## The code\n\nToo large to show: read it with git."
        parts.append(_input(Input("what changed", code)) if len(code) <= INPUT_LIMIT else large)
    parts.append(_ANSWER)
    return "\n\n".join(part for part in parts if part) + "\n"


_ANSWER = """## How to answer

One line per issue, nothing else on it: how bad (C critical, H high, M medium, L low), what, where.

    ISSUE: H | The token never expires | plan.md#Tokens
    ISSUE: L | A typo in the title | plan.md:3

Then, as your very last line, not quoted and not in a code block, exactly one of:

    VERDICT: GO
    VERDICT: CONDITIONAL
    VERDICT: NO-GO"""


def fix_prompt(step: str, run_dir: str, listed: str, mine: Sequence[str], code: bool) -> str:
    """The prompt of the fixer."""
    names = ", ".join(f"`{path}`" for path in mine)
    also = f", and {names}" if names else f"; of `{run_dir}/` none"
    allowed = f"Change the project's files as needed{also}." if code else f"Change only {names}."
    return (
        f"Fix what the review `{step}` of the run in `{run_dir}/` found. {allowed} Work through every finding; keep all that "
        f"is not concerned. Where you disagree, say why beside the place. Do not commit, push, merge or start `doit`, "
        f"`doflow`, `prd`, `run-prd.sh` or `tsk`. {_CANNOT}\n\n## Findings\n\n{listed}\n"
    )


def refresh_prompt(run_dir: str, path: str, text: str, inputs: Sequence[Input], form: str, trouble: str) -> str:
    """The prompt for a new version of a task list. The list is never left out, however large it is."""
    strict = " Phases are `## Phase N: title`, tasks are `- [ ] [T001] text`." if form == "strict" else ""
    parts = [
        f"The documents that the task list `{path}` was made from have changed, or the list does not fit them any more. Bring the "
        f"list up to date: add the tasks that are missing, change or remove open tasks that no longer fit, and keep the rest.",
        f"Read only: change no file, run nothing that writes. The run's folder is `{run_dir}/`. Look at the project where that "
        f"helps. No one can answer questions. {_CANNOT}",
        f"## Rules\n\n- Ticked tasks are done: keep every one, with its ID and its text, in its phase and in its order.\n"
        f"- Where done work must change, add a task for it, with an ID that is not in the list. Give no task the ID of another.\n"
        f"- New tasks and changed tasks are open: `- [ ]`.\n- Keep the form of the list: its headings, its IDs, its notes.{strict}\n"
        f"- Answer with the full text of the new list and nothing else. If nothing has to change, answer with the list as it is.",
        _input(Input(path, text)),
        *(_input(given) for given in inputs),
        f"## Your last answer was refused\n\n{_fence(trouble)}" if trouble else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _place(step: Step, brief: Brief) -> str:
    return (
        f"## Where you are\n\n"
        f"Step `{step.id}` of run `{brief.run}`, whose folder is `{brief.run_dir}/`. You work in the project's root. "
        f"No one can answer questions. Do not commit, push, merge, switch branches or start `doit`, `doflow`, `prd`, "
        f"`run-prd.sh` or `tsk`: that is done for you afterwards. {_CANNOT}"
    )


def _contract(step: Step, brief: Brief) -> str:
    lines = []
    if step.from_text:
        lines.append(f"Answer with the full text of `{brief.makes[0]}` and nothing else; do not write the file.")
    elif brief.makes:
        lines.append("Write " + ", ".join(f"`{path}`" for path in brief.makes) + ".")
    if brief.writes is None:
        lines.append("You may change any file of the project that is not protected.")
    else:
        allowed = ", ".join(f"`{glob}`" for glob in brief.writes)
        lines.append(f"You may also change {allowed}." if allowed else "Change no other file.")
    if step.check.headings:
        lines.append("It must have the headings " + ", ".join(f"`{name}`" for name in step.check.headings) + ".")
    if step.check.ends:
        lines.append("Its last line must be " + " or ".join(f"`{line}`" for line in step.check.ends) + ".")
    if step.check.tasks == "strict":
        lines.append("Phases are `## Phase N: title`, tasks are `- [ ] [T001] text`.")
    elif step.check.tasks:
        lines.append("Each task is a box: `- [ ] text`.")
    if step.routes:
        wanted = ", ".join(f"`{route.when}`" for route in step.routes)
        lines.append(f"End with exactly one of these lines, not quoted and not in a code block: {wanted}.")
    return "## What must be there when you are done\n\n" + "\n".join(f"- {line}" for line in lines)


def _trouble(brief: Brief) -> str:
    return f"## The last attempt did not pass\n\nFix exactly this:\n\n{_fence(brief.trouble)}"


def _revision(brief: Brief) -> Sequence[str]:
    if not brief.old:
        return ()
    names = ", ".join(f"`{given.path}`" for given in brief.old)
    text = f"## Revise, do not rewrite\n\n{names} exists. Keep what still holds; change what its inputs now ask for."
    if brief.changes:
        text += f"\n\nWhat changed in the inputs:\n\n{_fence(brief.changes, 'diff')}"
    return (text, *(_input(given).replace("## Input:", "## As it is now:", 1) for given in brief.old))


def _input(given: Input) -> str:
    if given.text is None:
        return f"## Input: {given.path}\n\nToo large to show here. Read the file `{given.path}` yourself, whole."
    return f"## Input: {given.path}\n\n{_fence(given.text)}"


def _fence(text: str, kind: str = "") -> str:
    mark = "```"
    while mark in text:
        mark += "`"
    return f"{mark}{kind}\n{text.rstrip()}\n{mark}"
