"""`workspace: overlay` wherever a project may lie: an agent that tries everything changes nothing outside its view."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.ordinary_user import OrdinaryUser
from tests.support.project import PROGRAMS, Project
from tests.support.victim import Picture, harm

FLOW = """\
flow: work
steps:
  first: {prompt: Begin, makes: first.md}
  write: {prompt: Write it, makes: out.md, agent: vandal}
"""
BRANCH = "refs/heads/001-x"
#: each is a line of Python in the agent, what it raises is in the report; what plants code comes after all that would run it inside
DEEDS = {
    "branch": 'sh("git branch evil && git tag evil")',
    "stash": 'sh("git stash -q -u")',
    "commit": 'sh("git commit -q --no-verify --allow-empty -m mine")',
    "ignored": 'sh("echo stolen > secret.env && chmod 777 secret.env")',
    "state": 'sh(f"mkdir -p {state}/evil && touch {state}/evil/x")',
    "other state": 'os.rename(pathlib.Path(state).parent, f"{outside}/old"); os.makedirs(f"{state}/evil")',
    "records": 'sh("for log in .doflow/runs/*/events.jsonl; do echo {} >> $log || exit 1; done")',
    "environment": 'sh(f"touch {environment}/doflow-attack")',
    "above": 'sh("echo evil > ../above.txt" if above else "exit 1")',
    "window": 'sh(f"for s in {sockets}/*/*; do tmux -S $s new-window {tool} && exit; done; exit 1")',
    "own window": 'sh(f"tmux new-window {tool}")',
    "signal": "os.kill(int(os.environ['PRP_PIPELINE_RUNNING']), signal.SIGKILL)",
    "second run": 'sh(f"unset PRP_PIPELINE_RUNNING; {doit} work")',
    "daemon": "daemon()",
    "config": 'sh(f"git config core.fsmonitor {tool} && git config core.hooksPath {outside}")',
    "hook": 'sh(f"cp {tool} $(git rev-parse --git-path hooks)/post-commit; cp {tool} $(git rev-parse --git-common-dir)/hooks/pre-commit")',
    "no git": 'sh("rm -rf $(git rev-parse --git-common-dir)/* .git")',
}
AGENT = """\
import json, os, pathlib, signal, subprocess, sys, time

outside, state, environment, sockets, doit, above = {values!r}
outside, tool = pathlib.Path(outside), outside + "/evil.sh"
with open(outside / "vandal.log", "a") as log:
    log.write("called\\n")


def sh(command):
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    if done.returncode:
        raise OSError(done.stdout + done.stderr)


def daemon():
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(3)
    for path in ("late.txt", outside / "late.txt"):
        pathlib.Path(path).write_text("late")
    os._exit(0)


if not (outside / "report.json").exists():
    report = {{}}
    for name, deed in {deeds!r}.items():
        try:
            exec(deed)
            report[name] = "done"
        except (OSError, subprocess.SubprocessError) as error:
            report[name] = f"denied: {{error}}"
    (outside / "report.json").write_text(json.dumps(report))
for path in os.environ["DOFLOW_MAKES"].splitlines():
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text("# Out\\n\\nAll of it.\\n")
print("done")
"""


class Place:
    """A project somewhere, a person's tmux server, and the agent that tries everything."""

    def __init__(self, folder: Path, where: str, user: OrdinaryUser | None) -> None:
        self.folder, self.where, self.user = folder, where, user
        self.sockets = Path(tempfile.mkdtemp(prefix="dt-"))
        self.project, self.around = PLACES[where](folder)
        project = self.project
        self.state = folder / "state" / "doflow"
        project.env |= {
            "DOFLOW_SET_WORKSPACE": "overlay", "XDG_STATE_HOME": str(folder / "state"), "TMUX_TMPDIR": str(self.sockets),
            "SHELL": "/bin/sh", "TERM": "xterm-256color",
        }  # fmt: skip
        self.state.parent.mkdir()
        (project.home / ".gitconfig").open("a").write("[safe]\n\tdirectory = *\n")
        self._write_agent()
        project.flow("work", FLOW.replace("agent: vandal", "agent: vandal, via: tmux") if where == "pane" else FLOW)
        project.write("notes.txt", "committed\n")
        project.write(".gitignore", "__pycache__/\nsecret.env\n")
        project.commit("Ground")
        self.owned()

    def _write_agent(self) -> None:
        project = self.project
        tool = project.outside / "evil.sh"
        tool.write_text(f"#!/bin/sh\ntouch {project.outside}/canary\ncat\n")
        tool.chmod(0o755)
        above = self.where in ("sub-folder", "submodule")
        places = (project.outside, self.state, sys.prefix, self.sockets, PROGRAMS / "doit")
        program = project.outside / "vandal.py"
        program.write_text(AGENT.format(values=(*map(str, places), above), deeds=DEEDS))
        argv = json.dumps([sys.executable, "-S", "-E", str(program)])
        project.settings("retry: {enabled: false}\n")
        settings = project.read("doflow.yaml")
        project.write(
            "doflow.yaml", settings.replace("agents:\n", f"agents:\n  vandal: {{use: command, argv: {argv}}}\n")
        )

    def owned(self) -> None:
        """Everything in the folder belongs to who runs doflow."""
        if self.user is not None:
            self.user.own(self.folder, self.sockets)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), cwd=self.project.root, env=self.project.env, capture_output=True, text=True, timeout=120,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def command(self, *words: str) -> tuple[str, ...]:
        return (*(self.user.prefix if self.user else ()), *words)

    def doit(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(PROGRAMS / "doit"), *words)

    def prepared(self) -> None:
        """The first step is done, there are edits of the person, and a tmux server of theirs."""
        first = self.doit("work:first", "--goal=x")
        assert first.returncode == 0, first.stdout + first.stderr
        self.project.write("notes.txt", "staged by hand\n")
        self.project.git("add", "notes.txt")
        self.project.write("notes.txt", "edited by hand\n")
        self.project.write("untracked.txt", "mine alone\n").chmod(0o640)
        self.project.write("secret.env", "KEY=1\n").chmod(0o600)
        self.owned()
        assert self.run("tmux", "-L", "person", "new-session", "-d", "sleep 600").returncode == 0

    def pictures(self, *allowed: str) -> list[tuple[Project, Picture]]:
        return [(one, Picture(one, allowed)) for one in (self.project, *self.around)]

    def report(self) -> dict[str, str]:
        return dict(json.loads((self.project.outside / "report.json").read_text()))

    def close(self) -> None:
        for socket in self.sockets.glob("*/*"):
            self.run("tmux", "-S", str(socket), "kill-server")
        shutil.rmtree(self.sockets, ignore_errors=True)
        Path(sys.prefix, "doflow-attack").unlink(missing_ok=True)


