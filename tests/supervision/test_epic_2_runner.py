"""Epic 2: the runner watches a real tmux session and tells the guardian what it sees."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.supervision import Site, eventually, left_over, needs_tmux

from doflow.supervise.signal_store import Signal, SignalStore

pytestmark = needs_tmux


def wait(here: Site, kind: str, seconds: float = 60) -> dict[str, Any]:
    """The next signal of this kind to the guardian, left where it is."""
    answer = here.tool("wait-for-signal", "--pipeline", "p", "--type", kind, "--timeout", str(seconds), "--peek")
    assert answer["status"] == "ok", (answer, here.diary("p"), runner_log(here))
    return answer


def runner_log(here: Site) -> str:
    return "\n".join(path.read_text() for path in (here.root / ".doflow" / "guardian").glob("*/nodes/*/runner.log"))


def begin(here: Site, **more: str) -> int:
    """A pipeline with one node, and a runner for it as a guardian would start it; the runner's pid."""
    here.pipeline("p", here.node("impl_auth", **more))
    answer = here.tool("spawn-runner", "--node", "impl_auth", "--pipeline", "p.dot")
    assert answer["status"] == "ok", answer
    return answer["pid"]


def respond(here: Site, kind: str, *words: str) -> None:
    assert here.tool("respond-to-runner", kind, "--node", "impl_auth", "--pipeline", "p", *words)["status"] == "ok"


def ended(here: Site) -> Callable[[], bool]:
    return lambda: not here.holder("p", "nodes", "impl_auth", "runner.lock")


def session(here: Site) -> dict[str, Any]:
    return here.tool("check-orchestrator-alive", "--node", "impl_auth", "--pipeline", "p")


def test_ac_1_and_2_a_runner_watches_a_session_and_signals_needs_review_at_its_end(site: Any) -> None:
    """R2.84, R2.85: NEEDS_REVIEW with evidence and commit; then the guardian's word ends it, with NODE_COMPLETE."""
    here = site('echo "working"; sleep 1; echo hi > a.txt; git add a.txt; git commit -qm work; echo "all done"')
    begin(here)

    review = wait(here, "NEEDS_REVIEW")

    assert review["payload"]["node_id"] == "impl_auth"
    assert review["payload"]["commit_hash"] == here.git("rev-parse", "HEAD").strip()
    assert "all done" in Path(review["payload"]["evidence_path"]).read_text()
    respond(here, "VALIDATION_PASSED")
    assert wait(here, "NODE_COMPLETE")["payload"]["node_id"] == "impl_auth"
    assert eventually(ended(here))
    assert session(here)["alive"] is False


def test_ac_3_no_progress_is_signalled_as_stuck(site: Any) -> None:
    """R2.86: five minutes by default, settable; a turning clock is no progress."""
    here = site('echo "thinking"; while true; do printf "\\r%s" "$(date +%s)"; sleep 0.2; done')
    begin(here, stuck="2s")

    found = wait(here, "ORCHESTRATOR_STUCK")

    assert found["payload"]["duration_seconds"] >= 2
    assert "thinking" in found["payload"]["last_output"]
    respond(here, "GUIDANCE", "--message", "go on")
    assert eventually(lambda: "go on" in here.tool(*_captured())["content"])


def _captured() -> tuple[str, ...]:
    return ("capture-output", "--node", "impl_auth", "--pipeline", "p")


def test_five_minutes_without_progress_is_the_default(site: Any) -> None:
    here = site("sleep 60")
    begin(here)
    path = here.root / ".doflow" / "guardian" / "p" / "nodes" / "impl_auth" / "node.json"

    assert json.loads(path.read_text())["assignment"]["stuck"] == 300


