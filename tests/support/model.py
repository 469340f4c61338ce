"""A scripted model on loopback: the vendors' CLIs talk to it as to the real one, and it answers by a scenario.

    with Model(play(Write("a.txt", "hello"), Shell("cp a.txt b.txt"), Say("done"))) as model:
        ...                                   # point a CLI at model.url
    assert model.heard[0].prompt == "…"

A scenario is a function of what was heard: which prompt, how many tools were done since. Requests that offer no tool (a
title, a count of tokens) are answered without it. One thread per request; all of them end with the block.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from tests.support import dialects
from tests.support.dialects import Fail, Say, Shell, Together, Tool, Write

__all__ = [
    "Drop",
    "Fail",
    "Garbage",
    "Hang",
    "Heard",
    "Model",
    "Say",
    "Shell",
    "Together",
    "Tool",
    "Write",
    "first",
    "play",
]


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer; `midway`: after the first bytes of one."""

    midway: bool = False


@dataclass(frozen=True, slots=True)
class Garbage:
    """An answer that is none."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The line breaks."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One request. `prompt` is the last thing a person (or doflow) said, `done` how many tools were done since."""

    dialect: str
    prompt: str
    done: int
    tools: tuple[str, ...]
    raw: str
    headers: Mapping[str, str]


Deed = Say | Write | Shell | Tool | Together | Fail | Hang | Garbage | Drop
Scenario = Callable[[Heard], Deed]


def play(*deeds: Deed) -> Scenario:
    """One deed after the other for every prompt; the last one for all that comes later."""
    return lambda heard: deeds[min(heard.done, len(deeds) - 1)]


def first(count: int, deed: Deed, then: Scenario) -> Scenario:
    """The same deed for the first requests, then the rest."""
    seen: list[None] = []

    def scenario(heard: Heard) -> Deed:
        seen.append(None)
        return deed if len(seen) <= count else then(heard)

    return scenario


class Model:
    """The server; `heard` keeps every request that the scenario answered."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.heard: list[Heard] = []
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.model = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Model:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def prompts(self) -> list[str]:
        """What was said to it, each prompt once."""
        said = [heard.prompt for heard in self.heard]
        return [prompt for place, prompt in enumerate(said) if place == 0 or prompt != said[place - 1]]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A CLI that was killed in the middle of a request is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._json({})

    def do_GET(self) -> None:
        self._json({"object": "list", "data": [], "models": [], "has_more": False})

    def do_POST(self) -> None:
        raw = self._body()
        dialect = dialects.find(self.path)
        body = json.loads(raw or b"{}")
        try:
            if dialect is None:
                self._json({"error": {"message": f"nothing is here: {self.path}"}}, 404)
            elif "count" in self.path.lower():
                self._json(dialect.counted(len(raw) // 4))
            else:
                self._answer(dialect, body, raw.decode("utf-8", "replace"))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer(self, dialect: dialects.Dialect, body: dict[str, Any], raw: str) -> None:
        model: Model = self.server.model  # type: ignore[attr-defined]
        prompt, done, tools = dialect.hear(body)
        heard = Heard(dialect.name, prompt, done, tools, raw, dict(self.headers.items()))
        deed: Deed = Say("A title")
        if tools:
            model.heard.append(heard)
            deed = model.scenario(heard)
        if isinstance(deed, Fail):
            self._json(dialect.failed(deed), deed.status, dialects.headers(deed))
        elif isinstance(deed, Drop):
            self.close_connection = True
            self.connection.close()
        elif isinstance(deed, (Hang, Garbage)):
            self._silent(deed)
        else:
            stream = body.get("stream") or "stream" in self.path.lower()
            whole, events = dialect.reply(body, deed, tools, len(raw) // 4)
            self._events(events) if stream else self._json(whole)

    def _silent(self, deed: Hang | Garbage) -> None:
        if isinstance(deed, Garbage) or deed.midway:
            time.sleep(0.5)  # some ask again and again
            self._begin("text/event-stream")
            self.wfile.write(
                b"<html>\xff\xfe not what you asked for\n\n" if isinstance(deed, Garbage) else b": wait\n\n"
            )
            self.wfile.flush()
        if isinstance(deed, Hang):
            model: Model = self.server.model  # type: ignore[attr-defined]
            model.closing.wait(600)
            self.close_connection = True

    def _events(self, events: list[tuple[str, Any]]) -> None:
        self._begin("text/event-stream")
        for name, data in events:
            said = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"{f'event: {name}{chr(10)}' if name else ''}data: {said}\n\n".encode())
            self.wfile.flush()

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def _json(self, value: Any, status: int = 200, more: Mapping[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, said in {
            "content-type": "application/json",
            "content-length": str(len(data)),
            **(more or {}),
        }.items():
            self.send_header(name, said)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _body(self) -> bytes:
        size = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(size) if size else b""
        if not size and "chunked" in (self.headers.get("transfer-encoding") or ""):
            while part := int(self.rfile.readline().split(b";")[0] or b"0", 16):
                raw += self.rfile.read(part)
                self.rfile.readline()
            self.rfile.readline()
        if self.headers.get("content-encoding") == "gzip":
            import gzip

            raw = gzip.decompress(raw)
        return raw


def wait_for(model: Model, count: int, seconds: float = 60.0) -> None:
    """Until so many requests were heard."""
    end = time.monotonic() + seconds
    while len(model.heard) < count:
        assert time.monotonic() < end, f"only {len(model.heard)} of {count} requests came"
        time.sleep(0.02)
