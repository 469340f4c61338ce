"""Seating an orchestrator: its worktree, its style, its words, its session; and finding again what another runner began."""

from __future__ import annotations

import os
from collections.abc import Mapping

from doflow.flow.parsing import schema
from doflow.supervise import workspace as places
from doflow.supervise.panes import agent_pane as seat, programs, tmux
from doflow.supervise.panes.agent_pane import Seat
from doflow.supervise.panes.programs import Wish
from doflow.supervise.runner import assignment as assignments
from doflow.supervise.runner.assignment import Assignment
from doflow.supervise.workspace import Place
from doflow.util.errors import DoflowError, UsageError


def at(place: Place, node: str, number: int) -> Seat:
    """The n-th seat of a node, whether anybody sits there or not."""
    return Seat(place.tmux, tmux.session_of(node), place.node(node, "seats", str(number)))


def spawn(place: Place, assignment: Assignment, number: int, environ: Mapping[str, str]) -> Seat:
    """Start the orchestrator of a node in its session, with everything it has to know."""
    _refuse_foreign(place, assignment.node)
    _worktree(place, assignment)
    profile = places.profile(place.settings, assignment.agent, f"the node {assignment.node}")
    found = at(place, assignment.node, number)
    name, text = style(assignment.style, place.root, environ)
    variables = {
        "DOFLOW_PIPELINE": place.pipeline, "DOFLOW_NODE": assignment.node, "DOFLOW_STEP": assignment.node,
        "DOFLOW_ATTEMPT": str(assignment.attempt), "DOFLOW_ROLE": "orchestrator", "DOFLOW_SIGNALS": place.base,
    }  # fmt: skip
    wish = Wish(
        profile, assignments.prompt(assignment, programs.tells(profile.use)), found.folder, place.root,
        assignment.cwd, assignment.model, name, text, variables=variables,
    )  # fmt: skip
    marks = {"node": assignment.node, "pipeline": place.pipeline, "attempt": str(assignment.attempt)}
    seat.take(found, programs.start(wish, environ), marks)
    place.note(
        "runner", "orchestrator_spawned", node=assignment.node, session=found.session, attempt=assignment.attempt,
        seat=number, attach=place.tmux.attach(found.session),
    )  # fmt: skip
    return found


def style(name: str, root: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """An output style of the project or the person goes by its name; else the packaged one as text; ('', '') = none."""
    if not name:
        return "", ""
    homes = (root, environ.get("HOME", ""))
    if any(home and os.path.isfile(os.path.join(home, ".claude", "output-styles", f"{name}.md")) for home in homes):
        return name, ""
    path = schema.data("flows") / "styles" / f"{os.path.basename(name)}.md"
    if path.is_file():
        return name, path.read_text("utf-8")
    raise UsageError(
        f"there is no output style {name!r}",
        f"write .claude/output-styles/{name}.md, or choose another: `supervision.style` in doflow.yaml",
    )


def _refuse_foreign(place: Place, node: str) -> None:
    """`impl_auth` and `impl-auth` would share a session: the second is refused."""
    session = tmux.session_of(node)
    whose = place.tmux.mark(session, "node") if place.tmux.exists(session) else ""
    if whose and whose != node:
        raise UsageError(f"the session {session} belongs to the node {whose}", f"give {node} another name")


def _worktree(place: Place, assignment: Assignment) -> None:
    """The folder to work in. One that is not there becomes a git worktree on a branch of the node's own."""
    if os.path.isdir(assignment.cwd):
        return
    if not assignment.attributes.get("worktree"):
        raise UsageError(
            f"the node {assignment.node} is to work in {assignment.cwd}, which does not exist",
            "create it, or mend `target_dir`",
        )
    from doflow.git import repository as look
    from doflow.git.runner import Git

    branch = f"node/{assignment.node}"
    git = Git(look.find(place.root))
    known = git.call("rev-parse", "--verify", "-q", f"refs/heads/{branch}")[0] == 0
    git.run("worktree", "add", *(() if known else ("-b", branch)), assignment.cwd, *((branch,) if known else ()))


def head(folder: str) -> str:
    """The commit that is checked out there; '' = none."""
    from doflow.git import repository as look

    try:
        return str(look.find(folder).commit)
    except (DoflowError, OSError):
        return ""
