"""A YAML file, parsed strictly: values with their positions, errors in words. PyYAML is imported on first use."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from doflow.util.errors import FlowError, Problem

LIMIT = 1_000_000
DEPTH = 30

Path = tuple[str | int, ...]

_INVISIBLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_TAB = re.compile(r"^\t[ \t]*\S", re.MULTILINE)
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # where a line ends for YAML
_SHARED = re.compile(r"(?:^|[\s\[{,])[&*][^\s,\]}]", re.MULTILINE)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?")
_TYPED_STARTS = frozenset("-0123456789tfn~")
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None, "~": None, "": None}


class Doc(NamedTuple):
    """A file as plain values, and the YAML nodes they were read from, which know their positions."""

    file: str
    value: dict[str, Any]
    root: Any

    def where(self, path: Path, key: bool = False) -> tuple[int, int]:
        """Line and column of the value at `path`, or of the nearest one around it."""
        node = mark = self.root
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            mark, node = found
        return position(mark if key else node)

    def problem(self, path: Path, message: str, hint: str = "", key: bool = False) -> Problem:
        return Problem(self.file, *self.where(path, key), message, hint)

    def item(self, path: Path, text: str) -> Path:
        """The path of the list entry equal to `text`, or of the list itself if there is none."""
        value: Any = self.value
        for part in path:
            if isinstance(value, dict):
                value = value.get(part)
            else:
                value = value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None
        return (*path, value.index(text)) if isinstance(value, list) and text in value else path


def _child(node: Any, part: str | int) -> tuple[Any, Any] | None:
    entries = getattr(node, "value", None)
    if not isinstance(entries, list):
        return None
    if isinstance(part, int):
        return (entries[part], entries[part]) if part < len(entries) else None
    pairs = (entry for entry in entries if isinstance(entry, tuple))
    return next(((key, value) for key, value in pairs if key.value == part), None)


def position(node: Any) -> tuple[int, int]:
    """Line and column of a node."""
    return _place(getattr(node, "start_mark", None))


def _place(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def parse_scalar(text: str) -> object:
    """The value of an unquoted scalar: true, false, null or a number; anything else is text (`on`, `012`, `12:30`)."""
    if text and text[0] not in _TYPED_STARTS:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def read_text(path: str, name: str = "") -> str:
    """The text of a small regular file; a pipe, a folder, a huge or non-UTF-8 file is an error, never a hang."""
    name = name or path
    try:
        raw = _bytes(path, name)
    except OSError as error:
        why = error.strerror or str(error)
        raise _refusal(name, f"cannot be read: {why}", "check that the file exists and is readable") from error
    try:
        return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        place = _spot(raw.decode("latin-1"), error.start)
        message = f"byte {raw[error.start]:#04x} is not UTF-8"
        raise FlowError((Problem(name, *place, message, "save the file as UTF-8"),)) from error


def _bytes(path: str, name: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _refusal(name, "is not a regular file", "use a plain text file")
        with open(handle, "rb", closefd=False) as file:
            raw = file.read(LIMIT + 1)
    finally:
        os.close(handle)
    if len(raw) > LIMIT:
        raise _too_large(name)
    return raw


def _too_large(name: str) -> FlowError:
    return _refusal(name, f"is larger than {LIMIT:,} bytes", "keep flows short: move long texts into prompt files")


def _refusal(name: str, message: str, hint: str) -> FlowError:
    return FlowError((Problem(name, 1, 1, message, hint),))


def _refuse_odd_text(text: str, name: str) -> None:
    """Refuse what the parser should not see: a huge text, invisible characters, tabs as indentation."""
    if len(text) > LIMIT:
        raise _too_large(name)
    odd = None if text.isascii() and text.replace("\n", "").isprintable() else _INVISIBLE.search(text)
    if odd:
        message = f"the character U+{ord(odd[0]):04X} is not allowed"
        raise FlowError((Problem(name, *_spot(text, odd.start()), message, "remove it; it is invisible"),))
    tab = _TAB.search(text) if "\t" in text else None
    if tab:
        raise FlowError((Problem(name, *_spot(text, tab.start()), "tab used for indentation", "indent with spaces"),))


def _spot(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def nearest(word: str, known: Sequence[str], cutoff: float = 0.6) -> str:
    """`did you mean …?` if a known word is close, else ''."""
    close = get_close_matches(word, known, 1, cutoff)
    return f"did you mean {close[0]!r}?" if close else ""


def parse_nodes(text: str, name: str, any_key: bool = False) -> tuple[Any, Any]:
    """The node tree and its values (None, None = an empty file); FlowError for everything but strict YAML.

    With `any_key` a key may look like a number or a boolean; it is taken as the text that it is.
    """
    import yaml

    _refuse_odd_text(text, name)
    loader = loader_class()
    found: list[Problem] = []
    try:
        root = loader(text).get_single_node()
        if ("&" in text or "*" in text) and _SHARED.search(text):
            _refuse_shared(text, name, loader)
    except yaml.YAMLError as error:
        raise FlowError((_describe_error(error, text, name),)) from error
    value = None if root is None else _value(root, name, found, any_key)
    if found:
        raise FlowError(tuple(found))
    return root, value


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
            if self.depth > DEPTH:
                message = f"nested deeper than {DEPTH} levels"
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
            hint = 'write the value out; put a text that starts with * or & in quotes: "*.md"'
            raise FlowError((Problem(name, *position(event), f"the {what} {event.anchor!r} is not allowed", hint),))


def _value(node: Any, file: str, found: list[Problem], any_key: bool) -> Any:
    tag, value = node.tag, node.value
    if type(tag) is tuple:
        return parse_scalar(value) if tag[0] else value
    if tag is True:
        if node.id == "sequence":
            return [_value(entry, file, found, any_key) for entry in value]
        return _mapping(value, file, found, any_key)
    shown = tag if isinstance(tag, str) else "!"
    found.append(Problem(file, *position(node), f"the tag {shown!r} is not allowed", "remove the tag"))
    return None


def _mapping(pairs: Sequence[tuple[Any, Any]], file: str, found: list[Problem], any_key: bool) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, entry in pairs:
        name = key.value
        refusal = _invalid_key(key, any_key)
        if refusal is None and name in out:
            refusal = (f"duplicate key {name!r}", "remove one of them")
        if refusal:
            found.append(Problem(file, *position(key), *refusal))
        else:
            out[name] = _value(entry, file, found, any_key)
    return out


def _invalid_key(key: Any, any_key: bool) -> tuple[str, str] | None:
    if type(key.tag) is not tuple:
        return "a key must be plain text, without a tag", "write `name: value`"
    if key.value == "<<":
        return "merge keys (<<) are not allowed", "write the keys out, or use `defaults` to share them"
    if not any_key and key.tag[0] and not isinstance(parse_scalar(key.value), str):
        return f"the key {key.value or 'null'} is not text", f'put it in quotes: "{key.value}"'
    return None


def _describe_error(error: Any, text: str, name: str) -> Problem:
    """An error of PyYAML as a problem with a hint."""
    line, column = _place(getattr(error, "problem_mark", None) or getattr(error, "context_mark", None))
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
    elif unclosed := _unclosed(error, rows):
        line, column, message, hint = unclosed
    else:
        message, hint = _misquoted(message, row[: column - 1], row[column - 1 :]) or (message, hint)
    return Problem(name, line, column, message, hint)


def _unclosed(error: Any, rows: Sequence[str]) -> tuple[int, int, str, str] | None:
    """An unclosed bracket or quote is reported where it opens, not where the parser gives up."""
    begin, end = error.context_mark, error.problem_mark
    context, problem = error.context or "", error.problem or ""
    open_quote = "quoted scalar" in context and "end of stream" in problem
    open_bracket = "while parsing a flow" in context and "',' or '" in problem
    if not begin or not end or begin.line == end.line or not (open_quote or open_bracket):
        return None
    sign = rows[begin.line][begin.column]
    close = {"{": "}", "[": "]"}.get(sign, sign)
    hint = f"write {close} where it ends" + ("" if open_quote else ", and commas between the entries")
    return *_place(begin), f"unclosed {sign}", hint


def _misquoted(message: str, before: str, after: str) -> tuple[str, str] | None:
    """A backslash or a quote within quotes, a missing comma."""
    if "unknown escape" in message:
        hint = "write a backslash twice in double quotes, or use single quotes"
        return "unknown escape sequence in double quotes", hint
    if before.endswith("'") and after[:1].isalnum():
        hint = "write '' for a quote within single quotes, or put the text in double quotes"
        return "the single-quoted text ends before this", hint
    if before.endswith('"') and after[:1].isalnum():
        hint = 'write \\" for a quote within double quotes, or put the text in single quotes'
        return "the double-quoted text ends before this", hint
    if "',' or '" in message:
        return message, "put a comma between the two, or quotes around a text with special characters"
    return None
