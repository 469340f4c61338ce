"""A workflow.yml of spec-kit as a flow: commands, prompts, shell commands and gates in order, `if` and `switch` as routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from doflow.flow.parsing.document import Doc, Path
from doflow.importers import flow_text
from doflow.importers.model import Imported, NewFile, NotMapped
from doflow.importers.speckit_expressions import Comparison, Expressions, parse_comparison, parse_constant
from doflow.importers.speckit_prompts import CommandPrompts
from doflow.util.errors import FlowError

RUN_FILES = "{run_dir}/**"
_CONSTITUTION = "/.specify/memory/constitution.md?"
#: what the commands of spec-kit read and make in the feature's folder
_READS = {
    "specify": ("input.md",),
    "clarify": ("spec.md",),
    "plan": ("spec.md", _CONSTITUTION),
    "tasks": ("plan.md", "spec.md", _CONSTITUTION),
    "checklist": ("spec.md", "plan.md"),
    "analyze": ("spec.md", "plan.md", "tasks.md", _CONSTITUTION),
    "implement": ("spec.md", "plan.md", _CONSTITUTION),
}
_MAKES = {"specify": "spec.md", "plan": "plan.md", "tasks": "tasks.md"}
_ONLY_TEXT = frozenset({"analyze"})
_STEP_KEYS = {
    "command": ("command", "input", "integration", "model", "options"),
    "prompt": ("prompt", "integration", "model"),
    "shell": ("run", "timeout"),
    "gate": ("message", "options", "on_reject", "show_file"),
    "if": ("condition", "then", "else"),
    "switch": ("expression", "cases", "default"),
    "while": ("condition", "max_iterations", "steps"),
    "do-while": ("condition", "max_iterations", "steps"),
    "fan-out": ("items", "max_concurrency", "step"),
    "fan-in": ("wait_for", "output"),
}
_MOST_STEPS = 500


@dataclass(frozen=True, slots=True)
class _Fork:
    """A step that decides, and the branches by marker; the last is in the pipeline."""

    step: str
    branches: tuple[tuple[str, tuple[_Node, ...]], ...]


_Node = str | _Fork


@dataclass(frozen=True)
class _Before:
    """The steps that come before: on every path, and on some."""

    sure: tuple[str, ...] = ()
    some: frozenset[str] = frozenset()

    def and_then(self, nodes: Sequence[_Node]) -> _Before:
        sure = tuple(node if isinstance(node, str) else node.step for node in nodes)
        return _Before((*self.sure, *sure), self.some | _names(nodes))


def convert_workflow(doc: Doc, prompts: CommandPrompts, name: str) -> Imported:
    """The flow called `name`. What is not a workflow raises FlowError."""
    entries = doc.value.get("steps")
    if not isinstance(entries, list) or not entries:
        raise FlowError((doc.problem(("steps",), "a spec-kit workflow has a list of `steps`"),))
    draft = _Draft(doc, prompts)
    draft.note_unused_keys()
    nodes = draft.sequence(entries, ("steps",), _Before())
    pipeline = draft.chain(nodes, ())
    if not draft.steps:
        raise FlowError((doc.problem(("steps",), "no step of this workflow can be a step of a flow"),))
    about = doc.value.get("workflow")
    about = about if isinstance(about, dict) else {}
    described = " ".join(str(about.get("description") or about.get("name") or f"The workflow {name}.").split())
    flow: dict[str, Any] = {"flow": name, "about": described, "params": draft.expressions.params()}
    if isinstance(about.get("model"), str):
        flow["defaults"] = {"model": about["model"]}
    if protect := prompts.used_files():
        flow["protect"] = list(protect)
    if any("routes" in step for step in draft.steps.values()):
        flow["pipeline"] = list(pipeline)
    flow["steps"] = draft.steps
    files = (NewFile(f"flows/{name}.yaml", flow_text.write_flow(flow, doc.file)), *prompts.new_files())
    return Imported(name, doc.file, files, tuple(sorted(draft.not_mapped, key=lambda one: one.line)))


@dataclass
class _Draft:
    """The flow as it grows."""

    doc: Doc
    prompts: CommandPrompts
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    makers: dict[str, str] = field(default_factory=dict)
    shared: dict[tuple[str, str, str], str] = field(default_factory=dict)
    by_id: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    not_mapped: list[NotMapped] = field(default_factory=list)
    forked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.expressions = Expressions(self.doc, self.note)

    def note(self, path: Path, what: str, why: str) -> None:
        self.not_mapped.append(NotMapped(self.doc.file, self.doc.where(path)[0], what, why))

    def note_unused_keys(self) -> None:
        for key in self.doc.value:
            if key == "requires":
                self.note((key,), "`requires`", "versions of spec-kit and its integrations are not checked")
            elif key not in ("schema_version", "workflow", "inputs", "steps"):
                self.note((key,), f"key `{key}`", "not known")

    def sequence(self, entries: Any, at: Path, before: _Before) -> tuple[_Node, ...]:
        """The nodes for a list of steps."""
        nodes: list[_Node] = []
        if not isinstance(entries, list):
            self.note(at, "this is not a list of steps", "left out")
            return ()
        for index, entry in enumerate(entries):
            path = (*at, index)
            if not isinstance(entry, dict):
                self.note(path, "this is not a step", "left out")
                continue
            if len(self.steps) >= _MOST_STEPS:
                raise FlowError((self.doc.problem(path, f"more than {_MOST_STEPS} steps"),))
            self._node(entry, path, before, nodes)
        return tuple(nodes)

    def _node(self, entry: Mapping[str, Any], at: Path, before: _Before, nodes: list[_Node]) -> None:
        kind = str(entry.get("type") or ("prompt" if "prompt" in entry and "command" not in entry else "command"))
        here = before.and_then(nodes)
        self._note_keys(entry, kind, at)
        if kind in ("if", "switch"):
            self._fork(entry, kind, at, here, nodes)
        elif kind in ("while", "do-while"):
            self._loop(entry, kind, at, here, nodes)
        elif kind == "fan-out" and isinstance(entry.get("step"), dict):
            self.note(
                at, f"fan-out `{entry.get('items', '')}`", "its step runs once: use `foreach` with a list or a file"
            )
            self._node(entry["step"], (*at, "step"), before, nodes)
        elif kind in ("command", "prompt", "shell", "gate"):
            make = {"command": self._command, "prompt": self._prompt, "shell": self._shell, "gate": self._gate}[kind]
            name = make(entry, at, here)
            if name:
                self.by_id.setdefault(str(entry.get("id", name)), (name, entry))
                nodes.append(name)
        else:
            reasons = {
                "fan-in": "steps of a flow wait for the ones before them",
                "init": "doflow init sets up a project",
            }
            self.note(at, f"step of type `{kind}`", reasons.get(kind, "this type of step is not known; left out"))

    def _note_keys(self, entry: Mapping[str, Any], kind: str, at: Path) -> None:
        for key in entry if kind in _STEP_KEYS else ():
            if key in ("id", "type", *_STEP_KEYS[kind]) or (kind == "gate" and key.startswith("on_")):
                continue
            if key == "continue_on_error":
                if entry[key] and kind != "shell":
                    self.note((*at, key), "`continue_on_error`", "a step that fails stops the run")
            else:
                self.note((*at, key), f"key `{key}`", f"not known for a step of type {kind}")
        integration = str(entry.get("integration", ""))
        if integration and not integration.startswith("{{"):
            why = "choose the agent in doflow.yaml, by `agent:` on the step, or by --agent"
            self.note((*at, "integration"), f"integration {integration}", why)

    def _add(self, wanted: object, step: dict[str, Any]) -> str:
        """Add a step; one that saves its final text makes a file of its own name."""
        name = flow_text.step_name(str(wanted), self.steps)
        if step.get("from") == "text":
            taken = {made.removesuffix(".md") for made in self.makers}
            step["makes"] = f"{flow_text.step_name(name, taken)}.md"
        self.steps[name] = step
        if "makes" in step:
            self.makers.setdefault(step["makes"], name)
        return name

    def _command(self, entry: Mapping[str, Any], at: Path, before: _Before) -> str:
        command = entry.get("command")
        if not isinstance(command, str) or not command.strip():
            self.note(at, "a step without a command", "left out")
            return ""
        given = entry.get("input")
        given = given if isinstance(given, dict) else {}
        for key in given:
            if key != "args":
                self.note((*at, "input", key), f"input `{key}`", "only `args` is passed on")
        if entry.get("options"):
            self.note((*at, "options"), "`options`", "options of an integration are not passed on")
        arguments = self.expressions.fill(str(given.get("args", "")), (*at, "input", "args"))
        key = (command, arguments, str(entry.get("model", "")))
        if key in self.shared and self.shared[key] not in before.some:
            return self.shared[key]  # the same work on another branch: one step makes each artifact
        step = self._command_step(command, arguments, at, before)
        if isinstance(entry.get("model"), str) and "{{" not in entry["model"]:
            step["model"] = entry["model"]
        self.shared[key] = self._add(self._shared_id(key, entry), step)
        return self.shared[key]

    def _shared_id(self, key: tuple[str, str, str], entry: Mapping[str, Any]) -> object:
        """Of the ids that several branches have for the same command, the one that is its name."""
        short = key[0].rpartition(".")[2]
        others = (one for one in _commands(self.doc.value["steps"]) if one.get("command") == key[0])
        is_one = short not in self.steps and any(one.get("id") == short for one in others)
        return short if is_one else entry.get("id") or short

    def _command_step(self, command: str, arguments: str, at: Path, before: _Before) -> dict[str, Any]:
        role = command.rpartition(".")[2].lower()
        role = role if role in _READS else ""
        step = self.prompts.prompt_keys(command, role, arguments, lambda what, why: self.note(at, what, why))
        reads = [self._read(path, before) for path in _READS.get(role, ("input.md",))]
        if role == "implement" and self._is_made("tasks.md", before) and not self._has_implement(before):
            return {"kind": "implement", "phases": "tasks.md", **step, "reads": reads}
        artifact = _MAKES.get(role, "")
        if artifact and artifact not in self.makers:
            step |= {"reads": reads, "makes": artifact, "writes": [RUN_FILES], "check": {"not_empty": True}}
            if role == "tasks":
                step |= {"check": {"tasks": True}, "repair": 1}
            return step
        if artifact or role in ("clarify", "checklist"):
            return {**step, "reads": reads, "writes": [RUN_FILES]}
        step |= {"reads": reads, "makes": "", "from": "text"}
        return step if role in _ONLY_TEXT else {**step, "writes": ["**"]}

    def _read(self, path: str, before: _Before) -> str:
        sure = path == "input.md" or self.makers.get(path) in before.sure
        return path if sure or path.endswith("?") else f"{path}?"

    def _is_made(self, artifact: str, before: _Before) -> bool:
        return self.makers.get(artifact) in before.some

    def _has_implement(self, before: _Before) -> bool:
        return any(self.steps[name].get("kind") == "implement" for name in before.some)

    def _prompt(self, entry: Mapping[str, Any], at: Path, before: _Before) -> str:
        text = entry.get("prompt")
        if not isinstance(text, str) or not text.strip():
            self.note(at, "a prompt without a text", "left out")
            return ""
        text = self.expressions.fill(text, (*at, "prompt")).strip()
        step: dict[str, Any] = {"prompt": f"{text}." if text.endswith(".md") else text, "reads": ["input.md"]}
        step |= {"makes": "", "from": "text", "writes": ["**"]}
        if isinstance(entry.get("model"), str) and "{{" not in entry["model"]:
            step["model"] = entry["model"]
        return self._add(entry.get("id") or "prompt", step)

    def _shell(self, entry: Mapping[str, Any], at: Path, before: _Before) -> str:
        text = entry.get("run")
        if not isinstance(text, str) or not text.strip():
            self.note(at, "a shell step without a command", "left out")
            return ""
        command = self.expressions.fill_command(text.strip(), (*at, "run"))
        if entry.get("continue_on_error") is True:
            command = f"{{ {command}\n}} || true"
        step: dict[str, Any] = {"kind": "shell", "run": command}
        if isinstance(entry.get("timeout"), int | float) and not isinstance(entry["timeout"], bool):
            step["timeout"] = entry["timeout"]
        return self._add(entry.get("id") or "shell", step)

    def _gate(self, entry: Mapping[str, Any], at: Path, before: _Before) -> str:
        message = " ".join(self.expressions.fill(str(entry.get("message") or "Continue?"), (*at, "message")).split())
        listed = entry.get("options")
        options = [option for option in listed if isinstance(option, str)] if isinstance(listed, list) else []
        extra = [option for option in options[1:] if option != "reject"]
        if extra:
            why = "a gate waits for `doflow approve`; `doflow reject STEP --note …` sends work back"
            self.note((*at, "options"), f"options {', '.join(extra)}", why)
        if entry.get("on_reject") in ("skip", "retry"):
            self.note(
                (*at, "on_reject"), f"`on_reject: {entry['on_reject']}`", "a gate is passed by `doflow approve` only"
            )
        made = [artifact for artifact, name in self.makers.items() if name in before.sure]
        gates = [self.steps[name] for name in before.sure if self.steps[name].get("kind") == "gate"]
        seen = {artifact for gate in gates for artifact in gate.get("reads", ())}
        fresh = [artifact for artifact in made if artifact not in seen] or made[-1:]
        step: dict[str, Any] = {"kind": "gate", "gate": message}
        return self._add(entry.get("id") or "gate", {**step, "reads": fresh} if fresh else step)

    def _loop(self, entry: Mapping[str, Any], kind: str, at: Path, before: _Before, nodes: list[_Node]) -> None:
        """A loop until a command succeeds is `repair` of that command; the steps of any other loop run once."""
        asked = parse_comparison(entry.get("condition"))
        turns = entry.get("max_iterations")
        turns = turns if type(turns) is int and 0 < turns <= 20 else 3
        if kind == "do-while":
            nodes += self.sequence(entry.get("steps"), (*at, "steps"), before)
        found = self.by_id.get(asked.step) if asked else None
        command = self.steps[found[0]] if found else {}
        if (
            asked
            and found
            and asked.key == "exit_code"
            and command.get("kind") == "shell"
            and found[0] not in self.forked
        ):
            path = (*at, "run")
            command["run"] = self.expressions.fill_command(str(found[1]["run"]).strip(), path, noted=True)
            command["repair"] = turns
            self.note(
                at, f"loop until `{found[0]}` succeeds", f"`repair: {turns}` hands its output to an agent instead"
            )
            return
        self.note(at, f"loop `{entry.get('condition', '')}`", "its steps run once")
        if kind == "while":
            nodes += self.sequence(entry.get("steps"), (*at, "steps"), before)

    def _fork(self, entry: Mapping[str, Any], kind: str, at: Path, before: _Before, nodes: list[_Node]) -> None:
        question = entry.get("condition" if kind == "if" else "expression")
        asked = parse_comparison(question)
        cases = self._cases(entry, kind, at, asked)
        constant = parse_constant(question) if kind == "if" else None
        if constant is not None:
            entries, path = cases["yes" if constant else ""]
            nodes += self.sequence(entries, path, before) if entries is not None else ()
            return
        chosen = self._known_output(asked)
        if chosen is not None and asked is not None:
            self._only_branch(cases, chosen, asked, at, before, nodes)
            return
        decider, markers = self._decider(entry, kind, at, asked, cases, before, nodes)
        here = before.and_then([*nodes, decider] if decider not in nodes else nodes)
        branches = [
            (markers[label], self.sequence(entries, path, here) if entries is not None else ())
            for label, (entries, path) in cases.items()
        ]
        if decider in nodes:
            nodes.remove(decider)
        nodes.append(_Fork(decider, tuple(branches)))
        self.forked.add(decider)

    def _cases(
        self, entry: Mapping[str, Any], kind: str, at: Path, asked: Comparison | None
    ) -> dict[str, tuple[Any, Path]]:
        """The branches by the value that chooses them; '' is the one for every other value."""
        if kind == "switch":
            table = entry.get("cases")
            table = table if isinstance(table, dict) else {}
            found = {str(key): (value, (*at, "cases", key)) for key, value in table.items()}
            return {**found, "": (entry.get("default"), (*at, "default"))}
        then, other = (entry.get("then"), (*at, "then")), (entry.get("else"), (*at, "else"))
        value = asked.value if asked and asked.value else "yes"
        return {value: other, "": then} if asked and asked.negated else {value: then, "": other}

    def _known_output(self, asked: Comparison | None) -> str | None:
        """An output that is always the same: a gate that was passed was approved, a command that went on succeeded."""
        found = self.by_id.get(asked.step) if asked else None
        if found is None or asked is None:
            return None
        kind = self.steps[found[0]].get("kind")
        if kind == "gate" and asked.key == "choice":
            options = found[1].get("options")
            return str(options[0]) if isinstance(options, list) and options else "approve"
        if kind == "shell" and asked.key == "exit_code" and found[1].get("continue_on_error") is not True:
            return "0"
        return None

    def _only_branch(
        self,
        cases: Mapping[str, tuple[Any, Path]],
        chosen: str,
        asked: Comparison,
        at: Path,
        before: _Before,
        nodes: list[_Node],
    ) -> None:
        """Only the branch for an output that is always the same; the others are listed."""
        taken = chosen if chosen in cases else ""
        is_gate = asked.key == "choice"
        why = "a gate is passed by `doflow approve` only" if is_gate else "a command that fails stops the run"
        for label, (entries, path) in cases.items():
            if label != taken and entries:
                what = f"the branch for {label or 'other values'} of {'gate' if is_gate else 'step'} {asked.step}"
                self.note(path, what, f"{why}; left out")
        entries, path = cases[taken]
        if entries is not None:
            nodes += self.sequence(entries, path, before)

    def _decider(
        self,
        entry: Mapping[str, Any],
        kind: str,
        at: Path,
        asked: Comparison | None,
        cases: Mapping[str, tuple[Any, Path]],
        before: _Before,
        nodes: Sequence[_Node],
    ) -> tuple[str, dict[str, str]]:
        """The step whose marker chooses the branch, and the marker of each branch."""
        found = self.by_id.get(asked.step) if asked and asked.step else None
        topic = flow_text.step_name(asked.key if asked and asked.step else str(entry.get("id") or kind))
        markers: dict[str, str] = {}
        for label in cases:
            words = {marker.partition(": ")[2]: 1 for marker in markers.values()}
            markers[label] = f"{topic}: {flow_text.step_name(label or 'other', words)}"
        if asked and asked.input and (param := self.expressions.param(asked.input)):
            labels = [label for label in cases if label]
            step: dict[str, Any] = {"kind": "shell", "run": _compare(labels, markers, param, asked)}
            return self._add(entry.get("id") or kind, step), markers
        is_last = found is not None and bool(nodes) and nodes[-1] == found[0]
        if found and is_last and _can_decide(self.steps[found[0]]):
            return found[0], markers
        if found and is_last and asked and asked.key == "exit_code" and _has_exit_codes(self.steps[found[0]], cases):
            branches = [f"{label or '*'}) echo '{markers[label]}';;" for label in cases]
            command = self.expressions.fill_command(str(found[1]["run"]).strip(), (*at, "run"), noted=True)
            self.steps[found[0]]["run"] = f"{{ {command}\n}}; case $? in {' '.join(branches)} esac"
            return found[0], markers
        question = str(entry.get("condition" if kind == "if" else "expression") or "").strip("{} ")
        self.note(at, f"`{question}`", "an agent decides; check the prompt of this step")
        reads = [self._read(artifact, before) for artifact in self.makers if self.makers[artifact] in before.some]
        prompt = (
            f"Decide which way this run takes: {flow_text.literal(question)}. Look at the inputs and at the project."
        )
        judge = {"prompt": prompt, "reads": ["input.md", *reads], "makes": "", "from": "text"}
        return self._add(entry.get("id") or kind, judge), markers

    def chain(self, nodes: Sequence[_Node], tail: tuple[str, ...]) -> tuple[str, ...]:
        """The ids of a sequence and of what follows it; forks get their routes."""
        ids = tail
        for node in reversed(nodes):
            if isinstance(node, str):
                ids = (node, *ids)
                continue
            ways = [(marker, self.chain(inner, ids) or self._end()) for marker, inner in node.branches]
            self.steps[node.step]["routes"] = [{"when": marker, "then": list(way)} for marker, way in ways]
            ids = (node.step, *ways[-1][1])
        return ids

    def _end(self) -> tuple[str, ...]:
        name = next((name for name, step in self.steps.items() if step.get("run") == ["true"]), "")
        return (name or self._add("end", {"kind": "shell", "about": "Nothing more to do.", "run": ["true"]}),)


def _names(nodes: Sequence[_Node]) -> frozenset[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, str):
            found.add(node)
        else:
            found |= {node.step}.union(*(_names(inner) for _, inner in node.branches))
    return frozenset(found)


def _commands(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every step with a command, at any depth."""
    if isinstance(value, dict):
        if "command" in value:
            yield value
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from _commands(inner)


