"""Freshness: whether a step is up to date and why not; also compares recorded settings that do not invalidate a step."""

from __future__ import annotations

from dataclasses import dataclass

from doflow.flow import plan, task_lists
from doflow.flow.markdown import Phase
from doflow.flow.model import BY_AGENT, Budget, Retry, Step
from doflow.runs import catalogue, fingerprint, run_history, task_list_files
from doflow.runs.context import RunContext
from doflow.runs.lockfile import StepRecord
from doflow.util.process.runner import Timeout
from doflow.util.text import format_duration
from doflow.util.version import VERSION

_WORDS = {
    "prompt": "its prompt changed",
    "step": "its definition in the flow changed",
    "params": "a parameter it uses changed",
    "note": "it was rejected with a note",
    "follows": "the verdict of a step it follows changed",
    "section": "its section changed",
    "diff": "the code it reviews changed",
    "voices": "its persona prompts changed",
    "before": "the phase before it changed",
}


@dataclass(frozen=True, slots=True)
class Freshness:
    """`reasons` empty = up to date; `edited` = artifacts with manual edits; `remarks` never invalidate the step; `changed`:
    some of them are about settings that have changed since the step ran."""

    reasons: tuple[str, ...]
    key: fingerprint.Key | None = None
    edited: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    changed: bool = False

    @property
    def fresh(self) -> bool:
        return not self.reasons


def step_freshness(step: Step, context: RunContext) -> Freshness:
    record = context.record.steps.get(step.id)
    found = manually_edited_files(step, context)
    if record is None:
        return Freshness((_undone(step.id, context),), None, found)
    key = context.key(step)
    compared = compare_settings(step, record, context)
    forced, gone = _forced(context, step.id), _gone(step, record, context)
    reasons = (*forced, *_changes(record, key, step, context), *compared.reasons, *gone)
    return Freshness(reasons, key, found, compared.remarks, bool(compared.changes))


def phase_freshness(step: Step, phase: Phase, key: fingerprint.Key, context: RunContext) -> Freshness:
    name = f"{step.id}:{phase.number}"
    record = context.record.steps.get(name)
    reasons = _forced(context, name, f"{step.id}:{phase.part_of}", step.id)
    if context.options.task:  # whoever did it
        return Freshness((*reasons, *(() if task_lists.is_ticked(phase.text) else ("its box is open",))), key)
    if record is None:
        return Freshness((_undone(name, context),), key)
    if context.options.optional and any(
        task.optional and not task.done for task in task_lists.parse_task_list(phase.text).tasks
    ):
        reasons.append("it has open optional tasks (--optional)")
    if record.key != key.key:
        reasons += [_WORDS[part] for part in _differing(record, key)]
    compared = compare_settings(step, record, context)
    return Freshness((*reasons, *compared.reasons), key, (), compared.remarks, bool(compared.changes))


def phases_are_fresh(step: Step, context: RunContext) -> bool:
    return all(phase_freshness(step, phase, key, context).fresh for phase, key in phase_keys(step, context))


def phase_keys(step: Step, context: RunContext, every: bool = False) -> tuple[tuple[Phase, fingerprint.Key], ...]:
    """The phases of the current file, each with its key; with --task that task alone, unless `every`."""
    keyed: list[tuple[Phase, fingerprint.Key]] = []
    before = ""
    list_phases = task_list_files.listed_phases if every else task_list_files.phases_to_work
    for phase in list_phases(step, context):
        key = fingerprint.phase_key(step, phase.text, before)
        keyed.append((phase, key))
        before = key.key
    return tuple(keyed)


def has_manual_edit(path: str, context: RunContext) -> bool:
    """Whether this artifact has manual edits."""
    now = context.files.digest(path)
    held = context.record.artifacts.get(path)
    if any(entry.get("files", {}).get(path) == now for entry in context.record.returned.values()):
        return False  # written by an agent, not committed yet
    if context.record.held_files.get(path) == now:
        return False  # written by an agent whose step was refused for another reason
    if not now or (held is not None and held.digest == now):
        return bool(now) and held is not None and held.author == "person"
    return not run_history.file_origin(path, context)


def manually_edited_files(step: Step, context: RunContext) -> tuple[str, ...]:
    return tuple(path for path in map(context.files.path, step.makes) if has_manual_edit(path, context))


