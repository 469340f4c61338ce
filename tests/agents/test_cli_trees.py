"""Is nothing of an agent's tree left, whatever ends it? With the real CLIs, and a tool that moved to a session of its own."""

from __future__ import annotations

import signal
import sys

import pytest
from tests.support import clis, crash
from tests.support.model import Hang, Model, Shell, play
from tests.support.project import Project, eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a subreaper and /proc"),
]

#: a step whose repairing agent may run programs
FLOW = """
    flow: mend
    params: {goal: {about: What, required: true}}
    steps:
      test: {kind: shell, run: [test, -e, mended.txt], repair: 1}
"""
NAP = "python3 -c 'import time; time.sleep(300)'"
TOOL = f"setsid {NAP} & {NAP} & touch began.txt; {NAP}"
#: by then the tool has started, on a slow machine too
LIMIT = {"claude": 15, "codex": 15, "gemini": 25, "opencode": 50}


def started(project: Project) -> bool:
    naps = [words for words in crash.alive(project.home).values() if "time.sleep(300)" in words]
    return (project.root / "began.txt").exists() and len(naps) >= 3


@pytest.mark.parametrize("name", clis.cases())
def test_nothing_is_left_after_a_timeout(name: str, project: Project) -> None:
    project.flow("mend", FLOW)
    with Model(play(Shell(TOOL), Hang())) as model:
        clis.use(project, name, model, f"timeouts: {{max: {LIMIT[name]}s}}\nretry: {{enabled: false}}\n")
        doit = project.start("doit", "mend", "--goal=x")
        assert eventually(lambda: started(project), LIMIT[name] + 5.0)
        out, err = doit.communicate(timeout=120)

    assert doit.returncode == 1, out + err
    assert "time limit" in out
    assert crash.none_left(project.home) == {}


@pytest.mark.parametrize("name", clis.cases())
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_nothing_is_left_after_an_interrupt_or_the_death_of_doflow(
    name: str, number: signal.Signals, code: int, project: Project
) -> None:
    project.flow("mend", FLOW)
    with Model(play(Shell(TOOL), Hang())) as model:
        clis.use(project, name, model)
        doit = project.start("doit", "mend", "--goal=x")
        assert eventually(lambda: started(project), 120.0)
        doit.send_signal(number)
        doit.communicate(timeout=60)

    assert doit.returncode == code
    assert crash.none_left(project.home) == {}