def _can_decide(step: Mapping[str, Any]) -> bool:
    return "routes" not in step and step.get("kind", "agent") == "agent" and ("makes" in step or "prompt" in step)


def _has_exit_codes(step: Mapping[str, Any], labels: Iterable[str]) -> bool:
    return (
        step.get("kind") == "shell" and "routes" not in step and all(not label or label.isdigit() for label in labels)
    )


def _compare(labels: Sequence[str], markers: Mapping[str, str], param: str, asked: Comparison) -> list[str]:
    """A command that prints the marker for the value of a param. The value is an argument, never part of the command."""
    if not asked.value and labels == ["yes"]:
        tests = 'case "$1" in ""|false|no|0) echo "$3";; *) echo "$2";; esac'
        return ["sh", "-c", tests, "sh", f"{{{param}}}", markers["yes"], markers[""]]
    script = 'v=$1; o=$2; shift 2; while [ $# -gt 1 ]; do [ "$v" = "$1" ] && o=$2; shift 2; done; printf \'%s\\n\' "$o"'
    pairs = [word for label in labels for word in (label, markers[label])]
    return ["sh", "-c", script, "sh", f"{{{param}}}", markers[""], *(flow_text.literal(word) for word in pairs)]


def is_workflow(value: Mapping[str, Any]) -> bool:
    """Does a YAML file look like a workflow of spec-kit?"""
    steps = value.get("steps")
    return isinstance(steps, list) and ("workflow" in value or "schema_version" in value)


def workflow_name(value: Mapping[str, Any], path: str) -> str:
    about = value.get("workflow")
    named = str(about.get("id") or "") if isinstance(about, dict) else ""
    return named or re.sub(r"(?:/workflow)?\.ya?ml$", "", path).rpartition("/")[2]
