"""A command of the project's own says whether the result is right: exit 0 = holds."""

from __future__ import annotations

import os
from collections.abc import Sequence

from doflow.flow.model import Step
from doflow.runs.context import World
from doflow.runs.state import fingerprint as keys
from doflow.util.process import environment, runner as process
from doflow.util.process.command import Command, Timeout


def check(step: Step, paths: Sequence[str], world: World) -> str:
    if not step.check.run:
        return ""
    argv = tuple(keys.substitute(word, world.params_of(step)) for word in step.check.run)
    log = str(world.state_dir / "logs" / f"{step.id}.check.log")
    extra = {"DOFLOW_RUN": world.run.name, "DOFLOW_RUN_DIR": str(world.run_dir), "DOFLOW_STEP": step.id}
    env = environment.for_shell(world.environ, extra | {"DOFLOW_MAKES": "\n".join(str(world.root / p) for p in paths)})
    if os.path.exists(log):
        os.unlink(log)
    result = process.run(Command(argv, env=env, cwd=str(world.root)), log, log, step.timeout or Timeout())
    if result.code == 0 and not result.stopped:
        return ""
    return f"{process.explain(result, argv)}\n{process.tail(log)}"
