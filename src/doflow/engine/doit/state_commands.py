"""doit's commands that show or change state, adapted to doflow projects: `list`, `info`, `forget`, `clean`, `ignore`,
`reset-dep`. Elsewhere they behave as doit's own."""

from __future__ import annotations

from typing import Any

from doit.cmd_base import check_tasks_exist, subtasks_iter
from doit.cmd_clean import Clean
from doit.cmd_forget import Forget
from doit.cmd_ignore import Ignore
from doit.cmd_info import Info
from doit.cmd_list import List
from doit.cmd_resetdep import ResetDep
from doit.exceptions import InvalidCommand

from doflow.engine.doit import namespace
from doflow.engine.doit.backend import UpToDate
from doflow.engine.doit.namespace import Bridge
from doflow.util import state_folder


class InProject:
    """Uses the project's settings, even if dodo.py sets DOIT_CONFIG below our line."""

    loader: Any
    bridge: Bridge | None = None
    writes = False

    def execute(self, params: Any, args: list[str]) -> Any:
        self.loader, self.bridge = namespace.load(self.loader, params)
        if self.bridge is not None and self.writes:
            state_folder.create(self.bridge.session.root)
        return super().execute(params, args)  # type: ignore[misc]


class FlowList(InProject, List):  # type: ignore[misc]
    name = "list"


class FlowInfo(InProject, Info):  # type: ignore[misc]
    name = "info"

    def _execute(self, pos_args: list[str], hide_status: bool = False) -> Any:
        known = {task.name for task in self.task_list}
        if self.bridge is not None and len(pos_args) == 1 and pos_args[0] not in known:
            raise InvalidCommand(f"'{pos_args[0]}' is not a task.")
        return super()._execute(pos_args, hide_status)


class FlowClean(InProject, Clean):  # type: ignore[misc]
    """A step's task has nothing to clean: artifacts are not by-products."""

    name = "clean"


class FlowIgnore(InProject, Ignore):  # type: ignore[misc]
    name = "ignore"
    writes = True


class FlowForget(InProject, Forget):  # type: ignore[misc]
    name = "forget"
    writes = True

    def _execute(self, forget_sub: bool, forget_disable_default: bool, forget_all: bool) -> Any:
        for task in self.task_list if forget_all and self.bridge is not None else ():
            self.dep_manager.remove(task.name)  # also those known only to doflow.lock, as in a fresh clone
        return super()._execute(forget_sub, forget_disable_default, forget_all)


class FlowResetDep(InProject, ResetDep):  # type: ignore[misc]
    """doit would record steps as up to date. For flows doflow.lock does that, written by a run: print the command to use."""

    name = "reset-dep"
    writes = True

    def _execute(self, pos_args: list[str] | None = None) -> Any:
        if self.bridge is None:
            return super()._execute(pos_args)
        tasks = {task.name: task for task in self.task_list}
        check_tasks_exist(tasks, pos_args)
        named = [tasks[name] for name in pos_args or ()] or [task for task in tasks.values() if not task.subtask_of]
        own = [task.name for task in named if task.name.partition(":")[0] not in self.bridge.options]
        if own:
            super()._execute(own)
        stale: dict[str, dict[str, None]] = {}
        for task in self._steps(named, tasks):
            done = self.dep_manager.get_status(task, tasks).status == "up-to-date"
            self.outstream.write(f"skip {task.name}\n" if done else f"failed {task.name} (recorded in doflow.lock)\n")
            if not done:
                flow, name = task.name.split(":")[:2]
                step = task.name.partition(":")[2]
                whole = self.bridge.session.works[flow].context.step(step) is None  # phases are marked as done together
                stale.setdefault(flow, {})[name if whole else step] = None
        for flow, steps in stale.items():
            self.outstream.write(f"mark as done with:\n  doit {flow} --completed={','.join(steps)}\n")
        self.dep_manager.close()
        return 1 if stale else 0

    def _steps(self, named: list[Any], tasks: dict[str, Any]) -> list[Any]:
        """The steps of started runs among these tasks and their subtasks that are on the route."""
        assert self.bridge is not None
        works = {flow: work for flow, work in self.bridge.session.works.items() if not work.context.run.fresh}
        every = {task.name: task for task in named}
        waiting = list(named)
        while waiting:
            more = [task for task in subtasks_iter(tasks, waiting.pop(0)) if task.name not in every]
            every |= {task.name: task for task in more}
            waiting += more
        flows = {name: name.partition(":")[0] for name in every}
        return [
            task for name, task in every.items()
            if flows[name] in works and any(isinstance(item, UpToDate) for item, *_ in task.uptodate)
            and name.split(":")[1] in works[flows[name]].context.order.active()
        ]  # fmt: skip
