"""Beginning a run: is the repository fit for it, then its folder, its goal, its branch, its first lines."""

from __future__ import annotations

import os
import stat

from doflow.flow.model import BY_AGENT
from doflow.flow.parsing import static_checks_unbuilt as unbuilt
from doflow.git import branches, repository as look
from doflow.runs import catalogue as runs, options, session_layout as sessionpaths
from doflow.runs.context import TASKS, World
from doflow.runs.state import event_log as ledger, fingerprint as keys, lockfile as lock
from doflow.runs.state.lockfile import Artifact
from doflow.util import atomic_files as files
from doflow.util.errors import UsageError, WorldError
from doflow.util.records import replace


def preflight(world: World, paying: bool = True) -> None:
    """Everything that would make a run fail later, said before anything is written or paid; not `paying`: a person
    decides, nobody is called."""
    unbuilt.refuse(world.flow)
    _folders(world)
    head = world.head
    trouble = look.state(head)
    if trouble:
        raise WorldError(trouble, _ending(world))
    if not branches.identity(head):
        raise WorldError(
            "git does not know who you are, and doflow invents no author",
            'git config user.name "Your Name" && git config user.email you@example.org',
        )
    if paying and any(step.kind in BY_AGENT for step in world.flow.steps):
        from doflow.agents import selection as doers

        doers.check(world)
    if world.settings.protect and world.run.fresh:
        from doflow.flow.parsing import static_checks as foresight

        foresight.refuse(world.flow, world.settings.protect)
    if world.settings.verify:
        from doflow.engine.jobs import commit_hooks as showing

        showing.check(world)
    if world.run.fresh:
        _params(world)
    if not world.run.fresh and world.run.branch and head.branch != world.run.branch and not world.options.reopen:
        raise _elsewhere(world)
    if world.run.fresh and world.settings.branch == "new" and world.run.branch != head.branch:
        _new_branch(world)


def _ending(world: World) -> str:
    """How the conflict is ended that stands in the way, if the run's lock is in it."""
    from doflow.git import conflicts as unmerged

    return unmerged.ways(str(world.run_dir / lock.NAME)) if look.busy(world.head)[0] else ""


def _elsewhere(world: World) -> WorldError:
    from doflow.runs import lost_runs_astray as astray

    name, branch, here = world.run.name, world.run.branch, world.head.branch or "no branch"
    if astray.gone(world):
        again = f"doit {world.flow.name} --run={name} --reopen{world.wished}   takes it up here, on {here}"
        gone = f"run {name} belongs to branch {branch}, which does not exist any more"
        return WorldError(gone, f"{again}; then decide what it asks")
    return WorldError(
        f"run {name} belongs to branch {branch}, but {here} is checked out",
        f"git switch {branch}   or, to go on here:   doit {world.flow.name} --run={name} --reopen{world.wished}",
    )


def _folders(world: World) -> None:
    """Folders of artifacts that are links: nobody could tell what an agent writes there, and git commits nothing of it.
    Nor is the folder of the run a file, or inside of one."""
    said = [world.run.dir, *(os.path.dirname(world.path(name)) for step in world.flow.steps for name in step.makes)]
    for folder in dict.fromkeys(said):
        parts = folder.split("/")
        for depth in range(1, len(parts) + 1 if folder else 1):
            path = "/".join(parts[:depth])
            try:
                mode = os.lstat(world.root / path).st_mode
            except OSError:
                break
            if folder == world.run.dir and not stat.S_ISDIR(mode) and not stat.S_ISLNK(mode):
                raise WorldError(
                    f"{path} is a file, and the folder of the run would be {folder}/",
                    f"give it another name:   git mv '{path}' OTHER   (mv, if git does not know it)",
                )
            if stat.S_ISLNK(mode):
                whose = "the folder of the run" if folder == world.run.dir else f"what is made in {folder}/"
                raise WorldError(
                    f"{path} is a symbolic link (to {os.readlink(world.root / path)}), and {whose} would lie behind it",
                    f"make it a folder of the project:   rm '{path}' && mkdir '{path}'   (what is behind it stays there)",
                )


def _new_branch(world: World) -> None:
    """Can it be made? One that is there and has moved on is refused, too: the run's folder and its lock are there, not here."""
    head, branch = world.head, world.run.branch
    ref, names = branches.valid(head, branch), look.names(head)
    if branch not in look.short(names):
        branches.free(branch, names)
    elif look.commit_of(head, ref) != head.commit:
        raise WorldError(
            f"run {world.run.name} began on branch {branch}, but {head.branch or 'no branch'} is checked out",
            f"git switch {branch}   or, to begin anew:   doit {world.flow.name} --new --goal=…",
        )


