"""Claude Code and Codex themselves, with a scripted model: is a sub-agent out of order stopped, and is the model told why?"""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support import clis
from tests.support.hooks import ORDER
from tests.support.model import Heard, Model, Say, Together, Tool, Write, play
from tests.support.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TASK = "TASK FOR A SUB-AGENT"


def agent(name: str) -> Tool:
    return Tool("Agent", {"description": "a task", "prompt": f"{TASK} {name}", "subagent_type": name})


def scripted(*deeds: Any) -> Any:
    """The main agent does one deed after the other; a sub-agent says who it is and that it is done."""
    main = play(*deeds)

    def scenario(heard: Heard) -> Any:
        if heard.prompt.startswith(TASK):
            return Say(f"{heard.prompt.removeprefix(TASK).strip()} has done its part")
        return main(heard)

    return scenario


def write_agents(project: Project, *names: str) -> None:
    for name in names:
        project.write(
            f".claude/agents/{name}.md", f"---\nname: {name}\ndescription: the {name}\n---\nYou are {name}.\n"
        )
    project.commit("Agents")


def claude(project: Project, model: Model, prompt: str = "Build a door", *words: str) -> list[dict[str, Any]]:
    """A call by hand, as a person makes it; its records."""
    env = project.env | clis.variables("claude", model.url, project.home) | QUIET
    argv = (clis.executable("claude"), "-p", "--output-format", "stream-json", "--verbose", *words)
    done = subprocess.run(
        argv, input=prompt, env=env, cwd=project.root, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1", "CLAUDE_CODE_MAX_RETRIES": "1", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
}  # fmt: skip


def started(records: list[dict[str, Any]]) -> list[str]:
    return [record["subagent_type"] for record in records if record.get("subtype") == "task_started"]


@clis.needed("claude")
def test_claude_code_is_held_to_the_order_by_the_hooks_that_are_installed(project: Project) -> None:
    write_agents(project, *ORDER, "bash-expert")
    assert project.doflow("hooks", "install").returncode == 0
    deeds = (agent("bash-expert"), agent("Explore"), *map(agent, ORDER), agent("bash-expert"), Say("all done"))

    with Model(scripted(*deeds)) as model:
        records = claude(project, model)

    assert started(records) == [*ORDER, "bash-expert"]
    told = model.heard[1].raw
    assert "the sub-agent bash-expert may not run in state IDLE" in told and "allowed now: context-gatherer" in told
    assert "Sub-agents work in a fixed order here" in model.heard[0].raw, "the order is said with the prompt"
    status = json.loads(project.doflow("machine", "status", "--json").stdout)
    assert (status["state"], status["history_count"], status["active"]) == ("EXECUTING", 4, [])
    assert status["context"] == {
        "gathered": "context-gatherer has done its part",
        "refined": "context-refiner has done its part",
        "orchestration": "strategic-orchestrator has done its part",
    }
    metrics = json.loads(project.doflow("machine", "metrics", "--json").stdout)
    assert (metrics["allowed"], metrics["blocked"], metrics["escaped"]) == (4, 2, 0)
    assert metrics["durations"]["context-gatherer"]["count"] == 1


@clis.needed("claude")
def test_a_call_that_names_no_agent_or_writes_its_name_otherwise_is_no_way_around(project: Project) -> None:
    write_agents(project, *ORDER, "bash-expert")
    project.doflow("hooks", "install", "--scope", "local")
    nameless = Tool("Agent", {"description": "a task", "prompt": f"{TASK} nobody"})
    deeds = (nameless, agent("Bash-Expert"), agent("CONTEXT-REFINER"), Say("all done"))

    with Model(scripted(*deeds)) as model:
        records = claude(project, model)

    assert started(records) == []
    assert "the sub-agent general-purpose may not run in state IDLE" in model.heard[1].raw


@clis.needed("claude")
def test_two_sessions_of_claude_code_at_once_do_not_mix(project: Project) -> None:
    write_agents(project, *ORDER)
    project.doflow("hooks", "install", "--scope", "user")

    def scenario(heard: Heard) -> Any:
        if heard.prompt.startswith(TASK):
            return Say(f"{heard.prompt.split()[-1]} is done")
        deeds = [agent("context-gatherer"), agent("context-refiner"), Say("done")]
        far = "far" in heard.prompt
        return play(*(deeds if far else [agent("context-refiner"), agent("context-gatherer"), Say("done")]))(heard)

    with Model(scenario) as model, ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(claude, project, model, prompt) for prompt in ("Go far", "Go near")]
        far, near = (one.result() for one in runs)

    assert started(far) == ["context-gatherer", "context-refiner"]
    assert started(near) == ["context-gatherer"], "its refiner was refused, whatever the other session had done"
    rows = json.loads(project.doflow("machine", "status", "--all", "--json").stdout)["sessions"]
    by_session = {row["session_id"]: row["state"] for row in rows}
    assert by_session == {far[0]["session_id"]: "REFINING", near[0]["session_id"]: "GATHERING"}


FLOW = """
    flow: ordered
    params: {goal: {about: What, required: true}}
    steps:
      build: {prompt: "Build {goal}", makes: report.md, machine: context-first}
"""


def real(project: Project, name: str, model: Model) -> dict[str, str]:
    """The project's default agent is the real CLI; what the run's environment needs for it."""
    variables = clis.variables(name, model.url, project.home)
    profile = f"{{use: {name}, executable: {clis.executable(name)}, model: {clis.MODELS[name]}}}"
    project.write("doflow.yaml", f"agents:\n  default: {profile}\n")
    project.flow("ordered", FLOW)
    project.commit("A real agent")
    return variables


