"""`doflow quarantine`: what was moved out of the way, to see and to put back."""

from __future__ import annotations

import argparse
import sys

from doflow.cli import output as commands
from doflow.cli.context import Desk
from doflow.guard.quarantine import Kept, Quarantine
from doflow.util.text import clean

ABOUT = "what agents wrote where they may not, or left half done: nothing is deleted, all of it can be put back"
EXAMPLES = """\
  doflow quarantine list
  doflow quarantine show 3f2a             the first letters of an id are enough
  doflow quarantine restore 3f2a          where it was; never over something else
  doflow quarantine restore 3f2a --to notes/found.md
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="deed", metavar="list|show|restore", required=True)
    listing = verbs.add_parser("list", help="all that is there, oldest first")
    showing = verbs.add_parser("show", help="the bytes of one thing")
    putting = verbs.add_parser("restore", help="put a copy back")
    for one in (showing, putting):
        one.add_argument("id", metavar="ID", help="its id, or the first letters of it")
    putting.add_argument("--to", default=None, metavar="PATH", help="another place, from the project's root")
    putting.add_argument("--force", action="store_true", help="what is there now goes into the quarantine instead")
    for one in (listing, showing, putting):
        one.add_argument("--json", action="store_true", help="one JSON object instead of words")


def quarantine(args: argparse.Namespace) -> int:
    desk = Desk()
    store = Quarantine(desk.root / ".doflow" / "quarantine")
    if args.deed == "list":
        return _list(store, args.json)
    if args.deed == "show":
        return _show(store, args.id, args.json)
    with desk.changing():
        kept = store.find(args.id)
        path = store.restore(args.id, desk.root, args.to, args.force)
    if args.json:
        commands.say_json({**_plain(kept), "restored": path})
    else:
        commands.say(f"{path} is back, as {_whose(kept)} left it; the copy in the quarantine stays")
    return 0


def _list(store: Quarantine, as_json: bool) -> int:
    entries = store.entries()
    if as_json:
        commands.say_json({"kept": [_plain(kept) for kept in entries]})
    elif entries:
        rows = [(kept.id[:8], kept.at, f"{kept.size} B", _whose(kept), kept.path, kept.why) for kept in entries]
        commands.table([("ID", "SINCE", "SIZE", "STEP", "PATH", "WHY"), *rows])
        last = entries[-1].id[:8]
        commands.say(f"next: doflow quarantine show {last}   or   doflow quarantine restore {last}")
    else:
        commands.say("the quarantine is empty")
    return 0


def _show(store: Quarantine, ident: str, as_json: bool) -> int:
    """Raw bytes into a pipe or a file; on a terminal nothing that could fool it."""
    kept = store.find(ident)
    data = store.read(ident)
    if as_json:
        commands.say_json({**_plain(kept), "text": data.decode("utf-8", "replace")})
    elif sys.stdout.isatty():
        sys.stdout.write(clean(data.decode("utf-8", "replace")) + ("" if data.endswith(b"\n") else "\n"))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return 0


def _plain(kept: Kept) -> dict[str, object]:
    return {name: getattr(kept, name) for name in Kept.__slots__}


def _whose(kept: Kept) -> str:
    return " ".join(word for word in (kept.run, kept.step) if word) or "somebody"
