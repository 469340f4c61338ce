"""Starting a run: check the repository, then create its folder, goal, branch and lock file."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from doflow.agents import selection
from doflow.config.layers import FILE
from doflow.engine.jobs import commit, commit_hooks
from doflow.flow import subflow
from doflow.flow.model import BY_AGENT, Flow, Settings
from doflow.flow.parsing import graph_checks, loader
from doflow.flow.parsing.document import nearest
from doflow.git import conflicts, head_reader, refs
from doflow.guard import stale_files
from doflow.runs import catalogue, event_log, fingerprint, lockfile, next_steps, run_history, session_layout
from doflow.runs.context import RunContext, format_options
from doflow.runs.lockfile import Artifact
from doflow.util import atomic_files, state_folder
from doflow.util.errors import FlowError, Problem, UsageError, WorldError
from doflow.util.hints import Next


def preflight(context: RunContext, paying: bool = True) -> None:
    """Raise now for everything that would make a run fail later. Not `paying`: the user decides, no agent is called."""
    _check_folders(context)
    head = context.head
    if obstacle := head_reader.commit_obstacle(head):
        merging = head_reader.operation_in_progress(head)[0]  # the run's lock file may be part of the conflict
        hint = conflicts.resolution_hint(str(context.run_dir / lockfile.NAME)) if merging else ""
        raise WorldError(obstacle, hint)
    if not refs.identity(head):
        raise WorldError(
            "Git identity is not configured (user.name, user.email)",
            'git config user.name "Your Name" && git config user.email you@example.org',
        )
    if paying and any(step.kind in BY_AGENT for step in context.flow.steps):
        selection.check_agents(context)
    if context.settings.protect and context.run.fresh:
        graph_checks.refuse_protected_outputs(context.flow, context.settings.protect)
    if context.settings.verify:
        commit_hooks.check_hooks_unchanged(context)
    if context.run.fresh:
        _check_params(context)
        if context.settings.branch == "new" and context.run.branch != head.branch:
            _check_new_branch(context)
    elif context.run.branch and head.branch != context.run.branch and not context.options.reopen:
        raise _elsewhere(context)


def _elsewhere(context: RunContext) -> WorldError:
    name, branch, here = context.run.name, context.run.branch, context.head.branch or "no branch"
    if run_history.branch_is_gone(context):
        does = f"continues it here, on {here}; then answer what it asks"
        gone = f"run {name} belongs to branch {branch}, which no longer exists"
        return WorldError(gone, steps=(next_steps.resume_now(context, f"--run={name}", "--reopen", does=does),))
    here_on = next_steps.resume_now(context, f"--run={name}", "--reopen", why="to continue here", link="or")
    return WorldError(
        f"run {name} belongs to branch {branch}, but {here} is checked out",
        steps=(Next(("git", "switch", branch)), here_on),
    )


def _artifact_folders(context: RunContext) -> list[str]:
    return [os.path.dirname(context.files.path(said)) for step in context.flow.steps for said in step.makes]


def _check_folders(context: RunContext) -> None:
    """Raise if an artifact folder is a symbolic link (changes there can be neither watched nor committed), or if the run's
    folder is a file."""
    for folder in dict.fromkeys([context.run.dir, *_artifact_folders(context)]):
        parts = folder.split("/")
        for depth in range(1, len(parts) + 1 if folder else 1):
            path = "/".join(parts[:depth])
            try:
                mode = os.lstat(context.root / path).st_mode
            except OSError:
                break
            if folder == context.run.dir and not stat.S_ISDIR(mode) and not stat.S_ISLNK(mode):
                raise WorldError(
                    f"{path} is a file, but the run needs the folder {folder}/",
                    f"give it another name:   git mv '{path}' OTHER   (mv, if it is untracked)",
                )
            if stat.S_ISLNK(mode):
                what = "the run folder" if folder == context.run.dir else f"artifacts in {folder}/"
                raise WorldError(
                    f"{path} is a symbolic link (to {os.readlink(context.root / path)}), so {what} cannot be watched or committed",
                    f"replace it with a folder:   rm '{path}' && mkdir '{path}'   (the target is kept)",
                )


def _check_new_branch(context: RunContext) -> None:
    """Raise if the branch cannot be created, or exists with other commits: the run's folder and lock file are there."""
    head, branch = context.head, context.run.branch
    ref, names = refs.branch_ref(head, branch), refs.branch_refs(head)
    if branch not in refs.short_names(names):
        refs.refuse_clash(branch, names)
    elif refs.commit_of(head, ref) != head.commit:
        raise WorldError(
            f"run {context.run.name} was started on branch {branch}, but {head.branch or 'no branch'} is checked out",
            f"git switch {branch}   or, to start again:   doit {context.flow.name} --new --goal=…",
        )


