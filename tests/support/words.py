"""The words that programs read from doflow: collected from outside, by running it and looking at what it says and leaves.

    python -m tests.support.words 0.1.0     record them as tests/recorded/0.1.0/words.json

What no run here comes to say is written into the record by hand, as `words` (a whole string of the sources) and `texts` (a part
of one, or of the packaged flows), and kept.

Each part is a mapping from what says something to the sorted words found there. A record of a release is never made again:
later versions may say more, never less.
"""

from __future__ import annotations

import ast
import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml
from tests.support import prd, record
from tests.support.project import PROGRAMS, Project, eventually, whole_lines

TOP = Path(__file__).parent.parent.parent
SOURCES = TOP / "src" / "doflow"
PAYLOADS = Path(__file__).parent / "payloads" / "claude.jsonl"
Words = dict[str, list[str]]

FLOW = """
    flow: work
    about: One step of every kind.
    params: {goal: {about: What to build, required: true}}
    defaults: {retry: {attempts: 1, backoff: 0s}}
    steps:
      spec:   {prompt: Say what is wanted., reads: [input.md], makes: spec.md, clarify: true}
      plan:   {prompt: Plan it., reads: [spec.md], makes: plan.md, gate: Approve the plan?}
      tasks:  {prompt: List the work., reads: [plan.md], makes: tasks.md, check: {tasks: true}}
      build:  {kind: implement, phases: tasks.md, reads: [plan.md], prompt: Do the phase.,
               check: {run: [sh, -c, "echo 1 > beside.txt"]}}
      review: {kind: review, reads: [plan.md], personas: [ann, bob], rounds: 2}
      size:   {prompt: Say how large it is., makes: size.md,
               routes: [{when: "SCALE: SMALL", then: [test], variant: small}, {when: "SCALE: LARGE", pause: Too large.}]}
      test:   {kind: shell, run: [sh, -c, "env > ~/shell.env; cp fixed.txt $DOFLOW_MAKES"], makes: test.txt, repair: 1}
"""
AGENT = """
import datetime
with open(outside / "agent.env", "a") as names:
    names.write("".join(name + "\\n" for name in known))

def limited(seconds):
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    say("RESUME-AT: " + at.isoformat())
    stop(75)

if step == "spec" and nth == 0:
    stop(1)
if step == "spec":
    make("# Spec\\n\\n- It is [NEEDS CLARIFICATION: which colour?].\\n")
elif step == "tasks" and nth < 2:
    limited((1, 3)[nth])
elif role == "persona" and round == 1:
    say("ISSUE: C | it is wrong | plan.md\\nVERDICT: NO-GO")
elif role == "persona":
    say("VERDICT: GO")
elif role == "repair":
    put("fixed.txt", "yes")
elif step == "size":
    make("# Size\\n\\nSCALE: " + ("SMALL" if nth else "LARGE") + "\\n")
else:
    if phase == "1":
        time.sleep(2.5)
    usual()
"""
NOTIFY = 'notify: {command: [sh, -c, "env > ~/notify.env; cat > ~/notify.json"]}\n'
FAILING = "flow: failing\nsteps:\n  one: {prompt: Write., makes: one.md, retry: {attempts: 0}}\n"
PAIR = "flow: pair\nsteps:\n  one: {prompt: Write., makes: one.md}\n  two: {prompt: Write., makes: two.md}\n"


def collect(folder: Path) -> dict[str, Any]:
    """Everything, by kind."""
    parts = (work, stories, ends, usage, pipeline, signals, hooks, commands)
    with ThreadPoolExecutor(3) as pool:
        seen = list(pool.map(lambda part: _part(part, folder), parts))
    found: dict[str, Any] = {"schemas": schemas(), "entry points": entry_points()}
    for one in seen:
        for kind, words in one.found.items():
            held = found.setdefault(kind, {})
            for name, more in words.items():
                held[name] = merged(held.get(name), more)
    return found | {"exit": {name: code for one in seen for name, code in one.exits.items()}}


def _part(part: Callable[[Seen], None], folder: Path) -> Seen:
    seen = Seen(folder / part.__name__)
    part(seen)
    return seen


