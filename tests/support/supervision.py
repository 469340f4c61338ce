"""A project with a pipeline under supervision: real tmux on sockets of its own, real guardians and runners, a scripted agent.

    site = Site(tmp_path, agent='printf done > "$DOFLOW_NODE.txt"')
    site.pipeline("auth", site.node("impl_auth", validate="test -f impl_auth.txt"))
    assert site.doflow("guardian", "run", "auth.dot").returncode == 0
    site.close()

The agent is a shell script in the pane; DOFLOW_NODE, DOFLOW_ATTEMPT and DOFLOW_PROMPT tell it what to do.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.project import PROGRAMS, Project, eventually, whole_lines

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Site(Project):
    """One project, its pipelines, its tmux servers; `close` ends every process of it."""

    def __init__(self, tmp_path: Path, agent: str = "true", settings: str = "", folder: str = "project") -> None:
        super().__init__(tmp_path, folder)
        self.sockets = Path(tempfile.mkdtemp(prefix="dt-"))  # a socket's path may be only so long
        self.env |= {"TMUX_TMPDIR": str(self.sockets), "SHELL": "/bin/sh", "TERM": "xterm-256color"}
        self.script(agent)
        self.configure(settings)
        self.commit("A project")

    def script(self, text: str) -> None:
        """What the agent does from now on."""
        (self.outside / "agent.sh").write_text(f"set -u\ncalls={self.outside}/panes.log\n{text}\n")

    def configure(self, settings: str = "", default: str = "") -> None:
        argv = json.dumps(["sh", str(self.outside / "agent.sh")])
        mine = default or f"{{use: command, argv: {argv}}}"
        self.write("doflow.yaml", f"agents:\n  default: {mine}\n{settings}")

    def node(self, name: str, kind: str = "codergen", **more: str) -> str:
        shapes = {"codergen": "box", "wait.human": "hexagon", "tool": "parallelogram", "conditional": "diamond"}
        usual = {"bead_id": "B-1", "worker_type": "backend", "prd_ref": "PRD-1", "acceptance": "it works"}
        said = {"handler": kind, "shape": shapes[kind], "label": name, **(usual if kind == "codergen" else {}), **more}
        inner = ", ".join(f"{key}={json.dumps(value)}" for key, value in said.items())
        return f"  {name} [{inner}]"

    def pipeline(self, name: str, *nodes: str, edges: str = "") -> Path:
        """A DOT file: start, the nodes one after the other (or by `edges`), end."""
        names = [re.match(r"\s*(\w+)", node)[1] for node in nodes]  # type: ignore[index]
        chain = edges or f"  {' -> '.join(['start', *names, 'finish'])}"
        body = "\n".join(('  start [shape=Mdiamond, label="Start"]', *nodes, '  finish [shape=Msquare, label="End"]'))
        return self.write(f"{name}.dot", f"digraph {name} {{\n{body}\n{chain}\n}}\n")

    def statuses(self, name: str) -> dict[str, str]:
        text = self.read(f"{name}.dot")
        found = {}
        for line in text.splitlines():
            if match := re.match(r"\s*(\w+)\s*\[", line):
                said = re.search(r'status="?(\w+)', line)
                found[match[1]] = said[1] if said else "pending"
        return {name: status for name, status in found.items() if name not in ("node", "graph", "edge")}

    def said(self, name: str = "") -> list[dict[str, Any]]:
        """Every signal of a pipeline, by time."""
        done = self.doflow("signal", "log", "--json", *(("--pipeline", name) if name else ()))
        return list(json.loads(done.stdout)["signals"])

    def kinds(self, name: str) -> list[str]:
        return [one["signal_type"] for one in self.said(name)]

    def diary(self, name: str) -> list[dict[str, Any]]:
        path = self.root / ".doflow" / "guardian" / name / "events.jsonl"
        return [json.loads(line) for line in whole_lines(path)]

    def panes(self) -> list[str]:
        """What the agent's script wrote to $calls."""
        return whole_lines(self.outside / "panes.log")

    def tool(self, *words: str, timeout: float = 120) -> dict[str, Any]:
        """One of the eleven tools, under its own name; its one JSON object."""
        done = self.program(f"doflow-{words[0]}", *words[1:], timeout=timeout)
        assert done.stderr == "", done.stderr
        return dict(json.loads(done.stdout), exit=done.returncode)

    def tmux(self, socket: str, *words: str) -> str:
        command = ("tmux", "-L", socket, *words)
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=60).stdout

    def servers(self) -> list[str]:
        found = self.sockets / f"tmux-{os.getuid()}"
        return sorted(path.name for path in found.iterdir()) if found.is_dir() else []

    def holder(self, name: str, *parts: str) -> int:
        """The process that holds a lock of the pipeline: guardian.lock, or nodes/NODE/runner.lock."""
        path = self.root.joinpath(".doflow", "guardian", name, *parts)
        from doflow.util import locks

        return locks.holder_pid(str(path))

    def launch(self, *words: str) -> subprocess.Popen[str]:
        return self.start("doflow", "guardian", *words)

    def close(self) -> None:
        for name in [path.name for path in (self.root / ".doflow" / "guardian").glob("*")]:
            nodes = self.root / ".doflow" / "guardian" / name / "nodes"
            locks = [("guardian.lock",), *(("nodes", node.name, "runner.lock") for node in nodes.glob("*"))]
            for lock in locks:
                pid = self.holder(name, *lock)
                if pid > 0:
                    with suppress(ProcessLookupError):  # it was about to end
                        os.kill(pid, signal.SIGKILL)
        for socket in self.servers():
            self.tmux(socket, "kill-server")
        eventually(lambda: self._shot() == [])
        shutil.rmtree(self.sockets, ignore_errors=True)

    def _shot(self) -> list[int]:
        """Kill whatever still runs with our sockets in its environment: a runner that had no lock yet, an agent."""
        found = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and os.fsencode(self.sockets) in Path(f"/proc/{name}/environ").read_bytes():
                    os.kill(int(name), signal.SIGKILL)
                    found.append(int(name))
            except OSError:
                continue
        return found


