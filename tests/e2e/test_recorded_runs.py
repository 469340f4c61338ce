"""Projects that doflow 0.1.0 left in the middle of its work: this doflow goes on with them, and pays only for the rest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.support import prd, record
from tests.support.project import Project

REVIEW = ("review persona ann", "review persona bob")
BUILT = (("build", "1"), ("build", "2"), ("review", ""))
FORMAT = "%(trailers:key=Doflow-{},valueonly,separator=%x2C)"
TRAILERS = "%x09".join(FORMAT.format(name) for name in ("Run", "Step", "Phase", "Key"))


@dataclass(frozen=True)
class Story:
    """A record, how `status` knows it, what is typed (each with its exit code), and what that may pay and commit."""

    name: str
    status: str
    done: tuple[str, ...]
    typed: tuple[tuple[str, int], ...]
    calls: tuple[str, ...] = ()
    commits: tuple[tuple[str, str], ...] = ()
    flow: str = "work"
    run: str = "001-log-in-by-a"
    died: bool = False
    agent: str = record.agent()


STORIES = (
    Story("finished", "completed", ("specify", "implement:2"), (("doit tiny", 0),), flow="tiny"),
    Story(
        "finished-feature",
        "completed",
        ("specify", "planreview", "phasereview"),
        (("doit feature", 0),),
        flow="feature",
    ),
    Story(
        "gate",
        "awaiting-approval",
        ("spec", "plan"),
        (("doit work", 2), ("doflow approve", 0), ("doit work", 0)),
        ("tasks", "build:1", "build:2", *REVIEW),
        (("tasks", ""), *BUILT),
    ),
    Story(
        "killed-in-flight",
        "active",
        ("plan", "tasks", "build:1"),
        (("doit work", 0),),
        ("build:2", *REVIEW),
        BUILT[1:],
        died=True,
    ),
    Story("killed-after-return", "active", ("plan", "build:1"), (("doit work", 0),), REVIEW, BUILT[1:], died=True),
    Story("killed-before-commit", "active", ("plan", "build:1"), (("doit work", 0),), REVIEW, BUILT[1:], died=True),
    Story("killed-after-commit", "active", ("plan", "build:2"), (("doit work", 0),), REVIEW, BUILT[2:], died=True),
    Story(
        "limited",
        "rate-limited",
        ("spec", "plan"),
        (("doit work", 0),),
        ("tasks", "build:1", "build:2", *REVIEW),
        (("tasks", ""), *BUILT),
    ),
    Story(
        "asked",
        "awaiting-approval",
        ("spec",),
        (("doit work", 2), ("doflow answer Blue", 0), ("doit work", 2), ("doflow approve", 0), ("doit work", 0)),
        ("plan", "tasks", "build:1", "build:2", *REVIEW),
        (("plan", ""), ("tasks", ""), *BUILT),
    ),
    Story(
        "answered",
        "paused",
        ("spec",),
        (("doit work", 2), ("doflow approve", 0), ("doit work", 0)),
        ("plan", "tasks", "build:1", "build:2", *REVIEW),
        (("plan", ""), ("tasks", ""), *BUILT),
    ),
    Story(
        "adopted",
        "paused",
        ("spec", "plan"),
        (("doit work", 2), ("doflow approve", 0), ("doit work", 0)),
        ("tasks", "build:1", "build:2", *REVIEW),
        (("tasks", ""), *BUILT),
    ),
    Story(
        "session",
        "paused",
        ("backlog", "research:p1-m1-t1-s2", "implement:P1.M1.T1.S1"),
        (("doit prd", 0),),
        ("implement:P1.M1.T1.S2", "validate", "hunt"),
        (("implement", "P1.M1.T1.S2"), ("validate", ""), ("hunt", "")),
        flow="prd",
        run="001_febf9a79cbec",
        agent=prd.good(),
    ),
    Story(
        "pipeline",
        "active",
        ("build", "check"),
        (("doit auth", 0),),
        ("build-2",),
        (("build-2", ""), ("check-2", "")),
        flow="auth",
        run="001-auth-1794963305",
        died=True,
        agent=record.pipeline_agent(),
    ),
)
ALWAYS = ("killed-after-return",)


def stories() -> list[object]:
    marks = {True: [pytest.mark.smoke], False: []}
    return [pytest.param(story, id=story.name, marks=marks[story.name in ALWAYS]) for story in STORIES]


@pytest.mark.parametrize("story", stories())
def test_a_recorded_run_continues_where_it_stopped(story: Story, tmp_path: Path) -> None:
    project = record.restored("0.1.0", story.name, tmp_path)
    project.agent(story.agent)
    head = project.git("rev-parse", "HEAD").strip()
    before = status(project)
    for step in story.done:
        assert fresh(project, step), step
    assert set(asked(project, "verify", codes=(0, 1))) >= {"ok", "runs", "findings", "remarks"}
    assert project.git("rev-parse", "HEAD").strip() == head

    for words, code in story.typed:
        ended = project.program(*words.split())
        assert ended.returncode == code, words + "\n" + ended.stdout + ended.stderr

    assert {name: before[name] for name in ("run", "flow", "status", "died", "changed", "current")} == {
        "run": story.run, "flow": story.flow, "status": story.status, "died": story.died, "changed": False, "current": True,
    }  # fmt: skip
    assert sorted(project.calls()) == sorted(story.calls)
    assert committed(project, head, story.run) == list(story.commits)
    after = status(project)
    assert (after["run"], after["status"], after["died"], after["completed"]) == (
        story.run, "completed", False, after["steps"],
    )  # fmt: skip
    nothing_to_do(project, story)


def test_what_a_killed_agent_left_is_put_aside(tmp_path: Path) -> None:
    project = record.restored("0.1.0", "killed-in-flight", tmp_path)

    assert project.doit("work").returncode == 0

    kept = [one["path"] for one in asked(project, "quarantine", "list")["kept"]]
    assert (kept, (project.root / "src/half.py").exists()) == (["src/half.py"], False)
    assert project.git("status", "--porcelain") == ""


def test_what_was_written_after_the_kill_is_the_persons(tmp_path: Path) -> None:
    project = record.restored("0.1.0", "killed-in-flight", tmp_path, moved=True)

    assert project.doit("work").returncode == 0

    assert sorted(project.calls()) == ["build:2", *REVIEW]
    assert project.git("status", "--porcelain") == "?? src/half.py\n"


def test_answers_and_edits_stay_as_they_were_written(tmp_path: Path) -> None:
    answered = record.restored("0.1.0", "answered", tmp_path / "answered")
    adopted = record.restored("0.1.0", "adopted", tmp_path / "adopted")

    for project in (answered, adopted):
        assert [project.doit("work").returncode, project.doflow("approve").returncode] == [2, 0]
        assert project.doit("work").returncode == 0

    spec = (answered.run_dir() / "spec.md").read_text()
    assert "- It is Blue." in spec and "NEEDS CLARIFICATION" not in spec
    for name in ("spec.md", "plan.md"):
        assert (adopted.run_dir() / name).read_text().endswith("\nA line of mine.\n")
    assert authors(answered) == {"spec.md": "answer", "plan.md": "agent", "tasks.md": "agent"}
    assert authors(adopted) == {"spec.md": "person", "plan.md": "person", "tasks.md": "agent"}


def test_what_a_rate_limit_left_is_still_in_quarantine(tmp_path: Path) -> None:
    project = record.restored("0.1.0", "limited", tmp_path)

    (kept,) = asked(project, "quarantine", "list")["kept"]

    assert kept["path"] == "specs/001-log-in-by-a/tasks.md"
    assert asked(project, "quarantine", "show", kept["id"])["text"] == "half of it"


def test_a_recorded_pipeline_ends_with_every_node_validated(tmp_path: Path) -> None:
    project = record.restored("0.1.0", "pipeline", tmp_path)
    project.agent(record.pipeline_agent())
    before = nodes(project)

    assert project.doit("auth").returncode == 0

    assert before == {
        "start": "validated", "build": "active", "check": "pending", "good": "pending", "exit": "pending",
    }  # fmt: skip
    assert set(nodes(project).values()) == {"validated"}
    assert project.read("pipelines/auth.dot").startswith("// The login, as it was drawn.\n")


def test_a_recorded_session_ends_with_a_complete_backlog(tmp_path: Path) -> None:
    project = record.restored("0.1.0", "session", tmp_path)
    project.agent(prd.good())

    assert project.doit("prd").returncode == 0

    assert prd.sessions(project) == ["plan/001_febf9a79cbec"]
    assert prd.statuses(project, "plan/001_febf9a79cbec") == prd.DONE
    assert project.git("status", "--porcelain") == ""


def test_a_recorded_bugfix_session_is_finished_inside_its_session(tmp_path: Path) -> None:
    project = record.restored("0.1.0", "bugfix-session", tmp_path)
    project.agent(prd.good(bugs=1))
    main, inner = "001_febf9a79cbec", "001_febf9a79cbec.bugfix.001_1c03147dbf7d"
    before = [(run["run"], run["status"], run["died"]) for run in asked(project, "status")["runs"]]

    ended = [project.doit("prd").returncode, project.doit("prd").returncode]

    assert before == [(main, "active", True), (inner, "active", True)]
    assert (ended, prd.places(project)) == ([0, 0], [
        "001_1c03147dbf7d implement:P1.M1.T1.S1", "001_1c03147dbf7d validate", "001_febf9a79cbec hunt-2",
    ])  # fmt: skip
    assert prd.sessions(project) == [f"plan/{main}", f"plan/{main}/bugfix/001_1c03147dbf7d"]
    after = [(run["run"], run["status"], run["died"]) for run in asked(project, "status")["runs"]]
    assert after == [(main, "completed", False), (inner, "completed", False)]
    found = asked(project, "verify")
    assert (found["ok"], found["runs"]) == (True, [main, inner])
    assert project.git("status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["finished", "finished-feature"])
def test_a_clone_of_a_recorded_run_pays_nothing(name: str, tmp_path: Path) -> None:
    project = record.restored("0.1.0", name, tmp_path)
    clone = tmp_path / "clone"
    project.git("clone", "-q", str(project.root), str(clone))

    ended = project.doit({"finished": "tiny"}.get(name, "feature"), cwd=clone)

    assert (ended.returncode, project.calls()) == (0, []), ended.stdout + ended.stderr
    assert project.git("status", "--porcelain", cwd=clone) == ""


@pytest.mark.parametrize("name", ["gate", "limited", "killed-in-flight"])
def test_a_recorded_run_without_its_state_pays_only_for_the_rest(name: str, tmp_path: Path) -> None:
    project = record.restored("0.1.0", name, tmp_path)
    project.git("clean", "-fdxq")
    assert not (project.root / ".doflow").exists()

    project.doit("work")
    project.doflow("approve")
    ended = project.doit("work")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    (story,) = (story for story in STORIES if story.name == name)
    assert sorted(project.calls()) == sorted(story.calls)


def asked(project: Project, *words: str, codes: tuple[int, ...] = (0,)) -> dict:
    done = project.doflow(*words, "--json")
    assert done.returncode in codes, done.stdout + done.stderr
    return json.loads(done.stdout)


def status(project: Project) -> dict:
    (run,) = asked(project, "status")["runs"]
    return run


def fresh(project: Project, step: str) -> bool:
    found = asked(project, "why", step)
    return found["fresh"] and found["state"] == "done"


def nodes(project: Project) -> dict[str, str]:
    return {node["id"]: node["status"] for node in asked(project, "dot", "status", "pipelines/auth.dot")["nodes"]}


def lock(project: Project) -> dict:
    return yaml.safe_load(project.read(f"{status(project)['dir']}/doflow.lock"))


def authors(project: Project) -> dict[str, str]:
    """Who wrote each artifact that the work goes by, by its name."""
    rows = lock(project)["artifacts"].items()
    return {name: row["author"] for path, row in rows if (name := path.rpartition("/")[2]) in AUTHORED}


AUTHORED = ("spec.md", "plan.md", "tasks.md")


def committed(project: Project, since: str, run: str) -> list[tuple[str, str]]:
    """Step and phase of each commit that records work, oldest first; it has the key that the lock says."""
    found, records = [], lock(project)["steps"]
    for line in project.git("log", "--reverse", f"--format={TRAILERS}", f"{since}..HEAD").splitlines():
        name, step, phase, key = line.split("\t")
        assert name == run
        if key:
            assert records[f"{step}:{phase}" if phase else step]["key"] == key
            found.append((step, phase))
    return found


def nothing_to_do(project: Project, story: Story) -> None:
    """The same command again calls no one and commits nothing, and all that looks at the run agrees."""
    calls, head = project.calls(), project.git("rev-parse", "HEAD")

    assert project.doit(story.flow).returncode == 0

    assert (project.calls(), project.git("rev-parse", "HEAD")) == (calls, head)
    found = asked(project, "verify")
    assert (found["ok"], found["runs"], found["findings"]) == (True, [story.run], [])
    for step in story.done:
        assert fresh(project, step), step
    state = project.state(story.run)
    assert (state["status"], state["completed"]) == ("completed", state["pipeline"])