def work(seen: Seen) -> None:
    """One run from its goal to its end: a failure, a question, a no, a limit, a review, a pause by a marker, a repair."""
    project = seen.project("work", NOTIFY, work=FLOW)
    project.agent(AGENT)
    seen.run(project, "a question", "work", "--goal=x", "--issue=7")
    seen.asked(project, "answer", "--list")
    seen.asked(project, "answer", "Blue")
    seen.run(project, "a gate", "work")
    seen.asked(project, "reject", "plan", "--note", "longer")
    seen.run(project, "a gate", "work")
    seen.asked(project, "status")
    seen.asked(project, "approve", "--note", "good")
    seen.run(project, "a rate limit", "work")
    seen.run(project, "a marker", "work", env={"DOFLOW_SET_RATE_LIMIT__WAIT": "1m"})
    seen.run(project, "done", "work", "--force=size")
    seen.run(project, "nothing to do", "work")
    seen.disk(project)
    for words in (
        "status", "status 1", "plan", "plan --prompt plan", "why plan", "why build:1", "why plan.gate", "logs", "logs plan",
        "show", "show work", "show work --resolved", "validate", "config", "agents", "cost", "cost --all --by step",
        "verify", "clean --dry-run", "hooks show", "hooks install", "hooks remove", "machine check", "machine metrics",
        "run work --dry-run plan", "status nobody",
    ):  # fmt: skip
        seen.asked(project, *words.split())
    for name in ("shell", "notify"):
        seen.add("environment", name, ours(whole_lines(project.home / f"{name}.env")))
    seen.add("environment", "agent", ours(whole_lines(project.outside / "agent.env")))
    for line in whole_lines(project.home / "notify.json"):
        seen.add("environment", "notify, on stdin", json.loads(line))
    for path in project.run_dir().glob("review-*.yaml"):
        seen.add("files", "review", paths(yaml.safe_load(path.read_text())))
    plan = project.run_dir() / "plan.md"
    plan.write_text(plan.read_text() + "A line of mine.\n")
    seen.run(project, "an edit", "work", "--budget=none")
    seen.asked(project, "adopt", "plan")
    seen.asked(project, "reset", "build:2", "--yes")
    seen.asked(project, "reset", "test", "--yes")
    seen.disk(project)


def stories(seen: Seen) -> None:
    """What only a run that was killed, or a session, says. (The event logs of the records are not looked at.)"""
    for name in ("killed-after-return", "killed-in-flight"):
        project = record.restored("0.1.0", name, seen.folder / name)
        seen.asked(project, "verify")
        seen.run(project, "done", "work")
        for one in seen.asked(project, "quarantine", "list").get("kept", []):
            seen.asked(project, "quarantine", "show", one["id"])
            seen.asked(project, "quarantine", "restore", one["id"], "--to", "kept.txt")
    shop = prd.project(seen.folder / "shop")
    shop.agent(prd.good(bugs=1))
    seen.run(shop, "done", "prd")
    seen.disk(shop)


def ends(seen: Seen) -> None:
    """A single step, a failure, and ^C; what is wrong with a flow."""
    project = seen.project("ends", failing=FAILING, pair=PAIR)
    seen.run(project, "one step", "pair", "--goal=x", "--next")
    project.git("switch", "-q", "main")
    project.agent("stop(1)")
    seen.run(project, "an error", "failing", "--goal=x")
    project.git("switch", "-q", "main")
    project.agent('(outside / "ready").touch(); time.sleep(600)')
    running = project.start("doflow", "run", "pair", "--goal=y", "--json")
    assert eventually((project.outside / "ready").exists)
    seen.add("files", "holder.json", json.loads(project.read(".doflow/holder.json")))
    seen.asked(project, "status")
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    seen.heard(out)
    seen.state(project, "^C", running.returncode)
    seen.disk(project)
    project.flow("wrong", "flow: wrong\nsteps: {one: {prompt: Write., nonsense: 1}}\n")
    seen.asked(project, "validate")


def usage(seen: Seen) -> None:
    """What a call used, by an agent that tells."""
    project = seen.project("usage", told="flow: told\nsteps:\n  one: {prompt: Write., makes: one.md, from: text}\n")
    sample = TOP / "tests" / "contract" / "samples" / "claude-done.jsonl"
    program = project.outside / "claude"
    program.write_text(f'#!/bin/sh\ncat > /dev/null\ncat "{sample}"\n')
    program.chmod(0o755)
    project.write("doflow.yaml", f"agents: {{default: {{use: claude, executable: {program}}}}}\n")
    project.commit("Another agent")
    seen.run(project, "done", "told", "--goal=x")
    seen.disk(project)


