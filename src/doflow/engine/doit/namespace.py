"""The namespace of a dodo.py: one task creator per flow, and doit settings merged with the user's."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from doit import task_params
from doit.cmd_base import DodoTaskLoader, ModuleTaskLoader
from doit.task import Task

from doflow.config import project
from doflow.engine.doit import tasks
from doflow.engine.doit.dependencies import checker
from doflow.engine.lifecycle.session import Session
from doflow.flow.parsing.syntax import COMMANDS
from doflow.util import state_folder

#: under this name the namespace of a dodo.py holds the `Bridge`
BRIDGE = "DOFLOW"
_CHECKER = "check_file_uptodate"
_LOST = "ignored: doflow stores doit's state in .doflow/state.db and runs in threads; the other settings apply"
_FLAGS = (
    ("run", str, "", "run name or number"),
    ("feature_dir", str, "", "the run's folder"),
    ("new", bool, False, "start a new run"),
    ("next", bool, False, "run only the next step that is not done"),
    ("force", str, "", "run these steps again: a,b"),
    ("redo", str, "", "run these phases again, also if their boxes are ticked: 1,2"),
    ("task", str, "", "do only this task of the task list: T014"),
    ("optional", bool, False, "do the optional tasks of the task list, too"),
    ("completed", str, "", "mark these steps as done: a,b"),
    ("reopen", bool, False, "continue a finished run, or continue on another branch"),
    ("issue", str, "", "the issue this run belongs to"),
    ("branch", str, "", "the branch of a new run"),
    ("agent", str, "", "the agent for all steps, overriding the flow"),
    ("budget", str, "", "total budget of the run, overriding the settings: 5, 500000tokens, none"),
    ("record", bool, False, "record every agent call: prompt, answer, changes and usage"),
    ("auto_approve", bool, False, "pass gates (never clarifications)"),
)


class Bridge:
    """Connects a dodo.py to doflow: the session, the options of each flow, and `DOIT_CONFIG`.

    The user's settings override our defaults but not what we require, wherever they are in dodo.py: those above our
    line are known when it runs; those below it replace ours, and our commands merge both (`load`).
    """

    def __init__(self, session: Session, above: object) -> None:
        self.session = session
        self.options: dict[str, list[dict[str, Any]]] = {}
        self._needed = {"backend": "doflow", "dep_file": str(session.root / state_folder.DOIT_DATABASE)}
        # doit says what is wrong with other types
        self.config: object = self._merged(above, "md5") if isinstance(above, dict) else above

    def settle(self, config: object, chosen: Any) -> object:
        """The effective `DOIT_CONFIG` if dodo.py ends with `config`; `chosen`: the file checker from other settings."""
        if isinstance(config, dict) and (config is not self.config or chosen != "md5"):
            self.config = self._merged(config, chosen)
        return self.config if isinstance(config, dict) else config

    def _merged(self, own: Mapping[str, Any], chosen: Any) -> dict[str, Any]:
        given = {name: value for name, value in own.items() if name not in self._needed}
        lost = [name for name in own if name in self._needed and own[name] != self._needed[name]]
        lost += ["par_type"] if own.get("par_type") == "process" else []
        words = f"DOIT_CONFIG in dodo.py: {', '.join(lost)}: {_LOST}" if lost else own.get("doflow_lost", "")
        if given.get("default_tasks", ()) is None:
            del given["default_tasks"]
        given[_CHECKER] = checker(chosen if chosen != "md5" else own.get(_CHECKER, chosen))
        return {"verbosity": 2, "default_tasks": [], **given, **self._needed, "doflow_lost": words}


def dodo_names(
    root: str | None, words: Sequence[str] | None = None, own: Mapping[str, Any] | None = None
) -> dict[str, object]:
    """The names for a dodo.py; `own`: its names so far."""
    folder = project.find(root)
    # the project folder moves to the end of the import path: a file planted there cannot shadow a library
    sys.path.sort(key=lambda path: path in {"", str(folder), os.getcwd()})
    session = Session(folder, os.environ)
    session.words = sys.argv[1:] if words is None else words
    bridge = Bridge(session, (own or {}).get("DOIT_CONFIG", {}))
    found: dict[str, object] = {"DOIT_CONFIG": bridge.config, BRIDGE: bridge}
    for name in session.project.about:
        bridge.options[name] = _options(session.project, name)
        found[f"task_{name}"] = task_params(bridge.options[name])(_creator(tasks.flow_tasks, session, name))
    for name in session.project.broken:
        if name.endswith(".yaml") or name in found:
            continue
        shown = f"{name}.yaml" if name in COMMANDS else name  # doit rejects a task named like a command
        found[f"task_{shown}"] = _creator(tasks.broken_flow, session, name, shown)
    return found


def _creator(build: Callable[..., Iterator[Task]], *args: Any) -> Callable[..., Iterator[Task]]:
    def create(**given: Any) -> Iterator[Task]:
        yield from build(*args, given)

    return create


def _options(opened: project.Project, flow: str) -> list[dict[str, Any]]:
    """The options of a flow, in doit's format."""
    texts = {"goal": "what to build"}
    for name, about, _, default in opened.params[flow]:
        texts.setdefault(name, f"{about} (default: {default})" if default else about)
    own = [{"name": name, "long": name, "type": str, "default": None, "help": text} for name, text in texts.items()]
    return own + [
        {"name": name, "long": name.replace("_", "-"), "type": kind, "default": default, "help": about}
        for name, kind, default, about in _FLAGS
    ]


def load(loader: Any, params: Any) -> tuple[Any, Bridge | None]:
    """Run dodo.py and merge its settings with ours; returns the loader for the rest of the command, and the bridge
    (None = not a doflow project)."""
    if type(loader) not in (DodoTaskLoader, ModuleTaskLoader):
        return loader, None
    loader.setup(params)
    names = dict(loader.namespace)
    bridge = names.get(BRIDGE)
    if isinstance(bridge, Bridge):
        names["DOIT_CONFIG"] = bridge.settle(names.get("DOIT_CONFIG", bridge.config), params.get(_CHECKER, "md5"))
    loaded = ModuleTaskLoader(names)
    loaded.cmd_names, loaded.config, loaded.task_opts = loader.cmd_names, loader.config, loader.task_opts
    if not isinstance(bridge, Bridge) or not isinstance(names["DOIT_CONFIG"], dict):
        return loaded, None
    if _CHECKER in params:
        params[_CHECKER] = names["DOIT_CONFIG"][_CHECKER]
    return loaded, bridge


def reorder_options(words: Sequence[str], doit_options: Sequence[Any], flow_options: Sequence[Any], flow: str) -> str:
    """The command with doit's options before the flow and the flow's after it; '' if one is unknown or all is right."""
    left = list(words)
    first: list[str] = []
    named: list[str] = []
    last: list[str] = []
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            named.append(word)
            continue
        known = [(last, option) for option in flow_options] + [(first, option) for option in doit_options]
        place, option = next((found for found in known if _names(found[1], word)), (first, None))
        if option is None:
            return ""
        place.append(word)
        alone = word == f"-{option.short}" or (word.startswith("--") and "=" not in word)
        if option.type is not bool and alone and left:  # its value is the next word
            place.append(left.pop(0))
    right = [*first, *(named or [flow]), *last]
    return f"doit {shlex.join(right)}" if right != list(words) and right[len(first)] else ""


def _names(option: Any, word: str) -> bool:
    if word.startswith("--"):
        return bool(word[2:].partition("=")[0] in (option.long, option.inverse) and word[2:])
    return bool(option.short) and word[1:].startswith(option.short)
