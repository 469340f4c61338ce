"""The checks of a step's output. Each returns what is wrong, for the agent to fix; '' = the check passed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence

from doflow.flow import backlog, markdown, task_lists, tasklist
from doflow.flow.model import Step
from doflow.flow.parsing import loader, schema
from doflow.flow.parsing.syntax import substitute
from doflow.runs import fingerprint
from doflow.runs.context import RunContext
from doflow.util.errors import FlowError, Problem, UsageError
from doflow.util.process import runner
from doflow.util.process.runner import Command, Timeout

Check = Callable[[Step, Sequence[str], RunContext], str]


def problems(step: Step, paths: Sequence[str], context: RunContext) -> str:
    """What is wrong with a step's artifacts, '' = nothing; later checks run only when earlier ones pass."""
    for key, check in CHECKS.items():
        if not key or getattr(step.check, key):
            words = check(step, paths, context)
            if words:
                return words
    return ""


def check_artifact(step: Step, paths: Sequence[str], context: RunContext) -> str:
    """Every artifact exists: a regular file inside the project, not empty if `not_empty` is set."""
    return "\n".join(words for path in paths if (words := _artifact_problem(path, step, context)))


def _artifact_problem(path: str, step: Step, context: RunContext) -> str:
    full = context.files.locate(path)
    try:
        found = os.lstat(full)
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} was not written"
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is not a regular file"
    inside = full != os.path.join(context.root, path)  # a workspace holds it
    if not inside and not os.path.realpath(full).startswith(os.path.realpath(context.root) + os.sep):
        return f"{path} leads outside the project"
    if found.st_size == 0 or (step.check.not_empty and not (context.files.text(path) or "").strip()):
        return f"{path} is empty"
    return ""


def check_headings(step: Step, paths: Sequence[str], context: RunContext) -> str:
    """The headings a step's artifacts must have, at any level, upper or lower case."""
    have = {heading.title.casefold() for path in paths for heading in markdown.headings(context.files.text(path) or "")}
    missing = [name for name in step.check.headings if name.casefold() not in have]
    names = ", ".join(f"`## {name}`" for name in missing)
    return f"{paths[0] if paths else step.id}: the heading {names} is missing" if missing else ""


def check_ends(step: Step, paths: Sequence[str], context: RunContext) -> str:
    """The line that a step's artifacts must end with: one of those that the step names."""
    wanted = step.check.ends
    for path in paths:
        text = context.files.text(path) or ""
        found = markdown.read_markers(markdown.last_line(text) if step.kind == "shell" else text, wanted)
        if len(found) > 1:
            return f"{path}: the lines {' and '.join(f'`{line}`' for line in found)} disagree"
        if not found:
            return f"{path}: its last line must be {' or '.join(f'`{line}`' for line in wanted)}"
    return ""


def check_tasks(step: Step, paths: Sequence[str], context: RunContext) -> str:
    """A task list that phases can be taken from, as docs/tasks.md says. A list that the user adopted with its faults passes.

    Of a step with several artifacts only the task lists count: the files that an `implement` step takes its phases from.
    Of a review those that it reads: its fixer may have changed them.
    """
    read = [path for given in step.reads for path in context.files.expand(given.path)] if step.kind == "review" else []
    words: list[str] = []
    for path in [path for path in (*paths, *read) if path in context.files.task_lists] or paths:
        faults, warnings = task_list_faults(context.files.text(path) or "", step.check.tasks)
        if faults and is_adopted_list(path, context):
            faults, warnings = (), faults
        words += [f"{path}:{problem.line}: {problem.message}" for problem in faults]
        for warning in () if faults else warnings:
            context.events.add("warning", step=step.id, message=f"{path}:{warning.line}: {warning.message}")
    return "\n".join(words)


def task_list_faults(text: str, form: str) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """What is wrong with a task list of `any` format or of the `strict` form, and the warnings about it."""
    if form == "strict":
        strict = tasklist.parse_task_list(text)
        return strict.problems, strict.warnings
    found = task_lists.parse_task_list(text)
    return ((), found.problems) if found.phases else (found.problems, ())


def lists_digest(step: Step, context: RunContext) -> str:
    """The digest of the task lists that a step makes, without their ticks."""
    paths = [path for path in map(context.files.path, step.makes) if path in context.files.task_lists]
    return fingerprint.short_hash([fingerprint.content_digest(path, context.files) for path in paths])


def is_adopted_list(path: str, context: RunContext) -> bool:
    """Did the user adopt this list as it is now, whatever is wrong with it?"""
    maker = next((step for step in context.flow.steps if path in map(context.files.path, step.makes)), None)
    record = context.record.steps.get(maker.id) if maker else None
    return bool(record and maker and record.by.get("tasks") == lists_digest(maker, context))


def check_backlog(step: Step, paths: Sequence[str], context: RunContext) -> str:
    """A backlog that subtasks can be taken from, as docs/prd.md says; in a draft nothing is done yet."""
    words: list[str] = []
    for path in paths:
        try:
            found = backlog.parse_backlog(context.files.text(path) or "", path)
        except UsageError as error:
            words.append(error.message)
            continue
        started = [item["id"] for item in backlog.all_items(found) if item["status"] != backlog.PLANNED]
        if started and step.kind == "agent":
            words.append(f"{path}: the status of {', '.join(started[:5])} is not `Planned`: doflow keeps the statuses")
    return "\n".join(words)


def check_schema(step: Step, paths: Sequence[str], context: RunContext) -> str:
    """A YAML or JSON artifact is valid against the JSON Schema of the step."""
    name = step.check.schema.lstrip("/")
    rules = context.files.text(name)
    if rules is None:
        return f"the schema {name} of step {step.id} does not exist"
    try:
        wanted = loader.parse_yaml(rules, name)
        if not isinstance(wanted, Mapping):
            return f"the schema {name} of step {step.id} is not an object"
        values = {path: loader.parse_yaml(context.files.text(path) or "", path) for path in paths}
    except FlowError as error:
        return str(error)
    faults = ((path, fault) for path, value in values.items() for fault in schema.check_against(value, wanted))
    return "\n".join(f"{path}: {fault.message}" for path, fault in faults)


def check_run(step: Step, paths: Sequence[str], context: RunContext) -> str:
    """A command of the project decides whether the result is right: exit code 0 = passed."""
    return _run_command(
        step, paths, context, tuple(substitute(word, context.params_of(step)) for word in step.check.run)
    )


def check_tests(step: Step, paths: Sequence[str], context: RunContext) -> str:
    """The tests of the project pass: the `test_command` of its settings."""
    command = context.settings.test_command
    return _run_command(step, paths, context, command) if command else ""


def _run_command(step: Step, paths: Sequence[str], context: RunContext, argv: tuple[str, ...]) -> str:
    log = str(context.state_dir / "logs" / f"{step.id}.check.log")
    env = context.step_environment(step.id, paths)
    if os.path.exists(log):
        os.unlink(log)
    command = Command(argv, env=env, cwd=str(context.root))
    result = context.place.run(command, log, log, step.timeout or Timeout())
    if result.code == 0 and not result.stopped:
        return ""
    return f"{runner.explain(result, argv)}\n{runner.tail(log)}"


#: the key of `check` that asks for it → the check, in the order in which they run; '' = always
CHECKS: dict[str, Check] = {
    "": check_artifact,
    "headings": check_headings,
    "ends": check_ends,
    "tasks": check_tasks,
    "backlog": check_backlog,
    "schema": check_schema,
    "run": check_run,
    "tests": check_tests,
}
