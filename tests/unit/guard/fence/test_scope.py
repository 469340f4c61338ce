"""What a job may write: the rules, path by path."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.context import new_context, new_job, write

from doflow.flow.markdown import Phase
from doflow.guard.fence.scope import Scope, is_git_file
from doflow.runs.lockfile import Artifact

ONE = "specs/001-login/one.md"
FLOW = """
    flow: tiny
    protect: [/PRD.md]
    steps:
      one: {prompt: Write., makes: one.md, writes: [/src/**], protect: [/src/keep.py]}
      implement: {kind: implement, phases: tasks.md, prompt: Do.}
"""


@pytest.fixture
def context(tmp_path):
    return new_context(tmp_path, FLOW, "protect: [/LICENSE]\n")


@pytest.fixture
def scope(context):
    return Scope(new_job(context), context)


@pytest.mark.parametrize(
    ("path", "allowed", "bar"),
    [
        (ONE, True, ""),
        ("src/a.py", True, ""),
        ("src/deep/b.py", True, ""),
        ("src/keep.py", False, "protect"),
        ("README.md", False, "writes"),
        ("specs/001-login/two.md", False, "writes"),
        ("PRD.md", False, "protect"),
        ("LICENSE", False, "protect"),
        ("specs/001-login/input.md", False, "always"),
        ("specs/001-login/doflow.lock", False, "always"),
        ("doflow.yaml", False, "always"),
        ("flows/tiny.yaml", False, "always"),
        (".doflow/runs/x", False, "always"),
        (".git/config", False, "always"),
        ("src/.GIT/config", False, "always"),
        ("refs/doflow/x", False, "always"),
    ],
)
def test_each_path_is_allowed_or_barred_for_its_reason(scope, path, allowed, bar):
    assert scope.allows(path) is allowed
    assert allowed or scope.bar(path) == bar


def test_what_an_earlier_step_made_is_not_for_a_later_one(context):
    context.record.add_artifacts({ONE: Artifact("1", "agent", "one"), "src/made.py": Artifact("2", "agent", "zero")})
    scope = Scope(new_job(context), context)

    assert scope.allows(ONE)
    assert (scope.allows("src/made.py"), scope.bar("src/made.py")) == (False, "made")


def test_a_fixer_may_change_what_it_is_to_fix(context):
    context.record.add_artifacts({"src/made.py": Artifact("2", "agent", "zero")})
    job = replace(new_job(context), repairs=frozenset({"src/made.py"}))

    assert Scope(job, context).allows("src/made.py")


def test_a_phase_may_write_everything_but_what_is_protected(context, tmp_path):
    write(tmp_path, "specs/001-login/tasks.md", "## Phase 1: A\n")
    context.record.add_artifacts({
        "specs/001-login/tasks.md": Artifact("1", "agent", "tasks"), ONE: Artifact("1", "agent", "one"),
    })  # fmt: skip
    job = replace(new_job(context, "implement"), writes=None, phase=Phase("1", "A", "", 1))
    scope = Scope(job, context)
    paths = ("README.md", "src/keep.py", "specs/001-login/tasks.md", ONE, "PRD.md", "LICENSE", ".git/HEAD", "dodo.py")

    assert [path for path in paths if scope.allows(path)] == ["README.md", "src/keep.py", "specs/001-login/tasks.md"]


def test_a_path_is_named_by_makes_or_writes_and_not_by_everything(context):
    job = new_job(context)

    assert [Scope(job, context).names(path) for path in (ONE, "src/a.py", "x")] == [True, True, False]
    assert not Scope(replace(job, writes=None), context).names("src/a.py")


@pytest.mark.parametrize(
    ("path", "inside"), [(".git", True), ("a/.Git/b", True), (".github/x", False), ("git/x", False)]
)
def test_git_folders_are_known_in_any_case(path, inside):
    assert is_git_file(path) is inside
