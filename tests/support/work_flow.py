"""A flow called `work` with the steps of a test."""

from __future__ import annotations

from tests.support.project import Project


def flow(project: Project, steps: str, head: str = "") -> Project:
    """A flow called `work` with these steps, committed."""
    lines = "\n".join(f"  {line}" for line in steps.strip("\n").splitlines())
    project.write("flows/work.yaml", f"flow: work\n{head or 'defaults: {retry: {attempts: 0}}'}\nsteps:\n{lines}\n")
    project.commit("A flow")
    return project


def works(project: Project, *words: str, code: int = 0) -> str:
    done = project.doit("work", *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def kept_aside(project: Project) -> str:
    """Everything in quarantine, as one text."""
    folder = project.root / ".doflow" / "quarantine"
    return "\n".join(path.read_text(errors="replace") for path in sorted(folder.rglob("*")) if path.is_file())
