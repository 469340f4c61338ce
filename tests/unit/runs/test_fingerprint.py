"""The key of a step: what is in it, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.context import new_context, step_of, write

from doflow.flow.model import Budget, Check, Prompt, Read, Retry, Step
from doflow.runs import fingerprint, lockfile
from doflow.runs.fingerprint import ProjectFiles
from doflow.runs.lockfile import StepRecord
from doflow.util.process.runner import Timeout

RUN = "specs/001"
STEP = Step("one", prompt=Prompt("Write {goal}."), reads=(Read("input.md"),), makes=("one.md",))


@pytest.fixture
def files(tmp_path):
    write(tmp_path, f"{RUN}/input.md", "A goal\n")
    return ProjectFiles(tmp_path, RUN, frozenset({f"{RUN}/tasks.md"}))


def key_of(step, files, params=None, **more):
    return fingerprint.step_key(step, files, params or {}, **more)


def test_a_key_is_the_same_as_long_as_nothing_changes(files):
    first = key_of(STEP, files, {"goal": "x"})

    assert key_of(replace(STEP), ProjectFiles(files.root, RUN), {"goal": "x"}) == first
    assert len(first.key) == 64
    assert set(first.parts) == {"step", "prompt", "params"}
    assert list(first.reads) == [f"{RUN}/input.md"]
    assert first.files == (f"{RUN}/input.md",)


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        (replace(STEP, prompt=Prompt("Write it better.")), "prompt"),
        (replace(STEP, makes=("two.md",)), "step"),
        (replace(STEP, check=Check(headings=("Goal",))), "step"),
        (replace(STEP, kind="shell"), "step"),
        (replace(STEP, run=("true",)), "step"),
        (replace(STEP, from_text=True), "step"),
        (replace(STEP, rounds=2), "step"),
        (replace(STEP, personas=("ann",)), "step"),
        (replace(STEP, params=(("size", "big"),)), "params"),
        (replace(STEP, voices=(Prompt("You are Ann."),)), "voices"),
    ],
)
def test_a_changed_definition_changes_the_key_and_names_its_part(files, changed, part):
    before, after = key_of(STEP, files), key_of(changed, files)

    assert before.key != after.key
    assert part in {name for name in {*before.parts, *after.parts} if before.parts.get(name) != after.parts.get(name)}


@pytest.mark.parametrize(
    "changed",
    [
        replace(STEP, timeout=Timeout(1, 2)),
        replace(STEP, retry=Retry(9, 9)),
        replace(STEP, gate="Is it right?"),
        replace(STEP, after=("zero",)),
        replace(STEP, agent="other", model="big"),
        replace(STEP, repair=3),
        replace(STEP, budget=Budget(usd=1.0)),
        replace(STEP, protect=("x",)),
        replace(STEP, voices=(Prompt("You are Ann.", "ann.md", packaged=True),)),
        replace(STEP, params=(("index", "7"),)),
    ],
)
def test_limits_agents_order_and_packaged_texts_are_not_in_the_key(files, changed):
    assert key_of(changed, files).key == key_of(STEP, files).key


def test_a_packaged_prompt_counts_by_its_name(files):
    packaged = replace(STEP, prompt=Prompt("Some text", "spec.md", packaged=True))
    upgraded = replace(STEP, prompt=Prompt("A better text", "spec.md", packaged=True))
    other = replace(STEP, prompt=Prompt("Some text", "plan.md", packaged=True))

    assert key_of(packaged, files).parts["prompt"] == "packaged spec.md"
    assert key_of(packaged, files).key == key_of(upgraded, files).key != key_of(other, files).key


def test_only_parameters_that_the_step_names_count(files):
    before = key_of(STEP, files, {"goal": "x", "size": "1"})

    assert key_of(STEP, files, {"goal": "x", "size": "2"}).key == before.key
    assert key_of(STEP, files, {"goal": "y", "size": "1"}).key != before.key


@pytest.mark.parametrize("more", [{"note": "no"}, {"markers": [("one", "GO")]}, {"diff": "+x"}])
def test_a_note_a_marker_and_a_diff_are_parts_of_their_own(files, more):
    before, after = key_of(STEP, files), key_of(STEP, files, **more)

    assert len(after.parts) == len(before.parts) + 1
    assert before.key != after.key


def test_a_changed_input_changes_the_key_and_nothing_else(files):
    before = key_of(STEP, files)
    write(files.root, f"{RUN}/input.md", "Another goal\n")
    after = key_of(STEP, files)

    assert before.parts == after.parts
    assert before.reads != after.reads
    assert before.key != after.key


def test_a_missing_input_is_named_unless_it_is_optional(files):
    step = replace(STEP, reads=(Read("gone.md"), Read("maybe.md", optional=True), Read("/none/*.md")))
    found = key_of(step, files)

    assert found.missing == (f"{RUN}/gone.md", "none/*.md")
    assert found.reads == {f"{RUN}/gone.md": "", f"{RUN}/maybe.md": ""}
    assert found.files == ()


def test_a_glob_counts_every_file_but_what_the_step_makes_itself(files):
    for name in ("a.md", "b.md", "one.md"):
        write(files.root, f"{RUN}/{name}", name)
    found = key_of(replace(STEP, reads=(Read("*.md"),)), files)

    assert sorted(found.reads) == [f"{RUN}/a.md", f"{RUN}/b.md", f"{RUN}/input.md"]
    assert found.files == tuple(sorted(found.reads))
    assert fingerprint.input_files(replace(STEP, reads=(Read("*.md"),)), files) == found.files


def test_of_a_section_only_its_own_text_counts(files):
    step = replace(STEP, reads=(Read("spec.md", section="Scope"),))
    write(files.root, f"{RUN}/spec.md", "# Spec\n\n## Scope\n\nSmall.\n\n## Other\n\nOne.\n")
    before = key_of(step, files)
    write(files.root, f"{RUN}/spec.md", "# Spec\n\n## Scope\n\nSmall.\n\n## Other\n\nTwo.\n")
    elsewhere = key_of(step, files)
    write(files.root, f"{RUN}/spec.md", "# Spec\n\n## Scope\n\nLarge.\n\n## Other\n\nTwo.\n")

    assert list(before.reads) == [f"{RUN}/spec.md#Scope"]
    assert before.key == elsewhere.key != key_of(step, files).key


def test_a_section_that_is_not_there_is_missing(files):
    write(files.root, f"{RUN}/spec.md", "# Spec\n")

    found = key_of(replace(STEP, reads=(Read("spec.md", section="Scope"),)), files)

    assert found.missing == (f"{RUN}/spec.md#Scope",)


def test_ticked_boxes_of_a_task_list_do_not_count_elsewhere_they_do(files):
    keys = {}
    for path in ("tasks.md", "notes.md"):
        step = replace(STEP, reads=(Read(path),))
        for mark in " x":
            write(files.root, f"{RUN}/{path}", f"- [{mark}] [T001] Build it\n")
            keys[path, mark] = key_of(step, files).key

    assert keys["tasks.md", " "] == keys["tasks.md", "x"]
    assert keys["notes.md", " "] != keys["notes.md", "x"]


def test_line_ends_of_a_task_list_do_not_count(files):
    step = replace(STEP, reads=(Read("tasks.md"),))
    write(files.root, f"{RUN}/tasks.md", "- [ ] [T001] a\n")
    before = key_of(step, files)
    write(files.root, f"{RUN}/tasks.md", "- [ ] [T001] a\r\n")

    assert key_of(step, files).key == before.key


def test_a_phase_depends_on_its_section_its_step_and_the_phase_before():
    step = Step("implement", kind="implement", prompt=Prompt("Do it."))
    first = fingerprint.phase_key(step, "- [ ] Build\n", "")

    assert fingerprint.phase_key(step, "- [x] Build\n\n", "").key == first.key
    assert set(first.parts) == {"section", "step", "prompt"}
    assert fingerprint.phase_key(step, "- [ ] Build more\n", "").key != first.key
    assert fingerprint.phase_key(step, "- [ ] Build\n", first.key).parts["before"] == first.key[:16]
    assert fingerprint.phase_key(replace(step, prompt=Prompt("Do more.")), "- [ ] Build\n", "").key != first.key


def test_the_same_values_in_another_order_are_the_same_hash():
    assert lockfile.hash_parts({"a": "1", "b": "2"}, {}) == lockfile.hash_parts({"b": "2", "a": "1"}, {})
    assert lockfile.hash_parts({"a": "1"}, {}) != lockfile.hash_parts({}, {"a": "1"})
    assert fingerprint.short_hash("é\udcff", 8) == fingerprint.short_hash("é\udcff")[:8]


def test_a_context_gives_the_note_and_the_markers_of_the_steps_before(tmp_path):
    flow = """
        one: {prompt: Say., routes: [{when: GO, then: [two]}, {when: "NO", pause: No.}]}
        two: {prompt: Write., makes: two.md, after: one}
    """
    context = new_context(tmp_path, flow)
    before = context.key(step_of(context, "two"))
    context.complete("one", StepRecord("k", marker="GO"), {})
    follows = context.key(step_of(context, "two"))
    context.record.reject("two", "Not so.")

    assert set(follows.parts) - set(before.parts) == {"follows"}
    assert set(context.key(step_of(context, "two")).parts) - set(follows.parts) == {"note"}
