"""Is a step up to date, and if not, why: the one place that says so, for doit, `why`, `plan` and `status`."""

from __future__ import annotations

import os

from doflow.flow import markdown as sections
from doflow.flow.markdown import Phase
from doflow.flow.model import Step
from doflow.runs.context import World
from doflow.runs.freshness import file_origins as inherited, recorded_context as beside
from doflow.runs.state import fingerprint as keys
from doflow.runs.state.lockfile import Record
from doflow.util.records import dataclass

_WORDS = {
    "prompt": "its prompt changed",
    "step": "its definition in the flow changed",
    "params": "a parameter it uses changed",
    "note": "it was rejected with a note",
    "follows": "the verdict of a step it follows changed",
    "section": "its section changed",
    "diff": "the code it reviews changed",
    "voices": "what its personas are told changed",
    "before": "the phase before it changed",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reasons` empty = up to date; `edited` = artifacts that carry a person's edit; `remarks` = shown, never paid."""

    reasons: tuple[str, ...]
    key: keys.Key | None = None
    edited: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def fresh(self) -> bool:
        return not self.reasons


def of_step(step: Step, world: World) -> Verdict:
    record = world.book.steps.get(step.id)
    found = edited(step, world)
    if record is None:
        return Verdict((_undone(step.id, world),), None, found)
    key = world.key(step)
    counted, remarks = beside.compared(step, record, world)
    reasons = [*_asked(step.id, world), *_changes(record, key, step, world), *counted, *_gone(step, world)]
    return Verdict(tuple(reasons), key, found, remarks)


def of_phase(step: Step, phase: Phase, key: keys.Key, world: World) -> Verdict:
    name = f"{step.id}:{phase.number}"
    record = world.book.steps.get(name)
    if record is None:
        return Verdict((_undone(name, world),), key)
    reasons = [*_asked(name, world), *_asked(step.id, world)]
    if record.key != key.key:
        reasons += [_WORDS[part] for part in _differing(record, key)]
    counted, remarks = beside.compared(step, record, world)
    return Verdict((*reasons, *counted), key, (), remarks)


def phase_keys(step: Step, world: World) -> tuple[tuple[Phase, keys.Key], ...]:
    """The phases of the file as it is now, each with its key; a file without phases is one phase of its own."""
    path = world.phases(step)
    text = world.place.text(path) or ""
    if sections.is_backlog(path):
        from doflow.flow import backlog

        found = backlog.phases(text, path)
    else:
        found = sections.phases(text) or (Phase("all", os.path.basename(path), text, 1),)
    keyed: list[tuple[Phase, keys.Key]] = []
    before = ""
    for phase in found:
        key = keys.of_phase(step, phase.text, before)
        keyed.append((phase, key))
        before = key.key
    return tuple(keyed)


def carried(path: str, world: World) -> bool:
    """Does this artifact carry what a person wrote?"""
    now = world.digest(path)
    held = world.book.artifacts.get(path)
    if any(entry.get("files", {}).get(path) == now for entry in world.book.returned.values()):
        return False  # an agent's, which only waits for its commit
    if world.book.kept.get(path) == now:
        return False  # an agent's, whose step was refused for something else
    if not now or (held is not None and held.digest == now):
        return bool(now) and held is not None and held.author == "person"
    return not inherited.origin(path, world)


def edited(step: Step, world: World) -> tuple[str, ...]:
    return tuple(path for said in step.makes if carried(path := world.path(said), world))


def rejected(step: Step, world: World) -> str:
    """In words: somebody said no to what it has made, and it has not been done again since; '' = it is not so."""
    note, record = world.book.notes.get(step.id, ""), world.book.steps.get(step.id)
    return _WORDS["note"] if note and record and record.parts.get("note") != keys.short(note) else ""


def _undone(name: str, world: World) -> str:
    if name in world.book.returned:
        return "its agent has returned; what is left is to check and commit"
    if name in world.book.begun:
        return "it was begun and not finished"
    return "it has not been done yet"


def _asked(name: str, world: World) -> list[str]:
    return ["you asked for it (--force)"] if name in world.options.force else []


def _changes(record: Record, key: keys.Key, step: Step, world: World) -> list[str]:
    if record.key == key.key:
        return []
    words = [_part_words(part, step) for part in _differing(record, key)]
    for path in sorted({*record.reads, *key.reads}):
        was, now = record.reads.get(path, ""), key.reads.get(path, "")
        if was != now:
            words.append(_file_words(path, was, now, world))
    return words or (["its key changed"] if record.parts == key.parts else [])


def _differing(record: Record, key: keys.Key) -> list[str]:
    """The parts of the key that are others now. What `triggers` let count was once a part of it, and is none: the agent,
    and of a packaged prompt its text instead of its name."""
    names = {*record.parts, *key.parts} - {"agent"}
    if "packaged" in record.by and not record.parts.get("prompt", "").startswith(keys.PACKAGED):
        names -= {"prompt"} if key.parts.get("prompt", "").startswith(keys.PACKAGED) else set()
    return sorted(name for name in names if record.parts.get(name) != key.parts.get(name))


def _part_words(part: str, step: Step) -> str:
    if part == "prompt" and step.prompt and step.prompt.name:
        return f"its prompt {step.prompt.name} changed"
    if part == "step":
        return f"its definition in {step.origin.file or 'the flow'} changed"
    return _WORDS[part]


def _file_words(path: str, was: str, now: str, world: World) -> str:
    if not now:
        return f"{path} is gone"
    if not was:
        return f"{path} is new"
    bare = path.split("#")[0]
    held = world.book.artifacts.get(bare)
    if held is not None and carried(bare, world):
        return f"{path} was edited by hand"
    if held is None or not held.step:
        return f"{path} changed"
    other = inherited.origin(bare, world) if held.digest != world.digest(bare) else ""
    return f"{path} changed (made anew by {other or held.step})"


def _gone(step: Step, world: World) -> list[str]:
    """What it should have made; another name may be in the flow than when it was done."""
    record = world.book.steps.get(step.id)
    known = {*world.book.artifacts, *(record.made if record else ())}
    missing = (path for said in step.makes if not world.digest(path := world.path(said)))
    return [f"{path} {'is gone' if path in known else 'does not exist'}" for path in missing]


def author(name: str, step: Step, world: World) -> str:
    """Who wrote what this step made: a person where it is a person's, else the agent that did it."""
    record = world.book.steps.get(name)
    if record is None:
        return ""
    held = [world.book.artifacts.get(world.path(said)) for said in step.makes] if name == step.id else []
    others = sorted({artifact.author for artifact in held if artifact and artifact.author not in ("agent", "command")})
    if others:
        return ", ".join(others)
    agent, model = record.by.get("agent", "command"), record.by.get("model", "")
    return f"{agent} ({model})" if model and model not in agent else agent
