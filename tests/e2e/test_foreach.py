"""One sub-task per item of a list or of a file that a step makes: in parallel, each fresh or stale by itself."""

from __future__ import annotations

import pytest
from tests.support.project import Project, eventually

LISTED = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      part: {prompt: "Write about {item}.", foreach: [alpha, beta, gamma], makes: "parts/{item}.md"}
      sum: {prompt: Sum it up., reads: ["parts/*.md"], makes: sum.md}
"""
FILED = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      list: {prompt: List the parts., makes: parts.yaml}
      part: {prompt: "Write about {item_name}, {item_size} lines.", foreach: parts.yaml, makes: "{item_name}.md"}
      sum: {prompt: Sum it up., reads: ["*.md"], makes: sum.md}
"""
LIST = "parts:\\n  - {name: one, size: 1}\\n  - {name: two, size: 2}\\n"
FILES = f'make("{LIST}") if step == "list" else usual()'


def ran(project: Project, *words: str, code: int = 0) -> str:
    done = project.doit(*words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def started(project: Project, flow: str) -> Project:
    project.flow("work", flow)
    project.commit("A flow")
    return project


@pytest.mark.smoke
def test_items_of_a_list_run_side_by_side_and_each_is_its_own_task(project, tmp_path):
    work = started(project, LISTED)
    work.agent("""
        if step.startswith("part"):
            deadline = time.monotonic() + 60  # two of them must be at work at once, or this never ends well
            (outside / step.replace(":", "-")).touch()
            while len(list(outside.glob("part-*"))) < 2 and time.monotonic() < deadline:
                time.sleep(0.02)
            if time.monotonic() >= deadline: stop(9)
        usual()
    """)

    ran(work, "-n", "2", "work", "--goal=x")

    assert sorted(work.calls()) == ["part:alpha", "part:beta", "part:gamma", "sum"]
    assert work.calls()[-1] == "sum"
    told = dict(zip(work.calls(), work.prompts(), strict=True))
    assert "Write about alpha." in told["part:alpha"] and "parts/beta.md" in told["part:beta"]
    state = work.state()
    assert (state["status"], state["completed"]) == ("completed", ["part", "sum"])
    assert state["implement_phases_completed"] == []
    assert work.git("status", "--porcelain") == ""
    listed = ran(work, "list", "--all")
    assert all(f"work:part:{name}" in listed for name in ("alpha", "beta", "gamma"))

    calls = work.calls()
    ran(work, "work")
    clone = tmp_path / "clone"
    work.git("clone", "-q", str(work.root), str(clone))
    done = work.doit("-n", "2", "work", "--goal=x", cwd=clone)
    assert (done.returncode, work.calls()) == (0, calls), done.stdout + done.stderr


def test_an_item_that_fails_is_the_only_one_that_is_done_again(project):
    work = started(project, LISTED)
    work.agent('stop(9) if step == "part:beta" else usual()')

    ran(work, "--continue", "work", "--goal=x", code=1)

    assert (work.state()["status"], work.state()["completed"]) == ("failed", [])
    assert sorted(work.calls()) == ["part:alpha", "part:beta", "part:gamma"]
    work.forget_calls()
    work.agent("usual()")
    ran(work, "work")
    assert (work.calls(), work.state()["completed"]) == (["part:beta", "sum"], ["part", "sum"])


@pytest.mark.smoke
def test_items_of_a_file_are_known_when_it_is_made_and_a_changed_or_new_one_runs_alone(project):
    work = started(project, FILED)
    work.agent(FILES)

    ran(work, "-n", "2", "work", "--goal=x")

    assert sorted(work.calls()[1:3]) == ["part:one", "part:two"]
    assert (work.calls()[0], work.calls()[3:]) == ("list", ["sum"])
    assert "Write about two, 2 lines." in work.prompts()[work.calls().index("part:two")]

    parts = work.run_dir() / "parts.yaml"
    work.forget_calls()
    parts.write_text(parts.read_text().replace("size: 2", "size: 7"))
    ran(work, "work")
    assert work.calls() == ["part:two"], "the same bytes again: nothing below runs"
    assert "7 lines" in work.prompts()[0] and "Revise" in work.prompts()[0]

    work.forget_calls()
    parts.write_text(parts.read_text() + "  - {name: three, size: 3}\n")
    ran(work, "work")
    assert work.calls() == ["part:three", "sum"]
    assert work.git("status", "--porcelain") == ""

    work.forget_calls()
    parts.write_text(parts.read_text().replace("  - {name: one, size: 1}\n", ""))
    ran(work, "work")
    assert work.calls() == [], "an item that is gone asks for nothing; the others did not change"


def refused(project: Project, listed: str, told: str) -> Project:
    """The list that an agent made cannot be gone over: it is said in words, before the first item."""
    work = started(project, FILED)
    work.agent(f'make("{listed}") if step == "list" else usual()')
    done = work.doit("work", "--goal=x")
    assert (done.returncode, work.calls()) == (1, ["list"])
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return work


@pytest.mark.parametrize(
    ("text", "words"),
    [("no list at all", "is not a list of items"), ("- {name: [", "parts.yaml")],
    ids=["words", "broken"],
)
def test_a_file_without_items_fails_in_words_and_goes_on_when_it_is_fixed(project, text, words):
    work = refused(project, text, words)
    assert work.state()["status"] == "failed"
    (work.run_dir() / "parts.yaml").write_text("- {name: one, size: 1}\n")
    ran(work, "work")
    assert work.calls() == ["list", "part:one", "sum"]
    work.forget_calls()
    work.agent(FILES)
    (work.run_dir() / "parts.yaml").write_text(text)
    assert words in ran(work, "work", code=1)
    ran(work, "work", "--force=list")
    assert work.calls() == ["list", "part:two", "sum"], "a list that cannot be read can still be made anew"


def test_an_empty_list_asks_for_nothing(project):
    work = started(project, FILED)
    work.agent('make("[]") if step == "list" else usual()')

    ran(work, "work", "--goal=x")

    assert (work.calls(), work.state()["status"]) == (["list", "sum"], "completed")
    assert work.state()["completed"] == ["list", "part", "sum"]
    ran(work, "work")
    assert work.calls() == ["list", "sum"]


def test_a_gate_over_items_shows_what_all_of_them_made_and_asks_again_when_one_changed(project):
    work = started(project, LISTED.replace('makes: "parts/{item}.md"', 'makes: "parts/{item}.md", gate: "All good?"'))

    said = ran(work, "work", "--goal=x", code=2)

    assert "All good?" in said and "parts/beta.md" in said
    assert (work.state()["status"], "sum" in work.calls()) == ("awaiting-approval", False)
    assert work.doflow("approve", "part").returncode == 0
    ran(work, "work")
    assert work.calls()[-1] == "sum"

    (work.run_dir() / "parts" / "beta.md").write_text("Mine.\n")
    ran(work, "work", code=2)
    assert work.state()["pendingApproval"] == {"type": "gate", "step": "part"}


def test_a_question_in_one_item_pauses_the_run(project):
    work = started(project, LISTED.replace('makes: "parts/{item}.md"', 'makes: "parts/{item}.md", clarify: true'))
    work.agent('make("# B\\n[NEEDS CLARIFICATION: How many?]\\n") if step == "part:beta" else usual()')

    said = ran(work, "work", "--goal=x", code=2)

    assert "How many?" in said
    assert work.state()["pendingApproval"] == {"type": "clarification", "step": "part"}
    assert "sum" not in work.calls()
    (work.run_dir() / "parts" / "beta.md").write_text("# B\nSeven.\n")
    ran(work, "work")
    assert work.calls()[-1] == "sum"


def test_killed_after_the_last_item_the_step_is_done_all_the_same(project):
    work = started(project, LISTED)
    work.agent('usual() if step != "sum" else time.sleep(60)')
    running = work.start("doit", "work", "--goal=x")
    assert eventually(lambda: "sum" in work.calls())
    running.kill()
    running.communicate(timeout=60)
    path = work.root / ".doflow" / "runs" / "001-x" / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    mark = '"step":"part:gamma"'
    last = max(number for number, line in enumerate(lines) if '"step_complete"' in line and mark in line)
    path.write_text("".join(lines[: last + 1]))  # as if it had happened right there
    work.agent("usual()")

    ran(work, "work")

    assert (work.state()["completed"], work.state()["status"]) == (["part", "sum"], "completed")
    assert sorted(work.calls()) == ["part:alpha", "part:beta", "part:gamma", "sum", "sum"]


def test_commands_can_be_done_per_item_too(project):
    work = started(
        project,
        """
        flow: work
        steps:
          part: {kind: shell, run: "echo {item} > $DOFLOW_RUN_DIR/{item}.txt", foreach: [a, b], makes: "{item}.txt"}
    """,
    )

    ran(work, "-n", "2", "work", "--goal=x")

    assert [(work.run_dir() / f"{name}.txt").read_text() for name in "ab"] == ["a\n", "b\n"]
    assert (work.calls(), work.state()["status"]) == ([], "completed")
    events = len(work.events())
    ran(work, "work")
    assert len(work.events()) == events


def test_one_item_can_be_asked_for_by_name(project):
    work = started(project, LISTED)
    ran(work, "work", "--goal=x")
    work.forget_calls()

    ran(work, "work", "--force=part:beta")

    assert work.calls() == ["part:beta"]


@pytest.mark.smoke("a list")
@pytest.mark.parametrize(
    ("words", "place", "told"),
    [
        ("foreach: [x, y], makes: a.md", "3:53", "every item would make the same file 'a.md'"),
        ("foreach: l.yaml, makes: [a.md]", "3:54", "every item would make the same file 'a.md'"),
        ('foreach: [x, y, x], makes: "{item}.md"', "3:45", "duplicate item 'x'"),
        ('foreach: [x, y], makes: "{item_name}.md"', "3:53", "{item_name} is not a param of this flow"),
    ],
    ids=["a list", "a file", "twice", "texts have no keys"],
)
def test_items_that_would_write_over_each_other_are_refused_before_anything_is_paid(project, words, place, told):
    work = started(project, f"flow: work\nsteps:\n  page: {{prompt: Write it., {words}}}\n")

    for done in (work.doflow("validate", "work"), work.doit("work", "--goal=x")):
        assert done.returncode == 1
        assert f"flows/work.yaml:{place}: {told}" in done.stdout + done.stderr
    assert (work.calls(), work.runs()) == ([], [])


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ("- x\\n- 3\\n", "item 1 of specs/001-x/parts.yaml is not a mapping: 'x'"),
        (
            "- {name: a, size: 1}\\n- {name: a, size: 2}\\n",
            "items 1 and 2 of specs/001-x/parts.yaml would both make a.md",
        ),
    ],
    ids=["texts", "twice"],
)
def test_a_list_whose_items_would_write_over_each_other_is_refused_before_the_first_of_them(project, listed, told):
    work = refused(project, listed, told)
    assert work.doflow("status").returncode == 0
    parts = work.run_dir() / "parts.yaml"
    parts.write_text("- {name: a, size: 1}\n- {name: b, size: 2}\n")
    ran(work, "work")
    assert work.calls() == ["list", "part:a", "part:b", "sum"]


