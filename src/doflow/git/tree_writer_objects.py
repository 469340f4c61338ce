"""Writing objects ourselves: a short text, a hash and one file, where starting git would cost milliseconds.

In a repository whose objects need special modes (core.sharedRepository) git writes it.
"""

from __future__ import annotations

import os
import time

from doflow.git.runner import Git
from doflow.git.runner_quick import failed
from doflow.util import atomic_files as files
from doflow.util.errors import WorldError


def write(git: Git, tree: str, base: str, message: str) -> str:
    """The id of a new commit of `tree` on `base` ('' = the first one), by the person git knows."""
    text = message.replace("\0", "").encode("utf-8", "replace").rstrip(b"\n") + b"\n"
    who = people(git)
    if git.setting("core.sharedrepository") not in ("", "false", "umask", "0"):
        parent = ("-p", base) if base else ()
        return git.run("commit-tree", tree, *parent, "-F", "-", input=text).decode().strip()
    parent_line = f"parent {base}\n" if base else ""
    lines = f"tree {tree}\n{parent_line}author {who[0]}\ncommitter {who[1]}\n\n"
    return store(git, b"commit", lines.encode("utf-8", "surrogateescape") + text, len(tree))


def people(git: Git) -> tuple[str, str]:
    """Author and committer lines; git is asked once, and again when its config changed."""
    if not git.people:
        git.people = (_ask(git, "AUTHOR"), _ask(git, "COMMITTER"))
    return _dated(git.people[0], "AUTHOR"), _dated(git.people[1], "COMMITTER")


def _ask(git: Git, role: str) -> str:
    args = ("var", f"GIT_{role}_IDENT")
    code, out, err = git.call(*args)
    if code and ("identity" in err or "auto-detection is disabled" in err or "empty ident" in err):
        raise WorldError(
            "nothing was committed: git does not know who you are",
            hint='git config --global user.name "Your Name" && git config --global user.email you@example.com',
        )
    if code:
        raise failed(args, code, err)
    return out.decode("utf-8", "surrogateescape").strip()


def _dated(person: str, role: str) -> str:
    """The same person now, unless the caller fixed the date."""
    if os.environ.get(f"GIT_{role}_DATE"):
        return person
    now = time.localtime()
    return f"{person.rpartition('> ')[0]}> {int(time.time())} {time.strftime('%z', now)}"


def store(git: Git, kind: bytes, body: bytes, width: int) -> str:
    """A loose object; its id. On the disk with the next `syncfs`."""
    import zlib

    whole, name = _whole(kind, body), ident(kind, body, width)
    folder = os.path.join(git.head.common_dir, "objects", name[:2])
    try:
        os.makedirs(folder, exist_ok=True)
        fd = files.open_folder(folder)
        try:
            if not os.path.lexists(os.path.join(folder, name[2:])):
                files.replace(fd, name[2:], zlib.compress(whole, 1), 0o444, sync=False)
        finally:
            os.close(fd)
    except OSError as error:
        raise files.broke("write", folder, error) from error
    return name


def ident(kind: bytes, body: bytes, width: int) -> str:
    """The id that git gives to an object."""
    import hashlib

    return hashlib.new("sha1" if width == 40 else "sha256", _whole(kind, body), usedforsecurity=False).hexdigest()


def _whole(kind: bytes, body: bytes) -> bytes:
    return b"%s %d\0" % (kind, len(body)) + body
