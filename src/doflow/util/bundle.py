"""The compiled modules of a run in one file, so that one is opened instead of a hundred.

A cache like the `.pyc` files, and it lies among them, in the place of `bundled.py`: who removes those removes it. Never
needed; written when a run had to look elsewhere for a module; of each module used only while its source is as it was.
"""

from __future__ import annotations

import marshal
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source, spec_from_file_location
from types import CodeType, ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
_HEAD = b"doflow 1\n" + MAGIC_NUMBER
_SIZE = 4  # bytes that say how long the table of contents is

Sign = tuple[int, int]
Held = tuple[str, Sign, int, int]  # a module's file, how it looked, where its code begins and ends


class _Loader(SourceFileLoader):
    """Python's own loader, given what it would have to open a file for."""

    def __init__(self, name: str, path: str, code: bytes) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        data, self._code = self._code, b""  # held until it is asked for once
        code: CodeType | None = marshal.loads(data) if data else super().get_code(fullname)
        assert code is not None
        return code


class Bundle:
    """The file as this process found it; a finder of modules for Python."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.before = frozenset(_loaded())
        self.held, self.file, self.start = _open(place)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        held = self.held.get(name)
        if held is None or _sign(held[0]) != held[1]:
            return None
        file, _, begin, end = held
        data = self._part(begin, end)
        if not data:
            return None
        folder = [os.path.dirname(file)] if file.endswith("__init__.py") else None
        loader = _Loader(name, file, data)
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=folder)

    def keep(self) -> None:
        """Write it anew if a module came from elsewhere. What it held and is as it was stays in it."""
        loaded = _loaded()
        if all(name in self.before or type(module.__loader__) is _Loader for name, module in loaded.items()):
            return
        codes = {name: _code(name, module) for name, module in loaded.items() if name not in self.before}
        for name, (file, sign, begin, end) in self.held.items():
            if name not in codes and _sign(file) == sign:
                codes[name] = (file, sign, self._part(begin, end))
        _write(self.place, {name: code for name, code in codes.items() if code is not None and code[2]})

    def _part(self, begin: int, end: int) -> bytes:
        """b"" if it is not whole there."""
        try:
            data = os.pread(self.file, end - begin, self.start + begin)
        except OSError:
            return b""
        return data if len(data) == end - begin else b""


def use() -> None:
    """From here on modules of doflow come out of the bundle, where it has them."""
    global _used
    if _used is None:
        _used = Bundle(cache_from_source(os.path.join(HERE, "bundled.py")))
        sys.meta_path.insert(0, _used)


def keep() -> None:
    """At the end of a run: what it has imported is in the bundle for the next one, if caches may be written."""
    if _used is not None and not sys.dont_write_bytecode:
        _used.keep()


_used: Bundle | None = None


def _open(place: str) -> tuple[dict[str, Held], int, int]:
    """The table of contents, the open file and where its first code begins; ({}, -1, 0) if there is none, or it was made by
    another Python or doflow, or is torn."""
    file = -1
    try:
        file = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        start = len(_HEAD) + _SIZE
        head = os.pread(file, start, 0)
        size = int.from_bytes(head[len(_HEAD) :], "little")
        after = os.fstat(file).st_size - start - size
        if head[: len(_HEAD)] == _HEAD and after >= 0:
            held: dict[str, Held] = marshal.loads(os.pread(file, size, start))
            if all(0 <= begin <= end <= after for _, _, begin, end in held.values()):
                return held, file, start + size
    except (OSError, ValueError, EOFError, TypeError, AttributeError):
        pass
    if file >= 0:
        os.close(file)
    return {}, -1, 0


def _write(place: str, codes: dict[str, tuple[str, Sign, bytes]]) -> None:
    held: dict[str, Held] = {}
    data = bytearray()
    for name, (file, sign, code) in codes.items():
        held[name] = (file, sign, len(data), len(data) + len(code))
        data += code
    table = marshal.dumps(held)
    loader = SourceFileLoader("doflow.util.bundled", os.path.join(HERE, "bundled.py"))
    loader.set_data(
        place, _HEAD + len(table).to_bytes(_SIZE, "little") + table + data
    )  # whole or not at all, as a .pyc


def _loaded() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.startswith("doflow.")}


def _code(name: str, module: Any) -> tuple[str, Sign, bytes] | None:
    """The code of a module that was imported, unless its source has changed meanwhile or is no plain file."""
    loader, file = module.__loader__, getattr(module, "__file__", "") or ""
    sign = _sign(file)
    if not isinstance(loader, SourceFileLoader) or sign is None:
        return None
    code = loader.get_code(name)
    return (file, sign, marshal.dumps(code)) if _sign(file) == sign and code is not None else None


def _sign(file: str) -> Sign | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
