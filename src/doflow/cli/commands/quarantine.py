"""`doflow quarantine`: list, show and restore files that were moved to quarantine."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from doflow.cli import output
from doflow.cli.context import CommandContext
from doflow.guard.quarantine import Kept, Quarantine
from doflow.util import state_folder
from doflow.util.text import clean

ABOUT = "files that agents modified outside their scope or left unfinished: nothing is deleted, all can be restored"
EXAMPLES = """\
  doflow quarantine list
  doflow quarantine show 3f2a             a prefix of the id is enough
  doflow quarantine restore 3f2a          to its original path; never overwrites
  doflow quarantine restore 3f2a --to notes/found.md
"""


def arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="deed", metavar="list|show|restore", required=True)
    listing = verbs.add_parser("list", help="list all entries, oldest first")
    showing = verbs.add_parser("show", help="print the content of one entry")
    putting = verbs.add_parser("restore", help="restore a copy")
    for one in (showing, putting):
        one.add_argument("id", metavar="ID", help="its id, or a prefix of it")
    putting.add_argument("--to", default=None, metavar="PATH", help="another path, relative to the project root")
    putting.add_argument("--force", action="store_true", help="overwrite; the current file goes to quarantine")
    for one in (listing, showing, putting):
        one.add_argument("--json", action="store_true", help="print one JSON object")


def quarantine(args: Namespace) -> int:
    command = CommandContext()
    store = Quarantine(command.root / state_folder.QUARANTINE)
    if args.deed == "list":
        return _list(store, args.json)
    if args.deed == "show":
        return _show(store, args.id, args.json)
    with command.changing():
        kept = store.find(args.id)
        path = store.restore(args.id, command.root, args.to, args.force)
    text = f"restored {path} as {_step_name(kept)} left it; the copy in quarantine is kept"
    return output.report(args.json, {**asdict(kept), "restored": path}, text)


def _list(store: Quarantine, as_json: bool) -> int:
    entries = store.entries()
    if as_json or not entries:
        return output.report(as_json, {"kept": [asdict(kept) for kept in entries]}, "the quarantine is empty")
    rows = [(kept.id[:8], kept.at, f"{kept.size} B", _step_name(kept), kept.path, kept.why) for kept in entries]
    output.table([("ID", "SINCE", "SIZE", "STEP", "PATH", "WHY"), *rows])
    last = entries[-1].id[:8]
    output.say(f"next: doflow quarantine show {last}   or   doflow quarantine restore {last}")
    return 0


def _show(store: Quarantine, ident: str, as_json: bool) -> int:
    """Print raw bytes to a pipe or file; on a terminal escape control characters."""
    kept = store.find(ident)
    data = store.read(ident)
    if as_json:
        output.say_json({**asdict(kept), "text": data.decode("utf-8", "replace")})
    elif sys.stdout.isatty():
        sys.stdout.write(clean(data.decode("utf-8", "replace")) + ("" if data.endswith(b"\n") else "\n"))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return 0


def _step_name(kept: Kept) -> str:
    return " ".join(word for word in (kept.run, kept.step) if word) or "unknown"
