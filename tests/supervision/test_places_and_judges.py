"""Where a pipeline lives, who holds what, and what a judge's words are worth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from doflow.flow.model import Profile, Settings, Supervision
from doflow.supervise import judge, pipeline_context
from doflow.supervise.pipeline_context import PipelineContext
from doflow.util import locks
from doflow.util.errors import LockHeld, UsageError

pytestmark = pytest.mark.smoke


def settings(judge: str = "true") -> Settings:
    argv = ("sh", "-c", judge)
    return Settings(agents=(Profile("default", "command", argv=("true",)), Profile("wise", "command", argv=argv)))


def found(
    tmp_path: Path, said: str = "p.dot", chosen: Settings | None = None, environ: dict[str, str] | None = None
) -> PipelineContext:
    (tmp_path / "p.dot").write_text("digraph p { }")
    return pipeline_context.find_context(
        str(tmp_path), chosen or settings(), environ or {}, str(tmp_path / said) if said else ""
    )


def test_a_pipeline_has_a_folder_of_signals_of_its_own(tmp_path: Path) -> None:
    place = found(tmp_path)

    assert (place.pipeline, place.dot) == ("p", str(tmp_path / "p.dot"))
    assert place.store.folder == str(tmp_path / ".claude/attractor/signals/p")
    assert found(tmp_path, "").store.folder == str(tmp_path / ".claude/attractor/signals")
    assert place.tmux.socket != found(tmp_path, "").tmux.socket


def test_the_folder_of_signals_can_be_said_otherwise(tmp_path: Path) -> None:
    by_environment = found(tmp_path, environ={"DOFLOW_SIGNALS": str(tmp_path / "x")})
    by_settings = found(tmp_path, chosen=Settings(supervision=Supervision(signals="y")))
    by_flag = pipeline_context.find_context(
        str(tmp_path), settings(), {"DOFLOW_SIGNALS": "/no"}, str(tmp_path / "p.dot"), str(tmp_path / "z")
    )

    folders = [place.store.folder for place in (by_environment, by_settings, by_flag)]
    assert folders == [str(tmp_path / name / "p") for name in "xyz"]


def test_a_pipeline_is_found_again_by_its_name_and_a_taken_name_is_refused(tmp_path: Path) -> None:
    pipeline_context.register(found(tmp_path))
    assert pipeline_context.find_context(str(tmp_path), settings(), {}, "p").dot == str(tmp_path / "p.dot")
    assert pipeline_context.find_context(str(tmp_path), settings(), {}, "q").dot == ""
    other = tmp_path / "other"
    other.mkdir()
    (other / "p.dot").write_text("digraph p { }")

    with pytest.raises(UsageError, match="the name p is already used by"):
        pipeline_context.register(pipeline_context.find_context(str(tmp_path), settings(), {}, str(other / "p.dot")))


def test_one_holder_at_a_time_and_the_dead_hold_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "x.lock")
    assert locks.holder_pid(path) == 0

    with pipeline_context.held(path, "somebody works"):
        assert locks.holder_pid(path) == os.getpid()
        with (
            pytest.raises(LockHeld, match=rf"somebody works already \(pid {os.getpid()}\)"),
            pipeline_context.held(path, "somebody works"),
        ):
            pass
    assert locks.holder_pid(path) == 0
    script = (
        f"import os\nfrom doflow.supervise import pipeline_context as place\n"
        f"with place.held({path!r}, 'x'):\n  os.kill(os.getpid(), 9)"
    )
    assert subprocess.run((sys.executable, "-c", script), check=False).returncode == -9
    assert locks.holder_pid(path) == 0


def test_a_diary_line_for_everything_that_happens(tmp_path: Path) -> None:
    """R2.118, R2.122."""
    place = found(tmp_path)
    place.note("guardian", "transition", node="a", to="active")
    place.note("runner", "signalled", node="a")

    lines = (Path(place.folder) / "events.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert '"layer": "guardian", "event": "transition", "node": "a", "to": "active"' in lines[0]


def test_an_unknown_profile_is_said_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match=r"the judge of a: unknown agent 'nobody'.*has: default, wise"):
        pipeline_context.find_profile(settings(), "nobody", "the judge of a")
    assert pipeline_context.find_profile(settings(), "rehearsal", "x") == Profile("rehearsal", "rehearsal")


WORDS = {"ANSWER": "the answer", "ESCALATE": "why"}


@pytest.mark.parametrize(
    ("says", "decision"),
    [
        ("echo 'I think.'; echo 'DECISION: ANSWER use SQLite'", ("ANSWER", "use SQLite")),
        ("echo '**DECISION: ESCALATE it costs money**'", ("ESCALATE", "it costs money")),
        (
            "echo 'DECISION: ANSWER a'; echo 'DECISION: ANSWER b'",
            ("CANNOT-TELL", "DECISION: ANSWER a; DECISION: ANSWER b"),
        ),
        ("echo 'DECISION: ANSWER a'; echo '> DECISION: ANSWER b'", ("ANSWER", "a")),
        ("echo 'DECISION: CANNOT-TELL no idea'", ("CANNOT-TELL", "no idea")),
        ("echo 'DECISION: MAYBE'", ("CANNOT-TELL", "DECISION: MAYBE")),
        ("echo 'use SQLite'", ("CANNOT-TELL", "use SQLite")),
        ("true", ("CANNOT-TELL", "the judge did not answer")),
        ("echo 'DECISION: ANSWER x'; exit 3", ("CANNOT-TELL", "the judge did not answer")),
    ],
)
def test_a_judge_counts_only_in_the_words_that_were_asked_for(
    says: str, decision: tuple[str, str], tmp_path: Path
) -> None:
    place = found(tmp_path, chosen=settings(f"cat > /dev/null; {says}"))

    assert judge.decide(place, "wise", "a", "q1", "Which?", WORDS) == decision


def test_a_judge_is_asked_once_and_told_that_it_may_not_write(tmp_path: Path) -> None:
    log = tmp_path / "asked.txt"
    place = found(tmp_path, chosen=settings(f"cat >> {log}; echo 'DECISION: ANSWER yes'"))

    for _ in range(2):
        assert judge.decide(place, "wise", "a", "q1", "Which?", WORDS) == ("ANSWER", "yes")

    text = log.read_text()
    assert text.count("Which?") == 1, "the answer is kept"
    assert "change no file and start nothing" in text
    assert "DECISION: CANNOT-TELL" in text
    judge.decide(place, "wise", "a", "q2", "Which?", WORDS)
    assert log.read_text().count("Which?") == 2, "another question is another question"


def test_only_claude_code_is_given_mcp_servers_and_only_if_there_are_any(tmp_path: Path) -> None:
    """R2.4."""
    plain = Profile("j", "claude")
    assert judge.with_mcp_servers(plain, str(tmp_path)) == plain
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {}}')
    assert judge.with_mcp_servers(plain, str(tmp_path)) == plain
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"beads": {}}}')
    assert judge.with_mcp_servers(Profile("j", "codex"), str(tmp_path)).args == ()
    assert "mcp__beads" in judge.with_mcp_servers(plain, str(tmp_path)).args
