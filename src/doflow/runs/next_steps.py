"""Next commands for a run, and their fields in the event log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from doflow.runs.context import RunContext
from doflow.util import hints
from doflow.util.hints import Next


def resume(context: RunContext, *words: str, why: str = "", does: str = "", link: str = "", at: str = "") -> Next:
    """Continue the run with these options."""
    return Next(("doit", context.flow.name, *words), why, does, link, at)


def resume_now(context: RunContext, *words: str, why: str = "", does: str = "", link: str = "") -> Next:
    """The same for errors, which are also shown outside the run: includes the run's lasting options."""
    return resume(context, *words, *context.target.options, why=why, does=does, link=link)


def show_logs_then_resume(step: str, context: RunContext, does: str) -> tuple[Next, ...]:
    """Show the output of a step, then continue the run."""
    return Next(("doflow", "logs", step), does=does), resume(context, link="then")


def event_fields(advice: str, steps: Iterable[Next], context: RunContext) -> dict[str, Any]:
    """Fields for the event log: `next` for programs and later reports, `hint` for people."""
    steps = tuple(steps)
    told: dict[str, Any] = {"hint": hints.text(advice, steps, context.target)}
    return {**told, "advice": advice, "next": [step.entry() for step in steps]} if steps else told
