"""Random trees, random edits of a person, random deeds of an agent, random globs: after the fence what is protected is as
before, what is allowed is the agent's, what is the person's is the person's, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.support.project import IDENTITY, clean_environment

from doflow.flow import plan
from doflow.flow.model import Flow, Settings, Step
from doflow.guard.fence.fence import Fence
from doflow.guard.fence.scope import Scope
from doflow.runs.catalogue import Run
from doflow.runs.context import RunContext
from doflow.runs.fingerprint import Key
from doflow.runs.jobs import Job

TRACKED = ("a.txt", "src/b.py", "src/deep/c.py", "docs/PRD.md", "specs/001-x/input.md", "odd name\n.txt")
NAMES = st.sampled_from(
    (*TRACKED, "new.txt", "src/new.py", "src", "docs", "src/deep", "specs/001-x/out.md", "mine.txt", "-rf")
)
VERBS = st.sampled_from(("write", "remove", "link", "mkdir", "chmod", "pipe", "move"))
DEED = st.tuples(VERBS, NAMES, st.integers(0, 3), NAMES)
GLOBS = st.lists(
    st.sampled_from(("PRD.md", "src/deep/", "*.txt", "/a.txt", "src/**", "odd*", "docs/")), max_size=2, unique=True
)
WRITES = st.sampled_from((None, (), ("/src/**",), ("*.txt",), ("/docs/", "/new.txt")))
COMMIT = ("git", "-c", "core.autocrlf=false")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A repository with a commit, to be copied."""
    folder = tmp_path_factory.mktemp("ground")
    (folder / "home").mkdir()
    (folder / "home/.gitconfig").write_text(IDENTITY)
    for path in TRACKED:
        (folder / "project" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "project" / path).write_text(f"first {path}")
    for words in (("init", "-q", "-b", "001-x"), ("add", "-A"), ("commit", "-q", "-m", "Begin")):
        env = clean_environment(folder / "home")
        subprocess.run((*COMMIT, *words), cwd=folder / "project", env=env, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder / "home"))
        yield folder


def examples(count: int) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(max_examples=count, deadline=None, database=None, suppress_health_check=checks)


PROPERTY = given(
    st.lists(DEED, max_size=4), st.lists(DEED, min_size=1, max_size=8), GLOBS, WRITES
)  # the person's deeds, the agent's, what is protected, what the step may write


@pytest.mark.smoke
@examples(12)
@PROPERTY
def test_protected_is_as_before_allowed_is_the_agents_and_yours_is_yours(ground, person, agent, protect, writes):
    check(ground, person, agent, tuple(protect), writes)


@examples(250)
@PROPERTY
def test_the_same_many_times(ground, person, agent, protect, writes):
    check(ground, person, agent, tuple(protect), writes)


def check(ground: Path, person: list, agent: list, protect: tuple[str, ...], writes: tuple[str, ...] | None) -> None:
    with tempfile.TemporaryDirectory() as base:
        root = Path(base, "project")
        shutil.copytree(ground / "project", root, symlinks=True)
        for deed in person:
            act(root, *deed)
        context = made(root, protect)
        job = Job(Step("work"), Key("", {}, {}), ("specs/001-x/out.md",), writes)
        fence, scope = Fence(context), Scope(job, context)
        before, committed = picture(root), tracked()
        fence.enter(job)
        for deed in agent:
            act(root, *deed)
        after = picture(root)

        fence.look(job)
        fence.leave(job)
        context.close()

        judge(root, before, after, committed, scope, fence)


def judge(root: Path, before: dict, after: dict, committed: dict, scope: Scope, fence: Fence) -> None:
    now = picture(root)
    yours = {path for path, seen in before.items() if committed.get(path) != as_git(seen) and seen[0] != stat.S_IFIFO}
    kept = {path for path in before.keys() | after.keys() if not scope.allows(path)}
    kept |= {path for path in yours if not scope.names(path) and not path.startswith("specs/001-x/")}
    assert {path: now.get(path) for path in kept} == {path: before.get(path) for path in kept}
    held = {path for path in kept if path in before}
    for path in (before.keys() | after.keys()) - kept:
        in_the_way = any(other.startswith(f"{path}/") or path.startswith(f"{other}/") for other in held)
        if not in_the_way:
            assert now.get(path) == after.get(path), path
    there = {seen[2] for seen in now.values()}
    aside = {seen[2] for seen in picture(Path(fence.ground.quarantine.folder)).values()}
    assert {seen[2] for seen in after.values() if seen[0] == stat.S_IFREG} <= there | aside


def made(root: Path, protect: tuple[str, ...]) -> RunContext:
    flow = Flow("work", steps=(Step("work"),))
    run = Run("001-x", "work", "specs/001-x", branch="001-x")
    context = RunContext(
        root, flow, run, Settings(protect=protect), plan.build_plan(flow, Settings()), dict(os.environ), lambda _: None
    )
    context.state_dir.mkdir(parents=True)
    return context


def picture(root: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in (".git", ".doflow")]
        for name in (*names, *(name for name in below if os.path.islink(os.path.join(folder, name)))):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            data = os.fsencode(os.readlink(path)) if stat.S_ISLNK(mode) else b""
            data = Path(path).read_bytes() if stat.S_ISREG(mode) else data
            found[os.path.relpath(path, root)] = (
                stat.S_IFMT(mode),
                stat.S_IMODE(mode) if stat.S_ISREG(mode) else 0,
                data,
            )
    return found


def tracked() -> dict[str, tuple[int, int, bytes]]:
    """What the commit holds."""
    return {path: (stat.S_IFREG, 0, f"first {path}".encode()) for path in TRACKED}


def as_git(seen: tuple[int, int, bytes]) -> tuple[int, int, bytes]:
    """Of a mode git knows only whether its owner may run the file."""
    return (seen[0], seen[1] & 0o100, seen[2])


def act(root: Path, deed: str, name: str, number: int, other: str) -> None:
    """One random operation; an impossible one is skipped. Never through a link that leads outside."""
    path, target = (os.path.join(root, said) for said in (name, other))
    if any(not os.path.realpath(os.path.dirname(place)).startswith(os.fspath(root)) for place in (path, target)):
        return
    try:
        if deed == "write":
            os.makedirs(os.path.dirname(path), exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK)
            os.write(fd, b"%d of %s" % (number, os.fsencode(name)))
            os.close(fd)
        elif deed == "remove":
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        elif deed == "link":
            os.symlink(("/nowhere", "a.txt", "src", ".")[number], path)
        elif deed == "mkdir":
            os.makedirs(path)
        elif deed == "pipe":
            os.mkfifo(path)
        elif deed == "chmod" and stat.S_ISREG(os.lstat(path).st_mode):
            os.chmod(path, (0o600, 0o644, 0o755, 0o640)[number])
        elif deed == "move":
            os.rename(path, target)
    except OSError:
        pass
