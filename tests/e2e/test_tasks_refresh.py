"""`doflow tasks refresh`: an agent proposes a new version of a run's list, a person accepts it, what is ticked stays."""

from __future__ import annotations

import os
import pty
import subprocess
import textwrap
from pathlib import Path

import pytest
from tests.support.project import PROGRAMS, Project

PATH = "openspec/changes/add-house/tasks.md"
LIST = (
    "## 1. Ground\n\n- [ ] 1.1 Lay it\n- [ ] 1.2 Check it\n\n## 2. House\n\n- [ ] 2.1 Build it\n- [ ]* 2.2 Paint it\n"
)
DONE = LIST.replace("[ ] ", "[x] ")
#: what the agent answers after the specification has changed: a ticked task reworded, an open one changed, a new phase
ANSWER = (
    DONE.replace("Lay it", "Lay it deep").replace("Paint it", "Paint it red") + "\n## 3. Roof\n\n- [x] 3.1 Add it\n"
)
NEW = DONE.replace("Paint it", "Paint it red") + "\n## 3. Roof\n\n- [ ] 3.1 Add it\n"
DIFF = f"""\
--- a/{PATH}
+++ b/{PATH}
@@ -6,4 +6,8 @@
 ## 2. House
{" "}
 - [x] 2.1 Build it
-- [ ]* 2.2 Paint it
+- [ ]* 2.2 Paint it red
+
+## 3. Roof
+
+- [ ] 3.1 Add it
"""
AGENT = """
import re
if role == "persona":
    say("VERDICT: GO")
    raise SystemExit
if role != "refresh":
    put(f"src/phase_{phase}.py", f"PHASE = {phase!r}\\n")
    path = root / re.search(r"It is in `([^`]+)`", prompt)[1]
    path.write_text(re.sub(rf"\\[ \\] {phase}", f"[x] {phase}", path.read_text()))
    say("done")
    raise SystemExit
"""


def worked(project: Project, answer: str = f"say({ANSWER!r})", path: str = PATH) -> Path:
    """A project whose list is done, and whose proposal has changed since; `answer`: what the agent then does."""
    project.agent(AGENT + textwrap.dedent(answer))
    target = project.write(path, LIST)
    proposal = project.write(os.path.join(os.path.dirname(PATH), "proposal.md"), "# Why\n\nA house.\n")
    project.commit("A task list")
    done = project.doit("implement", f"--tasks={path}")
    assert (done.returncode, target.read_text()) == (0, DONE), done.stdout + done.stderr
    proposal.write_text("# Why\n\nA house with a roof.\n")
    project.commit("A roof")
    project.forget_calls()
    return target


@pytest.mark.smoke
def test_the_version_that_was_shown_is_accepted_without_another_call(project: Project) -> None:
    target = worked(project)
    before = project.tree()

    shown = project.doflow("tasks", "refresh", PATH)

    assert (shown.returncode, project.calls()) == (2, ["code refresh"]), shown.stdout + shown.stderr
    accept = f"doflow tasks refresh {PATH} -y"
    assert shown.stdout == f"{DIFF}\n{PATH} was not changed. To accept this version:\n  {accept}\n"
    assert project.tree() == before
    assert project.git("status", "--porcelain") == ""
    assert "A house with a roof." in project.prompts()[0] and DONE in project.prompts()[0]
    ended = [entry for entry in project.events("add-house") if entry["event"] == "call_ended"][-1]
    assert (ended["role"], ended["step"], ended["status"]) == ("refresh", "code", "done")

    accepted = project.doflow("tasks", "refresh", PATH, "-y")

    assert (accepted.returncode, project.calls()) == (0, ["code refresh"]), accepted.stdout + accepted.stderr
    assert accepted.stdout == f"{DIFF}\nwrote {PATH}\ncontinue with:\n  doit implement\n"
    assert project.tree() == before | {PATH: NEW.encode()}

    done = project.doit("implement")

    assert (done.returncode, project.calls()[:3]) == (0, ["code refresh", "code:2", "code:3"]), (
        done.stdout + done.stderr
    )
    assert "code:1" not in project.calls(), "its tasks are as they were"
    assert target.read_text() == NEW.replace("[ ] 3.1", "[x] 3.1")
    assert project.git("status", "--porcelain") == ""


def test_an_outdated_proposal_is_not_accepted(project: Project) -> None:
    target = worked(project)
    assert project.doflow("tasks", "refresh").returncode == 2
    project.write("openspec/changes/add-house/proposal.md", "# Why\n\nA house with a cellar.\n")

    done = project.doflow("tasks", "refresh", "-y")

    assert (done.returncode, project.calls()) == (0, ["code refresh"] * 2), done.stdout + done.stderr
    assert target.read_text() == NEW


