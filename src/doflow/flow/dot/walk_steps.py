"""The steps of a walk: agents, commands and people as in other pipelines, and the decisions between them, as shell scripts.

A decision reads the last line of a result (`RESULT: pass`), `LABEL: …` and `CONTEXT: key=value` lines, and prints `NEXT: …`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from doflow.flow.dot import conditions, dialect, node_steps, routing
from doflow.flow.dot.conditions import LABEL, OUTCOME, OUTPUT, Clause
from doflow.flow.dot.model import CODERGEN, CONDITION, EXIT, GATE, Node, attribute_value, label_text
from doflow.flow.dot.node_steps import MUST, TRY, checked_path, command_text, gate_question, result_path, step_timeout
from doflow.flow.dot.routing import Option
from doflow.flow.dot.walk import Walk, WalkStep, WantedResults, is_plain
from doflow.flow.model import Check, Origin, Profile, Prompt, Read, Retry, Route, Step

STUCK, OFTEN, END = "NEXT: ?", "NEXT: too often", "NEXT: end"
_ASK = """\
mkdir -p "$(dirname "$2")" && printf '%s\\n\\n%s\\n' "$1" "$3" >"$2"
"""
_KEEP = """\
sh -c "$1" >"$2" 2>&1
code=$?
tail -c 20000 "$2"
[ "$code" = 0 ] || exit "$code"
printf '\\nRESULT: pass\\n' >>"$2"
"""
#: $1 = the run's folder
_START = """\
cd "$1" || exit 1
outcome=pass label='' found=''
"""
_RESULT = """\
for file in {files}; do
  [ -f "$file" ] || continue
  found=1
  line=$(tail -n 1 "$file")
  case $line in
    "RESULT: "*) word=$(printf %s "${{line#RESULT: }}" | tr '[:upper:]' '[:lower:]');;
    *) echo "the last line of $file is no RESULT" >&2; exit 1;;
  esac
  said=$(sed -n 's/^LABEL: *//p' "$file" | tail -n 1 | tr '[:upper:]' '[:lower:]')
  label=${{said:-$label}}
  case $word in
{words}
  esac
  [ "$word" = pass ] || outcome=$word
  [ "$word" != fail ] || break
done
[ -n "$found" ] || {none}
"""
_VISITS = """\
visits=0
for files in {visits}; do
  for file in $files; do
    [ ! -f "$file" ] || {{ visits=$((visits + 1)); break; }}
  done
