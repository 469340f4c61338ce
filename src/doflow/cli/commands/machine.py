"""`doflow machine`: show and change the state of a project's sessions in the order of their sub-agents."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doflow.cli import output
from doflow.config import project
from doflow.flow import diagram
from doflow.flow.diagram import Arrow, Box, Graph
from doflow.hooks import machine_loader, session_admin, session_store, state_machine
from doflow.util.errors import UsageError

if TYPE_CHECKING:
    from doflow.hooks.state_machine import Doc, Machine

ABOUT = "The order of sub-agents that hooks enforce (doflow hooks install): show and change the state of a session."
EXAMPLES = """\
  doflow machine status                    the most recent session; --all: every session of this project
  doflow machine history -n 10
  doflow machine complete                  mark the work of this round as done
  doflow machine reset --reason "stuck"    back to the first state; a backup is kept
  doflow machine restore                   undo the reset
  doflow machine show --format svg > order.svg
  doflow machine metrics
  doflow machine check flows/machines/mine.yaml
"""
VERBS = {
    "status": "the state of a session",
    "history": "its last transitions",
    "complete": "mark the work as done",
    "reset": "back to the first state; history and a backup are kept",
    "restore": "restore the backup of the last reset",
    "show": "the machine as a diagram, with the current state",
    "metrics": "allowed and blocked calls by agent and state; durations",
    "check": "check a machine: every state is reachable, no stage can be skipped",
}


_NONE = "no session in this project yet"


def arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="deed", metavar="|".join(VERBS), required=True)
    for name, about in VERBS.items():
        one = verbs.add_parser(name, help=about)
        one.add_argument("--json", action="store_true", help="one JSON object instead of text")
        if name != "check":
            about = "its ID or a prefix (default: the most recent)"
            one.add_argument("--session", default="", metavar="ID", help=about)
        if name in ("status", "metrics"):
            one.add_argument("--all", action="store_true", help="every session of this project")
        if name == "history":
            one.add_argument("-n", type=int, default=10, metavar="N", help="how many (default: 10; 0 = all)")
        if name == "reset":
            one.add_argument("--reason", default="Manual reset", help="reason for the history")
        if name == "show":
            one.add_argument("--format", choices=diagram.FORMATS, default="text", help="default: text")
            one.add_argument("--machine", default="", metavar="NAME", help="a machine other than the session's")
        if name == "check":
            one.add_argument("machine", nargs="?", default="", help="a name or a file (default: all of this project)")


def machine(args: Namespace) -> int:
    deeds = {"status": _status, "history": _history, "complete": _complete, "reset": _reset, "restore": _restore}
    deeds |= {"show": _show, "metrics": _metrics, "check": _check}
    return deeds[args.deed](args, str(project.find()))


def _session(args: Namespace, root: str) -> session_store.Session:
    found = session_admin.find_session(root, os.environ, args.session)
    if found is None:
        raise UsageError(_NONE, "install the hooks, then use your agent: doflow hooks install")
    return found


def _status(args: Namespace, root: str) -> int:
    if args.all:
        return _status_of_all(args, root)
    row = _row(root, _session(args, root).ident)
    context = ", ".join(f"{slot} {len(text)} characters" for slot, text in row["context"].items())
    lines = (
        f"{row['machine']} is in {row['state']} since {row['timestamp']} (session {row['session']})",
        f"  allowed now: {', '.join(row['allowed']) or 'none'}",
        f"  running: {', '.join(row['active']) or 'none'}; transitions: {row['history_count']}",
        f"  context: {context}",
        f"  file: {row['file']}",
    )
    output.report(args.json, row, "\n".join(lines))
    if row["trouble"] and not args.json:
        output.warn(f"WARNING: the file is not usable ({row['trouble']}): the next hook will start in {row['state']}")
    return 0


def _status_of_all(args: Namespace, root: str) -> int:
    rows = [_row(root, ident) for ident in session_admin.session_keys(root, os.environ)]
    if args.json or not rows:
        return output.report(args.json, {"sessions": rows}, _NONE)
    names = ("session", "state", "machine", "timestamp", "history_count")
    cells = [[*(str(row[name]) for name in names), ", ".join(row["active"]) or "-"] for row in rows]
    output.table([("SESSION", "STATE", "MACHINE", "SINCE", "TRANSITIONS", "RUNNING"), *cells])
    return 0


def _row(root: str, ident: str) -> dict[str, Any]:
    """The status of one session."""
    session = session_store.Session(session_store.sessions_folder(os.environ), session_store.project_root(root), ident)
    doc = session_admin.load_document(session)
    found = session_admin.machine_for(root, doc)
    problem = state_machine.document_problem(found, doc)
    trouble = problem and str(doc.get("trouble", problem))
    doc = state_machine.normalize(found, {} if trouble else doc, ident, session.project, "")
    return {
        "machine": found["machine"], "state": doc["state"], "timestamp": doc["timestamp"], "session_id": doc["session_id"],
        "session": ident,
        "history_count": len(doc["history"]), "active": [one.get("agent", "") for one in doc["doflow"]["active"].values()],
        "allowed": list(found["states"][doc["state"]]["allow"]), "context": doc["context"], "file": session.path,
        "project": session.project, "trouble": trouble,
    }  # fmt: skip


def _history(args: Namespace, root: str) -> int:
    session = _session(args, root)
    found = session_admin.load_document(session).get("history")
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    entries = entries[-args.n :] if args.n > 0 else entries
    if args.json or not entries:
        none = f"session {session.ident} has no transitions yet"
        return output.report(args.json, {"session_id": session.ident, "history": entries}, none)
    names = ("timestamp", "agent", "state_before", "state_after", "reason")
    rows = [tuple(str(entry.get(name, "")) for name in names) for entry in entries]
    output.table([("WHEN", "AGENT", "FROM", "TO", "WHY"), *rows])
    return 0


def _complete(args: Namespace, root: str) -> int:
    session = _session(args, root)
    found = session_admin.machine_for(root, session_admin.load_document(session))
    target = found["complete"]
    if not target:
        raise UsageError(f"the machine {found['machine']} has no `complete` state", "doflow machine show")

    def action(doc: Doc, now: str) -> str:
        before = doc["state"]
        if before == found["start"]:
            raise UsageError(f"session {session.ident} is in {before}: nothing was started", "doflow machine show")
        if before != target:
            state_machine.move_to(found, doc, "complete", target, now, "by a person")
        return f"complete: {before} -> {target}"

    return _changed(args, session, session_admin.change_state(session, found, action), target)


def _reset(args: Namespace, root: str) -> int:
    session = session_admin.find_session(root, os.environ, args.session)
    if session is None:
        output.say(f"nothing to reset: {_NONE}")
        return 0
    found = session_admin.machine_for(root, session_admin.load_document(session))

    def action(doc: Doc, now: str) -> str:
        before = doc["state"]
        session_admin.back_up(session)
        state_machine.move_to(found, doc, "reset", found["start"], now, args.reason)
        doc["doflow"]["active"] = {}
        return f"reset: {before} -> {found['start']} ({args.reason})"

    return _changed(args, session, session_admin.change_state(session, found, action), found["start"])


def _restore(args: Namespace, root: str) -> int:
    session = _session(args, root)
    state = session_admin.restore(session)
    return _changed(args, session, f"restored: {state}", state)


def _changed(args: Namespace, session: session_store.Session, words: str, state: str) -> int:
    data = {"session_id": session.ident, "state": state, "file": session.path}
    return output.report(args.json, data, f"{words} (session {session.ident})")


def _show(args: Namespace, root: str) -> int:
    session = session_admin.find_session(root, os.environ, args.session)
    doc = session_admin.load_document(session) if session else {}
    found = machine_loader.load_machine(root, args.machine) if args.machine else session_admin.machine_for(root, doc)
    own = doc.get("doflow")
    is_same = isinstance(own, dict) and own.get("machine") == found["machine"]
    here = str(doc.get("state", "")) if is_same else ""
    if args.json:
        output.say_json({"machine": {name: found[name] for name in found if name != "sources"}, "state": here})
        return 0
    sys.stdout.write(draw_machine(found, here, args.format))
    return 0


def _metrics(args: Namespace, root: str) -> int:
    wanted = [args.session] if args.session and not args.all else session_admin.session_keys(root, os.environ)
    folders = [found.folder for one in wanted if (found := session_admin.find_session(root, os.environ, one))]
    metrics = session_admin.compute_metrics(folders)
    if args.json:
        output.say_json(metrics)
        return 0
    counts = ("allowed", "blocked", "escaped")
    output.say(f"{metrics['sessions']} sessions: {', '.join(f'{metrics[name]} {name}' for name in counts)}")
    if metrics["by"]:
        names = ("agent", "state", *counts)
        output.table([tuple(n.upper() for n in names), *(tuple(str(row[n]) for n in names) for row in metrics["by"])])
    durations = metrics["durations"].items()
    if durations:
        rows = [(agent, str(time["count"]), f"{time['mean']} s", f"{time['longest']} s") for agent, time in durations]
        output.table([("AGENT", "RUNS", "MEAN", "LONGEST"), *rows])
    return 0


def _check(args: Namespace, root: str) -> int:
    if args.machine.endswith((".yaml", ".yml")):
        good: list[Machine] = [machine_loader.load_machine_file(Path(os.path.abspath(args.machine)), args.machine)]
    else:
        every = machine_loader.machine_names(root) or [session_store.DEFAULT]
        good = [machine_loader.load_machine(root, name) for name in ([args.machine] if args.machine else every)]
    lines = [
        f"{found['machine']}: all {len(found['states'])} states are reachable, no stage can be skipped"
        for found in good
    ]
    return output.report(args.json, {"good": [found["machine"] for found in good]}, "\n".join(lines))


def draw_machine(machine: Machine, here: str, form: str) -> str:
    """`here` = the state that a session is in; '' = none."""
    if form == "text":
        return machine_text(machine, here)
    drawn = _graph(machine, here)
    if form == "svg":
        return diagram.svg(_forward(drawn))
    if form == "dot":
        return diagram.dot(drawn)
    found = diagram.mermaid(drawn)
    states = list(machine["states"])
    return f"{found}  style n{states.index(here)} fill:#ffe27a,stroke-width:3px\n" if here in states else found


def machine_text(machine: Machine, here: str) -> str:
    """Each state with its allowed agents and moves; an arrow marks the current one."""
    lines = [f"{machine['machine']}: {machine['about']}" if machine["about"] else machine["machine"]]
    width = max(len(name) for name in machine["states"])
    for name, rules in machine["states"].items():
        sign = "->" if name == here else "  "
        lines.append(f" {sign} {name.ljust(width)}  {rules['about']}".rstrip())
        lines.append(f"    {' ' * width}  allowed: {', '.join(rules['allow']) or 'none'}")
        lines += [f"    {' ' * width}  {agents} -> {to}" for to, agents in _moves(machine, name).items()]
    if machine["complete"]:
        lines.append(f"    {machine['complete']} is set by a person: doflow machine complete")
    return "\n".join(lines) + "\n"


def _graph(machine: Machine, here: str) -> Graph:
    boxes = tuple(
        Box(name, f"{name} (here)" if name == here else name, rules["about"], "here" if name == here else "step")
        for name, rules in machine["states"].items()
    )
    arrows = tuple(Arrow(name, *move) for name in machine["states"] for move in _moves(machine, name).items())
    return Graph(machine["machine"], machine["about"], boxes, arrows)


def _forward(graph: Graph) -> Graph:
    """Without edges that lead back: these become text in the box, since the layout only goes down."""
    rank = {box.id: place for place, box in enumerate(graph.boxes)}
    forward = tuple(arrow for arrow in graph.arrows if rank[arrow.to] > rank[arrow.start])
    back = {arrow.start: f"back to {arrow.to}: {arrow.when}" for arrow in graph.arrows if arrow not in forward}
    boxes = tuple(Box(box.id, box.title, back.get(box.id, box.words), box.shape) for box in graph.boxes)
    return Graph(graph.name, graph.about, boxes, forward)


def _moves(machine: Machine, state: str) -> dict[str, str]:
    """The moves out of a state: next state and agents."""
    found: dict[str, list[str]] = {}
    for agent, to in machine_loader.state_moves(machine, state):
        found.setdefault(to, []).append(agent)
    return {to: ", ".join(agents) for to, agents in found.items()}
