"""The statuses in a session's `tasks.json`: what the book of the run knows, written down for people and programs."""

from __future__ import annotations

from doflow.flow import backlog, markdown as sections
from doflow.flow.model import Step
from doflow.runs.context import World
from doflow.runs.state.lockfile import Artifact
from doflow.util import atomic_files as files


def mark(step: Step, world: World, number: str = "", status: str = "") -> dict[str, Artifact]:
    """Bring the statuses up to date, one of them as it is said here; the file if it is a backlog, as the lock knows it."""
    path = world.phases(step)
    text = world.place.text(path) if sections.is_backlog(path) else None
    if text is None:
        return {}
    new = backlog.marked(text, _known(step, world, text, path) | ({number: status} if number else {}))
    if new != text:
        files.write(str(world.root / path), new.encode("utf-8", "surrogateescape"))
    held = world.book.artifacts.get(path) or Artifact("", "doflow", step.id)
    found = {path: Artifact(world.digest(path), held.author, held.step)}
    world.book.artifacts.update(found)
    return found


def recognise(world: World) -> None:
    """After a crash between the file and the lock: a backlog that differs from its draft by statuses only is ours."""
    for step in world.flow.steps:
        path = world.path(step.makes[0]) if step.kind == "install" else ""
        held = world.book.artifacts.get(path)
        if (
            held is None
            or held.author == "person"
            or not sections.is_backlog(path)
            or held.digest == world.digest(path)
        ):
            continue
        text, draft = world.place.text(path), world.place.text(world.path(step.reads[0].path))
        if text and draft and backlog.bare(text) == backlog.bare(draft):
            world.book.artifacts[path] = Artifact(world.digest(path), held.author, held.step)


def _known(step: Step, world: World, text: str, path: str) -> dict[str, str]:
    """Complete is what has a record; what failed stays so until it is tried again; ready is what has been looked into."""
    ready = _ready(step, world)
    found: dict[str, str] = {}
    for item in backlog.subtasks(backlog.parse(text, path)):
        name, now = item["id"], item["status"]
        if f"{step.id}:{name}" in world.book.steps:
            found[name] = backlog.COMPLETE
        elif now in (backlog.FAILED, "Obsolete"):
            found[name] = now
        else:
            found[name] = backlog.READY if name in ready else backlog.PLANNED
    return found


def _ready(step: Step, world: World) -> set[str]:
    """The subtasks for which every step over the same items is done."""
    over = [other for other in world.flow.steps if other.foreach == step.phases]
    parts = [
        {dict(item.params)["item_id"] for item in world.items(other) if item.id in world.book.steps} for other in over
    ]
    return set.intersection(*parts) if parts else set()
