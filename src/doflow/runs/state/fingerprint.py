"""The key of a step: the hash of all that its result depends on, in named parts, so that a change can be told in words."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from doflow.flow import markdown as sections
from doflow.flow.model import Check, Prompt, Read, Step
from doflow.flow.substitution import _PARAM as _PARAM, substitute as substitute
from doflow.util.errors import WorldError
from doflow.util.records import dataclass, names, regex

_GLOB = regex(r"[*?\[]")
ABSENT = ""
PACKAGED = "packaged "


@dataclass(frozen=True, slots=True)
class Key:
    """`key` = hash over `parts` and `reads`; `missing` = inputs that must exist and don't."""

    key: str
    parts: Mapping[str, str]
    reads: Mapping[str, str]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run's paths lie, and how its files are looked at."""

    root: Path
    run_dir: str
    boxed: frozenset[str]
    digest: Callable[[str], str]

    def path(self, said: str) -> str:
        """A path as a flow says it, from the project's root."""
        return said.lstrip("/") if said.startswith("/") else f"{self.run_dir}/{said}"

    def expand(self, said: str) -> tuple[str, ...]:
        """The files that a path or a glob of a flow means, in order."""
        path = self.path(said)
        if not _GLOB.search(path):
            return (path,)
        names = (str(item.relative_to(self.root)) for item in self.root.glob(path) if item.is_file())
        return tuple(sorted(name for name in names if not name.startswith((".git/", ".doflow/"))))

    def text(self, path: str) -> str | None:
        """The words of a file (lines end in LF), or None if there is none; never waits on a pipe."""
        try:
            descriptor = os.open(self.root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as cause:
            raise WorldError(f"{path}: cannot be read ({cause.strerror})") from cause
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read().replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")


def of_step(
    step: Step,
    place: Place,
    params: Mapping[str, str],
    note: str = "",
    markers: Sequence[tuple[str, str]] = (),
    diff: str = "",
) -> Key:
    """The key of a step as things are now."""
    facts = _facts(step)
    parts = {"step": facts[1]}
    if step.prompt is not None:
        parts["prompt"] = _prompt(step.prompt)
    if used := _used(step, facts[2], params):
        parts["params"] = short(used)
    if note:
        parts["note"] = short(note)
    if markers:
        parts["follows"] = short(list(markers))
    if diff:
        parts["diff"] = short(diff)
    if voices := [voice.text for voice in step.voices if not voice.packaged]:
        parts["voices"] = short(voices)
    reads, missing = read_digests(step.reads, place)
    own = {place.path(said) for said in step.makes}  # a glob may find what the step itself makes: no input of its own
    reads = {path: digest for path, digest in reads.items() if path not in own}
    return Key(join(parts, reads), parts, reads, missing)


def of_phase(step: Step, text: str, before: str) -> Key:
    """The key of a phase: its section with empty boxes, its definition, the key of the phase before."""
    parts = {"section": short(sections.untick(text).strip()), "step": _facts(step)[1]}
    if step.prompt is not None:
        parts["prompt"] = _prompt(step.prompt)
    if before:
        parts["before"] = before[:16]
    return Key(join(parts, {}), parts, {})


def read_digests(reads: Sequence[Read], place: Place) -> tuple[dict[str, str], tuple[str, ...]]:
    found: dict[str, str] = {}
    missing: list[str] = []
    for read in reads:
        files = place.expand(read.path)
        for path in files:
            shown = f"{path}#{read.section}" if read.section else path
            found[shown] = _digest(path, read.section, place)
            if not found[shown] and not read.optional:
                missing.append(shown)
        if not files and not read.optional:
            missing.append(place.path(read.path))
    return found, tuple(missing)


def join(parts: Mapping[str, str], reads: Mapping[str, str]) -> str:
    return short([sorted(parts.items()), sorted(reads.items())], 64)


def short(value: object, length: int = 16) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:length]


_known: dict[int, tuple[Step, str, tuple[str, ...]]] = {}


def _facts(step: Step) -> tuple[Step, str, tuple[str, ...]]:
    """What of a step never changes: its definition's hash, the parameters that it names. (`step` is held, so that its
    address stays its own.)"""
    held = _known.get(id(step))
    if held is None:
        if len(_known) > 20_000:
            _known.clear()
        texts = [step.prompt.text if step.prompt else "", step.shell, *step.run, *step.makes, *step.check.run]
        named = {name for text in texts if "{" in text for name in _PARAM.findall(text)}
        held = _known[id(step)] = (step, _definition(step), tuple(sorted(named)))
    return held


def _definition(step: Step) -> str:
    check = {name: value for name, value in ((name, getattr(step.check, name)) for name in names(Check)) if value}
    parts = [step.kind, list(step.run), step.shell, list(step.makes), step.from_text, check]
    return short([*parts, list(step.personas), step.rounds, [route.when for route in step.routes]])


def _prompt(prompt: Prompt) -> str:
    return f"{PACKAGED}{prompt.name}" if prompt.packaged else short(prompt.text)


def _used(step: Step, named: Sequence[str], params: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in step.params if name != "index"}  # an item that only moved up is the same
    return {name: params[name] for name in named if name in params} | own


def _digest(path: str, section: str, place: Place) -> str:
    if not section and path not in place.boxed:
        return place.digest(path)
    text = place.text(path)
    if text is None:
        return ABSENT
    if sections.is_backlog(path):
        from doflow.flow import backlog

        text = backlog.bare(text)
    if section:
        cut = sections.section(text, section)
        if cut is None:
            return ABSENT
        text = cut.strip()
    return short(sections.untick(text), 64)
