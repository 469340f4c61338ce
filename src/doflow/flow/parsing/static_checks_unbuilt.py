"""What a flow may say and this version cannot do yet: refused before a run begins, never passed over.

A review that does not happen must not look like one that went well, nor a limit that nobody keeps like one that is.
"""

from __future__ import annotations

from collections.abc import Iterator

from doflow.flow.model import Flow, Step
from doflow.util.errors import UsageError


def refuse(flow: Flow) -> None:
    """Raises with everything that is asked for in vain."""
    found = [
        f"{step.origin.file}:{step.origin.line}:{step.origin.column}: step {step.id}: {words}"
        for step in flow.steps
        for words in _of_step(step)
    ]
    if found:
        raise UsageError("\n".join(found), "this version of doflow cannot do that yet: leave it out, then run again")


def _of_step(step: Step) -> Iterator[str]:
    if step.foreach and step.kind not in ("agent", "shell"):
        yield f"`foreach`: a step of kind {step.kind} cannot be done once per item yet"
