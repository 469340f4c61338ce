"""What the fence around agents costs in a large repository, as a ratio to one `git status` there.

    python -m bench.fence [--files 10000] [--rounds 5] [--check]

Two flows in the same repository make the same files with the same program: one by shell steps, which are not watched, one by
agents, which the fence watches. A short and a long flow give the cost of a further step of each; the difference is the
cost of the fence (plus that of an agent call: its prompt, its log). CPU time is that of the whole process tree.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FEW, MANY = 1, 7
TARGET = 5.0
PROGRAMS = Path(sys.executable).parent


def main(words: list[str] | None = None) -> int:
    asked = _arguments(words)
    folder = Path(tempfile.mkdtemp(prefix="doflow-bench-", dir=asked.dir))
    try:
        ratios = measure(folder, asked.files, asked.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    middle, least = statistics.median(ratios), min(ratios)
    print(
        f"the fence costs {middle:.1f} x one git status per step (least {least:.1f}) with {asked.files} files, in CPU time"
    )
    return 1 if asked.check and least > TARGET else 0


def measure(folder: Path, count: int, rounds: int) -> list[float]:
    """One ratio per round."""
    root, env = new_project(folder, count, "in-place")
    ratios = []
    for _ in range(rounds):
        status = min(_cpu(("git", "status", "--porcelain"), root, env) for _ in range(3))
        slopes = {}
        for kind in ("shell", "agent"):
            spent = [_run(f"{kind}{steps}", root, env) for steps in (FEW, MANY)]
            slopes[kind] = (spent[1] - spent[0]) / (MANY - FEW)
        ratios.append((slopes["agent"] - slopes["shell"]) / status)
        print(f"  git status {status * 1000:.0f} ms, a shell step {slopes['shell'] * 1000:.0f} ms, "
              f"an agent's {slopes['agent'] * 1000:.0f} ms: {ratios[-1]:.1f}", flush=True)  # fmt: skip
    return ratios


def new_project(folder: Path, count: int, workspace: str) -> tuple[Path, dict[str, str]]:
    root, home = folder / "project", folder / "home"
    home.mkdir(parents=True)
    path = os.pathsep.join((str(PROGRAMS), os.environ.get("PATH", os.defpath)))
    env = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}
    (home / ".gitconfig").write_text("[user]\n\tname = Bench\n\temail = bench@example.org\n[gc]\n\tauto = 0\n")
    for number in range(count):
        target = root / f"src/{number // 100}/file_{number}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"NUMBER = {number}\n" * 20)
    agent = folder / "agent.sh"
    agent.write_text('cat > /dev/null; echo made > "$DOFLOW_MAKES"\n')
    (root / "dodo.py").write_text("import doflow\nglobals().update(doflow.dodo())\n")
    profile = f"agents:\n  default: {{use: command, argv: [sh, {json.dumps(str(agent))}]}}\n"
    (root / "doflow.yaml").write_text(f"{profile}workspace: {workspace}\n")
    (root / ".gitignore").write_text("__pycache__/\n")
    (root / "flows").mkdir()
    for steps in (FEW, MANY):
        _flow(root, f"agent{steps}", [f"{{prompt: Make it, makes: made_{step}.md}}" for step in range(steps)])
        shell = [
            f'{{kind: shell, run: [sh, -c, "echo made > $DOFLOW_MAKES"], makes: made_{step}.md}}'
            for step in range(steps)
        ]
        _flow(root, f"shell{steps}", shell)
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "All of it")):
        subprocess.run(("git", *words), cwd=root, env=env, check=True)
    return root, env


def _flow(root: Path, name: str, steps: list[str]) -> None:
    lines = [f"  step{number}: {text}" for number, text in enumerate(steps)]
    (root / "flows" / f"{name}.yaml").write_text("\n".join((f"flow: {name}", "steps:", *lines, "")))


def _run(flow: str, root: Path, env: dict[str, str]) -> float:
    """CPU seconds of a run from the start; the repository is as before when this returns."""
    return run_flow(flow, root, env)[0]


def run_flow(flow: str, root: Path, env: dict[str, str]) -> tuple[float, float]:
    """CPU and wall seconds of a run from the start; the repository is as before when this returns."""
    began = time.monotonic()
    spent = _cpu((str(PROGRAMS / "doflow"), "run", flow, "--new", f"--goal=bench {time.time_ns()}"), root, env)
    wall = time.monotonic() - began
    branch = subprocess.run(
        ("git", "branch", "--show-current"), cwd=root, env=env, capture_output=True, text=True, check=True
    )
    subprocess.run(("git", "switch", "-q", "-f", "main"), cwd=root, env=env, check=True)
    subprocess.run(("git", "branch", "-q", "-D", branch.stdout.strip()), cwd=root, env=env, check=True)
    return spent, wall


def _cpu(argv: tuple[str, ...], cwd: Path, env: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.fence", description="What the fence around agents costs.")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", default=None, help="where the repository is made")
    parser.add_argument(
        "--check", action="store_true", help=f"exit 1 if it is more than {TARGET:g} times in every round"
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
