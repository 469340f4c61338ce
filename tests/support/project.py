"""A person's project: a real git repository in a clean environment, a scripted agent beside it, real doit and doflow.

    project = Project(tmp_path)
    project.agent('if step == "plan": make("# Plan of mine\\n")\nelse: usual()')
    done = project.doit("tiny", "--goal=Log in by a link")
    assert (done.returncode, project.calls()) == (0, ["specify", "plan", "tasks", "implement:1", "implement:2"])

The agent is a program outside the project, tests/support/scripted_agent. Every call appends one line to `calls.log`
(`plan`, `implement:2`, and with the role when it is not a step's own: `test repair`), keeps its prompt, then runs the
script that the test wrote: Python with these names at hand: `step`, `phase`, `role`, `persona`, `round`, `attempt`,
`nth` (how often this line was logged before), `prompt`, `root`, `run_dir`, `makes` (paths), `make(text, path=None)`
(writes an artifact), `put(path, text)` (writes a file of the project), `say(text)` (final text), `stop(code)`,
`usual()` (what a good agent does), `echo()` (the same, with artifacts that change with every change of the prompt).
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

DODO = "import doflow\nglobals().update(doflow.dodo())\n"
#: most tests were written for agents that work in the project itself; the others say so
WORKSPACE = os.environ.get("DOFLOW_TEST_WORKSPACE", "in-place")
PEOPLE = ("ann", "bob", "cem", "cid", "dan", "eve", "fay")
PROGRAMS = Path(sys.executable).parent

AGENT = Path(__file__).parent / "scripted_agent" / "start.py"


class Project:
    """One project in its own folder, with a home, an agent and a log of the agent's calls beside it."""

    def __init__(self, tmp_path: Path, folder: str = "project", *, git: bool = True, settings: str = "") -> None:
        self.root = tmp_path / folder
        self.home = tmp_path / "home"
        self.outside = tmp_path / "outside"
        self.root.mkdir(parents=True)
        for made in (self.home, self.outside / "prompts"):
            made.mkdir(parents=True, exist_ok=True)
        self.env = clean_environment(self.home)
        (self.home / ".gitconfig").write_text(IDENTITY)
        self.agent("usual()")
        self.write("dodo.py", DODO)
        self.write(".gitignore", "__pycache__/\n")
        self.settings(settings)
        if git:
            self.git("init", "-q", "-b", "main")
            self.commit("Begin")

    def copied(self, root: Path, *without: str) -> Project:
        """The same project in another folder. Its home, its agent and its log of calls stay where they are, the calls are
        forgotten; `without` are patterns of names that are not copied."""
        shutil.copytree(self.root, root, symlinks=True, ignore=shutil.ignore_patterns(*without))
        project = copy.copy(self)
        project.root = root
        project.forget_calls()
        return project

    def settings(self, extra: str = "", agent: str = "") -> None:
        """Writes doflow.yaml: the scripted agent as the default (`agent`: more keys of its profile), then `extra`."""
        argv = json.dumps([sys.executable, *self.agent_program()])
        more = f", {agent}" if agent else ""
        if "workspace:" in extra:
            self.env.pop("DOFLOW_SET_WORKSPACE", None)
        else:
            self.env.setdefault("DOFLOW_SET_WORKSPACE", WORKSPACE)
        self.write("doflow.yaml", f"agents:\n  default: {{use: command, argv: {argv}{more}}}\n{textwrap.dedent(extra)}")

    def agent_program(self) -> tuple[str, ...]:
        """The scripted agent as arguments of Python: without site packages, for a fast start."""
        return ("-S", "-E", str(AGENT), str(self.outside))

    def agent(self, script: str) -> None:
        """What the agent does from now on."""
        (self.outside / "script.py").write_text(textwrap.dedent(script))

    def flow(self, name: str, text: str) -> Path:
        """Writes a flow; who reviews in it under a name of these tests is someone."""
        for one in PEOPLE if "personas:" in text else ():
            if one in text:
                self.write(f"flows/prompts/personas/{one}.md", f"You are {one}.\n")
        return self.write(f"flows/{name}.yaml", textwrap.dedent(text))

    def write(self, path: str, text: str) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def commit(self, message: str = "By hand") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").strip()

    def git(self, *args: str, cwd: Path | None = None, check: bool = True) -> str:
        done = subprocess.run(
            ("git", *args), cwd=cwd or self.root, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"git {' '.join(args)}: {done.stderr}")
        return done.stdout

    def doit(
        self, *args: str, env: dict[str, str] | None = None, timeout: float = 120, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self.program("doit", *args, env=env, timeout=timeout, cwd=cwd)

    def doflow(
        self, *args: str, env: dict[str, str] | None = None, timeout: float = 120, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self.program("doflow", *args, env=env, timeout=timeout, cwd=cwd)

    def program(
        self, name: str, *args: str, env: dict[str, str] | None = None, timeout: float = 120, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (str(PROGRAMS / name), *args),
            cwd=cwd or self.root,
            env=self.env | (env or {}),
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def start(self, name: str, *args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Started[str]:
        """A program that goes on while the test does something else; stop it with `kill` or a signal, then `wait`."""
        return subprocess.Popen(
            (str(PROGRAMS / name), *args),
            cwd=cwd or self.root,
            env=self.env | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def calls(self) -> list[str]:
        return whole_lines(self.outside / "calls.log")

    def forget_calls(self) -> None:
        (self.outside / "calls.log").unlink(missing_ok=True)

    def prompts(self) -> list[str]:
        """What the agent was told, call by call, since the project was made or its calls were forgotten."""
        return [path.read_text() for path in sorted((self.outside / "prompts").iterdir())][: len(self.calls())]

    def runs(self) -> list[str]:
        folder = self.root / "specs"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def run_dir(self, run: str = "") -> Path:
        return self.root / "specs" / (run or self.runs()[-1])

    def state(self, run: str = "") -> dict[str, Any]:
        """The run's pipeline-state.json (the last run's if none is named); {} if there is none."""
        folder = self.root / ".doflow" / "runs"
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if not (run or names):
            return {}
        path = folder / (run or names[-1]) / "pipeline-state.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def events(self, run: str = "") -> list[dict[str, Any]]:
        """The run's event log, line by line, as far as it is written."""
        path = self.root / ".doflow" / "runs" / (run or self.runs()[-1]) / "events.jsonl"
        return [json.loads(line) for line in whole_lines(path)]

    def subjects(self) -> list[str]:
        """The commits' subjects, oldest first."""
        return self.git("log", "--reverse", "--format=%s").splitlines()

    def tree(self) -> dict[str, bytes]:
        """Every file of the working tree outside .git, .doflow and __pycache__, by its bytes."""
        found: dict[str, bytes] = {}
        for folder, below, names in os.walk(self.root):
            below[:] = [name for name in below if name not in (".git", ".doflow", "__pycache__")]
            for name in names:
                path = Path(folder, name)
                found[str(path.relative_to(self.root))] = path.read_bytes()
        return found


Started = subprocess.Popen
IDENTITY = """\
[user]
	name = Ada Person
	email = ada@example.org
[init]
	defaultBranch = main
[commit]
	gpgsign = false
"""


def clean_environment(home: Path) -> dict[str, str]:
    """Nothing of the machine's own settings but the way to its programs."""
    path = os.pathsep.join((str(PROGRAMS), os.environ.get("PATH", os.defpath)))
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}


def whole_lines(path: Path) -> list[str]:
    """What a program has written so far to a file that it appends to; nothing where it has not started."""
    return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []


def eventually(claim: object, seconds: float = 60.0) -> bool:
    """Waits until the claim, a function, is true: long, for a machine that is busy with something else."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if claim():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False
