"""`doflow machine`: where the sessions of a project stand in the order of their sub-agents, and changing that by hand."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from doflow.cli import output as commands
from doflow.cli.report import machine_diagram as chart
from doflow.config import project
from doflow.hooks import (
    machine_loader as machines,
    session_admin as sessions,
    session_store as store,
    state_machine as rules,
)
from doflow.util.errors import UsageError

if TYPE_CHECKING:
    from doflow.hooks.state_machine import Doc, Machine

ABOUT = (
    "The order of sub-agents that hooks enforce (doflow hooks install): where a session stands, changing it by hand."
)
EXAMPLES = """\
  doflow machine status                    the session that changed last; --all: every one of this project
  doflow machine history -n 10
  doflow machine complete                  the work of this round is done
  doflow machine reset --reason "stuck"    back to the first state; a backup is kept
  doflow machine restore                   take that back
  doflow machine show --format svg > order.svg
  doflow machine metrics
  doflow machine check flows/machines/mine.yaml
"""
VERBS = {
    "status": "the state of a session",
    "history": "its last transitions",
    "complete": "say that the work is done",
    "reset": "back to the first state; the history stays, a backup is made",
    "restore": "back to what the last reset put away",
    "show": "the machine as a picture, with the current position",
    "metrics": "allowed, blocked, by agent and state; how long agents worked",
    "check": "prove a machine: no state out of reach, no stage that can be skipped",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="deed", metavar="|".join(VERBS), required=True)
    for name, about in VERBS.items():
        one = verbs.add_parser(name, help=about)
        one.add_argument("--json", action="store_true", help="one JSON object instead of words")
        if name != "check":
            one.add_argument(
                "--session", default="", metavar="ID", help="its id or the first letters (default: the last)"
            )
        if name in ("status", "metrics"):
            one.add_argument("--all", action="store_true", help="every session of this project")
        if name == "history":
            one.add_argument("-n", type=int, default=10, metavar="N", help="how many (default: 10; 0 = all)")
        if name == "reset":
            one.add_argument("--reason", default="Manual reset", help="for the history")
        if name == "show":
            one.add_argument("--format", choices=chart.FORMATS, default="text", help="default: text")
            one.add_argument("--machine", default="", metavar="NAME", help="another machine than the session's")
        if name == "check":
            one.add_argument("machine", nargs="?", default="", help="a name or a file (default: all of this project)")


def machine(args: argparse.Namespace) -> int:
    deeds = {"status": _status, "history": _history, "complete": _complete, "reset": _reset, "restore": _restore}
    deeds |= {"show": _show, "metrics": _metrics, "check": _check}
    return deeds[args.deed](args, str(project.find()))


def _session(args: argparse.Namespace, root: str) -> store.Session:
    found = sessions.find(root, os.environ, args.session)
    if found is None:
        raise UsageError("no session of this project has asked yet", "doflow hooks install; then work with your agent")
    return found


def _status(args: argparse.Namespace, root: str) -> int:
    if args.all:
        rows = [_row(root, ident) for ident in sessions.known(root, os.environ)]
        if args.json:
            commands.say_json({"sessions": rows})
        elif rows:
            head = ("SESSION", "STATE", "MACHINE", "SINCE", "TRANSITIONS", "AT WORK")
            names = ("session", "state", "machine", "timestamp", "history_count")
            commands.table(
                [head, *([*(str(row[name]) for name in names), ", ".join(row["active"]) or "-"] for row in rows)]
            )
        else:
            commands.say("no session of this project has asked yet")
        return 0
    row = _row(root, _session(args, root).ident)
    if args.json:
        commands.say_json(row)
        return 0
    commands.say(f"{row['machine']} is in {row['state']} since {row['timestamp']} (session {row['session']})")
    commands.say(f"  may run now: {', '.join(row['allowed']) or 'nobody'}")
    commands.say(f"  at work: {', '.join(row['active']) or 'nobody'}; transitions: {row['history_count']}")
    commands.say("  context: " + ", ".join(f"{slot} {len(text)} characters" for slot, text in row["context"].items()))
    commands.say(f"  file: {row['file']}")
    if row["trouble"]:
        commands.warn(f"WARNING: the file cannot be used ({row['trouble']}): the next hook takes it as {row['state']}")
    return 0


def _row(root: str, ident: str) -> dict[str, Any]:
    """The health of one session: state, time, how much history, and what follows from it."""
    session = store.Session(store.base(os.environ), store.top(root), ident)
    doc = sessions.read(session)
    found = sessions.machine_of(root, doc)
    trouble = rules.usable(found, doc) and str(doc.get("trouble", rules.usable(found, doc)))
    doc = rules.mended(found, {} if trouble else doc, ident, session.project, "")
    return {
        "machine": found["machine"], "state": doc["state"], "timestamp": doc["timestamp"], "session_id": doc["session_id"],
        "session": ident,
        "history_count": len(doc["history"]), "active": [one.get("agent", "") for one in doc["doflow"]["active"].values()],
        "allowed": list(found["states"][doc["state"]]["allow"]), "context": doc["context"], "file": session.path,
        "project": session.project, "trouble": trouble,
    }  # fmt: skip


def _history(args: argparse.Namespace, root: str) -> int:
    session = _session(args, root)
    found = sessions.read(session).get("history")
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    entries = entries[-args.n :] if args.n > 0 else entries
    if args.json:
        commands.say_json({"session_id": session.ident, "history": entries})
    elif entries:
        names = ("timestamp", "agent", "state_before", "state_after", "reason")
        rows = [tuple(str(entry.get(name, "")) for name in names) for entry in entries]
        commands.table([("WHEN", "AGENT", "FROM", "TO", "WHY"), *rows])
    else:
        commands.say(f"session {session.ident} has not moved yet")
    return 0


def _complete(args: argparse.Namespace, root: str) -> int:
    session = _session(args, root)
    found = sessions.machine_of(root, sessions.read(session))
    target = found["complete"]
    if not target:
        raise UsageError(f"the machine {found['machine']} has no `complete` state", "doflow machine show")

    def deed(doc: Doc, now: str) -> str:
        before = doc["state"]
        if before == found["start"]:
            raise UsageError(f"session {session.ident} is in {before}: nothing was begun", "doflow machine show")
        if before != target:
            rules.moved(found, doc, "complete", target, now, "said by a person")
        return f"complete: {before} -> {target}"

    return _changed(args, session, sessions.change(session, found, deed), target)


def _reset(args: argparse.Namespace, root: str) -> int:
    session = sessions.find(root, os.environ, args.session)
    if session is None:
        commands.say("there is nothing to reset: no session of this project has asked yet")
        return 0
    found = sessions.machine_of(root, sessions.read(session))

    def deed(doc: Doc, now: str) -> str:
        before = doc["state"]
        sessions.back_up(session)
        rules.moved(found, doc, "reset", found["start"], now, args.reason)
        doc["doflow"]["active"] = {}
        return f"reset: {before} -> {found['start']} ({args.reason})"

    return _changed(args, session, sessions.change(session, found, deed), found["start"])


def _restore(args: argparse.Namespace, root: str) -> int:
    session = _session(args, root)
    state = sessions.restore(session)
    return _changed(args, session, f"restored: {state}", state)


def _changed(args: argparse.Namespace, session: store.Session, words: str, state: str) -> int:
    if args.json:
        commands.say_json({"session_id": session.ident, "state": state, "file": session.path})
    else:
        commands.say(f"{words} (session {session.ident})")
    return 0


def _show(args: argparse.Namespace, root: str) -> int:
    session = sessions.find(root, os.environ, args.session)
    doc = sessions.read(session) if session else {}
    found = machines.compiled(root, args.machine) if args.machine else sessions.machine_of(root, doc)
    own = doc.get("doflow")
    mine = isinstance(own, dict) and own.get("machine") == found["machine"]
    here = str(doc.get("state", "")) if mine else ""
    if args.json:
        commands.say_json({"machine": {name: found[name] for name in found if name != "sources"}, "state": here})
        return 0
    sys.stdout.write(chart.draw(found, here, args.format))
    return 0


def _metrics(args: argparse.Namespace, root: str) -> int:
    wanted = [args.session] if args.session and not args.all else sessions.known(root, os.environ)
    folders = [found.folder for one in wanted if (found := sessions.find(root, os.environ, one))]
    told = sessions.metrics(folders)
    if args.json:
        commands.say_json(told)
        return 0
    commands.say(
        f"{told['sessions']} sessions: {told['allowed']} allowed, {told['blocked']} blocked, {told['escaped']} escaped"
    )
    if told["by"]:
        names = ("agent", "state", "allowed", "blocked", "escaped")
        commands.table([tuple(n.upper() for n in names), *(tuple(str(row[n]) for n in names) for row in told["by"])])
    if told["durations"]:
        rows = [
            (agent, str(s["count"]), f"{s['mean']} s", f"{s['longest']} s") for agent, s in told["durations"].items()
        ]
        commands.table([("AGENT", "RUNS", "MEAN", "LONGEST"), *rows])
    return 0


def _check(args: argparse.Namespace, root: str) -> int:
    from pathlib import Path

    if args.machine.endswith((".yaml", ".yml")):
        good: list[Machine] = [machines.file(Path(os.path.abspath(args.machine)), args.machine)]
    else:
        good = [
            machines.compiled(root, name)
            for name in ([args.machine] if args.machine else machines.names(root) or [store.DEFAULT])
        ]
    if args.json:
        commands.say_json({"good": [found["machine"] for found in good]})
    else:
        for found in good:
            states = len(found["states"])
            commands.say(f"{found['machine']}: all of {states} states can be reached, no stage can be skipped")
    return 0
