"""The vendors' CLIs for the tests: which versions, where they are, and how each is pointed at a model on loopback.

    python -m tests.support.clis      installs what is missing and prints the folder (what .ci/run does)

The versions are those that the adapters say they were tried with. The folder is kept between runs; tests look for it in
`DOFLOW_TEST_CLIS` and are skipped, with the reason, where it is not set.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.support.model import Model
from tests.support.project import Project

from doflow.agents.adapters import claude, codex, gemini, opencode
from doflow.agents.adapters.vendor_cli import Program

VARIABLE = "DOFLOW_TEST_CLIS"
PROGRAMS: dict[str, Program] = {module.NAME: module.PROGRAM for module in (claude, codex, opencode, gemini)}
MODELS = {"claude": "sonnet", "codex": "gpt-5", "opencode": "scripted/model", "gemini": "gemini-2.5-pro"}
KEY = "a-key-of-the-tests"


def folder() -> Path:
    """Where the CLIs are kept: the variable, else the person's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(os.environ.get(VARIABLE) or os.path.join(cache, "doflow", "clis"))


def executable(name: str) -> Path:
    return folder() / f"{name}-{PROGRAMS[name].tried}" / "node_modules" / ".bin" / name


def missing(name: str) -> str:
    """Why the tests of a CLI cannot run; '' = they can."""
    if not os.environ.get(VARIABLE):
        return f"{VARIABLE} is not set: `python -m tests.support.clis` installs the CLIs and says what to set it to"
    if not executable(name).exists():
        return f"{name} {PROGRAMS[name].tried} is not in {folder()}: `python -m tests.support.clis` installs it"
    return ""


def needed(*names: str) -> pytest.MarkDecorator:
    """A mark: these CLIs, or the test is skipped with the reason."""
    reason = next((why for name in names if (why := missing(name))), "")
    return pytest.mark.skipif(bool(reason), reason=reason)


def cases(*names: str) -> list[object]:
    """Every CLI as a parameter; one that is not there is skipped with the reason."""
    return [pytest.param(name, marks=needed(name)) for name in names or tuple(PROGRAMS)]


def use(project: Project, name: str, model: Model, settings: str = "") -> None:
    """Let a CLI do the steps of a project, with this model and nothing else in reach."""
    litter = project.home / "tmp"
    litter.mkdir(exist_ok=True)
    project.env |= variables(name, model.url, project.home) | NOWHERE | {"TMPDIR": str(litter)}
    profile = f"{{use: {name}, model: {MODELS[name]}, executable: {executable(name)}}}"
    project.write("doflow.yaml", f"agents:\n  default: {profile}\n{textwrap.dedent(settings)}")
    project.commit("Another agent")


def variables(name: str, url: str, home: Path) -> dict[str, str]:
    """What points a CLI at the model on loopback; some want a file in their home."""
    if name == "claude":
        return {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url}
    if name == "codex":
        (home / ".codex").mkdir(parents=True, exist_ok=True)
        (home / ".codex" / "config.toml").write_text(CODEX.format(url=url))
        return {"OPENAI_API_KEY": KEY}
    if name == "gemini":
        (home / ".gemini").mkdir(parents=True, exist_ok=True)
        (home / ".gemini" / "settings.json").write_text(json.dumps(GEMINI))
        return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url}
    options = {"baseURL": f"{url}/v1", "apiKey": KEY}
    model = {"name": "Scripted", "limit": {"context": 128000, "output": 8000}, "cost": {"input": 3, "output": 15}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Scripted", "options": options, "models": {"model": model}}
    config = OPENCODE | {"provider": {"scripted": provider}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}


#: whatever is not on loopback goes to a port where no one listens
NOWHERE = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
}
CODEX = """\
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 1
stream_max_retries = 1
"""
GEMINI = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "maxAttempts": 2},
}
OPENCODE = {
    "autoupdate": False, "snapshot": False, "share": "disabled", "enabled_providers": ["scripted"],
    "model": "scripted/model", "small_model": "scripted/model",
}  # fmt: skip


def install(name: str) -> None:
    """One CLI into a folder of its own, whole or not at all."""
    target, program = folder() / f"{name}-{PROGRAMS[name].tried}", PROGRAMS[name]
    part = target.with_name(f"{target.name}.{os.getpid()}")
    part.mkdir(parents=True)
    words = ("npm", "install", "--prefix", ".", "--no-audit", "--no-fund", "--loglevel=error")
    subprocess.run((*words, f"{program.package}@{program.tried}"), cwd=part, check=True, timeout=600, stdout=sys.stderr)
    version = (str(part / "node_modules" / ".bin" / name), "--version")
    told = subprocess.run(version, capture_output=True, text=True, timeout=60, check=True).stdout
    if program.tried not in told:
        raise ValueError(f"it says {told.strip()!r}, not {program.tried}")
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)


def main() -> int:
    wanted = [name for name in PROGRAMS if not executable(name).exists()]
    if wanted and not shutil.which("npm"):
        print(f"no npm, so {', '.join(wanted)} cannot be installed; their tests are skipped", file=sys.stderr)
        wanted = []
    for name in wanted:
        try:
            install(name)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            print(f"{name} could not be installed, its tests are skipped: {error}", file=sys.stderr)
    print(folder())
    return 0


if __name__ == "__main__":
    sys.exit(main())