def pipeline(seen: Seen) -> None:
    """A DOT pipeline, by hand and by doit."""
    project = seen.project("pipeline", "pipelines: {auth: auth.dot}\n")
    project.write("auth.dot", record.PIPELINE)
    project.write("tasks.md", "# T\n\n## Phase 1: Ground\n\n- [ ] [T001] Lay it\n")
    project.agent(record.pipeline_agent())
    for words in (
        "validate auth.dot", "dot status auth.dot", "dot node add auth.dot more --set handler=codergen", "validate auth.dot",
        "dot node modify auth.dot more --set label=More", "dot edge add auth.dot start more",
        "dot edge remove auth.dot start more", "dot node remove auth.dot more",
        "dot generate --tasks tasks.md --prd-ref P --check true --out new.dot",
    ):  # fmt: skip
        seen.asked(project, *words.split())
    project.commit("A pipeline")
    seen.run(project, "done", "auth")
    seen.disk(project)
    moves = [json.loads(line) for line in whole_lines(project.root / "auth.dot.transitions.jsonl")]
    seen.add("files", "transitions.jsonl", {key for move in moves for key in move})
    seen.add("files", "checkpoint.json", paths(json.loads(project.read("auth.dot.checkpoint.json"))))
    seen.add("dot", "statuses", {move[end] for move in moves for end in ("from", "to")})
    seen.add("dot", "attributes", set(re.findall(r"(\w+)=", project.read("auth.dot"))))
    seen.asked(project, "dot", "restart", "auth.dot")
    seen.asked(project, "dot", "transition", "auth.dot", "start", "active")
    seen.asked(project, "dot", "transition", "auth.dot", "exit", "validated")


def signals(seen: Seen) -> None:
    """What the layers of a supervised pipeline tell each other."""
    project = seen.project("signals", "pipelines: {auth: auth.dot}\n")
    project.write("auth.dot", record.PIPELINE)
    for words in (
        "runner signal-guardian NEEDS_REVIEW --node build --evidence e.txt --pipeline auth.dot",
        "runner signal-guardian NEEDS_INPUT --node build --question Which? --option a --pipeline auth.dot",
        "guardian escalate-to-terminal --issue What? --option a --pipeline auth.dot",
        "guardian respond-to-runner VALIDATION_FAILED --node build --feedback no --pipeline auth.dot",
        "guardian wait-for-signal --source runner --timeout 5 --pipeline auth.dot",
        "runner wait-for-guardian --node build --timeout 5 --pipeline auth.dot",
        "runner wait-for-guardian --node build --timeout 0.1 --pipeline auth.dot",
    ):
        done = project.doflow(*words.split())
        seen.add("json", " ".join(words.split()[:2]), paths(parsed(done.stdout or done.stderr)))
    for path in sorted((project.root / ".claude" / "attractor" / "signals").rglob("*.json")):
        found = json.loads(path.read_text())
        if "signal_type" in found:
            seen.add("files", "signal", paths(found))
    seen.asked(project, "signal", "list")
    seen.asked(project, "signal", "log")


