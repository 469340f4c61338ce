"""Asking git: the one door to GitPython, used as a runner under an environment in which nothing planted runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any

from doflow.git import environment as environ, environment_drivers as drivers, runner_quick as _quick
from doflow.git.head import Head

_loading = threading.Lock()
_LIST = ("config", "--list", "--show-origin", "--includes", "-z")


class Git:
    """git in one work tree, for one process of ours. Threads may share it.

    Filters (clean, smudge) that are configured at the first call are trusted and stay as they are; pass `filters` to
    trust those of an earlier process instead.
    """

    def __init__(self, head: Head, filters: Mapping[str, str] | None = None) -> None:
        self.head = head
        self.seeded: tuple[str, str, tuple[int, ...]] = ("", "", ())
        self.kept: tuple[str, tuple[int, ...]] = ("", ())
        self.people: tuple[str, str] | None = None
        self.staged: tuple[str, tuple[int, ...]] = ("", ())  # HEAD and the index that held the same, see `wip`
        self.moved: Callable[[], None] | None = None  # told after each commit of ours
        self.trees: Any = None  # see `trees`
        self.program = environ.program(head.top, os.environ)
        self._runner: Any = None
        self._trusted = filters
        self._reading = drivers.Reading()
        self._signature: drivers.Signature = ()
        self._pins: tuple[tuple[str, str], ...] = ()
        self._ready: dict[str, dict[str, str]] = {}

    def run(
        self,
        *args: str,
        input: bytes = b"",  # noqa: A002  (subprocess says it so)
        index: str = "",
        check: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> bytes:
        """git's standard output; with `check` a failure is a WorldError in git's words."""
        code, out, err = self.call(*args, input=input, index=index, env=env)
        if code and check:
            raise _quick.failed(args, code, err)
        return out

    def call(
        self,
        *args: str,
        input: bytes = b"",  # noqa: A002  (subprocess says it so)
        index: str = "",
        env: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, str]:
        """Exit code, standard output, standard error. `index` is a private index instead of the person's."""
        self._watch()
        ready = self._ready.get(index)
        if ready is None:
            ready = self._ready[index] = environ.overrides(self.head, os.environ, self._pins, index)
        return self._execute(args, input, ready | dict(env or {}))

    def filters(self) -> dict[str, str]:
        """The trusted filter settings, to hand to a later process of the same run."""
        self._watch()
        return dict(self._trusted or {})

    def setting(self, key: str) -> str:
        """A plain setting of git's config ('' if it is not set); the few that are kept: see `drivers`."""
        self._watch()
        return self._reading.settings.get(key, "")

    def _watch(self) -> None:
        """Read the config again only if one of its files was touched since the last time."""
        if self._signature and drivers.signature(self._reading.files) == self._signature:
            return
        code, out, err = self._execute(_LIST, b"", environ.overrides(self.head, os.environ))
        if code:
            raise _quick.failed(_LIST, code, err)
        self._reading = drivers.read(out, self.head)
        signature = drivers.signature(self._reading.files)
        if self._trusted is None:
            self._trusted = self._reading.filters
        self._pins = drivers.pins(self._trusted, self._reading)
        self._ready = {}
        self.people = None
        self._signature = signature  # last: who finds it in order goes on at once, with all of the above

    def _execute(self, args: tuple[str, ...], data: bytes, variables: dict[str, str]) -> tuple[int, bytes, str]:
        if self._runner is None:
            with _loading:
                self._runner = self._runner or _library(self.program)(self.head.top)
        dropped = [name for name in environ.unwanted(os.environ) if name not in variables]
        without = [word for name in dropped for word in ("-u", name)]
        prefix = ["/usr/bin/env", *without] if without else []
        stream = _stream(data) if data else None
        try:
            code, out, err = self._runner.execute(
                [*prefix, self.program, *args],
                istream=stream,
                env=variables,
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
            )
        finally:
            if stream is not None:
                stream.close()
        return code, out, err


def _library(program: str) -> Any:
    """GitPython's runner class. While it is imported it looks for git itself: it is told which one, by variables that no
    other thread must see come and go: whoever copies the environment just then would break."""
    told = {"GIT_PYTHON_GIT_EXECUTABLE": program, "GIT_PYTHON_REFRESH": "quiet"}
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        from git.cmd import Git as Runner
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    return Runner


def _stream(data: bytes) -> IO[bytes]:
    """The input as an open file: it has no size limit and cannot dead-lock as a pipe can."""
    if hasattr(os, "memfd_create"):
        stream: IO[bytes] = os.fdopen(os.memfd_create("doflow"), "w+b")
    else:
        import tempfile

        stream = tempfile.TemporaryFile()  # noqa: SIM115  (the caller closes it)
    stream.write(data)
    stream.flush()
    stream.seek(0)
    return stream
