"""Work items of taskmaster and beads: order, flows, and statuses written back byte by byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from doflow.flow.parsing import loader
from doflow.importers import beads, bmad, json_edit, taskmaster, work_items, write_back
from doflow.importers.model import NotMapped
from doflow.importers.work_items import WorkItem
from doflow.util.errors import FlowError, UsageError

NOW = "2026-01-02T03:04:05Z"
TASKS = """\
{
  "master": {
    "tasks": [
      {"id": 2, "title": "Two \\"x\\"", "status": "pending", "dependencies": ["1.1", 9],
       "subtasks": [{"id": 1, "title": "Part", "status": "done"}, {"id": 2, "status" : "pending"}]},
      {"id": 1, "title": "One", "description": "Use {braces}.", "testStrategy": "Run it", "status": "in-progress"},
      {"id": 3, "title": "Old", "status": "cancelled"}
    ],
    "metadata": {"status": "pending"}
  },
  "later": {"tasks": [{"id": 1, "title": "L", "status": "pending"}]}
}
"""
ISSUES = (
    '{"id":"bd-3","title":"C","status":"open","priority":0,"dependencies":[{"depends_on_id":"bd-1","type":"blocks"}]}\n'
    '{"id":"bd-1","title":"A","status":"open","priority":2,"updated_at":"x","notes":"N"}\r\n'
    '{"id":"bd-2","title":"B","status":"in_progress","priority":1,'
    '"dependencies":[{"depends_on_id":"bd-3","type":"related"}]}\n'
    '{"id":"bd-0","title":"E","status":"open","issue_type":"epic"}\n'
    '{"id":"bd-9","title":"Z","status":"closed","closed_at":"y"}'
)


def test_items_are_ordered_by_dependency_then_rank() -> None:
    items = beads.read_issues(ISSUES, "issues.jsonl")

    assert [item.id for item in work_items.order_items(items, "f")] == ["bd-2", "bd-1", "bd-3"]


def test_a_cycle_of_dependencies_is_one_error() -> None:
    items = [WorkItem("a", "A", depends=("b",), line=4), WorkItem("b", "B", depends=("a",), line=5)]

    with pytest.raises(FlowError, match=r"f:[45]:1: dependency cycle: [ab] -> [ab] -> [ab]"):
        work_items.order_items(items, "f")


def test_a_flow_does_each_open_task_and_marks_it_as_done(tmp_path: Path) -> None:
    tags = taskmaster.read_tags(json.loads(TASKS), "tasks.json")

    made = work_items.work_flow("taskmaster", "Tasks.", "tasks.json", tags["master"], "master")

    (tmp_path / "flows").mkdir()
    path = tmp_path / "flows/taskmaster.yaml"
    path.write_text(made.files[0].text)
    loader.load_flow(path, tmp_path)
    steps = loader.load_document(path).value["steps"]
    assert list(steps) == ["task-1", "done-task-1", "task-2", "done-task-2"]
    assert steps["task-1"]["prompt"] == "Do 1: One\n\nUse {{braces}}.\n\nHow it is tested: Run it\n"
    assert steps["done-task-2"]["run"] == ["doflow", "tasks", "done", "tasks.json", "master/2"]
    assert made.not_mapped == (NotMapped("tasks.json", 1, "2 depends on 9", "there is no such item"),)


BAD_TASKS = {
    "[]": "not a tasks.json of taskmaster: no list of `tasks`",
    '{"tasks": [1]}': "a task without `id`",
    '{"tasks": [{"id": 1}, {"id": "1"}]}': "duplicate task 1",
}


@pytest.mark.parametrize("text", BAD_TASKS)
def test_a_broken_tasks_json_is_one_error(text: str) -> None:
    with pytest.raises(FlowError) as caught:
        taskmaster.read_tags(json.loads(text), "tasks.json")

    assert [problem.message for problem in caught.value.problems] == [BAD_TASKS[text]]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [("{}\n", 1, "not an issue of beads: no `id`"), ('{"id":"a"}\n{"id":"a"}\n', 2, "duplicate issue a")],
)
def test_a_broken_issues_file_is_one_error(text: str, line: int, message: str) -> None:
    with pytest.raises(FlowError) as caught:
        beads.read_issues(text, "issues.jsonl")

    assert [(problem.line, problem.message) for problem in caught.value.problems] == [(line, message)]


def test_a_task_is_done_with_its_open_subtasks_and_nothing_else_changes() -> None:
    done = write_back.mark_done(TASKS, "tasks.json", "2", NOW)

    assert done == TASKS.replace('"Two \\"x\\"", "status": "pending"', '"Two \\"x\\"", "status": "done"').replace(
        '{"id": 2, "status" : "pending"}', '{"id": 2, "status" : "done"}'
    )


def test_subtasks_and_tags_can_be_named() -> None:
    assert write_back.mark_done(TASKS, "tasks.json", "2.2", NOW) == TASKS.replace(
        '"status" : "pending"', '"status" : "done"'
    )
    assert write_back.mark_done(TASKS, "tasks.json", "later/1", NOW) == TASKS.replace(
        '"L", "status": "pending"', '"L", "status": "done"'
    )


def test_an_issue_is_closed_with_its_times_and_nothing_else_changes() -> None:
    done = write_back.mark_done(ISSUES, ".beads/issues.jsonl", "bd-1", NOW)

    old = '{"id":"bd-1","title":"A","status":"open","priority":2,"updated_at":"x","notes":"N"}'
    new = f'{{"id":"bd-1","title":"A","status":"closed","priority":2,"updated_at":"{NOW}","notes":"N","closed_at":"{NOW}"}}'
    assert done == ISSUES.replace(old, new)
    assert write_back.mark_done(ISSUES, "issues.jsonl", "bd-9", NOW) == ISSUES.replace('"y"', f'"{NOW}"')


def test_a_story_is_ready_for_review_and_nothing_else_changes() -> None:
    text = "# 1-2-a: old\r\nx: 1\r\ndevelopment_status:\r\n  1-2-a-b: backlog\r\n  1-2-a: 'in-progress'  # soon\r\n"

    assert bmad.set_status(text, "1-2-a", "review") == text.replace("in-progress", "review")


def test_a_box_is_ticked_by_its_id_or_phase_and_id() -> None:
    text = "## Phase 1: A\n\n- [ ] T001 Do\n\n## Phase 2: B\n\n- [ ] T001 Do\n- [ ] T002 Do\n"

    assert write_back.mark_done(text, "tasks.md", "T002", NOW) == text.replace("[ ] T002", "[x] T002")
    assert write_back.mark_done(text, "tasks.md", "2/T001", NOW) == text[::-1].replace("100T ] [", "100T ]x[", 1)[::-1]
    with pytest.raises(FlowError, match="task T001 is on lines 3, 7"):
        write_back.mark_done(text, "tasks.md", "T001", NOW)


@pytest.mark.parametrize("file", ["tasks.json", "issues.jsonl", "sprint-status.yaml", "tasks.md"])
def test_an_unknown_task_is_an_error(file: str) -> None:
    texts = {"tasks.json": TASKS, "issues.jsonl": ISSUES, "tasks.md": "- [ ] T001 x\n"}

    with pytest.raises(UsageError, match="no task 'T9'"):
        write_back.mark_done(texts.get(file, "development_status:\n  1-1-a: done\n"), file, "T9", NOW)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.data(), st.sampled_from([None, 1, "\t"]))
def test_every_value_of_a_json_text_can_be_found_and_replaced(
    value: object, data: st.DataObject, indent: object
) -> None:
    text = json.dumps({"a": value, "b": [value, 1]}, indent=indent, ensure_ascii=data.draw(st.booleans()))  # type: ignore[arg-type]
    path, inner = data.draw(st.sampled_from(list(leaves(json.loads(text)))))

    start, end = json_edit.find_value(text, path) or (0, 0)

    assert json.loads(text[start:end]) == inner
    assert json_edit.replace_value(text, path, "new") == f'{text[:start]}"new"{text[end:]}'


def leaves(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], object]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if pairs is None:
        return [(path, value)]
    return [leaf for key, inner in pairs for leaf in leaves(inner, (*path, key))]
