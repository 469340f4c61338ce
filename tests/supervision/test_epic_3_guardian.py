"""Epic 3: the headless guardian drives a pipeline: real runners, real tmux, decisions by rules, a judge or a person."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.supervision import Site, eventually, needs_tmux

from doflow.supervise.signal_watch import FolderWatch

pytestmark = needs_tmux

WORK = 'echo "$DOFLOW_NODE $DOFLOW_ATTEMPT" >> "$calls"; echo hi > "$DOFLOW_NODE.txt"; echo done'
#: wrong at first, right when it was told what is wrong
LEARNS = (
    'echo "$DOFLOW_NODE $DOFLOW_ATTEMPT" >> "$calls"; '
    'if grep -q "is empty" "$DOFLOW_PROMPT"; then echo right > "$DOFLOW_NODE.txt"; fi; echo done'
)


def run(here: Site, *words: str, timeout: float = 120) -> tuple[int, str]:
    done = here.doflow("guardian", "run", *words, timeout=timeout)
    return done.returncode, done.stdout + done.stderr


def judge(here: Site, text: str, name: str = "judge", settings: str = "") -> None:
    """A profile that always answers so, and keeps what it was asked and could see."""
    path = here.outside / f"{name}.sh"
    path.write_text(f"cat > {here.outside}/{name}-$DOFLOW_ROLE.txt; cat <<'EOF'\n{text}\nEOF\n")
    argv = json.dumps(["sh", str(path)])
    old = here.read("doflow.yaml")
    here.write(
        "doflow.yaml", old.replace("agents:\n", f"agents:\n  {name}: {{use: command, argv: {argv}}}\n") + settings
    )


def test_ac_1_only_the_nodes_that_are_ready_are_started(site: Any) -> None:
    """R2.90, R2.13: pending, with all they wait for validated; in parallel up to the limit."""
    here = site('echo "$DOFLOW_NODE" >> "$calls"; while [ ! -e "go-$DOFLOW_NODE" ]; do sleep 0.1; done; echo ok')
    here.configure("supervision: {parallel: 2, validate: ['true']}\n")
    edges = "  start -> a -> d -> finish\n  start -> b -> d\n  start -> c -> d"
    here.pipeline("p", *(here.node(name) for name in "abcd"), edges=edges)
    guardian = here.launch("run", "p.dot")

    assert eventually(lambda: sorted(here.panes()) == ["a", "b"])
    time.sleep(1)
    assert sorted(here.panes()) == ["a", "b"], "c is ready too, but two are at work"
    (here.root / "go-a").touch()
    assert eventually(lambda: sorted(here.panes()) == ["a", "b", "c"])
    assert here.statuses("p")["d"] == "pending"
    for name in "bcd":
        (here.root / f"go-{name}").touch()
    guardian.communicate(timeout=60)

    assert guardian.returncode == 0
    assert here.panes()[-1] == "d"
    assert set(here.statuses("p").values()) == {"validated"}


def test_ac_2_the_runner_gets_the_context_of_its_node(site: Any) -> None:
    """R2.91."""
    here = site('cat "$DOFLOW_PROMPT" > prompt.txt; pwd > where.txt; echo ok')
    here.write("deep/er/x", "")
    node = here.node(
        "impl_auth", prd_section="Epic 2", solution_design="docs/sd.md", target_dir="deep/er", validate="true"
    )
    here.pipeline("p", node)

    code, said = run(here, "p.dot")

    assert code == 0, said
    prompt = here.read("deep/er/prompt.txt")
    for words in ("PRD-1", "Epic 2", "docs/sd.md", "deep/er", "it works", "B-1", "backend", "impl_auth"):
        assert words in prompt
    assert here.read("deep/er/where.txt").strip() == str(here.root / "deep" / "er")
    assert "attempt 1; watch it with: tmux -L doflow-" in said


def test_ac_3_the_guardian_sleeps_until_a_runner_signals_and_wakes_at_once(site: Any) -> None:
    """R2.92, R2.2."""
    here = site("while [ ! -e go ]; do sleep 0.05; done; echo ok")
    here.pipeline("p", here.node("a", validate="true"))
    guardian = here.launch("run", "p.dot", "--check", "60")
    assert eventually(lambda: here.holder("p", "nodes", "a", "runner.lock") > 0)
    assert eventually(lambda: _used(guardian.pid, 2) <= 0.05), "asleep"

    (here.root / "go").touch()
    guardian.communicate(timeout=40)

    assert guardian.returncode == 0


def _used(pid: int, seconds: float) -> float:
    """The seconds of the processor that a program takes in so many of the clock."""
    before = _cpu(pid)
    time.sleep(seconds)
    return _cpu(pid) - before


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_ac_4_needs_review_leads_to_validation_and_a_transition(site: Any) -> None:
    """R2.93, R2.16, R2.21: active, impl_complete, validated, in the DOT file and its log."""
    here = site(WORK)
    here.pipeline("p", here.node("a", validate="test -s a.txt && echo $DOFLOW_NODE > checked.txt"))

    code, said = run(here, "p.dot")

    assert code == 0, said
    log = [json.loads(line) for line in here.read("p.dot.transitions.jsonl").splitlines()]
    assert [entry["to"] for entry in log if entry["node"] == "a"] == ["active", "impl_complete", "validated"]
    assert here.read("checked.txt") == "a\n"
    assert "lightgreen" in here.read("p.dot")


def test_a_failed_validation_comes_back_with_feedback_and_the_next_attempt_is_right(site: Any) -> None:
    """R2.121."""
    here = site(LEARNS)
    here.pipeline("p", here.node("a", validate="test -s a.txt || { echo a.txt is empty; exit 1; }"))

    code, said = run(here, "p.dot")

    assert code == 0, said
    assert here.panes() == ["a 1", "a 2"]
    failed = [one for one in here.said("p") if one["signal_type"] == "VALIDATION_FAILED"]
    assert [(one["payload"]["retry_count"], "a.txt is empty" in one["payload"]["feedback"]) for one in failed] == [
        (1, True)
    ]


def test_after_three_retries_a_node_has_failed_and_a_person_decides(site: Any) -> None:
    """R2.121, R2.97: nothing behind it is started; `retry` sends it on, `stop` ends the pipeline."""
    here = site('echo "$DOFLOW_NODE $DOFLOW_ATTEMPT" >> "$calls"; [ -e mended ] && echo ok > a.txt; echo done')
    here.pipeline("p", here.node("a", validate="test -s a.txt"), here.node("b", validate="true"))

    code, said = run(here, "p.dot", "--no-wait")

    assert code == 2, said
    assert here.panes() == ["a 1", "a 2", "a 3", "a 4"]
    assert here.statuses("p") == {"start": "validated", "a": "failed", "b": "pending", "finish": "pending"}
    assert "a has failed after attempt 4" in said
    listed = here.doflow("signal", "list").stdout
    assert "failed.a.4" in listed
    (here.root / "mended").touch()
    assert here.doflow("signal", "answer", "failed.a", "retry").returncode == 0
    code, said = run(here, "p.dot", "--no-wait")
    assert (code, here.panes()[4:]) == (0, ["a 5", "b 1"]), said


def test_a_pipeline_that_is_stopped_says_what_failed_and_what_was_not_reached(site: Any) -> None:
    here = site("echo no")
    here.configure("supervision: {retries: 0}\n")
    here.pipeline("p", here.node("a", validate="false"), here.node("b", validate="true"))
    assert run(here, "p.dot", "--no-wait")[0] == 2
    here.doflow("signal", "answer", "failed.a.1", "stop")

    code, said = run(here, "p.dot", "--no-wait")

    assert code == 1
    assert "failed: a; not reached: b, finish" in said
    assert here.kinds("p")[-1] == "PIPELINE_COMPLETE"


def test_ac_5_needs_input_is_answered_by_a_rule(site: Any) -> None:
    """R2.94, R2.17."""
    here = site('echo "DOFLOW: ask Which colour? | red | blue"; read c; echo "$c" > colour.txt; echo ok')
    here.configure('supervision: {validate: ["true"], answers: {"which colour": blue}}\n')
    here.pipeline("p", here.node("a"))

    code, said = run(here, "p.dot")

    assert code == 0, said
    assert here.read("colour.txt") == "blue\n"
    assert here.kinds("p") == [
        "NEEDS_INPUT", "INPUT_RESPONSE", "NEEDS_REVIEW", "VALIDATION_PASSED", "NODE_COMPLETE", "PIPELINE_COMPLETE",
    ]  # fmt: skip


def test_needs_input_is_answered_by_a_judge_who_may_not_write(site: Any) -> None:
    here = site('echo "DOFLOW: ask Which colour? | red | blue"; read c; echo "$c" > colour.txt; echo ok')
    here.configure("supervision: {judge: judge, validate: ['true']}\n")
    judge(here, "The PRD wants blue.\nDECISION: ANSWER blue")
    here.pipeline("p", here.node("a"))

    code, said = run(here, "p.dot")

    assert (code, here.read("colour.txt")) == (0, "blue\n"), said
    asked = (here.outside / "judge-judge.txt").read_text()
    assert "Which colour?" in asked
    assert "change no file" in asked


def test_a_judge_that_cannot_tell_escalates(site: Any) -> None:
    """R2.97."""
    here = site('echo "DOFLOW: ask Which colour? | red | blue"; read c; echo "$c" > colour.txt; echo ok')
    here.configure("supervision: {judge: judge, validate: ['true']}\n")
    judge(here, "Either would do.\nDECISION: CANNOT-TELL the PRD does not say")
    here.pipeline("p", here.node("a"))

    code, said = run(here, "p.dot", "--no-wait")

    assert code == 2, said
    assert "needs an answer: a asks: Which colour? (the judge: the PRD does not say)" in said
    (question,) = json.loads(here.doflow("signal", "list", "--json").stdout)["questions"]
    assert question["payload"]["options"] == ["red", "blue"]
    assert here.doflow("signal", "answer", question["question"], "1").stdout == "answered: red\n"
    assert run(here, "p.dot", "--no-wait")[0] == 0
    assert here.read("colour.txt") == "red\n"


def test_ac_6_a_checkpoint_is_written_after_each_transition(site: Any) -> None:
    """R2.95, R2.22."""
    here = site("while [ ! -e go ]; do sleep 0.1; done; echo ok")
    here.pipeline("p", here.node("a", validate="true"))
    guardian = here.launch("run", "p.dot")

    def saved() -> dict[str, str]:
        path = here.root / "p.dot.checkpoint.json"
        return {node["id"]: node["status"] for node in json.loads(path.read_text())["nodes"]} if path.exists() else {}

    assert eventually(lambda: saved().get("a") == "active")
    assert saved() == here.statuses("p")
    (here.root / "go").touch()
    guardian.communicate(timeout=60)

    assert saved() == here.statuses("p") == dict.fromkeys(("start", "a", "finish"), "validated")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's watcher is Linux's")
def test_ac_6_every_single_transition_has_its_checkpoint(site: Any) -> None:
    """R2.22: the kernel tells of each file that took its place, in the order in which they did."""
    here = site(WORK)
    here.pipeline("p", here.node("a", validate="true"), here.node("b", validate="true"))
    with FolderWatch([str(here.root)]) as watch:
        code, said = run(here, "p.dot")
        data = os.read(watch._fd, 1 << 20)

    assert code == 0, said
    log = [json.loads(line) for line in here.read("p.dot.transitions.jsonl").splitlines()]
    placed, at = [], 0
    while at < len(data):
        _, mask, _, size = struct.unpack_from("iIII", data, at)
        name = data[at + 16 : at + 16 + size].rstrip(b"\0").decode()
        placed += [name] if mask & 0x80 and name.startswith("p.dot") else []
        at += 16 + size
    assert placed == ["p.dot", "p.dot.checkpoint.json"] * len(log)
    assert len(log) == 4 + 2 * 3, "start and finish by two, a and b by three"


def test_ac_7_pipeline_complete_is_signalled_once_when_all_nodes_are_terminal(site: Any) -> None:
    """R2.96, R2.67, R2.20: also when the last of them failed; a second run says nothing new and does nothing."""
    here = site(WORK)
    here.configure("supervision: {retries: 0}\n")
    edges = "  start -> a -> finish\n  start -> b"
    here.pipeline("p", here.node("a", validate="true"), here.node("b", validate="false"), edges=edges)

    code, said = run(here, "p.dot", "--no-wait")
    again = run(here, "p.dot", "--no-wait")

    assert (code, again[0]) == (1, 1), said
    complete = [one for one in here.said("p") if one["signal_type"] == "PIPELINE_COMPLETE"]
    assert [one["payload"] for one in complete] == [
        {"pipeline_id": "p", "summary": "3 of 4 nodes validated; failed: b"},
    ]
    assert sorted(here.panes()) == ["a 1", "b 1"]


def test_ac_8_what_nothing_can_validate_goes_to_a_person(site: Any) -> None:
    """R2.97, R2.28: absence of a validation is never a pass."""
    here = site(WORK)
    here.pipeline("p", here.node("a"))

    code, said = run(here, "p.dot", "--no-wait")

    assert code == 2
    assert (
        "a (a) is done, and no command or reviewer is configured to validate it. Is it right? Acceptance: it works"
        in said
    )
    assert here.statuses("p")["a"] == "impl_complete"
    here.doflow("signal", "answer", "verdict.a.1", "reject: no tests were written")
    assert run(here, "p.dot", "--no-wait")[0] == 2
    assert here.panes() == ["a 1", "a 2"], "the answer was its feedback"
    here.doflow("signal", "answer", "verdict.a.2", "approve")
    assert run(here, "p.dot", "--no-wait")[0] == 0


def test_a_reviewer_who_is_not_the_worker_validates(site: Any) -> None:
    here = site(LEARNS.replace("is empty", "no tests"))
    here.configure("supervision: {reviewer: critic, retries: 1}\n")
    judge(here, "ISSUE: H | no tests | a.txt\nVERDICT: NO-GO", name="critic")
    here.pipeline("p", here.node("a"))

    code, said = run(here, "p.dot", "--no-wait")

    assert code == 2, said
    assert here.panes() == ["a 1", "a 2"]
    assert here.statuses("p")["a"] == "failed"
    assert "it works" in (here.outside / "critic-reviewer.txt").read_text()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("Looks fine to me.", "no verdict"),
        ("ISSUE: X | it is lost\nVERDICT: GO", "wrote an issue that cannot be read, `ISSUE: X | it is lost`"),
    ],
    ids=["without a verdict", "whose issue cannot be read"],
)
def test_a_reviewer_that_cannot_be_understood_is_no_pass(site: Any, answer: str, words: str) -> None:
    here = site(WORK)
    here.configure("supervision: {reviewer: critic}\n")
    judge(here, answer, name="critic")
    here.pipeline("p", here.node("a"))

    code, said = run(here, "p.dot", "--no-wait")

    assert code == 2
    assert f"The reviewer could not decide: {words}" in said


def test_a_worker_that_would_review_itself_is_refused_before_anything_begins(site: Any) -> None:
    here = site(WORK)
    here.pipeline("p", here.node("a", reviewer="default"))

    code, said = run(here, "p.dot")

    assert code == 1
    assert "a would be reviewed by default, its own worker" in said
    assert here.panes() == []


def test_a_gate_waits_for_a_person_and_a_technical_one_for_its_command(site: Any) -> None:
    here = site(WORK)
    here.pipeline(
        "p", here.node("a", validate="true"), here.node("checked", "wait.human", gate="technical", validate="test -s a.txt"),
        here.node("wanted", "wait.human", gate="business", label="Ship it?"),
    )  # fmt: skip

    code, said = run(here, "p.dot", "--no-wait")

    assert code == 2, said
    assert here.statuses("p")["checked"] == "validated"
    assert "wanted (Ship it?) is a gate. Is it right?" in said
    here.doflow("signal", "answer", "verdict.wanted.1", "yes")
    assert run(here, "p.dot", "--no-wait")[0] == 0


def test_a_graph_with_a_retry_edge_starts_loops_on_fail_and_ends(site: Any) -> None:
    here = site(
        'echo "$DOFLOW_NODE" >> "$calls"; cp "$DOFLOW_PROMPT" "p-$DOFLOW_ATTEMPT.txt"; echo x >> count.txt; echo ok'
    )
    here.pipeline(
        "p", here.node("a", validate="true"), here.node("good", "conditional", validate="test $(wc -l < count.txt) -ge 3"),
        edges='  start -> a -> good\n  good -> finish [condition="pass"]\n  good -> a [condition="fail"]',
    )  # fmt: skip

    code, said = run(here, "p.dot", "--no-wait")

    assert code == 0, said
    assert here.panes() == ["a", "a", "a"]
    assert "test $(wc -l < count.txt) -ge 3" in here.read("p-2.txt"), "why it was sent back"
    assert set(here.statuses("p").values()) == {"validated"}


def test_a_gate_that_fails_sends_the_work_back_through_a_diamond_and_a_person_may_allow_one_more(site: Any) -> None:
    here = site('echo "$DOFLOW_NODE" >> "$calls"; echo x >> count.txt; echo ok')
    gate = here.node("gate", "wait.human", command="test $(wc -l < count.txt) -ge 3 || { echo too few; exit 1; }")
    here.pipeline(
        "p", here.node("a", validate="true"), gate, here.node("good", "conditional", max_retries="1"),
        edges='  start -> a -> gate -> good\n  good -> finish [condition="pass"]\n  good -> a [condition="fail"]',
    )  # fmt: skip

    code, said = run(here, "p.dot", "--no-wait")

    assert code == 2, said
    assert here.panes() == ["a", "a"]
    assert "good has failed after attempt 2" in said
    assert here.doflow("signal", "answer", "failed.good", "retry").returncode == 0
    code, said = run(here, "p.dot", "--no-wait")
    assert (code, here.panes()) == (0, ["a", "a", "a"]), said


def test_a_pipeline_goes_by_its_name_in_the_settings(site: Any) -> None:
    here = site(WORK)
    here.configure("pipelines: {auth: graphs/auth.dot}\n")
    here.write("graphs/auth.dot", _simple(here))

    code, said = run(here, "auth")

    assert code == 0, said
    assert "auth: complete" in said


def _simple(here: Site) -> str:
    return here.pipeline("simple", here.node("a", check="test -s a.txt")).read_text().replace("simple", "auth")


def test_a_file_with_errors_is_refused_with_their_lines(site: Any) -> None:
    here = site(WORK)
    here.pipeline("p", here.node("a", validate="true"), edges="  start -> a")

    code, said = run(here, "p.dot")

    assert code == 1
    assert "p.dot:" in said
    assert here.panes() == []


def test_a_tool_node_runs_its_command(site: Any) -> None:
    here = site(WORK)
    here.pipeline("p", here.node("t", "tool", command="echo built > built.txt"))

    assert run(here, "p.dot", "--no-wait")[0] == 0
    assert here.read("built.txt") == "built\n"


def test_a_stuck_orchestrator_is_nudged_first_and_replaced_then(site: Any) -> None:
    """R2.19."""
    here = site(
        'echo "$DOFLOW_NODE $DOFLOW_ATTEMPT" >> "$calls"; [ "$DOFLOW_ATTEMPT" = 2 ] && exit 0; echo hm; '
        'while read line; do echo "$line" >> heard.txt; done'
    )
    here.pipeline("p", here.node("a", stuck="1s", validate="true"))

    code, said = run(here, "p.dot", timeout=120)

    assert code == 0, said
    assert here.panes() == ["a 1", "a 2"]
    assert "Nothing has changed here for" in here.read("heard.txt")
    assert here.kinds("p")[:4] == ["ORCHESTRATOR_STUCK", "GUIDANCE", "ORCHESTRATOR_STUCK", "KILL_ORCHESTRATOR"]


def test_a_violation_is_warned_about_first_and_ends_the_session_then(site: Any) -> None:
    """R2.18."""
    here = site(
        '[ "$DOFLOW_ATTEMPT" = 2 ] && exit 0; echo "● Write(one.py)"; read a; echo "$a" > heard.txt; '
        'echo "● Edit(two.py)"; sleep 60'
    )
    here.pipeline("p", here.node("a", forbid="Edit,Write", validate="true"))

    code, said = run(here, "p.dot")

    assert code == 0, said
    assert "You used Write yourself" in here.read("heard.txt")
    assert here.kinds("p")[:4] == ["VIOLATION", "GUIDANCE", "VIOLATION", "KILL_ORCHESTRATOR"]


def test_a_crashed_orchestrator_is_tried_again(site: Any) -> None:
    here = site('echo "$DOFLOW_ATTEMPT" >> "$calls"; [ "$DOFLOW_ATTEMPT" = 1 ] && exit 9; echo ok')
    here.pipeline("p", here.node("a", validate="true"))

    code, said = run(here, "p.dot")

    assert (code, here.panes()) == (0, ["1", "2"]), said


def test_a_runner_that_cannot_work_fails_its_node_in_words(site: Any) -> None:
    here = site(WORK)
    here.pipeline("p", here.node("a", target_dir="nowhere", validate="true"))

    code, said = run(here, "p.dot", "--no-wait")

    assert code == 2, said
    assert "its runner keeps failing" in said
    assert re.search(r"the folder of node a does not exist: \S*/nowhere", said), said


def test_one_pipeline_has_one_guardian(site: Any) -> None:
    here = site("sleep 60")
    here.pipeline("p", here.node("a", validate="true"))
    guardian = here.launch("run", "p.dot")
    assert eventually(lambda: here.holder("p", "guardian.lock") == guardian.pid)

    code, said = run(here, "p.dot")

    assert code == 1
    assert f"a guardian is working on p already (pid {guardian.pid})" in said
    os.kill(guardian.pid, signal.SIGKILL)
    guardian.wait()


def test_what_breaks_the_guardian_is_signalled(site: Any) -> None:
    """R2.69: GUARDIAN_ERROR."""
    here = site(WORK)
    here.pipeline("p", here.node("a", validate="true"))
    here.write("p.dot", here.read("p.dot").replace("digraph p {", "digraph p { a -> ->"))

    code, said = run(here, "p.dot")

    assert code == 1, said
    assert here.kinds("p") == ["GUARDIAN_ERROR"]


def test_nodes_that_wait_for_each_other_are_said_instead_of_waited_for(site: Any) -> None:
    here = site(WORK)
    nodes = (here.node("a", validate="true"), here.node("b", validate="true"))
    here.pipeline("p", *nodes, edges="  start -> a -> b -> finish\n  b -> a")

    code, said = run(here, "p.dot")

    assert code == 1, said
    assert "dependency cycle: a, b" in said


def test_a_judge_of_claude_code_gets_the_mcp_servers_of_the_project_and_no_tool_that_writes(tmp_path: Path) -> None:
    """R2.4 to R2.6."""
    from doflow.agents.adapters import claude
    from doflow.flow.model import Ask, Profile
    from doflow.supervise import judge

    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"beads": {}, "hindsight": {}}}')
    profile = judge.with_mcp_servers(Profile("judge", "claude"), str(tmp_path))
    argv = claude.call(Ask("a", "?", profile, str(tmp_path), "p", "x", role="judge", read_only=True), {}).argv

    words = " ".join(argv)
    assert f"--mcp-config {tmp_path}/.mcp.json --allowedTools mcp__beads,mcp__hindsight" in words
    assert "--tools Read,Glob,Grep" in words
    assert not {"Edit", "Write"} & set(words.replace(",", " ").split())
