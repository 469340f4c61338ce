"""Sessions as a person sees and changes them: which there are, where they stand, how often an agent was let through."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from doflow.hooks import events, machine_loader as machines, session_store as store, state_machine as rules
from doflow.util.errors import UsageError

if TYPE_CHECKING:
    from doflow.hooks.state_machine import Doc, Machine


def known(root: str, environ: Mapping[str, str]) -> list[str]:
    """The keys of a project's sessions, the one that changed last at the end: its id, and @ the machine if it is another."""
    home = store.Session(store.base(environ), store.top(root), "").home
    return [_ident(folder) for folder in store.sessions(home)]


def find(root: str, environ: Mapping[str, str], wanted: str = "") -> store.Session | None:
    """By its id or the first letters of it, else the one that changed last; None = there is none yet."""
    there = known(root, environ)
    if not there and not wanted:
        return None
    ident = wanted if wanted in there else next((one for one in reversed(there) if one.startswith(wanted)), None)
    if ident is None:
        hint = "doflow machine status --all lists them"
        raise UsageError(f"there is no session {wanted!r} in this project", hint)
    return store.Session(store.base(environ), store.top(root), ident)


def read(session: store.Session) -> Doc:
    """The document as it is; one that cannot be read is what a hook would take it for."""
    try:
        found = session.read()
    except (OSError, ValueError, RecursionError) as error:
        return {"state": "?", "trouble": str(error), "session_id": session.ident}
    return (
        found if isinstance(found, dict) else {"state": "?", "trouble": "no JSON object", "session_id": session.ident}
    )


def machine_of(root: str, doc: Doc) -> Machine:
    own = doc.get("doflow")
    name = own.get("machine") if isinstance(own, dict) else None
    return machines.compiled(root, name if isinstance(name, str) else store.DEFAULT)


def change(session: store.Session, machine: Machine, deed: Callable[[Doc, str], str]) -> str:
    """Let a person change a state: under the lock, noted in the journal."""
    now = time.time()
    with session:
        found = read(session)
        if rules.usable(machine, found):
            found = rules.fresh(machine, session.ident, session.project, events.iso(now))
        doc = rules.mended(machine, found, session.ident, session.project, events.iso(now))
        words = deed(doc, events.iso(now))
        session.write(doc)
        session.note(
            f"[{events.iso(now)}] [doflow-machine] {words}\t{json.dumps({'t': round(now, 3), 'event': 'person'})}"
        )
    return words


def back_up(session: store.Session) -> None:
    """The document, byte by byte, beside itself."""
    with open(session.path, "rb") as file:
        store.replace(os.path.join(session.folder, store.BACKUP), file.read())


def restore(session: store.Session) -> str:
    """What the last reset put away, byte by byte; the state that it had."""
    backup = os.path.join(session.folder, store.BACKUP)
    with session:
        try:
            with open(backup, "rb") as file:
                data = file.read()
        except FileNotFoundError as error:
            hint = "doflow machine reset makes one before it changes anything"
            raise UsageError(f"session {session.ident} has no backup", hint) from error
        store.replace(session.path, data)
        state = str(read(session).get("state"))
        now = time.time()
        session.note(
            f"[{events.iso(now)}] [doflow-machine] restored: {state}\t{json.dumps({'t': now, 'event': 'person'})}"
        )
    return state


def metrics(session_folders: list[str]) -> dict[str, Any]:
    """From the journals: who was let through where, who was not, how long each worked."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    spans: dict[str, list[float]] = {}
    begun: dict[str, float] = {}
    for fact in facts(session_folders):
        agent, state, decision = str(fact.get("agent", "")), str(fact.get("state", "")), fact.get("decision")
        if decision:
            row = counts.setdefault((agent, state), {"allow": 0, "block": 0, "escape": 0})
            row[str(decision)] = row.get(str(decision), 0) + 1
        ident = f"{fact.get('session')}/{fact.get('id')}"
        if fact.get("event") == "SubagentStart" and fact.get("id"):
            begun.setdefault(ident, fact["t"])
        elif fact.get("event") in ("SubagentStop", "PostToolUse") and ident in begun:
            spans.setdefault(agent, []).append(round(fact["t"] - begun.pop(ident), 3))
    rows = [{"agent": agent, "state": state, **_worded(row)} for (agent, state), row in sorted(counts.items())]
    return {
        **{word: sum(row[word] for row in rows) for word in _WORDS},
        "by": rows,
        "durations": {agent: _span(values) for agent, values in sorted(spans.items())},
        "sessions": len(session_folders),
    }


_WORDS = {"allowed": "allow", "blocked": "block", "escaped": "escape"}


def _worded(row: dict[str, int]) -> dict[str, Any]:
    return {word: row[name] for word, name in _WORDS.items()}


def _span(values: list[float]) -> dict[str, float]:
    return {"count": len(values), "mean": round(sum(values) / len(values), 3), "longest": max(values)}


def facts(folders: list[str]) -> Iterator[dict[str, Any]]:
    """What the journals tell programs, line by line."""
    for folder in folders:
        for name in (f"{store.JOURNAL}.1", store.JOURNAL):
            try:
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    lines = file.readlines()
            except OSError:
                continue
            for line in lines:
                try:
                    found = json.loads(line.rpartition("\t")[2])
                except ValueError:
                    continue
                if isinstance(found, dict) and isinstance(found.get("t"), (int, float)):
                    yield found


def _ident(folder: str) -> str:
    """A session's id from the name of its folder."""
    name = os.path.basename(folder)
    if "%" not in name:
        return name
    try:
        with open(os.path.join(folder, store.STATE), "rb") as file:
            said = json.loads(file.read()).get("session_id")
        if isinstance(said, str) and store.named(said) == name:
            return said
    except (OSError, ValueError, AttributeError):
        pass
    return _unquoted(name)


def _unquoted(name: str) -> str:
    from urllib.parse import unquote

    return unquote(name)
