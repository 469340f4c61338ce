"""`sandbox: bwrap`: what a sandboxed agent can and cannot do, and what happens where no sandbox is available."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import clis
from tests.support.model import Model, Say, Shell, Write, play
from tests.support.project import Project

WORKS = shutil.which("bwrap") and not subprocess.run(
    ("bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--", "/bin/true"), capture_output=True, check=False
).returncode  # fmt: skip
needs_bwrap = pytest.mark.skipif(not WORKS, reason="bubblewrap is not installed, or user namespaces are forbidden here")

AGENT = """\
import json, os, pathlib, shutil, signal, subprocess, sys

home = pathlib.Path(os.environ["HOME"])
makes = [pathlib.Path(line) for line in os.environ["DOFLOW_MAKES"].splitlines()]
run_dir = pathlib.Path(os.environ["DOFLOW_RUN_DIR"])
sys.stdin.read()


def sh(command):
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr)


def write(path):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("evil")


TRIES = {tries}
found = {{}}
for name, deed in TRIES.items():
    try:
        deed()
        found[name] = "done"
    except BaseException as error:
        found[name] = "denied"
target = makes[0] if makes else pathlib.Path("report.json")
target.write_text(json.dumps(found))
print("VERDICT: GO")
"""

HARM = """{
    "the code": lambda: write("src/app.py"),
    "a new file": lambda: write("new.txt"),
    "a hook": lambda: write(".git/hooks/post-commit"),
    "the git config": lambda: sh("git config core.fsmonitor evil"),
    "a commit": lambda: sh("git commit -q --allow-empty -m mine"),
    "all of git": lambda: shutil.rmtree(".git"),
    "the records": lambda: shutil.rmtree(".doflow"),
    "the lock": lambda: write(run_dir / "doflow.lock"),
    "the goal": lambda: write(run_dir / "input.md"),
    "the settings": lambda: write("doflow.yaml"),
    "a folder above a protected file": lambda: os.rename(run_dir, "specs/other"),
    "the home": lambda: (home / ".bashrc").read_text(),
    "a key": lambda: (home / ".ssh/id").read_text(),
    "the machine": lambda: write("/etc/evil"),
    "another project": lambda: write(str(home) + "/../other/x"),
    "a mount": lambda: sh("mount -o remount,rw / && touch /etc/evil"),
    "taking a mount away": lambda: sh("umount .git && touch .git/evil"),
    "doflow itself": lambda: os.kill(int(os.environ["PRP_PIPELINE_RUNNING"]), signal.SIGKILL),
    "a socket of the machine": lambda: os.stat("/run/docker.sock"),
}"""


@pytest.fixture
def boxed(project: Project) -> Project:
    """A project with a sandboxed agent; the home holds private files."""
    for path in ("src/app.py", "docs/kept.md", "PRD.md"):
        project.write(path, "as it was\n")
    for path in (".bashrc", ".ssh/id"):
        (project.home / path).parent.mkdir(exist_ok=True)
        (project.home / path).write_text("secret\n")
    settle(project, HARM)
    project.flow("work", "flow: work\nsteps:\n  write: {prompt: Write it, makes: out.json}\n")
    project.commit("Ground")
    return project


def settle(project: Project, tries: str) -> None:
    program = project.outside / "tools" / "agent.py"
    program.parent.mkdir(exist_ok=True)
    program.write_text(AGENT.format(tries=tries))
    argv = json.dumps([sys.executable, "-S", "-E", str(program)])
    project.write(
        "doflow.yaml",
        f"agents:\n  default: {{use: command, argv: {argv}, sandbox: bwrap}}\nprotect: [PRD.md, docs/kept.md]\n",
    )


@pytest.mark.smoke
@needs_bwrap
def test_an_agent_in_the_room_can_do_its_work_and_no_harm(boxed):
    before = boxed.tree()

    done = boxed.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((boxed.run_dir() / "out.json").read_text())
    assert {name for name, what in found.items() if what == "done"} == {"another project"}  # in a /tmp of its own
    assert not (boxed.home.parent / "other").exists()
    assert {path: data for path, data in boxed.tree().items() if not path.startswith("specs/")} == before
    assert boxed.subjects() == ["Begin", "Ground", "write: out.json"]
    assert not Path("/etc/evil").exists()


@needs_bwrap
def test_a_phase_in_the_room_writes_everything_but_what_is_protected(boxed):
    settle(
        boxed,
        """{
        "the code": lambda: write("src/app.py"),
        "a new folder": lambda: write("new/deep/file.py"),
        "its own corner": lambda: write("/tmp/scratch"),
        "a protected file": lambda: write("PRD.md"),
        "a protected file below": lambda: write("docs/kept.md"),
        "its folder": lambda: os.rename("docs", "docs2"),
        "deleting it": lambda: os.unlink("docs/kept.md"),
        "the flows": lambda: write("flows/evil.yaml"),
        "a hook": lambda: write(".git/hooks/post-commit"),
    }""",
    )
    boxed.write("specs/.keep", "")
    boxed.write("tasks.md", "# Tasks\n\n## Phase 1: All\n\n- [ ] [T001] Do it in src/app.py\n")
    boxed.flow("code", "flow: code\nsteps:\n  build: {kind: implement, phases: /tasks.md, prompt: Build}\n")
    boxed.commit("Tasks")

    done = boxed.doit("code", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(boxed.read("report.json"))
    assert {name for name, what in found.items() if what == "done"} == {"the code", "a new folder", "its own corner"}
    assert boxed.git("show", "--name-only", "--format=", "HEAD").split()[:2] == ["new/deep/file.py", "report.json"]
    assert not Path("/tmp/scratch").exists()


@pytest.mark.smoke("lib/**-may0")
@needs_bwrap
@pytest.mark.parametrize(
    ("writes", "may"),
    [("lib/**", {"new"}), ("/lib/deep/*.txt", {"new"}), ("/src/new.py", {"beside"}), ("other/**", set[str]())],
)
def test_the_room_opens_only_what_may_be_written_also_where_it_is_not_there_yet(boxed, writes, may):
    settle(
        boxed,
        """{
        "new": lambda: write("lib/deep/new.txt" if os.path.isdir("lib/deep") else "lib/new.py"),
        "beside": lambda: write("src/new.py"),
        "the code": lambda: write("src/app.py"),
        "the notes": lambda: write("notes.md"),
        "a new file": lambda: write("new.txt"),
    }""",
    )
    boxed.write("notes.md", "as it was\n")
    boxed.flow("work", f"flow: work\nsteps:\n  write: {{prompt: Write it, makes: out.json, writes: ['{writes}']}}\n")
    boxed.commit("A narrow step")

    done = boxed.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((boxed.run_dir() / "out.json").read_text())
    assert {name for name, what in found.items() if what == "done"} == may
    assert boxed.read("src/app.py") == boxed.read("notes.md") == "as it was\n"
    assert (boxed.root / "lib").exists() == ("new" in may) and not (boxed.root / "other").exists()
    assert boxed.git("status", "--porcelain") == ""


@needs_bwrap
def test_nothing_of_an_agent_in_the_room_outlives_it(boxed):
    settle(boxed, '{"a daemon": lambda: subprocess.Popen(["setsid", "sleep", "4242"], start_new_session=True)}')
    boxed.commit("Settings")

    done = boxed.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert b"sleep\x004242" not in b"".join(_lines())


@pytest.mark.smoke
def test_without_bubblewrap_nothing_runs(boxed, tmp_path):
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("git", "sh", "env"):
        (bare / name).symlink_to(shutil.which(name) or "/bin/sh")

    done = boxed.doit("work", "--goal=x", env={"PATH": str(bare)})

    assert done.returncode == 1
    assert "`sandbox: bwrap` needs bubblewrap, which is not installed" in done.stdout
    assert "apt install bubblewrap" in done.stdout
    assert boxed.runs() == []


def test_where_user_namespaces_are_forbidden_nothing_runs(boxed, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    (folder / "bwrap").chmod(0o755)

    done = boxed.doit("work", "--goal=x", env={"PATH": f"{folder}{os.pathsep}{boxed.env['PATH']}"})

    assert done.returncode == 1
    assert "`sandbox: bwrap` cannot work here: bwrap: No permissions to create new namespace" in done.stdout
    assert boxed.runs() == []


def _lines() -> list[bytes]:
    found = []
    for name in os.listdir("/proc"):
        try:
            found.append(Path("/proc", name, "cmdline").read_bytes() if name.isdigit() else b"")
        except OSError:
            continue
    return found


@needs_bwrap
@clis.needed("claude")
def test_claude_code_works_in_the_room_and_can_write_nothing_else(boxed):
    (boxed.home / ".claude").mkdir()
    profile = f"{{use: claude, model: sonnet, executable: {clis.executable('claude')}, sandbox: bwrap}}"
    boxed.write("doflow.yaml", f"agents:\n  default: {profile}\n")
    boxed.write("tasks.md", "# Tasks\n\n## Phase 1: All\n\n- [ ] [T001] Do it in src/app.py\n")
    boxed.flow("code", "flow: code\nsteps:\n  build: {kind: implement, phases: /tasks.md, prompt: Build}\n")
    boxed.commit("Claude Code")
    boxed.write("harm.sh", "touch .git/hooks/x doflow.yaml ~/.bashrc /etc/evil; rm -rf .git; true\n")
    boxed.commit("A script that does harm")
    harm = "sh harm.sh"
    deeds = (Write(f"{boxed.root}/src/app.py", "NEW = 1\n"), Shell(harm), Say("done"))

    with Model(play(*deeds)) as model:
        done = boxed.doit("code", "--goal=x", env=clis.variables("claude", model.url, boxed.home), timeout=110)

    assert done.returncode == 0, done.stdout + done.stderr
    assert boxed.git("show", "HEAD:src/app.py") == "NEW = 1\n"
    assert (boxed.home / ".bashrc").read_text() == "secret\n"
    assert not (boxed.root / ".git/hooks/x").exists() and not Path("/etc/evil").exists()
