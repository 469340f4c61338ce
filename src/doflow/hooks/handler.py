"""`doflow hook EVENT`: the agent's JSON on standard input, the answer as exit code, standard output and standard error.

Exit code 2 blocks a call, 0 allows it. A forbidden agent is blocked; an error in the hook itself allows the call and is
reported. Imports are kept to a minimum: this runs at the start and end of every sub-agent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from doflow.hooks import events, session_store
from doflow.hooks.events import MARK, Answer, Call, payload_text
from doflow.util import file_signature, timestamps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EVENTS = tuple(events.EVENTS)
USAGE = f"doflow hook {{{'|'.join(EVENTS)}}} [--machine NAME] [--state DIR]   with the agent's JSON on standard input"
LIMIT = 32_000_000
DEADLINE = 45
PASSED, BLOCKED, MISUSED = 0, 2, 1


class TooLate(BaseException):
    """Raised at our own deadline, well before the agent's timeout."""


def run(words: list[str]) -> int:
    if words[:1] == ["write"]:
        from doflow.hooks import write_guard

        return write_guard.run(words[1:])
    now = time.time()
    options = _options(words)
    if options is None:
        _log(now, f"unknown arguments: {' '.join(words)[:200]!r}; usage: {USAGE}")
        return MISUSED
    event = options["event"]
    try:
        _deadline(DEADLINE)
        answer = _answered(event, options, now)
        _deadline(0)
    except (Exception, TooLate) as error:
        message = f"{event}: doflow could not check this call and ALLOWS IT: {type(error).__name__}: {error}"
        _log(now, message[:1000])
        _write(1, json.dumps({"continue": True, "systemMessage": f"{MARK} {message}"[:1000]}))
        return PASSED
    for line in answer.lines:
        _log(now, line)
    _write(1, json.dumps(answer.output or {"continue": True}))
    return BLOCKED if answer.block else PASSED


def _answered(event: str, options: dict[str, str], now: float) -> Answer:
    payload, trouble = _payload(event, _read_input())
    environ = os.environ
    project = session_store.project_root(environ.get("CLAUDE_PROJECT_DIR") or payload_text(payload, "cwd"))
    ident = payload_text(payload, "session_id") or environ.get("CLAUDE_CODE_SESSION_ID") or "default"
    base = options["state"] or session_store.sessions_folder(environ)
    with session_store.Session(base, project, ident, options["machine"]) as session:
        machine, warning = _machine(session, project, options["machine"])
        answer = events.answer_event(Call(event, payload, machine, session, now))
        answer.lines[:0] = [line for line in (trouble, warning) if line]
        _note(session, now, event, answer)
    return answer


def _read_input() -> bytes:
    data = b""
    while part := os.read(0, 1 << 20):
        data += part
        if len(data) > LIMIT:
            raise ValueError(f"the input is longer than {LIMIT} bytes")
    return data


def _payload(event: str, data: bytes) -> tuple[dict[str, Any], str]:
    """The payload. Only the output of a finished agent may be something other than JSON, if AGENT_NAME is set."""
    text = data.decode("utf-8", "replace")
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            return found, ""
        trouble = "the input is not a JSON object"
    except (ValueError, RecursionError) as error:
        trouble = f"the input is not JSON ({error})" if text.strip() else "the input is empty"
    if event == "SubagentStop" and os.environ.get("AGENT_NAME"):
        return {"last_assistant_message": text}, f"{event}: {trouble}: taken as the agent's message"
    raise ValueError(trouble)


def _machine(session: session_store.Session, project: str, name: str) -> tuple[dict[str, Any], str]:
    """The compiled machine if its sources are unchanged; else compiled again, else the last good one and a warning."""
    path, last = os.path.join(session.home, f"machine-{session_store.safe_name(name)}.json"), None
    try:
        with open(path, "rb") as file:
            last = json.loads(file.read())
        if all(file_signature.is_unchanged(source, sign) for source, sign in last["sources"]):
            return last, ""
    except (OSError, ValueError, TypeError, KeyError):
        pass
    try:
        return _compiled(path, project, name), ""
    except Exception as error:
        if not isinstance(last, dict):
            raise
        return last, f"the machine {name} cannot be loaded, using the last good version: {error}"


def _compiled(path: str, project: str, name: str) -> dict[str, Any]:
    if sys.flags.no_site:  # PyYAML is in site-packages
        import site

        site.main()
    from doflow.hooks import machine_loader

    found = machine_loader.load_machine(project, name)
    session_store.replace_file(path, json.dumps(found).encode())
    return found


def _note(session: session_store.Session, now: float, event: str, answer: Answer) -> None:
    """Write the journal: the message, and after a tab on the last line the facts as JSON."""
    facts = json.dumps({"t": round(now, 3), **answer.facts})
    lines = [f"{_line(now, line)}\t{{}}" for line in answer.lines[:-1]]
    lines.append(f"{_line(now, answer.lines[-1] if answer.lines else event)}\t{facts}")
    try:
        session.note("\n".join(lines))
    except OSError as error:
        answer.log(f"ERROR: the journal cannot be written: {error}")


def _line(now: float, text: str) -> str:
    return f"[{timestamps.format_seconds(now)}] {MARK} {' '.join(text.split())}"


def _log(now: float, text: str) -> None:
    _write(2, _line(now, text))


def _write(fd: int, text: str) -> None:
    try:
        os.write(fd, f"{text}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass  # closed by the reader: the exit code still counts


def _deadline(seconds: float) -> None:
    """Start the timer; 0 = cancel it, so that it can't fire on the way out."""

    def late(*_: object) -> None:
        raise TooLate(f"not finished after {seconds:g} seconds")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _options(words: list[str]) -> dict[str, str] | None:
    options = {"event": "", "machine": session_store.DEFAULT, "state": ""}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, _, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") and not options["event"]:
            options["event"] = word
        elif word.startswith("--") and name in ("machine", "state") and (value or rest):
            options[name] = value or rest.pop(0)
        else:
            return None
    return options if options["event"] in EVENTS else None