def remove_temporaries(context: RunContext) -> None:
    """Remove temporary files that a killed process may have left."""
    for folder in {context.run_dir, context.state_dir, *(context.root / path for path in _artifact_folders(context))}:
        atomic_files.remove_temporaries(folder)


def create_run(context: RunContext) -> None:
    """Create a new run on disk: folder, input.md, branch, lock file. Safe to repeat after a crash."""
    _remove_stale_files(context)
    if context.run.fresh:
        _create(context)
    elif context.options.reopen and context.run.branch != context.head.branch:
        _move(context)
    if context.settings.verify:
        commit_hooks.record_hooks(context)


def _create(context: RunContext) -> None:
    run = context.run
    branch = run.branch if context.settings.branch == "new" else context.head.branch
    context.events.add(
        "run_started", event_log.LATER, flow=run.flow, goal=run.goal, branch=branch, issue=run.issue, dir=run.dir,
        base=context.head.branch, pipeline=list(context.order.active()), params=dict(run.params), pid=os.getpid(),
    )  # fmt: skip
    context.run_dir.mkdir(parents=True, exist_ok=True)
    if branch != context.head.branch:
        head, known = context.head, branch in refs.branch_names(context.head)
        context.switched_to(refs.switch_branch(head, branch) if known else refs.make_branch(head, branch, head.commit))
    if context.input in context.given:
        atomic_files.write_file(str(context.run_dir / context.input), context.input_bytes, sync=False)
    if context.flow.in_sessions:
        _write_session_files(context)
    write_subflow_inputs(context)
    context.replace_run(replace(run, branch=branch, fresh=False))
    context.write_lock(sync=False)
    for name in (*context.given, lockfile.NAME):
        atomic_files.sync_soon(str(context.run_dir / name))


def record_options(context: RunContext) -> None:
    """Log the options that later commands of this run need, too."""
    lasting = context.options.lasting
    if format_options(lasting) != format_options(context.record.options):
        context.events.add("options", **lasting)
        context.record.choose_options(lasting)


def _move(context: RunContext) -> None:
    """--reopen when the run's branch is gone: move an unfinished run to this branch."""
    last = context.record.last_event.get("event")
    done = all(name in context.record.steps for name in context.order.active())
    ended = last == "pipeline_complete" or (not last and done)
    if ended or not context.head.branch or not run_history.branch_is_gone(context):
        return
    context.replace_run(replace(context.run, branch=context.head.branch))
    commit.commit_lock(context, f"Continue {context.run.name} on {context.run.branch}")


def _write_session_files(context: RunContext) -> None:
    """Write where a session comes from, and the log of the nested-run guard."""
    if previous := context.run.params.get("previous", ""):
        number = f"{session_layout.sequence_number(previous)}\n"
        atomic_files.write_file(str(context.run_dir / session_layout.DELTA), number.encode())
    os.makedirs(context.state_dir / "logs", exist_ok=True)
    lines = "".join(f"{line}\n" for line in session_layout.debug_lines(context.run.dir, context.environ))
    atomic_files.write_file(str(context.state_dir / "logs" / "guard.log"), lines.encode(), sync=False)