class Seen:
    """What was seen on the way, by kind and by what said it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: dict[str, Words] = {}
        self.exits: dict[str, list[Any]] = {}

    def add(self, kind: str, name: str, words: Iterable[str]) -> None:
        held = self.found.setdefault(kind, {})
        held[name] = merged(held.get(name), words)

    def project(self, name: str, settings: str = "", **flows: str) -> Project:
        project = Project(self.folder / name, settings=settings)
        for flow, text in flows.items():
            project.flow(flow, text)
        project.commit("Flows")
        return project

    def run(self, project: Project, situation: str, *words: str, env: dict[str, str] | None = None) -> None:
        done = project.doflow("run", *words, "--json", env=env)
        assert done.stdout, done.stderr
        self.heard(done.stdout)
        self.state(project, situation, done.returncode)

    def state(self, project: Project, situation: str, code: int) -> None:
        """How it ended: exit code, status, what it waits for."""
        state = project.state()
        waits = (state["pendingApproval"] or {}).get("type", "") or (state["pauseReason"] if code == 130 else "")
        self.exits[situation] = [code, state["status"], waits]
        self.add("files", "pipeline-state.json", paths(state))

    def heard(self, text: str) -> None:
        for line in text.splitlines():
            entry = json.loads(line)
            self.add("events", entry["event"], paths(entry))

    def asked(self, project: Project, *words: str) -> Any:
        """The answer of a command with --json; known by the command's own words. What is no JSON says nothing."""
        done = project.doflow(*words, "--json")
        value = parsed(done.stdout or done.stderr)
        deep = words[0] in ("dot", "hooks", "machine", "quarantine", "signal")
        count = 3 if words[:2] in (("dot", "node"), ("dot", "edge")) else 2 if deep else 1
        said = [*words[:count], *(word for word in words if word in ("--list", "--prompt", "--dry-run"))]
        self.add("json", " ".join(said) if done.stdout else "an error", paths(value))
        return value

    def disk(self, project: Project) -> None:
        """What lies on the disk now."""
        for path in sorted((project.root / ".doflow" / "runs").glob("*/events.jsonl")):
            self.heard("\n".join(whole_lines(path)))
        for path in sorted(project.root.glob("*/*/doflow.lock")):
            self._lock(yaml.safe_load(path.read_text()))
        lines = project.git("log", "--all", "--format=%(trailers:only,unfold)").splitlines()
        self.add("trailers", "commit", {line.partition(":")[0] for line in lines if line})

    def _lock(self, lock: dict[str, Any]) -> None:
        self.add("lock", "doflow.lock", lock)
        for table in ("steps", "artifacts", "approvals"):
            for row in lock[table].values():
                self.add("lock", table, row)
                self.add("lock", f"{table}: by", row["by"] if isinstance(row.get("by"), dict) else ())
                self.add("lock", "authors", [row["author"]] if "author" in row else ())


