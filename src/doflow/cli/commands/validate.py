"""`doflow validate`: every problem in the settings and flows, each with file, line and column."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from doflow.agents import registry
from doflow.cli.commands import tasks
from doflow.cli.output import count_of, say, say_json, unknown_flow
from doflow.config import project, settings
from doflow.engine.lifecycle import start
from doflow.flow import plan, subflow
from doflow.flow.dot import compiler, parser, validate as checks
from doflow.flow.dot.model import Pipeline
from doflow.flow.dot.validate import Diagnostic
from doflow.flow.model import Flow, Origin, Profile, Settings
from doflow.flow.parsing import graph_checks, loader, static_checks
from doflow.flow.task_lists import TaskList, parse_task_list
from doflow.hooks import machine_loader
from doflow.supervise.runner import orchestrator
from doflow.util.errors import FlowError, Problem, UsageError

ABOUT = "Check doflow.yaml, all flows and all machines, including the packaged ones. Exit 1 if there are problems."
EXAMPLES = """\
  doflow validate                     everything
  doflow validate feature             one flow
  doflow validate drafts/new.yaml     a file outside flows/
  doflow validate --strict            treat warnings as errors
  doflow validate auth.dot            a DOT pipeline
  doflow validate specs/x/tasks.md    a task list of any format"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", nargs="*", metavar="FLOW|FILE", help="flows or files (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")


def validate(args: Namespace) -> int:
    dots = [word for word in args.what if word.endswith((".dot", ".gv"))]
    if dots and len(dots) == len(args.what):
        return _pipelines(dots, args)
    lists = [word for word in args.what if word.endswith((".md", ".markdown"))]
    if lists and len(lists) == len(args.what):
        return _task_lists(lists, args)
    root = project.find()
    problems: list[Problem] = []
    chosen = _settings(root, problems)
    every = loader.load_catalogue(root, chosen.command_variant)
    flows = _named(root, args.what, every, chosen, problems) if args.what else _all(root, every, chosen, problems)
    known = {flow.name: flow for flow in (*every.flows.values(), *flows)}
    warnings = [] if problems else _unused_settings(root, chosen, every, known)
    for flow in flows:
        plan.build_plan(flow, chosen)
        problems += [*_agents(root, flow, chosen), *_panes(flow, chosen)]
        problems += graph_checks.protected_outputs(flow, chosen.protect)
        warnings += static_checks.missing_inputs(subflow.inline_subflows(flow, known))
        warnings += [*static_checks.undeclared_params(flow), *static_checks.unreachable_steps(flow)]
    problems += _machines(root, flows, not args.what)
    problems += warnings if args.strict else []
    problems = list({str(problem): problem for problem in problems}.values())
    warnings = [] if args.strict else warnings
    if args.json:
        about = [
            {"flow": flow.name, "file": flow.file, "packaged": flow.packaged, "steps": len(flow.steps)}
            for flow in flows
        ]
        found, doubts = [problem._asdict() for problem in problems], [warning._asdict() for warning in warnings]
        say_json({"ok": not problems, "flows": about, "problems": found, "warnings": doubts})
    else:
        _print(root, flows, problems, warnings)
    return 1 if problems else 0


def _task_lists(paths: list[str], args: Namespace) -> int:
    """Task lists of any format: what keeps a file from being one, and warnings, each with its line."""
    problems: list[Problem] = []
    warnings: list[Problem] = []
    read: list[tuple[str, TaskList]] = []
    for path in paths:
        found = parse_task_list(tasks.read_list_file(path))
        remarks = [one._replace(file=path) for one in found.problems]
        if found.phases and not (args.strict and remarks):
            read.append((path, found))
            warnings += remarks
        else:
            problems += remarks
    if args.json:
        about = [{"file": path, "style": one.style, "phases": len(one.phases), "tasks": len(one.tasks)}
                 for path, one in read]  # fmt: skip
        wrong, doubts = [problem._asdict() for problem in problems], [warning._asdict() for warning in warnings]
        say_json({"ok": not problems, "task_lists": about, "problems": wrong, "warnings": doubts})
    else:
        for path, one in read:
            count = f"{count_of(len(one.phases), 'phase')}, {count_of(len(one.tasks), 'task')}"
            say(f"ok  {path}  (task list: {one.style}, {count})")
        for problem in problems:
            say(str(problem))
        for warning in warnings:
            say(f"warning: {warning}")
    return 1 if problems else 0


