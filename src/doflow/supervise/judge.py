"""Asking an agent to judge: what a pane means, how to answer a question, whether work is good. It may look and never write.

Its answer counts only in the words that were asked for; anything else, and no answer at all, means that it cannot tell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from doflow.agents import registry
from doflow.flow.model import Ask, Profile
from doflow.supervise import workspace as places
from doflow.supervise.workspace import Place
from doflow.util.errors import UsageError
from doflow.util.process import runner as process
from doflow.util.process.command import Timeout
from doflow.util.records import regex, replace

LIMIT = Timeout(300.0, 600.0)
CANNOT = "CANNOT-TELL"
_SAFE = regex(r"[^\w.-]+")

_RULES = """\
You only judge: change no file and start nothing. Look at files of the project if you need to.
If you are not sure, say so: a person will then be asked. End your answer with exactly one line, one of:
"""


def decide(place: Place, name: str, node: str, token: str, question: str, words: Mapping[str, str]) -> tuple[str, str]:
    """One of the `words` (word → what it means) and what the judge wrote behind it; CANNOT-TELL if it does not say.

    The answer is kept, so that the same question is not paid for twice.
    """
    known = {**words, CANNOT: "why"}
    lines = [f"DECISION: {word} {means}".rstrip() for word, means in known.items()]
    text = said(place, name, node, token, f"{question}\n\n{_RULES}" + "\n".join(lines) + "\n")
    for line in reversed(text.splitlines()):
        clean = line.strip().strip("*`_ ")
        if clean.startswith("DECISION:"):
            word, _, rest = clean.removeprefix("DECISION:").strip().partition(" ")
            return (word, rest.strip()) if word in known else (CANNOT, clean)
    return CANNOT, text.strip()[-500:] or "the judge did not answer"


def said(place: Place, name: str, node: str, token: str, prompt: str, role: str = "judge") -> str:
    """The last words of the judge; '' = it failed."""
    path = place.node(node, f"{role}-{_SAFE.sub('_', token)}.json")
    kept = places.load(path)
    if not kept:
        profile = places.profile(place.settings, name, f"the {role} of {node}")
        text, reason = _call(place, profile, node, prompt, role, path.removesuffix(".json"))
        kept = {"text": text, "reason": reason, "by": name, "at": places.now()}
        if not reason:
            places.save(path, kept)
        place.note("guardian", role, node=node, by=name, reason=reason, log=path)
    return str(kept.get("text", ""))


def _call(place: Place, profile: Profile, node: str, prompt: str, role: str, log: str) -> tuple[str, str]:
    if profile.sandbox:
        hint = "name a profile without a sandbox; a judge can only read"
        raise UsageError(f"agents.{profile.name}: a {role} does not work in a sandbox", hint)
    os.makedirs(os.path.dirname(log), exist_ok=True)
    seen = looking(profile, place.root)
    ask = Ask(
        node, prompt, seen, place.root, place.pipeline, place.node(node), seen.model, role, read_only=True,
        persona="guardian",
    )  # fmt: skip
    adapter = registry.find(seen.use)
    out, err = f"{log}.log", f"{log}.err.log"
    for path in (out, err):
        if os.path.exists(path):
            os.unlink(path)
    result = process.run(adapter.call(ask, os.environ), out, err, LIMIT)
    outcome = adapter.outcome(ask, result, lambda: process.tail(out, 200_000))
    return (outcome.text, "") if outcome.ok else ("", outcome.reason or outcome.status.value)


def looking(profile: Profile, root: str) -> Profile:
    """A profile that sees the project's MCP servers; it gets no tool that writes (its call is read-only)."""
    servers = places.load(os.path.join(root, ".mcp.json")).get("mcpServers")
    if profile.use != "claude" or not isinstance(servers, dict) or not servers:
        return profile
    names = ",".join(f"mcp__{name}" for name in servers)
    more = ("--mcp-config", os.path.join(root, ".mcp.json"), "--allowedTools", names)
    return replace(profile, args=(*profile.args, *more))
