"""Settings: who wins, who said it, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from doflow.config import settings
from doflow.flow.model import Budget, Profile, Retry, Settings
from doflow.util.errors import FlowError
from doflow.util.process.runner import Timeout

WHOLE = """\
agents:
  default: {use: claude, model: opus}
  cheap:   {use: codex, fallback: default, sandbox: bwrap, args: [--fast], executable: /opt/c, price: {in: 1, out: 2.5}}
  mine:    {use: command, argv: [python3, tools/agent.py], env: [MY_TOKEN], rate_limit: {exit: 9, match: usage limit}}
route_agents: {planreview: cheap}
gates: {after-plan: true, after-tasks: false}
auto_approve: false
review_mode: command
command_variant: simple
timeouts: {idle: 5m, max: 1h, steps: {implement: {max: 4h}, plan: {idle: 90s}}}
retry: {enabled: false, max_retries: 4, backoff_seconds: 7}
rate_limit: {wait: 6h}
budget: {usd: 20, tokens: null, on_exceed: fail}
triggers: [agent, packaged]
review_command: [review, --all]
notify: {command: [notify-send, doflow]}
protect: ["PRD.md", "*tasks*.json"]
git: {branch: current, commit_artifacts: false, verify: true}
layout: plan
"""


def written(root: Path, text: str) -> Path:
    (root / "doflow.yaml").write_text(text)
    return root


def origin(found: Settings, path: str) -> tuple[str, str]:
    return next((value, where) for name, value, where in found.origins if name == path)


def refusal(root: Path, environ: dict[str, str] | None = None, flags: dict[str, object] | None = None) -> str:
    with pytest.raises(FlowError) as caught:
        settings.load(root, environ or {}, flags or {})
    return str(caught.value)


def test_without_a_file_everything_is_the_default_of_the_model(tmp_path: Path) -> None:
    found = settings.load(tmp_path, {})

    assert {where for _, _, where in found.origins} == {"default"}
    assert origin(found, "timeouts.idle") == ("10m", "default")
    assert Settings(origins=found.origins) == found


def test_the_whole_file_of_the_documentation_arrives(tmp_path: Path) -> None:
    found = settings.load(written(tmp_path, WHOLE), {})

    assert found == Settings(
        agents=(
            Profile("default", "claude", "opus"),
            Profile(
                "cheap",
                "codex",
                args=("--fast",),
                executable="/opt/c",
                fallback="default",
                sandbox="bwrap",
                price={"in": 1.0, "out": 2.5},
            ),
            Profile(
                "mine",
                "command",
                argv=("python3", "tools/agent.py"),
                env=("MY_TOKEN",),
                rate_limit_exit=9,
                rate_limit_match="usage limit",
            ),
        ),
        route_agents=(("planreview", "cheap"),),
        gates=("after-plan",),
        review_mode="command",
        command_variant="simple",
        timeout=Timeout(300, 3600),
        step_timeouts=(("implement", None, 14400.0), ("plan", 90.0, None)),
        retry_enabled=False,
        retry=Retry(4, 7),
        rate_limit_wait=21600.0,
        budget=Budget(20),
        budget_on_exceed="fail",
        triggers=("agent", "packaged"),
        review_command=("review", "--all"),
        notify=("notify-send", "doflow"),
        protect=("PRD.md", "*tasks*.json"),
        branch="current",
        commit_artifacts=False,
        verify=True,
        layout="plan",
        origins=found.origins,
    )
    assert origin(found, "timeouts.steps.implement.max") == ("4h", "doflow.yaml:10")


def test_flags_beat_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    written(tmp_path, "budget: {usd: 1, tokens: 1}\nretry: {max_retries: 1}\n")
    environ = {"DOFLOW_SET_BUDGET__USD": "5", "DOFLOW_SET_BUDGET__TOKENS": "2000", "PATH": "/bin"}

    found = settings.load(tmp_path, environ, {"budget.usd": 7, "auto_approve": True, "layout": None})

    assert (found.budget, found.retry.attempts, found.auto_approve) == (Budget(7.0, 2000), 1, True)
    assert origin(found, "budget.usd") == ("7", "--budget.usd")
    assert origin(found, "budget.tokens") == ("2000", "DOFLOW_SET_BUDGET__TOKENS")
    assert origin(found, "retry.max_retries") == ("1", "doflow.yaml:2")
    assert origin(found, "auto_approve") == ("true", "--auto-approve")
    assert origin(found, "layout") == ("specs", "default")


def test_the_environment_may_give_lists_and_mappings(tmp_path: Path) -> None:
    environ = {
        "DOFLOW_SET_PROTECT": "[a.md, '*.json']",
        "DOFLOW_SET_AGENTS__MINE": "{use: command, argv: [x, '1']}",
        "DOFLOW_SET_AGENTS__DEFAULT__MODEL": "4",
        "DOFLOW_SET_RATE_LIMIT__WAIT": "1h30m",
        "DOFLOW_SET_GATES__AFTER_PLAN": "true",
    }

    found = settings.load(tmp_path, environ)

    assert found.protect == ("a.md", "*.json")
    assert found.profile("mine") == Profile("mine", "command", argv=("x", "1"))
    assert found.profile("default") == Profile("default", "claude", "4")
    assert (found.rate_limit_wait, found.gates) == (5400.0, ("after-plan",))


def test_names_a_person_chose_are_found_with_dashes_too(tmp_path: Path) -> None:
    written(tmp_path, "agents: {my-agent: {use: codex}}\n")

    found = settings.load(tmp_path, {"DOFLOW_SET_AGENTS__MY_AGENT__MODEL": "big"})

    assert found.profile("my-agent") == Profile("my-agent", "codex", "big")


def test_another_program_does_not_inherit_the_model_of_the_default_one(tmp_path: Path) -> None:
    written(tmp_path, "agents: {default: {use: codex}}\n")

    assert settings.load(tmp_path, {}).agents == (Profile("default", "codex"),)


def test_only_a_model_keeps_the_default_program(tmp_path: Path) -> None:
    written(tmp_path, "agents: {default: {model: opus}}\n")

    assert settings.load(tmp_path, {}).agents == (Profile("default", "claude", "opus"),)


@pytest.mark.parametrize("text", ["", "\n", "# nothing yet\n\n  # agents:\n"])
def test_an_empty_file_is_no_settings(tmp_path: Path, text: str) -> None:
    assert settings.load(written(tmp_path, text), {}) == settings.load(tmp_path / "none", {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("budegt: {usd: 1}\n", "doflow.yaml:1:1: unknown key 'budegt'\n  hint: did you mean 'budget'?"),
        ("budget:\n  usd: lots\n", "doflow.yaml:2:8: 'lots' is not a number or null"),
        ("agents:\n  x: {use: clade}\n", "doflow.yaml:2:12: 'clade' is not one of"),
        ("agents:\n  x: {model: m}\n", "doflow.yaml:2:6: agent 'x' has no `use`"),
        ("agents:\n  x: {use: command}\n", "doflow.yaml:2:6: agent 'x' has no `argv`"),
        ("agents:\n  x: {use: codex, fallback: y}\n", "doflow.yaml:2:29: unknown agent 'y'"),
        ("agents:\n  x: {use: codex, fallback: x}\n", "doflow.yaml:2:29: fallback cycle: x -> x"),
        ("agents:\n  X Y: {use: codex}\n", "doflow.yaml:2:3: agent name 'X Y' is not a valid name"),
        (
            "route_agents:\n  plan: defualt\n",
            "doflow.yaml:2:9: unknown agent 'defualt'\n  hint: did you mean 'default'?",
        ),
        ("gates: {plan: true}\n", "doflow.yaml:1:9: 'plan' is not a gate"),
        ("protect: ['/etc/*', '../x']\n", "doflow.yaml:1:21: the path '../x' has a .."),
        ("auto_approve: True\n", "doflow.yaml:1:15: 'True' is not true or false\n  hint: write true, in lower case"),
        ("budget: {tokens: 1_000}\n", "doflow.yaml:1:18: '1_000' is not a whole number or null\n  hint: write 1000,"),
        ("protect: [../x]\n", "doflow.yaml:1:11: the path '../x' has a .."),
        ("rate_limit: {wait: true}\n", "doflow.yaml:1:20: true is not false or text or a number"),
        ("timeouts: {idle: 10 min}\n", "doflow.yaml:1:18: '10 min' has the wrong format"),
        ("command_variant: ../x\n", "doflow.yaml:1:18: '../x' has the wrong format"),
        ("a: 1\na: 2\n", "doflow.yaml:2:1: duplicate key 'a'"),
        ("- a\n", "doflow.yaml:1:1: the top of the file must be a mapping"),
    ],
)
def test_a_bad_file_is_refused_at_its_place(tmp_path: Path, text: str, expected: str) -> None:
    assert refusal(written(tmp_path, text)).startswith(expected)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("BUDGET__USDD", "5", "unknown setting 'budget.usdd'\n  hint: did you mean 'usd'?"),
        ("BUDGTE", "5", "unknown setting 'budgte'\n  hint: did you mean 'budget'?"),
        ("", "5", "unknown setting ''"),
        ("BUDGET__USD__X", "5", "unknown setting 'budget.usd.x'"),
        ("BUDGET__USD", "much", "'much' is not a number or null"),
        ("AUTO_APPROVE", "yes", "'yes' is not true or false"),
        ("ROUTE_AGENTS__PLAN", "nobody", "unknown agent 'nobody'"),
    ],
)
def test_a_bad_variable_is_refused_by_its_name(tmp_path: Path, name: str, value: str, expected: str) -> None:
    assert refusal(tmp_path, {f"DOFLOW_SET_{name}": value}).startswith(f"DOFLOW_SET_{name}:1:1: {expected}")


def test_a_bad_flag_is_refused_by_its_name(tmp_path: Path) -> None:
    assert refusal(tmp_path, flags={"auto_aprove": True}).startswith("--auto-aprove:1:1: unknown setting 'auto_aprove'")
    assert refusal(tmp_path, flags={"layout": "x"}).startswith("--layout:1:1: 'x' is not one of 'specs', 'plan'")


def test_all_bad_variables_are_told_at_once(tmp_path: Path) -> None:
    text = refusal(tmp_path, {"DOFLOW_SET_A": "1", "DOFLOW_SET_B": "2"})

    assert [line.split(":")[0] for line in text.splitlines() if line.startswith("DOFLOW")] == [
        "DOFLOW_SET_A",
        "DOFLOW_SET_B",
    ]


def test_a_pipe_instead_of_the_file_is_a_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "doflow.yaml")

    assert refusal(tmp_path).startswith("doflow.yaml:1:1: is not a regular file")


def test_defaults_alone_import_no_library(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from doflow.config import settings\n"
        "settings.load(pathlib.Path(sys.argv[1]), {})\n"
        "print('yaml' in sys.modules, 'jsonschema' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


def test_the_file_is_a_source_whether_it_is_there_or_not(tmp_path: Path) -> None:
    assert settings.sources(tmp_path) == (str(tmp_path / "doflow.yaml"),)
