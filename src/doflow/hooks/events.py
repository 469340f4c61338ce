"""What each event of Claude Code or Codex changes in a session's state, and the answer to it.

Both send the same events. Claude Code: the tool is `Agent` (or `Task`), the name in `subagent_type`, none = general-purpose.
Codex: the tool is `spawn_agent`, the name in `agent_type`, none = `default`, or the caller's own with `fork_context`.
"""

from __future__ import annotations

import os

from doflow.hooks import state_machine
from doflow.util import timestamps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from doflow.hooks.session_store import Session
    from doflow.hooks.state_machine import Doc, Machine

    Payload = dict[str, Any]

NAME = "doflow-hook"
#: marks every reason that our hooks give to a model; a refusal without it came from elsewhere
MARK = f"[{NAME}]"
TOOLS = ("Agent", "Task", "spawn_agent")


class Call:
    """One hook call: the event, its payload, the machine and the session."""

    __slots__ = ("at", "event", "machine", "now", "payload", "session")

    def __init__(self, event: str, payload: Payload, machine: Machine, session: Session, now: float) -> None:
        self.event, self.payload, self.machine, self.session = event, payload, machine, session
        self.now, self.at = now, timestamps.format_seconds(now)

    def text(self, name: str) -> str:
        return payload_text(self.payload, name)


class Answer:
    """Log lines, the JSON answer for the agent, facts for the journal."""

    __slots__ = ("block", "facts", "lines", "output")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.output: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}
        self.block = False

    def log(self, line: str) -> None:
        self.lines.append(line)


def payload_text(payload: Payload, name: str) -> str:
    value = payload.get(name)
    return value if isinstance(value, str) else ""


def answer_event(call: Call) -> Answer:
    """Load the state, apply the event, write the state if it changed; under the session's lock."""
    answer = Answer()
    doc, known = _load(call, answer)
    answer.facts = {"event": call.event, "session": call.session.ident, "state": doc["state"]}
    changed = EVENTS[call.event](call, doc, answer)
    answer.facts["to"] = doc["state"]
    if changed or not known:
        try:
            call.session.write(doc)
        except OSError as error:  # the answer stays the same
            answer.log(f"ERROR: {call.session.path} cannot be written ({error}): the state on disk is out of date")
    if not known:
        call.session.show()
    return answer


def _load(call: Call, answer: Answer) -> tuple[Doc, bool]:
    """The state document, and whether there was one; an unreadable one is renamed, and the first state is used."""
    machine, session = call.machine, call.session
    try:
        found = session.read()
        trouble = state_machine.document_problem(machine, found)
    except FileNotFoundError:
        return state_machine.new_document(machine, session.ident, session.project, call.at), False
    except (OSError, ValueError, RecursionError) as error:
        found, trouble = {}, str(error)
    if not trouble:
        return state_machine.normalize(machine, found, session.ident, session.project, call.at), True
    answer.log(
        f"WARNING: {session.path} is not usable ({trouble}): starting in {machine['start']}, the old file is kept next to it"
    )
    session.set_aside()
    return state_machine.new_document(machine, session.ident, session.project, call.at), False


def _session_start(call: Call, doc: Doc, answer: Answer) -> bool:
    own, machine, source = doc["doflow"], call.machine, call.text("source")
    if source != "compact":
        own["active"], own["turn"] = {}, False
    if source == "clear" and doc["state"] != machine["start"]:
        state_machine.move_to(machine, doc, "clear", machine["start"], call.at, "the conversation was cleared")
    _expire(call, doc, answer)
    own["transcript"] = call.text("transcript_path")
    call.session.show()
    answer.log(f"SessionStart: {machine['machine']} is in {doc['state']}")
    return True


