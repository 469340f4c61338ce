"""Workflows, schemas and trackers of other people's repositories: imported, checked and run with the rehearsal agent."""

from __future__ import annotations

import difflib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.project import Project

from doflow.importers import beads, taskmaster, work_items, write_back

TOP = Path(__file__).parents[2]
CORPUS = Path(os.environ.get("DOFLOW_CORPUS") or TOP.parent / "shared" / "corpus")
NOW = "2026-01-02T03:04:05Z"

pytestmark = pytest.mark.skipif(
    not (CORPUS / "speckit-workflow").is_dir(), reason=f"no corpus in {CORPUS}: set DOFLOW_CORPUS to its folder"
)


def files(folder: str) -> list[Path]:
    return sorted((CORPUS / folder).iterdir()) if (CORPUS / folder).is_dir() else []


@dataclass(frozen=True, slots=True)
class Tried:
    """How far a workflow got, and what stopped it."""

    name: str
    steps: int = 0
    not_mapped: int = 0
    reached: str = ""
    reason: str = ""


def tried(file: Path, folder: Path) -> Tried:
    project = Project(folder)
    name = file.name.split("__")[0]
    path = str(project.write(".specify/workflows/x/workflow.yml", file.read_text("utf-8")).relative_to(project.root))
    done = project.doflow("import", path, "--json")
    if done.returncode:
        return Tried(name, reason=done.stderr.strip())
    (made,) = json.loads(done.stdout)["imported"]
    checked = project.doflow("validate", made["flow"], "--json")
    if checked.returncode:
        return Tried(name, reason=checked.stdout + checked.stderr)
    project.commit("Import")
    run = project.doit(made["flow"], "--goal=Let people log in", "--agent=rehearsal")
    steps = project.read(f"flows/{made['flow']}.yaml").partition("\nsteps:\n")[2].count("\n  ") + 1
    stopped = run.stdout + run.stderr
    reached = {0: "end", 2: "gate"}.get(run.returncode, "") if "Traceback" not in stopped else ""
    return Tried(name, steps, len(made["not_mapped"]), reached, "" if reached else stopped.strip()[-300:])


def test_the_workflows_of_spec_kit_run_to_their_first_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [tried(file, tmp_path / str(number)) for number, file in enumerate(files("speckit-workflow"))]

    with capsys.disabled():
        print("\n\n{:<46}{:>12}  {}".format("workflow", "not mapped", "reached"))
        for one in found:
            print(f"{one.name[:44]:<46}{one.not_mapped:>12}  {one.reached or one.reason.splitlines()[0]}")
    assert sum(not one.reached for one in found) <= 1


@pytest.mark.parametrize(
    "file", files("openspec-schema") + files("taskmaster") + files("beads"), ids=lambda file: file.name[:40]
)
def test_schemas_and_trackers_give_valid_flows_or_have_nothing_open(file: Path, tmp_path: Path) -> None:
    project = Project(tmp_path)
    path = file.name.rpartition("~")[2]
    project.write(path, file.read_text("utf-8"))

    done = project.doflow("import", path)

    assert done.returncode == 0 or "there is nothing to import" in done.stderr, done.stderr
    assert project.doflow("validate").returncode == 0


@pytest.mark.parametrize("file", files("taskmaster"), ids=lambda file: file.name[:40])
def test_each_task_of_taskmaster_can_be_marked_as_done(file: Path) -> None:
    text = file.read_bytes().decode()

    for tag, items in taskmaster.read_tags(json.loads(text), file.name).items():
        for item in items if not all(item.done for item in items) else ():
            new = write_back.mark_done(text, "tasks.json", f"{tag}/{item.id}" if tag else item.id, NOW)
            assert all('"status"' in line for line in changed(text, new))
            assert next(one for one in taskmaster.read_tags(json.loads(new), "")[tag] if one.id == item.id).done


@pytest.mark.parametrize("file", files("beads"), ids=lambda file: file.name[:40])
def test_each_issue_of_beads_can_be_closed(file: Path) -> None:
    text = file.read_bytes().decode()
    items = beads.read_issues(text, file.name)

    for item in items[:20]:
        new = write_back.mark_done(text, "issues.jsonl", item.id, NOW)
        before, after = text.split("\n"), new.split("\n")
        assert [n for n, pair in enumerate(zip(before, after, strict=True), 1) if pair[0] != pair[1]] == [item.line]
        old, closed = json.loads(before[item.line - 1]), json.loads(after[item.line - 1])
        assert old | {"status": "closed", "closed_at": NOW, "updated_at": NOW} == closed | {"updated_at": NOW}
    assert work_items.order_items(items, file.name) is not None


def changed(old: str, new: str) -> list[str]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
