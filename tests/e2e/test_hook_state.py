"""Is a session's state kept whole, apart from others, and true to what happened, whatever comes late, twice or never?"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.hooks import DOOR, ORDER, Asking, said


@pytest.mark.smoke
def test_two_sessions_and_two_projects_do_not_touch_each_other(tmp_path: Path) -> None:
    """R3.79: also projects of the same name in different places, and one id in both."""
    one, two = Asking(tmp_path, "s1", project="a/app"), Asking(tmp_path, "s2", project="a/app")
    other = Asking(tmp_path, "s1", project="b/app")
    for asking in (one, two, other):
        asking.ask("SessionStart")
    one.stop("context-gatherer", "a1", "the door of one")

    assert one.may("context-refiner").returncode == 0
    assert two.may("context-refiner").returncode == other.may("context-refiner").returncode == 2
    files = [path for path in one.home.rglob("pipeline-state.json") if not path.is_symlink()]
    assert sorted(json.loads(path.read_text())["state"] for path in files) == ["GATHERING", "IDLE", "IDLE"]


def test_two_machines_watch_one_session_without_touching_each_other(tmp_path: Path) -> None:
    asking, other = short(tmp_path, "0"), Asking(tmp_path)
    other.reach("GATHERING")
    asking.stop("one", "a1", "words")

    assert (other.may("context-refiner").returncode, asking.may("two").returncode) == (0, 0)
    rows = json.loads(asking.doflow("machine", "status", "--all", "--json").stdout)["sessions"]
    assert {row["session"]: row["state"] for row in rows} == {"s1": "GATHERING", "s1@short": "B"}
    assert {row["session_id"] for row in rows} == {"s1"}


def test_a_session_that_begins_does_not_wipe_one_that_works_nor_itself(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    asking.reach("REFINING")

    Asking(tmp_path, "s2").ask("SessionStart")
    asking.ask("SessionStart", source="resume")
    asking.ask("SessionStart", source="compact")

    assert (asking.state()["state"], len(asking.state()["history"])) == ("REFINING", 2)
    asking.ask("SessionStart", source="clear")
    assert asking.state()["state"] == "IDLE", "the agent knows nothing any more"


@pytest.mark.smoke
def test_doubled_unknown_and_missing_stops_change_nothing_they_must_not(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    asking.ask("SessionStart")
    asking.start("context-gatherer", "a1")
    asking.start("context-gatherer", "a1")
    asking.stop("context-gatherer", "a1", "first words")
    asking.stop("context-gatherer", "a1", "last words")
    asking.stop("context-gatherer", "never-started", "somebody else's")
    asking.ask("SubagentStop", agent_id="unknown", agent_type=None)

    doc = asking.state()
    assert (doc["state"], len(doc["history"])) == ("GATHERING", 1)
    assert doc["context"]["gathered"] == "last words"
    assert any("no agent_type, no AGENT_NAME" in line for line in asking.journal())

    asking.start("context-refiner", "r1")
    done = asking.ask("Stop", background_tasks=[])
    assert b"context-refiner ended without a SubagentStop" in done.stderr
    assert asking.state()["doflow"]["active"] == {}
    assert asking.state()["state"] == "GATHERING", "an end that nobody told is no end of the stage"
    assert asking.may("context-refiner").returncode == 0, "nothing is stuck"


@pytest.mark.smoke
def test_agents_side_by_side_are_counted_by_their_ids(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    for ident in ("a1", "a2", "a3"):
        asking.start("context-gatherer", ident)
    assert set(asking.state()["doflow"]["active"]) == {"a1", "a2", "a3"}

    asking.stop("context-gatherer", "a2", "two")
    asking.stop("context-gatherer", "a1", "one")
    busy = {"id": "a3", "type": "subagent", "status": "running", "agent_type": "context-gatherer"}
    asking.ask("Stop", background_tasks=[busy])

    doc = asking.state()
    assert (doc["state"], list(doc["doflow"]["active"]), len(doc["history"])) == ("GATHERING", ["a3"], 1)
    assert doc["context"]["gathered"] == "two\n\none", "what each of them found is kept"


def test_an_agent_is_known_by_its_start_or_by_the_environment_when_its_stop_does_not_name_it(tmp_path: Path) -> None:
    """R3.36, R3.37, R3.43: as older versions tell it, and words that are no JSON."""
    asking = Asking(tmp_path)
    asking.start("context-gatherer", "a1")
    asking.ask("SubagentStop", agent_id="a1", agent_type=None)
    assert asking.state()["state"] == "GATHERING"

    env = {"AGENT_NAME": "context-refiner", "CLAUDE_CODE_SESSION_ID": "s1"}
    done = asking.raw("SubagentStop", b"refined, as plain words", env=env)
    assert (done.returncode, asking.state()["state"]) == (0, "REFINING")
    assert asking.state()["context"]["refined"] == "refined, as plain words"

    env["AGENT_NAME"] = "strategic-orchestrator"
    asking.raw("SubagentStop", json.dumps({"output": "the plan"}).encode(), env=env)
    assert (asking.state()["state"], asking.state()["context"]["orchestration"]) == ("EXECUTING", "the plan")


def test_the_end_of_a_tool_call_stands_in_for_a_stop_that_is_missing(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    asking.start("context-gatherer", "a1")
    response = {"status": "completed", "agentId": "a1", "agentType": "context-gatherer"}
    response["content"] = [{"type": "text", "text": "the door is red"}]

    asking.ask("PostToolUse", tool_response=response)
    asking.ask("PostToolUse", tool_response=response)
    asking.ask("PostToolUse")  # as recorded: launched in the background, not at its end

    doc = asking.state()
    assert (doc["state"], doc["context"]["gathered"], len(doc["history"])) == ("GATHERING", "the door is red", 1)


@pytest.mark.smoke("{", '{"state": "FLYING"}')
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"state": "FLYING"}', b'{"state": 5}', b"\xff\xff", b'{"state": ["IDLE"]}']
)
def test_a_state_that_cannot_be_read_is_idle_and_the_old_file_is_kept(content: bytes, tmp_path: Path) -> None:
    """R3.31, R3.57."""
    asking = Asking(tmp_path)
    asking.reach("GATHERING")
    (asking.folder() / "pipeline-state.json").write_bytes(content)

    done = asking.may("context-refiner")

    assert (done.returncode, asking.state()["state"]) == (2, "IDLE")
    assert b"WARNING" in done.stderr
    assert (asking.folder() / "pipeline-state.json.broken").read_bytes() == content
    assert asking.may("context-gatherer").returncode == 0


def test_parts_of_a_state_that_have_a_wrong_form_are_left_out(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    asking.reach("GATHERING")
    doc = asking.state() | {"history": {"a": 1}, "context": [], "doflow": {"active": 5, "ended": None}, "mine": 1}
    (asking.folder() / "pipeline-state.json").write_text(json.dumps(doc))

    asking.stop("context-refiner", "r1", "refined")

    found = asking.state()
    assert (found["state"], found["context"]["refined"], found["mine"]) == ("REFINING", "refined", 1)
    assert [entry["agent"] for entry in found["history"]] == ["context-refiner"]


def test_no_one_else_can_read_the_state(tmp_path: Path) -> None:
    """R3.51, R3.54: files 0600, folders 0700, whatever the umask; nothing temporary is left."""
    asking = Asking(tmp_path)
    before = os.umask(0)
    try:
        asking.reach("GATHERING")
    finally:
        os.umask(before)

    top = asking.home / ".claude" / "state"
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (top, *top.rglob("*")) if not path.is_symlink()}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert not [path for path in modes if ".tmp." in path.name]


def test_the_well_known_name_leads_to_the_session_that_began_last_and_takes_no_foreign_file_s_place(
    tmp_path: Path,
) -> None:
    """R3.24, R3.46, R3.48: with the names of the original, also its way to restore a backup."""
    asking = Asking(tmp_path)
    asking.reach("REFINING")
    known = asking.home / ".claude" / "state" / "pipeline-state.json"
    backup = known.with_name("pipeline-state.json.backup")
    assert json.loads(known.read_text())["state"] == "REFINING"

    assert asking.doflow("machine", "reset", "--reason", "stuck").returncode == 0
    assert (json.loads(known.read_text())["state"], json.loads(backup.read_text())["state"]) == ("IDLE", "REFINING")
    known.write_bytes(backup.read_bytes())  # what `cp` does
    assert asking.may("strategic-orchestrator").returncode == 0

    known.unlink()
    known.write_text("mine")
    Asking(tmp_path, "s2").ask("SessionStart")
    assert known.read_text() == "mine"


MACHINE = """\
machine: short
expires: {expires}
history: 5
stages: [A, B]
context: {{words: {{agent: one, section: Result, limit: 20}}}}
states:
  A: {{allow: [one], on_stop: {{one: B}}}}
  B: {{allow: [one, two], on_stop: {{one: B, two: A}}, inject: Now two.}}
