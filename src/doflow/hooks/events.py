"""What each event of Claude Code or Codex means for a session's state, and what is answered to it.

The two speak alike. Claude Code: the tool is `Agent` (or `Task`), the name in `subagent_type`, none = general-purpose.
Codex: the tool is `spawn_agent`, the name in `agent_type`, none = `default`, or the caller's own with `fork_context`.
"""

from __future__ import annotations

import os
import time

from doflow.hooks import state_machine as rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from doflow.hooks.session_store import Session

    Payload = dict[str, Any]

NAME = "doflow-hook"  # what our words are known by, also to the model
TOOLS = ("Agent", "Task", "spawn_agent")


class Call:
    """One question: what was asked, by which rules it is answered, where the state is."""

    __slots__ = ("event", "machine", "now", "payload", "session")

    def __init__(self, event: str, payload: Payload, machine: rules.Machine, session: Session, now: float) -> None:
        self.event = event
        self.payload = payload
        self.machine = machine
        self.session = session
        self.now = now

    def text(self, name: str) -> str:
        value = self.payload.get(name)
        return value if isinstance(value, str) else ""


class Answer:
    """What is said: lines for the log, an object for the agent, facts for the journal."""

    __slots__ = ("block", "facts", "lines", "said")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.said: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}
        self.block = False

    def log(self, line: str) -> None:
        if line:
            self.lines.append(line)


def answer(call: Call) -> Answer:
    """Read the state, let the event change it, write it if it changed: under the session's lock."""
    told = Answer()
    doc, known = _read(call, told)
    told.facts = {"event": call.event, "session": call.session.ident, "state": doc["state"]}
    changed = EVENTS[call.event](call, doc, told)
    told.facts["to"] = doc["state"]
    if changed or not known:
        _write(call, doc, told)
    if not known:
        call.session.show()
    return told


