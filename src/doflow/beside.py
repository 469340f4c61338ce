"""What is recorded of a step beside its key: who did it, with which packaged texts, by which doflow; and what of it is
another now. Such a change is shown and never paid for, unless `triggers` let it count."""

from __future__ import annotations

from doflow import keys
from doflow.lock import Record
from doflow.model import BY_AGENT, Step
from doflow.version import VERSION
from doflow.world import World

_PERSON = "person"
_NAMES = {
    "agent": "its agent", "packaged": "its packaged prompt", "voices": "what its packaged personas are told",
    "doflow": "doflow",
}  # fmt: skip
#: what each of `triggers` lets count
_COUNTED = {"agent": ("agent",), "packaged": ("packaged", "voices")}


def described(step: Step, world: World) -> dict[str, str]:
    """As things are now."""
    found = {"doflow": VERSION}
    if step.kind in BY_AGENT:
        found["agent"] = world.agent_of(step)
    if step.prompt is not None and step.prompt.packaged:
        found["packaged"] = keys.short(step.prompt.text, 8)
    if voices := [voice.text for voice in step.voices if voice.packaged]:
        found["voices"] = keys.short(voices, 8)
    return found


def compared(step: Step, record: Record, world: World) -> tuple[list[str], tuple[str, ...]]:
    """What differs from the record: the reasons to do the step again, and what is only worth a remark.

    What nobody wrote down is no change, and what a person has kept is of no agent.
    """
    reasons: list[str] = []
    remarks: list[str] = []
    counted = {name: trigger for trigger in world.settings.triggers for name in _COUNTED.get(trigger, ())}
    for name, now in described(step, world).items():
        was = record.by.get(name, "")
        if was == now or record.by.get("agent") == _PERSON:
            continue
        trigger = counted.get(name, "")
        if not was:
            remarks += [_unknown(name, trigger)] if trigger else []
        elif trigger and (name != "agent" or record.by.get("for", was) != now):
            reasons.append(f"{_NAMES[name]} was {was}, now {now} (triggers: {trigger})")
        else:
            remarks.append(f"{_NAMES[name]} was {was}, now {now}")
    return reasons, tuple(remarks)


def _unknown(name: str, trigger: str) -> str:
    return f"{_NAMES[name]} at that time is not recorded, and counts as unchanged (triggers: {trigger})"
