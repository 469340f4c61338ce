"""Environments of the tools: one with doflow, one with the same libraries without it, one with doit alone.

They are copies of what the running interpreter has installed, so nothing is downloaded and all use the same doit.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
_SCRIPT = """import sys
from {module} import main
if __name__ == '__main__':
    sys.exit(main())
"""


def build(folder: Path) -> dict[str, Path]:
    """The `bin` folders: `doflow`, `stock` (doflow's libraries, no doflow), `alone` (only doit)."""
    wanted = _closure("doflow")
    if "doflow" not in wanted:
        raise SystemExit(f"bench: doflow is not installed for {sys.executable}; in the checkout: pip install -e .")
    wanted.discard("doflow")
    return {
        "doflow": _environment(folder / "doflow", wanted, with_doflow=True),
        "stock": _environment(folder / "stock", wanted, with_doflow=False),
        "alone": _environment(folder / "alone", _closure("doit"), with_doflow=False),
    }


def variables(binary: Path, home: Path) -> dict[str, str]:
    """A clean environment, without the user's variables and settings."""
    return {
        "PATH": f"{binary}:{os.path.dirname(shutil.which('git') or '/usr/bin/git')}:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
    }


def _environment(folder: Path, libraries: set[str], with_doflow: bool) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in sorted(libraries):
        _copy(metadata.distribution(name), site)
    if with_doflow:
        _copy_doflow(site)
    compileall.compile_dir(site, quiet=2)
    binary = folder / "bin"
    _script(binary / "doit", "doit.__main__")
    if with_doflow:
        _script(binary / "doflow", "doflow.cli.main")
    return binary


def _closure(name: str) -> set[str]:
    """A distribution and its installed dependencies, without extras."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        known = ahead.pop()
        try:
            needs = metadata.distribution(known).requires or []
        except metadata.PackageNotFoundError:
            continue  # not for this platform, by its marker
        found.add(known)
        names = {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower() for line in needs if "extra ==" not in line}
        ahead += sorted(names - found)
    return found


def _copy(distribution: metadata.Distribution, site: Path) -> None:
    for file in distribution.files or ():
        if file.parts[0] == ".." or "__pycache__" in file.parts:
            continue
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file.locate(), target)


def _copy_doflow(site: Path) -> None:
    """As a wheel would install it, from this checkout."""
    shutil.copytree(CHECKOUT / "src/doflow", site / "doflow", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("flows", "schemas"):
        shutil.copytree(CHECKOUT / name, site / "doflow/_data" / name)
    held = metadata.distribution("doflow")
    folder = site / f"doflow-{held.version}.dist-info"
    folder.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (folder / name).write_text(held.read_text(name) or "", "utf-8")


def _script(path: Path, module: str) -> None:
    """The start script as the installer of this environment wrote it, for the new location."""
    held = Path(sys.executable).with_name(path.name)
    text = _SCRIPT.format(module=module)
    if held.exists() and held.read_bytes().startswith(b"#!"):
        text = held.read_text("utf-8").partition("\n")[2]
    path.write_text(f"#!{path.parent / 'python'}\n{text}")
    path.chmod(0o755)
