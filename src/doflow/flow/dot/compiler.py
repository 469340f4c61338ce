"""DOT pipeline → Flow: each node a step of the same engine, each try of a loop one more.

codergen: an agent; tool: a command; hexagon: a command, a reviewing agent, or a person; diamond: decides by the last line of
the result before it, `RESULT: pass` or `RESULT: fail`. A missing line is an error, never a pass.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from doflow.flow.dot import parser, unroll, validate
from doflow.flow.dot.model import CODERGEN, CONDITION, GATE, ROUTE, TOOL, Node, Pipeline, label_text
from doflow.flow.dot.unroll import NodeRun, Unrolled
from doflow.flow.model import Check, Flow, Origin, Param, Prompt, Read, Route, Step
from doflow.flow.parsing import syntax
from doflow.util.errors import FlowError, Problem
from doflow.util.process.runner import Timeout

PASS, FAIL = "RESULT: pass", "RESULT: fail"
#: these are part of a step's key: another text would run the steps of existing pipelines again
_MUST = 'case "$(tail -n 1 "$1")" in "RESULT: pass") ;; *) tail -n 40 "$1"; exit 1;; esac'
_TRY = """\
sh -c "$1" >"$2" 2>&1
code=$?
tail -c 20000 "$2"
case $code in
  0) result=pass;;
  126|127) echo "the command cannot be run" >&2; exit $code;;
  *) [ "$code" -le 128 ] || exit "$code"; result=fail;;
esac
kept=$(tail -c 100000 "$2")
printf '%s\\n\\nRESULT: %s\\n' "$kept" "$result" >"$2"
"""
_JUDGE = """\
for file; do
  case "$(tail -n 1 "$file")" in
    "RESULT: pass") ;;
    "RESULT: fail") echo "$file"; echo "RESULT: fail"; exit 0;;
    *) echo "the last line of $file is no RESULT" >&2; exit 1;;
  esac
done
echo "RESULT: pass"
"""


def compile_pipeline(path: str, name: str, shown: str) -> Flow:
    """The flow of a DOT file; `shown` is its path relative to the project. FlowError with the pipeline's errors."""
    pipeline = parser.read_pipeline(path, shown)
    errors = validate.errors(validate.check_pipeline(pipeline))
    if errors:
        raise FlowError(tuple(Problem(shown, error.line, 1, error.message, error.hint) for error in errors))
    routed = next((node for node in pipeline.nodes if node.handler == ROUTE), None)
    if routed is not None:
        message = f"{routed.id} is a route, which only a flow supports"
        raise _error(pipeline, routed.line, message, "run the original flow, or use a diamond")
    unrolled = unroll.unroll(pipeline)
    steps = tuple(_Steps(pipeline, unrolled).step(turn) for turn in unrolled.turns.values())
    if not steps:
        raise _error(pipeline, pipeline.line, "the pipeline has nothing to do", "add a node with shape=box")
    about = " ".join(label_text(pipeline.get("label") or pipeline.name or name).split())
    protect = tuple(f"/{shown}{more}" for more in ("", ".transitions.jsonl", ".checkpoint.json"))
    return Flow(name, about, (Param("goal", "what this run is for"),), steps, unrolled.first, protect, path)


def _error(pipeline: Pipeline, line: int, message: str, hint: str) -> FlowError:
    return FlowError((Problem(pipeline.path, line, 1, message, hint),))


def result_path(turn: NodeRun) -> str:
    """The result file of a step, in the run's folder."""
    return f"results/{turn.id}.md"


def judges_node(pipeline: Pipeline, node: Node) -> bool:
    """Does a diamond decide on this node?"""
    kinds = {one.id: one.handler for one in pipeline.nodes}
    human = node.handler == GATE and needs_person(node)
    return not human and any(kinds[edge.to] == CONDITION for edge in pipeline.out_of(node.id))


def needs_person(gate: Node) -> bool:
    """Does a person decide at this gate?"""
    return not (gate.get("command") or gate.get("agent") or gate.get("prompt"))


