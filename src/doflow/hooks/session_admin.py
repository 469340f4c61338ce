"""List, inspect and change the sessions of a project; metrics from their journals."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from doflow.hooks import machine_loader, session_store, state_machine
from doflow.util import timestamps
from doflow.util.errors import UsageError

if TYPE_CHECKING:
    from doflow.hooks.state_machine import Doc, Machine


def session_keys(root: str, environ: Mapping[str, str]) -> list[str]:
    """The keys of a project's sessions, most recently changed last: ID, plus @MACHINE if it isn't the default."""
    home = session_store.Session(session_store.sessions_folder(environ), session_store.project_root(root), "").home
    return [_ident(folder) for folder in session_store.session_folders(home)]


def find_session(root: str, environ: Mapping[str, str], wanted: str = "") -> session_store.Session | None:
    """A session by its ID or a prefix of it, by default the most recently changed; None = no session yet."""
    there = session_keys(root, environ)
    if not there and not wanted:
        return None
    ident = wanted if wanted in there else next((one for one in reversed(there) if one.startswith(wanted)), None)
    if ident is None:
        hint = "list them: doflow machine status --all"
        raise UsageError(f"no session {wanted!r} in this project", hint)
    return session_store.Session(session_store.sessions_folder(environ), session_store.project_root(root), ident)


def load_document(session: session_store.Session) -> Doc:
    """The state document; an unreadable one becomes a placeholder with `trouble`."""
    try:
        found, trouble = session.read(), "not a JSON object"
    except (OSError, ValueError, RecursionError) as error:
        found, trouble = None, str(error)
    return found if isinstance(found, dict) else {"state": "?", "trouble": trouble, "session_id": session.ident}


def machine_for(root: str, doc: Doc) -> Machine:
    own = doc.get("doflow")
    name = own.get("machine") if isinstance(own, dict) else None
    return machine_loader.load_machine(root, name if isinstance(name, str) else session_store.DEFAULT)


def change_state(session: session_store.Session, machine: Machine, action: Callable[[Doc, str], str]) -> str:
    """Change the state by hand: under the lock, noted in the journal."""
    now = time.time()
    at = timestamps.format_seconds(now)
    with session:
        found = load_document(session)
        usable = {} if state_machine.document_problem(machine, found) else found
        doc = state_machine.normalize(machine, usable, session.ident, session.project, at)
        words = action(doc, at)
        session.write(doc)
        _note(session, now, words)
    return words


def _note(session: session_store.Session, now: float, words: str) -> None:
    facts = json.dumps({"t": round(now, 3), "event": "person"})
    session.note(f"[{timestamps.format_seconds(now)}] [doflow-machine] {words}\t{facts}")


def back_up(session: session_store.Session) -> None:
    """Copy the document to its backup."""
    with open(session.path, "rb") as file:
        session_store.replace_file(os.path.join(session.folder, session_store.BACKUP), file.read())


def restore(session: session_store.Session) -> str:
    """Restore the backup of the last reset; returns its state."""
    backup = os.path.join(session.folder, session_store.BACKUP)
    with session:
        try:
            with open(backup, "rb") as file:
                data = file.read()
        except FileNotFoundError as error:
            hint = "`doflow machine reset` makes a backup before it changes anything"
            raise UsageError(f"session {session.ident} has no backup", hint) from error
        session_store.replace_file(session.path, data)
        state = str(load_document(session).get("state"))
        _note(session, time.time(), f"restored: {state}")
    return state


def compute_metrics(session_folders: list[str]) -> dict[str, Any]:
    """From the journals: allowed and blocked calls per agent and state, and durations."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    spans: dict[str, list[float]] = {}
    started: dict[str, float] = {}
    for fact in journal_entries(session_folders):
        agent, state, decision = str(fact.get("agent", "")), str(fact.get("state", "")), fact.get("decision")
        if decision:
            row = counts.setdefault((agent, state), {"allow": 0, "block": 0, "escape": 0})
            row[str(decision)] = row.get(str(decision), 0) + 1
        ident = f"{fact.get('session')}/{fact.get('id')}"
        if fact.get("event") == "SubagentStart" and fact.get("id"):
            started.setdefault(ident, fact["t"])
        elif fact.get("event") in ("SubagentStop", "PostToolUse") and ident in started:
            spans.setdefault(agent, []).append(round(fact["t"] - started.pop(ident), 3))
    rows: list[dict[str, Any]] = [
        {"agent": agent, "state": state, **{word: row[decision] for word, decision in _DECISIONS.items()}}
        for (agent, state), row in sorted(counts.items())
    ]
    return {
        **{word: sum(row[word] for row in rows) for word in _DECISIONS},
        "by": rows,
        "durations": {agent: _span(values) for agent, values in sorted(spans.items())},
        "sessions": len(session_folders),
    }


_DECISIONS = {"allowed": "allow", "blocked": "block", "escaped": "escape"}


def _span(values: list[float]) -> dict[str, float]:
    return {"count": len(values), "mean": round(sum(values) / len(values), 3), "longest": max(values)}


def journal_entries(folders: list[str]) -> Iterator[dict[str, Any]]:
    """The JSON facts of the journals, line by line."""
    for folder in folders:
        for name in (f"{session_store.JOURNAL}.1", session_store.JOURNAL):
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
    """A session's ID from its folder name."""
    name = os.path.basename(folder)
    if "%" not in name:
        return name
    try:
        with open(os.path.join(folder, session_store.STATE), "rb") as file:
            ident = json.loads(file.read()).get("session_id")
        if isinstance(ident, str) and session_store.safe_name(ident) == name:
            return ident
    except (OSError, ValueError, AttributeError):
        pass
    return unquote(name)
