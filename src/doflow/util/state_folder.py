"""The state folder of a project: its name, its layout, and creating it. Paths are relative to the project.

Imports little: every hook imports this.
"""

from __future__ import annotations

import os

from doflow.util import atomic_files

NAME = ".doflow"
RUNS = f"{NAME}/runs"
STORE = f"{NAME}/store"
QUARANTINE = f"{NAME}/quarantine"
STAMPS = f"{NAME}/stamps"
FLOWS_CACHE = f"{NAME}/flows.cache"
DOIT_DATABASE = f"{NAME}/state.db"
HOLDER = f"{NAME}/holder.json"
TASK_LIST = f"{NAME}/pipeline-tasks.md"
GUARDIAN = f"{NAME}/guardian"
DRIVERS = f"{NAME}/drivers"

#: a folder with one of these is a project
PROJECT_MARKS = ("doflow.yaml", "dodo.py", NAME)


def create(root: str | os.PathLike[str]) -> None:
    """Create the state folder of a project; its own .gitignore keeps it out of git."""
    create_ignored(os.path.join(root, NAME))


def create_ignored(folder: str) -> None:
    """Create a folder whose own .gitignore keeps it out of git."""
    ignore = os.path.join(folder, ".gitignore")
    if not os.path.exists(ignore):
        os.makedirs(folder, exist_ok=True)
        atomic_files.write_file(ignore, b"*\n", sync=False)
