"""The pauses for a person: a gate waits for a yes, a clarification for answers. Neither is ever passed by waiting."""

from __future__ import annotations

from collections.abc import Callable

from doflow.flow import markdown as sections, plan
from doflow.flow.model import Outcome, Status, Step
from doflow.runs import run_record as book
from doflow.runs.context import World
from doflow.runs.state import event_log as ledger, fingerprint as keys
from doflow.runs.state.lockfile import Approval

_MANY = 6
#: who does a step, where nobody reads a note
NOTELESS = {
    "implement": "is done in phases", "shell": "is done by a command", "review": "is a review",
    "install": "is done by doflow itself", "session": "is a session of its own",
}  # fmt: skip


def approved(step: Step, world: World) -> bool:
    """Is there a yes to exactly what is there now?"""
    held = world.book.approvals.get(step.id)
    return held is not None and held.digest == shown(step, world)


def shown(step: Step, world: World) -> str:
    """The digest of what the person is asked about: a yes to something else does not count."""
    seen = [[path, world.digest(path)] for path in _material(step, world)]
    if not seen:  # nothing to look at: the yes is to what was done
        names = [step.id] if step.kind != "gate" else list(world.before(step.id))
        seen = [[name, world.book.steps[name].key] for name in names if name in world.book.steps]
    return keys.short(seen)


def ask(step: Step, world: World) -> Outcome:
    if approved(step, world):
        return Outcome(Status.DONE)
    if world.settings.auto_approve or world.options.auto_approve:
        seen = shown(step, world)
        with world.guard:
            world.book.approvals[step.id] = Approval(seen, book.AUTO, "", ledger.now())
            world.book.loose.add(step.id)
        world.ledger.add("approved", step=step.id, by=book.AUTO, shown=seen)
        return Outcome(Status.DONE)
    reason = question(step, world)
    ways = answers(step, world, lambda verb, words: f"doflow {verb} {words}", world.again)
    hint = f"{ways}   then: {world.again}"
    world.ledger.add("gate", step=step.id, message=reason, hint=hint, shown=shown(step, world))
    return Outcome(Status.PAUSED, reason, hint)


def question(step: Step, world: World) -> str:
    """What is asked, and about which files."""
    words, paths = plan.gate_text(step, world.settings), files(step, world)
    return f"{words} ({paths})" if paths else words


def files(step: Step, world: World) -> str:
    """The files that a person is asked about, in words: those that are there, or are known from another branch."""
    known = world.book.artifacts
    paths = [path for path in _material(step, world) if step.kind != "gate" or path in known or world.digest(path)]
    more = f" and {len(paths) - _MANY} more" if len(paths) > _MANY else ""
    return ", ".join(paths[:_MANY]) + more


def _material(step: Step, world: World) -> list[str]:
    """What the step has made; of a gate that only asks, what it reads."""
    said = [*_made(step, world), *(read.path for read in step.reads if step.kind == "gate")]
    return [path for one in said for path in world.place.expand(one)]


def answers(step: Step, world: World, decide: Callable[[str, str], str], again: str) -> str:
    """The commands that say yes and no. No is said to a step whose doer reads a note; `again` goes on."""
    yes, whose = decide("approve", step.id), maker(step, world)
    if whose is None:
        return yes
    if whose.kind in NOTELESS:
        return f"{yes}   or   {again} --force={whose.id}   does it anew"
    no = decide("reject", f"{whose.id}{':ITEM' if whose.foreach else ''} --note '…'")
    return f"{yes}   or   {no}"


def maker(step: Step, world: World) -> Step | None:
    """Whose work a no sends back: of a gate that only asks, the last step that made what it shows."""
    if step.kind != "gate":
        return step
    shown = {read.path for read in step.reads}
    active = [found for name in world.order() if (found := world.flow.step(name))]
    return next((found for found in reversed(active) if shown & {*found.makes}), None)


def _made(step: Step, world: World) -> tuple[str, ...]:
    """What a step makes; of one that is done once per item what every item makes."""
    parts = world.items(step) if step.foreach else (step,)
    return tuple(said for part in parts for said in part.makes)


def open_questions(step: Step, world: World) -> tuple[tuple[str, str], ...]:
    """The questions left in the step's artifacts, each with its file."""
    paths = [world.path(said) for said in _made(step, world)]
    return tuple((path, words) for path in paths for words in sections.questions(world.place.text(path) or ""))


def clarify(step: Step, world: World) -> Outcome:
    asked = open_questions(step, world)
    if not asked:
        return Outcome(Status.DONE)
    lines = "".join(f"\n    {number}. {words}" for number, (_, words) in enumerate(asked, 1))
    reason = f"{asked[0][0]} asks {len(asked)} question{'s' if len(asked) > 1 else ''}:{lines}"
    hint = f"doflow answer   then: {world.again}"
    world.ledger.add("clarification", step=step.id, message=reason, hint=hint, questions=[words for _, words in asked])
    return Outcome(Status.PAUSED, reason, hint)


def route(step: Step, world: World) -> tuple[Outcome, str]:
    """Where a routing step leads: the outcome, and the marker."""
    record = world.book.steps.get(step.id)
    marker = record.marker if record else ""
    rule = plan.rule(step, marker)
    if rule is None:
        return _unmarked(step, world), ""
    if rule.variant:
        world.book.variant = rule.variant
    if rule.pause:
        hint = f"{world.again} --force={','.join(rule.again) or step.id}   asks again"
        world.ledger.add("paused", step=step.id, message=rule.pause, hint=hint, marker=marker)
        return Outcome(Status.PAUSED, f"{marker}: {rule.pause}", hint), marker
    return Outcome(Status.DONE), marker


def unmarked(step: Step, world: World) -> str:
    """In words: a person's edit took the marker out of the artifact of a routing step; '' = it did not."""
    record = world.book.steps.get(step.id)
    if record is None or record.by.get("marker") != "artifact" or plan.rule(step, record.marker):
        return ""
    names = ", ".join(world.path(said) for said in step.makes)
    return f"{names}, as you edited it, holds none of the markers {_wanted(step)}"


def _unmarked(step: Step, world: World) -> Outcome:
    """No rule matches: a failure, never a way on."""
    edited = unmarked(step, world)
    if not edited:
        hint = f"doflow logs {step.id}; then: {world.again} --force={step.id}"
        return Outcome(Status.FAILED, f"{step.id} gave none of the markers {_wanted(step)}", hint)
    hint = f"put one of them on a line of its own, then: {world.again}   or   {world.again} --force={step.id}"
    world.ledger.add("error", step=step.id, message=edited, hint=hint)
    return Outcome(Status.FAILED, edited, hint)


def _wanted(step: Step) -> str:
    return ", ".join(f"`{route.when}`" for route in step.routes)
