"""Where a project stands, read from git's own files: no process is started, so it costs next to nothing.

Only a repository with a reftable, or one that belongs to someone else, is asked about with git itself.
"""

from __future__ import annotations

import os
import stat

from doflow.git import refs
from doflow.git.head import Head
from doflow.util.errors import WorldError

__all__ = ["Head", "branches", "busy", "commit_of", "find", "state"]

_BUSY = (
    ("MERGE_HEAD", "a merge is in progress", "git merge --continue, or git merge --abort"),
    ("rebase-merge", "a rebase is in progress", "git rebase --continue, or git rebase --abort"),
    ("rebase-apply", "a rebase (or git am) is in progress", "git rebase --continue, or git rebase --abort"),
    ("CHERRY_PICK_HEAD", "a cherry-pick is in progress", "git cherry-pick --continue, or git cherry-pick --abort"),
    ("REVERT_HEAD", "a revert is in progress", "git revert --continue, or git revert --abort"),
    ("BISECT_LOG", "a bisect is in progress", "git bisect reset"),
)


def find(root: str | os.PathLike[str]) -> Head:
    """The work tree that `root` lies in, searched upward as git does."""
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
    ref, commit = refs.head(git_dir, common)
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
            hint = "go to a work tree of it, or make one: git worktree add ../work"
            raise WorldError(f"{here} is a bare repository or the inside of a .git folder", hint=hint)
        above = os.path.dirname(here)
        if above == here or above in walls or (os.stat(above).st_dev != device and not across):
            raise WorldError(f"{start} is not in a git repository", hint=f"make it one: git -C '{start}' init")
        here = above


def _ceilings() -> frozenset[str]:
    named = os.environ.get("GIT_CEILING_DIRECTORIES", "").split(os.pathsep)
    return frozenset(os.path.realpath(folder) for folder in named if os.path.isabs(folder))


def _git_dir(dot: str) -> str:
    """Follows the `.git` file of a linked worktree or a submodule."""
    mode = os.stat(dot).st_mode if os.path.exists(dot) else 0
    found = os.path.realpath(dot)
    if stat.S_ISREG(mode):
        text = refs.small(dot).rstrip("\r\n")
        if not text.startswith("gitdir: "):
            raise _broken(dot, "it is a file that names no git folder")
        found = os.path.realpath(os.path.join(os.path.dirname(dot), text.removeprefix("gitdir: ")))
    if not os.path.isdir(found):
        raise _broken(dot, f"the git folder {found} is not there")
    if not _is_git_dir(found):
        raise _broken(dot, "HEAD, objects or refs are missing in it")
    return found


def _is_git_dir(path: str) -> bool:
    common = _common(path)
    return os.path.lexists(os.path.join(path, "HEAD")) and all(
        os.path.isdir(os.path.join(common, name)) for name in ("objects", "refs")
    )


def _common(git_dir: str) -> str:
    named = refs.small(os.path.join(git_dir, "commondir")).strip("\r\n")
    return os.path.realpath(os.path.join(git_dir, named)) if named else git_dir


def _broken(dot: str, why: str) -> WorldError:
    return WorldError(
        f"{dot} is broken: {why}",
        hint="see what git says: git status; a lost .git comes back from a clone (git clone URL)",
    )


def _config(path: str) -> dict[str, str]:
    """The plain `section.key` values of git's own config file, as far as `find` needs them."""
    values: dict[str, str] = {}
    section = ""
    for line in refs.small(path, limit=1 << 20).splitlines():
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
        hint = "give it a work tree (git config core.bare false), or make one: git worktree add ../work"
        raise WorldError(f"{git_dir} is a bare repository: it has no work tree", hint=hint)
    other = config.get("core.worktree", "")
    if other and not linked and os.path.realpath(os.path.join(git_dir, other)) != top:
        raise WorldError(
            f"{git_dir} says that its work tree is {other}, not {top}",
            hint="if that is not meant: git config --unset core.worktree",
        )


def _ask_owner(head: Head) -> None:
    """Somebody else owns the git folder: git itself decides (safe.directory), by its own discovery."""
    from doflow.git import runner_quick as quick

    answer = quick.discovered(head.top)
    if answer:
        raise WorldError(
            f"{head.top}: {answer}", hint=f"if you trust it: git config --global --add safe.directory '{head.top}'"
        )


def _asked(head: Head) -> Head:
    from doflow.git import runner_quick as quick

    ref = quick.attempt(head, "symbolic-ref", "-q", "HEAD")[1].decode().strip()
    commit = quick.attempt(head, "rev-parse", "-q", "--verify", "HEAD^{commit}")[1].decode().strip()
    if not ref and not commit:
        raise refs.garbage(os.path.join(head.git_dir, "HEAD"))
    return _at(head, ref, commit, reftable=True)


def busy(head: Head) -> tuple[str, str]:
    """What git is in the middle of, and the commands that end it; ('', '') = nothing."""
    found = ((what, way) for name, what, way in _BUSY if os.path.lexists(os.path.join(head.git_dir, name)))
    return next(found, ("", ""))


def state(head: Head) -> str:
    """'' if a commit can be made here, else one sentence that says what is in the way and how to end it."""
    what, way = busy(head)
    if what:
        return f"{what} in {head.top}: finish or abort it first ({way})"
    if not head.ref:
        return (
            f"HEAD is detached at {head.commit[:12]}: a commit made here would be lost at the next checkout; "
            "make a branch first (git switch -c NAME)"
        )
    return locked(head)


def locked(head: Head) -> str:
    """'' or the sentence about a lock file that another git holds (or left)."""
    places = (
        os.path.join(head.git_dir, "index.lock"),
        os.path.join(head.git_dir, "HEAD.lock"),
        os.path.join(head.common_dir, f"{head.ref}.lock"),
    )
    for path in places:
        if os.path.lexists(path):
            return (
                f"{path} exists: another git is at work, or one crashed; "
                f"if none runs, remove it (rm '{path}') and run again"
            )
    return ""


def branches(head: Head) -> frozenset[str]:
    """Short names of all local branches and of the remotes' branches (without the remote's name)."""
    return short(names(head))


def names(head: Head) -> list[str]:
    """Full names of all branches, local and remote."""
    if not head.reftable:
        return refs.names(head.common_dir)
    from doflow.git import runner_quick as quick

    listed = quick.quick(head, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes")
    return listed.decode("utf-8", "surrogateescape").splitlines()


def short(found: list[str]) -> frozenset[str]:
    return frozenset(filter(None, map(_short, found)))


def _short(ref: str) -> str:
    if ref.startswith("refs/heads/"):
        return ref.removeprefix("refs/heads/")
    name = ref.removeprefix("refs/remotes/").partition("/")[2]
    return "" if name == "HEAD" else name


def commit_of(head: Head, ref: str) -> str:
    """The id that a full ref name (`refs/heads/main`) stands for, '' if there is none."""
    if head.reftable:
        from doflow.git import runner_quick as quick

        return quick.attempt(head, "rev-parse", "-q", "--verify", "--end-of-options", ref)[1].decode().strip()
    return refs.resolve(head.git_dir, head.common_dir, ref)
