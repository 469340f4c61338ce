"""A program: what doit and the keys of doflow say about every step of a flow, in the project where it is started.

    python doit_statuses.py FLOW

Prints a JSON list in the order of the tasks: `task`, `active` (on the route), `doit` (up-to-date, run, error), `key` (why
the step is out of date by its key alone), `file_dep`, `targets`, `changed` (files that doit names as changed, new or gone).
"""

from __future__ import annotations

import json
import sys
from typing import Any

from doit import Globals
from doit.cmd_base import ModuleTaskLoader
from doit.control import TaskControl
from doit.dependency import Dependency
from doit.loader import load_tasks

from doflow.engine.doit import namespace
from doflow.engine.doit.backend import Backend
from doflow.runs import freshness
from doflow.runs.context import RunContext


def statuses(flow: str) -> list[dict[str, Any]]:
    loader, bridge = namespace.load(ModuleTaskLoader(namespace.dodo_names(None)), {})
    assert bridge is not None
    config = loader.load_doit_config()
    manager = Globals.dep_manager = Dependency(
        Backend, config["dep_file"], checker_cls=config["check_file_uptodate"]
    )  # fmt: skip
    tasks = TaskControl(load_tasks(loader.namespace)).tasks
    context = bridge.session.works[flow].context
    found = []
    for task in tasks.values():
        name = task.name.removeprefix(f"{flow}:")
        if name == task.name or not task.actions or name.endswith((".gate", ".clarify", ".route")):
            continue
        status = manager.get_status(task, tasks, get_log=True)
        names = ("changed_file_dep", "added_file_dep", "removed_file_dep")
        changed = {path for reason in names for path in status.reasons.get(reason, ())}
        active = name.partition(":")[0] in context.order.active()
        found.append({
            "task": name, "active": active, "doit": status.status, "key": _reasons(name, context),
            "file_dep": sorted(task.file_dep), "targets": sorted(task.targets), "changed": sorted(changed),
        })  # fmt: skip
    return found


def _reasons(name: str, context: RunContext) -> list[str]:
    step = context.step(name)
    if step is not None:
        return list(freshness.step_freshness(step, context).reasons)
    step = context.flow.step(name.partition(":")[0])
    assert step is not None
    phases = {phase.number: (phase, key) for phase, key in freshness.phase_keys(step, context)}
    return list(freshness.phase_freshness(step, *phases[name.partition(":")[2]], context).reasons)


if __name__ == "__main__":
    print(json.dumps(statuses(sys.argv[1])))
