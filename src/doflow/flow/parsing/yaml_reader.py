"""The door to the YAML library: a text becomes nodes, nodes become plain values, strictly. Imported when it is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from doflow.flow.parsing import document as strict
from doflow.flow.parsing.document import place, scalar
from doflow.util.errors import FlowError, Problem
from doflow.util.records import late_patterns, regex

_BREAK = regex("\r\n|[\n\r\x85\u2028\u2029]")  # where a line ends for YAML
_SHARED = regex(r"(?:^|[\s\[{,])[&*][^\s,\]}]", re.MULTILINE)


def compose(text: str, name: str) -> Any:
    """The node tree; nothing shared in it, nothing deep, read by the fast parser where there is one."""
    yaml = _yaml()
    loader = loader_class()
    try:
        root = loader(text).get_single_node()
        if ("&" in text or "*" in text) and _SHARED.search(text):
            _refuse_shared(text, name, loader)
    except yaml.YAMLError as error:
        raise FlowError((misread(error, text, name),)) from error
    return root


def plain(root: Any, file: str) -> Any:
    """The values of a node tree; every tag, twice-given key and odd key in it is refused at once."""
    found: list[Problem] = []
    value = _value(root, file, found)
    if found:
        raise FlowError(tuple(found))
    return value


def _yaml() -> Any:
    """PyYAML. Half of its import is regular expressions that its fast parser does without."""
    with late_patterns():
        import yaml
    return yaml


def loader_class(fast: bool = True) -> Any:
    """Leaves each node's implicitness as its tag, so that `strict` sees which word is plain and which is tagged."""
    yaml = _yaml()
    base: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader) if fast else yaml.BaseLoader

    class Strict(base):  # type: ignore[misc] # chosen at run time
        depth = 0

        def resolve(self, _kind: object, _value: object, implicit: object) -> object:
            return implicit

        def descend_resolver(self, parent: Any, _index: object) -> None:
            self.depth += 1
            if self.depth > strict.DEPTH:
                message = f"nested deeper than {strict.DEPTH} levels"
                raise yaml.composer.ComposerError(None, None, message, parent.start_mark)

        def ascend_resolver(self) -> None:
            self.depth -= 1

    return Strict


def _refuse_shared(text: str, name: str, loader: Any) -> None:
    yaml = _yaml()
    for event in yaml.parse(text, Loader=loader):
        if getattr(event, "anchor", None):
            what = "alias" if isinstance(event, yaml.AliasEvent) else "anchor"
            mark = event.start_mark
            hint = 'write it out; put a text that begins with * or & in quotes: "*.md"'
            problem = Problem(name, mark.line + 1, mark.column + 1, f"the {what} {event.anchor!r} is not allowed", hint)
            raise FlowError((problem,))


def _value(node: Any, file: str, found: list[Problem]) -> Any:
    tag, value = node.tag, node.value
    if type(tag) is tuple:
        return scalar(value) if tag[0] else value
    if tag is True:
        if node.id == "sequence":
            return [_value(entry, file, found) for entry in value]
        return _mapping(value, file, found)
    shown = tag if isinstance(tag, str) else "!"
    found.append(Problem(file, *place(node), f"the tag {shown!r} is not allowed", "leave the tag out"))
    return None


def _mapping(pairs: Sequence[tuple[Any, Any]], file: str, found: list[Problem]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, entry in pairs:
        name = key.value
        refusal = None
        if type(key.tag) is not tuple or name == "<<" or not name or name[0] in strict.TYPED_STARTS:
            refusal = _odd_key(key)
        if refusal is None and name in out:
            refusal = (f"the key {name!r} is given twice", "keep one of the two")
        if refusal:
            found.append(Problem(file, *place(key), *refusal))
        else:
            out[name] = _value(entry, file, found)
    return out


def _odd_key(key: Any) -> tuple[str, str] | None:
    if type(key.tag) is not tuple:
        return "a key must be plain text, without a tag", "write `name: value`"
    if key.value == "<<":
        return "merge keys (<<) are not allowed", "write the keys out; a flow shares them by `defaults`"
    if key.tag[0] and not isinstance(scalar(key.value), str):
        return f"the key {key.value or 'null'} is not text", f'write it in quotes: "{key.value}"'
    return None


def misread(error: Any, text: str, name: str) -> Problem:
    """An error of the YAML library in a person's words."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    message: str = getattr(error, "problem", None) or "this is not YAML"
    rows = _BREAK.split(text)
    row = rows[line - 1] if line <= len(rows) else ""
    hint = "quote texts that hold `: ` or ` #` or begin with a special sign, and check the indentation"
    if "another document" in message:
        message, hint = "a second document begins here", "take the line `---` out; one file holds one flow"
    elif "alias" in message or "alphabetic" in message:
        message, hint = "an unquoted text may not begin with * or &", 'put it in quotes: "*.md"'
    elif "\t" in row[: len(row) - len(row.lstrip())]:
        message, hint = "a tab indents this line", "indent with spaces"
    elif "nested deeper" in message:
        hint = "a flow needs no more than a few levels"
    elif known := _unclosed(error, rows) or _misquoted(message, line, column, row):
        line, column, message, hint = known
    return Problem(name, line, column, message, hint)


def _unclosed(error: Any, rows: Sequence[str]) -> tuple[int, int, str, str] | None:
    """A bracket or a quote that is left open is wrong where it opens, not where the reader gives up."""
    begin, end = error.context_mark, error.problem_mark
    context, problem = error.context or "", error.problem or ""
    open_quote = "quoted scalar" in context and "end of stream" in problem
    if not begin or not end or not (open_quote or ("while parsing a flow" in context and "',' or '" in problem)):
        return None
    if begin.line == end.line:
        return None
    sign = rows[begin.line][begin.column]
    close = {"{": "}", "[": "]"}.get(sign, sign)
    hint = f"write {close} where it ends" + ("" if open_quote else ", and a comma between what is in it")
    return begin.line + 1, begin.column + 1, f"the {sign} is not closed", hint


def _misquoted(message: str, line: int, column: int, row: str) -> tuple[int, int, str, str] | None:
    """A backslash or a quote within quotes, a comma that is missing."""
    if "unknown escape" in message:
        hint = "a backslash in double quotes is written twice; in single quotes it stands as it is"
        return line, column, "no such escape is known in double quotes", hint
    before, after = row[: column - 1], row[column - 1 :]
    if before.endswith("'") and after[:1].isalnum():
        hint = "write '' for a quote within single quotes, or put the text in double quotes"
        return line, column, "the text in single quotes ends before this", hint
    if before.endswith('"') and after[:1].isalnum():
        hint = 'write \\" for a quote within double quotes, or put the text in single quotes'
        return line, column, "the text in double quotes ends before this", hint
    if "',' or '" in message:
        return line, column, message, "put a comma between the two, or quotes around a text that holds a sign of YAML"
    return None
