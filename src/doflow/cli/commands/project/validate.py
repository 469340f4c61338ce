"""`doflow validate`: every problem of the settings and of every flow, each with file, line and column."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from doflow.agents import registry
from doflow.cli.output import say, say_json
from doflow.config import dot_flows as catalogue, project, settings
from doflow.engine.lifecycle import settings_lint as strangers
from doflow.flow import plan, subflow
from doflow.flow.dot import parser as reading, validate as checks, validate_references as references
from doflow.flow.dot.model import Pipeline
from doflow.flow.dot.validate import Remark
from doflow.flow.model import Flow, Origin, Profile, Settings, Step
from doflow.flow.parsing import graph_checks as wiring, loader as load, static_checks as foresight
from doflow.hooks import machine_loader as machines
from doflow.util.errors import FlowError, Problem, UsageError
from doflow.util.records import names

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

ABOUT = "Check doflow.yaml, every flow and every machine, the project's own and the packaged ones. Exit 1 if anything is wrong."
EXAMPLES = """\
  doflow validate                     everything
  doflow validate feature             one flow
  doflow validate drafts/new.yaml     a file that is not in flows/ yet
  doflow validate --strict            every warning counts as an error
  doflow validate auth.dot            a DOT pipeline"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", nargs="*", metavar="FLOW|FILE", help="flows or files (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--strict", action="store_true", help="a warning is an error")


def validate(args: Namespace) -> int:
    dots = [word for word in args.what if word.endswith((".dot", ".gv"))]
    if dots and len(dots) == len(args.what):
        return _pipelines(dots, args)
    root = project.find()
    problems: list[Problem] = []
    chosen = _settings(root, problems)
    flows = _named(root, args.what, chosen, problems) if args.what else _all(root, chosen, problems)
    every = load.catalogue(root, chosen.command_variant)
    known = {flow.name: flow for flow in (*every.flows.values(), *flows)}
    warnings = [] if problems else _strangers(root, chosen, every, known)
    for flow in flows:
        plan.build(flow, chosen)
        problems += [*_agents(root, flow, chosen), *_panes(flow, chosen), *foresight.barred(flow, chosen.protect)]
        warnings += [*wiring.unmade(subflow.inline(flow, known)), *foresight.loose(flow), *foresight.unreached(flow)]
    problems += _machines(root, flows, not args.what)
    problems += warnings if args.strict else []
    problems = list({str(problem): problem for problem in problems}.values())
    warnings = [] if args.strict else warnings
    if args.json:
        found, doubts = ([{name: getattr(one, name) for name in Problem.__slots__} for one in many]
                         for many in (problems, warnings))  # fmt: skip
        about = {"ok": not problems, "flows": [_plain(flow) for flow in flows]}
        say_json({**about, "problems": found, "warnings": doubts})
    else:
        _tell(root, flows, problems)
        for warning in warnings:
            say(f"warning: {warning}")
    return 1 if problems else 0


def _pipelines(paths: list[str], args: Namespace) -> int:
    """DOT pipelines: errors and warnings, each with its line."""
    found: list[tuple[str, Remark]] = []
    root = project.find()
    broken: list[Problem] = []
    chosen = _settings(root, broken)
    for path in paths:
        try:
            found += [
                (path, remark) for remark in _remarks(reading.read(path), root, None if broken else chosen, args.strict)
            ]
        except FlowError as error:
            found += [(p.file, Remark(checks.ERROR, "syntax", p.line, "", p.message, p.hint)) for p in error.problems]
    levels = (checks.ERROR, checks.WARNING, checks.NOTE)
    wrong, doubtful, notes = ([pair for pair in found if pair[1].level == level] for level in levels)
    summary = f"{_many(len(wrong), 'error')}, {_many(len(doubtful), 'warning')}"
    if args.json:
        kinds = {"errors": wrong, "warnings": doubtful, "notes": notes}
        told = {kind: [{"file": path, **_remark(one)} for path, one in pairs] for kind, pairs in kinds.items()}
        say_json({"valid": not wrong, **told, "summary": summary})
    else:
        for path, remark in found:
            say(
                f"{path}:{remark.line}: {remark.level}: {remark.message}"
                + (f"\n  hint: {remark.hint}" if remark.hint else "")
            )
        say(f"{'ok' if not wrong else 'not valid'}  {', '.join(paths)}  ({summary})")
    return 1 if wrong else 0


def _remarks(pipeline: Pipeline, root: Path, chosen: Settings | None, strict: bool) -> Iterator[Remark]:
    """Of the graph, of the files that it names, of the agents that are to do it (if the settings can be read)."""
    from doflow.supervise import preflight as fitness

    found = [*checks.check(pipeline), *references.missing(pipeline, str(root))]
    for one in fitness.doubts(pipeline, chosen, str(root), os.environ) if chosen else ():
        level, words = (checks.WARNING, "") if one.anyway else (checks.NOTE, "not under a guardian: ")
        found.append(Remark(level, "agent", one.node.line, one.node.id, f"{words}{one.message}", one.hint))
    yield from checks.weighed(found, strict)


def _remark(remark: Remark) -> dict[str, object]:
    return {name: getattr(remark, name) for name in names(Remark)}


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _settings(root: Path, problems: list[Problem]) -> Settings:
    try:
        return settings.load(root, os.environ)
    except FlowError as error:
        problems.extend(error.problems)
        return settings.load(Path(os.devnull), {})


