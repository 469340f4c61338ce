"""`pipeline-state.json` is what other programs poll: it says what is at work now, and is written seldom."""

from __future__ import annotations

import json

import pytest
from tests.support.project import Project, eventually

FLOW = """\
flow: line
about: One step after the other.
params: {goal: {about: What to build, required: true}}
steps:
  one:   {prompt: One., makes: one.md}
  two:   {prompt: Two., reads: [one.md], makes: two.md}
  three: {prompt: Three., reads: [two.md], makes: three.md}
"""
SIDE = """\
flow: side
about: Two at once, then one.
params: {goal: {about: What to build, required: true}}
steps:
  one: {prompt: One., makes: one.md, after: []}
  two: {prompt: Two., makes: two.md, after: []}
  end: {prompt: End., reads: [one.md, two.md], makes: end.md, after: [one, two]}
"""
LOOKS = """
import json
usual()
time.sleep(0.7)
state = json.loads((root / ".doflow" / "runs" / run_dir.name / "pipeline-state.json").read_text())
with open(outside / "seen.jsonl", "a") as seen:
    seen.write(json.dumps([step, state["current"], sorted(state["completed"]), state["status"]]) + chr(10))
"""


def seen(project: Project) -> list[list[object]]:
    return [json.loads(line) for line in (project.outside / "seen.jsonl").read_text().splitlines()]


@pytest.mark.smoke
def test_while_an_agent_works_the_state_names_its_step_and_all_that_is_done(tmp_path):
    project = Project(tmp_path)
    project.flow("line", FLOW)
    project.agent(LOOKS)
    project.commit()

    done = project.doit("line", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert seen(project) == [
        ["one", "one", [], "active"],
        ["two", "two", ["one"], "active"],
        ["three", "three", ["one", "two"], "active"],
    ]


def test_side_by_side_it_does_so_too(tmp_path):
    project = Project(tmp_path)
    project.flow("side", SIDE)
    project.agent(LOOKS)
    project.commit()

    done = project.doit("-n", "2", "side", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    both, end = seen(project)[:2], seen(project)[2]
    assert all(current in ("one", "two") for _, current, _, _ in both)
    assert end == ["end", "end", ["one", "two"], "active"]


def test_while_a_run_waits_to_try_again_the_state_names_the_retry(tmp_path):
    project = Project(tmp_path, settings="retry: {max_retries: 1, backoff_seconds: 4}\n")
    project.flow("line", FLOW)
    project.agent("stop(1) if step == 'two' and not nth else usual()")
    project.commit()

    started = project.start("doit", "line", "--goal=x")
    try:
        assert eventually(lambda: any(event["event"] == "retry" for event in events(project)))
        assert eventually(lambda: [found["step"] for found in project.state()["retries"]] == ["two"], 2.0)
        assert project.calls() == ["one", "two"]
    finally:
        started.communicate(timeout=60)


def events(project: Project) -> list[dict]:
    return project.events() if (project.root / "specs").is_dir() else []
