"""`doflow agents`: which agents there are, and whether each can do its work here."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from doflow.agents import probe as probing, registry
from doflow.agents.probe import Found
from doflow.cli.output import say, say_json, table
from doflow.config import project, settings
from doflow.flow.model import Profile
from doflow.util import records as light

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

ABOUT = "Which agents there are: installed? which version? do they know the flags that doflow relies on? logged in?"
EXAMPLES = """\
  doflow agents              the profiles of doflow.yaml, then the agents that no profile uses; calls no model
  doflow agents default      one profile, or one agent by its name
  doflow agents --probe      and lets each profile's agent answer one short question: this costs a few tokens
  doflow agents --json       for programs"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", help="only this profile or agent")
    parser.add_argument("--probe", action="store_true", help="one short real call for each profile: costs a few tokens")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def agents(args: Namespace) -> int:
    """1 if an agent of a profile cannot be used; an agent that nobody uses may well be missing."""
    root, mine, implied = _mine()
    others = [Profile("-", use) for use in registry.CLIS if use not in {profile.use for profile in mine}]
    wanted = [profile for profile in (*mine, *others) if args.name in ("", profile.name, profile.use)]
    if not wanted:
        from doflow.util.errors import UsageError

        raise UsageError(f"there is no profile and no agent {args.name!r}", "doflow agents   lists them")
    probed = {profile.name for profile in wanted if args.probe and (profile.name != "-" or args.name)}

    def ask(profile: Profile) -> Found:
        found = _housed(probing.look(profile, os.environ, root), profile, root)
        return probing.call(found, profile, os.environ) if profile.name in probed else found

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, wanted))
    _tell(found, args, implied)
    return 1 if any(one.problem and (one.profile != "-" or args.name) for one in found) else 0


def _housed(found: Found, profile: Profile, root: str) -> Found:
    """An agent whose sandbox cannot be had cannot be used: a run would refuse it."""
    if not profile.sandbox or found.problem:
        return found
    from doflow.guard import sandbox
    from doflow.util.errors import UsageError

    try:
        sandbox.probe(profile, root, os.environ)
    except UsageError as error:
        return light.replace(found, problem=error.message, hint=error.hint)
    return found


def _mine() -> tuple[str, tuple[Profile, ...], bool]:
    """The project's profiles, and whether `default` is one that nobody wrote down; outside of a project there are none."""
    root = project.find()
    if not project.begun(root):
        return str(root), (), False
    said = settings.load(root, os.environ)
    implied = any(name == "agents.default.use" and where == "default" for name, _, where in said.origins)
    return str(root), said.agents, implied


def _tell(found: list[Found], args: Namespace, implied: bool) -> None:
    if args.json:
        say_json({"agents": [{name: getattr(one, name) for name in light.names(Found)} for one in found]})
        return
    head = ("PROFILE", "AGENT", "VERSION", "FLAGS", "LOGIN", "")
    table([head, *(_cells(one, args.probe) for one in found)])
    for one in found:
        name = one.use if one.profile == "-" else one.profile
        if one.problem:
            say(f"\n{name}: {one.problem}\n  {one.hint}")
            if implied and name == "default":
                say("  doflow.yaml names no `default`, so this one does the steps that name no agent")
        elif one.hint:
            say(f"\n{name}: no login is to be seen (a key in its own configuration would not show)\n  {one.hint}")
    if args.probe and all(one.profile == "-" for one in found) and not args.name:
        say("\nnobody was asked anything: there is no project here, so no profile. doflow init   makes one")
        say("doflow agents claude --probe   asks an agent without a profile")
    if not args.probe and not all(one.problem for one in found):
        say("\ndoflow agents --probe   lets each profile's agent answer one short question")


def _cells(one: Found, probed: bool) -> tuple[str, ...]:
    flags = "-"
    if one.version:
        flags = f"{len(one.missing)} missing" if one.missing else "all" if not one.problem or one.login else "-"
    state = "cannot be used" if one.problem else f"answered {one.answered}" if one.answered else "is there"
    if one.answered == "rate limited":
        state = "is there, but rate limited"
    if one.profile == "-" and one.problem and not one.path:
        state = "not installed"
    version = one.version or "-"
    if one.version and one.tried and one.version != one.tried:
        version += f" (tried: {one.tried})"
    return (one.profile, one.use, version, flags, one.login or "-", state)
