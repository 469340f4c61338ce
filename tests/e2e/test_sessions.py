"""Does an agent that is answered go on in its own session, and is a session that is gone no harm?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.cli import Cli
from tests.support.project import Project

from doflow.agents.adapters import claude, codex
from doflow.flow.model import Ask, Outcome, Profile, Usage
from doflow.util.process.runner import Result

FLOW = """
    flow: note
    params: {goal: {about: What, required: true}}
    steps:
      write:
        prompt: "Write about {goal}. Here is a long story that need not be told twice."
        reads: [input.md]
        makes: note.md
        check: {headings: [Done]}
        repair: 2
"""
LEARNS = """
    make("# Note\\n\\n## Done\\n\\nAll is said.\\n" if nth >= 2 else f"# Note {nth}\\n")
"""


def made(project: Project, script: str = LEARNS, flow: str = FLOW) -> Cli:
    project.flow("note", flow)
    return Cli(project, script)


@pytest.mark.smoke
def test_a_failed_check_is_handed_back_in_the_session_that_made_it(project: Project) -> None:
    cli = made(project)

    done = project.doit("note", "--goal=a door")

    assert done.returncode == 0, done.stdout + done.stderr
    first, second, third = cli.calls()
    assert [call["resume"] for call in (first, second, third)] == ["", "session-0", "session-0"]
    assert [call["role"] for call in (first, second, third)] == ["step", "repair", "repair"]
    assert "long story" in first["prompt"] and "long story" not in second["prompt"]
    assert "Done" in second["prompt"] and "did not pass" in second["prompt"] and "note.md" in second["prompt"]


@pytest.mark.smoke
def test_a_session_that_is_gone_is_replaced_by_one_that_is_told_everything(project: Project) -> None:
    cli = made(project)
    cli.forget()

    done = project.doit("note", "--goal=a door")

    assert done.returncode == 0, done.stdout + done.stderr
    assert [call["resume"] for call in cli.calls()] == ["", "session-0", ""]
    assert "long story" in cli.calls()[2]["prompt"] and "did not pass" in cli.calls()[2]["prompt"]
    assert [entry["message"] for entry in project.events() if "no longer exists" in entry.get("message", "")]


def test_a_session_that_is_gone_costs_nothing_under_a_budget(project: Project) -> None:
    more = "        gate: Is it right?\n      tell: {prompt: Tell, makes: end.md}\n"
    cli = made(project, flow=FLOW + more)
    cli.forget()
    program = cli.folder / "claude"
    before, _, after = program.read_text().partition("    tell(type=")
    program.write_text(before + "    sys.exit(1)\n" + after.partition("    sys.exit(1)\n")[2])
    project.write("doflow.yaml", project.read("doflow.yaml") + "budget: {usd: 5}\n")
    project.git("commit", "-qam", "A budget")
    assert project.doit("note", "--goal=a door").returncode == 2
    assert project.doflow("approve", "write").returncode == 0

    done = project.doit("note")

    assert done.returncode == 0, done.stdout + done.stderr
    assert [call["resume"] for call in cli.calls()] == ["", "session-0", "", ""]
    calls = [entry for entry in project.events() if entry["event"] == "call_ended"]
    assert [entry.get("free", False) for entry in calls] == [False, True, False, False]


def test_the_repairs_of_a_command_share_a_session(project: Project) -> None:
    flow = """
        flow: note
        params: {goal: {about: What, required: true}}
        steps:
          test: {kind: shell, run: [grep, -c, enough, try.txt], repair: 3}
    """
    cli = made(project, """
        import os
        with open("try.txt", "a") as file:
            file.write("enough\\n" if nth == 2 else "once\\n")
    """, flow)  # fmt: skip

    done = project.doit("note", "--goal=a door")

    assert done.returncode == 0, done.stdout + done.stderr
    assert [call["resume"] for call in cli.calls()] == ["", "session-0", "session-0"]


def test_what_was_returned_before_a_crash_is_fixed_in_its_session(project: Project) -> None:
    """Killed in the second call, the first one is paid: the next process hands its result back, in its session."""
    cli = made(project, """
        import os, signal
        if nth == 1:
            parent = int(os.environ["PRP_PIPELINE_RUNNING"])
            os.kill(parent, signal.SIGKILL)
            import time
            time.sleep(30)
        make("# Note\\n\\n## Done\\n\\nAll is said.\\n" if nth else "# Note\\n")
    """)  # fmt: skip
    killed = project.doit("note", "--goal=a door")
    assert killed.returncode == -9

    done = project.doit("note")

    assert done.returncode == 0, done.stdout + done.stderr
    assert [call["resume"] for call in cli.calls()] == ["", "session-0", "session-0"]


def test_a_rejected_result_is_revised_in_its_session_and_only_then(project: Project) -> None:
    cli = made(project, 'make(f"# Note {nth}\\n\\n## Done\\n\\nAll.\\n")')
    assert project.doit("note", "--goal=a door").returncode == 0
    project.doflow("reject", "write", "--note", "shorter, please")

    assert project.doit("note").returncode == 0
    assert project.doit("note", "--force=write").returncode == 0

    assert [call["resume"] for call in cli.calls()] == ["", "session-0", ""]
    assert "shorter, please" in cli.calls()[1]["prompt"] and "long story" in cli.calls()[1]["prompt"]


def test_an_answer_that_is_the_artifact_is_saved_when_it_is_fixed(project: Project) -> None:
    made(
        project,
        'say("# Note\\n\\n## Done\\n\\nAll." if nth else "# Note")',
        FLOW.replace("makes:", "from: text\n        makes:"),
    )

    done = project.doit("note", "--goal=a door")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "## Done" in (project.run_dir() / "note.md").read_text()


def outcome(use: str, folder: Path, records: str, **more: object) -> Outcome:
    (folder / "out.log").write_text(records)
    base = Ask("plan", "Do it.", Profile("mine", use), "/project", "001-x", "specs/001-x")
    result = Result(0, str(folder / "out.log"), str(folder / "none"))
    return (claude if use == "claude" else codex).outcome(replace(base, **more), result, lambda: "")  # type: ignore[arg-type]


CLAUDE = (
    '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"","session_id":"s",'
    '"total_cost_usd":0.75,"usage":{"input_tokens":100,"output_tokens":10}}\n'
)
CODEX = '{"type":"turn.completed","usage":{"input_tokens":900,"output_tokens":90,"cached_input_tokens":50}}\n'


def test_a_call_counts_what_it_used_and_not_what_its_session_had_used_before(tmp_path: Path) -> None:
    told = outcome("claude", tmp_path, CLAUDE, resume="s", spent=Usage(100, 10, 0, 0.5))
    fresh = outcome("claude", tmp_path, CLAUDE)
    tokens = outcome("codex", tmp_path, CODEX, resume="s", spent=Usage(600, 50, 20))

    assert (told.usage, told.spent) == (Usage(100, 10, 0, 0.25), Usage(100, 10, 0, 0.75))
    assert fresh.usage == fresh.spent == Usage(100, 10, 0, 0.75)
    assert (tokens.usage, tokens.spent) == (Usage(300, 40, 30), Usage(900, 90, 50))


def test_a_count_that_fell_was_of_one_call(tmp_path: Path) -> None:
    assert outcome("claude", tmp_path, CLAUDE, resume="s", spent=Usage(1, 1, 0, 2.0)).usage == Usage(100, 10, 0, 0.75)
    assert outcome("codex", tmp_path, CODEX, resume="s", spent=Usage(9000, 1)).usage == Usage(900, 90, 50)
