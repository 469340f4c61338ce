"""A DOT pipeline whose writer is killed, or not alone: the file is whole, the log is true, the run still ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from tests.support import checkout, crash
from tests.support.project import Project

from doflow.flow.dot import editor, order, parser, transitions
from doflow.util.errors import LockHeld

LOOP = """\
digraph auth {
    graph [prd_ref="PRD-1"];  // the requirements
    start [shape=Mdiamond];
    build [shape=box bead_id="A-1" worker_type="backend" acceptance="ok.txt says yes"];
    check [shape=hexagon command="grep yes ok.txt"];
    good  [shape=diamond];
    exit  [shape=Msquare];
    start -> build -> check -> good;
    good -> exit  [condition="pass"];
    good -> build [condition="fail"];
}
"""

#: dies at the n-th effect on the disk while it moves a node or sends a loop back
MOVER = f"""\
import sys
sys.path.insert(0, {str(checkout.TOP)!r})
from tests.support import crash
from doflow.flow.dot import transitions as moves
path, deed, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
crash.effects(crash.Points(last))
if deed == "requeue":
    moves.requeue(path, "good")
else:
    moves.transition(path, "start", "active")
"""


def consistent(path: Path) -> dict[str, str]:
    """The statuses, after whatever was started is made good; file, log and checkpoint agree."""
    found = transitions.read_settled(path)
    lines = [
        json.loads(line) for line in Path(transitions.log_path(path)).read_bytes().splitlines() if line.endswith(b"}")
    ]
    now = transitions.digest(path.read_text())
    saved = json.loads(Path(transitions.checkpoint_path(path)).read_text())
    assert (lines[-1]["after"], saved["content_hash"]) == (now, now)
    told: dict[str, str] = {}
    for line in lines:
        assert told.get(line["node"], "pending") == line["from"]
        told[line["node"]] = line["to"]
    statuses = {node.id: node.status for node in found.nodes}
    assert {name: status for name, status in statuses.items() if status != "pending" or name in told} == told
    return statuses


@pytest.mark.parametrize("deed", ["transition", "requeue"])
def test_a_writer_that_is_killed_anywhere_leaves_all_or_nothing(tmp_path: Path, deed: str) -> None:
    ends = Counter[str]()
    for last in range(1, 60):
        path = tmp_path / f"{last}" / "auth.dot"
        path.parent.mkdir()
        path.write_text(LOOP)
        if deed == "requeue":
            for node, status in (("build", "validated"), ("check", "failed"), ("good", "failed")):
                transitions.transition(path, node, "active")
                transitions.transition(path, node, status)
        else:
            transitions.transition(path, "build", "active")
        done = subprocess.run(
            (sys.executable, "-c", MOVER, path, deed, str(last)), capture_output=True, text=True, check=False
        )
        statuses = consistent(path)
        if deed == "requeue":
            assert len({statuses[name] == "pending" for name in ("build", "check", "good")}) == 1
            ends["moved" if statuses["good"] == "pending" else "as before"] += 1
        else:
            ends["moved" if statuses["start"] == "active" else "as before"] += 1
        if done.returncode == 0:
            break
        assert done.returncode == -9, done.stderr
    assert done.returncode == 0
    assert ends["moved"] > 1
    assert ends["as before"] > 0


@pytest.mark.smoke
def test_many_writers_at_once_lose_no_move_and_only_one_claims_a_node(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(12)]
    path = tmp_path / "wide.dot"
    path.write_text("digraph w {\n" + "".join(f"    {name} [shape=box]; // {name}\n" for name in names) + "}\n")
    claimed: list[str] = []

    def work() -> None:
        for name in names:
            try:
                transitions.transition(path, name, "active", expect="pending")
                claimed.append(name)
                transitions.transition(path, name, "validated")
            except transitions.Refused:
                continue

    crowd = [threading.Thread(target=work) for _ in range(6)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join(60)

    assert sorted(claimed) == sorted(names)
    assert set(consistent(path).values()) == {"validated"}
    assert len(Path(transitions.log_path(path)).read_text().splitlines()) == 2 * len(names)
    assert path.read_text().count("// n") == len(names)


def test_a_second_writer_waits_and_then_says_so(tmp_path: Path) -> None:
    path = tmp_path / "auth.dot"
    path.write_text(LOOP)
    with (
        editor.lock_file(path),
        pytest.raises(LockHeld, match="another program is changing"),
        editor.lock_file(path, patience=0.05),
    ):
        raise AssertionError("two writers at once")


def test_a_link_to_the_file_and_its_mode_stay(tmp_path: Path) -> None:
    path = tmp_path / "real.dot"
    path.write_text(LOOP)
    path.chmod(0o640)
    (tmp_path / "link.dot").symlink_to(path)

    transitions.transition(tmp_path / "link.dot", "start", "active")

    assert (tmp_path / "link.dot").is_symlink()
    assert parser.read_pipeline(path).node("start").status == "active"
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_a_person_takes_back_is_not_done_again_behind_their_back(tmp_path: Path) -> None:
    path = tmp_path / "auth.dot"
    path.write_text(LOOP)
    transitions.transition(path, "start", "active")
    path.write_text(LOOP)

    assert transitions.read_settled(path).node("start").status == "pending"
    assert [node.id for node in order.ready_nodes(transitions.read_settled(path))] == ["start"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="follows process trees in /proc")
@pytest.mark.timeout(600)
def test_a_run_that_is_killed_anywhere_still_ends_validated(tmp_path: Path) -> None:
    last, killed = 1, 0
    while True:
        project = Project(tmp_path / str(last), settings="pipelines: {auth: auth.dot}\n")
        project.write("auth.dot", LOOP)
        project.agent('put("ok.txt", "yes\\n" if step == "build-2" else f"no, {step}\\n"); say("built")')
        project.commit("A pipeline")
        argv = (sys.executable, crash.__file__, "writes", str(last), "auth")
        first = subprocess.run(argv, cwd=project.root, env=project.env, capture_output=True, text=True, check=False)
        assert crash.none_left(project.home) == {}
        again = project.doit("auth")

        assert again.returncode == 0, (last, again.stdout, again.stderr)
        assert set(consistent(project.root / "auth.dot").values()) == {"validated"}, last
        assert project.git("status", "--short") == "", last
        calls = Counter(project.calls())
        assert set(calls) == {"build", "build-2"}
        assert max(calls.values()) <= 2
        assert sum(calls.values()) <= 3, "only a call killed in flight is paid again"
        if first.returncode == 0:
            break
        killed += 1
        last += 37
    assert killed > 3
    assert os.path.exists(transitions.checkpoint_path(project.root / "auth.dot"))
