"""`doflow hook EVENT`: an agent's question on standard input, our answer by exit code, standard output and standard error.

Exit 2 blocks a call, 0 lets everything go on. A forbidden agent that is named well is blocked; whatever breaks in here
lets the call pass, and says so loudly. Next to nothing is imported: this runs at every sub-agent's start and end.
"""

from __future__ import annotations

import os
import sys
import time

from doflow.hooks import events, session_store as store
from doflow.hooks.events import NAME, Answer, Call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EVENTS = tuple(events.EVENTS)
USAGE = f"doflow hook {{{'|'.join(EVENTS)}}} [--machine NAME] [--state DIR]   with the agent's JSON on standard input"
LIMIT = 32_000_000
DEADLINE = 45
PASSED, BLOCKED, MISUSED = 0, 2, 1


class TooLate(BaseException):
    """Our own deadline, well before the agent's."""


def run(words: list[str]) -> int:
    if words[:1] == ["write"]:
        from doflow.hooks import write_guard as write

        return write.run(words[1:])
    now = time.time()
    options = _options(words)
    if options is None:
        _tell(now, f"not understood: {' '.join(words)[:200]!r}; usage: {USAGE}")
        return MISUSED
    event = options["event"]
    try:
        _deadline(DEADLINE)
        answer = _answered(event, options, now)
        _deadline(0)
    except (Exception, TooLate) as error:
        told = f"{event}: doflow could not look at this call and LETS IT PASS: {type(error).__name__}: {error}"
        _tell(now, told[:1000])
        _say({"continue": True, "systemMessage": f"[{NAME}] {told}"[:1000]})
        return PASSED
    for line in answer.lines:
        _tell(now, line)
    _say(answer.said or {"continue": True})
    return BLOCKED if answer.block else PASSED


def _answered(event: str, options: dict[str, str], now: float) -> Answer:
    payload, trouble = _payload(event, _read())
    environ = os.environ
    project = store.top(environ.get("CLAUDE_PROJECT_DIR") or _text(payload, "cwd"))
    ident = _text(payload, "session_id") or environ.get("CLAUDE_CODE_SESSION_ID") or "default"
    with store.Session(options["state"] or store.base(environ), project, ident, options["machine"]) as session:
        machine, warning = _machine(session, project, options["machine"])
        answer = events.answer(Call(event, payload, machine, session, now))
        answer.lines[:0] = [line for line in (trouble, warning) if line]
        _note(session, now, event, answer)
    return answer


def _read() -> bytes:
    data = b""
    while part := os.read(0, 1 << 20):
        data += part
        if len(data) > LIMIT:
            raise ValueError(f"the question is longer than {LIMIT} bytes")
    return data


def _payload(event: str, data: bytes) -> tuple[dict[str, Any], str]:
    """The question. What a finished agent said need not be JSON, if the environment names the agent; all else must."""
    import json

    text = data.decode("utf-8", "replace")
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            return found, ""
        trouble = "the question is no JSON object"
    except (ValueError, RecursionError) as error:
        trouble = f"the question is no JSON ({error})" if text.strip() else "the question is empty"
    if event == "SubagentStop" and os.environ.get("AGENT_NAME"):
        return {"last_assistant_message": text}, f"{event}: {trouble}: taken as the agent's own words"
    raise ValueError(trouble)


def _machine(session: store.Session, project: str, name: str) -> tuple[dict[str, Any], str]:
    """The compiled machine while its sources are as they were; else compiled anew, else the last good one and a warning."""
    import json

    path, last = os.path.join(session.home, f"machine-{store.named(name)}.json"), None
    try:
        with open(path, "rb") as file:
            last = json.loads(file.read())
        if all(_sign(source) == sign for source, sign in last["sources"]):
            return last, ""
    except (OSError, ValueError, TypeError, KeyError):
        pass
    try:
        return _compiled(path, project, name), ""
    except Exception as error:
        if not isinstance(last, dict):
            raise
        return last, f"the machine {name} cannot be read, its last good form goes on: {error}"


def _compiled(path: str, project: str, name: str) -> dict[str, Any]:
    if sys.flags.no_site:  # the reader of YAML is in site-packages
        import site

        site.main()
    from doflow.hooks import machine_loader as machines

    found = machines.compiled(project, name)
    machines.keep(path, found)
    return found


def _sign(path: str) -> list[int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size]


def _note(session: store.Session, now: float, event: str, answer: Answer) -> None:
    """Into the journal: the words, and after the tab of the last line the same for programs."""
    import json

    facts = json.dumps({"t": round(now, 3), **answer.facts})
    lines = [f"{_line(now, line)}\t{{}}" for line in answer.lines[:-1]]
    lines.append(f"{_line(now, answer.lines[-1] if answer.lines else event)}\t{facts}")
    try:
        session.note("\n".join(lines))
    except OSError as error:
        answer.log(f"ERROR: the journal cannot be written: {error}")


def _line(now: float, text: str) -> str:
    shown = " ".join(text.split())
    return f"[{events.iso(now)}] [{NAME}] {shown}"


def _tell(now: float, text: str) -> None:
    _write(2, f"{_line(now, text)}\n")


def _say(answer: dict[str, Any]) -> None:
    import json

    _write(1, json.dumps(answer) + "\n")


def _write(fd: int, text: str) -> None:
    try:
        os.write(fd, text.encode("utf-8", "backslashreplace"))
    except OSError:
        pass  # nobody listens: the exit code says it


def _deadline(seconds: float) -> None:
    """From now on; 0 = none any more, so that nothing hits us on the way out."""
    import signal

    def late(*_: object) -> None:
        raise TooLate(f"no end after {seconds:g} seconds")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _options(words: list[str]) -> dict[str, str] | None:
    options = {"event": "", "machine": store.DEFAULT, "state": ""}
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


def _text(payload: dict[str, Any], name: str) -> str:
    value = payload.get(name)
    return value if isinstance(value, str) else ""