def begin(world: World) -> None:
    """Make a new run real: folder, input.md, branch, lock. Each deed can be repeated after a crash."""
    run = world.run
    _transient(world)
    if not run.fresh:
        if world.options.reopen and run.branch != world.head.branch:
            _moved(world)
        _hooks(world)
        return
    branch = run.branch if world.settings.branch == "new" else world.head.branch
    world.ledger.add(
        "run_started", ledger.LATER, flow=run.flow, goal=run.goal, branch=branch, issue=run.issue, dir=run.dir,
        base=world.head.branch, pipeline=list(world.order()), params=dict(run.params), pid=os.getpid(),
    )  # fmt: skip
    world.run_dir.mkdir(parents=True, exist_ok=True)
    if branch != world.head.branch:
        _branch(world, branch)
    text = runs.goal_text(run.goal, world.input)
    files.write(str(world.run_dir / world.input), text.encode("utf-8", "surrogateescape"), sync=False)
    if world.flow.in_sessions:
        _session(world)
    inputs(world)
    world.run = replace(run, branch=branch, fresh=False)
    world.book.run = world.run
    world.write_lock(sync=False)
    for name in (*world.given, lock.NAME):
        files.soon(str(world.run_dir / name))
    _hooks(world)


def wished(world: World) -> None:
    """Written down for whoever decides or looks between two commands: the options that the next one needs, too."""
    lasting = world.options.lasting
    if options.words(lasting) != options.words(world.book.wished):
        world.ledger.add("options", **lasting)
        world.book.wished = lasting


def _moved(world: World) -> None:
    """--reopen where the run's own branch is gone: it is a run of this branch from now on, unless it was at its end."""
    from doflow.engine.jobs import commit as settle
    from doflow.runs import lost_runs_astray as astray

    last = world.book.last.get("event")
    ended = last == "pipeline_complete" or (not last and all(name in world.book.steps for name in world.order()))
    if ended or not world.head.branch or not astray.gone(world):
        return
    world.run = replace(world.run, branch=world.head.branch)
    world.book.run = world.run
    settle.commit_lock(world, f"Go on with {world.run.name} on {world.run.branch}")


def _hooks(world: World) -> None:
    if world.settings.verify:
        from doflow.engine.jobs import commit_hooks as showing

        showing.remember(world)


def _session(world: World) -> None:
    """Where a session comes from, for whoever looks at its folder; and what the guard saw."""
    previous = world.run.params.get("previous", "")
    if previous:
        files.write(str(world.run_dir / sessionpaths.DELTA), f"{sessionpaths.sequence(previous)}\n".encode())
    os.makedirs(world.state_dir / "logs", exist_ok=True)
    told = "".join(f"{line}\n" for line in sessionpaths.told(world.run.dir, world.environ))
    files.write(str(world.state_dir / "logs" / "guard.log"), told.encode(), sync=False)


def _transient(world: World) -> None:
    """Nothing of another run goes into this one. Most often there is nothing to look at."""
    left = os.path.lexists(world.root / TASKS)
    if left or (world.run.fresh and os.listdir(world.state_dir)):
        from doflow.guard import stale_files as stale

        stale.clear(world) if world.run.fresh else stale.revalidate(world)


def inputs(world: World) -> None:
    """The goals of sub-flows, each in its own input.md; written anew when the flow says another one, unless a person
    has written there."""
    for said, text in world.flow.inputs:
        path = world.path(said)
        held, now = world.book.artifacts.get(path), world.digest(path)
        if now and (held is None or held.digest != now):
            continue
        data = (keys.substitute(text, world.params) + "\n").encode("utf-8", "surrogateescape")
        target = world.root / path
        if not now or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            files.write(str(target), data)
            world.book.artifacts[path] = Artifact(world.digest(path), "doflow")


def _params(world: World) -> None:
    missing = [
        param.name for param in world.flow.params if param.required and not world.params.get(param.name, "").strip()
    ]
    if missing:
        name = missing[0]
        raise UsageError(
            f"{world.flow.name} needs --{name}: {runs.shorten(_about(world, name))}",
            f'doit {world.flow.name} --{name}="…"',
        )


def _about(world: World, name: str) -> str:
    return next((param.about for param in world.flow.params if param.name == name), "") or "what to build"


def _branch(world: World, branch: str) -> None:
    if branch in look.branches(world.head):
        world._head = branches.switch_branch(world.head, branch)
    else:
        world._head = branches.make_branch(world.head, branch, world.head.commit)
