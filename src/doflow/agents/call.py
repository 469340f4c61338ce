"""Calling an agent: the prompt is put together, the program started and watched, its answer read."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from doflow.agents import (
    prompt_text as render,
    rate_limits as patience,
    registry,
    selection as doers,
    sessions,
    spending as budget,
    spending_purse as purse,
)
from doflow.agents.prompt_text import Brief, Input
from doflow.agents.sessions import Session
from doflow.flow import findings, markdown as sections
from doflow.flow.model import Ask, Outcome, Profile, Status
from doflow.guard.fence.scope import Scope
from doflow.runs import step_logs as watching
from doflow.runs.context import STATE, TASKS, World
from doflow.runs.job import Job
from doflow.runs.state import fingerprint as keys
from doflow.util import atomic_files as files
from doflow.util.process import runner as process
from doflow.util.process.command import Command, Result
from doflow.util.records import replace

#: agents that ask a hook of ours before they write
HOOKED = ("claude", "codex")

if TYPE_CHECKING:
    from doflow.agents.recorder import Recording


def call(
    job: Job, world: World, attempt: int, *, role: str = "step", trouble: str = "", session: Session | None = None
) -> Outcome:
    """One call, start to end, in the session it is a reply to. The log of the attempt is under the run's state folder.

    `from: text` saves its last words, unless the agent wrote the artifact itself: chat never covers that up.
    """
    saves = job.step.from_text and job.step.kind == "agent"
    before = world.digest(job.makes[0]) if saves else ""
    profile = doers.profile(job.step, world)
    ask = asked(job, world, profile, attempt, role, trouble)
    own = profile.name == world.profile_of(job.step)  # who stands in for another has no session to go on in
    outcome = _reply(ask, job, world, (session or _rejected(job, world, attempt, role)) if own else None)
    if outcome.ok and saves and world.digest(job.makes[0]) == before:
        text = outcome.text.strip("\n") + "\n" if outcome.text.strip() else ""
        files.write(str(world.root / job.makes[0]), text.encode("utf-8", "surrogateescape"))
    return outcome


def _reply(ask: Ask, job: Job, world: World, session: Session | None) -> Outcome:
    """In the session; if that is gone, in a new one that is told everything."""
    log = watching.log_path(job, world, ask.attempt, ask.role)
    out = watching.free_path(job, world, ask.attempt, "repair") if ask.role == "repair" else log
    if session is not None:
        short = again(job, world, ask) if ask.role == "repair" else ask.prompt
        outcome = send(replace(ask, prompt=short, resume=session.id, spent=session.spent), job, world, out)
        if not outcome.gone:
            return outcome
        message = f"the session of {job.name}'s agent is gone, so it is told everything again ({outcome.reason})"
        world.ledger.add("warning", **job.where, message=message)
    return send(ask, job, world, out)


def _rejected(job: Job, world: World, attempt: int, role: str) -> Session | None:
    """A person said no to what an agent had made: the first try goes on in the session that made it."""
    note = world.book.notes.get(job.step.id, "")
    record = world.book.steps.get(job.name)
    if not note or role != "step" or attempt > 1 or (record and record.parts.get("note") == keys.short(note)):
        return None
    return sessions.told(world.book.sessions.get(job.name, {}))


def send(ask: Ask, job: Job, world: World, out: str) -> Outcome:
    no = budget.reached(job.step, world) or patience.refused(ask.profile, world)
    if no is not None:
        return no
    if job.step.via == "tmux" and ask.role in ("step", "repair"):
        return _in_pane(ask, job, world, out)
    adapter = registry.find(ask.profile.use)
    ask = budget.given(ask, job.step, world)
    err = out.removesuffix(".log") + ".err.log"
    for path in (out, err):
        Path(path).unlink(missing_ok=True)
    if ask.profile.use in HOOKED and not ask.read_only:
        from doflow.guard import live_hook as live

        ask = live.arm(ask, job, world, out)
    order = None
    if ask.machine:
        from doflow.agents import subagent_order as ordering

        ask, order = ordering.arm(ask, world.environ)
    command = adapter.call(ask, world.environ)
    command, made = _boxed(command, ask, job, world, (order.base,) if order else ())
    kept = _recording(ask, job, world) if world.options.record else None
    purse.begins(ask, job, world, out)
    try:
        result = process.run(command, out, err, watching.timeout_of(job, world), watching.beat(job, world, out))
    finally:
        if made:
            from doflow.guard import sandbox_paths as openings

            openings.leave(made)
    outcome = adapter.outcome(ask, result, lambda: _last(out))
    if order:
        outcome = ordering.judge(ask, order, outcome, out)
    outcome = purse.ended(ask, world, result, outcome, out)
    watching.cut(out, err)
    if kept is not None:
        kept.end(result, outcome)
    if outcome.status is Status.RATE_LIMITED:
        world.limits[ask.profile.name] = outcome.resume_at
    if ask.profile.name != world.profile_of(job.step):
        outcome = replace(outcome, agent=f"{ask.profile.name} {ask.model}".strip())
    return budget.kept(outcome, ask, job.step, world)


def _boxed(
    command: Command, ask: Ask, job: Job, world: World, also: tuple[str, ...]
) -> tuple[Command, tuple[str, ...]]:
    """In a room of its own, if its profile says so; with the folders that were made for it."""
    if not ask.profile.sandbox:
        return command, ()
    from doflow.guard import sandbox

    scope = Scope(job, world)
    made = sandbox.enter(scope, world)
    return sandbox.wrap(command, ask.profile, scope, world, also), made


def _in_pane(ask: Ask, job: Job, world: World, out: str) -> Outcome:
    """The same call where a person can watch it; it is counted like any other, and cannot be recorded."""
    import time

    from doflow.supervise import pane_call as paned

    if world.options.record:
        world.ledger.add("warning", **job.where, message=f"{job.name} works in a pane: this call is not recorded")
    ask = budget.given(ask, job.step, world)
    purse.begins(ask, job, world, out)
    began = time.monotonic()
    outcome = paned.send(ask, job, world, out)
    outcome = purse.ended(ask, world, Result(0, out, out, time.monotonic() - began), outcome, out)
    if outcome.status is Status.RATE_LIMITED:
        world.limits[ask.profile.name] = outcome.resume_at
    return budget.kept(outcome, ask, job.step, world)


def _recording(ask: Ask, job: Job, world: World) -> Recording:
    from doflow.agents.recorder import Recording

    return Recording(ask, job, world)


def _last(path: str, limit: int = 4_000_000) -> str:
    """The agent's last words, from its log: whole up to a size no answer has; none if it took the log away."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - limit))
            return stream.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def asked(job: Job, world: World, profile: Profile, attempt: int, role: str, trouble: str) -> Ask:
    step = job.step
    writes = None if role == "repair" and step.kind == "shell" else job.writes
    return Ask(
        step.id, prompt(job, world, trouble), profile, str(world.root), world.run.name, str(world.run_dir),
        doers.model(step, profile, world), role, job.phase.number if job.phase else "", attempt=attempt,
        makes=tuple(str(world.root / path) for path in job.makes), check=step.check, from_text=step.from_text,
        read_only=writes == () and (step.from_text or not job.makes),
        markers=tuple(route.when for route in step.routes) or step.check.ends, goal=world.run.goal, trouble=trouble,
        machine=step.machine if role != "persona" else "",
    )  # fmt: skip