def _pipelines(paths: list[str], args: Namespace) -> int:
    """DOT pipelines: errors and warnings, each with its line."""
    found: list[tuple[str, Diagnostic]] = []
    root = project.find()
    broken: list[Problem] = []
    chosen = _settings(root, broken)
    for path in paths:
        try:
            remarks = _remarks(parser.read_pipeline(path), root, None if broken else chosen, args.strict)
            found += [(path, remark) for remark in remarks]
        except FlowError as error:
            for p in error.problems:
                found.append((p.file, Diagnostic(checks.ERROR, "syntax", p.line, "", p.message, p.hint)))
    levels = (checks.ERROR, checks.WARNING, checks.NOTE)
    wrong, doubtful, notes = ([pair for pair in found if pair[1].level == level] for level in levels)
    summary = f"{count_of(len(wrong), 'error')}, {count_of(len(doubtful), 'warning')}"
    if args.json:
        kinds = {"errors": wrong, "warnings": doubtful, "notes": notes}
        listed = {kind: [{"file": path, **asdict(one)} for path, one in pairs] for kind, pairs in kinds.items()}
        say_json({"valid": not wrong, **listed, "summary": summary})
    else:
        for path, remark in found:
            hint = f"\n  hint: {remark.hint}" if remark.hint else ""
            say(f"{path}:{remark.line}: {remark.level}: {remark.message}{hint}")
        say(f"{'ok' if not wrong else 'not valid'}  {', '.join(paths)}  ({summary})")
    return 1 if wrong else 0


def _remarks(pipeline: Pipeline, root: Path, chosen: Settings | None, strict: bool) -> Iterator[Diagnostic]:
    """Problems of the graph, of the files it names and of the agents it uses (if the settings are valid)."""
    found = [*compiler.check_runnable(pipeline), *checks.missing_references(pipeline, str(root))]
    found += checks.unmapped_models(pipeline, chosen.agents) if chosen else ()
    for one in orchestrator.find_problems(pipeline, chosen, str(root), os.environ) if chosen else ():
        words = "not under a guardian: " if one.level == checks.NOTE else ""
        found.append(replace(one, message=f"{words}{one.message}"))
    yield from checks.apply_strict(found, strict)


def _settings(root: Path, problems: list[Problem]) -> Settings:
    try:
        return settings.load(root, os.environ)
    except FlowError as error:
        problems.extend(error.problems)
        return settings.load(Path(os.devnull), {})


def _unused_settings(root: Path, chosen: Settings, every: loader.Catalogue, known: dict[str, Flow]) -> list[Problem]:
    """Warnings: settings for steps that no flow has; skipped if a flow is broken, which may have them."""
    if every.broken:
        return []
    piped = _registered(root, chosen, set(known), [])
    return start.problems(root, chosen, start.steps(*known.values(), *piped, known=known))


def _all(root: Path, every: loader.Catalogue, chosen: Settings, problems: list[Problem]) -> list[Flow]:
    for error in every.broken.values():
        problems.extend(error.problems)
    return [*every.flows.values(), *_registered(root, chosen, {*every.flows, *every.broken}, problems)]


def _registered(root: Path, chosen: Settings, taken: set[str], problems: list[Problem]) -> list[Flow]:
    """The valid DOT pipelines of doflow.yaml."""
    flows = []
    for _, made in project.list_pipelines(root, chosen.pipelines, taken, chosen.agents):
        if isinstance(made, FlowError):
            problems.extend(made.problems)
        else:
            flows.append(made)
    return flows