def plain(folder: Path) -> tuple[Project, tuple[Project, ...]]:
    return Project(folder), ()


def linked(folder: Path) -> tuple[Project, tuple[Project, ...]]:
    main = Project(folder)
    main.git("worktree", "add", "-q", "-b", "here", str(folder / "linked"))
    return at(main, folder / "linked"), (main,)


def sub_folder(folder: Path) -> tuple[Project, tuple[Project, ...]]:
    whole = Project(folder, "repository")
    whole.write("other/code.c", "int main;\n")
    inner = at(whole, whole.root / "part")
    inner.write("dodo.py", whole.read("dodo.py"))
    return inner, (whole,)


def submodule(folder: Path) -> tuple[Project, tuple[Project, ...]]:
    library, whole = Project(folder, "library"), Project(folder, "repository")
    whole.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.root), "lib")
    whole.commit("A library")
    return at(whole, whole.root / "lib"), (whole,)


def at(project: Project, root: Path) -> Project:
    found = Project.__new__(Project)
    found.__dict__.update(project.__dict__)
    found.root = root
    return found


PLACES = {
    "project": plain, "linked worktree": linked, "sub-folder": sub_folder, "submodule": submodule, "pane": plain,
}  # fmt: skip


@pytest.fixture(params=["as root", "as an ordinary user"])
def user(request: pytest.FixtureRequest) -> OrdinaryUser | None:
    """None = who runs the tests."""
    if request.param == "as root":
        return None if os.getuid() == 0 else pytest.skip("needs root")
    return OrdinaryUser() if os.getuid() == 0 else None


@pytest.fixture
def folder() -> Iterator[Path]:
    """pytest's own folders are closed to other users."""
    made = Path(tempfile.mkdtemp(prefix="doflow-place-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, folder: Path, user: OrdinaryUser | None) -> Iterator[Place]:
    where = getattr(request, "param", "project")
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    made = Place(folder, where, user)
    yield made
    made.close()


@pytest.mark.smoke("as root-linked worktree")
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_an_agent_that_tries_everything_changes_nothing_outside(place):
    place.prepared()
    before, before_accepting = place.pictures(), place.pictures(BRANCH)

    done = place.doit("work")

    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "write modified files outside its scope" in said and "notes.txt" in said, said
    report = place.report()
    inside = {name for name, what in report.items() if what == "done"}
    above = {"above"} if place.where in ("sub-folder", "submodule") else set()
    assert inside == {"branch", "config", "hook", "stash", "commit", "ignored", "daemon", "no git"} | above, report
    time.sleep(3.5)
    for project, picture in before:
        assert harm(project, picture) == []
    assert not list(place.folder.rglob("late.txt")) and not list(place.folder.rglob("above.txt"))
    assert not (place.state / "evil").exists()
    assert not Path(sys.prefix, "doflow-attack").exists()
    assert (place.project.outside / "vandal.log").read_text() == "called\n"

    done = place.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    for project, picture in before_accepting:
        assert harm(project, picture, (BRANCH,)) == []
    assert place.project.subjects()[-2:] == ["first: first.md", "write: out.md"]
