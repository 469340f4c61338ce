"""The hook that an agent's program asks before it writes: refusals in words, and nothing passes that is not understood."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import doflow.hooks
from doflow.hooks import write_guard

DOOR = Path(doflow.hooks.__file__).parent / "entry.py"


@pytest.fixture
def scope(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for path in ("src/app.py", "specs/001/plan.md", "PRD.md"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    (root / "way").symlink_to("src")
    told = {
        "root": str(root), "step": "plan", "makes": ["specs/001/plan.md"], "writes": ["/docs/**"],
        "protect": ["PRD.md", "/flows/"], "earlier": ["specs/001/spec.md"],
    }  # fmt: skip
    path = tmp_path / "scope.json"
    path.write_text(json.dumps(told))
    return path


def ask(scope: Path, payload: object, *, raw: bytes | None = None) -> tuple[int, str]:
    data = json.dumps(payload).encode() if raw is None else raw
    argv = (sys.executable, "-I", "-S", str(DOOR), "write", "--scope", str(scope))
    done = subprocess.run(argv, input=data, capture_output=True, timeout=30, check=False)
    if done.returncode:
        return done.returncode, done.stderr.decode()
    said = json.loads(done.stdout)["hookSpecificOutput"] if done.stdout else {}
    assert said.get("permissionDecision", "deny") == "deny"
    return 0, said.get("permissionDecisionReason", "")


def call(tool: str, scope: Path, **given: object) -> dict[str, object]:
    return {
        "hook_event_name": "PreToolUse",
        "cwd": json.loads(scope.read_text())["root"],
        "tool_name": tool,
        "tool_input": given,
    }


@pytest.mark.parametrize(
    "path", ["specs/001/plan.md", "docs/a/b.md", "./specs/../specs/001/plan.md", "{root}/docs/x.md", "/tmp/scratch.txt"]
)
def test_what_the_step_may_write_passes(scope, path):
    root = json.loads(scope.read_text())["root"]
    assert ask(scope, call("Write", scope, file_path=path.replace("{root}", root), content="x")) == (0, "")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("src/app.py", "src/app.py is outside the allowed paths of step plan (specs/001/plan.md, /docs/**)"),
        ("docs/../src/app.py", "src/app.py is outside"),
        ("way/app.py", "src/app.py is outside"),
        ("prd.MD", "is protected"),
        ("docs/PRD.md", "is protected"),
        ("flows/evil.yaml", "is protected"),
        ("specs/001/spec.md", "is protected"),
        (".git/hooks/post-commit", "belongs to git: steps must not change it"),
        ("docs/lib/.GIT/config", "belongs to git"),
        ("../other/x", "is outside the project"),
        ("~/.bashrc", "is outside the project"),
        ("/etc/passwd", "is outside the project"),
    ],
)
def test_what_it_may_not_is_refused_with_a_reason(scope, path, words, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")  # whoever runs this may have one in /tmp
    if "outside the project" in words and str(tmp_path).startswith("/tmp/") and path.startswith(".."):
        pytest.skip("the tests themselves run in /tmp, where notes may be written")
    code, reason = ask(scope, call("Edit", scope, file_path=path, old_string="x", new_string="y"))

    assert code == 0 and reason.startswith(write_guard.MARK) and words in reason


def test_every_file_of_a_patch_is_looked_at(scope):
    patch = "*** Begin Patch\n*** Add File: docs/a.md\n+x\n*** Update File: src/app.py\n@@\n-x\n+y\n*** End Patch\n"

    assert "src/app.py is outside" in ask(scope, call("apply_patch", scope, command=patch))[1]
    assert ask(scope, call("apply_patch", scope, command=patch.replace("src/app.py", "docs/b.md"))) == (0, "")
    moved = patch.replace("src/app.py", "docs/b.md\n*** Move to: src/new.py")
    assert "src/new.py is outside" in ask(scope, call("apply_patch", scope, command=moved))[1]


@pytest.mark.parametrize("command", ["git commit -am x", "cd x && git -C . push", "ls; git stash", "git checkout main"])
def test_git_that_would_be_undone_is_refused_at_once(scope, command):
    assert "doflow commits a step's changes itself" in ask(scope, call("Bash", scope, command=command))[1]


@pytest.mark.parametrize("command", ["git status", "git stash list", "git log -3", "grep -r 'git commit' .", "make"])
def test_other_commands_pass(scope, command):
    assert ask(scope, call("Bash", scope, command=command)) == (0, "")


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"tool_name": 1, "tool_input": {}}', b'{"tool_name": "Write"}',
            b'{"tool_name": "Write", "tool_input": {"content": "x"}}', b"[" * 100_000],
)  # fmt: skip
def test_what_is_not_understood_is_refused(scope, raw):
    code, said = ask(scope, None, raw=raw)

    assert code == 2 and "could not check this call, so it is refused" in said


def test_without_its_scope_everything_is_refused(scope):
    payload = call("Write", scope, file_path="docs/x.md", content="x")
    scope.unlink()

    assert ask(scope, payload)[0] == 2


def test_a_question_that_never_ends_is_refused_in_time(scope, monkeypatch):
    argv = (sys.executable, "-I", "-S", "-c", (
        f"import sys; sys.path.append({str(DOOR.parent.parent.parent)!r}); from doflow.hooks import write_guard as write; "
        f"write.DEADLINE = 1; sys.exit(write.run(['--scope', {str(scope)!r}]))"
    ))  # fmt: skip
    hook = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert hook.wait(timeout=60) == 2
    hook.communicate()