def _named(
    root: Path, words: list[str], every: loader.Catalogue, chosen: Settings, problems: list[Problem]
) -> list[Flow]:
    taken = {*every.flows, *every.broken}
    wanted = [one for one in chosen.pipelines if one[0] in words]
    for name, made in project.list_pipelines(root, wanted, taken, chosen.agents):
        if isinstance(made, FlowError):
            every.broken[name] = made
        else:
            every.flows[name] = made
    flows = []
    for word in words:
        try:
            if word in every.flows:
                flows.append(every.flows[word])
            elif word in every.broken:
                problems.extend(every.broken[word].problems)
            elif word.endswith((".dot", ".gv")):
                wrong = checks.errors(compiler.check_runnable(parser.read_pipeline(word)))
                problems.extend(Problem(word, one.line, 1, one.message, one.hint) for one in wrong)
            elif os.path.basename(word) == "doflow.yaml":
                settings.load(Path(os.path.abspath(word)).parent, os.environ)
            elif word.endswith((".yaml", ".yml")) or os.sep in word:
                flows.append(loader.load_flow(Path(word), root, chosen.command_variant))
            else:
                raise unknown_flow(word, [*every.flows, *every.broken], {})
        except FlowError as error:
            problems.extend(error.problems)
    return flows


def _agents(root: Path, flow: Flow, chosen: Settings) -> Iterator[Problem]:
    """Steps that name an agent without a profile."""
    known = [profile.name for profile in chosen.agents]
    for step in flow.steps:
        for word, use in (("agent", ""), ("fallback", " as its fallback"), ("fixer", " as its fixer")):
            name = getattr(step, word)
            if name and "{" not in name and name not in known and name not in registry.KNOWN:
                at = step.origin if flow.file.endswith((".dot", ".gv")) else loader.key_origin(root, step, word)
                message = f"step {step.id} names the agent {name!r}{use}, which is not in doflow.yaml"
                hint = f"agents: {', '.join(known)}; add it under `agents:` in doflow.yaml"
                yield Problem(at.file, at.line, at.column, message, hint)


def _panes(flow: Flow, chosen: Settings) -> list[Problem]:
    """Steps in a tmux pane that could not be started."""
    problems = []
    for step in flow.steps:
        name = plan.routed_profile(step.id, chosen) or step.agent or "default"
        profile = chosen.profile(name) or (Profile(name, name) if name in registry.KNOWN else None)
        if profile is not None and (step.via == "tmux" or step.judge):
            try:
                orchestrator.refuse_step(step, profile, chosen)
            except UsageError as error:
                at = step.origin
                problems.append(Problem(at.file, at.line, at.column, error.message, error.hint))
    return problems


def _machines(root: Path, flows: list[Flow], every: bool) -> list[Problem]:
    """Problems of the machines that steps name, or of all machines."""
    problems: list[Problem] = []
    users = {step.machine: step for flow in flows for step in flow.steps if step.machine}
    for name in {*users, *(machine_loader.machine_names(root) if every else ())}:
        try:
            machine_loader.load_machine(root, name)
        except FlowError as error:
            problems += error.problems
        except UsageError as error:
            at = users[name].origin if name in users else Origin(f"flows/machines/{name}.yaml", 1, 1)
            problems.append(Problem(at.file, at.line, at.column, error.message, error.hint))
    return problems


def _print(root: Path, flows: list[Flow], problems: list[Problem], warnings: list[Problem]) -> None:
    for flow in flows:
        place = "packaged" if flow.packaged else os.path.relpath(flow.file, root)
        say(f"ok  {flow.name}  ({place}, {count_of(len(flow.steps), 'step')})")
    for problem in problems:
        say(str(problem))
    if problems:
        say(count_of(len(problems), "problem"))
    for warning in warnings:
        say(f"warning: {warning}")
