"""Every attack on an agent's view of the project (`workspace: overlay`): whatever the exit code, what was not accepted never
arrives, nothing that was planted runs, and a good agent finishes the run afterwards."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support import attacks
from tests.support.attacks import REFUSED, YOURS, in_phase
from tests.support.project import Project, eventually
from tests.support.victim import FLOWS, MADE, Picture, copied, harm, template, tree

OVERLAY = {"DOFLOW_SET_WORKSPACE": "overlay"}
WITHOUT = (".git", ".doflow", "__pycache__")
#: what such an attack changes is git's: it stays in the view, and the result is accepted
STAYS_INSIDE = (
    "plants every hook",
    "sets a file system monitor",
    "sets a filter in the hidden attributes",
    "signs commits with its own program",
    "sets aliases, pager and editor",
    "moves the work tree",
    "breaks the config",
    "borrows objects",
    "deletes the refs that keep the person's work",
    "plants a hook in a phase",
    "plants hooks for Claude Code",  # dropped: the agent's own program writes there, too
)
#: the agent itself fails: doflow's records are read-only, and no hard link leads out of a view
DENIED = (
    "forges the ledger",
    "rewrites the ledger",
    "forges the ledger of another run",
    "poisons the caches",
    "deletes the records",
    "writes through a hard link",
)
#: ordinary files that a phase may write; the part of the attack that would have made them harmful stays inside
ACCEPTED = {
    in_phase("moves the hooks elsewhere"): ("hooks/post-index-change",),
    in_phase("includes a config of its own"): ("evil.cfg",),
    in_phase("sets a filter for all files"): (".gitattributes",),
    in_phase("excludes what it writes"): ("evil.py",),
}
#: of a phase that is refused later on
ALSO_ALLOWED = {in_phase("moves the git folder away"): (".hidden/",)}
GOOD = """
usual()
if phase:
    text = (run_dir / "tasks.md").read_text()
    (run_dir / "tasks.md").write_text(text.replace("- [ ]", "- [x]", 1))
"""


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Project]:
    return {flow: template(tmp_path_factory.mktemp(flow), flow, "retry: {enabled: false}\n") for flow in FLOWS}


@pytest.mark.smoke(
    "edits a protected file",
    "commits by itself",
    "overwrites untracked work",
    "puts a folder in its place, in a phase",
    "moves the git folder away, in a phase",
)
@pytest.mark.parametrize("attack", attacks.ALL, ids=lambda attack: attack.name)
def test_an_attack_does_not_leave_the_view(attack, templates, tmp_path):
    flow = "phases" if attack.step == "build" else "work"
    allowed = attack.allowed + ACCEPTED.get(attack.name, ()) + ALSO_ALLOWED.get(attack.name, ())
    victim = copied(templates[flow], tmp_path)
    before = Picture(victim, allowed)
    victim.agent(attacks.script(attack))

    done = victim.doit(flow, env=OVERLAY)

    said = done.stdout + done.stderr
    assert (done.returncode, REFUSED in said) == expected(attack), said
    assert harm(victim, before, allowed) == []
    assert YOURS not in attack.words or (YOURS in said and "untracked.txt" in said), said
    if REFUSED in said and attack.step == "write":
        kept = victim.doflow("quarantine", "list", "--json").stdout
        assert [path for path in attack.kept if repr(path)[1:-1] not in kept] == [], kept

    victim.agent(GOOD)
    done = victim.doit(flow, env=OVERLAY)

    assert done.returncode == 0, done.stdout + done.stderr
    assert harm(victim, before, allowed) == []


def expected(attack: attacks.Attack) -> tuple[int, bool]:
    """The exit code, and whether files outside of the scope are named."""
    name = attack.name.removesuffix(in_phase(""))
    if name in DENIED:
        return 1, False
    if name in STAYS_INSIDE or attack.name in ACCEPTED:
        return 0, False
    return attack.code, attack.code == 1


HALF = """
import subprocess
if not nth and phase != "2":
    put("half.txt", "half")
    put("src/app.py", "half")
    os.unlink("PRD.md")
    os.chmod("secret.env", 0o777)
    subprocess.run("git add -A && git commit -q -m mine && git config core.pager evil", shell=True, check=True)
    (outside / "ready").touch()
    time.sleep(60)
"""


@pytest.mark.smoke("build:1")
@pytest.mark.parametrize("job", ["write", "build:1"])
def test_after_a_kill_of_everything_nothing_has_arrived_and_the_step_is_done_by_the_next_command(
    job, templates, tmp_path
):
    flow = "phases" if job == "build:1" else "work"
    victim = copied(templates[flow], tmp_path)
    (victim.outside / "ready").unlink(missing_ok=True)
    victim.agent(HALF + GOOD)
    before, files = Picture(victim), tree(victim.root, WITHOUT)
    run = victim.start("doit", flow, env=OVERLAY)
    assert eventually((victim.outside / "ready").exists)

    kill_all(run.pid)
    run.communicate()

    assert tree(victim.root, WITHOUT) == files
    assert harm(victim, before) == []
    shown = victim.doflow("workspace", "show", env=OVERLAY).stdout
    assert shown.startswith(f"{job}: interrupted, 3 changed files\n"), shown
    assert [name for name in ("half.txt", "src/app.py", "PRD.md") if name not in shown] == [], shown

    done = victim.doit(flow, env=OVERLAY)

    assert done.returncode == 0, done.stdout + done.stderr
    assert victim.calls()[:2] == [job, job]
    assert harm(victim, before) == []
    assert "no unfinished workspace" in victim.doflow("workspace", "show", env=OVERLAY).stdout


def kill_all(pid: int) -> None:
    """End a process and all its descendants at once."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it ended with its parent
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            kill_all(int(child))
        os.kill(pid, signal.SIGKILL)


EDITED = "".join(f"line {number}\n" for number in range(20))


@pytest.mark.parametrize(
    ("deed", "code"),
    [
        ('git("checkout", "-q", "-f", "--", ".")', 0),
        ('git("reset", "-q", "--hard")', 0),
        ('git("stash", "-q", "-u")', 0),
        ('git("clean", "-f", "-d", "-q")', 0),
        ('os.unlink("notes.txt"); os.unlink("staged.txt")', 0),
        ('put("notes.txt", "replaced")', 2),
    ],
)
def test_a_phase_does_not_undo_what_the_person_has_not_committed(deed, code, templates, tmp_path):
    victim = copied(templates["phases"], tmp_path)
    victim.write("notes.txt", EDITED)
    victim.commit("Notes")
    victim.write("notes.txt", EDITED.replace("line 3\n", "line 3, edited by hand\n"))
    victim.write("staged.txt", "not committed yet\n")
    victim.git("add", "staged.txt")
    before, files = Picture(victim), tree(victim.root, WITHOUT)
    attack = attacks.Attack("undoes edits", deed, step="build")
    victim.agent(attacks.script(attack))

    done = victim.doit("phases", env=OVERLAY)

    assert done.returncode == code, done.stdout + done.stderr
    assert harm(victim, before) == []
    assert {path: now for path, now in tree(victim.root, WITHOUT).items() if path in files} | {
        path: was for path, was in files.items() if path.endswith(MADE)
    } == files
    assert victim.git("show", "HEAD:notes.txt") == EDITED