def report(project: Project) -> Write:
    return Write(str(project.root / "specs" / "001-a-door" / "report.md"), "# Report\n")


@clis.needed("claude")
def test_a_step_with_a_machine_is_done_in_order_by_claude_code(project: Project) -> None:
    write_agents(project, *ORDER, "bash-expert")
    deeds = (agent("bash-expert"), *map(agent, ORDER), agent("bash-expert"), report(project), Say("all done"))

    with Model(scripted(*deeds)) as model:
        done = project.doit("ordered", "--goal=a door", env=real(project, "claude", model), timeout=110)

    assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads(project.doflow("machine", "status", "--json").stdout)
    assert (status["state"], status["history_count"]) == ("EXECUTING", 4)
    assert not (project.root / ".claude" / "settings.json").exists()


@clis.needed("claude")
def test_sub_agents_that_are_asked_for_together_are_judged_one_by_one(project: Project) -> None:
    """Two gatherers at once may both run; a refiner asked for together with them comes too early, and is no escape."""
    write_agents(project, *ORDER)
    # what it does next is computed from the results so far, and there are three
    together = Together((agent("context-gatherer"), agent("context-gatherer"), agent("context-refiner")))

    with Model(scripted(together, together, together, report(project), Say("all done"))) as model:
        done = project.doit("ordered", "--goal=a door", env=real(project, "claude", model), timeout=110)

    assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads(project.doflow("machine", "status", "--json").stdout)
    assert (status["state"], status["active"]) in [("GATHERING", []), ("REFINING", [])]
    assert status["context"]["gathered"].count("has done its part") == 2


@clis.needed("claude")
def test_a_step_fails_when_claude_code_is_told_not_to_ask_its_hooks(project: Project) -> None:
    write_agents(project, *ORDER, "bash-expert")
    project.write(".claude/settings.json", '{"disableAllHooks": true}')

    with Model(scripted(agent("bash-expert"), report(project), Say("all done"))) as model:
        done = project.doit("ordered", "--goal=a door", env=real(project, "claude", model), timeout=110)

    assert done.returncode == 1, done.stdout
    assert "build escaped from the machine context-first" in done.stdout


def spawn(name: str) -> Tool:
    return Tool("multi_agent_v1.spawn_agent", {"message": f"{TASK} {name}", "agent_type": name})


def codex_roles(project: Project, *names: str) -> None:
    path = project.home / ".codex" / "config.toml"
    roles = "".join(f'[agents.{name}]\ndescription = "the {name}"\n' for name in names)
    path.write_text(path.read_text() + roles)


def patient(project: Project, *deeds: Any) -> Any:
    """Like `scripted`; the next deed waits until the sub-agents that were started have told their end."""
    inner = scripted(*deeds)

    def scenario(heard: Heard) -> Any:
        if not heard.prompt.startswith(TASK):
            end = time.monotonic() + 20
            while _at_work(project.home) and time.monotonic() < end:
                time.sleep(0.05)
        return inner(heard)

    return scenario


def _at_work(home: Path) -> bool:
    """Whether a sub-agent that a hook let through has not told its end yet."""
    for path in home.glob(".claude/state/doflow/*/*/journal.log"):
        facts = [json.loads(line.rpartition("\t")[2]) for line in path.read_text().splitlines()]
        through = sum(fact.get("decision") == "allow" for fact in facts)
        return through > sum(fact.get("event") == "SubagentStop" for fact in facts)
    return False


@clis.needed("codex")
def test_codex_is_held_to_the_order_in_a_step(project: Project) -> None:
    deeds = (spawn("worker"), spawn("context-gatherer"), spawn("context-refiner"), Say("# Report"))

    with Model(patient(project, *deeds)) as model:
        env = real(project, "codex", model)
        codex_roles(project, *ORDER)
        project.flow("ordered", FLOW.replace("makes: report.md", "makes: report.md, from: text"))
        done = project.doit("ordered", "--goal=a door", env=env, timeout=110)

    assert done.returncode == 0, done.stdout + done.stderr
    assert any("the sub-agent worker may not run in state IDLE" in heard.raw for heard in model.heard)
    status = json.loads(project.doflow("machine", "status", "--json").stdout)
    assert (status["state"], status["context"]["gathered"]) == ("REFINING", "context-gatherer has done its part")


@clis.needed("codex")
def test_codex_is_held_to_the_order_by_the_hooks_that_are_installed(project: Project) -> None:
    with Model(patient(project, spawn("explorer"), spawn("context-gatherer"), Say("all done"))) as model:
        env = project.env | clis.variables("codex", model.url, project.home)
        codex_roles(project, *ORDER)
        assert project.doflow("hooks", "install", "--agent", "codex", "--scope", "user").returncode == 0
        words = ("exec", "--json", "-m", clis.MODELS["codex"], "--dangerously-bypass-hook-trust", "-")
        done = subprocess.run(
            (clis.executable("codex"), *words), input="Build a door", env=env, cwd=project.root,
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert any("the sub-agent explorer may not run in state IDLE" in heard.raw for heard in model.heard)
    assert "Sub-agents work in a fixed order here" in model.heard[0].raw
    assert json.loads(project.doflow("machine", "status", "--json").stdout)["state"] == "GATHERING"
