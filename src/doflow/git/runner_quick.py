"""One git process without GitPython: for the few questions before the first step, where every millisecond counts."""

from __future__ import annotations

import os

from doflow.git import environment as environ
from doflow.git.head import Head
from doflow.util.errors import WorldError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen

    Asked = Popen[bytes]


def quick(head: Head, *args: str) -> bytes:
    """git's standard output; a failure is a WorldError with git's own words."""
    code, out, err = attempt(head, *args)
    if code:
        raise failed(args, code, err)
    return out


def attempt(head: Head, *args: str) -> tuple[int, bytes, str]:
    """The same, but a failure is an answer: code, output, complaint."""
    return end(start(head, *args))


def start(head: Head, *args: str) -> Asked:
    """Ask without waiting."""
    import subprocess

    return subprocess.Popen(
        (environ.program(head.top, os.environ), *args),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ.whole(head, os.environ),
        cwd=head.top,
    )


def end(asked: Asked) -> tuple[int, bytes, str]:
    """The answer to what was asked: code, output, complaint."""
    out, err = asked.communicate()
    return asked.returncode, out, err.decode("utf-8", "replace")


def failed(args: tuple[str, ...], code: int, err: str) -> WorldError:
    """git's complaint as our error."""
    said = (
        " ".join(line.strip() for line in err.splitlines() if line.strip() and not line.startswith("hint:"))
        or f"exit code {code}"
    )
    verb = next((arg for arg in args if not arg.startswith("-")), "")
    if "No space left on device" in err or "Disk quota exceeded" in err:
        hint = "free some space and run the same command again: what was done stays done"
        return WorldError(f"disk full: git {verb}: {said}", hint=hint)
    return WorldError(f"git {verb} failed: {said}", hint="see what git says yourself: git status")


def discovered(top: str) -> str:
    """'' if git, left to find the repository by itself, accepts it; else its complaint."""
    import subprocess

    dropped = frozenset(environ.unwanted(os.environ))
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    done = subprocess.run(
        (environ.program(top, os.environ), "rev-parse", "--git-dir"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=kept | {"LC_ALL": "C", "GIT_CEILING_DIRECTORIES": os.path.dirname(top)},
        cwd=top,
        check=False,
    )
    return done.stderr.decode("utf-8", "replace").strip().split("\n")[0] if done.returncode else ""
