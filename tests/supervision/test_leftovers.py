"""A pipeline that has ended leaves nothing outside of its project: no file in the temporary folder, no socket, no process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.supervision import Site, eventually, left_over, needs_tmux

from doflow.supervise.panes import tmux

#: wrong at first, right after a feedback of several lines, which is pasted
AGENT = (
    'echo "$DOFLOW_ATTEMPT" >> "$calls"; echo one >> out.txt; echo "DOFLOW: done"; '
    'while read line; do case "$line" in *finish\\ as\\ before*) echo two >> out.txt; echo "DOFLOW: done";; esac; done'
)


def made(site: Any, tmp_path: Path) -> tuple[Site, Path]:
    here = site(AGENT)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    here.env["TMPDIR"] = str(temporary)
    here.pipeline("p", here.node("impl", validate="grep -q two out.txt || { echo one; echo is wrong; exit 1; }"))
    return here, temporary


@needs_tmux
def test_nothing_stays_in_the_temporary_folder_nor_a_socket_after_a_pipeline(site: Any, tmp_path: Path) -> None:
    here, temporary = made(site, tmp_path)

    done = here.doflow("guardian", "run", "p.dot", "--check", "0.3")

    assert (done.returncode, done.stderr) == (0, ""), (done.stdout, here.diary("p"))
    assert here.read("out.txt") == "one\ntwo\n", "the feedback was pasted into the session"
    assert list(temporary.iterdir()) == []
    assert here.servers() == [], "no socket is left of a server that has ended"
    assert not list((here.root / ".doflow" / "guardian" / "p").glob(".tmux*"))
    assert eventually(lambda: left_over(here.root / ".doflow" / "guardian") == [])


@needs_tmux
def test_the_socket_of_a_killed_server_goes_with_the_pipeline(site: Any, tmp_path: Path) -> None:
    here, temporary = made(site, tmp_path)
    guardian = here.launch("run", "p.dot", "--check", "0.3")
    assert eventually(lambda: here.panes() and here.servers())
    (name,) = here.servers()
    os.kill(int(here.tmux(name, "display-message", "-p", "#{pid}")), signal.SIGKILL)

    assert guardian.wait(timeout=60) == 0, here.diary("p")

    assert (here.servers(), list(temporary.iterdir())) == ([], [])


@needs_tmux
def test_a_step_in_a_pane_leaves_no_socket_either(site: Any) -> None:
    here = site("echo hi > specs/001-x/notes.md")
    here.write("flows/w.yaml", "flow: w\nsteps:\n  build: {prompt: Build., makes: notes.md, via: tmux}\n")
    here.commit("A flow")

    done = here.doflow("run", "w", "--goal", "x")

    assert done.returncode == 0, (done.stdout, done.stderr)
    assert here.servers() == []


@pytest.mark.smoke
def test_a_socket_that_someone_listens_at_or_begins_to_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "doflow-x")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        assert tmux.remove_dead_socket(path), "bound, and nobody listens: as a dead server leaves it"
        assert not os.path.exists(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        assert not tmux.remove_dead_socket(path), "somebody listens"
    held = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held', flush=True); time.sleep(60)"
    with subprocess.Popen(("python3", "-c", held, f"{path}.lock"), stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert not tmux.remove_dead_socket(path), "somebody is starting a server, and holds tmux's own lock"
        other.kill()
    assert tmux.remove_dead_socket(path)
    assert os.listdir(tmp_path) == []


@pytest.mark.smoke
def test_the_socket_lies_where_tmux_puts_it(tmp_path: Path) -> None:
    user = f"tmux-{os.getuid()}"
    assert tmux.socket_path("doflow-x", {"TMUX_TMPDIR": str(tmp_path)}) == str(tmp_path / user / "doflow-x")
    assert (
        tmux.socket_path("doflow-x", {"TMUX_TMPDIR": str(tmp_path / "gone")})
        == f"{os.path.realpath('/tmp')}/{user}/doflow-x"
    )
