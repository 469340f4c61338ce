"""`doflow agents`: list the agents and whether each is usable here."""

from __future__ import annotations

import dataclasses
import os
from argparse import ArgumentParser, Namespace
from concurrent.futures import ThreadPoolExecutor

from doflow.agents import probe, registry
from doflow.agents.probe import AgentStatus
from doflow.cli.output import say, say_json, table
from doflow.config import project, settings
from doflow.flow.model import Profile
from doflow.guard import sandbox
from doflow.util.errors import UsageError

ABOUT = "List the agents: installed, version, support for the flags doflow needs, login."
EXAMPLES = """\
  doflow agents              profiles in doflow.yaml, then other supported agents; calls no model
  doflow agents default      one profile, or one agent by its name
  doflow agents --probe      and sends one short question to each profile's agent (costs a few tokens)
  doflow agents --json       for programs"""


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", help="only this profile or agent")
    about = "send one short question to each profile's agent (costs a few tokens)"
    parser.add_argument("--probe", action="store_true", help=about)
    parser.add_argument("--json", action="store_true", help="one JSON document")


def agents(args: Namespace) -> int:
    """Exit code 1 if an agent of a profile is not usable; unused agents may be missing."""
    root, profiles, implied = _profiles()
    others = [Profile("-", use) for use in registry.CLIS if use not in {profile.use for profile in profiles}]
    wanted = [profile for profile in (*profiles, *others) if args.name in ("", profile.name, profile.use)]
    if not wanted:
        raise UsageError(f"no profile or agent is named {args.name!r}", "doflow agents   lists them")
    probed = {profile.name for profile in wanted if args.probe and (profile.name != "-" or args.name)}

    def ask(profile: Profile) -> AgentStatus:
        found = probe.inspect_agent(profile, os.environ, root)
        if profile.sandbox and not found.problem:  # a run would refuse the agent without its sandbox
            try:
                sandbox.probe(profile, root, os.environ)
            except UsageError as error:
                found = dataclasses.replace(found, problem=error.message, hint=error.hint)
        return probe.make_test_call(found, profile, os.environ) if profile.name in probed else found

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, wanted))
    _tell(found, args, implied)
    return 1 if any(one.problem and (one.profile != "-" or args.name) for one in found) else 0


def _profiles() -> tuple[str, tuple[Profile, ...], bool]:
    """The project's profiles, and whether `default` is implied; none outside a project."""
    root = project.find()
    if not project.is_project(root):
        return str(root), (), False
    chosen = settings.load(root, os.environ)
    implied = any(name == "agents.default.use" and where == "default" for name, _, where in chosen.origins)
    return str(root), chosen.agents, implied


def _tell(found: list[AgentStatus], args: Namespace, implied: bool) -> None:
    if args.json:
        say_json({"agents": [dataclasses.asdict(one) for one in found]})
        return
    table([("PROFILE", "AGENT", "VERSION", "FLAGS", "LOGIN", ""), *(_cells(one) for one in found)])
    for one in found:
        name = one.use if one.profile == "-" else one.profile
        if one.problem:
            say(f"\n{name}: {one.problem}\n  {one.hint}")
            if implied and name == "default":
                say("  doflow.yaml defines no `default`, so this agent does the steps that name none")
        elif one.hint:
            say(f"\n{name}: no login found (a key in its own configuration is not visible to doflow)\n  {one.hint}")
    if args.probe and all(one.profile == "-" for one in found) and not args.name:
        say("\nnothing was called: this is not a doflow project, so it has no profiles. doflow init   creates one")
        say("doflow agents claude --probe   calls an agent without a profile")
    if not args.probe and not all(one.problem for one in found):
        say("\ndoflow agents --probe   sends one short question to each profile's agent")


def _cells(one: AgentStatus) -> tuple[str, ...]:
    flags = "-"
    if one.version:
        flags = f"{len(one.missing)} missing" if one.missing else "all" if not one.problem or one.login else "-"
    state = "cannot be used" if one.problem else f"answered {one.answered}" if one.answered else "is there"
    if one.answered == "rate limited":
        state = "installed, but rate limited"
    if one.profile == "-" and one.problem and not one.path:
        state = "not installed"
    version = one.version or "-"
    if one.version and one.tried and one.version != one.tried:
        version += f" (tested: {one.tried})"
    return (one.profile, one.use, version, flags, one.login or "-", state)