def test_ac_4_an_input_response_is_typed_into_the_pane(site: Any) -> None:
    """R2.87: a question of the program, the guardian's answer, and on it goes."""
    here = site('echo "DOFLOW: ask Which colour? | red | blue"; read c; echo "$c" > colour.txt; echo fine')
    begin(here)

    asked = wait(here, "NEEDS_INPUT")
    assert asked["payload"] == {"node_id": "impl_auth", "question_text": "Which colour?", "options": ["red", "blue"]}
    respond(here, "INPUT_RESPONSE", "--response", "blue")

    wait(here, "NEEDS_REVIEW")
    assert here.read("colour.txt") == "blue\n"


def test_a_prompt_that_waits_is_a_question_too(site: Any) -> None:
    """R2.34: permission prompts."""
    here = site('printf "Overwrite everything? [y/N] "; read c; echo "answer:$c" > answer.txt')
    begin(here)

    asked = wait(here, "NEEDS_INPUT")

    assert asked["payload"]["question_text"] == "Overwrite everything? [y/N]"
    assert asked["payload"]["options"] == ["y", "n"]
    respond(here, "INPUT_RESPONSE", "--response", "n")
    wait(here, "NEEDS_REVIEW")
    assert here.read("answer.txt") == "answer:n\n"


def test_a_person_who_attached_and_answered_is_not_answered_over(site: Any) -> None:
    here = site('printf "Go? [y/N] "; read c; echo "$c" > one.txt; echo on; sleep 2; read d; echo "$d" > two.txt')
    begin(here)
    asked = wait(here, "NEEDS_INPUT")

    here.tool("send-to-orchestrator", "--node", "impl_auth", "--pipeline", "p", "--message", "y")
    assert eventually(lambda: (here.root / "one.txt").exists())
    time.sleep(1.5)
    folder = os.path.dirname(asked["signal_file"])
    token = asked["id"].partition("-re-")[0]
    late = {"node_id": "impl_auth", "response_text": "late"}
    sent = SignalStore(folder, "p").write(Signal("INPUT_RESPONSE", late, reply=token, attempt=1))
    assert eventually(lambda: not os.path.exists(sent.path)), "it is put away"
    time.sleep(1)

    assert not (here.root / "two.txt").exists(), "and not typed into what is asked by now"


def test_ac_5_the_death_of_a_session_is_signalled_with_its_exit_code(site: Any) -> None:
    """R2.88."""
    here = site('echo "about to fall"; sleep 1; exit 7')
    begin(here)

    found = wait(here, "ORCHESTRATOR_CRASHED")

    assert found["payload"]["exit_code"] == 7
    assert "about to fall" in found["payload"]["last_output"]
    respond(here, "KILL_ORCHESTRATOR", "--reason", "retry")
    assert eventually(ended(here))


def test_a_killed_session_is_a_crash_without_an_exit_code_and_leaves_nothing_running(site: Any) -> None:
    here = site("setsid sleep 1234 & echo up; sleep 1234")
    begin(here)
    assert eventually(lambda: session(here)["alive"])
    assert eventually(lambda: "up" in here.tool(*_captured())["content"])

    (socket,) = here.servers()
    here.tmux(socket, "kill-session", "-t", "orch-impl-auth")

    found = wait(here, "ORCHESTRATOR_CRASHED")
    assert found["payload"]["exit_code"] is None
    seat = here.root / ".doflow" / "guardian" / "p" / "nodes" / "impl_auth" / "seats" / "1"
    assert eventually(lambda: left_over(seat) == [])


def test_a_dead_tmux_server_is_a_crash_too(site: Any) -> None:
    here = site("echo up; sleep 1234")
    begin(here)
    assert eventually(lambda: session(here)["alive"])

    (socket,) = here.servers()
    server = int(here.tmux(socket, "display-message", "-p", "#{pid}"))
    os.kill(server, signal.SIGKILL)

    assert wait(here, "ORCHESTRATOR_CRASHED")["payload"]["node_id"] == "impl_auth"


