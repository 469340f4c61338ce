"""What if a program leaves others behind, will not stop, or kills its keeper? Nothing of it may survive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from doflow.util.process import runner
from doflow.util.process.runner import Command, Result, Timeout

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a subreaper")

# An agent with five kinds of offspring; each writes its pid once it is what it is meant to be.
AGENT = """
import os, signal, sys, time

folder, last_words = sys.argv[1:3]
if last_words != "hang gently":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

def offspring(name, *traits):
    if os.fork():
        return
    if "setsid" in traits:
        os.setsid()
    if "daemon" in traits:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN if "deaf" in traits else signal.SIG_DFL)
    if "silent" in traits:
        null = os.open(os.devnull, os.O_RDWR)
        for target in (0, 1, 2):
            os.dup2(null, target)
    with open(f"{folder}/{name}.tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{folder}/{name}.tmp", f"{folder}/{name}.pid")
    time.sleep(300)
    os._exit(0)

offspring("plain", "silent")
offspring("setsid", "setsid", "silent")
offspring("daemon", "daemon", "deaf", "silent")
offspring("deaf", "deaf", "silent")
offspring("holder", "setsid", "deaf")
with open(f"{folder}/main.pid", "w") as file:
    file.write(str(os.getpid()))
while len([name for name in os.listdir(folder) if name.endswith(".pid")]) < 6:
    time.sleep(0.005)
if last_words == "end":
    os._exit(3)
if last_words == "kill keeper":
    os.kill(os.getppid(), signal.SIGKILL)
if last_words == "freeze keeper":
    os.kill(os.getppid(), signal.SIGSTOP)
