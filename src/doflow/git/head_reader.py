"""Reads HEAD from git's own files without a process, for commands that find nothing to do.

Only for a reftable, or a repository of another owner, git itself is asked.
"""

from __future__ import annotations

import os
import stat

from doflow.git.head import Head
from doflow.git.repository import Repository
from doflow.util.errors import WorldError

_BUSY = (
    ("MERGE_HEAD", "a merge is in progress", "git merge --continue, or git merge --abort"),
    ("rebase-merge", "a rebase is in progress", "git rebase --continue, or git rebase --abort"),
    ("rebase-apply", "a rebase (or git am) is in progress", "git rebase --continue, or git rebase --abort"),
    ("CHERRY_PICK_HEAD", "a cherry-pick is in progress", "git cherry-pick --continue, or git cherry-pick --abort"),
    ("REVERT_HEAD", "a revert is in progress", "git revert --continue, or git revert --abort"),
    ("BISECT_LOG", "a bisect is in progress", "git bisect reset"),
)


def find_head(root: str | os.PathLike[str]) -> Head:
    """The working tree that contains `root`, searched upward as git does."""
    start = os.path.realpath(os.fspath(root))
    top, git_dir = _discover(start)
    common = _common(git_dir)
    config = _config(os.path.join(common, "config"))
    _work_tree(top, git_dir, config)
    status = os.stat(git_dir)
    head = Head(start, top, git_dir, common, "", "", "", (status.st_dev, status.st_ino))
    if status.st_uid != os.geteuid():
        _ask_owner(head)
    if config.get("extensions.refstorage", "").lower() == "reftable":
        return _asked(head)
    ref, commit = stored_head(git_dir, common)
    return _at(head, ref, commit)


def _at(head: Head, ref: str, commit: str, reftable: bool = False) -> Head:
    branch = ref.removeprefix("refs/heads/")
    return Head(head.root, head.top, head.git_dir, head.common_dir, ref, branch, commit, head.inode, reftable)


def _discover(start: str) -> tuple[str, str]:
    if not os.path.isdir(start):
        raise WorldError(f"{start} is not a folder", hint="name an existing folder with --project-dir")
    walls = _ceilings()
    across = os.environ.get("GIT_DISCOVERY_ACROSS_FILESYSTEM", "").lower() in ("1", "true", "yes", "on")
    device = os.stat(start).st_dev
    here = start
    while True:
        if os.path.lexists(os.path.join(here, ".git")):
            return here, _git_dir(os.path.join(here, ".git"))
        if _is_git_dir(here):
            hint = "change to a working tree of it, or create one: git worktree add ../work"
            raise WorldError(f"{here} is a bare repository or the inside of a .git folder", hint=hint)
        above = os.path.dirname(here)
        if above == here or above in walls or (os.stat(above).st_dev != device and not across):
            raise WorldError(f"{start} is not in a git repository", hint=f"create one: git -C '{start}' init")
        here = above


def _ceilings() -> frozenset[str]:
    named = os.environ.get("GIT_CEILING_DIRECTORIES", "").split(os.pathsep)
    return frozenset(os.path.realpath(folder) for folder in named if os.path.isabs(folder))


def _git_dir(dot: str) -> str:
    """Follows the `.git` file of a linked worktree or a submodule."""
    mode = os.stat(dot).st_mode if os.path.exists(dot) else 0
    found = os.path.realpath(dot)
    if stat.S_ISREG(mode):
        text = read_small(dot).rstrip("\r\n")
        if not text.startswith("gitdir: "):
            raise _broken(dot, "it is a file that does not name a git folder")
        found = os.path.realpath(os.path.join(os.path.dirname(dot), text.removeprefix("gitdir: ")))
    if not os.path.isdir(found):
        raise _broken(dot, f"the git folder {found} does not exist")
    if not _is_git_dir(found):
        raise _broken(dot, "HEAD, objects or refs are missing in it")
    return found


def _is_git_dir(path: str) -> bool:
    common = _common(path)
    return os.path.lexists(os.path.join(path, "HEAD")) and all(
        os.path.isdir(os.path.join(common, name)) for name in ("objects", "refs")
    )


def _common(git_dir: str) -> str:
    named = read_small(os.path.join(git_dir, "commondir")).strip("\r\n")
    return os.path.realpath(os.path.join(git_dir, named)) if named else git_dir


def _broken(dot: str, why: str) -> WorldError:
    return WorldError(
        f"{dot} is broken: {why}",
        hint="see: git status; a lost .git can be restored from a clone (git clone URL)",
    )


def _config(path: str) -> dict[str, str]:
    """The plain `section.key` values of git's own config file, as far as `find` needs them."""
    values: dict[str, str] = {}
    section = ""
    for line in read_small(path, limit=1 << 20).splitlines():
        text = line.strip()
        if text.startswith("["):
            section, _, text = text[1:].partition("]")
            section, text = section.strip().lower(), text.strip()
        key, equals, value = text.partition("=")
        if key and not key.startswith(("#", ";")):
            plain = value.split(" #")[0].split(" ;")[0].strip().strip('"') if equals else "true"
            values[f"{section}.{key.strip().lower()}"] = plain
    return values