def _strangers(root: Path, chosen: Settings, every: load.Catalogue, known: dict[str, Flow]) -> list[Problem]:
    """Settings for steps that no flow has; a flow that cannot be read may have them."""
    if every.broken:
        return []
    piped = _registered(root, chosen, set(known), [])
    return strangers.problems(root, chosen, strangers.steps(*known.values(), *piped, known=known))


def _all(root: Path, chosen: Settings, problems: list[Problem]) -> list[Flow]:
    found = load.catalogue(root, chosen.command_variant)
    for error in found.broken.values():
        problems.extend(error.problems)
    return [*found.flows.values(), *_registered(root, chosen, {*found.flows, *found.broken}, problems)]


def _registered(root: Path, chosen: Settings, taken: set[str], problems: list[Problem]) -> list[Flow]:
    """The DOT pipelines that doflow.yaml names, as far as they hold."""
    flows = []
    for _, made in catalogue.flows(root, chosen.pipelines, taken):
        if isinstance(made, FlowError):
            problems.extend(made.problems)
        else:
            flows.append(made)
    return flows


def _named(root: Path, words: list[str], chosen: Settings, problems: list[Problem]) -> list[Flow]:
    found = load.catalogue(root, chosen.command_variant)
    taken = {*found.flows, *found.broken}
    for name, made in catalogue.flows(root, [one for one in chosen.pipelines if one[0] in words], taken):
        if isinstance(made, FlowError):
            found.broken[name] = made
        else:
            found.flows[name] = made
    flows = []
    for word in words:
        try:
            if word in found.flows:
                flows.append(found.flows[word])
            elif word in found.broken:
                problems.extend(found.broken[word].problems)
            elif word.endswith((".dot", ".gv")):
                wrong = checks.errors(checks.check(reading.read(word)))
                problems.extend(Problem(word, one.line, 1, one.message, one.hint) for one in wrong)
            elif os.path.basename(word) == "doflow.yaml":
                settings.load(Path(os.path.abspath(word)).parent, os.environ)
            elif word.endswith((".yaml", ".yml")) or os.sep in word:
                flows.append(load.flow_file(Path(word), root, chosen.command_variant))
            else:
                raise _unknown(word, [*found.flows, *found.broken])
        except FlowError as error:
            problems.extend(error.problems)
    return flows


def _unknown(word: str, known: list[str]) -> UsageError:
    import difflib

    near = difflib.get_close_matches(word, known, 1)
    return UsageError(f"there is no flow {word}", f"did you mean {near[0]}?" if near else f"flows: {', '.join(known)}")


def _agents(root: Path, flow: Flow, chosen: Settings) -> Iterator[Problem]:
    """A step may ask for an agent that no profile describes: better said now than when its turn comes."""
    known = [profile.name for profile in chosen.agents]
    for step in flow.steps:
        for word, use in (("agent", ""), ("fallback", " as its fallback"), ("fixer", " as its fixer")):
            name = getattr(step, word)
            if name and "{" not in name and name not in known and name not in registry.KNOWN:
                at = step.origin if flow.file.endswith((".dot", ".gv")) else load.place(root, step, word)
                message = f"step {step.id} wants the agent {name!r}{use}, which doflow.yaml does not have"
                hint = f"agents: {', '.join(known)}; add it below `agents:` in doflow.yaml"
                yield Problem(at.file, at.line, at.column, message, hint)


def _panes(flow: Flow, chosen: Settings) -> list[Problem]:
    """A step in a tmux pane that no run would begin."""
    from doflow.supervise import preflight as fitness

    problems = []
    for step in flow.steps:
        name = _who(step, chosen)
        profile = chosen.profile(name) or (Profile(name, name) if name in registry.KNOWN else None)
        if profile is not None and (step.via == "tmux" or step.judge):
            try:
                fitness.of_step(step, profile, chosen)
            except UsageError as error:
                at = step.origin
                problems.append(Problem(at.file, at.line, at.column, error.message, error.hint))
    return problems


def _who(step: Step, chosen: Settings) -> str:
    """Who does it, as far as the files say."""
    return plan.routed(step.id, chosen) or step.agent or "default"


def _machines(root: Path, flows: list[Flow], every: bool) -> list[Problem]:
    """The machines that steps name, or all there are: each is read and proved."""
    problems: list[Problem] = []
    users = {step.machine: step for flow in flows for step in flow.steps if step.machine}
    for name in {*users, *(machines.names(root) if every else ())}:
        try:
            machines.compiled(root, name)
        except FlowError as error:
            problems += error.problems
        except UsageError as error:
            at = users[name].origin if name in users else Origin(f"flows/machines/{name}.yaml", 1, 1)
            problems.append(Problem(at.file, at.line, at.column, error.message, error.hint))
    return problems


def _plain(flow: Flow) -> dict[str, object]:
    return {"flow": flow.name, "file": flow.file, "packaged": flow.packaged, "steps": len(flow.steps)}


def _tell(root: Path, flows: list[Flow], problems: list[Problem]) -> None:
    for flow in flows:
        place = "packaged" if flow.packaged else os.path.relpath(flow.file, root)
        say(f"ok  {flow.name}  ({place}, {len(flow.steps)} step{'s' * (len(flow.steps) != 1)})")
    for problem in problems:
        say(str(problem))
    if problems:
        say(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