def hooks(seen: Seen) -> None:
    """What `doflow hook` answers to an agent, what it keeps, and what is told of it."""
    project = Project(seen.folder / "hooks")
    payloads = {payload["hook_event_name"]: payload for payload in map(json.loads, PAYLOADS.read_text().splitlines())}
    for event, payload in sorted(payloads.items()):
        for agent in ("context-gatherer", "strategic-orchestrator"):
            named = {"session_id": "s1", "cwd": str(project.root), "agent_type": agent, "agent_id": "a1"}
            wanted = {**payload.get("tool_input", {}), "subagent_type": agent}
            done = subprocess.run(
                (str(PROGRAMS / "doflow"), "hook", event),
                input=json.dumps({**payload, **named, "tool_input": wanted}),
                env=project.env, cwd=project.root, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            decisions = re.findall(r'"(?:permissionDecision|decision)": ?"(\w+)"', done.stdout)
            seen.add("hooks", event, [*paths(parsed(done.stdout)), *decisions, f"exit {done.returncode}"])
    for path in sorted(project.home.parent.rglob("pipeline-state.json")):
        seen.add("hooks", "pipeline-state.json", paths(json.loads(path.read_text())))
    for words in (
        "status --session s1",
        "history --session s1",
        "show",
        "metrics",
        "reset --session s1",
        "restore --session s1",
    ):
        seen.asked(project, "machine", *words.split())


def commands(seen: Seen) -> None:
    """Every verb with its options, by its help; and those of a flow as a doit task."""
    project = Project(seen.folder / "help")

    def walk(*words: str) -> None:
        text = project.doflow(*words, "--help").stdout
        below = verbs(text)
        seen.add("commands", " ".join(("doflow", *words)), [*below, *options(text)])
        for verb in below:
            walk(*words, verb)

    walk()
    seen.add("commands", "doit FLOW", options(project.doit("help", "tiny").stdout))


def options(text: str) -> list[str]:
    """The options that a help lists: at the beginning of a line, before what is said about them."""
    lines = re.findall(r"^ +(-.*?)(?:  |$)", text.partition("\nexample")[0], re.M)
    return [word for line in lines for word in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", line)]


def verbs(text: str) -> list[str]:
    """The commands below a command, as its help lists them."""
    if text.startswith("usage: doflow VERB"):
        return re.findall(r"^  ([a-z]+) ", text, re.M)
    below = text.partition("positional arguments:\n")[2].partition("\n\n")[0]
    if found := re.match(r"  \{?([a-z-]+(?:[|,][a-z-]+)+)\}?(?: |\n|$)", below):
        return re.split("[|,]", found[1])
    return re.findall(r"^    ([a-z-]+)(?: |$)", below, re.M) if below.startswith("  TOOL") else []


def schemas() -> Words:
    """Every key, and every word that a key may have, by the schema's file."""
    return {path.name: sorted(set(_keys(json.loads(path.read_text())))) for path in (TOP / "schemas").glob("*.json")}


def _keys(node: Any, where: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
                for key, inner in value.items():
                    place = f"{where}.{key}" if where else key
                    if name != "$defs":
                        yield place
                    yield from _keys(inner, place)
            elif name == "enum":
                yield from (f"{where}={word}" for word in value)
            elif name == "const":
                yield f"{where}={value}"
            else:
                yield from _keys(value, where)
    elif isinstance(node, list):
        for value in node:
            yield from _keys(value, where)


def entry_points() -> Words:
    import tomllib

    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    found = {"scripts": sorted(project["scripts"])}
    return found | {group: sorted(names) for group, names in project["entry-points"].items()}


def literals() -> tuple[set[str], str]:
    """Every whole string in the sources and every name that becomes a key; and all that they and the packaged flows say."""
    found: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value, node.value.rpartition("/")[2]}  # a file may be named with its folder
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    flows = [path.read_text() for path in sorted((TOP / "flows").rglob("*.*")) if path.suffix in (".yaml", ".md")]
    return found, "\n".join([*sorted(found), *flows])


def unsaid(words: Words, texts: Words) -> list[str]:
    """Which of these words is no whole string of the sources, and which of these texts is in none of them."""
    whole, said = literals()
    gone = [f"{kind}: {word}" for kind, found in words.items() for word in found if word not in whole]
    return gone + [
        f"{kind}: {text}"
        for kind, found in texts.items()
        for text in found
        if not re.search(rf"(?<![\w-]){re.escape(text)}(?![\w-])", said)
    ]


def paths(value: Any, where: str = "") -> list[str]:
    """The keys of a JSON value at any depth, `a.b[].c`; a key that is a file, a number or a step is `*`. Of a few keys the
    values are words as well: `a.status=done`."""
    if isinstance(value, dict):
        found: set[str] = set()
        for key, inner in value.items():
            name = key if re.fullmatch(r"[A-Za-z_.-]+", key) and where.rpartition(".")[2] not in FREE else "*"
            place = f"{where}.{name}" if where else name
            found |= {place, *paths(inner, place)}
            if name in VALUED and isinstance(inner, str) and inner:
                found.add(f"{place}={inner}")
        return sorted(found)
    if isinstance(value, list):
        return sorted({path for inner in value for path in paths(inner, f"{where}[]")})
    return []


#: keys whose values are words that programs decide on
VALUED = frozenset(
    {"status", "state", "verdict", "role", "kind", "severity", "signal_type", "source", "target", "type", "handler"}
)
#: mappings whose keys are the project's own
FREE = frozenset({"files", "reads", "made", "makes", "params", "counts", "all_attrs"})


def ours(names: list[str]) -> list[str]:
    """doflow's own variables among those of an environment."""
    known = {name.partition("=")[0] for name in names}
    return sorted(name for name in known if re.match("DOFLOW_|PRP_|SKIP_BUG", name) and "DOFLOW_SET_" not in name)


def parsed(text: str) -> Any:
    """The JSON that a program printed; {} if it printed anything else."""
    try:
        return json.loads(text)
    except ValueError:
        return {}


def merged(before: list[str] | None, more: Iterable[str]) -> list[str]:
    return sorted({*(before or ()), *more})


def missing(recorded: Any, now: Any, where: str = "") -> list[str]:
    """What is in the record and not in what was collected now."""
    if isinstance(recorded, dict):
        return [
            line for name, value in recorded.items() for line in missing(value, now.get(name, {}), f"{where} {name}:")
        ]
    gone = [word for word in recorded if word not in now]
    return [f"{where.strip()} {', '.join(map(str, gone))}"] if gone else []


def main() -> None:
    target = record.RECORDS / sys.argv[1] / "words.json"
    with tempfile.TemporaryDirectory() as folder:
        found = collect(Path(folder))
    held = json.loads(target.read_text()) if target.exists() else {}
    kept = {name: held.get(name, {}) for name in ("words", "texts")}
    target.write_text(json.dumps({**found, **kept}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
