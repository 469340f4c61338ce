"""The same chain for tools that are measured only where they are installed: go-task, Snakemake, DVC, spec-kit's workflows."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bench.tool import INPUTS, Chain, Tool


class GoTask(Tool):
    """A Taskfile.yml; `task` keeps checksums of the inputs."""

    def files(self, root: Path, chain: Chain) -> None:
        rows = ["version: '3'", "silent: true", "tasks:", "  default:", f"    deps: [s{chain.size}]"]
        for number in range(1, chain.size + 1):
            rows += [f"  s{number}:", f"    deps: [{f's{number - 1}' if number > 1 else ''}]"]
            rows += [f"    sources: ['{INPUTS}/{number}.txt']"] if chain.reads else ["    status: ['test -e done']"]
            rows += [f"    cmds: ['{chain.command(number)[-1]}']"]
        (root / "Taskfile.yml").write_text("\n".join(rows) + "\n")

    def clean(self, root: Path, keep: tuple[str, ...] = ()) -> None:
        super().clean(root, keep)
        shutil.rmtree(root / ".task", ignore_errors=True)


class Snakemake(Tool):
    """A Snakefile with a stamp file per step."""

    def files(self, root: Path, chain: Chain) -> None:
        rows = [f"rule all:\n    input: 'done/{chain.size}'"]
        for number in range(1, chain.size + 1):
            needs = [f"'{INPUTS}/{number}.txt'"] if chain.reads else []
            needs += [f"ancient('done/{number - 1}')"] if number > 1 else []
            rows += [f"rule s{number}:", f"    input: {', '.join(needs)}" if needs else ""]
            rows += [f"    output: 'done/{number}'", f"    shell: '{chain.command(number)[-1]} && touch {{output}}'"]
        (root / "Snakefile").write_text("\n".join(rows) + "\n")

    def clean(self, root: Path, keep: tuple[str, ...] = ()) -> None:
        super().clean(root, keep)
        shutil.rmtree(root / ".snakemake", ignore_errors=True)


class Dvc(Tool):
    """A dvc.yaml; the steps are chained by their outputs, which DVC does not cache."""

    def files(self, root: Path, chain: Chain) -> None:
        rows = ["stages:"]
        for number in range(1, chain.size + 1):
            deps = ([f"{INPUTS}/{number}.txt"] if chain.reads else []) + ([f"done/{number - 1}"] if number > 1 else [])
            rows += [f"  s{number}:", f"    cmd: mkdir -p done && {chain.command(number)[-1]} && touch done/{number}"]
            rows += [f"    deps: [{', '.join(deps)}]", f"    outs: [{{done/{number}: {{cache: false}}}}]"]
        (root / "dvc.yaml").write_text("\n".join(rows) + "\n")
        folder = root / ".dvc"
        folder.mkdir()
        (folder / "config").write_text("[core]\n    analytics = false\n    no_scm = true\n    check_update = false\n")

    def clean(self, root: Path, keep: tuple[str, ...] = ()) -> None:
        super().clean(root, keep)
        (root / "dvc.lock").unlink(missing_ok=True)
        shutil.rmtree(root / ".dvc/tmp", ignore_errors=True)


class Specify(Tool):
    """A workflow of spec-kit: every `run` starts from scratch, so there is no second run that finds nothing to do."""

    def files(self, root: Path, chain: Chain) -> None:
        about = "{id: chain, name: Chain, version: 1.0.0, description: One step after the other.}"
        rows = ["schema_version: '1.0'", f"workflow: {about}", "steps:"]
        for number in range(1, chain.size + 1):
            rows.append(f"  - {{id: s{number}, type: shell, run: '{chain.command(number)[-1]}'}}")
        (root / "chain.yml").write_text("\n".join(rows) + "\n")
        (root / ".specify").mkdir()

    def clean(self, root: Path, keep: tuple[str, ...] = ()) -> None:
        super().clean(root, keep)
        shutil.rmtree(root / ".specify/workflows", ignore_errors=True)


def installed(env: Mapping[str, str]) -> tuple[Tool, ...]:
    found: list[Tool] = []
    for kind, program, words, most in _KNOWN:
        path = shutil.which(program)
        if path is not None and (program != "task" or _is_go_task(path)):
            there = {**env, "PATH": f"{env['PATH']}:{os.path.dirname(path)}"}
            found.append(kind(program, (path, *words), there, most=most, remembers=kind is not Specify))
    return tuple(found)


def _is_go_task(path: str) -> bool:
    """Another program has the same name."""
    said = subprocess.run([path, "--help"], capture_output=True, text=True, check=False)
    return "Taskfile" in said.stdout + said.stderr


_KNOWN: tuple[tuple[type[Tool], str, tuple[str, ...], int], ...] = (
    (GoTask, "go-task", (), 1000),
    (GoTask, "task", (), 1000),
    (Snakemake, "snakemake", ("--cores", "1", "--quiet", "all"), 100),
    (Dvc, "dvc", ("repro", "--quiet"), 100),
    (Specify, "specify", ("workflow", "run", "chain.yml"), 100),
)
