"""Projects as a released doflow left them on disk, in files: how they are recorded, and how a test gets one back.

    python -m venv /tmp/doflow-recorded/venv
    /tmp/doflow-recorded/venv/bin/pip install doflow==0.1.0
    /tmp/doflow-recorded/venv/bin/python -m tests.support.record 0.1.0                record them all
    /tmp/doflow-recorded/venv/bin/python -m tests.support.record 0.1.0 gate limited   only these
    project = record.restored("0.1.0", "gate", tmp_path)

A record is the project's folder as it was, with `.git` (refs, index, doflow's own stores) and `.doflow/`. It was made below
`/tmp/doflow-recorded`, where doflow was installed, too; nothing in it depends on that place. What lies outside of a
project is not in it: the home, and the agent, which the project knows by its name on PATH alone (`scripted-agent`).

The records of a version are made once, when it is released, and never again: later versions must be able to go on from them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from tests.support import crash, prd, script
from tests.support.project import PROGRAMS, Project, Started, eventually

PLACE = Path("/tmp/doflow-recorded")
RECORDS = Path(__file__).parent.parent / "recorded"
SETTINGS = "agents:\n  default: {use: command, argv: [scripted-agent]}\n"

FLOW = """
    flow: work
    about: One step of every kind.
    params: {goal: {about: What to build, required: true}}
    defaults: {retry: {attempts: 0}}
    steps:
      spec:   {prompt: Say what is wanted., reads: [input.md], makes: spec.md, clarify: true,
               check: {headings: [Requirements]}}
      plan:   {prompt: Plan it., reads: [spec.md], makes: plan.md, gate: Approve the plan?}
      tasks:  {prompt: List the work., reads: [plan.md], makes: tasks.md, check: {tasks: true}}
      build:  {kind: implement, phases: tasks.md, reads: [plan.md], prompt: Do the phase.,
               check: {run: [sh, -c, "touch ~/checking; while test -e ~/wait; do sleep 0.05; done; test -d src"]}}
      review: {kind: review, reads: [plan.md], personas: [ann, bob]}
      test:   {kind: shell, run: [sh, -c, "test -f src/phase_2.py"]}
"""
#: a good agent for that flow; `before` runs first
AGENT = """
def work():
    if role == "persona":
        say("Nothing to say.\\nVERDICT: GO")
    else:
        usual()

{before}
work()
"""
IN_FLIGHT = """
if {when}:
    put("src/half.py", "HALF = ")
    (outside / "ready").touch()
    time.sleep(600)
"""
LIMITED = """
if step == "tasks":
    make("half of it")
    say("RESUME-AT: " + time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + 2)))
    stop(75)
"""
ASKING = """
if step == "spec":
    make("# Spec\\n\\n## Requirements\\n\\n- It is [NEEDS CLARIFICATION: which colour?].\\n")
    stop(0)
