"""Agent calls: build the prompt, run the program, read its answer, and resume its session."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from doflow.agents import prompt_text, rate_limits, registry, selection, spending, subagent_order
from doflow.agents.adapters import vendor_cli
from doflow.agents.prompt_text import Brief, Input
from doflow.agents.recorder import Recording
from doflow.flow import findings, markdown, task_lists
from doflow.flow.model import Ask, Outcome, Profile, Status, Usage
from doflow.guard import sandbox, stale_files
from doflow.guard.fence.scope import Scope
from doflow.runs import fingerprint, jobs
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.runs.place import ProgramNeeds
from doflow.util import state_folder
from doflow.util.process import runner
from doflow.util.process.runner import Result

#: roles whose agents only answer: what they write is no part of the result
_PASSING = ("persona", "judge", "refresh")
#: agents that call doflow's write hook
HOOKED = ("claude", "codex")


def call_agent(
    job: Job, context: RunContext, attempt: int, *, role: str = "step", trouble: str = "", session: Session | None = None
) -> Outcome:  # fmt: skip
    """Make one agent call, in an existing session if there is one. With `from: text` the final text is saved as the
    artifact, unless the agent wrote the file itself."""
    saves = job.step.from_text and job.step.kind == "agent"
    before = context.files.digest(job.makes[0]) if saves else ""
    profile = selection.find_profile(job.step, context)
    ask = build_ask(job, context, profile, attempt, role, trouble)
    own = profile.name == context.profile_of(job.step)  # a fallback agent has no session to resume
    outcome = _reply(ask, job, context, (session or _rejected(job, context, attempt, role)) if own else None)
    if outcome.ok and saves:
        _save_text(job, context, outcome.text, written=context.files.digest(job.makes[0]) != before)
    return outcome


def _save_text(job: Job, context: RunContext, final: str, written: bool) -> None:
    """Save the final text as the artifact, unless the agent has written it. Programs find its marker as plain last line."""
    path = job.makes[0]
    text = final.strip("\n") + "\n" if final.strip() else ""
    text = context.files.text(path) or "" if written else text
    ended = markdown.with_plain_end(text, job.step.check.ends)
    if not written or ended != text:
        context.place.write(path, ended.encode("utf-8", "surrogateescape"))


def _reply(ask: Ask, job: Job, context: RunContext, session: Session | None) -> Outcome:
    """Send the call to the session; if it no longer exists, start a new one with the full prompt."""
    log = jobs.log_path(job, context, ask.attempt, ask.role)
    out = jobs.unused_log_path(job, context, ask.attempt, "repair") if ask.role == "repair" else log
    if session is not None:
        short = repair_prompt(job, context, ask) if ask.role == "repair" else ask.prompt
        outcome = send(replace(ask, prompt=short, resume=session.id, spent=session.spent), job, context, out)
        if not outcome.gone:
            return outcome
        gone = f"the session of {job.name}'s agent no longer exists"
        message = f"{gone}; a new one gets the full prompt ({outcome.reason})"
        context.events.add("warning", **job.where, message=message)
    return send(ask, job, context, out)


def _rejected(job: Job, context: RunContext, attempt: int, role: str) -> Session | None:
    """The session to resume when a person rejected the result: the first attempt continues in it."""
    note = context.record.notes.get(job.step.id, "")
    record = context.record.steps.get(job.name)
    seen = record and record.parts.get("note") == fingerprint.short_hash(note)
    if not note or seen or role != "step" or attempt > 1:
        return None
    return session_from_entry(context.record.sessions.get(job.name, {}))


def send(ask: Ask, job: Job, context: RunContext, out: str) -> Outcome:
    no = spending.budget_stop(job.step, context) or rate_limits.refuse_if_limited(ask.profile, context)
    if no is not None:
        return no
    if job.step.via == "tmux" and ask.role in ("step", "repair"):
        return _in_pane(ask, job, context, out)
    adapter = registry.find_agent(ask.profile.use)
    ask = spending.with_remaining_budget(ask, job.step, context)
    err = out.removesuffix(".log") + ".err.log"
    for path in (out, err):
        Path(path).unlink(missing_ok=True)
    if ask.profile.use in HOOKED and not ask.read_only:
        ask = sandbox.add_write_hook(ask, job, context, out)
    order = None
    if ask.machine:
        ask, order = subagent_order.add_hooks(ask, context.environ)
    command = adapter.call(ask, context.environ)
    made: tuple[str, ...] = ()
    writable = (order.base,) if order else ()
    if ask.profile.sandbox:
        scope = Scope(job, context)
        made = sandbox.enter(scope, context)
        command = sandbox.wrap(command, ask.profile, scope, context, writable)
    kept = Recording(ask, job, context) if context.options.record else None
    spending.log_call_start(ask, job, context, out)
    try:
        tick = jobs.heartbeat(job, context, out, vendor_cli.limit_complaint)
        needs = ProgramNeeds(ask.role not in _PASSING, writable, bool(ask.profile.sandbox))
        result = context.place.run(command, out, err, jobs.job_timeout(job, context), tick, needs)
    finally:
        if made:
            sandbox.leave(made)
    outcome = adapter.outcome(ask, result, lambda: _last(out))
    if order:
        outcome = subagent_order.check_order(ask, order, outcome, out)
    outcome = fail_if_reported(outcome, ask.persona or f"the agent of {job.name}")
    outcome = spending.log_call_end(ask, context, result, outcome, out)
    jobs.trim_logs(out, err)
    if kept is not None:
        kept.end(result, outcome)
    if outcome.status is Status.RATE_LIMITED:
        context.limit_agent(ask.profile.name, outcome.resume_at)
    if ask.profile.name != context.profile_of(job.step):
        outcome = replace(outcome, agent=f"{ask.profile.name} {ask.model}".strip())
    return spending.explain_budget_stop(outcome, ask, job.step, context)


def fail_if_reported(outcome: Outcome, who: str) -> Outcome:
    """A call whose final text has a line `[ERROR: …]` has failed, whatever its exit code and its files say."""
    error = runner.clean(markdown.reported_error(outcome.text))[:400] if outcome.ok else ""
    if not error:
        return outcome
    transient = vendor_cli.is_transient_error(error)
    return replace(outcome, status=Status.FAILED, reason=f"{who} reported an error: {error}", transient=transient)


def _in_pane(ask: Ask, job: Job, context: RunContext, out: str) -> Outcome:
    """Make the call in a tmux pane. Its usage is counted, but it cannot be recorded."""
    if context.options.record:
        context.events.add("warning", **job.where, message=f"{job.name} runs in a tmux pane: this call is not recorded")
    ask = spending.with_remaining_budget(ask, job.step, context)
    spending.log_call_start(ask, job, context, out)
    began = time.monotonic()
    outcome = selection.find_transport("tmux").send(ask, job, context, out)
    outcome = fail_if_reported(outcome, f"the agent of {job.name}")
    outcome = spending.log_call_end(ask, context, Result(0, out, out, time.monotonic() - began), outcome, out)
    if outcome.status is Status.RATE_LIMITED:
        context.limit_agent(ask.profile.name, outcome.resume_at)
    return spending.explain_budget_stop(outcome, ask, job.step, context)


def _last(path: str, limit: int = 4_000_000) -> str:
    """The agent's final text from its log, limited in size; empty if the log was deleted."""
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - limit))
            return stream.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def build_ask(job: Job, context: RunContext, profile: Profile, attempt: int, role: str, trouble: str) -> Ask:
    step = job.step
    writes = None if role == "repair" and step.kind == "shell" else job.writes
    return Ask(
        step.id, build_prompt(job, context, trouble), profile, str(context.root), context.run.name, str(context.run_dir),
        selection.choose_model(step, profile, context), role, job.phase.number if job.phase else "", attempt=attempt,
        makes=tuple(str(context.root / path) for path in job.makes), check=step.check, from_text=step.from_text,
        read_only=writes == () and (step.from_text or not job.makes),
        markers=tuple(route.when for route in step.routes) or step.check.ends, goal=context.run.goal, trouble=trouble,
        machine=step.machine if role != "persona" else "",
    )  # fmt: skip


