"""A program that speaks like Claude Code and hands work to sub-agents: it asks the hooks of its settings, as processes.

    agents = SubAgents(project)
    agents.calls("context-gatherer", "context-refiner")      # what its model wants, one after the other
    agents.calls("Explore!")                                 # `!`: it runs although the hook said no
    agents.calls("Explore?")                                 # `?`: the hook is not even asked
    agents.bare()                                            # it does not know of hooks at all

Its records are those of the real one (tests/agents/test_subagent_order.py holds the two against each other).
"""

from __future__ import annotations

import json
import sys

from tests.support.project import Project

PROGRAM = '''\
#!{python} -IS
import json, os, pathlib, re, subprocess, sys

here = pathlib.Path(__file__).parent
argv, prompt = sys.argv[1:], sys.stdin.read()
with open(here / "argv.jsonl", "a") as file:
    file.write(json.dumps(argv) + "\\n")
resume = argv[argv.index("--resume") + 1] if "--resume" in argv else ""
nth = sum(1 for _ in open(here / "argv.jsonl"))
session = resume or f"session-{{nth}}"
table = json.loads(argv[argv.index("--settings") + 1])["hooks"] if "--settings" in argv else {{}}
plan = json.loads((here / "plan.json").read_text())
table = {{}} if plan["bare"] else table
base = {{"session_id": session, "transcript_path": "", "cwd": os.getcwd()}}


def tell(**record):
    print(json.dumps(record | {{"session_id": session}}), flush=True)


def ask(event, **more):
    """Exit code and words of the first hook that says no."""
    for group in table.get(event, []):
        if group.get("matcher") and not re.fullmatch(group["matcher"], more.get("tool_name", "")):
            continue
        for hook in group["hooks"]:
            done = subprocess.run(hook["command"], shell=True, input=json.dumps(base | {{"hook_event_name": event}} | more),
                                  capture_output=True, text=True, env=os.environ | {{"CLAUDE_PROJECT_DIR": os.getcwd()}})
            if done.returncode == 2:
                return done.stderr
    return ""


def hand_over(number, word):
    name, use, ident = word.rstrip("!?"), f"toolu_{{nth}}_{{number}}", f"a{{nth}}{{number}}"
    wanted = {{"description": "a task", "prompt": "do it", "subagent_type": name}}
    tell(type="assistant", message={{"content": [{{"type": "tool_use", "id": use, "name": "Agent", "input": wanted}}]}})
    why = "" if word.endswith("?") else ask("PreToolUse", tool_name="Agent", tool_input=wanted, tool_use_id=use)
    if why and not word.endswith("!"):
        denied.append({{"tool_name": "Task", "tool_use_id": use, "tool_input": wanted}})
        text = f"PreToolUse:Agent hook error: [hook]: {{why}}"
        return answer(use, text, True)
    ask("SubagentStart", agent_id=ident, agent_type=name)
    tell(type="system", subtype="task_started", task_id=ident, tool_use_id=use, subagent_type=name, task_type="local_agent")
    ask("SubagentStop", agent_id=ident, agent_type=name, last_assistant_message=f"{{name}} is done")
    tell(type="system", subtype="task_notification", task_id=ident, tool_use_id=use, status="completed")
    answer(use, f"{{name}} is done", False)


def answer(use, text, wrong):
    result = {{"type": "tool_result", "tool_use_id": use, "content": text, "is_error": wrong}}
    tell(type="user", message={{"content": [result]}})


denied = []
ask("SessionStart", source="resume" if resume else "startup")
ask("UserPromptSubmit", prompt=prompt)
tell(type="system", subtype="init", model="claude-x")
for number, word in enumerate(plan["calls"]):
    hand_over(number, word)
for path in os.environ["DOFLOW_MAKES"].splitlines():
    pathlib.Path(path).write_text("# Report\\n\\nWhat was done.\\n")
ask("Stop", stop_hook_active=False, background_tasks=[])
tell(type="result", subtype="success", is_error=False, num_turns=2, result="done", total_cost_usd=0.1,
     usage={{"input_tokens": 10, "output_tokens": 1}}, permission_denials=denied)
ask("SessionEnd", reason="other")
'''


class SubAgents:
    """The program, installed as the project's default agent."""

    def __init__(self, project: Project) -> None:
        self.folder = project.outside
        program = self.folder / "claude"
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
        project.write("doflow.yaml", f"agents:\n  default: {{use: claude, executable: {program}}}\n")
        project.commit("Another agent")
        self._plan(calls=[], bare=False)

    def calls(self, *words: str) -> None:
        self._plan(calls=list(words))

    def bare(self) -> None:
        self._plan(bare=True)

    def _plan(self, **changes: object) -> None:
        path = self.folder / "plan.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | changes))

    def argv(self) -> list[list[str]]:
        path = self.folder / "argv.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