done
"""
_VALUE = """\
value() {
  ls -t results/*.md 2>/dev/null | while read -r file; do
    sed -n "s/^CONTEXT: *$1 *= *//p" "$file" | tail -n 1 | grep . && break
  done
}
"""
_OUTPUT = """\
output() {{
  cat {files} /dev/null 2>/dev/null
}}
"""
_GOALS = """\
cd "$1" || exit 1
met() {
  for file; do
    [ -f "$file" ] || continue
    case $(tail -n 1 "$file") in "RESULT: pass"|"RESULT: partial") return 0;; *) return 1;; esac
  done
}
"""
_PRINT = """\
echo "outcome: $outcome${label:+, label: $label}"
if [ -z "$next" ]; then echo "NEXT: ?"
elif [ -n "$most" ] && [ "$visits" -gt "$most" ]; then echo "NEXT: too often"
else echo "NEXT: $next"
fi
"""


def build_steps(walk: Walk, profiles: Sequence[Profile]) -> tuple[Step, ...]:
    return _Builder(walk, profiles).steps()


def next_marker(option: Option) -> str:
    return f"NEXT: {', '.join(option.targets)}"


class _Builder:
    def __init__(self, walk: Walk, profiles: Sequence[Profile]) -> None:
        self._walk, self._graph, self._pipeline = walk, walk.graph, walk.graph.pipeline
        self._profiles = profiles
        self._ids = {(step.node.id, step.lap): step.id for step in walk.steps.values() if not step.decides}
        self._wanted = WantedResults(walk)

    def steps(self) -> tuple[Step, ...]:
        return tuple(self._step(one) for one in self._walk.steps.values())

    def _step(self, one: WalkStep) -> Step:
        node = one.node
        about = " ".join(node.label.split())
        about = f"{about} (try {one.lap})" if one.lap > 1 else about
        agent, model, _ = dialect.agent_and_model(node, self._profiles)
        step = Step(
            one.id, about=about, origin=Origin(self._pipeline.path, node.line, 1), agent=agent, model=model,
            timeout=step_timeout(self._pipeline, node), commit=f"{one.id}: {about}",
        )  # fmt: skip
        if one.decides:
            plain = replace(
                step, kind="shell", agent="", model="", commit="", timeout=None, about=f"where {node.id} leads"
            )
            return self._goal_step(plain, one) if node.handler == EXIT else self._decision(plain, one)
        step = replace(step, reads=self._reports(one))
        if node.handler == CODERGEN:
            return self._work(step, one)
        if node.handler == GATE and not node.command:
            return self._person(step, one) if routing.needs_person(node) else self._review(step, one)
        return self._command(step, one)

    def _work(self, step: Step, one: WalkStep) -> Step:
        node = one.node
        words = node_steps.prompt_text(self._pipeline, node)
        reads = [*step.reads]
        design = attribute_value(self._pipeline, node, "solution_design")
        if design and not design.startswith(("/", "~")):
            reads.append(Read(f"/{checked_path(self._pipeline, node, design)}", optional=True))
        writes = node_steps.written_paths(self._pipeline, node)
        step = replace(step, reads=tuple(reads), writes=writes, makes=(result_path(one.id),), from_text=True)
        run = ("sh", "-c", node.get("check")) if node.get("check") else ()
        if self._wanted.decides(node):
            return self._answering(step, node, words, run)
        prompt = Prompt(f"{words}\nDo the work in the files; then answer with a report of what you did.\n")
        return replace(step, prompt=prompt, check=Check(not_empty=True, run=run), repair=1 if run else 0)

    def _review(self, step: Step, one: WalkStep) -> Step:
        before = {visit: self._graph.nodes[visit[0]] for visit in one.sources}
        workers = {node.id: node for node in before.values() if node.handler == CODERGEN}
        words = node_steps.review_text(self._pipeline, one.node, tuple(workers.values()))
        step = replace(step, makes=(result_path(one.id),), from_text=True)
        judged = self._wanted.decides(one.node)
        run = () if judged else ("sh", "-c", MUST, "sh", f"{{run_dir}}/{result_path(one.id)}")
        return self._answering(step, one.node, words, run, repair=int(judged))

    def _answering(self, step: Step, node: Node, words: str, run: tuple[str, ...], repair: int = 1) -> Step:
        more = self._wanted.other_lines(node)
        prompt = Prompt(f"{words}\nAnswer with a report of what you found and did.\n{more}")
        return replace(step, prompt=prompt, check=Check(ends=self._wanted.endings(node), run=run), repair=repair)

    def _command(self, step: Step, one: WalkStep) -> Step:
        node = one.node
        command = command_text(self._pipeline, node)
        step = replace(step, kind="shell", agent="", model="", commit="")
        if self._wanted.decides(node):
            run = ("sh", "-c", TRY, "sh", command, f"{{run_dir}}/{result_path(one.id)}")
            return replace(step, run=run, makes=(result_path(one.id),))
        tries = node.get("max_retries")
        again = Retry(int(tries), 1.0) if tries.isdecimal() and int(tries) and node.handler != CONDITION else None
        if self._graph.decides(node.id):  # its visits are counted by their results
            run = ("sh", "-c", _KEEP, "sh", command, f"{{run_dir}}/{result_path(one.id)}")
            return replace(step, run=run, again=again, makes=(result_path(one.id),))
        return replace(step, shell=command, again=again)

    def _person(self, step: Step, one: WalkStep) -> Step:
        """An approval; where the way depends on the answer, a question that `doflow answer` answers."""
        node = one.node
        question = gate_question(node, step.about)
        step = replace(step, agent="", model="", commit="")
        if not self._wanted.decides(node):
            return replace(step, kind="gate", gate=question)
        labels = self._wanted.labels(node)
        asked = f"[NEEDS CLARIFICATION: {question} {' or '.join(labels) or 'approve or reject'}]".replace("\n", " ")
        lines = f"LABEL: {asked}\n\nRESULT: pass" if labels else f"RESULT: {asked}"
        run = ("sh", "-c", _ASK, "sh", label_text(node.label), f"{{run_dir}}/{result_path(one.id)}", lines)
        return replace(step, kind="shell", run=run, makes=(result_path(one.id),), clarify=True)

    def _decision(self, step: Step, one: WalkStep) -> Step:
        sources = [name for visit in one.sources if (name := self._ids.get(visit))]
        files = [result_path(name) for name in sources]
        options = self._graph.options(one.node.id)
        keys = {key for option in options if option.condition for key in option.condition.named_keys()} - {
            OUTCOME,
            LABEL,
        }
        none = f"{{ echo 'no result to decide on: {' '.join(files)}' >&2; exit 1; }}" if files else ":"
        followed = "" if is_plain(options) else _RESULT.format(files=" ".join(files) or "''", words=_WORDS, none=none)
        script = _START + followed + _VISITS.format(visits=self._visits(one) or "''")
        script += (_VALUE if keys - {OUTPUT} else "") + (
            _OUTPUT.format(files=" ".join(files)) if OUTPUT in keys else ""
        )
        script += self._chain(one, options) + _PRINT
        reads = tuple(Read(file, optional=True) for file in files)
        routes = self._routes(one, options, tuple(sources))
        return replace(step, run=("sh", "-c", script, "sh", "{run_dir}"), reads=reads, routes=routes)

    def _visits(self, one: WalkStep) -> str:
        """For each decision of this node up to now the results that it followed."""
        laps: dict[int, dict[str, None]] = {}
        for other in self._walk.steps.values():
            if other.decides and other.node.id == one.node.id and other.lap <= one.lap:
                names = (self._ids.get(visit, "") for visit in other.sources)
                laps.setdefault(other.lap, {}).update({result_path(name): None for name in names if name})
        return " ".join(f'"{" ".join(files)}"' for _, files in sorted(laps.items()) if files)

    def _chain(self, one: WalkStep, options: Sequence[Option]) -> str:
        lines, word = [], "if"
        for option in options:
            most = self._graph.limit(one.node.id, option.targets) if option.back else ""
            taken = f"next={shlex.quote(', '.join(option.targets))} most={most}"
            test = _test(option)
            if not test:
                lines.append(f"else {taken}" if word == "elif" else taken)
                break
            lines.append(f"{word} {test}; then {taken}")
            word = "elif"
        return "next='' most=''\n" + "\n".join(lines) + ("\nfi\n" if word == "elif" else "\n")

    def _routes(self, one: WalkStep, options: Sequence[Option], again: tuple[str, ...]) -> tuple[Route, ...]:
        """Where each marker leads; after too many ways back, or where nothing fits, the run pauses."""
        name = one.node.id
        routes: dict[str, Route] = {}
        for option, then in one.ways:
            marker = next_marker(option)
            pause = "" if then is not None else f"{name} has led back {self._walk.laps - 1} times; fix it by hand"
            routes.setdefault(marker, Route(marker, then or (), pause=pause, again=again if pause else ()))
        wanted = "; ".join(_shown(option) for option in options)
        if any(option.back for option in options):
            most = max(self._graph.limit(name, option.targets) for option in options if option.back)
            pause = f"{name} may lead back only {most} time{'s' if most != 1 else ''}; fix it by hand"
            routes[OFTEN] = Route(OFTEN, pause=pause, again=again)
        if not any(option.default for option in options):
            routes[STUCK] = Route(STUCK, pause=f"no edge of {name} fits its result ({wanted})", again=again)
        return tuple(routes.values())

    def _goal_step(self, step: Step, one: WalkStep) -> Step:
        """At the exit: goal gates that were visited must have passed; else back to their `retry_target`."""
        script = _GOALS
        routes: dict[str, Route] = {}
        reads: list[Read] = []
        ways = {option.targets[0]: then for option, then in one.ways}
        for goal in self._graph.goals():
            names = [name for name in self._walk.visits(goal.id) if self._walk.steps[name].lap <= one.lap]
            files = [result_path(name) for name in reversed(names)]
            reads += [Read(file, optional=True) for file in files]
            target = self._graph.retry_target(goal)
            then = ways.get(target)
            open_ = then is not None and one.lap <= self._graph.limit(goal.id, (target,))
            marker = f"NEXT: {target}" if open_ else f"NEXT: {goal.id} is not met"
            script += f"met {' '.join(files)} || {{ echo {shlex.quote(marker)}; exit 0; }}\n"
            pause = f"the goal gate {goal.id} is not met; fix it by hand"
            again = tuple(names[-1:])
            routes[marker] = Route(marker, then or ()) if open_ else Route(marker, pause=pause, again=again)
        routes[END] = Route(END)
        run = ("sh", "-c", f"{script}echo '{END}'\n", "sh", "{run_dir}")
        return replace(step, run=run, reads=tuple(reads), routes=tuple(routes.values()))

    def _reports(self, one: WalkStep) -> tuple[Read, ...]:
        """The results of the steps before: what a worker reads, also when it is sent back."""
        names = (self._ids.get(visit) for visit in one.sources)
        steps = [self._walk.steps[name] for name in names if name]
        found = [step for step in steps if step.node.handler == CODERGEN or self._wanted.decides(step.node)]
        return tuple(Read(result_path(step.id), optional=True) for step in found)


def _test(option: Option) -> str:
    """The shell test of an option; '' = the default."""
    if option.condition is not None:
        groups = [" && ".join(_clause(clause) for clause in clauses) for clauses in option.condition.any_of]
        return groups[0] if len(groups) == 1 else " || ".join(f"{{ {group}; }}" for group in groups)
    names = routing.option_names(option)
    full = conditions.canonical_label(option.label)
    names = (*names, option.label.strip().lower()) if full != option.label.strip().lower() else names
    return " || ".join(f'[ "$label" = {shlex.quote(name)} ]' for name in names) if option.label else ""


def _clause(clause: Clause) -> str:
    return f"! {{ {_positive(clause)}; }}" if clause.negated else _positive(clause)


def _positive(clause: Clause) -> str:
    if clause.key == OUTCOME:
        value = '"$outcome"'
    elif clause.key == LABEL:
        value = '"$label"'
    elif clause.key == OUTPUT:
        value = '"$(output)"'
    else:
        value = f'"$(value {shlex.quote(clause.key)})"'
    if clause.op == "set":
        return f"[ -n {value} ] && [ {value} != false ]"
    if clause.op == "contains":
        return f"printf %s {value} | grep -qF -- {shlex.quote(clause.value)}"
    return f"[ {value} {clause.op} {shlex.quote(clause.value)} ]"


def _shown(option: Option) -> str:
    return option.condition.text if option.condition else option.label


_WORDS = "\n".join(f"    {'|'.join(words)}) word={word};;" for word, words in conditions.OUTCOME_WORDS.items())
