"""The model of a DOT pipeline: nodes, edges, attributes with their positions in the text; statuses, handlers, shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

PENDING, ACTIVE, IMPL_COMPLETE, VALIDATED, FAILED = "pending", "active", "impl_complete", "validated", "failed"
STATUSES = (PENDING, ACTIVE, IMPL_COMPLETE, VALIDATED, FAILED)
TERMINAL = (VALIDATED, FAILED)
CONDITIONS = ("pass", "fail", "partial")
_SAME = {"outcome=success": "pass", "outcome=fail": "fail", "outcome=partial_success": "partial"}
#: statuses of other tools
_SAME_STATUS = {"accepted": "validated"}

#: allowed transitions; only a retry edge (`transitions.requeue`) leads back to pending
MOVES = {
    PENDING: (ACTIVE,),
    ACTIVE: (IMPL_COMPLETE, VALIDATED, FAILED),
    IMPL_COMPLETE: (VALIDATED, FAILED, ACTIVE),
    FAILED: (ACTIVE,),
    VALIDATED: (),
}
COLOURS = {
    PENDING: "lightyellow", ACTIVE: "lightblue", IMPL_COMPLETE: "lightsalmon",
    VALIDATED: "lightgreen", FAILED: "lightcoral",
}  # fmt: skip

START, EXIT, CODERGEN, TOOL, GATE, CONDITION = "start", "exit", "codergen", "tool", "wait.human", "conditional"
PARALLEL, FAN_IN, ROUTE = "parallel", "parallel.fan_in", "route"
#: the shape of each handler; a node without `handler` has the one of its shape
SHAPES = {
    START: "Mdiamond", EXIT: "Msquare", CODERGEN: "box", TOOL: "parallelogram", GATE: "hexagon",
    CONDITION: "diamond", PARALLEL: "component", FAN_IN: "tripleoctagon", ROUTE: "trapezium",
}  # fmt: skip
HANDLERS = {shape.lower(): handler for handler, shape in SHAPES.items()}
#: shapes that other tools use, besides those of `SHAPES`
OTHER_SHAPES = {
    "tab": CODERGEN, "note": CODERGEN, "house": CODERGEN, "octagon": GATE, "rect": CODERGEN,
    "rectangle": CODERGEN, "square": CODERGEN,
}  # fmt: skip
#: names of handlers in other tools; they do the same
OTHER_HANDLERS = {
    "research": CODERGEN, "refine": CODERGEN, "acceptance-test-writer": CODERGEN, "agent": CODERGEN, "prompt": CODERGEN,
    "llm": CODERGEN, "agent_loop": CODERGEN, "stack.manager_loop": CODERGEN, "stack.observe": CODERGEN,
    "stack.steer": CODERGEN, "command": TOOL, "script": TOOL, "shell": TOOL, "wait.system3": GATE,
    "wait.cobuilder": GATE, "human": GATE, "wait_human": GATE, "condition": CONDITION, "end": EXIT, "fan_out": PARALLEL,
    "fan_in": FAN_IN, "parallel.merge": FAN_IN, "merge": FAN_IN,
}  # fmt: skip
#: attributes that name the handler, the first known one decides
HANDLER_NAMES = ("handler", "type", "node_type")
MAX_RETRIES = 3


class Attribute(NamedTuple):
    """`name=value` in the text: `start`…`end` is the whole, `at`…`end` the value as written."""

    name: str
    value: str
    line: int = 0
    start: int = 0
    at: int = 0
    end: int = 0


class Statement(NamedTuple):
    """One statement of the text: a node, or edges. `lists`: start and end of each `[…]`; `top`: not in a subgraph."""

    line: int
    start: int
    end: int
    lists: tuple[tuple[int, int], ...] = ()
    attributes: tuple[Attribute, ...] = ()
    top: bool = True


@dataclass(frozen=True, slots=True)
class Node:
    """A node: `attributes` including defaults, `own` as written in its own statements."""

    id: str
    line: int
    attributes: tuple[tuple[str, str], ...] = ()
    own: tuple[Attribute, ...] = ()
    statements: tuple[Statement, ...] = ()
    group: str = ""
    role: str = ""  # start or exit, where only its id tells

    def get(self, name: str, default: str = "") -> str:
        return next((value for key, value in self.attributes if key == name), default)

    def has(self, name: str) -> bool:
        return any(key == name for key, _ in self.attributes)

    @property
    def shape(self) -> str:
        return self.get("shape")

    @property
    def handler(self) -> str:
        """What it does: by its `handler` or `type`, else by its shape, else '' (unknown). Without either: a codergen; so is a
        tool with a prompt instead of a command."""
        if self.role:
            return self.role
        named = (self.get(name).lower() for name in HANDLER_NAMES)
        known = next((found for word in named if (found := OTHER_HANDLERS.get(word, word)) in SHAPES), "")
        shape = (self.shape or "box").lower()
        found = known or HANDLERS.get(shape) or OTHER_SHAPES.get(shape) or (CODERGEN if self.get("prompt") else "")
        return CODERGEN if found == TOOL and not self.command and self.get("prompt") else found

    @property
    def status(self) -> str:
        status = self.get("status") or PENDING
        return _SAME_STATUS.get(status, status)

    @property
    def command(self) -> str:
        """The command of a tool, a gate or a diamond, by any of its names."""
        return self.get("command") or self.get("tool_command") or self.get("script")

    @property
    def label(self) -> str:
        return label_text(self.get("label") or self.id)

    def to_dict(self) -> dict[str, Any]:
        named = ("label", "bead_id", "worker_type", "promise_ac")
        return {
            "id": self.id, "handler": self.handler, "status": self.status, "shape": self.shape,
            **{name: self.get(name) for name in named}, "line": self.line, "all_attrs": dict(self.attributes),
        }  # fmt: skip


class Edge(NamedTuple):
    """`to` comes after `start`. `statement`: the one it is part of; a chain has several edges."""

    start: str
    to: str
    line: int
    attributes: tuple[tuple[str, str], ...] = ()
    statement: Statement = Statement(0, 0, 0)

    def get(self, name: str, default: str = "") -> str:
        return next((value for key, value in self.attributes if key == name), default)

    @property
    def condition(self) -> str:
        """pass, fail, partial, or another value of `condition`; a label with one of the three counts too."""
        said = self.get("condition").strip().lower().replace(" ", "")
        label = self.get("label").strip().lower()
        return _SAME.get(said, said) or (label if label in CONDITIONS else "")

    def to_dict(self) -> dict[str, Any]:
        return {"from": self.start, "to": self.to, "condition": self.condition, "attrs": dict(self.attributes)}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A DOT file: its `text` and content. `end`: the position of its last `}`."""

    path: str
    text: str
    name: str
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    directed: bool = True
    line: int = 1
    end: int = 0

    def get(self, name: str, default: str = "") -> str:
        """A graph attribute."""
        return next((value for key, value in self.attributes if key == name), default)

    def node(self, name: str) -> Node | None:
        return next((node for node in self.nodes if node.id == name), None)

    def into(self, name: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.to == name)

    def out_of(self, name: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.start == name)


def label_text(words: str) -> str:
    """A label as plain text: `\\n`, `\\l` and `\\r` end a line."""
    for sign in ("\\n", "\\l", "\\r"):
        words = words.replace(sign, "\n")
    return words.strip()


def attribute_value(pipeline: Pipeline, node: Node, name: str) -> str:
    """An attribute of a node, with the graph's value as default for `prd_ref` and paths."""
    return node.get(name) or (pipeline.get(name) if name in ("prd_ref", "solution_design", "target_dir") else "")
