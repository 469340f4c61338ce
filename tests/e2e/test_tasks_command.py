"""`doflow tasks`: what it prints of a list, and what it says of a file that is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KIRO = """\
# Plan

- [ ] 1. Store entries
  - [x] 1.1 Create `src/store.ts`
  - [ ]* 1.2 Write property tests
- [ ] 2. Show them
  - [ ] 2.1 Draw a list, each with a very long description that does not fit into a line of a terminal
  - [ ] 2.1 Sort it
"""


def doflow(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("doflow")
    return subprocess.run(
        (program, "tasks", *words), cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.smoke
def test_show_prints_the_phases_and_json_holds_them(tmp_path: Path) -> None:
    (tmp_path / "tasks.md").write_text(KIRO)

    shown, as_json = doflow(tmp_path, "show", "tasks.md"), doflow(tmp_path, "show", "tasks.md", "--json")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == (
        "tasks.md  (kiro: 2 phases, 1 of 6 tasks done)\n"
        "\n"
        "Phase 1: Store entries  (1 done, 1 open, 1 optional)\n"
        "  [ ] 1 Store entries\n"
        "  [x] 1.1 Create `src/store.ts`\n"
        "  [ ] 1.2 (optional) Write property tests\n"
        "\n"
        "Phase 2: Show them  (3 open)\n"
        "  [ ] 2 Show them\n"
        "  [ ] 2.1 Draw a list, each with a very long description that does not fit into…\n"
        "  [ ] 2.1 Sort it\n"
        "\n"
        "warning: tasks.md:8: duplicate task ID 2.1 (first on line 7, in the same phase)\n"
    )
    assert as_json.returncode == 0
    read = json.loads(as_json.stdout)
    assert list(read) == ["style", "phases", "problems"]
    assert [(phase["number"], phase["title"], phase["done"]) for phase in read["phases"]] == [
        ("1", "Store entries", True),
        ("2", "Show them", False),
    ]
    plain = {"optional": False, "parallel": False, "depends": []}
    assert read["phases"][0]["tasks"][:2] == [
        {"id": "1", "text": "Store entries", "done": False, "files": [], "line": 3, "head": True, **plain},
        {"id": "1.1", "text": "Create `src/store.ts`", "done": True, "files": ["src/store.ts"], "line": 4, **plain},
    ]
    assert read["problems"] == [{"line": 8, "message": "duplicate task ID 2.1 (first on line 7, in the same phase)"}]


def test_check_takes_any_form_and_strict_only_ours(tmp_path: Path) -> None:
    (tmp_path / "kiro.md").write_text(KIRO)
    (tmp_path / "ours.md").write_text("\ufeff## Phase 1: A\r\n- [ ] [T001] a\r\n")

    results = [
        doflow(tmp_path, "check", *words) for words in (("kiro.md",), ("kiro.md", "--strict"), ("ours.md", "--strict"))
    ]

    assert [done.returncode for done in results] == [0, 1, 0]
    assert results[0].stdout == (
        "warning: kiro.md:8: duplicate task ID 2.1 (first on line 7, in the same phase)\n"
        "ok  kiro.md  (kiro, 2 phases, 6 tasks)\n"
    )
    assert "kiro.md:3: a task is `- [ ] [T001] text`, this is `- [ ] 1. Store entries`\n" in results[1].stdout
    assert results[1].stdout.endswith("problems in kiro.md\n")
    assert results[2].stdout == "ok  ours.md  (strict, 1 phase, 1 task)\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.md", "none.md: No such file or directory"),
        ("folder", "folder is a folder, not a task list"),
        ("fifo", "fifo is not a regular file"),
        ("nul.md", "nul.md is not a text file in UTF-8"),
        ("binary.md", "binary.md is not a text file in UTF-8"),
        ("huge.md", "huge.md is too large for a task list: 60,000,000 bytes, at most 50,000,000"),
        ("words.md", "words.md:1: not a task list: no box: a task is `- [ ] text`"),
        ("empty.md", "empty.md:1: not a task list: the file is empty"),
    ],
)
def test_what_is_not_a_list_is_one_clear_error(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "nul.md").write_bytes("- [ ] a".encode("utf-16"))
    (tmp_path / "binary.md").write_bytes(bytes(range(1, 256)))
    (tmp_path / "words.md").write_text("words\n")
    (tmp_path / "empty.md").write_text("")
    with (tmp_path / "huge.md").open("wb") as file:
        file.truncate(60_000_000)

    for words in (("show", name), ("check", name), ("show", name, "--json")):
        done = doflow(tmp_path, *words)
        assert (done.returncode, done.stdout) == (1, ""), words
        said = json.loads(done.stderr)["message"] if "--json" in words else done.stderr.splitlines()[0]
        assert said.removeprefix("ERROR: ") == message
