"""Which sub-agents really ran, and in which order: from what the agent's own program recorded. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from doflow.hooks import events, state_machine as rules
from doflow.util.records import dataclass

if TYPE_CHECKING:
    from doflow.hooks.state_machine import Machine

KINDS = ("assistant", "user", "task_started", "task_notification", "collab_tool_call")


@dataclass(frozen=True, slots=True)
class Deed:
    """A sub-agent started or stopped; `use` is the id of the call that asked for it."""

    what: str
    use: str
    agent: str


def deeds(records: Iterable[dict[str, Any]]) -> Iterator[Deed]:
    """Starts and stops in the stream of Claude Code."""
    asked: dict[str, str] = {}
    begun: dict[str, str] = {}
    ended: set[str] = set()
    for record in records:
        use, kind = str(record.get("tool_use_id", "")), record.get("subtype")
        if kind == "task_started" and record.get("task_type", "local_agent") == "local_agent":
            begun[use] = str(record.get("subagent_type") or asked.get(use, ""))
            yield Deed("start", use, begun[use])
        elif kind == "task_notification" and use in begun and use not in ended:
            ended.add(use)
            yield Deed("stop" if record.get("status") == "completed" else "lost", use, begun[use])
        for block in _blocks(record):
            use = str(block.get("id") or block.get("tool_use_id") or "")
            if block.get("type") == "tool_use" and block.get("name") in events.TOOLS:
                asked[use] = events.wanted({"tool_name": block["name"], "tool_input": block.get("input")}) or ""
            elif block.get("type") == "tool_result" and use in asked and not block.get("is_error"):
                if use not in begun:
                    begun[use] = asked[use]
                    yield Deed("start", use, begun[use])
                if use not in ended:
                    ended.add(use)
                    yield Deed("stop", use, begun[use])


def spawned(records: Iterable[dict[str, Any]]) -> list[str]:
    """The ids of the sub-agents that Codex started."""
    found: list[str] = []
    for record in records:
        item = record.get("item")
        if record.get("type") == "item.completed" and isinstance(item, dict) and item.get("tool") == "spawn_agent":
            threads = item.get("receiver_thread_ids")
            found += [str(thread) for thread in threads] if isinstance(threads, list) else []
    return found


def escapes(machine: Machine, state: str, happened: Iterable[Deed]) -> list[str]:
    """What ran although the machine forbids it, when every deed is played again from a state."""
    doc = rules.fresh(machine, "", "", "")
    doc["state"] = state
    found = []
    for deed in happened:
        if deed.what == "start":
            why = rules.refusal(machine, doc["state"], deed.agent)
            if why:
                found.append(f"{rules.short(deed.agent)} ran in {doc['state']}")
            rules.started(machine, doc, deed.agent, deed.use, "")
        elif deed.what == "stop":
            rules.stopped(machine, doc, deed.agent, deed.use, "", "")
    return found


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
