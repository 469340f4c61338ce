"""Scenes: each prepares a tool's project and names the command to time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bench import measure
from bench.measure import Sample
from bench.tool import INPUTS, Chain, Tool

_COMPILED = ("flows.cache", ".gitignore")


@dataclass(frozen=True, slots=True)
class Scene:
    """`sizes` in an ordinary run, `big` with --big too; `rounds` per size; `inner`: only doflow and doit take part."""

    name: str
    about: str
    sizes: tuple[int, ...]
    rounds: tuple[int, ...]
    big: tuple[tuple[int, int], ...] = ()
    reads: bool = True
    makes: bool = False
    signals: bool = False
    warm: bool = False
    fresh: bool = True  # before every sample the project is reset to "never run"
    changes: bool = False
    inner: bool = False

    def chain(self, size: int, folder: Path) -> Chain:
        pipe = folder / "signal"
        if self.signals and not pipe.exists():
            os.mkfifo(pipe)
        return Chain(size, self.reads, self.makes, str(pipe) if self.signals else "")

    def set_up(self, tool: Tool, root: Path, chain: Chain) -> None:
        tool.write(root, chain)
        if not self.fresh:
            measure.run(tool.first(), root, tool.env)
            measure.run(tool.again(), root, tool.env)
        elif self.warm:
            measure.run(tool.first(), root, tool.env, Path(chain.signal))

    def sample(self, tool: Tool, root: Path, chain: Chain, turn: int) -> Sample:
        if self.fresh:
            tool.clean(root, _COMPILED if self.warm else ())
        if self.changes:
            (root / INPUTS / f"{max(1, chain.size - 1)}.txt").write_text(f"changed {turn}\n")
        os.sync()  # flush what the preparation wrote, so that the tool does not wait for it
        command = tool.first() if self.fresh else tool.again()
        return measure.run(command, root, tool.env, Path(chain.signal) if chain.signal else None)


SCENES = (
    Scene("no-op", "run a finished flow again: nothing to do", (10, 100, 1000), (15, 15, 11), ((10_000, 3),),
          fresh=False),
    Scene("begin, cold", "from the command to the first step's process, nothing compiled before", (10, 100, 1000),
          (11, 9, 7), signals=True),
    Scene("begin, warm", "the same, with the flow already compiled", (10, 100, 1000), (11, 9, 7),
          signals=True, warm=True),
    Scene("changed", "one input of a finished flow changed: one step to run", (10, 100, 1000), (9, 9, 7), fresh=False,
          changes=True),
    Scene("chain", "a first run, every step a command with an input file", (10, 100, 1000), (5, 5, 3), ((10_000, 1),)),
    Scene("chain, bare", "the same without input files", (100, 1000), (5, 3), reads=False),
    Scene("chain, commits", "a first run, every step makes a file and commits it", (10, 100), (5, 3), ((1000, 1),),
          makes=True, inner=True),
)  # fmt: skip