"""


def short(tmp_path: Path, expires: str) -> Asking:
    asking = Asking(tmp_path)
    asking.machine = "short"
    (asking.root / "flows" / "machines").mkdir(parents=True)
    (asking.root / "flows" / "machines" / "short.yaml").write_text(MACHINE.format(expires=expires))
    return asking


def test_a_state_expires_between_turns_and_never_under_a_working_agent(tmp_path: Path) -> None:
    """R3.80."""
    asking = short(tmp_path, "1s")
    asking.ask("UserPromptSubmit")
    asking.stop("one", "a1")
    time.sleep(1.2)
    assert asking.may("two").returncode == 0, "inside a turn nothing expires"

    asking.start("two", "a2")
    asking.ask("Stop", background_tasks=[{"id": "a2"}])
    time.sleep(1.2)
    asking.ask("UserPromptSubmit")
    assert asking.state()["state"] == "B", "an agent works in the background"

    asking.stop("one", "a3")
    asking.ask("Stop", background_tasks=[])
    time.sleep(1.2)
    done = asking.ask("UserPromptSubmit")
    assert b"expired: B -> A" in done.stderr
    assert asking.state()["history"][-1]["agent"] == "expired"


def test_history_and_context_are_bounded_as_the_machine_says(tmp_path: Path) -> None:
    """R3.65, R3.68."""
    asking = short(tmp_path, "0")
    text = "# Report\n\nmuch\n\n## Result\n\nthe door is red and more than that\n\n## After\n\nno\n"
    for number in range(8):
        asking.stop("one", f"a{number}", text)

    doc = asking.state()
    assert (len(doc["history"]), doc["context"]["words"][:12]) == (5, "the door is ")
    assert len(doc["context"]["words"]) <= 20


@pytest.mark.smoke
def test_a_machine_s_file_counts_from_the_next_hook_on_and_a_broken_one_does_not_open_the_gate(tmp_path: Path) -> None:
    """R3.66, R3.81."""
    asking = short(tmp_path, "0")
    path = asking.root / "flows" / "machines" / "short.yaml"
    assert asking.may("three").returncode == 2

    path.write_text(MACHINE.format(expires="0").replace("A: {allow: [one]", "A: {allow: [one, three]"))
    assert asking.may("three").returncode == 0

    path.write_text("machine: [broken")
    done = asking.may("four")
    assert (done.returncode, b"using the last good version" in done.stderr) == (2, True)
    assert asking.may("three").returncode == 0


@pytest.mark.smoke
def test_trouble_with_the_disk_lets_the_call_pass_loudly(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    (asking.home / ".claude").write_text("a file in the folder's place")

    done = asking.may("Explore")

    assert (done.returncode, b"ALLOWS IT" in done.stderr) == (0, True)


def test_a_state_that_cannot_be_written_changes_no_answer(tmp_path: Path) -> None:
    """A folder in the file's place: nothing can be read or written there. It is the first state, and Explore is not let in."""
    asking = Asking(tmp_path)
    asking.reach("GATHERING")
    path = asking.folder() / "pipeline-state.json"
    path.unlink()
    for name in (path, path.with_name("pipeline-state.json.broken")):
        (name / "full").mkdir(parents=True)
    (asking.folder() / "journal.log").unlink()
    (asking.folder() / "journal.log").mkdir()

    done = asking.may("Explore")

    assert done.returncode == 2
    assert b"cannot be written" in done.stderr and b"the journal cannot be written" in done.stderr
    assert asking.may("context-gatherer").returncode == 0


