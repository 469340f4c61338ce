"""An agent's questions as real processes with real payloads: recorded ones, in which a test changes what it is about.

asking = Asking(tmp_path)
assert asking.may("context-gatherer").returncode == 0
asking.stop("context-gatherer", "a1", "the door is red")
assert asking.state()["state"] == "GATHERING"
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.checkout import SOURCES
from tests.support.project import clean_environment

DOOR = (sys.executable, "-I", "-S", str(SOURCES / "hooks" / "entry.py"))
FOLDER = Path(__file__).parent / "payloads"
ORDER = ("context-gatherer", "context-refiner", "strategic-orchestrator")
STATES = ("IDLE", "GATHERING", "REFINING", "EXECUTING", "COMPLETE")
Done = subprocess.CompletedProcess[bytes]


def recorded(agent: str) -> dict[str, dict[str, Any]]:
    """What Claude Code or Codex really asks, by event."""
    found: dict[str, dict[str, Any]] = {}
    for line in (FOLDER / f"{agent}.jsonl").read_text().splitlines():
        payload = json.loads(line)
        found.setdefault(payload["hook_event_name"], payload)
    return found


class Asking:
    """One session of an agent in one project."""

    def __init__(self, tmp_path: Path, session: str = "s1", agent: str = "claude", project: str = "app") -> None:
        self.root, self.home, self.session = tmp_path / project, tmp_path / "home", session
        self.agent, self.payloads, self.machine = agent, recorded(agent), ""
        self.env = clean_environment(self.home)
        for folder in (self.root / ".git", self.home):
            folder.mkdir(parents=True, exist_ok=True)

    def payload(self, event: str, **changes: Any) -> dict[str, Any]:
        """A recorded payload of this session, changed in what a test is about (None = taken out)."""
        found = copy.deepcopy(self.payloads[event]) | {"session_id": self.session, "cwd": str(self.root)} | changes
        return {name: value for name, value in found.items() if value is not None}

    def ask(self, event: str, **changes: Any) -> Done:
        return self.raw(event, json.dumps(self.payload(event, **changes)).encode())

    def raw(self, event: str, data: bytes, *words: str, env: dict[str, str] | None = None) -> Done:
        words = (*words, "--machine", self.machine) if self.machine else words
        env = self.env | (env or {})
        return subprocess.run(
            (*DOOR, event, *words), input=data, env=env, cwd=self.root, capture_output=True, timeout=60, check=False
        )

    def may(self, agent: str, **changes: Any) -> Done:
        return self.ask("PreToolUse", tool_input=self.wanted(agent), **changes)

    def wanted(self, agent: str) -> dict[str, str]:
        name = "subagent_type" if self.agent == "claude" else "agent_type"
        return {k: v for k, v in self.payloads["PreToolUse"]["tool_input"].items() if k != name} | {name: agent}

    def start(self, agent: str, ident: str) -> Done:
        return self.ask("SubagentStart", agent_type=agent, agent_id=ident)

    def stop(self, agent: str, ident: str, text: str = "done") -> Done:
        return self.ask("SubagentStop", agent_type=agent, agent_id=ident, last_assistant_message=text)

    def reach(self, state: str) -> None:
        """Through the legal order, to a state."""
        self.ask("SessionStart")
        for number, agent in enumerate(ORDER[: min(STATES.index(state), 3)]):
            assert self.may(agent).returncode == 0
            self.stop(agent, f"a{number}", f"{agent} said this")
        if state == "COMPLETE":
            assert self.doflow("machine", "complete", "--session", self.session).returncode == 0

    def folder(self) -> Path:
        key = f"{self.session}%40{self.machine}" if self.machine else self.session
        (found,) = self.home.glob(f".claude/state/doflow/*{self.root.name}/{key}")
        return found

    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.folder() / "pipeline-state.json").read_text()))

    def journal(self) -> list[str]:
        return (self.folder() / "journal.log").read_text().splitlines()

    def doflow(self, *words: str) -> subprocess.CompletedProcess[str]:
        program = str(Path(sys.executable).with_name("doflow"))
        return subprocess.run(
            (program, *words), env=self.env, cwd=self.root, capture_output=True, text=True, timeout=60, check=False
        )


def said(done: Done) -> dict[str, Any]:
    """The answer on standard output."""
    found: dict[str, Any] = json.loads(done.stdout)
    return found
