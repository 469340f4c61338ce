"""Does every agent honour its contract? The programs are started for real."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from doflow.agents import rate_limits, registry
from doflow.flow.model import Ask, Check, Outcome, Profile, Status
from doflow.util.errors import FlowError, UsageError
from doflow.util.process import runner
from doflow.util.process.runner import Result, Timeout

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
LONG = Timeout(60, 60)
PERSON = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "CLAUDECODE": "1", "MY_TOKEN": "mine", "SECRET": "x"}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    runner.reset()
    yield
    runner.close()


def ask(root: Path, use: str = "rehearsal", argv: tuple[str, ...] = (), **more: object) -> Ask:
    profile = Profile("mine", use, argv=argv, env=("MY_TOKEN",), rate_limit_match="Usage Limit")
    (root / "specs/001-x").mkdir(parents=True, exist_ok=True)
    base = Ask("plan", "Do it.\n", profile, str(root), "001-x", "specs/001-x", goal="A door")
    return replace(base, **more)  # type: ignore[arg-type]


def perform(question: Ask, environ: Mapping[str, str] = PERSON, timeout: Timeout = LONG) -> Outcome:
    """One call of an agent, as a step makes it; fresh logs each time."""
    agent = registry.find_agent(question.profile.use)
    logs = Path(question.root) / "logs"
    count = len(list(logs.glob("*.out")))
    out, err = str(logs / f"{count}.out"), str(logs / f"{count}.err")
    result = runner.run(agent.call(question, environ), out, err, timeout, grace=0.2)
    return agent.outcome(question, result, lambda: Path(out).read_text())


def script(root: Path, text: str, **more: object) -> Ask:
    return ask(root, "command", ("sh", "-c", text), **more)


# Every agent of the registry


@pytest.mark.parametrize("use", sorted(registry.KNOWN))
def test_an_agent_is_a_name_and_two_functions_that_take_the_prompt_on_stdin(use: str, tmp_path: Path) -> None:
    agent = registry.find_agent(use)
    command = agent.call(ask(tmp_path, use, ("true",), prompt="Grüße"), PERSON)

    assert use == agent.NAME
    assert command.stdin == "Grüße".encode()
    assert command.cwd == str(tmp_path)
    assert not any("Grüße" in word for word in command.argv)
    assert "CLAUDECODE" not in command.env and "SECRET" not in command.env
    assert command.env["PRP_PIPELINE_RUNNING"] == str(os.getpid())
    assert command.env["MY_TOKEN"] == "mine"


@pytest.mark.parametrize("use", sorted(registry.KNOWN))
@pytest.mark.parametrize(
    ("code", "stopped", "status", "transient"),
    [
        (0, "cancelled", Status.CANCELLED, False),
        (-15, "idle", Status.TIMEOUT, True),
        (0, "max", Status.TIMEOUT, True),
    ],
)
def test_every_agent_tells_an_end_from_a_stop(
    use: str, code: int, stopped: str, status: Status, transient: bool, tmp_path: Path
) -> None:
    result = Result(code, str(tmp_path / "out"), str(tmp_path / "err"), 1.0, stopped)

    outcome = registry.find_agent(use).outcome(ask(tmp_path, use, ("tool",)), result, lambda: "said")

    assert (outcome.status, outcome.transient, outcome.text) == (status, transient, "")
    assert outcome.reason


@pytest.mark.parametrize("use", sorted(registry.KNOWN))
def test_exit_zero_alone_is_success_only_where_it_is_the_contract(use: str, tmp_path: Path) -> None:
    result = Result(0, str(tmp_path / "out"), str(tmp_path / "err"), 1.0, "")

    outcome = registry.find_agent(use).outcome(ask(tmp_path, use, ("tool",)), result, lambda: "said")

    assert outcome.ok == (use in ("command", "rehearsal"))
    assert outcome.text == ("said" if outcome.ok else "")


@pytest.mark.parametrize("use", sorted(registry.KNOWN))
@pytest.mark.parametrize("code", [1, 2, 126, 127, 255, -9, -11])
def test_no_agent_takes_a_failure_for_success(use: str, code: int, tmp_path: Path) -> None:
    result = Result(code, str(tmp_path / "out"), str(tmp_path / "err"), 1.0)

    outcome = registry.find_agent(use).outcome(ask(tmp_path, use, ("tool",)), result, lambda: "")

    assert outcome.status is Status.FAILED
    assert outcome.reason and outcome.hint


def test_an_unknown_agent_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="unknown agent 'comand'") as caught:
        registry.find_agent("comand")
    assert caught.value.hint == "did you mean `use: command`?"

    with pytest.raises(UsageError) as caught:
        registry.find_agent("zzz")
    assert "rehearsal" in caught.value.hint


# command


def test_a_command_gets_its_variables_and_its_prompt_and_its_stdout_is_the_text(tmp_path: Path) -> None:
    makes = ("spec.md", "/docs/a.md")
    question = script(
        tmp_path, "pwd; cat; env | grep ^DOFLOW_ | grep -v TREE | sort", makes=makes, phase="2", persona="pm"
    )

    outcome = perform(question)

    assert outcome.status is Status.DONE
    assert outcome.text.splitlines() == [
        str(tmp_path),
        "Do it.",
        "DOFLOW_ATTEMPT=1",
        f"DOFLOW_MAKES={tmp_path}/specs/001-x/spec.md",
        "DOFLOW_PERSONA=pm",
        "DOFLOW_PHASE=2",
        "DOFLOW_ROLE=step",
        "DOFLOW_ROUND=0",
        "DOFLOW_RUN=001-x",
        f"DOFLOW_RUN_DIR={tmp_path}/specs/001-x",
        "DOFLOW_STEP=plan",
    ]  # the second path of DOFLOW_MAKES stands on a line of its own, which grep leaves out
    assert registry.agent_variables(question)["DOFLOW_MAKES"].split("\n")[1] == f"{tmp_path}/docs/a.md"


def test_outside_a_phase_there_is_no_phase_variable(tmp_path: Path) -> None:
    assert perform(script(tmp_path, 'echo "${DOFLOW_PHASE-unset}"')).text == "unset\n"


def test_nothing_in_the_argv_of_a_command_is_substituted(tmp_path: Path) -> None:
    question = ask(tmp_path, "command", ("printf", "%s|", "{prompt}", "{goal}", "$HOME", "`id`", "*"))

    assert perform(question).text == "{prompt}|{goal}|$HOME|`id`|*|"


def test_a_command_may_be_a_program_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/agent.sh").write_text("#!/bin/sh\necho mine\n")
    (tmp_path / "tools/agent.sh").chmod(0o755)

    assert perform(ask(tmp_path, "command", ("tools/agent.sh",))).text == "mine\n"


def test_a_path_is_taken_as_the_flow_the_project_or_the_system_says_it(tmp_path: Path) -> None:
    question = ask(tmp_path)
    said = ("a.md", "/a.md", "specs/001-x/a.md", f"{tmp_path}/b/a.md")

    assert [registry.artifact_path(question, path).removeprefix(f"{tmp_path}/") for path in said] == [
        *("specs/001-x/a.md", "a.md", "specs/001-x/a.md", "b/a.md"),
    ]


def test_a_command_without_argv_is_an_error_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match=r"agents\.mine: `use: command` needs an `argv`"):
        perform(ask(tmp_path, "command"))


def test_a_command_that_is_not_there_fails_for_good_and_says_what_to_check(tmp_path: Path) -> None:
    outcome = perform(ask(tmp_path, "command", ("no-such-agent",)))

    assert (outcome.status, outcome.transient) == (Status.FAILED, False)
    assert "no-such-agent was not found" in outcome.reason
    assert "agents.mine.argv" in outcome.hint


def test_a_failing_command_may_be_tried_again_and_its_last_words_are_the_reason(tmp_path: Path) -> None:
    outcome = perform(script(tmp_path, "echo working; echo 'no \033[31mnetwork' >&2; exit 4"))

    assert (outcome.status, outcome.transient) == (Status.FAILED, True)
    assert outcome.reason == "sh failed with exit code 4: no \\x1b[31mnetwork"


def test_a_command_killed_by_a_signal_failed(tmp_path: Path) -> None:
    outcome = perform(script(tmp_path, "kill -9 $$"))

    assert (outcome.status, outcome.reason) == (Status.FAILED, "sh was killed by signal 9 (SIGKILL)")


def test_a_silent_command_runs_into_its_timeout(tmp_path: Path) -> None:
    outcome = perform(script(tmp_path, "sleep 60"), timeout=Timeout(0.3, 0))

    assert (outcome.status, outcome.transient) == (Status.TIMEOUT, True)
    assert "timeouts.idle" in outcome.hint


@pytest.mark.parametrize(
    "text",
    [
        "echo; echo ' RESUME-AT: {when} '; exit 75",
        "echo 'RESUME-AT: {when}' >&2; exit 75",
        "echo 'Sorry: USAGE limit reached'; echo 'RESUME-AT: {when}'; exit 1",
        "echo 'usage limit' >&2; echo 'RESUME-AT: {when}' >&2; exit 2",
    ],
)
def test_a_rate_limit_shows_by_exit_code_or_words_and_says_when(text: str, tmp_path: Path) -> None:
    when = (datetime.now(UTC) + timedelta(hours=3)).replace(microsecond=0)

    outcome = perform(script(tmp_path, text.format(when=when.isoformat())))

    assert outcome.status is Status.RATE_LIMITED
    assert outcome.resume_at == when.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert "rate limited" in outcome.reason


def test_a_limit_that_ends_too_far_away_is_told_and_not_believed(tmp_path: Path) -> None:
    outcome = perform(script(tmp_path, "echo 'RESUME-AT: 2130-01-01T12:00:00Z'; exit 75"))

    assert "(the agent said 2130-01-01T12:00:00Z; limited to 7 days)" in outcome.reason
    assert datetime.fromisoformat(outcome.resume_at) < datetime.now(UTC) + timedelta(days=8)


def test_a_text_that_speaks_of_limits_is_no_rate_limit(tmp_path: Path) -> None:
    assert perform(script(tmp_path, "echo 'how to show a usage limit'")).status is Status.DONE


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("2026-05-01T15:00:00Z", "2026-05-01T15:00:00Z"),
        ("2026-05-01T15:00:00+02:00", "2026-05-01T13:00:00Z"),
        ("2026-05-01T11:00:00Z", "2026-05-01T12:01:00Z"),
        ("1970-01-01", "2026-05-01T12:01:00Z"),
        ("9999-12-31T23:59:59Z", "2026-05-08T12:00:00Z"),
        ("9999-12-31T23:59:59-12:00", "2026-05-01T13:00:00Z"),
        ("0001-01-01T00:00:00", None),
        ("", "2026-05-01T13:00:00Z"),
        ("soon", "2026-05-01T13:00:00Z"),
    ],
)
def test_a_reset_time_is_kept_between_a_minute_and_a_week(said: str, expected: str | None) -> None:
    assert rate_limits.parse_resume_time(said, NOW) in (
        [expected] if expected else ["2026-05-01T12:01:00Z", "2026-05-01T13:00:00Z"]
    )


# rehearsal


def artifact(question: Ask, name: str) -> str:
    return (Path(question.root) / "specs/001-x" / name).read_text()


def test_a_rehearsal_meets_the_contract_and_says_what_it_is(tmp_path: Path) -> None:
    question = ask(tmp_path, makes=("spec.md", "/docs/more.md"), check=Check(True, ("Requirements", "Risks")))

    outcome = perform(question)

    assert outcome.status is Status.DONE
    for text in (artifact(question, "spec.md"), (tmp_path / "docs/more.md").read_text()):
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Requirements", "Risks"]
        assert "This is a rehearsal" in text
        assert "A door" in text
    assert "rehearsal" in outcome.text


def test_two_rehearsals_give_the_same_bytes_wherever_they_stand(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        question = ask(tmp_path / name, makes=("tasks.md",), check=Check(tasks="strict"))
        outcomes = [perform(question), perform(question)]
        texts.append((artifact(question, "tasks.md"), [outcome.text for outcome in outcomes]))

    assert texts[0] == texts[1]


def test_a_rehearsal_revises_what_is_there_by_a_line(tmp_path: Path) -> None:
    question = ask(tmp_path, makes=("spec.md",), check=Check(headings=("Needs",)))
    perform(question)
    first = artifact(question, "spec.md")
    for _ in range(2):
        perform(question)

    assert artifact(question, "spec.md") == (
        f"{first}\nRevised in rehearsal, time 1.\n\nRevised in rehearsal, time 2.\n"
    )


def test_a_revision_adds_the_headings_that_a_person_left_out(tmp_path: Path) -> None:
    question = ask(tmp_path, makes=("spec.md",), check=Check(headings=("Needs", "Risks"), tasks="strict"))
    (tmp_path / "specs/001-x/spec.md").write_text("# Mine\n\n## Needs\n\nmy words")

    perform(question)

    text = artifact(question, "spec.md")
    assert text.startswith("# Mine\n\n## Needs\n\nmy words\n")
    assert (text.count("## Needs"), text.count("## Risks"), text.count("## Phase ")) == (1, 1, 3)


def test_rehearsed_tasks_have_three_phases_and_numbered_boxes(tmp_path: Path) -> None:
    question = ask(tmp_path, makes=("tasks.md",), check=Check(tasks="strict"))
    perform(question)

    text = artifact(question, "tasks.md")
    assert re.findall(r"^## Phase (\d+): \w", text, re.MULTILINE) == ["1", "2", "3"]
    numbers = re.findall(r"^- \[ \] \[T(\d{3})\] \w", text, re.MULTILINE)
    assert numbers == [f"{number:03d}" for number in range(1, 7)]


def test_a_rehearsed_phase_makes_a_file_and_ticks_nothing(tmp_path: Path) -> None:
    tasks = tmp_path / "specs/001-x/tasks.md"
    question = ask(tmp_path, step="implement", phase="2", read_only=False)
    tasks.write_text("- [ ] [T001] x\n")

    perform(question)

    assert "This is a rehearsal" in (tmp_path / "rehearsal/phase-2.md").read_text()
    assert tasks.read_text() == "- [ ] [T001] x\n"


def test_a_rehearsal_whose_text_is_the_artifact_prints_it_and_writes_nothing(tmp_path: Path) -> None:
    question = ask(tmp_path, makes=("notes.md",), from_text=True, check=Check(headings=("Findings",)))

    outcome = perform(question)

    assert "## Findings" in outcome.text and "This is a rehearsal" in outcome.text
    assert not (tmp_path / "specs/001-x/notes.md").exists()


@pytest.mark.parametrize("from_text", [False, True])
def test_a_rehearsal_takes_the_first_way_at_a_fork(from_text: bool, tmp_path: Path) -> None:
    question = ask(tmp_path, makes=("a.md",), from_text=from_text, markers=("SCALE: SMALL", "SCALE: LARGE"))

    assert perform(question).text.splitlines()[-1] == "SCALE: SMALL"


def test_a_rehearsed_reviewer_says_go(tmp_path: Path) -> None:
    outcome = perform(ask(tmp_path, role="persona", persona="risk", makes=("review.yaml",)))

    assert outcome.text.splitlines()[-1] == "VERDICT: GO"
    assert not (tmp_path / "specs/001-x/review.yaml").exists()


def test_a_rehearsed_data_file_fits_its_schema(tmp_path: Path) -> None:
    import jsonschema
    import yaml

    part = {"type": "object", "required": ["id", "size"], "properties": {"size": {"enum": ["S", "L"]}}}
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["items", "count", "title", "ok"],
        "properties": {
            "items": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/part"}},
            "count": {"type": "integer", "minimum": 3},
            "title": {"type": "string", "maxLength": 10},
            "ok": {"type": ["boolean", "null"]},
        },
        "$defs": {"part": part},
    }
    question = ask(tmp_path, makes=("a.json", "b.yaml"), check=Check(schema="part.schema.json"))
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/part.schema.json").write_text(json.dumps(schema))

    for _ in range(2):
        perform(question)

    for value in (json.loads(artifact(question, "a.json")), yaml.safe_load(artifact(question, "b.yaml"))):
        jsonschema.validate(value, schema)
    assert "This is a rehearsal" in artifact(question, "b.yaml")


def test_a_rehearsal_that_cannot_write_fails_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "blocked").touch()

    outcome = perform(ask(tmp_path, makes=("/blocked/a.md",)))

    assert outcome.status is Status.FAILED
    assert "Error" in outcome.reason


def test_a_rehearsal_imports_nothing_that_stands_in_the_project(tmp_path: Path) -> None:
    for name in ("json.py", "os.py", "doflow.py"):
        (tmp_path / name).write_text("raise SystemExit(66)\n")

    assert perform(ask(tmp_path, makes=("a.md",), check=Check(headings=("X",)))).status is Status.DONE
    assert registry.find_agent("rehearsal").call(ask(tmp_path), PERSON).argv[:3] == (sys.executable, "-I", "-S")
