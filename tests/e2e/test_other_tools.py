"""A project of another tool, as its users have it: `doflow init`, then one command does its list."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.other_tools import TOOLS, OtherTool, make_project
from tests.support.project import Project


def foreign_files(project: Project, tool: OtherTool) -> dict[str, str]:
    """The files that the other tool had, by their text."""
    return {path: text.decode() for path, text in project.tree().items() if path in tool.files}


def added_beside(project: Project, tool: OtherTool) -> set[str]:
    """The names of new files in the folders of the other tool."""
    folders = {str(Path(path).parent) for path in tool.files} - {"."}
    return {Path(path).name for path in {*project.tree()} - {*tool.files} if str(Path(path).parent) in folders}


def coding(project: Project) -> tuple[str, ...]:
    return tuple(line for line in project.calls() if " persona " not in line)


def code_commits(project: Project, start: str) -> list[str]:
    """The commits with code since the start, oldest first: the files below src/ that each adds."""
    log = project.git("log", "--reverse", "--format=", "--name-only", "--diff-filter=A", f"{start}..", "--", "src")
    commits = project.git("rev-list", "--reverse", f"{start}..", "--", "src").split()
    assert len(commits) == len(log.split()), "one file of code in each of these commits"
    return log.split()


def file_of(call: str) -> str:
    step, _, phase = call.partition(":")
    return f"src/{step}_{phase or 'whole'}.py".replace("-", "_")


@pytest.mark.smoke("spec-kit-whole")
@pytest.mark.parametrize("halfway", [False, True], ids=["whole", "halfway"])
@pytest.mark.parametrize("name", TOOLS)
def test_one_command_does_the_list_of_another_tool(tmp_path: Path, name: str, halfway: bool) -> None:
    tool = TOOLS[name]
    project = make_project(tmp_path, tool, halfway)
    expected = tool.rest if halfway else tool.calls
    start = project.git("rev-parse", "HEAD").strip()

    done = project.doit(*tool.command)

    assert done.returncode == 0, done.stdout + done.stderr
    assert coding(project) == expected
    assert len(project.calls()) == len(expected) + (3 if tool.reviewed else 0), "and one review"
    assert code_commits(project, start) == [file_of(call) for call in expected]
    assert foreign_files(project, tool) == {**tool.files, **tool.finished}
    assert added_beside(project, tool) <= {"doflow.lock"}
    assert project.git("status", "--porcelain") == ""

    before, head = project.tree(), project.git("rev-parse", "HEAD")
    project.forget_calls()
    again = project.doit(*tool.command)

    assert (again.returncode, project.calls()) == (0, []), again.stdout + again.stderr
    assert "nothing to do" in again.stdout
    assert (project.tree(), project.git("rev-parse", "HEAD")) == (before, head)


def test_a_list_on_the_branch_that_spec_kit_made_stays_on_it(tmp_path: Path) -> None:
    tool = TOOLS["spec-kit"]
    project = make_project(tmp_path, tool)
    project.git("switch", "-q", "-c", "001-sign-in")
    project.commit("On the branch of the feature")

    done = project.doit("implement")

    assert (done.returncode, coding(project)) == (0, tool.calls), done.stdout + done.stderr
    assert project.git("branch", "--format=%(refname:short)").split() == ["001-sign-in", "main"]


def test_a_finished_list_that_is_named_calls_no_one_not_even_reviewers(tmp_path: Path) -> None:
    tool = TOOLS["openspec"]
    project = make_project(tmp_path, replace(tool, files={**tool.files, **tool.finished}))
    path = "openspec/changes/add-sign-in/tasks.md"

    done = project.doit("implement", f"--tasks={path}")

    assert (done.returncode, project.calls()) == (0, []), done.stdout + done.stderr
    assert "review: no task was open, so there is nothing to review" in done.stdout
    assert project.git("status", "--porcelain") == ""
    again = project.doit("implement", f"--tasks={path}")
    assert (again.returncode, project.calls()) == (0, [])
    assert "nothing to do" in again.stdout

    (project.root / path).write_text(f"{project.read(path)}\n## 3. More\n\n- [ ] 3.1 More\n")
    more = project.doit("implement", f"--tasks={path}")

    assert (more.returncode, coding(project)) == (0, ("code:3",)), more.stdout + more.stderr
    assert len(project.calls()) == 4, "what was added is reviewed"


@pytest.mark.parametrize("folder", ["007-search", "20260102-030405-search"], ids=["number", "date"])
def test_a_new_run_skips_the_folders_of_spec_kit(project: Project, folder: str) -> None:
    project.write(f"specs/{folder}/spec.md", "# Search\n")
    project.commit("A folder of another tool")

    assert project.doit("tiny", "--goal=Sign in").returncode == 0

    new = "008-sign-in" if folder.startswith("007") else "001-sign-in"
    assert project.runs() == sorted([folder, new])
    assert [path.name for path in project.run_dir(folder).iterdir()] == ["spec.md"]
