"""A project with all that an agent could spoil, and the comparison of before and after: what an agent must not have changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

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


def template(folder: Path, flow: str, settings: str = "") -> Project:
    """A project with all that an agent could spoil, its first step done."""
    library = Project(folder, "library")
    library.write("code.c", "int main;\n")
    library.commit("A library")
    project = Project(folder, settings=SETTINGS + settings)
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


def copied(project: Project, folder: Path) -> Project:
    """The same project elsewhere, with the same home and agent."""
    victim = project.copied(folder / "project")
    for name in ("canary", "other"):
        (victim.outside / name).unlink(missing_ok=True)
    return victim


class Picture:
    """All that an agent must not change. `allowed`: files and refs that it may, and folders, which end in "/"."""

    def __init__(self, project: Project, allowed: tuple[str, ...] = ()) -> None:
        self.files = {
            path: seen
            for path, seen in tree(project.root, (".git", ".doflow", "__pycache__")).items()
            if not ({"specs", "src"} & {*Path(path).parts} and path.endswith(MADE)) and not _is_allowed(path, allowed)
        }
        own, git = (project.root / project.git("rev-parse", word).strip() for word in ("--git-dir", "--git-common-dir"))
        self.steering: dict[str, object] = {
            "dot": tree(project.root).get(".git"),
            "alternates": (git / "objects/info/alternates").exists(),
        }
        self.steering |= {str(path): path.read_bytes() for path in git.rglob("config*") if path.is_file()}
        self.steering |= tree(git / "hooks") | tree(git / "info")
        listed = project.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        branch = project.git("symbolic-ref", "HEAD").strip()
        listed = [line for line in listed if not _is_allowed(line.partition(" ")[0], allowed)]
        self.refs = [line for line in listed if not line.startswith(("refs/doflow/", f"{branch} "))]
        self.head = (own / "HEAD").read_bytes()
        self.commit = project.git("rev-parse", "HEAD").strip()
        self.stashes = project.git("stash", "list", "--format=%gd %H %s")
        staged = project.git("ls-files", "-s", "-v", "-z").split("\0")
        self.staged = [
            line for line in staged if not line.endswith(MADE) and not _is_allowed(line.partition("\t")[2], allowed)
        ]


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


def _is_allowed(path: str, allowed: tuple[str, ...]) -> bool:
    return path in allowed or path.startswith(tuple(name for name in allowed if name.endswith("/")))


def harm(project: Project, before: Picture, allowed: tuple[str, ...] = ()) -> list[object]:
    """What is not as it was: planted code that ran, and all that an agent must not change; [] = no harm was done."""
    after = Picture(project, allowed)
    found: list[object] = ["planted code ran"] if (project.outside / "canary").exists() else []
    for was, now in ((before.files, after.files), (before.steering, after.steering)):
        found += [(name, was.get(name), now.get(name)) for name in {**was, **now} if was.get(name) != now.get(name)]
    for name in ("refs", "head", "staged", "stashes"):
        if getattr(before, name) != getattr(after, name):
            found.append((name, getattr(before, name), getattr(after, name)))
    if problems := project.git("fsck", "--no-dangling", "--no-reflogs"):
        found.append(problems)
    return found if ours(project, before.commit) else [*found, "a commit that is not doflow's"]
