"""How events change a machine's state document. Pure: no disk, no clock, no library.

A machine is the compiled form from `machine_loader`: plain tables, groups expanded. A state document is a JSON object:
version, state, timestamp, session_id, context, history, and under `doflow` the running agents.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Machine = dict[str, Any]
    Doc = dict[str, Any]

VERSION = "1.0"
REMEMBERED = 500
SHOWN = 100


def new_document(machine: Machine, session: str, project: str, now: str) -> Doc:
    return {
        "version": VERSION,
        "state": machine["start"],
        "timestamp": now,
        "session_id": session,
        "context": dict.fromkeys(machine["context"], ""),
        "history": [],
        "doflow": _own_part(machine, project),
    }


def _own_part(machine: Machine, project: str) -> Doc:
    return {"machine": machine["machine"], "project": project, "turn": False, "active": {}, "ended": [], "kept": {}}


def document_problem(machine: Machine, found: object) -> str:
    """Why a value isn't a state document of this machine; '' = it is one."""
    if not isinstance(found, dict):
        return "it isn't a JSON object"
    state = found.get("state")
    if not isinstance(state, str) or state not in machine["states"]:
        return f"the machine {machine['machine']} has no state {display_name(state)}"
    return ""


def normalize(machine: Machine, found: Doc, session: str, project: str, now: str) -> Doc:
    """The document with parts of a wrong type replaced by empty ones."""
    doc = new_document(machine, session, project, now)
    for name, value in found.items():
        if name not in doc or isinstance(value, type(doc[name])):
            doc[name] = value
    doc["history"] = [entry for entry in doc["history"] if isinstance(entry, dict)]
    own = _own_part(machine, project)
    kept = {name: value for name, value in doc["doflow"].items() if isinstance(value, type(own.get(name)))}
    doc["doflow"] = own | kept
    return doc


def lookup(table: dict[str, Any], agent: str) -> Any:
    """The entry for an agent in a table of names and `prefix*`: its name, then the longest prefix; None = no entry."""
    if agent in table and not agent.endswith("*"):
        return table[agent]
    best, found = -1, None
    for pattern, value in table.items():
        if pattern.endswith("*") and len(pattern) > best and agent.startswith(pattern[:-1]):
            best, found = len(pattern), value
    return found


def refusal(machine: Machine, state: str, agent: str) -> str:
    """Why an agent may not run in a state, and which ones may; '' = it may."""
    rules = machine["states"][state]
    if lookup(rules["allow"], agent):
        return ""
    about = f" ({rules['about']})" if rules["about"] else ""
    allowed = ", ".join(rules["allow"]) or "none"
    return f"the sub-agent {display_name(agent)} may not run in state {state}{about}; allowed now: {allowed}"


def agent_started(machine: Machine, doc: Doc, agent: str, ident: str, now: str) -> str:
    """Record the start of an agent; returns a log message, '' if it was recorded already."""
    own = doc["doflow"]
    if ident and ident in own["active"]:
        return ""
    if ident in own["ended"]:
        own["ended"].remove(ident)
    before = doc["state"]
    own["active"][ident or agent] = {"agent": agent, "since": now, "state": before}
    doc["timestamp"] = now
    after = lookup(machine["states"][before]["on_start"], agent)
    if after is not None:
        _move(machine, doc, agent, after, now)
        return f"{display_name(agent)} started: {before} -> {after}"
    return f"{display_name(agent)} started in {before}"


def agent_stopped(machine: Machine, doc: Doc, agent: str, ident: str, text: str, now: str) -> str:
    """Record the end of an agent; returns a log message, '' for a duplicate event."""
    own = doc["doflow"]
    if ident and ident in own["ended"]:
        _store_answer(machine, doc, agent, ident, text, "again")
        return ""
    started = own["active"].pop(ident or agent, None)
    if ident:
        own["ended"] = [*own["ended"], ident][-REMEMBERED:]
    before = doc["state"]
    after = lookup(machine["states"][before]["on_stop"], agent)
    if after is not None:
        if before == machine["complete"]:
            doc["context"] = dict.fromkeys(machine["context"], "")
            own["kept"] = {}
        _store_answer(machine, doc, agent, ident, text, "new" if after != before else "more")
        _move(machine, doc, agent, after, now)
        return f"{display_name(agent)} stopped: {before} -> {after}"
    doc["timestamp"] = now
    if started and lookup(machine["states"].get(started["state"], {}).get("on_stop", {}), agent) is not None:
        _store_answer(machine, doc, agent, ident, text, "more")
    return f"{display_name(agent)} stopped in {before}: no rule, state unchanged"


def forget_lost_agents(doc: Doc, running: set[str]) -> list[str]:
    """At the end of a turn: drop agents that no longer run and sent no stop event; returns their names."""
    active = doc["doflow"]["active"]
    lost = [ident for ident in active if ident not in running]
    return [str(active.pop(ident).get("agent", "")) for ident in lost]


def move_to(machine: Machine, doc: Doc, why: str, to: str, now: str, reason: str = "") -> None:
    """A move that no agent made: by a person, or by expiry."""
    _move(machine, doc, why, to, now, reason)
    if to == machine["start"]:
        doc["context"] = dict.fromkeys(machine["context"], "")
        doc["doflow"]["kept"] = {}


def never_expires(machine: Machine, doc: Doc) -> bool:
    """Whether the state can't expire now: an agent or a turn is running, or no expiry applies."""
    own = doc["doflow"]
    return bool(own["active"] or own["turn"] or not machine["expires"] or doc["state"] == machine["start"])


def display_name(value: object) -> str:
    """An untrusted name, made safe to print on one line."""
    text = value if isinstance(value, str) else repr(value)
    shown = "".join(sign if sign.isprintable() else "?" for sign in text[:SHOWN]) + ("…" if len(text) > SHOWN else "")
    return shown if shown and not any(sign.isspace() for sign in text) else f"'{shown}'"


def _move(machine: Machine, doc: Doc, agent: str, to: str, now: str, reason: str = "") -> None:
    entry = {"agent": agent, "timestamp": now, "state_before": doc["state"], "state_after": to}
    if reason:
        entry["reason"] = reason
    doc["history"] = [*doc["history"], entry][-machine["history"] :]
    doc["state"], doc["timestamp"] = to, now


def _store_answer(machine: Machine, doc: Doc, agent: str, ident: str, text: str, how: str) -> None:
    """Store the last message of an agent: `new`, `more` (appended, for agents in parallel) or `again` (duplicate stop)."""
    kept, context = doc["doflow"]["kept"], doc["context"]
    for slot, rule in machine["context"].items():
        if lookup(rule["agents"], agent) is None or not text.strip():
            continue
        answer, by = _answer_section(text, rule["section"])[: rule["limit"]], kept.get(slot, [])
        if how == "more" and by:
            context[slot], kept[slot] = f"{context.get(slot, '')}\n\n{answer}"[: rule["limit"]], [*by, ident]
        elif how != "again" or by == [ident]:
            context[slot], kept[slot] = answer, [ident]


def _answer_section(text: str, section: str) -> str:
    """The part of a message to store: the section that the machine names, if present."""
    lines = text.splitlines() if section else []
    for place, line in enumerate(lines, 1):
        title = line.lstrip("#")
        if title != line and title.strip() == section:
            level = len(line) - len(title)
            end = next((at for at in range(place, len(lines)) if _is_heading(lines[at], level)), len(lines))
            return "\n".join(lines[place:end]).strip()
    return text


def _is_heading(line: str, level: int) -> bool:
    depth = len(line) - len(line.lstrip("#"))
    return 0 < depth <= level and line[depth : depth + 1] == " "
