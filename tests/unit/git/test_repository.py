"""Do threads that ask git at the same moment leave the process as it was? Reviewers do, and they are the first to ask."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from doflow.util.process import environment

ASK = """
import os, sys, threading
from pathlib import Path
from doflow.git import head_reader
from doflow.git.repository import Repository

before, git, gate, answers = dict(os.environ), Repository(head_reader.find_head(Path.cwd())), threading.Barrier(4), []

def ask():
    gate.wait()
    answers.append(git.run("rev-parse", "--is-inside-work-tree"))

threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert answers == [b"true\\n"] * 4, answers
changed = sorted(set(before.items()) ^ set(os.environ.items()))
assert not changed, changed
"""


def test_the_first_questions_of_several_threads_change_nothing_in_our_environment(tmp_path: Path) -> None:
    subprocess.run(("git", "init", "-q", "."), cwd=tmp_path, check=True, timeout=30)

    done = subprocess.run(
        (sys.executable, "-c", ASK), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr


def test_an_environment_is_built_while_another_thread_takes_variables_away() -> None:
    done = threading.Event()

    def flicker() -> None:
        while not done.is_set():
            os.environ["DOFLOW_FLICKERS"] = "x"
            os.environ.pop("DOFLOW_FLICKERS", None)

    other = threading.Thread(target=flicker)
    other.start()
    try:
        for _ in range(3000):
            assert environment.for_shell(os.environ, {})["PATH"]
    finally:
        done.set()
        other.join()
