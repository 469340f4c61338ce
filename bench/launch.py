"""A small process that starts the programs to be measured.

The largest resident set that the system reports for a program counts what its parent held when it was started: so the
parent is this one, which imports next to nothing. Requests and answers go through standard input and output by marshal.
"""

import marshal
import os
import select
import sys
import time


def main() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            argv, cwd, env, errors, signal, patience = marshal.load(requests)
        except EOFError:
            return
        marshal.dump(launch(argv, cwd, env, errors, signal, patience), answers)
        answers.flush()


def launch(argv, cwd, env, errors, signal, patience):
    """(seconds, exit code or None if the pipe stayed silent, CPU seconds, largest resident set in the system's unit)"""
    os.chdir(cwd)
    listener = os.open(signal, os.O_RDONLY | os.O_NONBLOCK) if signal else -1
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
    ]
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, env, file_actions=actions)
    silent = signal and not heard(listener, patience)
    ended = time.perf_counter()
    if silent:
        os.kill(pid, 9)
    _, status, usage = os.wait4(pid, 0)
    if signal:
        os.close(listener)
    else:
        ended = time.perf_counter()
    code = None if silent else os.waitstatus_to_exitcode(status)
    return ended - began, code, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def heard(listener, patience):
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return bool(poll.poll(patience * 1000))


if __name__ == "__main__":
    main()