"""
PIPELINE = """\
// The login, as it was drawn.
digraph auth {
    graph [prd_ref="PRD-AUTH-001" label="Log in by a link"];
    start [shape=Mdiamond];
    build [shape=box bead_id="A-1" worker_type="backend" acceptance="ok.txt says yes"];
    check [shape=hexagon command="grep yes ok.txt"];
    good  [shape=diamond];
    exit  [shape=Msquare];
    start -> build -> check -> good;
    good -> exit  [condition="pass"];
    good -> build [condition="fail"];
}
"""


def agent(before: str = "") -> str:
    return AGENT.format(before=before)


def pipeline_agent(before: str = "") -> str:
    return f'{before}\nput("ok.txt", "yes\\n" if step == "build-2" else "no\\n")\nsay("built")\n'


def restored(version: str, name: str, tmp_path: Path, *, moved: bool = False) -> Project:
    """The recorded project in a folder of the test; its agent does what a good agent does, and has logged no call.

    Every file is new here. With `moved` that is how it stays: whatever a killed agent left may be a person's by now. Else the
    killed agents died after their files were written, as they did where they were recorded.
    """
    project = Project(tmp_path, git=False)
    shutil.rmtree(project.root)
    with tarfile.open(RECORDS / version / f"{name}.tar.gz") as archive:
        archive.extractall(project.root, filter="tar")
    for log in () if moved else project.root.glob(".doflow/runs/*/logs/*.log"):
        os.utime(log)
    _agent_on_path(project)
    project.agent(agent())
    return project


def _agent_on_path(project: Project) -> None:
    folder = project.outside / "bin"
    folder.mkdir()
    program = folder / "scripted-agent"
    program.write_text(f"#!/bin/sh\nexec {shlex.join((sys.executable, *project.agent_program()))}\n")
    program.chmod(0o755)
    project.env["PATH"] = f"{folder}{os.pathsep}{project.env['PATH']}"


# --- what is recorded -------------------------------------------------------------------------------------------------


def finished(project: Project) -> None:
    """The packaged flow `tiny`, done."""
    _ends(project.doit("tiny", "--goal=Log in by a link"), 0)


def finished_feature(project: Project) -> None:
    """The packaged flow `feature` with its reviews, done."""
    project.agent(script.good())
    _ends(project.doit("feature", "--goal=Log in by a link", "--auto-approve"), 0)


def gate(project: Project) -> None:
    """Paused at the gate behind the plan."""
    _ends(project.doit("work", "--goal=Log in by a link"), 2)


def killed_after_return(project: Project) -> None:
    """Killed while the result of phase 2 was being checked: the agent has returned, nothing of it is committed."""
    gate(project)
    _ends(project.doflow("approve"), 0)
    project.agent(agent('if phase == "2": (pathlib.Path.home() / "wait").touch()\n'))
    running = project.start("doit", "work")
    assert eventually((project.home / "wait").exists)
    (project.home / "checking").unlink(missing_ok=True)
    assert eventually((project.home / "checking").exists)
    _kill(project, running)


def killed_in_flight(project: Project) -> None:
    """Killed while the agent of phase 2 was at work: half a file lies in the tree."""
    gate(project)
    _ends(project.doflow("approve"), 0)
    project.agent(agent(IN_FLIGHT.format(when='phase == "2"')))
    running = project.start("doit", "work")
    assert eventually((project.outside / "ready").exists)
    _kill(project, running)


def killed_before_commit(project: Project) -> None:
    """Killed when the event log said that phase 2 is about to be committed, before it was."""
    _killed_at_intent(project, "Phase 1: Ground")


def killed_after_commit(project: Project) -> None:
    """Killed when phase 2 was committed, before the event log said that it is done."""
    _killed_at_intent(project, "Phase 2: House")


def _killed_at_intent(project: Project, newest: str) -> None:
    gate(project)
    _ends(project.doflow("approve"), 0)
    shutil.copytree(project.root, project.outside / "before", symlinks=True)
    for point in (*range(20, 60),) * 5:  # the points of two runs may differ by one
        shutil.rmtree(project.root)
        shutil.copytree(project.outside / "before", project.root, symlinks=True)
        words = (str(PROGRAMS / "python"), crash.__file__, "records", str(point), "work")
        done = subprocess.run(words, cwd=project.root, env=project.env, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stdout + done.stderr
        assert crash.none_left(project.home) == {}
        last = project.events()[-1]
        if (last["event"], last.get("phase"), project.subjects()[-1]) == ("intent", "2", newest):
            return
    raise AssertionError("there is no such point")


def limited(project: Project) -> None:
    """The third step met a used-up quota, whose time has come since."""
    gate(project)
    _ends(project.doflow("approve"), 0)
    project.agent(agent(LIMITED))
    _ends(project.doit("work"), 3)


def asked(project: Project) -> None:
    """Paused at a question of the spec."""
    project.agent(agent(ASKING))
    _ends(project.doit("work", "--goal=Log in by a link"), 2)


def answered(project: Project) -> None:
    """The question of the spec is answered; nothing has run since."""
    asked(project)
    _ends(project.doflow("answer", "Blue"), 0)


def adopted(project: Project) -> None:
    """The spec and the plan were edited by hand; the plan was in the way of its own step and is adopted."""
    gate(project)
    _ends(project.doflow("approve"), 0)
    for name in ("spec.md", "plan.md"):
        path = project.run_dir() / name
        path.write_text(path.read_text() + "\nA line of mine.\n")
    _ends(project.doit("work"), 2)
    _ends(project.doflow("adopt", "plan"), 0)


def session(project: Project) -> None:
    """A session of the packaged flow `prd` (`layout: plan`), interrupted while its second subtask was at work."""
    project.write("PRD.md", prd.REQUIREMENTS)
    project.commit("Say what is wanted")
    project.agent(prd.good(before="import time\n" + IN_FLIGHT.format(when='phase == "P1.M1.T1.S2"')))
    running = project.start("doit", "prd")
    assert eventually((project.outside / "ready").exists)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130
    assert crash.none_left(project.home) == {}


def bugfix_session(project: Project) -> None:
    """A session that found a bug; killed while the subtask of its bug-fix session was at work."""
    project.write("PRD.md", prd.REQUIREMENTS)
    project.commit("Say what is wanted")
    project.agent(
        prd.good(bugs=1, before="import time\n" + IN_FLIGHT.format(when='phase and "bugfix" in run_dir.parts'))
    )
    running = project.start("doit", "prd")
    assert eventually((project.outside / "ready").exists)
    _kill(project, running)


def pipeline(project: Project) -> None:
    """A DOT pipeline whose check failed once; killed while the second try was at work."""
    project.write("doflow.yaml", SETTINGS + "pipelines: {auth: pipelines/auth.dot}\n")
    project.write("pipelines/auth.dot", PIPELINE)
    project.commit("A pipeline")
    project.agent(pipeline_agent(IN_FLIGHT.format(when='step == "build-2"')))
    running = project.start("doit", "auth")
    assert eventually((project.outside / "ready").exists)
    _kill(project, running)


STORIES: tuple[Callable[[Project], None], ...] = (
    finished, finished_feature, gate, killed_in_flight, killed_after_return, killed_before_commit, killed_after_commit,
    limited, asked, answered, adopted, session, bugfix_session, pipeline,
)  # fmt: skip


def _ends(done: subprocess.CompletedProcess[str], code: int) -> None:
    assert done.returncode == code, done.stdout + done.stderr


def _kill(project: Project, running: Started[str]) -> None:
    running.kill()
    running.wait(60)
    assert crash.none_left(project.home) == {}


# --- how it is recorded -----------------------------------------------------------------------------------------------


def record(version: str, story: Callable[[Project], None]) -> Path:
    name = story.__name__.replace("_", "-")
    shutil.rmtree(PLACE / name, ignore_errors=True)
    project = Project(PLACE / name, git=False)
    _agent_on_path(project)
    project.write("doflow.yaml", SETTINGS)
    project.flow("work", FLOW)
    project.git("init", "-q", "-b", "main", "--template=")
    project.commit("Begin")
    project.agent(agent())
    story(project)
    for folder in project.root.rglob("__pycache__"):
        shutil.rmtree(folder)
    _names_no_machine(project.root)
    target = RECORDS / version / f"{name}.tar.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:gz") as archive:
        archive.add(project.root, ".", filter=_no_one)
    shutil.rmtree(PLACE / name)
    return target


def _no_one(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _names_no_machine(root: Path) -> None:
    """No path of the one who records stands in a file."""
    names = {str(Path(__file__).parents[2]), str(Path.home())} - {"/", "/root"}
    for path in root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found = [name for name in names if name.encode() in data]
            assert not found, (path, found)


def main() -> None:
    version, *names = sys.argv[1:]
    for story in STORIES:
        if not names or story.__name__.replace("_", "-") in names:
            target = record(version, story)
            print(f"{target.stat().st_size:8} {target.relative_to(RECORDS.parent.parent)}", flush=True)


if __name__ == "__main__":
    main()
