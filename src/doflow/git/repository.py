"""git in one working tree, through GitPython, with an environment in which nothing planted by an agent runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from doflow.git import environment
from doflow.git.head import Head
from doflow.util.errors import WorldError

_loading = threading.Lock()
_LIST = ("config", "--list", "--show-origin", "--includes", "-z")


class Repository:
    """git in one working tree. Thread-safe.

    Filters (clean, smudge) configured at the first call are trusted and stay fixed; pass `filters` to trust those of an
    earlier process instead.
    """

    def __init__(self, head: Head, filters: Mapping[str, str] | None = None) -> None:
        self.head = head
        self._on_commit: Callable[[], None] | None = None
        self._program = environment.program(head.top, os.environ)
        self._repo: Any = None
        self._trusted = filters
        self._reading = environment.Reading()
        self._signature: environment.Signature = ()
        self._pins: tuple[tuple[str, str], ...] = ()
        self._ready: dict[str, dict[str, str]] = {}
        self._conversations: dict[tuple[str, ...], tuple[Any, Any]] = {}

    def run(
        self,
        *args: str,
        input: bytes = b"",  # noqa: A002  (subprocess says it so)
        index: str = "",
        env: Mapping[str, str] | None = None,
    ) -> bytes:
        """git's standard output; a failure is a WorldError with git's message."""
        code, out, err = self.call(*args, input=input, index=index, env=env)
        if code:
            raise failure(args, code, err)
        return out

    def call(
        self,
        *args: str,
        input: bytes = b"",  # noqa: A002  (subprocess says it so)
        index: str = "",
        env: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, str]:
        """Exit code, standard output, standard error. `index` is a private index instead of the user's."""
        return self._execute(args, input, self._variables(index) | dict(env or {}))

    @contextlib.contextmanager
    def conversation(self, *args: str) -> Iterator[Any]:
        """A git process with pipes for `stdin` and `stdout`. It stays for the next call until the config or the packs
        change: it must not rely on an object that `git gc` removed meanwhile. EOFError: it didn't answer."""
        variables = self._variables("")
        packs = os.path.join(self.head.common_dir, "objects", "pack")
        state = (self._signature, environment.signature((packs,)))
        since, process = self._conversations.pop(args, ((), None))
        if since != state or process.poll() is not None:
            command = self._command(args, variables)
            process = self._git().execute(command, subprocess.PIPE, as_process=True, env=variables)
        try:
            yield process
        except (BrokenPipeError, EOFError):
            _, err = process.communicate()
            raise failure(args, process.returncode, err.decode("utf-8", "replace")) from None
        self._conversations[args] = (state, process)

    def on_commit(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` after each of our commits from now on; None: don't."""
        self._on_commit = callback

    def tell_commit(self) -> None:
        if self._on_commit is not None:
            self._on_commit()

    def filters(self) -> dict[str, str]:
        """The trusted filter settings, for a later process of the same run."""
        self._watch()
        return dict(self._trusted or {})

    def setting(self, key: str) -> str:
        """A setting of git's config ('' if not set); only those that `environment.parse_config` keeps."""
        self._watch()
        return self._reading.settings.get(key, "")

    def refusal(self) -> str:
        """'' if git accepts the repository by its own discovery (`safe.directory`); else its error."""
        variables = {"GIT_CEILING_DIRECTORIES": os.path.dirname(self.head.top)}
        code, _, err = self._execute(("rev-parse", "--git-dir"), b"", variables)
        return err.strip().split("\n")[0] if code else ""

    def _variables(self, index: str) -> dict[str, str]:
        self._watch()
        ready = self._ready.get(index)
        if ready is None:
            ready = self._ready[index] = environment.overrides(self.head, os.environ, self._pins, index)
        return ready

    def _watch(self) -> None:
        """Read the config again only if one of its files was touched since."""
        if self._signature and environment.signature(self._reading.files) == self._signature:
            return
        code, out, err = self._execute(_LIST, b"", environment.overrides(self.head, os.environ))
        if code:
            raise failure(_LIST, code, err)
        self._reading = environment.parse_config(out, self.head)
        signature = environment.signature(self._reading.files)
        if self._trusted is None:
            self._trusted = self._reading.filters
        self._pins = environment.driver_overrides(self._trusted, self._reading)
        self._ready = {}
        self._signature = signature  # last: other threads that see it use all of the above

    def _execute(self, args: tuple[str, ...], data: bytes, variables: dict[str, str]) -> tuple[int, bytes, str]:
        stream = _stream(data) if data else None
        try:
            code, out, err = self._git().execute(
                self._command(args, variables),
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

    def _command(self, args: tuple[str, ...], variables: Mapping[str, str]) -> list[str]:
        """GitPython can only add variables: those that must not reach git are removed by `env`."""
        dropped = [name for name in environment.unwanted(os.environ) if name not in variables]
        without = [word for name in dropped for word in ("-u", name)]
        return [*(["/usr/bin/env", *without] if without else []), self._program, *args]

    def _git(self) -> Any:
        """`git.Repo(…).git` of GitPython."""
        if self._repo is None:
            with _loading:
                self._repo = self._repo or _open(self._program, self.head.top)
        return self._repo.git


def failure(args: tuple[str, ...], code: int, err: str) -> WorldError:
    """git's error as ours."""
    said = (
        " ".join(line.strip() for line in err.splitlines() if line.strip() and not line.startswith("hint:"))
        or f"exit code {code}"
    )
    verb = next((arg for arg in args if not arg.startswith("-")), "")
    if "No space left on device" in err or "Disk quota exceeded" in err:
        hint = "free some space and run the same command again; finished steps are kept"
        return WorldError(f"disk full: git {verb}: {said}", hint=hint)
    return WorldError(f"git {verb} failed: {said}", hint="see: git status")


def _open(program: str, top: str) -> Any:
    """GitPython's repository of this work tree."""
    library = sys.modules.get("git") or _import(program)
    try:
        return library.Repo(top)
    except (library.InvalidGitRepositoryError, library.NoSuchPathError) as error:
        raise WorldError(f"{top} is no longer a git repository", hint="see: git status") from error


def _import(program: str) -> Any:
    """Import GitPython, which looks for git itself: the variables name the executable. Callers hold a lock, as other threads
    must not copy the environment meanwhile."""
    told = {"GIT_PYTHON_GIT_EXECUTABLE": program, "GIT_PYTHON_REFRESH": "quiet"}
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        import git
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    return git


def _stream(data: bytes) -> IO[bytes]:
    """The input as an open file: no size limit, and no deadlock as with a pipe."""
    if hasattr(os, "memfd_create"):
        stream: IO[bytes] = os.fdopen(os.memfd_create("doflow"), "w+b")
    else:
        stream = tempfile.TemporaryFile()  # noqa: SIM115  (the caller closes it)
    stream.write(data)
    stream.flush()
    stream.seek(0)
    return stream