def prompt(job: Job, world: World, trouble: str = "") -> str:
    step = job.step
    old = tuple(_shown(path, world) for path in job.makes if world.digest(path)) if not job.phase else ()
    writes = None if step.kind == "shell" else job.writes
    brief = Brief(
        world.run.name, world.run.dir, job.makes, writes, inputs(job, world),
        job.phase.text if job.phase else "", old, _changes(job, world) if old else "",
        world.book.notes.get(step.id, ""), trouble,
    )  # fmt: skip
    number = job.phase.number if job.phase else ""
    extra = {"phase": number, "title": job.phase.title, "work": sections.work(number)} if job.phase else {}
    return render.prompt(step, brief, world.params_of(step) | extra)


def again(job: Job, world: World, ask: Ask) -> str:
    """What an agent is told that knows the rest: what did not pass, and what must be there."""
    writes = None if job.step.kind == "shell" else job.writes
    return render.again(job.step, Brief(world.run.name, world.run.dir, job.makes, writes, trouble=ask.trouble))


def inputs(job: Job, world: World) -> tuple[Input, ...]:
    """What the step reads, whole; what is too large is named instead."""
    found = []
    for read in job.step.reads:
        for path in world.place.expand(sections.of_phase(read.path, job.phase.number) if job.phase else read.path):
            if not world.digest(path):
                continue
            text = world.place.text(path) or ""
            if read.section:
                text = sections.section(text, read.section) or ""
            shown = f"{path}#{read.section}" if read.section else path
            found.append(Input(shown, text if _readable(text) else None))
    return (*found, *conditions(job, world), *_checklist(job, world))


def _checklist(job: Job, world: World) -> tuple[Input, ...]:
    """Where a phase stands among the others, as far as this run's own list is there."""
    if job.phase is None or job.step.kind != "implement":
        return ()
    from doflow.guard import stale_files as stale

    text = stale.admitted(world)
    return (Input(f"{TASKS} (the whole list; only your phase is yours)", text),) if text else ()


def _shown(path: str, world: World) -> Input:
    text = world.place.text(path) or ""
    return Input(path, text if _readable(text) else None)


def _readable(text: str) -> bool:
    return len(text) <= render.INPUT_LIMIT and "\0" not in text


def conditions(job: Job, world: World) -> tuple[Input, ...]:
    """What a review before this step has left open on condition: the step is told to meet it."""
    found = []
    for name in world.before(job.step.id):
        record = world.book.steps.get(name)
        path = findings.file(world.run.dir, name)
        if record and record.marker.startswith("CONDITIONAL") and world.digest(path):
            found.append(Input(f"{path} (meet what is open here)", world.place.text(path)))
    return tuple(found)


def _changes(job: Job, world: World) -> str:
    """The difference of the inputs between the last time and now, as far as the old ones are known."""
    record = world.book.steps.get(job.name)
    if record is None:
        return ""
    parts = []
    for path, now in job.key.reads.items():
        was = record.reads.get(path, "")
        if was and now and was != now and "#" not in path:
            old = world.root / STATE / "store" / was
            new = (world.place.text(path) or "").splitlines()
            before = old.read_text("utf-8", "replace").splitlines() if old.exists() else None
            if before is None:
                parts.append(f"{path} changed")
            else:
                parts += difflib.unified_diff(before, new, f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(parts)
