"""`git.verify: true`: a phase's commit is shown to the project's own hooks; hooks that changed since are not started."""

from __future__ import annotations

import pytest
from tests.support.project import Project

FLOW = """\
flow: work
steps:
  tasks: {prompt: List, makes: tasks.md}
  build: {kind: implement, phases: tasks.md, prompt: Build}
"""
PRE = '#!/bin/sh\ngit diff --cached --name-only | sort | tr "\\n" " " >> "{log}"; echo >> "{log}"\n'


@pytest.fixture
def hooked(project: Project) -> Project:
    """Hooks in the usual place, written by the person."""
    project.settings("git: {verify: true}\n")
    project.flow("work", FLOW)
    project.commit("Ground")
    plant(project, "pre-commit", PRE.format(log=project.outside / "hook.log"))
    return project


def plant(project: Project, name: str, text: str, folder: str = ".git/hooks") -> None:
    project.write(f"{folder}/{name}", text).chmod(0o755)


def seen(project: Project) -> list[str]:
    log = project.outside / "hook.log"
    return [line.strip() for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.smoke
def test_every_phase_is_shown_to_the_hooks_and_nothing_else_is(hooked):
    plant(hooked, "commit-msg", '#!/bin/sh\nsed -i "1s/^/[ok] /" "$1"\n')
    plant(hooked, "post-commit", f'#!/bin/sh\ngit log -1 --format=%s >> "{hooked.outside}/post.log"\n')

    done = hooked.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    lock = "specs/001-x/doflow.lock"
    assert seen(hooked) == [f"{lock} src/phase_1.py", f"{lock} src/phase_2.py"]
    assert hooked.subjects()[-3:] == ["tasks: tasks.md", "[ok] Phase 1: Ground", "[ok] Phase 2: House"]
    assert (hooked.outside / "post.log").read_text().splitlines() == ["[ok] Phase 1: Ground", "[ok] Phase 2: House"]
    assert hooked.git("status", "--porcelain") == ""
    assert "Doflow-Phase: 2" in hooked.git("log", "-1", "--format=%B")


@pytest.mark.smoke
def test_a_hook_that_refuses_leaves_the_work_and_no_agent_is_called_again(hooked):
    plant(hooked, "pre-commit", f'#!/bin/sh\ntest -e "{hooked.outside}/fine" || {{ echo too long: line 7; exit 3; }}\n')

    done = hooked.doit("work", "--goal=x")

    assert done.returncode == 1
    assert "build:1 is done but not committed: the hook pre-commit failed with exit code 3" in done.stdout
    assert "too long: line 7" in done.stdout
    assert hooked.read("src/phase_1.py") == "PHASE = '1'\n"
    hooked.forget_calls()
    (hooked.outside / "fine").touch()
    assert hooked.doit("work").returncode == 0
    assert hooked.calls() == ["build:2"]


STRICT = "#!/bin/sh\nif grep -q PHASE src/phase_1.py; then echo no capitals; exit 1; fi\n"


def test_what_a_person_fixes_for_a_hook_is_part_of_the_phase_and_no_agent_is_called_again(hooked):
    plant(hooked, "pre-commit", STRICT)
    assert hooked.doit("work", "--goal=x").returncode == 1
    told = hooked.doflow("plan").stdout
    assert "build:1" in told and "its agent has returned" in told
    hooked.forget_calls()
    hooked.write("src/phase_1.py", "phase = 1\n")

    done = hooked.doit("work")

    assert (done.returncode, hooked.calls()) == (0, ["build:2"]), done.stdout + done.stderr
    assert "src/phase_1.py: changed since the agent of build:1 returned" in done.stdout
    assert hooked.git("show", "HEAD~1:src/phase_1.py") == "phase = 1\n"
    assert hooked.git("status", "--porcelain") == ""


def test_what_a_person_took_back_after_a_hook_is_done_again(hooked):
    plant(hooked, "pre-commit", f'#!/bin/sh\ntest -e "{hooked.outside}/fine"\n')
    assert hooked.doit("work", "--goal=x").returncode == 1
    (hooked.root / "src/phase_1.py").unlink()
    hooked.git("checkout", "-q", "--", "specs")
    hooked.forget_calls()
    (hooked.outside / "fine").touch()

    done = hooked.doit("work")

    assert (done.returncode, hooked.calls()) == (0, ["build:1", "build:2"]), done.stdout + done.stderr


def test_one_phase_is_adopted_alone_as_the_hint_says(hooked):
    plant(hooked, "pre-commit", STRICT)
    done = hooked.doit("work", "--goal=x")
    assert "doflow adopt build:1" in done.stdout
    hooked.write("src/phase_1.py", "phase = 1\n")
    hooked.git("add", "src/phase_1.py")
    hooked.git("commit", "-q", "-m", "Mine")
    hooked.forget_calls()

    adopted = hooked.doflow("adopt", "build:1")

    assert (adopted.returncode, hooked.calls()) == (0, []), adopted.stderr
    done = hooked.doit("work")
    assert (done.returncode, hooked.calls()) == (0, ["build:2"]), done.stdout + done.stderr
    assert hooked.read("src/phase_1.py") == "phase = 1\n"
    assert hooked.git("status", "--porcelain") == ""


def test_a_phase_that_no_one_did_is_not_adopted_by_the_way(hooked):
    plant(hooked, "pre-commit", STRICT)
    assert hooked.doit("work", "--goal=x").returncode == 1

    refused = hooked.doflow("adopt", "build:2")
    whole = hooked.doflow("adopt", "build")

    assert (refused.returncode, whole.returncode) == (1, 1)
    assert "build:2 has not run yet" in refused.stderr
    assert "build:1, build:2 marked as done without having run" in whole.stderr
    assert "has no phase 7 (it has: 1, 2)" in hooked.doflow("adopt", "build:7").stderr


def test_a_hook_that_an_agent_wrote_is_not_started(hooked):
    hooked.git("config", "core.hooksPath", ".githooks")
    plant(hooked, "pre-commit", PRE.format(log=hooked.outside / "hook.log"), ".githooks")
    hooked.git("add", "-A")
    hooked.git("commit", "-q", "--no-verify", "-m", "Hooks")
    hooked.agent("""
        if phase == "1":
            put(".githooks/pre-commit", f"#!/bin/sh\\ntouch {outside}/canary\\n")
        usual()
        """)

    done = hooked.doit("work", "--goal=x")

    assert done.returncode == 1
    assert "the hooks have changed since the run started: .githooks/pre-commit" in done.stdout
    assert not (hooked.outside / "canary").exists()
    assert hooked.subjects()[-1] == "tasks: tasks.md"


def test_a_person_who_changed_a_hook_says_so_once(hooked):
    assert hooked.doit("work:tasks", "--goal=x").returncode == 0
    plant(hooked, "pre-commit", "#!/bin/sh\nexit 0\n")

    refused = hooked.doit("work")

    assert refused.returncode == 1
    assert "rm .doflow/runs/001-x/hooks.json" in refused.stdout
    (hooked.root / ".doflow/runs/001-x/hooks.json").unlink()
    assert hooked.doit("work").returncode == 0


def test_without_it_no_hook_runs(hooked):
    hooked.settings()
    hooked.git("commit", "-q", "-a", "--no-verify", "-m", "Settings")

    assert hooked.doit("work", "--goal=x").returncode == 0
    assert seen(hooked) == []
