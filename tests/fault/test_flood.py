"""What if an agent writes a gigabyte? It costs disk while it runs, and next to no memory."""

from __future__ import annotations

import json
import os
import time

import pytest
from tests.support.cli import Cli
from tests.support.project import Project

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc"),
]

FLOW = """
    flow: note
    params: {goal: {about: What, required: true}}
    steps:
      write: {prompt: "Write about {goal}.", makes: note.md}
"""
GIGABYTE = 1 << 30
LIMIT = 100 * 1024  # kB
#: a tool's result, as Claude Code shows it; the rest of the line is filled up
RESULT = '{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":"%s"}]},"session_id":"s"}'


def peak(project: Project, *args: str) -> tuple[int, int, str]:
    """The exit code of a run, the most memory that doflow ever had (kB), and what it said."""
    doit = project.start("doit", *args)
    most = 0
    end = time.monotonic() + 300
    while doit.poll() is None and time.monotonic() < end:
        try:
            with open(f"/proc/{doit.pid}/status") as file:
                most = max(most, *(int(line.split()[1]) for line in file if line.startswith("VmHWM")))
        except (OSError, ValueError, TypeError):
            pass
        time.sleep(0.01)
    out, err = doit.communicate(timeout=60)
    return doit.returncode, most, out + err


def logged(project: Project) -> tuple[int, bytes]:
    log = project.root / ".doflow/runs/001-x/logs/write.1.log"
    return log.stat().st_size, log.read_bytes()


def test_a_gigabyte_of_a_commands_text_leaves_a_short_log_that_says_so(project: Project) -> None:
    project.flow("note", FLOW)
    line = "('%07d ' % number) + 'x' * 65527 + '\\n'"
    project.agent(f"make('# Note')\nfor number in range({GIGABYTE} // 65536):\n    sys.stdout.write({line})")

    code, most, said = peak(project, "note", "--goal=x")

    size, text = logged(project)
    assert code == 0, said
    assert 0 < most < LIMIT, f"{most} kB"
    assert size < 65_000_000
    assert b"bytes omitted: a log keeps 64,000,000" in text
    assert text.startswith(b"0000000 x") and b"\n0016383 x" in text


@pytest.mark.parametrize("kind", ["tool results", "one endless line"])
def test_a_gigabyte_of_a_clis_records_is_read_line_by_line(kind: str, project: Project) -> None:
    project.flow("note", FLOW)
    line = json.dumps(RESULT % ("x" * 60_000))
    flood = f"line = {line} + '\\n'" if kind == "tool results" else "line = 'x' * 65536"
    Cli(
        project,
        f"{flood}\nmake('# Note')\nfor _ in range({GIGABYTE} // len(line)):\n    sys.stdout.write(line)\nprint()\n",
    )

    code, most, said = peak(project, "note", "--goal=x")

    size, text = logged(project)
    assert code == 0, said
    assert 0 < most < LIMIT, f"{most} kB"
    assert size < 65_000_000 and b"bytes omitted" in text
    assert json.loads(text.splitlines()[-1])["type"] == "result"
