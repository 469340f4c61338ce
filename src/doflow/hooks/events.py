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

    Payload = dict[str, Any]

NAME = "doflow-hook"  # prefix of our messages, also those for the model
TOOLS = ("Agent", "Task", "spawn_agent")


class Call:
    """One hook call: the event, its payload, the machine and the session."""

    __slots__ = ("event", "machine", "now", "payload", "session")

    def __init__(
        self, event: str, payload: Payload, machine: state_machine.Machine, session: Session, now: float
    ) -> None:
        self.event = event
        self.payload = payload
        self.machine = machine
        self.session = session
        self.now = now

    def text(self, name: str) -> str:
        value = self.payload.get(name)
        return value if isinstance(value, str) else ""


class Answer:
    """Log lines, the JSON answer for the agent, facts for the journal."""

    __slots__ = ("block", "facts", "lines", "output")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.output: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}
        self.block = False

    def log(self, line: str) -> None:
        if line:
            self.lines.append(line)


def answer_event(call: Call) -> Answer:
    """Load the state, apply the event, write the state if it changed; under the session's lock."""
    answer = Answer()
    doc, known = _read(call, answer)
    answer.facts = {"event": call.event, "session": call.session.ident, "state": doc["state"]}
    changed = EVENTS[call.event](call, doc, answer)
    answer.facts["to"] = doc["state"]
    if changed or not known:
        _write(call, doc, answer)
    if not known:
        call.session.show()
    return answer


def _read(call: Call, answer: Answer) -> tuple[state_machine.Doc, bool]:
    """The state document; an unreadable one is renamed, and the first state is used."""
    machine, session, now = call.machine, call.session, timestamps.format_seconds(call.now)
    try:
        found = session.read()
        trouble = state_machine.document_problem(machine, found)
    except FileNotFoundError:
        return state_machine.new_document(machine, session.ident, session.project, now), False
    except (OSError, ValueError, RecursionError) as error:
        found, trouble = {}, str(error)
    if trouble:
        answer.log(
            f"WARNING: {session.path} is not usable ({trouble}): starting in {machine['start']}, the old file is kept next to it"
        )
        session.set_aside()
        return state_machine.new_document(machine, session.ident, session.project, now), False
    return state_machine.normalize(machine, found, session.ident, session.project, now), True


def _write(call: Call, doc: state_machine.Doc, answer: Answer) -> None:
    """A failed write does not change the answer; it is logged."""
    try:
        call.session.write(doc)
    except OSError as error:
        answer.log(f"ERROR: {call.session.path} cannot be written ({error}): the state on disk is out of date")


def _session_start(call: Call, doc: state_machine.Doc, answer: Answer) -> bool:
    own, machine, source = doc["doflow"], call.machine, call.text("source")
    if source != "compact":
        own["active"], own["turn"] = {}, False
    if source == "clear" and doc["state"] != machine["start"]:
        state_machine.move_to(
            machine, doc, "clear", machine["start"], timestamps.format_seconds(call.now), "the conversation was cleared"
        )
    _expire(call, doc, answer)
    own["transcript"] = call.text("transcript_path")
    call.session.show()
    answer.log(f"SessionStart: {machine['machine']} is in {doc['state']}")
    return True