def build_prompt(job: Job, context: RunContext, trouble: str = "") -> str:
    step = job.step
    paths = [path for path in job.makes if context.files.digest(path)] if not job.phase else []
    old = tuple(_input(path, context.files.text(path) or "") for path in paths)
    writes = None if step.kind == "shell" else job.writes
    brief = Brief(
        context.run.name, context.run.dir, job.makes, writes, step_inputs(job, context),
        _phase_text(job, context), old, _changes(job, context) if old else "",
        context.record.notes.get(step.id, ""), trouble, task_list(job, context),
    )  # fmt: skip
    number = job.phase.number if job.phase else ""
    extra = {"phase": number, "title": job.phase.title, "work": markdown.subtask_folder(number)} if job.phase else {}
    return prompt_text.step_prompt(step, brief, context.params_of(step) | extra)


def _phase_text(job: Job, context: RunContext) -> str:
    """The phase as the agent gets it: optional tasks only with --optional, or if they were asked for by name."""
    if job.phase is None or job.task or context.options.optional or not task_list(job, context):
        return job.phase.text if job.phase else ""
    return task_lists.without_optional(job.phase.text)


def task_list(job: Job, context: RunContext) -> str:
    """The task list whose boxes the agent ticks; the statuses of a backlog are written by doflow."""
    path = context.phases(job.step) if job.phase and job.step.phases else ""
    return "" if markdown.is_backlog(path) else path


