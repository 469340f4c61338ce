"""The terminal guardian, layer 0: starts a headless guardian per pipeline, restarts it when it dies, shows questions and
reads the answers. If it is killed, the guardians keep running; the same command finds them again."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from doflow.flow.dot import parser
from doflow.supervise import ownership, pipeline_context
from doflow.supervise.guardian import runner_pool, state, stop, validation
from doflow.supervise.guardian.loop import PAUSED
from doflow.supervise.guardian.state import Say
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.signal_store import Signal
from doflow.supervise.signal_watch import FolderWatch
from doflow.util import locks
from doflow.util.errors import UsageError
from doflow.util.process import notify

RESTARTS, WITHIN = 5, 600.0


class WatchedPipeline:
    """One pipeline with its guardian process."""

    def __init__(self, context: PipelineContext) -> None:
        self.context, self.name = context, context.pipeline
        self.lock = os.path.join(context.folder, "guardian.lock")
        self.pid = 0
        self.code: int | None = None
        self.complete = False
        self.starts: list[float] = []
        self.events = EventFollower(os.path.join(context.folder, "events.jsonl"))

    def alive(self) -> bool:
        if self.pid:
            self.code = ownership.exit_code(self.pid)
            if self.code is not None:
                self.pid = 0
        return bool(locks.holder_pid(self.lock)) or bool(self.pid and ownership.is_alive(self.pid))


class Terminal:
    """The terminal guardian; with `stdin` a person can answer questions."""

    def __init__(
        self, pipelines: Sequence[WatchedPipeline], environ: Mapping[str, str], say: Say, stdin: TextIO | None
    ) -> None:
        self.pipelines, self.environ, self.say, self.stdin = pipelines, environ, say, stdin
        self.asking: list[tuple[WatchedPipeline, Signal]] = []
        self.wait, self.check, self.glance = True, 1.0, 2.0

    def run(self) -> int:
        """Until every pipeline has ended; the worst of their exit codes."""
        codes: dict[str, int] = {}
        with FolderWatch([watched.context.store.folder for watched in self.pipelines]) as watch:
            while True:
                for watched in self.pipelines:
                    self._show_news(watched)
                    if watched.name not in codes and (code := self._keep_alive(watched)) is not None:
                        codes[watched.name] = code
                if len(codes) == len(self.pipelines):
                    return max(codes.values(), key=lambda code: {0: 0, 2: 1}.get(code, 2))
                self.listen(0.0)
                watch.sleep(self.check)

    def _keep_alive(self, watched: WatchedPipeline) -> int | None:
        """Start a guardian if none is running; None = it runs. After several crashes it is not restarted."""
        if watched.alive():
            return None
        self._show_news(watched)
        if watched.code == PAUSED and not self.wait:
            again = " ".join(os.path.relpath(one.context.dot) for one in self.pipelines)
            self.say(f"{watched.name}: paused: answer, then: doflow guardian launch {again} --no-wait")
            return PAUSED
        if watched.code == 0 or (watched.code == 1 and watched.complete):
            return watched.code
        if stop.was_stopped(watched.context):
            dot = os.path.relpath(watched.context.dot)
            self.say(f"{watched.name}: stopped; resume with: doflow guardian launch {dot}")
            return PAUSED
        now = time.monotonic()
        watched.starts = [when for when in watched.starts if now - when < WITHIN]
        if len(watched.starts) >= RESTARTS:
            log = os.path.join(watched.context.folder, "guardian.log")
            self.say(f"{watched.name}: its guardian crashed {RESTARTS} times; giving up. Its log: {log}")
            return 1
        if watched.code is not None:
            ended = f"its guardian ended (exit code {watched.code})"
            self.say(f"{watched.name}: {ended}; restarting it, finished work is kept")
        watched.starts.append(now)
        watched.pid, watched.code = launch_guardian(watched.context, self.environ, self.wait, self.glance), None
        watched.context.note("terminal", "guardian_launched", pid=watched.pid)
        self.say(f"{watched.name}: guardian {watched.pid}")
        return None

    def _show_news(self, watched: WatchedPipeline) -> None:
        for words in watched.events.news():
            self.say(f"{watched.name}: {words}")
        for signal in watched.context.store.waiting(target="terminal"):
            with watched.context.store.claimed(signal) as claimed:
                if claimed:
                    self._handle_signal(watched, signal)
                    watched.context.store.consume(signal)

    def _handle_signal(self, watched: WatchedPipeline, signal: Signal) -> None:
        name, payload = watched.name, signal.payload
        watched.context.note("terminal", "heard", signal=signal.kind, id=signal.unique)
        if signal.kind == "PIPELINE_COMPLETE":
            watched.complete = True
            self.say(f"{name}: PIPELINE_COMPLETE: {payload['summary']}")
            self._notify(watched, "done", str(payload["summary"]), "")
        elif signal.kind == "GUARDIAN_ERROR":
            self.say(f"{name}: GUARDIAN_ERROR: {payload['error']}")
            log = os.path.join(watched.context.folder, "guardian.log")
            self._notify(watched, "failed", str(payload["error"]), f"its log: {log}")
        else:
            self._notify(watched, "paused", str(payload["issue"]), self._ask(watched, signal))

    def _ask(self, watched: WatchedPipeline, signal: Signal) -> str:
        """Show a question and queue it for an answer here; returns the command that answers it elsewhere."""
        name, payload, token = watched.name, signal.payload, signal.reply or signal.token
        hint = f"doflow signal answer {token} '…' --pipeline {name}"
        self.say(f"{name}: ESCALATION: {payload['issue']}{state.option_lines(payload['options'])}\n  next: {hint}")
        if self.stdin is not None:
            self.asking.append((watched, signal))
            oldest, asked = self.asking[0]
            options = state.option_lines(asked.payload["options"])
            self.say(f"{oldest.name}: your answer to: {asked.payload['issue']}{options}")
        return hint

    def recall(self) -> None:
        """Show open questions of an earlier launch again."""
        for watched in self.pipelines:
            new = {signal.unique for signal in watched.context.store.waiting(target="terminal")}
            for signal in open_questions(watched.context):
                if signal.unique not in new:
                    self._ask(watched, signal)

    def listen(self, seconds: float) -> None:
        """A typed line answers the oldest open question."""
        while self.asking and _answered(self.asking[0][0].context, self.asking[0][1]):
            self.asking.pop(0)
        if self.stdin is None or not self.asking or not select.select([self.stdin], [], [], seconds)[0]:
            return
        line = self.stdin.readline()
        if not line:
            self.stdin = None  # closed: `doflow signal answer` still works
            return
        text = line.strip()
        if text:
            watched, signal = self.asking.pop(0)
            options = signal.payload["options"]
            chosen = options[int(text) - 1] if text.isdecimal() and 1 <= int(text) <= len(options) else text
            try:
                answer(watched.context, signal, chosen, "terminal")
            except UsageError as error:
                self.say(f"{watched.name}: {error}")
                self.asking.insert(0, (watched, signal))
                return
            self.say(f"{watched.name}: answered: {chosen}")

    def _notify(self, watched: WatchedPipeline, event: str, message: str, hint: str) -> None:
        command, root = watched.context.settings.notify, Path(watched.context.root)
        words = (event, watched.name, "guardian", message, hint)
        if command and (trouble := notify.run_notify_command(command, *words, self.environ, root=root)):
            self.say(trouble)


def launch(
    names: Sequence[str],
    contexts: Sequence[PipelineContext],
    environ: Mapping[str, str],
    say: Say,
    stdin: TextIO | None,
    wait: bool,
    check: float = 2.0,
) -> int:
    """Run these pipelines under guardians. Errors are reported before anything is started."""
    for name, context in zip(names, contexts, strict=True):
        if not context.dot:
            raise UsageError(f"unknown pipeline {name!r}", "give its file, for example pipelines/auth.dot")
        validation.refuse_invalid(parser.read_pipeline(context.dot), context)
        runner_pool.refuse_unsuitable(context, environ)
        with ownership.lock_for_guardian(context.root, context.dot):
            pass  # refuse here if doit is running it, instead of in crashing guardians
        pipeline_context.register(context)
        stop.clear_stop(context)
    known = [context.pipeline for context in contexts]
    twice = next((name for name in known if known.count(name) > 1), "")
    if twice:
        raise UsageError(f"two pipelines are named {twice}", "rename one of the files")
    terminal = Terminal([WatchedPipeline(context) for context in contexts], environ, say, stdin)
    terminal.wait, terminal.check, terminal.glance = wait, min(1.0, check), check
    terminal.recall()
    return terminal.run()


def launch_guardian(context: PipelineContext, environ: Mapping[str, str], wait: bool, check: float) -> int:
    """Start a headless guardian process, without CLAUDECODE in its environment; returns its pid."""
    words = ("guardian", "run", context.dot, "--check", str(check), *(() if wait else ("--no-wait",)))
    log = os.path.join(context.folder, "guardian.log")
    return ownership.start_detached(words, context.root, log, {**environ, "DOFLOW_SIGNALS": context.base})


def answer(context: PipelineContext, escalation: Signal, text: str, by: str) -> str:
    """Save a person's answer, which wakes the guardian; refuses an answer that isn't an option."""
    token = escalation.reply or escalation.token
    state.refuse_answer(text, escalation.payload["options"], token, context.pipeline)
    path = state.save_answer(context.store, token, text, by)
    context.note("terminal", "answered", to=token, text=text[:500], by=by)
    return path


def open_questions(context: PipelineContext) -> list[Signal]:
    """Escalations without an answer, oldest first."""
    escalations = [signal for signal in context.store.history() if signal.kind == "ESCALATION"]
    return [signal for signal in escalations if not _answered(context, signal)]


def _answered(context: PipelineContext, signal: Signal) -> bool:
    return state.find_answer(context.store, signal.reply or signal.token) is not None


class EventFollower:
    """Follows the events of a pipeline, from its creation on."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = os.path.getsize(path) if os.path.exists(path) else 0

    def news(self) -> Iterator[str]:
        """Each new event that a person needs to see, as text."""
        with suppress(OSError), open(self._path, "rb") as stream:
            stream.seek(self._at)
            for line in stream:
                if not line.endswith(b"\n"):
                    break  # not written completely yet
                self._at += len(line)
                with suppress(ValueError):
                    words = event_text(json.loads(line))
                    if words:
                        yield words


def event_text(entry: Mapping[str, Any]) -> str:
    """An event as text; '' = not shown."""
    if entry.get("event") == "orchestrator_spawned":
        return f"{entry['node']}: attempt {entry['attempt']} runs in tmux; watch it with: {entry['attach']}"
    if entry.get("event") == "transition":
        note = str(entry.get("note", "")).strip().partition("\n")[0][:120]
        return f"{entry['node']}: {entry['to']}{f' ({note})' if note else ''}"
    return ""