def _remove_stale_files(context: RunContext) -> None:
    """Remove transient files of other runs."""
    left = os.path.lexists(context.root / state_folder.TASK_LIST)
    if left or (context.run.fresh and os.listdir(context.state_dir)):
        stale_files.clear(context) if context.run.fresh else stale_files.revalidate(context)


def write_subflow_inputs(context: RunContext) -> None:
    """Write the goal of each sub-flow to its input.md, again if the flow changed, unless the user edited it."""
    for said, text in context.flow.inputs:
        path = context.files.path(said)
        held, now = context.record.artifacts.get(path), context.files.digest(path)
        if now and (held is None or held.digest != now):
            continue
        data = (fingerprint.substitute(text, context.params) + "\n").encode("utf-8", "surrogateescape")
        target = context.root / path
        if not now or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.write_file(str(target), data)
            context.record.add_artifacts({path: Artifact(context.files.digest(path), "doflow")})


def _check_params(context: RunContext) -> None:
    for param in context.flow.params:
        if param.required and not context.params.get(param.name, "").strip():
            about = catalogue.shorten(param.about or "what to build")
            command = f'doit {context.flow.name} --{param.name}="…"'
            raise UsageError(f"{context.flow.name} needs --{param.name}: {about}", command)


_AFTER = "after-"


class UnknownName(NamedTuple):
    """A key of the settings, where it was set, and the closest step name ('' = none)."""

    path: tuple[str, ...]
    where: str
    near: str

    @property
    def message(self) -> str:
        return f"no flow has a step for {self.path[-1]!r} in {'.'.join(self.path[:-1])}, so it has no effect"


def among(chosen: Settings, steps: Collection[str]) -> Iterator[UnknownName]:
    """The names that match no step; routes of agents and timeouts match by prefix."""
    where = {path: who for path, _, who in chosen.origins}
    gates = [(("gates", gate), gate.removeprefix(_AFTER) in steps) for gate in chosen.gates]
    routes = [(("route_agents", name), _begins(name, steps)) for name, _ in chosen.route_agents]
    times = [(("timeouts", "steps", name), _begins(name, steps)) for name, *_ in chosen.step_timeouts]
    for path, known in (*gates, *routes, *times):
        if not known:
            before = _AFTER if path[0] == "gates" else ""
            name = ".".join(path)
            who = next((who for leaf, who in where.items() if leaf == name or leaf.startswith(f"{name}.")), FILE)
            close = nearest(path[-1].removeprefix(before), sorted(steps), 0.7)
            yield UnknownName(path, who, close.replace("'", f"'{before}", 1))


def _begins(name: str, steps: Collection[str]) -> bool:
    return any(step.startswith(name) for step in steps)


def problems(root: Path, chosen: Settings, steps: Collection[str]) -> list[Problem]:
    """All unknown names, each with its location."""
    found = []
    for one in among(chosen, steps):
        line, column = (1, 1)
        if one.where.startswith(FILE):
            line, column = loader.load_document(root / FILE, FILE).where(one.path, key=True)
        hint = one.near or "name a step (`doflow show FLOW`), or remove the line"
        found.append(Problem(one.where.partition(":")[0], line, column, one.message, hint))
    return found


def steps(*flows: Flow, known: dict[str, Flow]) -> set[str]:
    """The ids of all steps, including those of sub-flows."""
    return {step.id for flow in flows for one in (flow, subflow.inline_subflows(flow, known)) for step in one.steps}


def warn_about_settings(context: RunContext) -> None:
    """Warn about names close to a step of this run that match no step of any flow."""
    own = {step.id for step in context.flow.steps}
    near = {one.path: one for one in among(context.settings, own) if one.near}
    if not near:
        return
    try:
        flows = loader.load_catalogue(context.root, context.settings.command_variant).flows
    except FlowError:
        return
    for one in among(context.settings, own | steps(*flows.values(), known=flows)):
        if one.path in near:
            context.events.add("warning", message=f"{one.where}: {one.message}; {near[one.path].near}")
