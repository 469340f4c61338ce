"""The pages of the documentation, block by block, and following them as a reader would."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import checkout
from tests.support.project import clean_environment

PAGES = (checkout.TOP / "README.md", checkout.TOP / "CHANGELOG.md", *sorted((checkout.TOP / "docs").glob("*.md")))
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)
_FILE = re.compile(r"^# ([\w./-]+\.(?:yaml|py))\n")
_EXIT = re.compile(r"\s+# exit (\d+)$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `file` = the path that its first line names ('' = none)."""

    page: str
    kind: str
    text: str
    file: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.file}"


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page, the exit code and the lines that the page shows for it."""

    words: str
    code: int
    lines: tuple[str, ...]


def blocks(page: Path) -> Iterator[Block]:
    for indent, kind, body in _BLOCK.findall(page.read_text(encoding="utf-8")):
        text = textwrap.dedent(body) if indent else body
        named = _FILE.match(text)
        yield Block(page.name, kind, text, named[1] if named else "")


def files(*, below: str) -> list[Block]:
    """Every block of every page that shows a file with a path that begins so."""
    return [block for page in PAGES for block in blocks(page) if block.file.startswith(below)]


def marked(page: Path, mark: str) -> str:
    """The command below `<!-- mark -->`."""
    found = re.findall(rf"^<!-- {mark} -->\n```sh\n(.+?)\n```$", page.read_text(encoding="utf-8"), re.M | re.S)
    assert len(found) == 1, f"{page.name} has {len(found)} commands marked {mark}"
    return str(found[0])


def commands(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        said, *lines = part.rstrip("\n").split("\n")
        ends = _EXIT.search(said)
        yield Command(_EXIT.sub("", said), int(ends[1]) if ends else 0, tuple(lines))


def follow(page: Path, home: Path) -> list[str]:
    """Do what a page says, from its first block to its last, in a new folder; gives what went otherwise."""
    env = clean_environment(home)
    folder = home / "work"
    folder.mkdir()
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n"
    )
    wrong: list[str] = []
    started = False
    for block in blocks(page):
        if block.kind == "console":
            started = True
            for command in commands(block):
                folder, words = _do(command, folder, env, home)
                wrong += [f"{page.name}: $ {command.words}\n{line}" for line in words]
        elif started and block.file:
            target = folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
    return wrong


def _do(command: Command, folder: Path, env: dict[str, str], home: Path) -> tuple[Path, list[str]]:
    script = f"{command.words}\ncode=$?; pwd > {home}/pwd; exit $code"
    done = subprocess.run(
        ("bash", "-c", script), cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    wrong = [] if done.returncode == command.code else [f"exit {done.returncode}, not {command.code}\n{done.stdout}"]
    rest = iter(done.stdout.splitlines())
    for line in command.lines:
        shown = ".*".join(re.escape(part.strip()) for part in line.split("…"))
        if line.strip() and not any(re.fullmatch(shown, said.strip()) for said in rest):
            wrong.append(f"no line {line!r} (in this order) in:\n{done.stdout}")
            break
    return Path((home / "pwd").read_text().strip()), wrong