def test_ac_6_the_prompt_holds_every_attribute_of_the_node(site: Any) -> None:
    """R2.89, R2.29, R2.30: the full example node of the design."""
    here = site('cat "$DOFLOW_PROMPT" > prompt.txt; sleep 60')
    here.write("zenagent/support/x", "")
    told = {
        "bead_id": "AUTH-042", "worker_type": "backend-solutions-engineer", "prd_ref": "PRD-AUTH-001",
        "prd_section": "Epic 2: JWT Authentication", "solution_design": ".claude/documentation/SOLUTION-DESIGN-AUTH.md",
        "target_dir": "zenagent/support", "promise_ac": "AC-2",
        "acceptance": "JWT auth with refresh tokens, unit tests pass, no hardcoded secrets", "extra_hint": "mind the clock",
    }  # fmt: skip
    begin(here, **told)
    path = here.root / "zenagent" / "support" / "prompt.txt"
    assert eventually(lambda: path.exists() and path.read_text().strip() != "")

    prompt = path.read_text()

    assert {name for name, value in told.items() if value not in prompt} == set()
    assert "status" not in prompt


def test_the_prd_of_the_graph_counts_for_a_node_without_one(site: Any) -> None:
    here = site("sleep 60")
    here.write("p.dot", 'digraph p { prd_ref="PRD-ALL"; a [shape=box, handler=codergen, label="A"] }')

    answer = here.tool("spawn-runner", "--node", "a", "--pipeline", "p.dot")

    assert answer["prd"] == "PRD-ALL"


def test_one_node_has_one_runner(site: Any) -> None:
    here = site("sleep 60")
    begin(here)
    assert eventually(lambda: here.holder("p", "nodes", "impl_auth", "runner.lock") > 0)

    second = here.tool("spawn-runner", "--node", "impl_auth", "--pipeline", "p.dot")
    third = here.doflow("runner", "run", "--node", "impl_auth", "--pipeline", "p")

    assert second["status"] == "error"
    assert "a runner is working on impl_auth already" in second["message"]
    assert third.returncode == 1
    assert "a runner is working on impl_auth already" in third.stderr


def test_a_new_runner_finds_the_session_of_a_killed_one_and_says_nothing_twice(site: Any) -> None:
    """R2.1: restartable; the orchestrator never notices."""
    here = site('echo "$$" >> "$calls"; while [ ! -e go ]; do sleep 0.1; done; echo done')
    pid = begin(here)
    assert eventually(lambda: here.panes())
    os.kill(pid, signal.SIGKILL)
    assert eventually(ended(here))
    here.tool("spawn-runner", "--node", "impl_auth", "--pipeline", "p.dot")
    (here.root / "go").touch()

    review = wait(here, "NEEDS_REVIEW")
    os.kill(here.holder("p", "nodes", "impl_auth", "runner.lock"), signal.SIGKILL)
    assert eventually(ended(here))
    here.tool("spawn-runner", "--node", "impl_auth", "--pipeline", "p.dot")
    time.sleep(2.5)

    assert len(here.panes()) == 1, "one orchestrator, one start"
    assert [one["id"] for one in here.said("p") if one["signal_type"] == "NEEDS_REVIEW"] == [review["id"]]


def test_a_runner_that_died_before_its_orchestrator_began_is_followed_by_one_that_starts_it(site: Any) -> None:
    """The folder is there, the session is not, or holds a program that never read what to do."""
    here = site('echo "$DOFLOW_ATTEMPT" >> "$calls"; echo ok')
    here.pipeline("p", here.node("impl_auth"))
    node = here.root / ".doflow" / "guardian" / "p" / "nodes" / "impl_auth"
    (node / "seats" / "1" / "events").mkdir(parents=True)
    (node / "runner.json").write_text('{"attempt": 1, "seat": 1}')

    here.tool("spawn-runner", "--node", "impl_auth", "--pipeline", "p.dot")

    assert wait(here, "NEEDS_REVIEW")["attempt"] == 1
    assert here.panes() == ["1"]
    assert sorted(path.name for path in (node / "seats").iterdir()) == ["1", "2"]


