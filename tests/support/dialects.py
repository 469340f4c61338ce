"""How the vendors' models are spoken to: Anthropic messages, OpenAI responses and chat, Gemini. As much as the CLIs need.

A dialect hears a request (the last prompt, how many tools were done since, which tools there are) and puts a deed into its
own words: text, or a call of the CLI's own tool for writing a file or running a command.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
Events = list[tuple[str, Any]]
Call = tuple[str, Body]


@dataclass(frozen=True, slots=True)
class Say:
    """The answer: its turn is over."""

    text: str


@dataclass(frozen=True, slots=True)
class Write:
    """Write a file, with the CLI's own tool for it."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Shell:
    """Run a command, with the CLI's own tool for it."""

    command: str


@dataclass(frozen=True, slots=True)
class Tool:
    """Any tool, as it is; of Codex also `namespace.name`."""

    name: str
    input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Together:
    """Several tools in one answer (Anthropic alone)."""

    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """An error of the API. `after`: seconds to wait, in its header; `resets`: seconds until a quota is there again; `says`: its
    words, where others than the usual ones matter."""

    status: int
    after: int = 0
    resets: int = 0
    says: str = ""


TEXTS = {
    400: ("invalid_request_error", "the request is not valid"),
    401: ("authentication_error", "invalid x-api-key"),
    429: ("rate_limit_error", "Number of request tokens has exceeded your per-minute rate limit"),
    500: ("api_error", "Internal server error"),
    503: ("overloaded_error", "The model is overloaded"),
    529: ("overloaded_error", "Overloaded"),
}


def headers(fail: Fail) -> dict[str, str]:
    found = {"retry-after": str(fail.after)} if fail.after else {}
    if fail.resets:
        at = str(int(time.time()) + fail.resets)
        found |= {
            "anthropic-ratelimit-unified-status": "rejected",
            "anthropic-ratelimit-unified-reset": at,
            "anthropic-ratelimit-unified-representative-claim": "five_hour",
        }
    return found


class Dialect:
    """What all of them share; `name` is the vendor's word for it."""

    name = ""

    def counted(self, tokens: int) -> Body:
        return {"input_tokens": tokens}

    def failed(self, fail: Fail) -> Body:
        kind, text = TEXTS[fail.status]
        return {"type": "error", "error": {"type": kind, "message": fail.says or text}}

    def hear(self, body: Body) -> tuple[str, int, tuple[str, ...]]:
        raise NotImplementedError

    def reply(self, body: Body, deed: Any, tools: tuple[str, ...], tokens: int) -> tuple[Body, Events]:
        raise NotImplementedError

    def call(self, deed: Any, tools: tuple[str, ...]) -> Call | None:
        """The CLI's tool and its input; None = the deed is only said."""
        if isinstance(deed, Tool):
            return deed.name, deed.input
        return None if isinstance(deed, Say) else self.tool(deed, tools)

    def tool(self, deed: Any, tools: tuple[str, ...]) -> Call:
        raise NotImplementedError


