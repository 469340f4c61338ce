"""One scripted agent per attack, each through real `doit`: afterwards the repository is as it was, byte by byte, mode by
mode, ref by ref; the person's uncommitted and untracked work is there; nothing that was planted ran; the run goes on."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.support import attacks
from tests.support.project import Project

SETTINGS = 'protect: ["PRD.md", "*tasks*.json", "secret.env"]\n'
FLOWS = {
    "work": "flow: work\nsteps:\n  first: {prompt: Begin, makes: first.md}\n  write: {prompt: Go on, makes: out.md}\n",
    "phases": (
        "flow: phases\nsteps:\n  first: {prompt: Begin, makes: [first.md, tasks.md]}\n"
        "  build: {kind: implement, phases: tasks.md, prompt: Build it}\n"
    ),
}
#: what a step adds by right; the lock moves with it
MADE = ("out.md", "doflow.lock", "tasks.md", "phase_1.py", "phase_2.py")


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Project]:
    return {flow: template(tmp_path_factory.mktemp(flow), flow) for flow in FLOWS}


def template(folder: Path, flow: str) -> Project:
    """A project with all that an agent could spoil, its first step done."""
    library = Project(folder, "library")
    library.write("code.c", "int main;\n")
    library.commit("A library")
    project = Project(folder, settings=SETTINGS)
    project.write(".gitignore", "__pycache__/\nsecret.env\n")
    for path, text in (("PRD.md", "What we want.\n"), ("docs/guide.md", "Read.\n"), ("src/app.py", "print(1)\n")):
        project.write(path, text)
    project.write("notes.txt", "committed\n")
    project.flow(flow, FLOWS[flow])
    project.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.root), "lib")
    project.commit("Ground")
    project.git("switch", "-q", "-c", "other")
    project.write("else.txt", "x\n")
    project.commit("Elsewhere")
    project.git("tag", "-a", "-m", "First", "v1")
    project.git("switch", "-q", "main")
    project.write("docs/guide.md", "Stashed.\n")
    project.git("stash", "-q")
    project.write("secret.env", "KEY=1\n").chmod(0o600)
    done = project.doit(f"{flow}:first")
    assert done.returncode == 0, done.stdout + done.stderr
    if flow == "work":
        project.write("notes.txt", "edited by hand\n")
        project.git("add", "notes.txt")
        project.write("notes.txt", "edited by hand, twice\n")
    project.write("untracked.txt", "mine alone\n").chmod(0o640)
    return project


@pytest.mark.smoke(
    "edits a protected file",
    "changes a protected file that git ignores",
    "keeps size and time of what it edits",
    "edits the person's uncommitted work",
    "hides behind .gitignore",
    "plants every hook",
    "sets a filter for all files",
    "commits by itself",
    "forges the ledger",
    "edits dodo.py, in a phase",
    "rewrites the lock, in a phase",
    "hides an edit from git, in a phase",
    "switches to another branch, in a phase",
)
@pytest.mark.parametrize("attack", attacks.ALL, ids=lambda attack: attack.name)
def test_an_attack_leaves_the_repository_as_it_was(attack, templates, tmp_path):
    project = templates["phases" if attack.step == "build" else "work"]
    victim = copied(project, tmp_path)
    before = Picture(victim, attack.allowed)
    victim.agent(attacks.script(attack))

    done = victim.doit("phases" if attack.step == "build" else "work")

    said = done.stdout + done.stderr
    assert done.returncode == attack.code, said
    assert [word for word in attack.words if word not in said] == [], said
    assert not (victim.outside / "canary").exists(), "planted code ran"
    after = Picture(victim, attack.allowed)
    assert after.files == before.files
    assert after.steering == before.steering
    assert after.refs == before.refs
    assert after.head == before.head
    assert after.staged == before.staged
    assert after.stashes == before.stashes
    assert victim.git("fsck", "--no-dangling", "--no-reflogs") == ""
    assert ours(victim, before.commit)
    assert not attack.allowed or victim.git("status", "--porcelain", "-uall", "--", *attack.allowed) == ""
    kept = victim.doflow("quarantine", "list", "--json").stdout
    assert [path for path in attack.kept if repr(path)[1:-1] not in kept] == [], kept
    assert not attack.allowed or victim.doit("phases").returncode == 0
    assert not (victim.outside / "canary").exists(), "planted code ran"


@pytest.mark.parametrize(
    "name", ["edits a protected file", "plants every hook", "forges the ledger", "deletes the records"]
)
def test_after_an_attack_the_same_command_goes_on(name, templates, tmp_path):
    attack = next(attack for attack in attacks.ALL if attack.name == name)
    victim = copied(templates["work"], tmp_path)
    victim.agent(attacks.script(attack))
    assert victim.doit("work").returncode == 1
    victim.doflow("adopt", "write")

    done = victim.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.smoke
def test_there_are_more_than_forty_attacks_and_each_has_its_name():
    names = [attack.name for attack in attacks.ALL]
    assert len(names) == len(set(names)) >= 40


def copied(project: Project, folder: Path) -> Project:
    """The same project elsewhere, with the same home and agent."""
    victim = project.copied(folder / "project")
    for name in ("canary", "other"):
        (victim.outside / name).unlink(missing_ok=True)
    return victim


class Picture:
    """All that an agent must not change."""

    def __init__(self, project: Project, allowed: tuple[str, ...] = ()) -> None:
        self.files = {
            path: seen
            for path, seen in tree(project.root, (".git", ".doflow", "__pycache__")).items()
            if not (path.startswith(("specs/", "src/")) and path.endswith(MADE)) and path not in allowed
        }
        git = project.root / ".git"
        self.steering = tree(git / "hooks") | tree(git / "info")
        self.steering |= {"config": (git / "config").read_bytes(), "lib": (git / "modules/lib/config").read_bytes()}
        self.steering |= {"alternates": (git / "objects/info/alternates").exists(), "dot": (git.is_dir())}
        listed = project.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        branch = project.git("symbolic-ref", "HEAD").strip()
        self.refs = [line for line in listed if not line.startswith(("refs/doflow/", f"{branch} "))]
        self.head = (git / "HEAD").read_bytes()
        self.commit = project.git("rev-parse", "HEAD").strip()
        self.stashes = project.git("stash", "list", "--format=%gd %H %s")
        staged = project.git("ls-files", "-s", "-v", "-z").split("\0")
        self.staged = [line for line in staged if not line.endswith((*MADE, *allowed))]


def tree(root: Path, without: tuple[str, ...] = ()) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in without]
        for name in (*names, *(name for name in below if os.path.islink(os.path.join(folder, name)))):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            data = os.readlink(path) if stat.S_ISLNK(mode) else path.read_bytes() if stat.S_ISREG(mode) else b""
            if name not in without:
                found[os.path.relpath(path, root)] = (stat.S_IFMT(mode), stat.S_IMODE(mode), data)
    return found


def ours(project: Project, before: str) -> bool:
    """Every commit since then is one of doflow's, by its trailers."""
    since = project.git("log", "--format=%(trailers:key=Doflow-Run,valueonly)%x01", f"{before}..HEAD")
    return project.git("merge-base", before, "HEAD").strip() == before and all(
        line.strip() for line in since.split("\x01")[:-1]
    )
