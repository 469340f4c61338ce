"""DOT pipeline → Flow: each node a step of the same engine, each try of a loop one more.

codergen: an agent; tool: a command; hexagon: a command, a reviewing agent, or a person; diamond: decides by the last line of
the result before it, `RESULT: pass` or `RESULT: fail`. A missing line is an error, never a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from doflow.flow.dot import dialect, node_steps, parser, routing, unroll, validate, walk, walk_steps
from doflow.flow.dot.model import CODERGEN, CONDITION, GATE, ROUTE, TOOL, Node, Pipeline, attribute_value, label_text
from doflow.flow.dot.node_steps import (
    FAIL as FAIL,
    PASS as PASS,
    checked_path,
    command_text,
    gate_question,
    problem,
    result_path,
    step_timeout,
    written_paths,
)
from doflow.flow.dot.routing import needs_person
from doflow.flow.dot.unroll import NodeRun, Unrolled
from doflow.flow.dot.validate import Diagnostic
from doflow.flow.dot.walk import Walk
from doflow.flow.model import Check, Flow, Origin, Param, Profile, Prompt, Read, Route, Step
from doflow.util.errors import FlowError, Problem

#: part of a step's key, as those of `node_steps` are
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


def compile_pipeline(path: str, name: str, shown: str, profiles: Sequence[Profile] = ()) -> Flow:
    """The flow of a DOT file; `shown` is its path relative to the project. FlowError with the pipeline's errors."""
    pipeline = parser.read_pipeline(path, shown)
    errors = validate.errors(validate.check_pipeline(pipeline))
    if errors:
        raise FlowError(tuple(Problem(shown, error.line, 1, error.message, error.hint) for error in errors))
    first, steps = compile_steps(pipeline, profiles)
    if not steps:
        raise problem(pipeline, pipeline.line, "the pipeline has nothing to do", "add a node with shape=box")
    about = " ".join(label_text(pipeline.get("label") or pipeline.name or name).split())
    protect = tuple(f"/{shown}{more}" for more in ("", ".transitions.jsonl", ".checkpoint.json"))
    return Flow(name, about, (Param("goal", "what this run is for"),), steps, first, protect, path)


def check_runnable(pipeline: Pipeline) -> tuple[Diagnostic, ...]:
    """All remarks about a pipeline; if it has no errors, also why it can't run, with its line."""
    found = validate.check_pipeline(pipeline)
    if validate.errors(found):
        return found
    try:
        compile_steps(pipeline)
    except FlowError as error:
        more = (Diagnostic(validate.ERROR, "run", one.line, "", one.message, one.hint) for one in error.problems)
        return validate.apply_strict((*found, *more), strict=False)
    return found


def compile_steps(pipeline: Pipeline, profiles: Sequence[Profile] = ()) -> tuple[tuple[str, ...], tuple[Step, ...]]:
    """The steps of a pipeline without errors, and those that run first; FlowError if it can't be run."""
    routed = next((node for node in pipeline.nodes if node.handler == ROUTE), None)
    if routed is not None:
        message = f"{routed.id} is a route, which only a flow supports"
        raise problem(pipeline, routed.line, message, "run the original flow, or use a diamond")
    found = plan_pipeline(pipeline)
    if isinstance(found, Walk):
        return found.first, walk_steps.build_steps(found, profiles)
    return found.first, tuple(_Steps(pipeline, found, profiles).step(turn) for turn in found.turns.values())


def plan_pipeline(pipeline: Pipeline) -> Unrolled | Walk:
    """The steps of a pipeline without their content: unrolled, or as a walk where its nodes decide the way."""
    if routing.is_walked(pipeline):
        return walk.walk(pipeline)
    try:
        found = unroll.unroll(pipeline)
        for turn in found.turns.values():
            _refuse_undecidable(pipeline, found, turn)
        return found
    except FlowError:
        return walk.walk(pipeline)  # branches that don't meet before a diamond, too many loops in each other


def _refuse_undecidable(pipeline: Pipeline, unrolled: Unrolled, turn: NodeRun) -> None:
    """Refuse a diamond without a command after another one, or after several tries of a node."""
    if turn.node.handler != CONDITION or turn.node.command:
        return
    before = [unrolled.turns[name] for name in turn.after]
    names = [one.node.id for one in before]
    odd = next((one.node.id for one in before if one.node.handler == CONDITION or names.count(one.node.id) > 1), "")
    if odd:
        message = f"{turn.node.id} comes after {odd}, which has no single result to decide on"
        raise problem(pipeline, turn.node.line, message, "give it a command of its own")


def judges_node(pipeline: Pipeline, node: Node) -> bool:
    """Does a diamond decide on this node?"""
    kinds = {one.id: one.handler for one in pipeline.nodes}
    human = node.handler == GATE and needs_person(node)
    return not human and any(kinds[edge.to] == CONDITION for edge in pipeline.out_of(node.id))