def rejection_reason(step: Step, context: RunContext) -> str:
    """The reason if the step was rejected and has not run since; '' = not rejected."""
    note, record = context.record.notes.get(step.id, ""), context.record.steps.get(step.id)
    return _WORDS["note"] if note and record and record.parts.get("note") != fingerprint.short_hash(note) else ""


def _undone(name: str, context: RunContext) -> str:
    if name in context.record.returned:
        return "its agent has returned; its result still has to be checked and committed"
    if name in context.record.started:
        return "it was started and not finished"
    return "not run yet"


def _forced(context: RunContext, *names: str) -> list[str]:
    return ["you asked for it (--force)" for name in names if name in context.options.force]


def _changes(record: StepRecord, key: fingerprint.Key, step: Step, context: RunContext) -> list[str]:
    if record.key == key.key:
        return []
    words = [_part_words(part, step) for part in _differing(record, key)]
    for path in sorted({*record.reads, *key.reads}):
        was, now = record.reads.get(path, ""), key.reads.get(path, "")
        if was != now:
            words.append(_file_words(path, was, now, context))
    return words or (["its key changed"] if record.parts == key.parts else [])


def _differing(record: StepRecord, key: fingerprint.Key) -> list[str]:
    """The parts of the key that changed. Old records may contain parts that now belong to `triggers` (the agent, the text
    of a packaged prompt); these are ignored."""
    names = {*record.parts, *key.parts} - {"agent"}
    if "packaged" in record.by and not record.parts.get("prompt", "").startswith(fingerprint.PACKAGED):
        names -= {"prompt"} if key.parts.get("prompt", "").startswith(fingerprint.PACKAGED) else set()
    return sorted(name for name in names if record.parts.get(name) != key.parts.get(name))


def _part_words(part: str, step: Step) -> str:
    if part == "prompt" and step.prompt and step.prompt.name:
        return f"its prompt {step.prompt.name} changed"
    if part == "step":
        return f"its definition in {step.origin.file or 'the flow'} changed"
    return _WORDS[part]


def _file_words(path: str, was: str, now: str, context: RunContext) -> str:
    if not now:
        return f"{path} is gone"
    if not was:
        return f"{path} is new"
    bare = path.split("#")[0]
    held = context.record.artifacts.get(bare)
    if held is not None and has_manual_edit(bare, context):
        return f"{path} was edited by hand"
    if held is None or not held.step:
        return f"{path} changed"
    other = run_history.file_origin(bare, context) if held.digest != context.files.digest(bare) else ""
    return f"{path} changed (made again by {other or held.step})"


def _gone(step: Step, record: StepRecord, context: RunContext) -> list[str]:
    """The artifacts that are missing; the flow may name other files than when the step ran."""
    known = {*context.record.artifacts, *record.made}
    missing = [path for path in map(context.files.path, step.makes) if not context.files.digest(path)]
    return [f"{path} {'is gone' if path in known else 'does not exist'}" for path in missing]


def author(name: str, step: Step, context: RunContext) -> str:
    """Who wrote the artifacts of this step: a person if they have manual edits, else its agent."""
    record = context.record.steps.get(name)
    if record is None:
        return ""
    held = [context.record.artifacts.get(context.files.path(made)) for made in step.makes] if name == step.id else []
    others = sorted({artifact.author for artifact in held if artifact and artifact.author not in ("agent", "command")})
    if others:
        return ", ".join(others)
    agent, model = record.by.get("agent", "command"), record.by.get("model", "")
    return f"{agent} ({model})" if model and model not in agent else agent


_NAMES = {
    "agent": "its agent", "packaged": "its packaged prompt", "voices": "its packaged persona prompt",
}  # fmt: skip
#: defaults of the limits; only other values are recorded
_USUAL = {
    "timeout": "2h", "retry": "2 times, after 30s", "repair": "0", "gate": "none", "after": "the step before it",
    "protect": "nothing", "budget": "none",
}  # fmt: skip
_TIMEOUT = Timeout()
#: the recorded settings that each of `triggers` covers
_COUNTED = {"agent": ("agent",), "packaged": ("packaged", "voices")}


