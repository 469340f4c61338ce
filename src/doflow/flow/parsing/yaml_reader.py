"""Strict YAML through PyYAML: text to nodes, nodes to values, errors in words. PyYAML is imported on first use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from doflow.flow.parsing import document
from doflow.flow.parsing.document import parse_scalar, position
from doflow.util.errors import FlowError, Problem

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # where a line ends for YAML
_SHARED = re.compile(r"(?:^|[\s\[{,])[&*][^\s,\]}]", re.MULTILINE)


def compose(text: str, name: str) -> Any:
    """The node tree, without anchors or deep nesting; uses the C parser if there is one."""
    import yaml

    loader = loader_class()
    try:
        root = loader(text).get_single_node()
        if ("&" in text or "*" in text) and _SHARED.search(text):
            _refuse_shared(text, name, loader)
    except yaml.YAMLError as error:
        raise FlowError((describe_error(error, text, name),)) from error
    return root


def node_values(root: Any, file: str) -> Any:
    """The values of a node tree; raises FlowError with every tag, duplicate key and invalid key in it."""
    found: list[Problem] = []
    value = _value(root, file, found)
    if found:
        raise FlowError(tuple(found))
    return value


def loader_class(fast: bool = True) -> Any:
    """A loader that stores in `tag` whether a node is plain, so that quoted and tagged scalars can be told apart."""
    import yaml

    base: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader) if fast else yaml.BaseLoader

    class Strict(base):  # type: ignore[misc] # chosen at run time
        depth = 0

        def resolve(self, _kind: object, _value: object, implicit: object) -> object:
            return implicit

        def descend_resolver(self, parent: Any, _index: object) -> None:
            self.depth += 1
            if self.depth > document.DEPTH:
                message = f"nested deeper than {document.DEPTH} levels"
                raise yaml.composer.ComposerError(None, None, message, parent.start_mark)

        def ascend_resolver(self) -> None:
            self.depth -= 1

    return Strict


def _refuse_shared(text: str, name: str, loader: Any) -> None:
    import yaml

    event: Any
    for event in yaml.parse(text, Loader=loader):
        if getattr(event, "anchor", None):
            what = "alias" if isinstance(event, yaml.AliasEvent) else "anchor"
            mark = event.start_mark
            hint = 'write the value out; put a text that starts with * or & in quotes: "*.md"'
            problem = Problem(name, mark.line + 1, mark.column + 1, f"the {what} {event.anchor!r} is not allowed", hint)
            raise FlowError((problem,))


def _value(node: Any, file: str, found: list[Problem]) -> Any:
    tag, value = node.tag, node.value
    if type(tag) is tuple:
        return parse_scalar(value) if tag[0] else value
    if tag is True:
        if node.id == "sequence":
            return [_value(entry, file, found) for entry in value]
        return _mapping(value, file, found)
    shown = tag if isinstance(tag, str) else "!"
    found.append(Problem(file, *position(node), f"the tag {shown!r} is not allowed", "remove the tag"))
    return None


def _mapping(pairs: Sequence[tuple[Any, Any]], file: str, found: list[Problem]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, entry in pairs:
        name = key.value
        refusal = None
        if type(key.tag) is not tuple or name == "<<" or not name or name[0] in document.TYPED_STARTS:
            refusal = _invalid_key(key)
        if refusal is None and name in out:
            refusal = (f"duplicate key {name!r}", "remove one of them")
        if refusal:
            found.append(Problem(file, *position(key), *refusal))
        else:
            out[name] = _value(entry, file, found)
    return out


def _invalid_key(key: Any) -> tuple[str, str] | None:
    if type(key.tag) is not tuple:
        return "a key must be plain text, without a tag", "write `name: value`"
    if key.value == "<<":
        return "merge keys (<<) are not allowed", "write the keys out, or use `defaults` to share them"
    if key.tag[0] and not isinstance(parse_scalar(key.value), str):
        return f"the key {key.value or 'null'} is not text", f'put it in quotes: "{key.value}"'
    return None


def describe_error(error: Any, text: str, name: str) -> Problem:
    """An error of PyYAML as a problem with a hint."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    message: str = getattr(error, "problem", None) or "this is not YAML"
    rows = _BREAK.split(text)
    row = rows[line - 1] if line <= len(rows) else ""
    hint = "quote texts that contain `: ` or ` #` or start with a special character, and check the indentation"
    if "another document" in message:
        message, hint = "a second YAML document starts here", "remove the `---` line; one file holds one flow"
    elif "alias" in message or "alphabetic" in message:
        message, hint = "unquoted text must not start with * or &", 'put it in quotes: "*.md"'
    elif "\t" in row[: len(row) - len(row.lstrip())]:
        message, hint = "tab used for indentation", "indent with spaces"
    elif "nested deeper" in message:
        hint = "flows need only a few levels"
    elif known := _unclosed(error, rows) or _misquoted(message, line, column, row):
        line, column, message, hint = known
    return Problem(name, line, column, message, hint)


def _unclosed(error: Any, rows: Sequence[str]) -> tuple[int, int, str, str] | None:
    """An unclosed bracket or quote is reported where it opens, not where the parser gives up."""
    begin, end = error.context_mark, error.problem_mark
    context, problem = error.context or "", error.problem or ""
    open_quote = "quoted scalar" in context and "end of stream" in problem
    if not begin or not end or not (open_quote or ("while parsing a flow" in context and "',' or '" in problem)):
        return None
    if begin.line == end.line:
        return None
    sign = rows[begin.line][begin.column]
    close = {"{": "}", "[": "]"}.get(sign, sign)
    hint = f"write {close} where it ends" + ("" if open_quote else ", and commas between the entries")
    return begin.line + 1, begin.column + 1, f"unclosed {sign}", hint


def _misquoted(message: str, line: int, column: int, row: str) -> tuple[int, int, str, str] | None:
    """A backslash or a quote within quotes, a missing comma."""
    if "unknown escape" in message:
        hint = "write a backslash twice in double quotes, or use single quotes"
        return line, column, "unknown escape sequence in double quotes", hint
    before, after = row[: column - 1], row[column - 1 :]
    if before.endswith("'") and after[:1].isalnum():
        hint = "write '' for a quote within single quotes, or put the text in double quotes"
        return line, column, "the single-quoted text ends before this", hint
    if before.endswith('"') and after[:1].isalnum():
        hint = 'write \\" for a quote within double quotes, or put the text in single quotes'
        return line, column, "the double-quoted text ends before this", hint
    if "',' or '" in message:
        return line, column, message, "put a comma between the two, or quotes around a text with special characters"
    return None