class Anthropic(Dialect):
    name = "anthropic"

    def hear(self, body: Body) -> tuple[str, int, tuple[str, ...]]:
        prompt, done = "", 0
        for message in body.get("messages", []):
            content = message["content"]
            if message["role"] != "user":
                continue
            said = _without(_texts(content), "system-reminder")
            done += sum(1 for part in content if part.get("type") == "tool_result") if isinstance(content, list) else 0
            if said.strip():
                prompt, done = said, 0
        return prompt.strip(), done, tuple(tool.get("name", "") for tool in body.get("tools", []))

    def tool(self, deed: Any, tools: tuple[str, ...]) -> Call:
        if isinstance(deed, Write):
            return "Write", {"file_path": deed.path, "content": deed.text}
        return "Bash", {"command": deed.command, "description": "a command"}

    def reply(self, body: Body, deed: Any, tools: tuple[str, ...], tokens: int) -> tuple[Body, Events]:
        calls = [self.call(one, tools) for one in (deed.tools if isinstance(deed, Together) else (deed,))]
        blocks: list[Body] = [
            {"type": "tool_use", "id": _new("toolu"), "name": call[0], "input": call[1]} for call in calls if call
        ]
        stop = "tool_use" if blocks else "end_turn"
        blocks = blocks or [{"type": "text", "text": getattr(deed, "text", "")}]
        used = {
            "input_tokens": tokens,
            "output_tokens": 20,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }
        whole = {
            "id": _new("msg"), "type": "message", "role": "assistant", "model": body.get("model"), "content": blocks,
            "stop_reason": stop, "stop_sequence": None, "usage": used,
        }  # fmt: skip
        events: list[Body] = [
            {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
            *(event for place, block in enumerate(blocks) for event in _block(place, block)),
            {
                "type": "message_delta",
                "delta": {"stop_reason": stop, "stop_sequence": None},
                "usage": {"output_tokens": 20},
            },
            {"type": "message_stop"},
        ]
        return whole, [(event["type"], event) for event in events]


def _block(place: int, block: Body) -> list[Body]:
    """One part of an answer as it is streamed."""
    started, part = {**block, "text": ""}, {"type": "text_delta", "text": block.get("text")}
    if block["type"] == "tool_use":
        started, part = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    return [
        {"type": "content_block_start", "index": place, "content_block": started},
        {"type": "content_block_delta", "index": place, "delta": part},
        {"type": "content_block_stop", "index": place},
    ]


class Responses(Dialect):
    name = "responses"

    def hear(self, body: Body) -> tuple[str, int, tuple[str, ...]]:
        prompt, done = "", 0
        for item in body.get("input", []):
            if item.get("type", "message") == "message" and item.get("role") == "user":
                said = _texts(item.get("content"))
                if not said.lstrip().startswith(
                    ("<environment_context>", "# AGENTS.md", "<user_instructions>", "<subagent_not")
                ):
                    prompt, done = said, 0
            elif str(item.get("type")).endswith("_call_output"):
                done += 1
        return prompt.strip(), done, tuple(tool.get("name") or tool.get("type") for tool in body.get("tools", []))

    def failed(self, fail: Fail) -> Body:
        if not fail.resets:
            return super().failed(fail)
        at = {"resets_at": int(time.time()) + fail.resets, "resets_in_seconds": fail.resets}
        said = {"type": "usage_limit_reached", "message": "The usage limit has been reached", "plan_type": "plus"}
        return {"error": said | at}

    def tool(self, deed: Any, tools: tuple[str, ...]) -> Call:
        words = deed.command if isinstance(deed, Shell) else f"cat > '{deed.path}' <<'END'\n{deed.text.rstrip()}\nEND"
        name = next((name for name in ("exec_command", "shell_command", "shell") if name in tools), "exec_command")
        said = {"exec_command": {"cmd": words}, "shell_command": {"command": words}}
        return name, said.get(name, {"command": ["bash", "-lc", words]})

    def reply(self, body: Body, deed: Any, tools: tuple[str, ...], tokens: int) -> tuple[Body, Events]:
        call, name = self.call(deed, tools), _new("item")
        item: Body = {"type": "message", "id": name, "role": "assistant", "status": "completed",
                      "content": [{"type": "output_text", "text": getattr(deed, "text", ""), "annotations": []}]}  # fmt: skip
        if call:
            space, _, plain = call[0].rpartition(".")
            item = {"type": "function_call", "id": name, "call_id": f"call_{name}", "name": plain,
                    "arguments": json.dumps(call[1]), "status": "completed"}  # fmt: skip
            item |= {"namespace": space} if space else {}
        used = {
            "input_tokens": tokens, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": tokens + 20,
        }  # fmt: skip
        whole = {"id": _new("resp"), "object": "response", "status": "completed", "model": body.get("model"),
                 "output": [item], "usage": used, "error": None}  # fmt: skip
        events: list[Body] = [
            {"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": whole},
        ]
        return whole, [(event["type"], event) for event in events]


class Chat(Dialect):
    name = "chat"

    def hear(self, body: Body) -> tuple[str, int, tuple[str, ...]]:
        prompt, done = "", 0
        for message in body.get("messages", []):
            if message["role"] == "user":
                prompt, done = _without(_texts(message["content"]), "system-reminder"), 0
            elif message["role"] == "tool":
                done += 1
        return prompt.strip(), done, tuple(tool.get("function", {}).get("name", "") for tool in body.get("tools", []))

    def tool(self, deed: Any, tools: tuple[str, ...]) -> Call:
        if isinstance(deed, Write):
            return "write", {"filePath": deed.path, "content": deed.text}
        return "bash", {"command": deed.command, "description": "a command"}

    def reply(self, body: Body, deed: Any, tools: tuple[str, ...], tokens: int) -> tuple[Body, Events]:
        call = self.call(deed, tools)
        message: Body = {"role": "assistant", "content": getattr(deed, "text", "")}
        if call:
            said = {"name": call[0], "arguments": json.dumps(call[1])}
            message = {"role": "assistant", "content": None,
                       "tool_calls": [{"index": 0, "id": _new("call"), "type": "function", "function": said}]}  # fmt: skip
        reason = "tool_calls" if call else "stop"
        used = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}
        base = {"id": _new("chat"), "created": int(time.time()), "model": body.get("model")}
        whole = {**base, "object": "chat.completion", "usage": used,
                 "choices": [{"index": 0, "message": message, "finish_reason": reason}]}  # fmt: skip
        chunk = {**base, "object": "chat.completion.chunk"}
        events: list[Any] = [
            {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {**chunk, "choices": [], "usage": used},
            "[DONE]",
        ]
        return whole, [("", event) for event in events]


class Gemini(Dialect):
    name = "gemini"
    STATES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}

    def counted(self, tokens: int) -> Body:
        return {"totalTokens": tokens}

    def failed(self, fail: Fail) -> Body:
        state = self.STATES.get(fail.status, "UNAVAILABLE")
        error: Body = {"code": fail.status, "message": fail.says or TEXTS[fail.status][1], "status": state}
        if fail.after:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            error["details"] = [{"@type": kind, "retryDelay": f"{fail.after}s"}]
        return {"error": error}

    def hear(self, body: Body) -> tuple[str, int, tuple[str, ...]]:
        prompt, done = "", 0
        for message in body.get("contents", []):
            if message.get("role") == "model":
                continue
            parts = message.get("parts", [])
            done += sum(1 for part in parts if "functionResponse" in part)
            said = _without("\n".join(part.get("text", "") for part in parts), "session_context")
            if said.strip():
                prompt, done = said, 0
        offered = [one for tool in body.get("tools", []) for one in tool.get("functionDeclarations", [])]
        return prompt.strip(), done, tuple(one.get("name", "") for one in offered)

    def tool(self, deed: Any, tools: tuple[str, ...]) -> Call:
        if isinstance(deed, Write):
            return "write_file", {"file_path": deed.path, "content": deed.text}
        return "run_shell_command", {"command": deed.command, "description": "a command"}

    def reply(self, body: Body, deed: Any, tools: tuple[str, ...], tokens: int) -> tuple[Body, Events]:
        call = self.call(deed, tools)
        part: Body = (
            {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": getattr(deed, "text", "")}
        )
        used = {"promptTokenCount": tokens, "candidatesTokenCount": 20, "totalTokenCount": tokens + 20}
        content = {"role": "model", "parts": [part]}
        whole = {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": used}
        return whole, [("", whole)]


def find(path: str) -> Dialect | None:
    """The dialect of an address."""
    plain = path.partition("?")[0]
    if "/messages" in plain:
        return Anthropic()
    if plain.endswith("/responses"):
        return Responses()
    if plain.endswith("/chat/completions"):
        return Chat()
    return Gemini() if re.search(r":\w+$", plain) else None


def _texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    kinds = ("text", "input_text", "output_text")
    return "\n".join(part.get("text", "") for part in content or [] if part.get("type") in kinds)


def _without(text: str, mark: str) -> str:
    """The text without what a CLI put in between for its model."""
    return re.sub(rf"<{mark}>.*?</{mark}>", "", text, flags=re.S)


def _new(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex[:16]}"