time.sleep(300)
"""
KINDS = {"plain", "setsid", "daemon", "deaf", "holder", "main"}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    runner.reset()
    yield
    runner.reset()
    runner.close()


def agent(folder: Path, last_words: str) -> Command:
    (folder / "agent.py").write_text(AGENT)
    (folder / "pids").mkdir(exist_ok=True)
    argv = (sys.executable, "-I", "-S", str(folder / "agent.py"), str(folder / "pids"), last_words)
    return Command(argv, b"a prompt", {"PATH": "/usr/bin:/bin"}, str(folder))


def run(folder: Path, last_words: str, timeout: Timeout, grace: float = 0.5) -> Result:
    return runner.run(agent(folder, last_words), str(folder / "out"), str(folder / "err"), timeout, grace=grace)


@pytest.mark.smoke
def test_nothing_survives_a_normal_end_and_the_answer_comes_at_once(tmp_path: Path) -> None:
    started = time.monotonic()
    result = run(tmp_path, "end", Timeout(60, 60))

    assert (result.code, result.stopped) == (3, "")
    assert time.monotonic() - started < 45
    assert survivors(tmp_path) == set()


def test_nothing_survives_a_timeout(tmp_path: Path) -> None:
    result = run(tmp_path, "hang", Timeout(5, 0))

    assert (result.code, result.stopped) == (-9, "idle")
    assert survivors(tmp_path) == set()


def test_nothing_survives_a_gentle_end_after_a_timeout(tmp_path: Path) -> None:
    result = run(tmp_path, "hang gently", Timeout(0, 5), grace=60)

    assert (result.code, result.stopped) == (-15, "max")
    assert result.elapsed < 45
    assert survivors(tmp_path) == set()


def test_nothing_survives_stop_all(tmp_path: Path) -> None:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path, "hang", Timeout(60, 60))))
    thread.start()
    until(lambda: born(tmp_path) == KINDS)

    runner.stop_all(0.3)
    thread.join(60)

    assert [(result.code, result.stopped) for result in results] == [(-9, "cancelled")]
    assert survivors(tmp_path) == set()


@pytest.mark.smoke("9")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV])
def test_nothing_survives_the_death_of_the_process_that_called_run(tmp_path: Path, number: int) -> None:
    caller = start_caller(tmp_path)
    until(lambda: born(tmp_path) == KINDS)
    keeper = parent(pids(tmp_path)["main"])
    assert survivors(tmp_path, patience=0) == KINDS

    caller.send_signal(number)
    caller.wait(60)

    assert survivors(tmp_path) == set()
    until(lambda: not alive(keeper))


@pytest.mark.smoke
def test_nothing_survives_when_the_program_kills_its_keeper(tmp_path: Path) -> None:
    result = run(tmp_path, "kill keeper", Timeout(60, 60))

    assert (result.code, result.stopped) == (-9, "")
    assert "was killed" in (tmp_path / "err").read_text()
    assert survivors(tmp_path) == set()


def test_nothing_survives_when_the_program_freezes_its_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "OVERDUE", 1.0)

    result = run(tmp_path, "freeze keeper", Timeout(0, 5), grace=0.2)

    assert (result.code, result.stopped) == (-9, "max")
    assert survivors(tmp_path) == set()


def test_a_term_to_the_keeper_ends_the_whole_tree(tmp_path: Path) -> None:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path, "hang", Timeout(60, 60))))
    thread.start()
    until(lambda: born(tmp_path) == KINDS)

    os.kill(parent(pids(tmp_path)["main"]), signal.SIGTERM)
    thread.join(60)

    assert [result.code for result in results] == [-9]
    assert survivors(tmp_path) == set()


def test_nothing_survives_of_a_few_hundred_that_keep_forking(tmp_path: Path) -> None:
    bomb = (
        "import os, time\n"
        "first = os.getpid()\n"
        "for turn in range(8):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid() if turn % 2 and os.getpid() != os.getsid(0) else None\n"
        "open(f'pids/{os.getpid()}.pid', 'w').write(str(os.getpid()))\n"
        "end = time.monotonic() + 60\n"
        "while time.monotonic() < end:\n"
        "    time.sleep(0.2)\n"
        "    if os.getpid() != first and os.fork():\n"
        "        os._exit(0)\n"
    )
    (tmp_path / "pids").mkdir()
    command = Command(
        (sys.executable, "-I", "-S", "-c", bomb), b"", {"PATH": "/usr/bin:/bin", "BOMB": str(tmp_path)}, str(tmp_path)
    )

    threading.Thread(target=_stop_when, args=(lambda: len(born(tmp_path)) == 256,)).start()
    result = runner.run(command, str(tmp_path / "out"), str(tmp_path / "err"), Timeout(0, 60))

    assert len(born(tmp_path)) == 256
    assert result.stopped == "cancelled"
    assert survivors(tmp_path) == set()
    assert with_environment(b"BOMB=" + os.fsencode(tmp_path)) == []


def test_a_control_c_at_the_terminal_reaches_only_us(tmp_path: Path) -> None:
    """The whole foreground group gets the signal; the program must be ended by us, not by the terminal."""
    caller = start_caller(tmp_path, trap=True)
    until(lambda: born(tmp_path) == KINDS)

    os.killpg(caller.pid, signal.SIGINT)
    out, _ = caller.communicate(timeout=60)

    assert out == b"cancelled\n"
    assert survivors(tmp_path) == set()


def start_caller(folder: Path, trap: bool = False) -> subprocess.Popen[bytes]:
    """Another process that calls `run` on the agent, as the leader of a group."""
    command = agent(folder, "hang")
    handler = "signal.signal(signal.SIGINT, lambda *_: process.stop_all(0.2))\n" if trap else ""
    script = (
        "import signal\nfrom doflow.util.process import runner as process\n"
        "from doflow.util.process.runner import Command, Timeout\n" + handler +
        f"result = process.run(Command({command.argv!r}, b'', {dict(command.env)!r}), 'out', 'err', Timeout(60, 60))\n"
        "print(result.stopped)\n"
    )  # fmt: skip
    source = str(Path(runner.__file__).resolve().parents[3])
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def survivors(folder: Path, patience: float = 30.0) -> set[str]:
    """Which of the agent's processes still live, after a short while for the system to bury the dead."""
    end = time.monotonic() + patience
    while True:
        living = {name for name, pid in pids(folder).items() if alive(pid)}
        if not living or time.monotonic() >= end:
            return living
        time.sleep(0.02)


def born(folder: Path) -> set[str]:
    return set(pids(folder))


def pids(folder: Path) -> dict[str, int]:
    found = {path.stem: path.read_text() for path in (folder / "pids").glob("*.pid")}
    return {name: int(text) for name, text in found.items() if text}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def with_environment(pair: bytes) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                environ = (folder / "environ").read_bytes()
            except OSError:
                continue
            if pair in environ.split(b"\0"):
                found.append(int(folder.name))
    return found


def until(claim: Callable[[], bool], limit: float = 60.0) -> None:
    end = time.monotonic() + limit
    while not claim():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def _stop_when(claim: Callable[[], bool]) -> None:
    until(claim)
    runner.stop_all(0.0)
