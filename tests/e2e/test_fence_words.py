"""What a person is told when an agent modified files outside its scope: whether that could be allowed, and by whom."""

from __future__ import annotations

import pytest
from tests.support.project import Project

FLOW = """
    flow: work
    steps:
      one: {prompt: Write., makes: one.md}
      two: {prompt: Write., makes: two.md, writes: [/docs/**]}
"""
NEVER = "is always protected"


@pytest.mark.smoke("lib/.git-is always protected")
@pytest.mark.parametrize(
    ("path", "words"),
    [
        (".git/hooks/post-commit", NEVER),
        ("doflow.yaml", NEVER),
        (".claude/settings.json", NEVER),
        ("specs/001-x/input.md", NEVER),
        ("lib/.git", NEVER),
        ("specs/001-x/one.md", "is an artifact of one: doflow reject one --note"),
        ("PRD.md", "is listed under `protect:`; remove it there"),
        ("src/app.py", "add src/app.py to `writes:` of the step to allow it"),
    ],
)
def test_a_path_that_was_refused_is_told_with_the_way_there_is(path: str, words: str, project: Project) -> None:
    project.flow("work", FLOW)
    project.settings("protect: [PRD.md]\n")
    project.agent(f"usual()\nif step == 'two': put({path!r}, 'x')")
    project.commit("A flow")

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1
    assert f"two modified files outside its scope: {path}" in done.stdout
    told = [line for line in done.stdout.splitlines() if path in line and "outside its scope" not in line]
    assert any(words in line for line in told), done.stdout
    assert ("`writes:`" in done.stdout) is (path == "src/app.py"), "no hint at what would not help"


@pytest.mark.smoke
def test_each_kind_of_path_has_its_line(project: Project) -> None:
    project.flow("work", FLOW)
    project.agent("usual()\nfor path in ('a.txt', 'b.txt', 'dodo.py'): put(path, 'x') if step == 'two' else None")
    project.commit("A flow")

    done = project.doit("work", "--goal=x")

    assert "two modified files outside its scope: a.txt, b.txt, dodo.py" in done.stdout
    assert f"dodo.py {NEVER}" in done.stdout and "add a.txt to `writes:`" in done.stdout
    assert "specs/001-x/two.md passed its checks: doflow adopt two" in done.stdout


def test_a_file_of_a_submodule_is_told_as_what_no_step_changes(project: Project) -> None:
    project.flow("work", FLOW)
    inner = project.root / "lib"
    inner.mkdir()
    project.git("init", "-q", cwd=inner)
    (inner / "a.py").write_text("x = 1\n")
    project.git("add", "-A", cwd=inner)
    project.git("-c", "user.name=T", "-c", "user.email=t@e", "commit", "-q", "-m", "a", cwd=inner)
    project.agent("usual()\nif step == 'two': put('lib/a.py', 'x')")
    project.commit("A flow")

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1
    assert "lib/a.py is in a nested repository, which steps may not change" in done.stdout, done.stdout
    assert "`writes:`" not in done.stdout


BOTH = """
import time
if step == "a":
    put("src/stray.py", "x")
(outside / f"{step}.there").touch()
while not all((outside / f"{other}.there").exists() for other in "ab"):
    time.sleep(0.01)
usual()
"""


def test_a_stray_of_steps_at_work_together_is_blamed_on_none_of_them_alone(project: Project) -> None:
    project.flow(
        "work", "flow: work\nsteps:\n  a: {prompt: A, makes: a.md}\n  b: {prompt: B, makes: b.md, after: []}\n"
    )
    project.agent(BOTH)

    done = project.doit("-n", "2", "--continue", "work", "--goal=x")

    assert done.returncode == 1, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "a, or a step running in parallel (b), modified files outside its scope: src/stray.py" in said
    assert "b, or a step running in parallel (a), modified files outside its scope: src/stray.py" in said