def repair_prompt(job: Job, context: RunContext, ask: Ask) -> str:
    """The prompt for an existing session: the failed check and the required result."""
    writes = None if job.step.kind == "shell" else job.writes
    brief = Brief(context.run.name, context.run.dir, job.makes, writes, trouble=ask.trouble)
    return prompt_text.retry_prompt(job.step, brief)


def step_inputs(job: Job, context: RunContext) -> tuple[Input, ...]:
    """The step's inputs in full; files that are too large are only named."""
    found = []
    for read in job.step.reads:
        for path in context.files.expand(markdown.phase_path(read.path, job.phase.number) if job.phase else read.path):
            if not context.files.digest(path):
                continue
            text = context.files.text(path) or ""
            if read.section:
                text = markdown.section(text, read.section) or ""
            shown = f"{path}#{read.section}" if read.section else path
            found.append(_input(shown, text))
    return (*found, *open_conditions(job, context), *_checklist(job, context))


def _checklist(job: Job, context: RunContext) -> tuple[Input, ...]:
    """The run's checklist, for a phase of `implement`."""
    if job.phase is None or job.step.kind != "implement":
        return ()
    text = stale_files.admitted(context)
    return (Input(f"{state_folder.TASK_LIST} (the whole list; only your phase is yours)", text),) if text else ()


def _input(path: str, text: str) -> Input:
    return Input(path, text if len(text) <= prompt_text.INPUT_LIMIT and "\0" not in text else None)


def open_conditions(job: Job, context: RunContext) -> tuple[Input, ...]:
    """Open findings of conditional reviews before this step."""
    found = []
    for name in context.order.before(job.step.id):
        record = context.record.steps.get(name)
        path = context.findings_path(name)
        result = findings.review_result(record.marker) if record else None
        if result and result.verdict == "CONDITIONAL" and context.files.digest(path):
            found.append(Input(f"{path} (meet what is open here)", context.files.text(path)))
    return tuple(found)


def _changes(job: Job, context: RunContext) -> str:
    """The diff of the inputs since the step last ran, as far as the old versions are stored."""
    record = context.record.steps.get(job.name)
    if record is None:
        return ""
    parts = []
    for path, now in job.key.reads.items():
        was = record.reads.get(path, "")
        if was and now and was != now and "#" not in path:
            old = context.root / state_folder.STORE / was
            new = (context.files.text(path) or "").splitlines()
            before = old.read_text("utf-8", "replace").splitlines() if old.exists() else None
            if before is None:
                parts.append(f"{path} changed")
            else:
                parts += difflib.unified_diff(before, new, f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class Session:
    """A session that can be resumed: its id, and its usage so far (None = its CLI reports each call separately)."""

    id: str
    spent: Usage | None = None


def session_of(outcome: Outcome) -> Session | None:
    """The session of a call, if it can be resumed; a fallback agent's session is not resumed."""
    return Session(outcome.session, outcome.spent) if outcome.session and not outcome.agent else None


def session_fields(outcome: Outcome) -> dict[str, Any]:
    """The session fields of an event log entry."""
    return {"session": outcome.session} | ({"spent": list(astuple(outcome.spent))} if outcome.spent else {})


def session_from_entry(entry: Mapping[str, Any]) -> Session | None:
    """The session that an entry names."""
    if not entry.get("session") or entry.get("agent"):
        return None
    spent = entry.get("spent")
    return Session(entry["session"], Usage(*spent) if isinstance(spent, list) else None)
