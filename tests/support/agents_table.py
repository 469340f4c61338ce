"""The table of the CLIs in docs/agents.md, read off the adapters: `python -m tests.support.agents_table` writes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.support import checkout
from tests.support.clis import PROGRAMS

from doflow.agents import registry
from doflow.agents.adapters.vendor_cli import Program
from doflow.flow.model import Ask, Profile

PAGE = checkout.TOP / "docs" / "agents.md"
BEGIN, END = "<!-- agents: written by python -m tests.support.agents_table -->", "<!-- /agents -->"
COUNTS = {"usd": "the price", "tokens": "the tokens", "": "nothing"}
HOW: dict[str, dict[str, object]] = {
    "a step that only reads": {"read_only": True},
    "a step that writes": {"read_only": False},
    "a phase, a repair": {"read_only": False, "phase": "1"},
}


def table() -> str:
    rows = [
        _row("", lambda program: f"`{program.name}`"),
        "|---" * (len(PROGRAMS) + 1) + "|",
        _row("program", lambda program: program.title),
        _row("tested version", lambda program: program.tried),
        _row("install: `npm install -g`", lambda program: f"`{program.package}`"),
        _row("log in", lambda program: program.login if "`" in program.login else f"`{program.login}`"),
        *(_row(f"{title} is called with", partial(_words, how=how)) for title, how in HOW.items()),
        _row("resumes a session with", lambda program: _resume(program)),
        _row("reported per session", lambda program: COUNTS[program.counts]),
        _row("variables it gets", lambda program: _coded(program.names)),
        _row("doflow sets", lambda program: _coded(f"{name}={value}" for name, value in program.settings) or "nothing"),
        _row("refused in `args`", lambda program: _coded(program.managed)),
        _row("flags required in its help", lambda program: _coded(flag for _, flags in program.asks for flag in flags.split())),
    ]  # fmt: skip
    return "\n".join(rows)


def argv(program: Program, **how: object) -> tuple[tuple[str, ...], dict[str, str]]:
    """A call of it: its words, and what it is told by variables."""
    ask = Ask("STEP", "", Profile("x", program.name), "/", "RUN", "RUN")
    command = registry.find_agent(program.name).call(replace(ask, **how), {})  # type: ignore[arg-type]
    return command.argv[1:], dict(command.env)


def _words(program: Program, how: dict[str, object]) -> str:
    words, env = argv(program, **how)
    told = [f"OPENCODE_PERMISSION={env['OPENCODE_PERMISSION']}"] if "OPENCODE_PERMISSION" in env else []
    return _coded([" ".join(f"'{word}'" if " " in word else word for word in words), *told])


def _resume(program: Program) -> str:
    fresh = set(argv(program)[0])
    return f"`{' '.join(word for word in argv(program, resume='ID')[0] if word not in fresh)}`"


def _row(title: str, cell: Callable[[Program], str]) -> str:
    return f"| {title} | {' | '.join(cell(program).replace('|', '/') for program in PROGRAMS.values())} |".replace(
        "|  |", "| |"
    )


def _coded(words: object) -> str:
    return ", ".join(f"`{word}`" for word in words)  # type: ignore[attr-defined]


def written(page: str) -> str:
    """The page with the table as it is now."""
    return re.sub(rf"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: f"{BEGIN}\n{table()}\n{END}", page, flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