@pytest.mark.parametrize(("word", "code", "text"), [("y", 0, NEW), ("n", 2, DONE), ("", 2, DONE)])
def test_in_a_terminal_a_person_is_asked(project: Project, word: str, code: int, text: str) -> None:
    target = worked(project)
    ours, theirs = pty.openpty()
    os.write(ours, f"{word}\n".encode())

    done = subprocess.run(
        (PROGRAMS / "doflow", "tasks", "refresh", "tasks.md"), cwd=target.parent, env=project.env, stdin=theirs,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    os.close(ours)
    os.close(theirs)
    assert (done.returncode, target.read_text()) == (code, text), done.stdout + done.stderr
    assert "Write this version to tasks.md? Ticked tasks stay as they are. [y/N]" in done.stdout


def test_an_answer_without_a_ticked_task_is_handed_back_once(project: Project) -> None:
    dropped = ANSWER.replace("- [x] 2.1 Build it\n", "")
    target = worked(project, f"say({ANSWER!r} if nth else {dropped!r})")

    done = project.doflow("tasks", "refresh", "-y")

    assert (done.returncode, target.read_text()) == (0, NEW), done.stdout + done.stderr
    assert "the ticked task 2.1 is missing" in project.prompts()[1]


def test_an_answer_that_still_drops_a_ticked_task_is_refused(project: Project) -> None:
    target = worked(project, f"say({ANSWER.replace('- [x] 2.1 Build it', '')!r})")

    done = project.doflow("tasks", "refresh", PATH, "-y")

    assert (done.returncode, project.calls(), target.read_text()) == (1, ["code refresh"] * 2, DONE)
    assert "the new list was refused:\n  the ticked task 2.1 is missing" in done.stderr
    logs = project.doflow("logs", "code", "--role", "refresh")
    assert "3.1 Add it" in logs.stdout, logs.stderr


def test_an_agent_that_writes_is_reverted_and_not_heard(project: Project) -> None:
    target = worked(project, f"put({PATH!r}, {ANSWER!r})\nput('src/more.py', '')\nsay({ANSWER!r})")
    before = project.tree()

    done = project.doflow("tasks", "refresh", PATH, "-y")

    assert (done.returncode, project.tree(), target.read_text()) == (1, before, DONE)
    assert "may write nothing, modified" in done.stderr and "src/more.py" in done.stderr
    assert "src/more.py" in project.doflow("quarantine", "list").stdout


def test_a_list_that_needs_no_change_is_said_to_be_up_to_date(project: Project) -> None:
    worked(project, f"say({DONE!r})")

    done = project.doflow("tasks", "refresh", PATH)

    assert (done.returncode, done.stdout) == (0, f"{PATH} is up to date: nothing to change\n"), done.stderr


def test_without_a_run_the_command_that_starts_one_is_named(project: Project) -> None:
    project.write(PATH, LIST)

    done = project.doflow("tasks", "refresh", PATH)

    assert (done.returncode, project.calls()) == (1, [])
    assert f"no run works on {PATH} yet" in done.stderr
    assert f"doit implement --tasks={PATH}" in done.stderr


def test_a_list_outside_the_folder_of_its_run_is_found(project: Project) -> None:
    target = worked(project, path="tasks.md")

    done = project.doflow("tasks", "refresh", "tasks.md", "-y")

    assert (done.returncode, target.read_text()) == (0, NEW), done.stdout + done.stderr
    commands = done.stdout.rpartition("continue with:\n")[2]
    assert commands == '  git commit -m "Refresh the task list" -- tasks.md\n  doit implement\n'


def test_another_agent_may_do_it_and_the_budget_of_the_run_holds(project: Project) -> None:
    target = worked(project)
    project.settings("budget: {tokens: 1}\n")

    stopped = project.doflow("tasks", "refresh", PATH, "-y")
    unknown = project.doflow("tasks", "refresh", PATH, "-y", "--agent", "nobody")

    assert (stopped.returncode, unknown.returncode, project.calls()) == (2, 1, [])
    assert "the budget of this run" in stopped.stderr
    assert "the agent 'nobody', which doflow.yaml does not define" in unknown.stderr
    assert target.read_text() == DONE


def test_the_list_of_a_step_is_adopted_and_keeps_its_form(project: Project) -> None:
    assert project.doit("tiny", "--goal=x").returncode == 0
    path = f"specs/{project.runs()[0]}/tasks.md"
    old = project.read(path)
    project.forget_calls()
    loose = old + "\n## Phase 3: Roof\n\n- [ ] T003 Add it\n"
    project.agent(
        f'say({loose!r} if not nth else {loose.replace("T003", "[T003]")!r}) if role == "refresh" else usual()'
    )

    done = project.doflow("tasks", "refresh", path, "-y")

    assert (done.returncode, project.calls()) == (0, ["implement refresh"] * 2), done.stdout + done.stderr
    assert project.read(path) == loose.replace("T003", "[T003]")
    assert done.stdout.endswith("continue with:\n  doflow adopt tasks\n  doit tiny\n")
    assert project.doflow("adopt", "tasks").returncode == 0
    again = project.doit("tiny")
    assert (again.returncode, project.calls()[2:]) == (0, ["implement:3"]), again.stdout + again.stderr