def left_over(folder: Path) -> list[str]:
    """Programs that still run with this folder in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.fsencode(folder) in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def sites(tmp_path: Path) -> Iterator[Any]:
    """For a fixture: makes sites, closes them all."""
    made: list[Site] = []

    def make(*args: Any, **given: Any) -> Site:
        made.append(Site(tmp_path, *args, **given))
        return made[-1]

    yield make
    for site in made:
        site.close()


FLOW_OF_SIGNALS = ["NEEDS_REVIEW", "VALIDATION_PASSED", "NODE_COMPLETE", "PIPELINE_COMPLETE"]


def gated(here: Site, **more: str) -> None:
    validate = "grep -qx 'Hello, guardian.' hello.txt || { echo hello.txt is not right; exit 1; }"
    here.pipeline(
        "p", here.node("impl_hello", acceptance="hello.txt holds: Hello, guardian.", **{"validate": validate, **more}),
        here.node("gate", "wait.human", gate="technical", validate="test -s hello.txt"),
    )  # fmt: skip


def proven(here: Site, code: int, said: str) -> None:
    """AC-2 to AC-7, from what is on the disk."""
    assert code == 0, (said, here.diary("p"))
    diary = here.diary("p")
    layers = [(entry["layer"], entry["event"]) for entry in diary]
    spawned = [layers.index(one) for one in (("guardian", "runner_spawned"), ("runner", "orchestrator_spawned"))]
    assert spawned == sorted(spawned), "AC-2: the guardian spawned a runner, the runner an orchestrator in tmux"
    assert here.read("hello.txt") == "Hello, guardian.\n", "AC-3: the trivial task is done"
    assert set(here.statuses("p").values()) == {"validated"}, "AC-5"
    signals = here.said("p")
    kinds = [one["signal_type"] for one in signals]
    assert kinds[0] in ("NEEDS_REVIEW", "NEEDS_INPUT"), "AC-4: the runner saw the end, and signalled"
    assert kinds[-1] == "PIPELINE_COMPLETE", "AC-6"
    for one in signals:
        datetime.fromisoformat(one["timestamp"])
    assert [one["timestamp"] for one in signals] == sorted(one["timestamp"] for one in signals), "AC-7: the log"
    log = here.doflow("signal", "log", "--pipeline", "p").stdout
    assert len(re.findall(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z +p +\w+ > \w+ +[A-Z_]+", log, re.M)) == len(signals)
    assert eventually(lambda: left_over(here.root / ".doflow" / "guardian") == []), "no process is left"


__all__ = ["FLOW_OF_SIGNALS", "PROGRAMS", "Site", "eventually", "gated", "left_over", "needs_tmux", "proven", "sites"]
