"""`doflow import`: flows of the project's own, made from the files of other tools, which are only read."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from doflow.cli.output import count_of, say, say_json, warn
from doflow.config import project
from doflow.flow.parsing import loader
from doflow.importers import registry
from doflow.importers.model import Imported, NewFile
from doflow.util import atomic_files
from doflow.util.errors import FlowError, UsageError

ABOUT = (
    "Write flows from what a project has of spec-kit, OpenSpec, Kiro, BMAD, taskmaster or beads. What cannot be mapped is "
    "listed. Files of the other tools are never changed, existing files are kept."
)
EXAMPLES = """\
  doflow import                                        all formats that the project has
  doflow import spec-kit --dry-run                     show what would be written
  doflow import .specify/workflows/ci/workflow.yml     one file
  doflow import openspec --force                       overwrite what an earlier import wrote"""


def arguments(parser: ArgumentParser) -> None:
    formats = ", ".join(name for name in registry.FORMATS if name != "dot")
    parser.add_argument("what", nargs="?", default="", metavar="FORMAT|PATH", help=f"{formats}, or a file of one")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    parser.add_argument("--force", action="store_true", help="overwrite existing flows and prompts")
    parser.add_argument("--json", action="store_true", help="print JSON")


def import_(args: Namespace) -> int:
    root = project.find()
    made = registry.import_format(registry.scan(root), _relative(root, args.what))
    if not any(one.files for one in made):
        formats = ", ".join(registry.FORMATS)
        raise UsageError("nothing to import was found in this project", f"formats: {formats}; or name a file")
    written = [(one, list(_write(root, one, made[:number], args))) for number, one in enumerate(made)]
    if args.json:
        say_json({"imported": [_plain(one, files) for one, files in written]})
    else:
        _say(written, args.dry_run)
    return 0 if args.dry_run else _check(root, written)


def _relative(root: Path, word: str) -> str:
    """A path from the project root; the name of a format stays as it is."""
    if not word or not os.path.exists(word) or word in registry.FORMATS:
        return word
    path = os.path.relpath(os.path.abspath(word), root)
    return os.path.abspath(word) if path.startswith("..") else path


def _write(root: Path, made: Imported, earlier: tuple[Imported, ...], args: Namespace) -> Iterator[tuple[NewFile, str]]:
    """Each file with what became of it: wrote, kept, skipped."""
    taken = {file.path for one in earlier for file in one.files}
    for file in made.files:
        if file.path in taken:
            yield file, "skipped"
        elif os.path.lexists(root / file.path) and not args.force:
            yield file, "kept"
        else:
            if not args.dry_run:
                (root / file.path).parent.mkdir(parents=True, exist_ok=True)
                atomic_files.write_file(root / file.path, file.text.encode())
            yield file, "wrote"


def _say(written: list[tuple[Imported, list[tuple[NewFile, str]]]], dry_run: bool) -> None:
    reasons = {"kept": " (it exists; --force overwrites it)", "skipped": " (two sources have this name)"}
    for made, files in written:
        for file, result in files:
            verb = "would write" if dry_run and result == "wrote" else result
            source = f" (from {made.source})" if result == "wrote" and file is made.files[0] else ""
            say(f"{verb} {file.path}{source}{reasons.get(result, '')}")
    notes = [note for made, _ in written for note in made.not_mapped]
    if notes:
        say()
        say(f"not mapped ({len(notes)}):")
        for note in notes:
            say(f"  {note}")
    flows = [made.flow for made, files in written if made.flow and any(result != "skipped" for _, result in files)]
    if flows and not dry_run:
        say()
        say(f"next: doflow show {flows[0]}")
        say(f'then: doit {flows[0]} --goal="…" --agent=rehearsal   (a trial run, offline)')


def _check(root: Path, written: list[tuple[Imported, list[tuple[NewFile, str]]]]) -> int:
    """Load what was written: an imported flow must be valid."""
    broken = 0
    for made, files in written:
        if made.flow and files and files[0][1] == "wrote":
            try:
                loader.load_flow(root / files[0][0].path, root)
            except FlowError as error:
                warn(f"{error}")
                broken += 1
    if broken:
        warn(f"{count_of(broken, 'flow')} to correct by hand, then: doflow validate")
    return 1 if broken else 0


def _plain(made: Imported, files: list[tuple[NewFile, str]]) -> dict[str, object]:
    return {
        "flow": made.flow,
        "source": made.source,
        "files": [{"path": file.path, "result": result} for file, result in files],
        "not_mapped": [asdict(note) for note in made.not_mapped],
    }