class _Steps:
    """Builds the steps of one pipeline."""

    def __init__(self, pipeline: Pipeline, unrolled: Unrolled) -> None:
        self._pipeline, self._unrolled = pipeline, unrolled

    def step(self, turn: NodeRun) -> Step:
        node = turn.node
        make = {CODERGEN: self._work, TOOL: self._command, GATE: self._gate, CONDITION: self._diamond}[node.handler]
        origin = Origin(self._pipeline.path, node.line, 1)
        about = " ".join(node.label.split())
        about = f"{about} (try {turn.number})" if turn.number > 1 else about
        common = Step(
            turn.id, about=about, after=turn.after, origin=origin, agent=node.get("agent"), model=node.get("model"),
            timeout=self._timeout(node), commit=f"{turn.id}: {about}",
        )  # fmt: skip
        return make(common, turn)

    def _work(self, step: Step, turn: NodeRun) -> Step:
        node = turn.node
        words = validate.prompt_text(self._pipeline, node)
        reads = [*self._reports(turn), *self._feedback(turn)]
        design = validate.attribute_value(self._pipeline, node, "solution_design")
        if design and not design.startswith(("/", "~")):
            reads.append(Read(f"/{self._pathed(node, design)}", optional=True))
        paths = [path.strip() for path in node.get("writes").split(",") if path.strip()]
        writes = tuple(self._pathed(node, path) for path in paths) or ("**",)
        step = replace(step, reads=tuple(reads), writes=writes, makes=(result_path(turn),), from_text=True)
        if judges_node(self._pipeline, node):
            return self._answering(step, turn, words)
        run = ("sh", "-c", node.get("check")) if node.get("check") else ()
        prompt = Prompt(f"{words}\nDo the work in the files; then answer with a report of what you did.\n")
        return replace(step, prompt=prompt, check=Check(not_empty=True, run=run), repair=1 if run else 0)

    def _answering(self, step: Step, turn: NodeRun, words: str) -> Step:
        """An agent that ends its report with pass or fail. Without a diamond after it, only pass is accepted."""
        prompt = Prompt(f"{words}\nAnswer with a report of what you found and did.\n")
        judged = judges_node(self._pipeline, turn.node)
        run = () if judged else ("sh", "-c", _MUST, "sh", f"{{run_dir}}/{result_path(turn)}")
        check, made = Check(ends=(PASS, FAIL), run=run), (result_path(turn),)
        return replace(step, prompt=prompt, makes=made, from_text=True, check=check, repair=1 if judged else 0)

    def _command(self, step: Step, turn: NodeRun) -> Step:
        node = turn.node
        command = node.get("command")
        folder = node.get("working_dir") or node.get("target_dir")
        if folder:
            command = f"cd {shlex.quote(self._pathed(node, folder))} && {{ {command}\n}}"
        step = replace(step, kind="shell", agent="", model="", commit="")
        if judges_node(self._pipeline, node):
            run = ("sh", "-c", _TRY, "sh", command, f"{{run_dir}}/{result_path(turn)}")
            return replace(step, run=run, makes=(result_path(turn),), reads=self._reports(turn))
        return replace(step, shell=command, reads=self._reports(turn))

    def _gate(self, step: Step, turn: NodeRun) -> Step:
        node = turn.node
        if node.get("command"):
            return self._command(step, turn)
        if needs_person(node):
            question = label_text(node.get("question")) or step.about
            question = question if question.endswith("?") else f"{question}?"
            return replace(step, kind="gate", gate=question, agent="", model="", reads=self._reports(turn))
        before = self._unrolled.turns
        workers = {before[name].node.id: before[name].node for name in turn.after if name in before}
        judged = tuple(worker for worker in workers.values() if worker.handler == CODERGEN)
        words = validate.review_text(self._pipeline, node, judged)
        return self._answering(replace(step, reads=self._reports(turn)), turn, words)

    def _diamond(self, step: Step, turn: NodeRun) -> Step:
        """Decides by its own command, else by the results before it; a person's approval counts as a pass."""
        node = turn.node
        most = turn.number - 1
        before = [self._unrolled.turns[name] for name in turn.after]
        judged = [one for one in before if judges_node(self._pipeline, one.node)]
        again = () if node.get("command") else tuple(one.id for one in judged)
        pause = f"{node.id} still fails after {most} retr{'y' if most == 1 else 'ies'}; fix it by hand"
        otherwise = Route(FAIL, pause=pause, again=again) if turn.last else Route(FAIL, turn.otherwise)
        step = replace(step, kind="shell", routes=(Route(PASS, turn.then), otherwise), agent="", model="", commit="")
        if node.get("command"):
            run = ("sh", "-c", _TRY, "sh", node.get("command"), f"{{run_dir}}/{result_path(turn)}")
            return replace(step, run=run, makes=(result_path(turn),), reads=self._reports(turn))
        names = [one.node.id for one in before]
        odd = next((one.node.id for one in before if one.node.handler == CONDITION or names.count(one.node.id) > 1), "")
        if odd:
            message = f"{node.id} comes after {odd}, which has no single result to decide on"
            raise _error(self._pipeline, node.line, message, "give it a command of its own")
        files = tuple(result_path(one) for one in judged)
        reads = tuple(Read(file) for file in files)
        return replace(step, run=("sh", "-c", _JUDGE, "sh", *(f"{{run_dir}}/{file}" for file in files)), reads=reads)

    def _reports(self, turn: NodeRun) -> tuple[Read, ...]:
        """The reports of the steps right before: the step is out of date when they change."""
        before = (self._unrolled.turns[name] for name in turn.after)
        return tuple(Read(result_path(one), optional=True) for one in before if one.node.handler == CODERGEN)

    def _feedback(self, turn: NodeRun) -> tuple[Read, ...]:
        """The results that made a diamond send the work back: input for the next try."""
        tries, found = dict(turn.tries), dict[str, None]()
        for loop, number in turn.tries:
            for sender in self._unrolled.tries_of(loop) if number > 1 else ():
                wanted = {other: tries.get(other, count) for other, count in sender.tries} | {loop: number - 1}
                if dict(sender.tries) == wanted:
                    names = (sender.id,) if sender.node.get("command") else sender.after
                    found.update({result_path(self._unrolled.turns[name]): None for name in names})
        return tuple(Read(path, optional=True) for path in found)

    def _timeout(self, node: Node) -> Timeout | None:
        said = node.get("timeout")
        if not said:
            return None
        try:
            return replace(Timeout(), max=syntax.seconds(float(said) if said.isdecimal() else said))
        except syntax.InvalidSyntax as bad:
            raise _error(self._pipeline, node.line, bad.message, bad.hint) from bad

    def _pathed(self, node: Node, said: str) -> str:
        try:
            return syntax.pattern(said.rstrip("/") or said)
        except syntax.InvalidSyntax as bad:
            raise _error(self._pipeline, node.line, f"{node.id}: {bad.message}", bad.hint) from bad
