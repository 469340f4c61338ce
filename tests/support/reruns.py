"""Finished runs of small flows, to be run again."""

from __future__ import annotations

from tests.support.project import Project

CHAIN = """
    flow: chain
    params: {goal: {required: true}}
    defaults: {retry: {attempts: 0}}
    steps:
      one: {prompt: one.md, reads: [input.md], makes: one.md}
      two: {prompt: Write two., reads: [one.md], makes: two.md}
      three: {prompt: Write three., reads: [two.md], makes: three.md}
"""


WORK = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      tasks: {prompt: List the tasks., makes: tasks.md}
      implement: {kind: implement, phases: tasks.md, prompt: Do it.}
"""


#: an agent whose code changes with the tasks of the phase
CODES = 'usual()\nif phase: put(f"src/phase_{phase}.py", f"TASKS = {prompt!r}\\n")'


def chain(project: Project, flow: str = CHAIN, script: str = "echo()") -> Project:
    """A finished run of three steps, each of which reads what the one before it made."""
    project.flow("chain", flow)
    project.write("flows/prompts/one.md", "Write one.\n")
    project.agent(script)
    project.commit("A flow")
    done = project.doit("chain", "--goal=Say it")
    assert done.returncode == 0, done.stdout + done.stderr
    project.forget_calls()
    return project


def work(project: Project, tasks: str = "") -> Project:
    """A finished run of a task list and its phases."""
    project.flow("work", WORK)
    project.commit("A flow")
    if tasks:
        project.agent(f"make({tasks!r}) if step == 'tasks' else usual()")
    done = project.doit("work")
    assert done.returncode == 0, done.stdout + done.stderr
    project.forget_calls()
    return project


def again(project: Project, *words: str, code: int = 0) -> list[str]:
    """Runs the flow once more; gives the calls that it made."""
    project.forget_calls()
    done = project.doit(*(words or ("chain",)))
    assert done.returncode == code, done.stdout + done.stderr
    return project.calls()


def edit(project: Project, name: str, more: str = "\nBy hand.\n") -> str:
    path = project.run_dir() / name
    path.write_text(path.read_text() + more)
    return path.read_text()
