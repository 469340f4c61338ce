"""One call of the scripted agent: it is noted, its prompt is kept, then the script that the test wrote runs.

The script is Python; every attribute and method of `Call` is a global name of it. Only the standard library is imported, and
little of it (not even `typing`), for a fast start.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import sys
import time

TASKS = """# Tasks

## Phase 1: Ground

- [ ] [T001] Lay the ground in ground.py

## Phase 2: House

- [ ] [T002] Build the house in house.py
"""


class Call:
    """One call of the agent: what doflow told it, and what a script may do."""

    def __init__(self, outside: pathlib.Path) -> None:
        known = os.environ
        self.outside = outside
        self.step = known["DOFLOW_STEP"]
        self.role = known["DOFLOW_ROLE"]
        self.persona = known["DOFLOW_PERSONA"]
        self.round = int(known["DOFLOW_ROUND"] or 0)
        self.attempt = int(known["DOFLOW_ATTEMPT"] or 0)
        fix = f"fix{self.round}" if self.round and not self.persona else ""
        self.phase = known.get("DOFLOW_PHASE", "") or fix
        self.root = pathlib.Path.cwd()
        self.run_dir = pathlib.Path(known["DOFLOW_RUN_DIR"])
        self.makes = [pathlib.Path(line) for line in known["DOFLOW_MAKES"].splitlines()]
        self.prompt = sys.stdin.read()
        job = f"{self.step}:{self.phase}" if self.phase else self.step
        role = "" if self.role == "step" else self.role
        self.line = " ".join(word for word in (job, role, self.persona) if word)
        self.before = self._log()
        self.nth = self.before.count(self.line)

    def _log(self) -> list[str]:
        """Notes the call and its prompt; returns the calls before it."""
        with open(self.outside / "calls.log", "a+") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            log.seek(0)
            before = log.read().splitlines()
            log.write(self.line + "\n")
        (self.outside / "prompts" / f"{len(before):03}.md").write_text(self.prompt)
        return before

    def make(self, text: str, path: str | pathlib.Path | None = None) -> None:
        """Writes an artifact: the first one unless a path below the run folder is given."""
        _write(self.makes[0] if path is None else self.run_dir / path, text)

    def put(self, path: str, text: str) -> None:
        """Writes a file of the project."""
        _write(self.root / path, text)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def stop(self, code: int) -> None:
        sys.stdout.flush()
        os._exit(code)

    def usual(self) -> None:
        """What a good agent does: every artifact, and one source file per phase."""
        if self.phase:
            self.put(f"src/phase_{self.phase}.py", f"PHASE = {self.phase!r}\n")
        for path in self.makes:
            body = f"# {path.stem.capitalize()}\n\n## Requirements\n\nWhat {path.name} says.\n"
            self.make(TASKS if path.name == "tasks.md" else body, path)
        self.say(f"{self.line} is done")

    def echo(self) -> None:
        """The same, with artifacts that change with every change of the prompt."""
        import hashlib

        self.usual()
        digest = hashlib.sha256(self.prompt.encode()).hexdigest()
        for path in self.makes:
            if path.name != "tasks.md":
                self.make(f"# {path.stem}\n\n## Requirements\n\n{digest}\n", path)


def _write(target: pathlib.Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def run_script(folder: str) -> None:
    """Runs `script.py` of this folder, where the calls and prompts are kept, too."""
    call = Call(pathlib.Path(folder))
    script = call.outside / "script.py"
    names = {"__file__": str(script), "call": call, "known": os.environ, "TASKS": TASKS}
    names |= {module.__name__: module for module in (fcntl, os, pathlib, sys, time)}
    names |= vars(call)
    names |= {method.__name__: method for method in (call.make, call.put, call.say, call.stop, call.usual, call.echo)}
    exec(compile(script.read_text(), str(script), "exec"), names)