def iso(now: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def _read(call: Call, told: Answer) -> tuple[rules.Doc, bool]:
    """The state document; one that cannot be read is put aside and counts as the first state."""
    machine, session, now = call.machine, call.session, iso(call.now)
    try:
        found = session.read()
        trouble = rules.usable(machine, found)
    except FileNotFoundError:
        return rules.fresh(machine, session.ident, session.project, now), False
    except (OSError, ValueError, RecursionError) as error:
        found, trouble = {}, str(error)
    if trouble:
        told.log(
            f"WARNING: {session.path} cannot be used ({trouble}): taken as {machine['start']}, the old one is kept beside it"
        )
        session.aside()
        return rules.fresh(machine, session.ident, session.project, now), False
    return rules.mended(machine, found, session.ident, session.project, now), True


def _write(call: Call, doc: rules.Doc, told: Answer) -> None:
    """A disk that takes nothing is no reason to answer otherwise; what it did not take is said."""
    try:
        call.session.write(doc)
    except OSError as error:
        told.log(
            f"ERROR: {call.session.path} cannot be written ({error}): the state on the disk is older than what happened"
        )


def _session_start(call: Call, doc: rules.Doc, told: Answer) -> bool:
    own, machine, source = doc["doflow"], call.machine, call.text("source")
    if source != "compact":
        own["active"], own["turn"] = {}, False
    if source == "clear" and doc["state"] != machine["start"]:
        rules.moved(machine, doc, "clear", machine["start"], iso(call.now), "the conversation was cleared")
    _expire(call, doc, told)
    own["transcript"] = call.text("transcript_path")
    call.session.show()
    told.log(f"SessionStart: {machine['machine']} is in {doc['state']}")
    return True


def _prompt(call: Call, doc: rules.Doc, told: Answer) -> bool:
    if call.text("agent_id"):  # Codex asks for its sub-agents too
        return False
    _expire(call, doc, told)
    doc["doflow"]["turn"] = True
    doc["timestamp"] = iso(call.now)
    text = call.machine["states"][doc["state"]]["inject"]
    if text:
        told.said = {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": text}}
    told.log(f"UserPromptSubmit: in {doc['state']}, {'the order of work is said' if text else 'nothing to say'}")
    return True


def _before(call: Call, doc: rules.Doc, told: Answer) -> bool:
    """May this sub-agent run now?"""
    tool = call.payload.get("tool_name")
    if isinstance(tool, str) and tool not in TOOLS:
        return False
    changed = _expire(call, doc, told)
    agent = wanted(call.payload)
    if agent is None:
        told.log("PreToolUse: ERROR: the call names no sub-agent (tool_input.subagent_type): doflow LETS IT PASS")
        told.said = {"continue": True, "systemMessage": told.lines[-1]}
        return changed
    told.facts |= {"agent": agent, "by": call.text("agent_id"), "use": call.text("tool_use_id"), "state": doc["state"]}
    why = rules.refusal(call.machine, doc["state"], agent)
    told.facts["decision"] = "block" if why else "allow"
    told.block = bool(why)
    shown = why or f"{rules.short(agent)} may run in {doc['state']}"
    decision: dict[str, Any] = {"hookEventName": "PreToolUse", "permissionDecision": "deny" if why else "allow"}
    decision["permissionDecisionReason"] = f"[{NAME}] {shown}" if why else shown
    told.said = {"hookSpecificOutput": decision}
    told.log(f"PreToolUse: {'BLOCKED: ' if why else 'allowed: '}{shown}")
    return changed


def wanted(payload: Payload) -> str | None:
    """The name of the sub-agent that a call asks for; None = the call names none in any form that is known."""
    given, tool = payload.get("tool_input"), payload.get("tool_name")
    for place in (given, payload):
        if not isinstance(place, dict):
            continue
        name = place.get("subagent_type")
        if name is None and (place is given or tool is None):
            name = place.get("agent_type")
        if name is not None and name != "":
            return name if isinstance(name, str) else None
    if not isinstance(given, dict) or tool not in TOOLS:
        return None
    if tool == "spawn_agent":
        caller = payload.get("agent_type")
        return caller if given.get("fork_context") and isinstance(caller, str) and caller else "default"
    return "general-purpose" if isinstance(given.get("prompt"), str) else None


def _started(call: Call, doc: rules.Doc, told: Answer) -> bool:
    agent, ident = call.text("agent_type"), call.text("agent_id")
    if not agent:
        told.log("SubagentStart: ERROR: no agent_type: this agent is not counted")
        return False
    why = rules.refusal(call.machine, doc["state"], agent)
    line = rules.started(call.machine, doc, agent, ident, iso(call.now))
    told.facts |= {"agent": agent, "id": ident}
    if line and why:
        told.facts["decision"] = "escape"
        told.log(f"SubagentStart: ESCAPE: it runs although {why}")
    told.log(f"SubagentStart: {line}" if line else "")
    return bool(line)


def _stopped(call: Call, doc: rules.Doc, told: Answer) -> bool:
    ident = call.text("agent_id")
    begun = doc["doflow"]["active"].get(ident, {})
    agent = call.text("agent_type") or os.environ.get("AGENT_NAME", "") or str(begun.get("agent", ""))
    if not agent:
        told.log("SubagentStop: ERROR: no agent_type, no AGENT_NAME, and the id is not known: nothing moves")
        return False
    return _ended(call, doc, told, agent, ident, _words(call.payload))


def _after(call: Call, doc: rules.Doc, told: Answer) -> bool:
    """A sub-agent's tool call is over: a second witness of its end, should the first be missing."""
    response = call.payload.get("tool_response")
    if not isinstance(response, dict) or response.get("status") != "completed":
        return False
    agent, ident = response.get("agentType"), response.get("agentId")
    if not isinstance(agent, str) or not isinstance(ident, str) or ident in doc["doflow"]["ended"]:
        return False
    return _ended(call, doc, told, agent, ident, _content(response.get("content")))


def _ended(call: Call, doc: rules.Doc, told: Answer, agent: str, ident: str, text: str) -> bool:
    begun = doc["doflow"]["active"].get(ident or agent, {})
    line = rules.stopped(call.machine, doc, agent, ident, text, iso(call.now))
    told.facts |= {"agent": agent, "id": ident, "since": begun.get("since", "")}
    told.log(
        f"{call.event}: {line}" if line else f"{call.event}: {rules.short(agent)} stopped once more, nothing moves"
    )
    return True


def _turn_over(call: Call, doc: rules.Doc, told: Answer) -> bool:
    own, tasks = doc["doflow"], call.payload.get("background_tasks")
    own["turn"] = False
    doc["timestamp"] = iso(call.now)
    if isinstance(tasks, list):
        running = {str(task.get("id")) for task in tasks if isinstance(task, dict)}
        for name in rules.settled(doc, running):
            told.log(f"Stop: WARNING: {rules.short(name)} ended without a word: it does not count as done")
    told.log(f"Stop: the turn ends in {doc['state']}")
    return True


def _session_end(call: Call, doc: rules.Doc, told: Answer) -> bool:
    doc["doflow"]["active"], doc["doflow"]["turn"] = {}, False
    doc["timestamp"] = iso(call.now)
    told.log(f"SessionEnd: in {doc['state']}")
    call.session.tidy()
    return True


def _expire(call: Call, doc: rules.Doc, told: Answer) -> bool:
    """Back to the first state after a long silence, between turns and with nobody at work."""
    machine = call.machine
    if rules.lasting(machine, doc):
        return False
    try:
        idle = call.now - seconds(doc["timestamp"])
    except ValueError:
        return False
    if idle <= machine["expires"]:
        return False
    was = doc["state"]
    rules.moved(
        machine, doc, "expired", machine["start"], iso(call.now), f"nothing happened for {machine['expires']:g} s"
    )
    told.log(
        f"{call.event}: expired: {was} -> {machine['start']}, nothing happened for longer than {machine['expires']:g} s"
    )
    return True


def seconds(text: str) -> float:
    """A time of ours as seconds since 1970; ValueError if it is none. Reckoned here: `datetime` costs a tenth of a call."""
    if len(text) != 20 or text[10] + text[19] != "TZ":
        raise ValueError(f"{text!r} is no time of ours")
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
    year -= month < 3
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * ((month + 9) % 12) + 2) // 5 + day - 719469
    return days * 86400.0 + int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])


def _words(payload: Payload) -> str:
    """What a finished agent said last, in whichever form it is told."""
    for name in ("last_assistant_message", "context", "summary", "output", "raw_output"):
        value = payload.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def _content(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""


EVENTS: dict[str, Callable[[Call, rules.Doc, Answer], bool]] = {
    "SessionStart": _session_start,
    "UserPromptSubmit": _prompt,
    "PreToolUse": _before,
    "PostToolUse": _after,
    "SubagentStart": _started,
    "SubagentStop": _stopped,
    "Stop": _turn_over,
    "SessionEnd": _session_end,
}