def _work_tree(top: str, git_dir: str, config: dict[str, str]) -> None:
    linked = os.path.lexists(os.path.join(git_dir, "commondir"))
    if config.get("core.bare", "").lower() in ("true", "yes", "on", "1") and not linked:
        hint = "give it a working tree (git config core.bare false), or create one: git worktree add ../work"
        raise WorldError(f"{git_dir} is a bare repository: it has no working tree", hint=hint)
    other = config.get("core.worktree", "")
    if other and not linked and os.path.realpath(os.path.join(git_dir, other)) != top:
        raise WorldError(
            f"{git_dir} is configured with the working tree {other}, not {top}",
            hint="if that is not intended: git config --unset core.worktree",
        )


def _ask_owner(head: Head) -> None:
    """Another user owns the git folder: git itself decides (safe.directory), by its own discovery."""
    answer = Repository(head).refusal()
    if answer:
        raise WorldError(
            f"{head.top}: {answer}", hint=f"if you trust it: git config --global --add safe.directory '{head.top}'"
        )


def _asked(head: Head) -> Head:
    git = Repository(head)
    ref = git.call("symbolic-ref", "-q", "HEAD")[1].decode().strip()
    commit = git.call("rev-parse", "-q", "--verify", "HEAD^{commit}")[1].decode().strip()
    if not ref and not commit:
        raise broken_head(os.path.join(head.git_dir, "HEAD"))
    return _at(head, ref, commit, reftable=True)


def operation_in_progress(head: Head) -> tuple[str, str]:
    """The git operation in progress, and the commands that end it; ('', '') = none."""
    found = ((what, way) for name, what, way in _BUSY if os.path.lexists(os.path.join(head.git_dir, name)))
    return next(found, ("", ""))


def commit_obstacle(head: Head) -> str:
    """'' if a commit can be made here, else a message that says what prevents it and how to resolve that."""
    what, way = operation_in_progress(head)
    if what:
        return f"{what} in {head.top}: finish or abort it first ({way})"
    if not head.ref:
        return (
            f"HEAD is detached at {head.commit[:12]}: a commit made here would be lost at the next checkout; "
            "create a branch first (git switch -c NAME)"
        )
    return lock_obstacle(head)


def lock_obstacle(head: Head) -> str:
    """'' or a message about a lock file that another git process holds (or left)."""
    places = (
        os.path.join(head.git_dir, "index.lock"),
        os.path.join(head.git_dir, "HEAD.lock"),
        os.path.join(head.common_dir, f"{head.ref}.lock"),
    )
    for path in places:
        if os.path.lexists(path):
            return (
                f"{path} exists: another git process is running, or one crashed; "
                f"if none is running, remove it (rm '{path}') and run again"
            )
    return ""


_HEX = frozenset("0123456789abcdef")
_LONGEST_CHAIN = 5
_OWN = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")


def stored_head(git_dir: str, common: str) -> tuple[str, str]:
    """(full ref name or '', commit id or '') of HEAD."""
    path = os.path.join(git_dir, "HEAD")
    text = os.readlink(path) if os.path.islink(path) else read_small(path).strip()
    ref = text.removeprefix("ref:").strip() if text.startswith("ref:") or os.path.islink(path) else ""
    if ref:
        if not ref.startswith("refs/") or ".." in ref.split("/"):
            raise broken_head(path)
        return ref, resolve_ref(git_dir, common, ref)
    if not is_id(text):
        raise broken_head(path)
    return "", text


def resolve_ref(git_dir: str, common: str, ref: str) -> str:
    """The id of a full ref name, '' if it does not exist."""
    for _ in range(_LONGEST_CHAIN):
        if not ref.startswith("refs/") or ".." in ref.split("/"):
            return ""
        path = os.path.join(git_dir if ref.startswith(_OWN) else common, ref)
        text = read_small(path).strip()
        if not text:
            if os.path.isfile(path):
                raise broken_head(path)
            return packed_refs(common).get(ref, "")
        if is_id(text):
            return text
        if not text.startswith("ref:"):
            raise broken_head(path)
        ref = text.removeprefix("ref:").strip()
    return ""


def packed_refs(common: str) -> dict[str, str]:
    """packed-refs: full name -> id."""
    found: dict[str, str] = {}
    for line in read_small(os.path.join(common, "packed-refs"), limit=1 << 28).splitlines():
        commit, _, ref = line.partition(" ")
        if ref and is_id(commit):
            found[ref] = commit
    return found


def is_id(text: str) -> bool:
    return len(text) in (40, 64) and _HEX.issuperset(text)


def read_small(path: str, limit: int = 1 << 16) -> str:
    """The text of a small regular file, '' if it does not exist; never blocks on a pipe."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        parts = []
        while limit > 0 and (part := os.read(fd, limit)):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts).decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)


def broken_head(path: str) -> WorldError:
    return WorldError(
        f"{path} is broken: it names neither a branch nor a commit",
        hint="see git status; to point HEAD at a branch again: git symbolic-ref HEAD refs/heads/NAME",
    )