def test_a_question_that_never_ends_is_given_up_before_the_agent_gives_us_up(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    code = "import sys; sys.path.insert(0, sys.argv[1]); from doflow.hooks import handler as hook; hook.DEADLINE = 0.5"
    code += "; sys.exit(hook.run(['PreToolUse']))"
    source = str(Path(DOOR[3]).parents[2])
    waiting = subprocess.Popen(
        (DOOR[0], "-I", "-c", code, source), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=asking.env, cwd=asking.root,
    )  # fmt: skip
    try:
        assert waiting.wait(60) == 0
        assert b"TooLate" in waiting.stderr.read()
    finally:
        waiting.kill()
        waiting.communicate()


def test_two_hundred_hooks_at_once_lose_no_transition_and_tear_no_file(tmp_path: Path) -> None:
    """R3.41, R3.53: every one of them adds to the history; a reader beside them never sees half a document."""
    asking = Asking(tmp_path)
    asking.reach("EXECUTING")
    path, torn, seen = asking.folder() / "pipeline-state.json", [], set()
    running = []
    for number in range(200):
        question = tmp_path / f"question-{number}"
        payload = asking.payload("SubagentStop", agent_type=f"bash-{number}", agent_id=f"b{number}")
        question.write_text(json.dumps(payload))
        with question.open("rb") as file, (tmp_path / f"answer-{number}").open("wb") as answer:
            words = (*DOOR, "SubagentStop")
            running.append(subprocess.Popen(words, stdin=file, stdout=answer, stderr=answer, env=asking.env))

    def read() -> None:
        while any(process.poll() is None for process in running):
            try:
                seen.add(len(json.loads(path.read_bytes())["history"]))
            except ValueError as error:
                torn.append(error)

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        codes = [process.wait(100) for process in running]
        reader.result(100)
    errors = [
        path.read_text()
        for path in tmp_path.glob("answer-*")
        if "ERROR" in path.read_text() or "PASS" in path.read_text()
    ]

    history = [entry["agent"] for entry in asking.state()["history"]]
    assert (set(codes), errors, torn) == ({0}, [], [])
    assert sorted(history[3:]) == sorted(f"bash-{n}" for n in range(200))
    assert len(seen) > 5, "the reader saw it grow"
    assert sum("SubagentStop: bash-" in line for line in asking.journal()) == 200


@pytest.mark.smoke
def test_blocking_and_advancing_at_once_agree_with_the_journal(tmp_path: Path) -> None:
    """While stages advance, questions about every agent come in: each answer fits the state it was given in."""
    asking = Asking(tmp_path)
    asking.ask("SessionStart")
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(asking.may, agent) for agent in ORDER * 4]
        for number, agent in enumerate(ORDER):
            asking.stop(agent, f"a{number}")
        answers = [one.result() for one in asked]

    allowed = {"IDLE": ORDER[0], "GATHERING": ORDER[1], "REFINING": ORDER[2], "EXECUTING": ""}
    facts = [json.loads(line.rpartition("\t")[2]) for line in asking.journal()]
    decided = [fact for fact in facts if fact.get("decision")]
    assert len(decided) == len(answers) == 12
    assert all((fact["decision"] == "allow") == (allowed[fact["state"]] == fact["agent"]) for fact in decided)
    assert asking.state()["state"] == "EXECUTING"
    assert all(said(done)["hookSpecificOutput"]["permissionDecision"] in ("allow", "deny") for done in answers)