NAMED = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      list: {prompt: List the parts., makes: parts.yaml}
      look: {kind: gate, reads: [parts.yaml], gate: Go on?}
      part: {prompt: "Write about {item}.", foreach: parts.yaml, makes: "parts/{item}.md"}
"""
ODD = {
    "outside its folder": (
        "- good\\n- ../evil\\n",
        "item 2 of specs/001-x/parts.yaml: the path parts/{item}.md becomes",
    ),
    "null": ("- good\\n-\\n", "item 2 of specs/001-x/parts.yaml is empty (null)"),
    "a list": (
        "- [x, y]\\n",
        'item 1 of specs/001-x/parts.yaml is a list, ["x", "y"], which cannot be part of parts/{item}.md',
    ),
    "a mapping": ("- {a: 1}\\n", 'item 1 of specs/001-x/parts.yaml is a mapping, {"a": 1}, which cannot be part of'),
    "no list": ("words\\n", "specs/001-x/parts.yaml is not a list of items"),
}


@pytest.mark.parametrize(("text", "words"), ODD.values(), ids=ODD.keys())
def test_a_bad_item_is_told_with_its_file_and_blocks_nothing_but_its_step(project, text, words):
    work = started(project, NAMED)
    work.agent(
        f"""make("{text}") if step == "list" and not nth else make("- good\\n") if step == "list" else usual()"""
    )
    ran(work, "work", "--goal=x", code=2)

    assert "doflow approve look" in work.doflow("status").stdout
    for command in (["plan"], ["why", "part"]):
        told = work.doflow(*command)
        assert (told.returncode, words in told.stdout) == (0, True), (command, told.stdout, told.stderr)
    assert work.doflow("why", "list").stdout.startswith("list (work, run 001-x): up to date")
    assert work.doflow("approve", "look").returncode == 0
    assert words in work.doflow("status").stdout
    assert work.doflow("adopt", "list").returncode == 0
    told = ran(work, "work", code=1)
    assert words in told
    assert "(made by list)" in told and "doflow reject list --note" in told
    assert work.calls() == ["list"]

    assert work.doflow("reject", "list", "--note", "names only").returncode == 0
    ran(work, "work", code=2)
    assert work.doflow("approve", "look").returncode == 0
    ran(work, "work")
    assert work.calls() == ["list", "list", "part:good"]


def test_a_list_without_items_is_done_and_said_aloud(project):
    work = started(project, FILED)
    work.agent('make("[]\\n") if step == "list" else usual()')

    told = ran(work, "work", "--goal=x")

    assert "specs/001-x/parts.yaml lists no items: part has nothing to do" in told
    assert (work.calls(), work.state()["status"]) == (["list", "sum"], "completed")