@dataclass(frozen=True, slots=True)
class Change:
    """A recorded setting that has changed: the step's agent, one of its limits, the version of doflow."""

    what: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.what} was {self.was}, now {self.now}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """`reasons` to run the step again; `changes` that are only shown; `unrecorded`: remarks on settings without a record."""

    reasons: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    unrecorded: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        return (*self.unrecorded, *map(str, self.changes))


def current_settings(step: Step, context: RunContext) -> dict[str, str]:
    """The current values. `with`: the version of doflow; its presence means that limits are recorded too (older: `doflow`)."""
    found = {"with": VERSION}
    if step.kind in BY_AGENT:
        found["agent"] = context.agent_of(step)
    if step.prompt is not None and step.prompt.packaged:
        found["packaged"] = fingerprint.short_hash(step.prompt.text, 8)
    if voices := [voice.text for voice in step.voices if voice.packaged]:
        found["voices"] = fingerprint.short_hash(voices, 8)
    return found | _limits(step, context)


def _limits(step: Step, context: RunContext) -> dict[str, str]:
    """The limits that differ from their defaults, as text."""
    settings, agent = context.settings, step.kind in BY_AGENT
    found: dict[str, str] = {}
    if (time := plan.step_timeout(step, settings)) != _TIMEOUT:
        found["timeout"] = format_duration(time.max) if time.max else "none"
        if time.idle != _TIMEOUT.idle:
            found["timeout"] += f" (silence: {format_duration(time.idle) if time.idle else 'any'})"
    retry = (step.retry or settings.retry) if agent else step.again
    if retry is not None and (retry != Retry() or not settings.retry_enabled or not agent):
        times = retry.attempts if settings.retry_enabled else 0
        found["retry"] = f"{times} times, after {format_duration(retry.backoff)}" if times else "never"
    if step.repair:
        found["repair"] = str(step.repair)
    if gate := plan.gate_text(step, settings):
        found["gate"] = catalogue.shorten(gate)
    if step.after is not None:
        found["after"] = catalogue.shorten(", ".join(step.after)) or "nothing"
    if protect := (*step.protect, *((*context.flow.protect, *settings.protect) if agent else ())):
        found["protect"] = catalogue.shorten(", ".join(protect))
    if step.budget != Budget():
        usd, tokens = step.budget.usd, step.budget.tokens
        parts = [f"${usd:g}" if usd is not None else "", f"{tokens} tokens" if tokens else ""]
        found["budget"] = ", ".join(part for part in parts if part) or "none"
    return found


def compare_settings(step: Step, record: StepRecord, context: RunContext) -> Comparison:
    """What differs from the record. A setting without a record is not a change, and adopted files have no agent."""
    found = current_settings(step, context)
    if found == record.by:  # the common case, checked first for speed
        return Comparison()
    reasons: list[str] = []
    changes: list[Change] = []
    unrecorded: list[str] = []
    counted = {name: trigger for trigger in context.settings.triggers for name in _COUNTED.get(trigger, ())}
    for name, now in found.items():
        was = record.by.get(name, "")
        if name not in _NAMES or was == now or record.by.get("agent") == "person":
            continue
        trigger = counted.get(name, "")
        if not was and trigger:
            why = f"was not recorded and is treated as unchanged (triggers: {trigger})"
            unrecorded.append(f"{_NAMES[name]} at that time {why}")
        elif was and trigger and (name != "agent" or record.by.get("for", was) != now):
            reasons.append(f"{Change(_NAMES[name], was, now)} (triggers: {trigger})")
        elif was:
            changes.append(Change(_NAMES[name], was, now))
    return Comparison(tuple(reasons), (*changes, *_shown(step, record, found)), tuple(unrecorded))


def _shown(step: Step, record: StepRecord, now: dict[str, str]) -> list[Change]:
    """Changes that never invalidate a step: recorded limits and the version of doflow."""
    usual = _USUAL if step.kind in BY_AGENT else _USUAL | {"retry": "never"}
    pairs = [(name, record.by.get(name, default), now.get(name, default)) for name, default in usual.items()]
    changes = [Change(f"its {name}", was, new) for name, was, new in pairs if was != new and "with" in record.by]
    version = record.by.get("with") or record.by.get("doflow", VERSION)
    return [*changes, Change("doflow", version, VERSION)] if version != VERSION else changes
