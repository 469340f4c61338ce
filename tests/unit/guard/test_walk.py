"""snapshot: what changed is seen by content, and exactly that is put back; nothing is lost on the way."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from doflow.guard import snapshot_walk
from doflow.guard.fence.workspace import Window
from doflow.guard.quarantine import Quarantine
from doflow.guard.snapshot_walk import Change
from doflow.util.errors import WorldError


class Project:
    """A folder with its store and quarantine beside it."""

    def __init__(self, base):
        self.root = Path(base) / "project"
        self.root.mkdir()
        self.store = Path(base) / "store"
        self.keep = Quarantine(Path(base) / "quarantine")

    def take(self, **more):
        return snapshot_walk.take_snapshot(self.root, store=self.store, **more)

    def restore(self, before, changes, read_blob=None):
        snapshot_walk.restore(self.root, before, changes, self.store, read_blob or _no_blob, self.keep)

    def undo(self, before):
        changes = snapshot_walk.compare(before, snapshot_walk.take_snapshot(self.root))
        self.restore(before, changes)
        return changes

    def kept(self):
        return {kept.path: kept for kept in self.keep.entries()}


def _no_blob(ident):
    raise AssertionError(f"asked git for {ident}")


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    for name in ("a.txt", "src/b.txt", "src/deep/c.txt"):
        (made.root / name).parent.mkdir(parents=True, exist_ok=True)
        (made.root / name).write_text(f"{name}\n")
    (made.root / "ln").symlink_to("a.txt")
    return made


def picture(root):
    """Everything a person can see of a tree, read independently of the code under test."""
    seen = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            rel = os.path.relpath(path, root)
            if stat.S_ISLNK(mode):
                seen[rel] = ("link", os.readlink(path))
            elif stat.S_ISREG(mode):
                seen[rel] = ("file", stat.S_IMODE(mode), Path(path).read_bytes())
            elif stat.S_ISDIR(mode):
                seen[rel] = ("folder",)
            else:
                seen[rel] = ("special", stat.S_IFMT(mode))
    return seen


def test_nothing_changed_is_no_change(project):
    assert snapshot_walk.compare(project.take(), project.take()) == ()


def test_every_kind_of_change_is_seen_and_put_back(project):
    before, shown = project.take(), picture(project.root)
    root = project.root
    (root / "a.txt").write_text("agent\n")
    (root / "src/b.txt").chmod(0o600)
    (root / "src/deep/c.txt").unlink()
    (root / "ln").unlink()
    (root / "ln").write_text("now a file\n")
    (root / "new" / "deep").mkdir(parents=True)
    (root / "new" / "deep" / "x").write_text("x\n")

    changes = project.undo(before)

    assert changes == (
        Change("a.txt", "changed"), Change("ln", "type"), Change("new/deep/x", "added"),
        Change("src/b.txt", "mode"), Change("src/deep/c.txt", "deleted"),
    )  # fmt: skip
    assert picture(root) == shown
    assert set(project.kept()) == {"a.txt", "ln", "new/deep/x"}
    assert project.keep.read(project.kept()["a.txt"].id) == b"agent\n"


def test_putting_back_twice_changes_nothing_more(project):
    before = project.take()
    (project.root / "a.txt").write_text("agent\n")
    changes = project.undo(before)
    shown, kept = picture(project.root), project.keep.entries()

    project.restore(before, changes)

    assert (picture(project.root), project.keep.entries()) == (shown, kept)


def test_only_the_named_paths_are_put_back(project):
    before = project.take()
    (project.root / "a.txt").write_text("out of scope\n")
    (project.root / "src/b.txt").write_text("in scope\n")

    project.restore(before, (Change("a.txt", "changed"),))

    assert (project.root / "a.txt").read_text() == "a.txt\n"
    assert (project.root / "src/b.txt").read_text() == "in scope\n"


def test_a_folder_replaced_by_a_link_to_outside_is_not_written_through(project, tmp_path):
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "b.txt").write_text("theirs\n")
    before, shown = project.take(), picture(project.root)
    shutil.rmtree(project.root / "src")
    (project.root / "src").symlink_to(outside)

    project.undo(before)

    assert picture(project.root) == shown
    assert picture(outside) == {"b.txt": ("file", 0o644, b"theirs\n"), "deep": ("folder",)}


def test_a_link_planted_in_the_way_goes_even_if_only_the_file_below_is_named(project, tmp_path):
    (tmp_path / "outside").mkdir()
    before = project.take()
    shutil.rmtree(project.root / "src")
    (project.root / "src").symlink_to(tmp_path / "outside")

    project.restore(before, (Change("src/b.txt", "deleted"),))

    assert (project.root / "src/b.txt").read_text() == "src/b.txt\n"
    assert list((tmp_path / "outside").iterdir()) == []
    assert project.kept()["src"].kind == "link"


def test_a_file_that_became_a_folder_is_a_file_again(project):
    before, shown = project.take(), picture(project.root)
    (project.root / "a.txt").unlink()
    (project.root / "a.txt" / ".git").mkdir(parents=True)
    (project.root / "a.txt" / ".git" / "config").write_text("planted\n")
    (project.root / "a.txt" / "inner").write_text("x\n")

    project.undo(before)

    assert picture(project.root) == shown
    assert {path: kept.kind for path, kept in project.kept().items()} == {"a.txt/.git": "folder", "a.txt/inner": "file"}


@pytest.mark.parametrize("plant", ["pipe", "socket"])
def test_a_special_file_is_noticed_without_waiting_and_moved_away(project, plant):
    before, shown = project.take(), picture(project.root)
    (project.root / "a.txt").unlink()
    if plant == "pipe":
        os.mkfifo(project.root / "a.txt")
    else:
        import socket

        here = os.getcwd()
        os.chdir(project.root)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("a.txt")
        os.chdir(here)

    changes = project.undo(before)

    assert changes == (Change("a.txt", "type"),)
    assert picture(project.root) == shown


def test_a_pipe_that_was_there_comes_back(project):
    os.mkfifo(project.root / "pipe")
    before = project.take()
    (project.root / "pipe").unlink()

    project.undo(before)

    assert stat.S_ISFIFO(os.lstat(project.root / "pipe").st_mode)


def test_git_and_state_folders_and_skipped_paths_are_passed_over(project):
    for name in (".git/config", ".doflow/state.db", "src/.git/config", "node_modules/x/y", "build/out", "b.log"):
        (project.root / name).parent.mkdir(parents=True, exist_ok=True)
        (project.root / name).write_text("x")
    (project.root / "src" / ".doflow").mkdir()
    (project.root / "src" / ".doflow" / "x").write_text("x")

    taken = project.take(skip=("node_modules/", "build", "b.log"))

    assert set(taken.items) == {"a.txt", "ln", "src/b.txt", "src/deep/c.txt", "src/.doflow/x", "src/.git/config"}


def test_a_same_size_edit_with_the_old_time_is_seen(project):
    path = project.root / "a.txt"
    before = project.take()
    times = os.stat(path)
    path.write_text("A.TXT\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert snapshot_walk.compare(before, project.take(before=before)) == (Change("a.txt", "changed"),)


def test_what_was_not_touched_is_not_read_again(project, monkeypatch):
    before = project.take()
    time.sleep(0.05)
    settled = project.take(before=before)
    read = []
    real = os.open

    def watched(path, *rest, **more):
        read.append(path)
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", watched)
    (project.root / "src/b.txt").write_text("changed\n")
    read.clear()
    after = project.take(before=settled)

    assert {"a.txt", "c.txt"} & set(read) == set()
    assert "b.txt" in read
    assert snapshot_walk.compare(before, after) == (Change("src/b.txt", "changed"),)


@pytest.mark.parametrize(
    ("since", "modified", "again"),
    [(10_000_000, 0, True), (0, 0, True), (10_000_000, 3600, True), (1_000_000_000, 0, False)],
)
def test_what_was_written_in_the_clock_tick_of_a_snapshot_is_read_again(tmp_path, since, modified, again):
    """A write of the same size in that tick leaves the same stat. `since`: nanoseconds from the last write to the snapshot,
    `modified`: seconds by which the file claims to be older."""
    path = tmp_path / "a.txt"
    path.write_text("two\n")
    now = os.stat(path).st_mtime_ns - modified * 10**9
    os.utime(path, ns=(now, now))
    item = snapshot_walk.take_snapshot(tmp_path).items["a.txt"]
    one = snapshot_walk.Item(item.kind, item.mode, hashlib.sha256(b"one\n").hexdigest(), "", item.stat)
    before = snapshot_walk.Snapshot(os.stat(path).st_ctime_ns + since, {"a.txt": one})

    after = snapshot_walk.take_snapshot(tmp_path, before=before)

    assert snapshot_walk.compare(before, after) == ((Change("a.txt", "changed"),) if again else ())


def test_bytes_that_git_holds_are_not_stored_and_come_from_git(project):
    data = b"a.txt\n"
    ident = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    before = project.take(in_git={"a.txt": ("100644", ident), "src/b.txt": ("100644", "f" * 40)})
    (project.root / "a.txt").write_text("agent\n")
    (project.root / "src/b.txt").write_text("agent\n")

    changes = snapshot_walk.compare(before, project.take(before=before))
    project.restore(before, changes, {ident: data}.__getitem__)

    assert before.items["a.txt"].blob == ident and before.items["src/b.txt"].blob == ""
    stored = {path.parent.name + path.name for path in project.store.rglob("*") if path.is_file()}
    assert hashlib.sha256(data).hexdigest() not in stored
    assert (project.root / "a.txt").read_bytes() == data
    assert (project.root / "src/b.txt").read_text() == "src/b.txt\n"


def test_git_ids_of_sha256_repositories_count_too(project):
    data = b"a.txt\n"
    ident = hashlib.sha256(b"blob %d\0" % len(data) + data).hexdigest()

    assert project.take(in_git={"a.txt": ("100644", ident)}).items["a.txt"].blob == ident


def test_bytes_that_are_not_the_ones_that_were_there_are_never_put_back(project):
    before = project.take()
    place = project.store / before.items["a.txt"].value[:2] / before.items["a.txt"].value[2:]
    place.chmod(0o600)
    place.write_bytes(b"poisoned")
    (project.root / "a.txt").write_text("agent\n")
    (project.root / "src/b.txt").write_text("agent\n")

    with pytest.raises(WorldError, match=r"a\.txt"):
        project.undo(before)

    assert (project.root / "a.txt").read_text() == "agent\n"
    assert (project.root / "src/b.txt").read_text() == "src/b.txt\n"
    assert sorted(os.listdir(project.root)) == ["a.txt", "ln", "src"]


def test_a_snapshot_is_saved_and_loaded_whole(project, tmp_path):
    (project.root / "b\udcff\n").write_text("odd\n")
    window = Window(str(tmp_path / "window"))
    before = project.take()

    window.write(before)

    assert Window(window.path).read() == before
    assert Window(str(tmp_path / "none")).read() is None


def test_the_second_snapshot_is_told_by_what_differs(project, tmp_path):
    window = Window(str(tmp_path / "window"))
    window.write(project.take())
    size = (tmp_path / "window.base").stat().st_mtime_ns
    (project.root / "a.txt").write_text("other\n")
    (project.root / "src/b.txt").unlink()
    (project.root / "more").mkdir()
    (project.root / "more/x").write_text("x\n")
    after = project.take()

    window.write(after)

    assert Window(window.path).read() == after
    assert (tmp_path / "window.base").stat().st_mtime_ns == size
    window.close()
    assert Window(window.path).read() is None


BROKEN = [b"", b"{", b"[]", b'{"name": 99}', b"\xff", b"[" * 100_000, b'{"name":1,"taken":1,"items":[1]}']


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_snapshot_file_is_told_with_the_way_on(tmp_path, text):
    (tmp_path / "window").write_bytes(text)

    with pytest.raises(WorldError, match="cannot read the snapshot") as caught:
        Window(str(tmp_path / "window")).read()

    assert "rm " in caught.value.hint


def test_a_restore_killed_at_any_point_is_finished_by_the_next(project, tmp_path):
    before, shown = project.take(), entries(project.root)
    Window(str(tmp_path / "window")).write(before)
    program = (
        "import os, sys\n"
        "from doflow.guard import snapshot_walk as walk\nfrom doflow.guard.quarantine import Quarantine\n"
        "root, base, window, left = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])\n"
        "def count(event, args):\n"
        "    global left\n"
        "    if event in ('os.rename', 'os.symlink', 'os.chmod', 'os.mkdir', 'os.rmdir', 'open'):\n"
        "        left -= 1\n"
        "        if left == 0: os.kill(os.getpid(), 9)\n"
        "from doflow.guard.fence.workspace import Window\n"
        "before = Window(window).read()\n"
        "after = walk.take_snapshot(root)\n"
        "sys.addaudithook(count)\n"
        "changes = walk.compare(before, after)\n"
        "keep = Quarantine(base + '/quarantine')\n"
        "walk.restore(root, before, changes, base + '/store', None, keep)\n"
    )
    killed = 0
    for point in range(1, 200, 3):
        (project.root / "a.txt").write_text(f"agent {point}\n")
        shutil.rmtree(project.root / "src")
        (project.root / "src").symlink_to("/tmp")
        (project.root / "new").mkdir(exist_ok=True)
        (project.root / "new" / "x").write_text("x\n")
        args = [str(project.root), str(tmp_path), str(tmp_path / "window"), str(point)]
        code = subprocess.run([sys.executable, "-c", program, *args], check=False).returncode
        killed += code == -9
        project.undo(before)
        assert entries(project.root) == shown
        held = {project.keep.read(kept.id) for kept in project.keep.entries() if kept.kind == "file"}
        assert f"agent {point}\n".encode() in held
        if code == 0:
            break
    assert killed > 3 and code == 0


def test_a_very_deep_folder_is_moved_away_as_a_whole(project):
    before, shown = project.take(), picture(project.root)
    here = os.getcwd()
    os.chdir(project.root)
    for _ in range(600):
        os.mkdir("d")
        os.chdir("d")
    Path("bottom").write_text("x")
    os.chdir(here)

    project.undo(before)

    assert picture(project.root) == shown


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_closed_to_us_is_opened_again(project):
    before, shown = project.take(), picture(project.root)
    (project.root / "src").chmod(0)

    project.undo(before)

    assert picture(project.root) == shown


GLOBS = [
    ("PRD.md", "PRD.md", True),
    ("PRD.md", "docs/PRD.md", True),
    ("PRD.md", "prd.MD", True),
    ("PRD.md", "xPRD.md", False),
    ("PRD.md", "PRD.md/inner", True),
    ("*tasks*.json", "plan/my-tasks-2.json", True),
    ("*tasks*.json", "tasks/x.json", False),
    ("/PRD.md", "PRD.md", True),
    ("/PRD.md", "docs/PRD.md", False),
    ("src/*.py", "src/a.py", True),
    ("src/*.py", "src/sub/a.py", False),
    ("src/*.py", "lib/src/a.py", False),
    ("src/**", "src/a/b/c", True),
    ("src/**", "src", False),
    ("src/**/x", "src/x", True),
    ("src/**/x", "src/a/b/x", True),
    ("**/x.md", "x.md", True),
    ("**/x.md", "a/b/x.md", True),
    ("docs/", "docs/a/b", True),
    ("docs/", "x/docs/a", True),
    ("docs/", "docs", False),
    ("/docs/", "x/docs/a", False),
    ("a/docs/", "a/docs/b", True),
    ("src/*", "src/a", True),
    ("src/*", "src/a/b", False),
    ("a?c", "abc", True),
    ("a?c", "a/c", False),
    ("app/[id].tsx", "app/[id].tsx", True),
    ("app/[id].tsx", "app/i.tsx", False),
    ("./src/a", "src/a", True),
    ("*", "any/where", True),
    ("**", "any/where", True),
    ("a.c", "abc", False),
    ("STRASSE", "straße", True),
    ("*.log", "x\n.log", True),
    ("a+(b)", "a+(b)", True),
    ("", "x", False),
]


@pytest.mark.parametrize(("glob", "path", "expected"), GLOBS)
def test_globs_mean_what_the_manual_says(glob, path, expected):
    assert snapshot_walk.matches((glob,), path) is expected


def test_globs_see_through_the_ways_to_write_an_accent():
    composed, split = unicodedata.normalize("NFC", "café.md"), unicodedata.normalize("NFD", "CAFÉ.md")

    assert snapshot_walk.matches((composed,), split) and snapshot_walk.matches((split,), composed)
    assert snapshot_walk.matches(("*.bin",), "\udcff.bin")
    assert not snapshot_walk.matches((), "x")


NAMES = st.sampled_from(["a", "b", "dir", "dir/x", "dir/y", "dir/sub/z", "-rf", "n\nl", "\udcff", "dir/.git", "Ä"])
VERBS = st.sampled_from(["write", "remove", "link", "mkdir", "chmod", "pipe", "move"])
DEED = st.tuples(VERBS, NAMES, st.integers(0, 3), NAMES)


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(DEED, max_size=8), st.lists(DEED, max_size=10))
def test_whatever_an_agent_does_everything_is_put_back_and_nothing_is_lost(first, second):
    with tempfile.TemporaryDirectory() as base:
        project = Project(base)
        outside = Path(base) / "outside"
        outside.mkdir()
        (outside / "x").write_text("theirs")
        for deed in first:
            act(project.root, outside, *deed)
        before, shown = project.take(), entries(project.root)
        for deed in second:
            act(project.root, outside, *deed)
        after = entries(project.root)

        project.undo(before)

        assert entries(project.root) == shown
        assert snapshot_walk.compare(before, snapshot_walk.take_snapshot(project.root)) == ()
        assert picture(outside) == {"x": ("file", 0o644, b"theirs")}
        held = {seen[2] for seen in picture(project.keep.folder).values() if seen[0] == "file"}
        lost = {it[2] for it in after.values() if it[0] == "file"} - {it[2] for it in shown.values() if it[0] == "file"}
        assert lost <= held


def entries(root):
    """Files, links and pipes outside of `.git`: what a restore promises."""
    return {
        path: seen
        for path, seen in picture(root).items()
        if seen[0] != "folder" and ".git" not in path.split("/")
    }  # fmt: skip


def act(root, outside, deed, name, number, other):
    """One thing an agent may do; what cannot be done is not done. Never through a link that leads outside."""
    path = os.path.join(os.fsencode(root), os.fsencode(name))
    if not os.path.realpath(os.path.dirname(path)).startswith(os.fsencode(root)):
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
            os.symlink([os.fsencode(outside), b"a", b"nowhere", b"../outside/x"][number], path)
        elif deed == "mkdir":
            os.makedirs(path)
        elif deed == "pipe":
            os.mkfifo(path)
        elif deed == "chmod" and stat.S_ISREG(os.lstat(path).st_mode):
            os.chmod(path, [0o600, 0o644, 0o755, 0o640][number])
        elif deed == "move":
            target = os.path.join(os.fsencode(root), os.fsencode(other))
            if os.path.realpath(os.path.dirname(target)).startswith(os.fsencode(root)):
                os.rename(path, target)
    except OSError:
        pass
