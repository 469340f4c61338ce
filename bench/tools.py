"""The same chain for doflow, doit, make and ninja, and which tools there are."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from bench import foreign
from bench.tool import INPUTS, OUTPUTS, Chain, Tool


class Doflow(Tool):
    """A flow in YAML, one line per step."""

    def files(self, root: Path, chain: Chain) -> None:
        (root / "dodo.py").write_text("import doflow\n\nglobals().update(doflow.dodo())\n")
        (root / "doflow.yaml").write_text("agents: {default: {use: rehearsal}}\nworkspace: in-place\n")
        (root / "flows").mkdir()
        lines = ["flow: chain", "about: One step after the other.", "params: {goal: {about: what to build}}", "steps:"]
        lines += [self._step(number, chain) for number in range(1, chain.size + 1)]
        (root / "flows/chain.yaml").write_text("\n".join(lines) + "\n")

    def _step(self, number: int, chain: Chain) -> str:
        reads = f", reads: [/{INPUTS}/{number}.txt]" if chain.reads else ""
        if chain.makes:
            command = f"""[sh, -c, 'echo {number} > "$DOFLOW_MAKES"']"""
            return f"  s{number}: {{kind: shell, run: {command}{reads}, makes: {number}.txt}}"
        words = ", ".join(f"'{word}'" for word in chain.command(number))
        return f"  s{number}: {{kind: shell, run: [{words}]{reads}}}"

    def first(self) -> list[str]:
        return [*self.argv, "--goal=A chain of steps"]


class Doit(Tool):
    """A hand-written dodo.py."""

    def files(self, root: Path, chain: Chain) -> None:
        (root / "dodo.py").write_text(_DODO.format(
            size=chain.size,
            actions=_COMMITTING if chain.makes else f"[{chain.command(1)!r} if number == 1 else ['true']]",
            needs=f"'file_dep': [f'{INPUTS}/{{number}}.txt']" if chain.reads else "'uptodate': [run_once]",
            targets=f"[f'{OUTPUTS}/{{number}}.txt']" if chain.makes else "[]",
        ))  # fmt: skip
        if chain.makes:
            (root / OUTPUTS).mkdir()
            (root / OUTPUTS / "readme").touch()

    def clean(self, root: Path, keep: tuple[str, ...] = ()) -> None:
        super().clean(root, keep)
        if "'git'" in (root / "dodo.py").read_text():
            self.git(root, "checkout", "-q", "-f", "begin", "--", OUTPUTS)


class Make(Tool):
    """A Makefile with a stamp file per step."""

    def files(self, root: Path, chain: Chain) -> None:
        rows = [".PHONY: all", f"all: done/{chain.size}"]
        for number in range(1, chain.size + 1):
            needs = f"{INPUTS}/{number}.txt" if chain.reads else ""
            before = f"done/{number - 1}" if number > 1 else ""
            command = "; ".join(chain.command(number)[-1:])
            rows += [f"done/{number}: {needs} | {before}", f"\t@mkdir -p done && {{ {command}; }} && touch $@"]
        (root / "Makefile").write_text("\n".join(rows) + "\n")


class Ninja(Tool):
    """A build.ninja with a stamp file per step."""

    def files(self, root: Path, chain: Chain) -> None:
        rows = ["rule step", "  command = { $do; } && touch $out"]
        for number in range(1, chain.size + 1):
            needs = f"{INPUTS}/{number}.txt" if chain.reads else ""
            before = f"|| done/{number - 1}" if number > 1 else ""
            rows += [f"build done/{number}: step {needs} {before}", f"  do = {chain.command(number)[-1]}"]
        (root / "build.ninja").write_text("\n".join(rows) + f"\ndefault done/{chain.size}\n")


def installed(places: Mapping[str, Mapping[str, str]]) -> tuple[Tool, ...]:
    """doflow twice, doit twice, and of the others those that are there."""
    stock = places["stock"]
    found: list[Tool] = [
        Doit("doit, hand-written", ("doit", "chain"), stock, base=True),
        Doflow("doit FLOW", ("doit", "chain"), places["doflow"]),
        Doflow("doflow run FLOW", ("doflow", "run", "chain"), places["doflow"]),
        Doit("doit, nothing else installed", ("doit", "chain"), places["alone"]),
    ]
    if shutil.which("make"):
        found.append(Make("make", ("make", "-sr"), stock))
    if shutil.which("ninja"):
        found.append(Ninja("ninja", ("ninja", "--quiet", "-j1"), stock))
    return (*found, *foreign.installed(stock))


_DODO = """\
from doit.tools import run_once


def task_chain():
    for number in range(1, {size} + 1):
        yield {{
            'name': f's{{number}}',
            'actions': {actions},
            'task_dep': [f'chain:s{{number - 1}}'] if number > 1 else [],
            'targets': {targets},
            {needs},
        }}
"""
_COMMITTING = f"""[
                ['sh', '-c', f'echo {{number}} > {OUTPUTS}/{{number}}.txt'],
                ['git', 'add', f'{OUTPUTS}/{{number}}.txt'],
                ['git', 'commit', '-q', '-m', f'Step {{number}}'],
            ]"""