def _prompt(call: Call, doc: Doc, answer: Answer) -> bool:
    if call.text("agent_id"):  # Codex asks for its sub-agents too
        return False
    _expire(call, doc, answer)
    doc["doflow"]["turn"] = True
    doc["timestamp"] = call.at
    text = call.machine["states"][doc["state"]]["inject"]
    if text:
        answer.output = {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": text}}
    answer.log(f"UserPromptSubmit: in {doc['state']}, {'instructions added' if text else 'nothing to add'}")
    return True


def _before(call: Call, doc: Doc, answer: Answer) -> bool:
    """May this sub-agent run now?"""
    tool = call.payload.get("tool_name")
    if isinstance(tool, str) and tool not in TOOLS:
        return False
    changed = _expire(call, doc, answer)
    agent = requested_agent(call.payload)
    if agent is None:
        answer.log("PreToolUse: ERROR: no sub-agent named in the call (tool_input.subagent_type): doflow ALLOWS IT")
        answer.output = {"continue": True, "systemMessage": answer.lines[-1]}
        return changed
    why = state_machine.refusal(call.machine, doc["state"], agent)
    answer.facts |= {"agent": agent, "by": call.text("agent_id"), "use": call.text("tool_use_id")}
    answer.facts |= {"state": doc["state"], "decision": "block" if why else "allow"}
    answer.block = bool(why)
    shown = why or f"{state_machine.display_name(agent)} may run in {doc['state']}"
    answer.output = permission("deny", f"{MARK} {why}") if why else permission("allow", shown)
    answer.log(f"PreToolUse: {'BLOCKED: ' if why else 'allowed: '}{shown}")
    return changed


def permission(decision: str, reason: str) -> dict[str, Any]:
    """The answer to PreToolUse."""
    answer = {"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason}
    return {"hookSpecificOutput": answer}


def requested_agent(payload: Payload) -> str | None:
    """The sub-agent that a call requests; None = the call doesn't name one in a known form."""
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


def _started(call: Call, doc: Doc, answer: Answer) -> bool:
    agent, ident = call.text("agent_type"), call.text("agent_id")
    if not agent:
        answer.log("SubagentStart: ERROR: no agent_type: this agent is not tracked")
        return False
    why = state_machine.refusal(call.machine, doc["state"], agent)
    line = state_machine.agent_started(call.machine, doc, agent, ident, call.at)
    answer.facts |= {"agent": agent, "id": ident}
    if not line:
        return False
    if why:
        answer.facts["decision"] = "escape"
        answer.log(f"SubagentStart: ESCAPE: it runs, but {why}")
    answer.log(f"SubagentStart: {line}")
    return True


def _stopped(call: Call, doc: Doc, answer: Answer) -> bool:
    ident = call.text("agent_id")
    known = doc["doflow"]["active"].get(ident, {})
    agent = call.text("agent_type") or os.environ.get("AGENT_NAME", "") or str(known.get("agent", ""))
    if not agent:
        answer.log("SubagentStop: ERROR: no agent_type, no AGENT_NAME, and the id is unknown: state unchanged")
        return False
    return _ended(call, doc, answer, agent, ident, _words(call.payload))


def _after(call: Call, doc: Doc, answer: Answer) -> bool:
    """A sub-agent's tool call has ended: a second report of its end, in case SubagentStop is missing."""
    response = call.payload.get("tool_response")
    if not isinstance(response, dict) or response.get("status") != "completed":
        return False
    agent, ident = response.get("agentType"), response.get("agentId")
    if not isinstance(agent, str) or not isinstance(ident, str) or ident in doc["doflow"]["ended"]:
        return False
    return _ended(call, doc, answer, agent, ident, _content(response.get("content")))


def _ended(call: Call, doc: Doc, answer: Answer, agent: str, ident: str, text: str) -> bool:
    known = doc["doflow"]["active"].get(ident or agent, {})
    line = state_machine.agent_stopped(call.machine, doc, agent, ident, text, call.at)
    answer.facts |= {"agent": agent, "id": ident, "since": known.get("since", "")}
    answer.log(f"{call.event}: {line or f'{state_machine.display_name(agent)} stopped again, state unchanged'}")
    return True


def _turn_over(call: Call, doc: Doc, answer: Answer) -> bool:
    own, tasks = doc["doflow"], call.payload.get("background_tasks")
    own["turn"] = False
    doc["timestamp"] = call.at
    if isinstance(tasks, list):
        running = {str(task.get("id")) for task in tasks if isinstance(task, dict)}
        for agent in state_machine.forget_lost_agents(doc, running):
            name = state_machine.display_name(agent)
            answer.log(f"Stop: WARNING: {name} ended without a SubagentStop: it does not count as done")
    answer.log(f"Stop: turn ended in {doc['state']}")
    return True


def _session_end(call: Call, doc: Doc, answer: Answer) -> bool:
    doc["doflow"]["active"], doc["doflow"]["turn"] = {}, False
    doc["timestamp"] = call.at
    answer.log(f"SessionEnd: in {doc['state']}")
    call.session.tidy()
    return True


def _expire(call: Call, doc: Doc, answer: Answer) -> bool:
    """Back to the first state after a long idle time, between turns and with no agent running."""
    machine = call.machine
    if state_machine.never_expires(machine, doc):
        return False
    try:
        idle = call.now - timestamps.parse(doc["timestamp"])
    except ValueError:
        return False
    if idle <= machine["expires"]:
        return False
    before, start, limit = doc["state"], machine["start"], f"{machine['expires']:g} s"
    state_machine.move_to(machine, doc, "expired", start, call.at, f"nothing happened for {limit}")
    answer.log(f"{call.event}: expired: {before} -> {start}, nothing happened for longer than {limit}")
    return True


def _words(payload: Payload) -> str:
    """The last message of a finished agent, whichever field holds it."""
    fields = ("last_assistant_message", "context", "summary", "output", "raw_output")
    return next((text for name in fields if (text := payload_text(payload, name)).strip()), "")


def _content(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""


EVENTS: dict[str, Callable[[Call, Doc, Answer], bool]] = {
    "SessionStart": _session_start,
    "UserPromptSubmit": _prompt,
    "PreToolUse": _before,
    "PostToolUse": _after,
    "SubagentStart": _started,
    "SubagentStop": _stopped,
    "Stop": _turn_over,
    "SessionEnd": _session_end,
}
