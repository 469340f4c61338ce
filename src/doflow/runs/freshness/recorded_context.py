"""What is recorded of a step beside its key: who did it, with which packaged texts and limits, by which doflow; and what of
it is another now. Such a change is shown and never paid for, unless `triggers` let it count."""

from __future__ import annotations

from doflow.flow import plan
from doflow.flow.model import BY_AGENT, Budget, Retry, Step
from doflow.runs import catalogue as runs
from doflow.runs.context import World
from doflow.runs.state import fingerprint as keys
from doflow.runs.state.lockfile import Record
from doflow.util.process.command import Timeout
from doflow.util.text import span
from doflow.util.version import VERSION

_PERSON = "person"
_NAMES = {
    "agent": "its agent", "packaged": "its packaged prompt", "voices": "what its packaged personas are told",
}  # fmt: skip
#: limits, with the words for what holds where nobody says anything; only others are recorded
_USUAL = {
    "timeout": "2h", "retry": "2 times, after 30s", "repair": "0", "gate": "none", "after": "the step before it",
    "protect": "nothing", "budget": "none",
}  # fmt: skip
_TIMEOUT, _RETRY, _BUDGET = Timeout(), Retry(), Budget()
#: what each of `triggers` lets count
_COUNTED = {"agent": ("agent",), "packaged": ("packaged", "voices")}


def described(step: Step, world: World) -> dict[str, str]:
    """As things are now. `with`: the version of doflow, and the sign that limits are recorded, too (else it is `doflow`)."""
    found = {"with": VERSION}
    if step.kind in BY_AGENT:
        found["agent"] = world.agent_of(step)
    if step.prompt is not None and step.prompt.packaged:
        found["packaged"] = keys.short(step.prompt.text, 8)
    if voices := [voice.text for voice in step.voices if voice.packaged]:
        found["voices"] = keys.short(voices, 8)
    return found | _limits(step, world)


def _limits(step: Step, world: World) -> dict[str, str]:
    """Those that are not as usual, in words."""
    settings, agent = world.settings, step.kind in BY_AGENT
    found: dict[str, str] = {}
    if (time := plan.timeout(step, settings)) != _TIMEOUT:
        silence = f" (silence: {span(time.idle) if time.idle else 'any'})" if time.idle != _TIMEOUT.idle else ""
        found["timeout"] = f"{span(time.max) if time.max else 'none'}{silence}"
    retry = (step.retry or settings.retry) if agent else step.again
    if retry is not None and (retry != _RETRY or not settings.retry_enabled or not agent):
        times = retry.attempts if settings.retry_enabled else 0
        found["retry"] = f"{times} times, after {span(retry.backoff)}" if times else "never"
    if step.repair:
        found["repair"] = str(step.repair)
    if gate := plan.gate_text(step, settings):
        found["gate"] = runs.shorten(gate)
    if step.after is not None:
        found["after"] = runs.shorten(", ".join(step.after)) or "nothing"
    if protect := (*step.protect, *((*world.flow.protect, *settings.protect) if agent else ())):
        found["protect"] = runs.shorten(", ".join(protect))
    if step.budget != _BUDGET:
        found["budget"] = _budget(step.budget)
    return found


def _budget(budget: Budget) -> str:
    parts = [f"${budget.usd:g}" if budget.usd is not None else "", f"{budget.tokens} tokens" if budget.tokens else ""]
    return ", ".join(part for part in parts if part) or "none"


def compared(step: Step, record: Record, world: World) -> tuple[list[str], tuple[str, ...]]:
    """What differs from the record: the reasons to do the step again, and what is only worth a remark.

    What nobody wrote down is no change, and what a person has kept is of no agent.
    """
    found = described(step, world)
    if found == record.by:  # nearly always, and a long chain asks often
        return [], ()
    reasons: list[str] = []
    remarks: list[str] = []
    counted = {name: trigger for trigger in world.settings.triggers for name in _COUNTED.get(trigger, ())}
    for name, now in found.items():
        was = record.by.get(name, "")
        if name not in _NAMES or was == now or record.by.get("agent") == _PERSON:
            continue
        trigger = counted.get(name, "")
        if not was:
            remarks += [_unknown(name, trigger)] if trigger else []
        elif trigger and (name != "agent" or record.by.get("for", was) != now):
            reasons.append(f"{_NAMES[name]} was {was}, now {now} (triggers: {trigger})")
        else:
            remarks.append(f"{_NAMES[name]} was {was}, now {now}")
    return reasons, (*remarks, *_shown(step, record, found))


def _shown(step: Step, record: Record, now: dict[str, str]) -> list[str]:
    """What never counts: limits, where the record knows of them, and doflow itself."""
    usual = _USUAL if step.kind in BY_AGENT else _USUAL | {"retry": "never"}
    pairs = [(name, record.by.get(name, said), now.get(name, said)) for name, said in usual.items()]
    words = [f"its {name} was {was}, now {new}" for name, was, new in pairs if was != new and "with" in record.by]
    version = record.by.get("with") or record.by.get("doflow", VERSION)
    return [*words, f"doflow was {version}, now {VERSION}"] if version != VERSION else words


def _unknown(name: str, trigger: str) -> str:
    return f"{_NAMES[name]} at that time is not recorded, and counts as unchanged (triggers: {trigger})"
