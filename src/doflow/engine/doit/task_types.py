"""doit's task and its up-to-date object, as ours: a task that a router can steer, a judgement that speaks in words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from doit.action import BaseAction
from doit.exceptions import BaseFail, TaskError
from doit.task import Task

if TYPE_CHECKING:
    from doflow.engine.lifecycle.session import Work
    from doflow.flow.plan import Node


IO = {"capture": False}
Rest = Callable[[], dict[str, Any]]


class FlowTask(Task):  # type: ignore[misc]
    """A task that learns from a router's answer what it waits for."""

    ahead: Callable[[Mapping[str, Any]], Mapping[str, Any]]

    def update_deps(self, deps: Mapping[str, Any]) -> None:
        super().update_deps(self.ahead(deps) if "order" in deps and hasattr(self, "ahead") else deps)


class Outline(FlowTask):
    """A task of which only the name is known, what it waits for and what it makes: as much as doit looks at in all of them
    before the first one runs. The rest of it is made when doit turns to it."""

    def __init__(
        self, name: str, group: str, waits: tuple[list[str], set[str]], targets: list[str], rest: Rest
    ) -> None:
        self.name = name
        self.subtask_of = group
        self.task_dep, self.calc_dep = waits
        self.targets = targets
        self.file_dep: set[str] = set()
        self.wild_dep: list[str] = []
        self.setup_tasks: list[str] = []
        self._rest = rest

    def __getattr__(self, name: str) -> Any:
        rest = self.__dict__.pop("_rest", None)
        if rest is None:
            raise AttributeError(name)
        self.__dict__ = {**rest(), **self.__dict__}
        return getattr(self, name)


def rest(first: FlowTask, **own: Any) -> dict[str, Any]:
    """The attributes of a task like the first one: what doit has checked of that it need not check again."""
    return {
        **first.__dict__,
        "creator_params": [],
        "value_savers": [],
        "values": {},
        **own,
    }


class Deed(BaseAction):  # type: ignore[misc]
    """What a task does: answers None, values, or how it failed. (doit's own action asks for a signature every time.)"""

    def __init__(self, act: Callable[[], object]) -> None:
        self.task: Task | None = None
        self.out = self.err = None
        self.result: dict[str, Any] | None = None
        self.values: dict[str, Any] = {}
        self._act = act

    def execute(self, out: object = None, err: object = None) -> BaseFail | None:
        try:
            said = self._act()
        except Exception as error:
            return TaskError(f"{self} broke", error)
        if isinstance(said, BaseFail):
            return said
        if isinstance(said, dict):
            self.values = self.result = said
        return None

    def __str__(self) -> str:
        return f"doflow: {self.task.name if self.task else 'a step'}"


class Fresh:
    """The one up-to-date object of a task; doit calls it, `doit info` prints it."""

    __signature__ = inspect.signature(lambda task, values: None)  # doit asks for it at every call

    def __init__(self, judge: Callable[[Mapping[str, Any]], tuple[str, ...]]) -> None:
        self._judge = judge
        self._reasons: tuple[str, ...] = ()

    def __call__(self, task: Any, values: Mapping[str, Any]) -> bool:
        self._reasons = self._judge(values)
        return not self._reasons

    def __repr__(self) -> str:
        return f"stale: {'; '.join(self._reasons)}" if self._reasons else "up to date"


def ahead(work: Work, node: Node) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """What a step behind a router waits for, once the router has said which steps run."""

    def deps(said: Mapping[str, Any]) -> Mapping[str, Any]:
        plan = work.world.plan
        order: list[str] = list(said["order"])
        turns = [name for name in order[order.index(said["router"]) + 1 :] if name in plan.routes]
        if node.step not in order:  # the next router may still name it
            return {"calc_dep": [plan.ends[name] for name in turns[:1]]}
        from doflow.flow import plan as plans

        later = [name for name in turns if order.index(name) < order.index(node.step)]
        if later:
            return {"calc_dep": [plan.ends[later[-1]]]}
        before = plans.follows(plan, order)[node.step]
        return {"task_dep": [plan.ends[name] for name in before if plan.ends[name] != plan.ends[said["router"]]]}

    return deps