def test_a_runner_whose_project_is_removed_ends_its_session_and_goes(site: Any) -> None:
    here = site("sleep 600")
    pid = begin(here)
    assert eventually(lambda: session(here)["alive"])
    (socket,) = here.servers()

    shutil.move(here.root / ".doflow", here.outside / "removed")  # at once: its runner still writes there

    assert eventually(lambda: not Path(f"/proc/{pid}/exe").exists())
    assert here.tmux(socket, "list-sessions") == ""


def test_feedback_reaches_a_living_orchestrator_in_its_own_session(site: Any) -> None:
    here = site(
        'echo "$$" >> "$calls"; echo one; echo "DOFLOW: done"; while read line; do echo "heard: $line" >> heard.txt; '
        'case "$line" in *"finish as before"*) echo "DOFLOW: done";; esac; done'
    )
    begin(here)
    wait(here, "NEEDS_REVIEW")
    here.tool("wait-for-signal", "--pipeline", "p", "--type", "NEEDS_REVIEW", "--timeout", "5")

    respond(here, "VALIDATION_FAILED", "--feedback", "two tests fail", "--retry-count", "1")

    again = wait(here, "NEEDS_REVIEW")
    assert again["attempt"] == 2
    assert "two tests fail" in here.read("heard.txt")
    assert len(here.panes()) == 1, "the same session"


def test_feedback_to_an_orchestrator_that_has_gone_starts_a_new_one(site: Any) -> None:
    here = site('echo "$DOFLOW_ATTEMPT" >> "$calls"; cat "$DOFLOW_PROMPT" > "prompt-$DOFLOW_ATTEMPT.txt"; echo ok')
    begin(here)
    wait(here, "NEEDS_REVIEW")
    here.tool("wait-for-signal", "--pipeline", "p", "--type", "NEEDS_REVIEW", "--timeout", "5")

    respond(here, "VALIDATION_FAILED", "--feedback", "two tests fail", "--retry-count", "1")

    assert wait(here, "NEEDS_REVIEW")["attempt"] == 2
    assert here.panes() == ["1", "2"]
    assert "two tests fail" in here.read("prompt-2.txt")


def test_a_direct_edit_where_it_is_forbidden_is_a_violation(site: Any) -> None:
    """R2.35, by the screen."""
    here = site('printf "● Write(src/auth.py)\\n  wrote 3 lines\\n"; sleep 60')
    begin(here, forbid="Edit,Write")

    found = wait(here, "VIOLATION")

    assert found["payload"] == {
        "node_id": "impl_auth", "violation_type": "direct_edit", "evidence": "Write(src/auth.py)",
    }  # fmt: skip


def test_the_same_error_again_and_again_is_told_before_the_clock_runs_out(site: Any) -> None:
    """R2.33."""
    here = site('for i in 1 2 3; do echo "ValueError: no such door"; sleep 0.3; done; sleep 60')
    begin(here)

    found = wait(here, "ORCHESTRATOR_STUCK")

    assert found["payload"]["last_output"].count("ValueError: no such door") >= 3


def test_context_and_tokens_are_kept_for_whoever_asks(site: Any) -> None:
    """R2.38."""
    here = site('echo "(12s · 1.2k tokens)"; echo "Context left until auto-compact: 7%"; sleep 60')
    begin(here)

    assert eventually(lambda: session(here)["health"].get("context_left") == 7)
    assert session(here)["health"]["tokens"] == 1200


def test_the_agent_gets_the_allow_list_and_the_server_keeps_no_secret(site: Any) -> None:
    here = site("env > seen.txt; sleep 60")
    here.env |= {"MY_SECRET": "hush", "CLAUDECODE": "1"}
    begin(here)
    assert eventually(lambda: (here.root / "seen.txt").exists() and "DOFLOW_NODE" in here.read("seen.txt"))

    seen = here.read("seen.txt")
    (socket,) = here.servers()

    assert "MY_SECRET" not in seen
    assert "CLAUDECODE" not in seen
    assert "DOFLOW_PIPELINE=p\n" in seen
    assert "MY_SECRET" not in here.tmux(socket, "show-environment", "-g")
