"""Does `process` keep its word? Real programs, real files."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from doflow.util import text
from doflow.util.errors import WorldError
from doflow.util.process import runner
from doflow.util.process.runner import Command, Result, Timeout

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
LONG = Timeout(60, 60)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    runner.reset()
    yield
    runner.reset()
    runner.close()


def shell(script: str, stdin: bytes = b"", cwd: str = "") -> Command:
    return Command(("sh", "-c", script), stdin, ENV, cwd)


def run(folder: Path, command: Command, timeout: Timeout = LONG, **more: float) -> Result:
    return runner.run(command, str(folder / "out"), str(folder / "err"), timeout, **more)  # type: ignore[arg-type]


def test_output_goes_to_two_files_and_the_exit_code_comes_back(tmp_path: Path) -> None:
    result = run(tmp_path, shell("echo hello; echo oops >&2; exit 3"))

    assert (result.code, result.stopped) == (3, "")
    assert (tmp_path / "out").read_bytes() == b"hello\n"
    assert (tmp_path / "err").read_bytes() == b"oops\n"


def test_one_file_holds_both_streams_in_order_and_is_appended_to(tmp_path: Path) -> None:
    log = str(tmp_path / "deep" / "down" / "log")
    for _ in range(2):
        runner.run(shell("echo a; echo b >&2; echo c"), log, log, LONG)

    assert Path(log).read_text() == "a\nb\nc\n" * 2


def test_the_program_gets_exactly_the_environment_it_was_given(tmp_path: Path) -> None:
    env = {"PATH": ENV["PATH"], "EINS": "1 = one", "ODD": "\udcff"}

    run(tmp_path, Command(("env", "-0"), b"", env, str(tmp_path)))

    given = dict(pair.split(b"=", 1) for pair in (tmp_path / "out").read_bytes().split(b"\0") if pair)
    del given[runner.MARK.encode()]
    assert given == {os.fsencode(name): os.fsencode(value) for name, value in env.items()}


def test_the_program_runs_in_the_folder_it_was_given(tmp_path: Path) -> None:
    odd = tmp_path / "a b\n$x"
    odd.mkdir()

    run(tmp_path, shell("pwd -P", cwd=str(odd)))

    assert (tmp_path / "out").read_text() == f"{odd.resolve()}\n"


def test_a_big_input_arrives_whole_and_one_that_no_one_reads_does_no_harm(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000

    read = run(tmp_path, shell("wc -c", data))
    unread = run(tmp_path, shell("exit 4", data))

    assert (read.code, unread.code) == (0, 4)
    assert int((tmp_path / "out").read_text()) == len(data)


def test_without_input_a_question_on_stdin_is_answered_by_the_end_of_file(tmp_path: Path) -> None:
    assert run(tmp_path, shell("read answer || exit 9")).code == 9


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_program_has_a_session_of_its_own_default_signals_and_no_open_files_of_ours(tmp_path: Path) -> None:
    leak = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(leak, True)
    run(
        tmp_path,
        shell("grep -E 'Sig(Ign|Blk)' /proc/self/status; ls /proc/self/fd; cut -d' ' -f6 /proc/$$/stat; echo $$"),
    )
    os.close(leak)

    _, blocked, _, ignored, *opened, session, pid = (tmp_path / "out").read_text().split()
    of_libc = 1 << 31 | 1 << 32  # two signals of its own that glibc ignores in whatever it spawns
    assert (int(blocked, 16), int(ignored, 16) & ~of_libc) == (0, 0)
    assert opened == ["0", "1", "2", "3"]
    assert session == pid


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("no-such-program",), 127, "program not found: no-such-program (not on PATH)"),
        (("./no-such-program",), 127, "program not found: ./no-such-program (no such file)"),
        (("./plain",), 126, "not executable: ./plain (chmod +x)"),
        (("./folder",), 126, "not a program: ./folder is a folder"),
        (("./headless",), 126, "not a program: ./headless has no '#!' line"),
        (("./orphan",), 126, "cannot start ./orphan: the interpreter of its '#!' line"),
        ((), 126, "its arguments or environment cannot be passed"),
        (("sh", "a\0b"), 126, "its arguments or environment cannot be passed"),
        (("sh", "x" * 3_000_000), 126, "Argument list too long"),
    ],
)
def test_a_program_that_cannot_be_started_is_explained_in_the_log(
    tmp_path: Path, argv: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    (tmp_path / "folder").mkdir()
    for name, content in (("headless", "just text\n"), ("orphan", "#!/no/such/interpreter\n")):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)

    result = run(tmp_path, Command(argv, b"", ENV, str(tmp_path)))

    assert result.code == code
    assert said in (tmp_path / "err").read_text()


def test_a_folder_that_is_not_there_is_explained_in_the_log(tmp_path: Path) -> None:
    result = run(tmp_path, shell("true", cwd=str(tmp_path / "gone")))

    assert result.code == 126
    assert "cannot enter the folder" in (tmp_path / "err").read_text()


def test_a_log_that_is_a_link_or_a_pipe_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    (tmp_path / "err").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorldError, match="cannot write the log"):
        run(tmp_path, shell("echo x >&2"))
    (tmp_path / "err").unlink()
    os.mkfifo(tmp_path / "err")
    with pytest.raises(WorldError, match="cannot write the log"):
        run(tmp_path, shell("echo x >&2"))

    assert not (tmp_path / "elsewhere").exists()
    assert runner.tail(str(tmp_path / "err")) == ""


def test_a_log_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorldError, match="cannot create the folder"):
        runner.run(shell("true"), str(tmp_path / "file" / "out"), str(tmp_path / "err"), LONG)


def test_silence_is_stopped_after_the_idle_limit(tmp_path: Path) -> None:
    started = time.monotonic()  # a helper that is slow to come is in it
    result = run(tmp_path, shell("echo begun; sleep 60"), Timeout(0.5, 0))

    assert (result.stopped, result.code) == ("idle", -signal.SIGTERM)
    assert 0.5 <= time.monotonic() - started < 30


def test_output_keeps_a_program_alive_until_the_wall_limit(tmp_path: Path) -> None:
    started = time.monotonic()
    result = run(tmp_path, shell("while :; do echo x >&2; sleep 0.1; done"), Timeout(1.2, 1.7))

    assert result.stopped == "max"
    assert 1.7 <= time.monotonic() - started < 30


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    assert run(tmp_path, shell("sleep 0.7"), Timeout(0, 0)).code == 0


def test_a_program_that_ignores_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    started = time.monotonic()
    result = run(tmp_path, shell("trap '' TERM; while :; do sleep 0.1; done"), Timeout(0, 1), grace=0.5)

    assert (result.stopped, result.code) == ("max", -signal.SIGKILL)
    assert 1.5 <= time.monotonic() - started < 30


def test_a_program_that_tidies_up_on_term_has_the_time_to(tmp_path: Path) -> None:
    script = "trap 'sleep 0.3; echo tidy; exit 7' TERM; while :; do sleep 0.1; done"

    result = run(tmp_path, shell(script), Timeout(0, 1), grace=60)

    assert (result.stopped, result.code) == ("max", 7)
    assert (tmp_path / "out").read_text() == "tidy\n"


def test_a_stopped_program_hears_the_term(tmp_path: Path) -> None:
    result = run(tmp_path, shell("kill -STOP $$"), Timeout(0, 0.3), grace=30)

    assert (result.stopped, result.code) == ("max", -signal.SIGTERM)
    assert result.elapsed < 10


def test_ticks_tell_time_and_growth(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("from before")
    ticks: list[tuple[float, int]] = []
    command = shell(f"printf 12345; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")

    def tick(elapsed: float, size: int) -> None:
        ticks.append((elapsed, size))
        if [size for _, size in ticks].count(5) == 3:
            (tmp_path / "go").touch()

    runner.run(command, str(tmp_path / "out"), str(tmp_path / "err"), LONG, tick)

    sizes = [size for _, size in ticks]
    assert sizes == [0] * sizes.count(0) + [5] * sizes.count(5)
    assert all(later - sooner >= 0.19 for (sooner, _), (later, _) in itertools.pairwise(ticks)), "five times a second"


def test_an_accident_in_the_tick_ends_the_program(tmp_path: Path) -> None:
    def accident(elapsed: float, size: int) -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(
            shell(f"echo $$ >{tmp_path}/pid; sleep 60"), str(tmp_path / "out"), str(tmp_path / "err"), LONG, accident
        )

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert run(tmp_path, shell("exit 5")).code == 5


def test_stop_all_cancels_what_runs_and_what_comes_until_reset(tmp_path: Path) -> None:
    results: list[Result] = []
    threads = [
        threading.Thread(target=lambda folder=tmp_path / str(n): results.append(run(folder, shell("sleep 60"))))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    _until(lambda: all((tmp_path / str(n) / "out").exists() for n in range(3)))

    runner.stop_all(30.0)
    for thread in threads:
        thread.join(20)
    after = run(tmp_path, shell("exit 5"))
    assert runner.stopping()
    runner.reset()
    assert not runner.stopping()

    assert [(result.stopped, result.code) for result in results] == [("cancelled", -15)] * 3
    assert after.stopped == "cancelled"
    assert not (tmp_path / "err").exists()
    assert run(tmp_path, shell("exit 5")).code == 5


def test_stop_all_works_in_a_signal_handler_and_the_second_one_is_harder(tmp_path: Path) -> None:
    def handler(number: int, frame: object) -> None:
        runner.stop_all(60.0 if number == signal.SIGUSR1 else 0.0)

    old = {number: signal.signal(number, handler) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    parent = os.getpid()
    script = f"trap '' TERM; sleep 0.5; kill -USR1 {parent}; sleep 1; kill -USR2 {parent}; while :; do sleep 1; done"
    result = run(tmp_path, shell(script))
    for number, action in old.items():
        signal.signal(number, action)

    assert (result.stopped, result.code) == ("cancelled", -signal.SIGKILL)
    assert result.elapsed < 45


def test_close_ends_what_still_runs_in_another_thread(tmp_path: Path) -> None:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path, shell("echo $$; exec sleep 60"))))
    thread.start()
    _until(lambda: runner.tail(str(tmp_path / "out")) != "")

    runner.close()
    thread.join(20)

    assert [result.stopped for result in results] == ["cancelled"]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "out").read_text()), 0)


def test_four_threads_run_programs_side_by_side(tmp_path: Path) -> None:
    codes: dict[int, int] = {}

    def work(number: int) -> None:
        for turn in range(20):
            codes[number * 100 + turn] = run(tmp_path / str(number), shell(f"echo {number}; exit {number}")).code

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert codes == {number * 100 + turn: number for number in range(4) for turn in range(20)}
    assert (tmp_path / "3" / "out").read_text() == "3\n" * 20


def test_a_supervisor_is_used_again_and_one_that_died_meanwhile_is_replaced(tmp_path: Path) -> None:
    def supervisor() -> int:
        (tmp_path / "out").unlink(missing_ok=True)
        assert run(tmp_path, shell("echo $PPID")).code == 0
        return int((tmp_path / "out").read_text())

    runner.warm()
    first, second = supervisor(), supervisor()
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)  # it is dead, and still ours to bury
    third = supervisor()

    assert first == second != third


def test_two_hundred_megabytes_of_output_do_not_pass_through_our_memory(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom doflow.util.process import runner as process\n"
        "from doflow.util.process.runner import Command, Timeout\n"
        "r = process.run(Command(('sh', '-c', 'head -c 209715200 /dev/zero'), b'', {'PATH': '/usr/bin:/bin'}),"
        "'out', 'out', Timeout())\nprocess.tail('out')\n"
        "peak = [l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')][0]\n"
        "print(r.code, int(peak) // 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, cwd=tmp_path, env=_own(), check=True)
    code, megabytes = done.stdout.split()

    assert (code, (tmp_path / "out").stat().st_size) == (b"0", 209_715_200)
    assert int(megabytes) < 60


def test_a_thousand_runs_cost_little_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(("/bin/true",), b"", ENV, "/")
    log = str(tmp_path / "log")
    runner.warm()
    started = time.perf_counter()
    codes = {runner.run(command, log, log, LONG).code for _ in range(1000)}
    mean = time.perf_counter() - started

    with capsys.disabled():
        print(f" mean of 1000 runs of /bin/true: {mean:.3f} ms ", end="")
    assert codes == {0}


def test_invalid_utf8_is_shown_with_replacement_and_kept_raw(tmp_path: Path) -> None:
    run(tmp_path, shell(r"printf 'a\377\0b\355\240\200c\n'"))

    assert (tmp_path / "out").read_bytes() == b"a\xff\0b\xed\xa0\x80c\n"
    assert runner.tail(str(tmp_path / "out")) == "a\ufffd\\x00b\ufffd\ufffd\ufffdc\n"


def test_a_tail_is_the_end_from_a_whole_line_or_a_whole_character(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert runner.tail(str(log), 30) == "…\nline 997\nline 998\nline 999\n"

    log.write_text("ä" * 100)
    assert runner.tail(str(log), 9) == "…\nääää"
    assert runner.tail(str(tmp_path / "none")) == ""


def test_text_that_could_fool_a_terminal_or_an_eye_is_written_out() -> None:
    hostile = "\x1b[2K\rPASSED\x9b\x07\u202eevil\u2066\u200b\ufeff\U000e0041\x7f\ud800"

    assert runner.clean(hostile) == (
        "\\x1b[2K\\x0dPASSED\\x9b\\x07\\u202eevil\\u2066\\u200b\\ufeff\\U000e0041\\x7f\\ud800"
    )
    assert runner.clean("plain\ttext\r\nÜber 日本 🙂\n") == "plain\ttext\nÜber 日本 🙂\n"


@pytest.mark.parametrize(
    ("code", "stopped", "said"),
    [
        (0, "", "tool succeeded (exit 0)"),
        (2, "", "tool failed with exit code 2"),
        (126, "", "tool could not be started: it is not executable, or its folder cannot be entered"),
        (127, "", "tool was not found: install it, or check PATH"),
        (137, "", "tool exited 137 (128 + 9: as if killed by signal 9 (SIGKILL))"),
        (255, "", "tool failed with exit code 255"),
        (-9, "", "tool was killed by signal 9 (SIGKILL)"),
        (-99, "", "tool was killed by signal 99"),
        (-15, "idle", "tool was stopped after 10m without output (ran 1h 5m)"),
        (-15, "max", "tool was stopped after 1h 5m, its time limit"),
        (-15, "cancelled", "tool was cancelled after 1h 5m"),
    ],
)
def test_every_end_has_a_sentence(code: int, stopped: str, said: str) -> None:
    result = Result(code, "out", "err", 3900.4, stopped)

    assert runner.explain(result, ("/usr/bin/tool", "-x"), Timeout(600, 3900)) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0s"), (0.42, "0.4s"), (12.6, "12s"), (600, "10m"), (7325, "2h 2m"), (90000, "1d 1h")]
)
def test_a_span_of_time_is_short(seconds: float, said: str) -> None:
    assert text.format_duration(seconds) == said


@pytest.mark.parametrize("closed", ["<&-", ">&- 2>&-", "2>&-", "<&- >&- 2>&-"])
def test_programs_run_even_if_our_own_standard_streams_are_closed(tmp_path: Path, closed: str) -> None:
    script = (
        "import os, sys\nfrom doflow.util.process import runner as process\n"
        "from doflow.util.process.runner import Command, Timeout\n"
        "os.write(os.open('before', os.O_CREAT | os.O_WRONLY), b'x')\n"
        "r = process.run(Command(('sh', '-c', 'cat; echo out; echo err >&2; exit 3'), b'in ', {'PATH': '/usr/bin:/bin'}),"
        "'out', 'err', Timeout(20, 20))\nopen('code', 'w').write(str(r.code))\n"
    )
    subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, script],
        cwd=tmp_path,
        env=_own(),
        timeout=30,
        check=True,
    )

    found = [(tmp_path / name).read_text() for name in ("code", "out", "err", "before")]
    assert found == ["3", "in out\n", "err\n", "x"]


def test_a_forked_copy_of_us_does_not_hold_the_line(tmp_path: Path) -> None:
    runner.warm()
    supervisor = next(iter(runner._pool.all)).pid
    child = os.fork()
    if child == 0:
        time.sleep(3)
        os._exit(0)
    runner.close()

    with pytest.raises(ProcessLookupError):
        os.kill(supervisor, 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_the_supervisor_imports_nothing_of_ours() -> None:
    assert stat.S_ISREG(os.stat(runner.PROGRAM).st_mode)
    assert "doflow import" not in Path(runner.PROGRAM).read_text()


def _own() -> dict[str, str]:
    source = str(Path(runner.__file__).resolve().parents[3])
    return {"PATH": ENV["PATH"], "PYTHONPATH": source}


def _until(claim: object, limit: float = 60.0) -> None:
    end = time.monotonic() + limit
    while not claim():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
