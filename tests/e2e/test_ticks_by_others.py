"""Boxes that a person or another tool ticks without a commit, before a phase or while its agent works."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest
from tests.support.project import Project, eventually

LIST = "## 1. Ground\n\n- [ ] 1.1 Lay it\n- [ ] 1.2 Check it\n\n## 2. House\n\n- [ ] 2.1 Build it\n- [ ] 2.2 Check it\n"
#: inside the run's folder, and outside of it: such a list gets a run folder in specs/
PLACES = ("openspec/changes/add-house/tasks.md", "tasks.md")
#: ticks the first box of its phase
AGENT = """
import re, time
if role == "persona":
    say("VERDICT: GO")
    raise SystemExit
put(f"src/phase_{phase}.py", f"PHASE = {phase!r}\\n")
path = root / re.search(r"It is in `([^`]+)`", prompt)[1]
box = f"[ ] {phase}.1"
"""
TICK = 'path.write_text(path.read_text().replace(box, box.replace("[ ]", "[x]")))\nsay("done")\n'


def prepared(project: Project, path: str, script: str = AGENT + TICK) -> Path:
    project.agent(textwrap.dedent(script))
    target = project.write(path, LIST)
    project.commit("A task list")
    return target


def ticked(*ids: str) -> str:
    text = LIST
    for name in ids:
        text = text.replace(f"[ ] {name}", f"[x] {name}")
    return text


def phases_committed(project: Project) -> list[str]:
    return [subject for subject in project.subjects() if subject.startswith("Phase ")]


@pytest.mark.smoke(PLACES[1])
@pytest.mark.parametrize("path", PLACES)
def test_a_tick_before_a_phase_stays_and_pauses_nothing(project: Project, path: str) -> None:
    target = prepared(project, path)
    target.write_text(ticked("2.2"))

    done = project.doit("implement")

    assert done.returncode == 0, done.stdout + done.stderr
    assert phases_committed(project) == ["Phase 1: Ground", "Phase 2: House"]
    assert target.read_text() == ticked("1.1", "2.1", "2.2"), "the box 1.2 has the text of 2.2 and is another one"
    assert project.git("show", f"HEAD:{path}") == target.read_text()
    assert project.git("status", "--porcelain") == ""
    assert "quarantine" not in done.stdout + done.stderr


@pytest.mark.parametrize("path", PLACES)
def test_a_tick_while_the_agent_works_is_committed_with_its_phase(project: Project, path: str) -> None:
    wait = "while phase == '1' and '[x] 2.2' not in path.read_text():\n    time.sleep(0.02)\n"
    target = prepared(project, path, AGENT + wait + TICK)
    run = project.start("doit", "implement")
    assert eventually(lambda: (project.root / "src/phase_1.py").exists())
    time.sleep(0.2)

    target.write_text(ticked("2.2"))
    out, err = run.communicate(timeout=120)

    assert run.returncode == 0, out + err
    assert phases_committed(project) == ["Phase 1: Ground", "Phase 2: House"]
    first = project.git("log", "--format=%H", "--grep=^Phase 1: Ground").strip()
    assert project.git("show", f"{first}:{path}") == ticked("1.1", "2.2")
    assert target.read_text() == ticked("1.1", "2.1", "2.2")
    assert project.git("status", "--porcelain") == ""


@pytest.mark.parametrize("path", PLACES)
def test_an_agent_that_writes_the_list_as_it_was_unticks_nothing(project: Project, path: str) -> None:
    stale = f'path.write_text({LIST!r}.replace(box, box.replace("[ ]", "[x]")))\nsay("done")\n'
    target = prepared(project, path, AGENT + stale)
    target.write_text(ticked("2.2"))

    done = project.doit("implement")

    assert done.returncode == 0, done.stdout + done.stderr
    assert target.read_text() == ticked("1.1", "2.1", "2.2")
    assert project.git("status", "--porcelain") == ""


def test_another_text_of_a_list_outside_the_folder_pauses_as_any_file(project: Project) -> None:
    target = prepared(project, "tasks.md")
    target.write_text(ticked("2.2").replace("Build it", "Build it of stone"))

    done = project.doit("implement")

    assert (done.returncode, project.calls()) == (2, []), done.stdout + done.stderr
    assert "uncommitted changes in tasks.md" in done.stdout
    assert target.read_text() == ticked("2.2").replace("Build it", "Build it of stone")


@pytest.mark.parametrize("path", PLACES)
def test_a_failed_attempt_takes_back_its_own_ticks_alone(project: Project, path: str) -> None:
    """What is ticked outside the phase is not the agent's to tick: someone else did."""
    other = "path.write_text(path.read_text().replace('[ ] 2.2', '[x] 2.2'))\n"
    target = prepared(project, path, AGENT + other + TICK.replace("done", "[ERROR: no stone]"))

    failed = project.doit("implement")

    assert (failed.returncode, target.read_text()) == (1, ticked("2.2")), failed.stdout + failed.stderr
    assert not (project.root / "src/phase_1.py").exists()
    project.agent(AGENT + TICK)
    done = project.doit("implement")
    assert (done.returncode, target.read_text()) == (0, ticked("1.1", "2.1", "2.2")), done.stdout + done.stderr
    assert project.git("status", "--porcelain") == ""