class _Steps:
    """Builds the steps of one pipeline."""

    def __init__(self, pipeline: Pipeline, unrolled: Unrolled, profiles: Sequence[Profile]) -> None:
        self._pipeline, self._unrolled, self._profiles = pipeline, unrolled, profiles

    def step(self, turn: NodeRun) -> Step:
        node = turn.node
        make = {CODERGEN: self._work, TOOL: self._command, GATE: self._gate, CONDITION: self._diamond}[node.handler]
        origin = Origin(self._pipeline.path, node.line, 1)
        about = " ".join(node.label.split())
        about = f"{about} (try {turn.number})" if turn.number > 1 else about
        agent, model, _ = dialect.agent_and_model(node, self._profiles)
        common = Step(
            turn.id, about=about, after=turn.after, origin=origin, agent=agent, model=model,
            timeout=step_timeout(self._pipeline, node), commit=f"{turn.id}: {about}",
        )  # fmt: skip
        return make(common, turn)

    def _work(self, step: Step, turn: NodeRun) -> Step:
        node = turn.node
        words = node_steps.prompt_text(self._pipeline, node)
        reads = [*self._reports(turn), *self._feedback(turn)]
        design = attribute_value(self._pipeline, node, "solution_design")
        if design and not design.startswith(("/", "~")):
            reads.append(Read(f"/{checked_path(self._pipeline, node, design)}", optional=True))
        writes = written_paths(self._pipeline, node)
        step = replace(step, reads=tuple(reads), writes=writes, makes=(result_path(turn.id),), from_text=True)
        if judges_node(self._pipeline, node):
            return self._answering(step, turn, words)
        run = ("sh", "-c", node.get("check")) if node.get("check") else ()
        prompt = Prompt(f"{words}\nDo the work in the files; then answer with a report of what you did.\n")
        return replace(step, prompt=prompt, check=Check(not_empty=True, run=run), repair=1 if run else 0)

    def _answering(self, step: Step, turn: NodeRun, words: str) -> Step:
        """An agent that ends its report with pass or fail. Without a diamond after it, only pass is accepted."""
        prompt = Prompt(f"{words}\nAnswer with a report of what you found and did.\n")
        judged = judges_node(self._pipeline, turn.node)
        run = () if judged else ("sh", "-c", node_steps.MUST, "sh", f"{{run_dir}}/{result_path(turn.id)}")
        check, made = Check(ends=(PASS, FAIL), run=run), (result_path(turn.id),)
        return replace(step, prompt=prompt, makes=made, from_text=True, check=check, repair=1 if judged else 0)

    def _command(self, step: Step, turn: NodeRun) -> Step:
        node = turn.node
        command = command_text(self._pipeline, node)
        step = replace(step, kind="shell", agent="", model="", commit="")
        if judges_node(self._pipeline, node):
            run = ("sh", "-c", node_steps.TRY, "sh", command, f"{{run_dir}}/{result_path(turn.id)}")
            return replace(step, run=run, makes=(result_path(turn.id),), reads=self._reports(turn))
        return replace(step, shell=command, reads=self._reports(turn))

    def _gate(self, step: Step, turn: NodeRun) -> Step:
        node = turn.node
        if node.command:
            return self._command(step, turn)
        if needs_person(node):
            question = gate_question(node, step.about)
            return replace(step, kind="gate", gate=question, agent="", model="", reads=self._reports(turn))
        before = self._unrolled.turns
        workers = {before[name].node.id: before[name].node for name in turn.after if name in before}
        judged = tuple(worker for worker in workers.values() if worker.handler == CODERGEN)
        words = node_steps.review_text(self._pipeline, node, judged)
        return self._answering(replace(step, reads=self._reports(turn)), turn, words)

    def _diamond(self, step: Step, turn: NodeRun) -> Step:
        """Decides by its own command, else by the results before it; a person's approval counts as a pass."""
        node = turn.node
        most = turn.number - 1
        before = [self._unrolled.turns[name] for name in turn.after]
        judged = [one for one in before if judges_node(self._pipeline, one.node)]
        again = () if node.command else tuple(one.id for one in judged)
        pause = f"{node.id} still fails after {most} retr{'y' if most == 1 else 'ies'}; fix it by hand"
        otherwise = Route(FAIL, pause=pause, again=again) if turn.last else Route(FAIL, turn.otherwise)
        step = replace(step, kind="shell", routes=(Route(PASS, turn.then), otherwise), agent="", model="", commit="")
        if node.command:
            run = ("sh", "-c", node_steps.TRY, "sh", node.command, f"{{run_dir}}/{result_path(turn.id)}")
            return replace(step, run=run, makes=(result_path(turn.id),), reads=self._reports(turn))
        files = tuple(result_path(one.id) for one in judged)
        reads = tuple(Read(file) for file in files)
        return replace(step, run=("sh", "-c", _JUDGE, "sh", *(f"{{run_dir}}/{file}" for file in files)), reads=reads)

    def _reports(self, turn: NodeRun) -> tuple[Read, ...]:
        """The reports of the steps right before: the step is out of date when they change."""
        before = (self._unrolled.turns[name] for name in turn.after)
        return tuple(Read(result_path(one.id), optional=True) for one in before if one.node.handler == CODERGEN)

    def _feedback(self, turn: NodeRun) -> tuple[Read, ...]:
        """The results that made a diamond send the work back: input for the next try."""
        tries, found = dict(turn.tries), dict[str, None]()
        for loop, number in turn.tries:
            for sender in self._unrolled.tries_of(loop) if number > 1 else ():
                wanted = {other: tries.get(other, count) for other, count in sender.tries} | {loop: number - 1}
                if dict(sender.tries) == wanted:
                    names = (sender.id,) if sender.node.command else sender.after
                    found.update({result_path(name): None for name in names})
        return tuple(Read(path, optional=True) for path in found)
