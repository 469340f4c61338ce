"""What a machine says to each event, as changes of a state document. Pure: no disk, no clock, no library.

A machine is the compiled form that `machines` makes: plain tables, names expanded. A state document is a JSON object:
version, state, timestamp, session_id, context, history, and under `doflow` what keeps count of agents at work.
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


def fresh(machine: Machine, session: str, project: str, now: str) -> Doc:
    return {
        "version": VERSION,
        "state": machine["start"],
        "timestamp": now,
        "session_id": session,
        "context": dict.fromkeys(machine["context"], ""),
        "history": [],
        "doflow": {
            "machine": machine["machine"],
            "project": project,
            "turn": False,
            "active": {},
            "ended": [],
            "kept": {},
        },
    }


def usable(machine: Machine, found: object) -> str:
    """Why something that was read is no state document of this machine; '' = it is one."""
    if not isinstance(found, dict):
        return "it is no JSON object"
    state = found.get("state")
    if not isinstance(state, str) or state not in machine["states"]:
        return f"the machine {machine['machine']} has no state {short(state)}"
    return ""


def mended(machine: Machine, found: Doc, session: str, project: str, now: str) -> Doc:
    """The document with every part in its form; what is not is replaced by an empty one."""
    doc = fresh(machine, session, project, now)
    for name, value in found.items():
        if name not in doc or isinstance(value, type(doc[name])):
            doc[name] = value
    doc["history"] = [entry for entry in doc["history"] if isinstance(entry, dict)]
    own = fresh(machine, session, project, now)["doflow"]
    doc["doflow"] = own | {
        name: value for name, value in doc["doflow"].items() if isinstance(value, type(own.get(name)))
    }
    return doc


def match(table: dict[str, Any], agent: str) -> Any:
    """What a table of names and `prefix*` says of an agent: its own name first, then the longest prefix; None = nothing."""
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
    if match(rules["allow"], agent):
        return ""
    about = f" ({rules['about']})" if rules["about"] else ""
    allowed = ", ".join(rules["allow"]) or "none"
    return f"the sub-agent {short(agent)} may not run in state {state}{about}; allowed now: {allowed}"


def started(machine: Machine, doc: Doc, agent: str, ident: str, now: str) -> str:
    """An agent begins to work; the words for it, '' if it is known to work already."""
    own = doc["doflow"]
    if ident and ident in own["active"]:
        return ""
    if ident in own["ended"]:
        own["ended"].remove(ident)
    before = doc["state"]
    own["active"][ident or agent] = {"agent": agent, "since": now, "state": before}
    doc["timestamp"] = now
    after = match(machine["states"][before]["on_start"], agent)
    if after is not None:
        _move(machine, doc, agent, after, now)
        return f"{short(agent)} started: {before} -> {after}"
    return f"{short(agent)} started in {before}"


def stopped(machine: Machine, doc: Doc, agent: str, ident: str, text: str, now: str) -> str:
    """An agent has done its work. Missing, doubled and unknown events change nothing that they must not; '' = doubled."""
    own = doc["doflow"]
    if ident and ident in own["ended"]:
        _keep(machine, doc, agent, ident, text, "again")
        return ""
    begun = own["active"].pop(ident or agent, None)
    if ident:
        own["ended"] = [*own["ended"], ident][-REMEMBERED:]
    before = doc["state"]
    after = match(machine["states"][before]["on_stop"], agent)
    if after is not None:
        if before == machine["complete"]:
            doc["context"] = dict.fromkeys(machine["context"], "")
            own["kept"] = {}
        _keep(machine, doc, agent, ident, text, "new" if after != before else "more")
        _move(machine, doc, agent, after, now)
        return f"{short(agent)} stopped: {before} -> {after}"
    doc["timestamp"] = now
    if begun and match(machine["states"].get(begun["state"], {}).get("on_stop", {}), agent) is not None:
        _keep(machine, doc, agent, ident, text, "more")
    return f"{short(agent)} stopped in {before}: no rule, nothing moves"


def settled(doc: Doc, running: set[str]) -> list[str]:
    """The turn is over: agents that are not at work any more and never said so are forgotten; their names."""
    active = doc["doflow"]["active"]
    lost = [ident for ident in active if ident not in running]
    return [str(active.pop(ident).get("agent", "")) for ident in lost]


def moved(machine: Machine, doc: Doc, why: str, to: str, now: str, reason: str = "") -> None:
    """A move that no agent made: a person's, or time's."""
    _move(machine, doc, why, to, now, reason)
    if to == machine["start"]:
        doc["context"] = dict.fromkeys(machine["context"], "")
        doc["doflow"]["kept"] = {}


def lasting(machine: Machine, doc: Doc) -> bool:
    """Whether a state holds however long nothing happens: an agent works, or a turn is not over, or it need not expire."""
    own = doc["doflow"]
    return bool(own["active"] or own["turn"] or not machine["expires"] or doc["state"] == machine["start"])


def short(value: object) -> str:
    """A name that somebody else chose, safe to show on one line."""
    text = value if isinstance(value, str) else repr(value)
    shown = "".join(sign if sign.isprintable() else "?" for sign in text[:SHOWN]) + ("…" if len(text) > SHOWN else "")
    return shown if shown and not any(sign.isspace() for sign in text) else f"'{shown}'"


def _move(machine: Machine, doc: Doc, agent: str, to: str, now: str, reason: str = "") -> None:
    entry = {"agent": agent, "timestamp": now, "state_before": doc["state"], "state_after": to}
    if reason:
        entry["reason"] = reason
    doc["history"] = [*doc["history"], entry][-machine["history"] :]
    doc["state"], doc["timestamp"] = to, now


def _keep(machine: Machine, doc: Doc, agent: str, ident: str, text: str, how: str) -> None:
    """Store what an agent said last: `new`, `more` (several at once: one after the other) or `again` (a doubled stop)."""
    kept, said = doc["doflow"]["kept"], doc["context"]
    for slot, rule in machine["context"].items():
        if match(rule["agents"], agent) is None or not text.strip():
            continue
        taken, by = _taken(text, rule["section"], rule["limit"]), kept.get(slot, [])
        if how == "more" and by:
            said[slot], kept[slot] = f"{said.get(slot, '')}\n\n{taken}"[: rule["limit"]], [*by, ident]
        elif how != "again" or by == [ident]:
            said[slot], kept[slot] = taken, [ident]


def _taken(text: str, section: str, limit: int) -> str:
    """The part of an answer that is kept: one section of it where the machine names one and it is there."""
    if section:
        lines = text.splitlines()
        for place, line in enumerate(lines):
            if line.startswith("#") and line.lstrip("#").strip() == section:
                level = len(line) - len(line.lstrip("#"))
                rest = lines[place + 1 :]
                end = next((at for at, one in enumerate(rest) if _heading(one, level)), len(rest))
                text = "\n".join(rest[:end]).strip()
                break
    return text[:limit]


def _heading(line: str, level: int) -> bool:
    depth = len(line) - len(line.lstrip("#"))
    return 0 < depth <= level and line[depth : depth + 1] == " "
