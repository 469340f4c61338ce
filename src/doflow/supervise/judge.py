"""Ask an agent for a judgement: what a pane shows, how to answer a question, whether work is good. Read-only.

Only an answer in the requested form counts; anything else, or no answer, means that it cannot tell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from doflow.agents import registry
from doflow.flow import markdown
from doflow.flow.model import Ask, Profile
from doflow.supervise import pipeline_context
from doflow.supervise.pipeline_context import PipelineContext
from doflow.supervise.signal_store import safe_name
from doflow.util import timestamps
from doflow.util.errors import UsageError
from doflow.util.process import runner
from doflow.util.process.runner import Timeout

LIMIT = Timeout(300.0, 600.0)
TAIL = 4000
CANNOT = "CANNOT-TELL"

_RULES = """\
You only judge: change no file and start nothing. Look at files of the project if you need to.
If you are not sure, say so: a person will then be asked. End your answer with exactly one line, one of:
"""


def decide(
    context: PipelineContext, name: str, node: str, token: str, question: str, words: Mapping[str, str]
) -> tuple[str, str]:
    """One of the `words` (word → meaning) and the text after it; CANNOT-TELL if the judge doesn't give one.

    The answer is saved, so that the same question is not paid for twice.
    """
    known = {**words, CANNOT: "why"}
    lines = [f"DECISION: {word} {means}".rstrip() for word, means in known.items()]
    text = ask_agent(context, name, node, token, f"{question}\n\n{_RULES}" + "\n".join(lines) + "\n")
    plain = [line for raw in markdown.answer_lines(text) if (line := raw.strip("*`_-+[] \t"))]
    said = list(dict.fromkeys(line for line in plain if line.startswith("DECISION:")))
    if not plain or plain[-1] not in said:
        return CANNOT, text.strip()[-500:] or "the judge did not answer"
    word, _, rest = plain[-1].removeprefix("DECISION:").strip().partition(" ")
    return (word, rest) if word in known and len(said) == 1 else (CANNOT, "; ".join(said))


def closing_question(context: PipelineContext, name: str, node: str, turn: str, message: str) -> str:
    """The question at the end of an orchestrator's message; '' = none. A judge decides, if there is one."""
    last = message.strip().rpartition("\n")[2].strip()
    if "?" not in message[-300:]:
        return ""
    if not name:
        return last if last.endswith("?") else ""
    question = f"An orchestrator ended its turn with this message:\n\n{message[-TAIL:]}\n\nWhat does it mean?"
    word, rest = decide(context, name, node, f"turn.{turn}", question, {"DONE": "", "QUESTION": "the question"})
    return "" if word == "DONE" else rest or last if word == "QUESTION" else message.strip()[-TAIL:]


def ask_agent(context: PipelineContext, name: str, node: str, token: str, prompt: str, role: str = "judge") -> str:
    """The final message of the agent; '' = it failed."""
    path = context.node(node, f"{role}-{safe_name(token)}.json")
    kept = pipeline_context.load(path)
    if not kept:
        profile = pipeline_context.find_profile(context.settings, name, f"the {role} of {node}")
        text, reason = _call(context, profile, node, prompt, role, path.removesuffix(".json"))
        kept = {"text": text, "reason": reason, "by": name, "at": timestamps.format_microseconds()}
        if not reason:
            pipeline_context.save(path, kept)
        context.note("guardian", role, node=node, by=name, reason=reason, log=path)
    return str(kept.get("text", ""))


def _call(context: PipelineContext, profile: Profile, node: str, prompt: str, role: str, log: str) -> tuple[str, str]:
    if profile.sandbox:
        hint = "use a profile without a sandbox; a judge can only read"
        raise UsageError(f"agents.{profile.name}: a {role} cannot run in a sandbox", hint)
    os.makedirs(os.path.dirname(log), exist_ok=True)
    seen = with_mcp_servers(profile, context.root)
    ask = Ask(
        node, prompt, seen, context.root, context.pipeline, context.node(node), seen.model, role, read_only=True,
        persona="guardian",
    )  # fmt: skip
    adapter = registry.find_agent(seen.use)
    out, err = f"{log}.log", f"{log}.err.log"
    for path in (out, err):
        if os.path.exists(path):
            os.unlink(path)
    result = runner.run(adapter.call(ask, os.environ), out, err, LIMIT)
    outcome = adapter.outcome(ask, result, lambda: runner.tail(out, 200_000))
    error = markdown.reported_error(outcome.text) if outcome.ok else outcome.reason or outcome.status.value
    return ("", error) if error else (outcome.text, "")


def with_mcp_servers(profile: Profile, root: str) -> Profile:
    """The profile with the project's MCP servers; its call is read-only, so it gets no tool that writes."""
    servers = pipeline_context.load(os.path.join(root, ".mcp.json")).get("mcpServers")
    if profile.use != "claude" or not isinstance(servers, dict) or not servers:
        return profile
    names = ",".join(f"mcp__{name}" for name in servers)
    more = ("--mcp-config", os.path.join(root, ".mcp.json"), "--allowedTools", names)
    return replace(profile, args=(*profile.args, *more))