def _prompt(call: Call, doc: state_machine.Doc, answer: Answer) -> bool:
    if call.text("agent_id"):  # Codex asks for its sub-agents too
        return False
    _expire(call, doc, answer)
    doc["doflow"]["turn"] = True
    doc["timestamp"] = timestamps.format_seconds(call.now)
    text = call.machine["states"][doc["state"]]["inject"]
    if text:
        answer.output = {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": text}}
    answer.log(f"UserPromptSubmit: in {doc['state']}, {'instructions added' if text else 'nothing to add'}")
    return True


def _before(call: Call, doc: state_machine.Doc, answer: Answer) -> bool:
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
    answer.facts |= {
        "agent": agent,
        "by": call.text("agent_id"),
        "use": call.text("tool_use_id"),
        "state": doc["state"],
    }
    why = state_machine.refusal(call.machine, doc["state"], agent)
    answer.facts["decision"] = "block" if why else "allow"
    answer.block = bool(why)
    shown = why or f"{state_machine.display_name(agent)} may run in {doc['state']}"
    decision: dict[str, Any] = {"hookEventName": "PreToolUse", "permissionDecision": "deny" if why else "allow"}
    decision["permissionDecisionReason"] = f"[{NAME}] {shown}" if why else shown
    answer.output = {"hookSpecificOutput": decision}
    answer.log(f"PreToolUse: {'BLOCKED: ' if why else 'allowed: '}{shown}")
    return changed


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


def _started(call: Call, doc: state_machine.Doc, answer: Answer) -> bool:
    agent, ident = call.text("agent_type"), call.text("agent_id")
    if not agent:
        answer.log("SubagentStart: ERROR: no agent_type: this agent is not tracked")
        return False
    why = state_machine.refusal(call.machine, doc["state"], agent)
    line = state_machine.agent_started(call.machine, doc, agent, ident, timestamps.format_seconds(call.now))
    answer.facts |= {"agent": agent, "id": ident}
    if line and why:
        answer.facts["decision"] = "escape"
        answer.log(f"SubagentStart: ESCAPE: it runs, but {why}")
    answer.log(f"SubagentStart: {line}" if line else "")
    return bool(line)


def _stopped(call: Call, doc: state_machine.Doc, answer: Answer) -> bool:
    ident = call.text("agent_id")
    begun = doc["doflow"]["active"].get(ident, {})
    agent = call.text("agent_type") or os.environ.get("AGENT_NAME", "") or str(begun.get("agent", ""))
    if not agent:
        answer.log("SubagentStop: ERROR: no agent_type, no AGENT_NAME, and the id is unknown: state unchanged")
        return False
    return _ended(call, doc, answer, agent, ident, _words(call.payload))


def _after(call: Call, doc: state_machine.Doc, answer: Answer) -> bool:
    """A sub-agent's tool call has ended: a second report of its end, in case SubagentStop is missing."""
    response = call.payload.get("tool_response")
    if not isinstance(response, dict) or response.get("status") != "completed":
        return False
    agent, ident = response.get("agentType"), response.get("agentId")
    if not isinstance(agent, str) or not isinstance(ident, str) or ident in doc["doflow"]["ended"]:
        return False
    return _ended(call, doc, answer, agent, ident, _content(response.get("content")))


def _ended(call: Call, doc: state_machine.Doc, answer: Answer, agent: str, ident: str, text: str) -> bool:
    begun = doc["doflow"]["active"].get(ident or agent, {})
    line = state_machine.agent_stopped(call.machine, doc, agent, ident, text, timestamps.format_seconds(call.now))
    answer.facts |= {"agent": agent, "id": ident, "since": begun.get("since", "")}
    answer.log(
        f"{call.event}: {line}"
        if line
        else f"{call.event}: {state_machine.display_name(agent)} stopped again, state unchanged"
    )
    return True


def _turn_over(call: Call, doc: state_machine.Doc, answer: Answer) -> bool:
    own, tasks = doc["doflow"], call.payload.get("background_tasks")
    own["turn"] = False
    doc["timestamp"] = timestamps.format_seconds(call.now)
    if isinstance(tasks, list):
        running = {str(task.get("id")) for task in tasks if isinstance(task, dict)}
        for name in state_machine.forget_lost_agents(doc, running):
            answer.log(
                f"Stop: WARNING: {state_machine.display_name(name)} ended without a SubagentStop: it does not count as done"
            )
    answer.log(f"Stop: turn ended in {doc['state']}")
    return True


def _session_end(call: Call, doc: state_machine.Doc, answer: Answer) -> bool:
    doc["doflow"]["active"], doc["doflow"]["turn"] = {}, False
    doc["timestamp"] = timestamps.format_seconds(call.now)
    answer.log(f"SessionEnd: in {doc['state']}")
    call.session.tidy()
    return True


def _expire(call: Call, doc: state_machine.Doc, answer: Answer) -> bool:
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
    was = doc["state"]
    state_machine.move_to(
        machine,
        doc,
        "expired",
        machine["start"],
        timestamps.format_seconds(call.now),
        f"nothing happened for {machine['expires']:g} s",
    )
    answer.log(
        f"{call.event}: expired: {was} -> {machine['start']}, nothing happened for longer than {machine['expires']:g} s"
    )
    return True


def _words(payload: Payload) -> str:
    """The last message of a finished agent, whichever field holds it."""
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


EVENTS: dict[str, Callable[[Call, state_machine.Doc, Answer], bool]] = {
    "SessionStart": _session_start,
    "UserPromptSubmit": _prompt,
    "PreToolUse": _before,
    "PostToolUse": _after,
    "SubagentStart": _started,
    "SubagentStop": _stopped,
    "Stop": _turn_over,
    "SessionEnd": _session_end,
}
