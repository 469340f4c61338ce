"""Reading history: commits of a run by their trailers, files of a commit, tracked and ignored files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence

from doflow.git import head_reader, private_index
from doflow.git.repository import Repository, failure
from doflow.util.errors import WorldError

_ABSENT = ("does not exist in", "exists on disk, but not in", "nvalid object name", "bad revision", "bad file")


def run_commits(git: Repository, run: str) -> tuple[dict[str, str], ...]:
    """Commits in HEAD's history with the trailer `Doflow-Run: <run>`, newest first.

    Each is `id`, `at`, `subject` and its `Doflow-*` trailers; a squashed commit yields one for each of its steps.
    """
    if not head_reader.find_head(git.head.root).commit:
        return ()
    asked = ("log", "-z", "--no-color", "--format=%H%n%cI%n%B", "--fixed-strings", f"--grep=Doflow-Run: {run}", "HEAD")
    listed = git.run(*asked).decode("utf-8", "replace")
    found = (entry for record in listed.split("\0") if record for entry in _entries(record))
    return tuple(entry for entry in found if entry.get("Doflow-Run") == run)


def _entries(record: str) -> list[dict[str, str]]:
    """The entries of one commit, newest first: each `Doflow-Run` in its message starts the trailers of a step."""
    commit, at, message = record.split("\n", 2)
    subject, _, rest = message.strip().partition("\n\n")
    found: list[dict[str, str]] = []
    for line in rest.splitlines():
        key, colon, value = line.strip().partition(": ")
        if colon and key == "Doflow-Run":
            found.append({"id": commit, "at": at, "subject": subject.replace("\n", " ")})
        if colon and key.startswith("Doflow-") and found:
            found[-1][key] = value.strip()
    return found[::-1]


def is_contained(git: Repository, commit: str, exclude: str) -> bool:
    """Whether HEAD contains a commit's changes outside the file `exclude`, possibly reworded, rebased or squashed."""
    if not git.call("merge-base", "--is-ancestor", commit, "HEAD")[0]:
        return True
    code, out, _ = git.call("cherry", "HEAD", commit, f"{commit}^")
    if not code and out.startswith(b"-"):
        return True
    code, names, _ = git.call("diff-tree", "-r", "-z", "--name-only", "--no-commit-id", "--no-renames", commit)
    paths = [os.fsdecode(name) for name in names.split(b"\0") if name]
    paths = [path for path in paths if path != exclude]
    return not code and (not paths or not git.call("diff", "--quiet", commit, "HEAD", "--", *paths)[0])


def file_at(git: Repository, rev: str, path: str) -> bytes | None:
    """The bytes of `path` (from the top of the working tree) in `rev`, None if it does not exist."""
    if rev.startswith("-") or not rev:
        raise WorldError(f"{rev!r} is not a commit", hint="see the commits: git log --oneline")
    args = ("cat-file", "blob", f"{rev}:{path}")
    code, out, err = git.call(*args)
    if code and any(words in err for words in _ABSENT):
        return None
    if code:
        raise failure(args, code, err)
    return out


def is_committed(git: Repository, commit: str, path: str) -> bool:
    """Whether the commit has this file (from the top of the working tree; not a link) as in the working tree."""
    whole = os.path.join(git.head.top, path)
    if not os.path.isfile(whole) or _behind_link(git.head.top, path):
        return False
    code, out, _ = git.call("rev-parse", "--verify", "-q", f"{commit}:{path}")
    return not code and out.strip() == git.run("hash-object", "--", path).strip()


def _behind_link(top: str, path: str) -> bool:
    parts = path.split("/")
    return any(os.path.islink(os.path.join(top, *parts[:depth])) for depth in range(1, len(parts) + 1))


def read_blob(git: Repository, ident: str) -> bytes:
    """The bytes of a blob by its id."""
    return git.run("cat-file", "blob", ident)


def parent_commit(git: Repository, rev: str) -> str:
    """The commit before `rev`; the empty tree if there is none."""
    code, out, _ = git.call("rev-parse", "--verify", "-q", f"{rev}^")
    return out.decode().strip() if not code else private_index.EMPTY[private_index.id_length(git)]


def file_commits(git: Repository, paths: Sequence[str], most: int = 100) -> tuple[str, ...]:
    """The commits in HEAD's history that changed one of these files (from the top of the working tree), newest first."""
    if not paths or not head_reader.find_head(git.head.root).commit:
        return ()
    asked = ("log", f"-{most}", "--no-color", "--format=%H", "HEAD", "--", *(f":(top,literal){path}" for path in paths))
    return tuple(git.run(*asked, env={"GIT_LITERAL_PATHSPECS": "0"}).decode().split())


def file_changes(git: Repository, base: str, paths: Sequence[str]) -> str:
    """The diff of these files from a commit to the working tree."""
    asked = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", base, "--")
    listed = git.run(*asked, *(f":(top,literal){path}" for path in paths), env={"GIT_LITERAL_PATHSPECS": "0"})
    return listed.decode("utf-8", "replace")


def diff_since(git: Repository, base: str, exclude: str) -> str:
    """The patch from `base` to HEAD, outside the folder `exclude`."""
    asked = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", base, "HEAD", "--", ".")
    listed = git.run(*asked, f":(exclude){exclude}", env={"GIT_LITERAL_PATHSPECS": "0"})
    return listed.decode("utf-8", "replace")


def commit_patch(git: Repository, commit: str) -> str:
    """The patch of one commit."""
    asked = ("show", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--format=", commit)
    return git.run(*asked).decode("utf-8", "replace")


def commit_patches(git: Repository, commits: Sequence[str], exclude: str) -> str:
    """The patches of these commits outside `exclude`, without ids and line numbers, so that a rebase does not change them."""
    asked = ("show", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--format=", *commits, "--", ".")
    listed = git.run(*asked, f":(exclude){exclude}", env={"GIT_LITERAL_PATHSPECS": "0"}).decode("utf-8", "replace")
    return "\n".join(line for line in listed.split("\n") if not line.startswith(("index ", "@@ ")))


def list_blobs(git: Repository, rev: str, since: str = "") -> dict[str, tuple[str, str]]:
    """Every file of commit `rev` ('' = none yet) below the project's root: path from there -> (mode, blob id).

    With `since` only what differs from that commit; mode '' = deleted.
    """
    found: dict[str, tuple[str, str]] = {}
    if not rev:
        return found
    below = _below(git)
    if since:
        parts = git.run("diff-tree", "-r", "--raw", "-z", "--no-renames", since, rev).split(b"\0")
        for meta, name in zip(parts[::2], parts[1::2], strict=False):
            _, mode, _, ident, kind = meta.decode().split(" ")
            if name.startswith(below):
                found[os.fsdecode(name[len(below) :])] = ("", "") if kind == "D" else (mode, ident)
        return found
    for line in git.run("ls-tree", "-r", "-z", "--full-tree", rev).split(b"\0"):
        meta, tab, name = line.partition(b"\t")
        if tab and name.startswith(below):
            mode, _, ident = meta.decode().split(" ")
            found[os.fsdecode(name[len(below) :])] = (mode, ident)
    return found


def ignored_files(git: Repository) -> tuple[str, ...]:
    """Ignored files below the project's root; a completely ignored folder is one entry ending in '/'."""
    listed = git.run("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory")
    return _mine(git, listed)


def untracked_in_project(git: Repository) -> tuple[str, ...]:
    """Untracked, not ignored files below the project's root."""
    return _mine(git, git.run("ls-files", "-z", "-o", "--exclude-standard"))


def untracked_files(git: Repository, folder: str) -> tuple[str, ...]:
    """Untracked, not ignored files below a folder (from the top of the working tree)."""
    listed = git.run("ls-files", "-z", "-o", "--exclude-standard", "--", folder)
    return tuple(sorted(os.fsdecode(name) for name in listed.split(b"\0") if name))


def ignored_among(git: Repository, paths: Sequence[str], work_tree: str = "") -> frozenset[str]:
    """Those of these untracked paths (from the project's root) that git ignores; `work_tree`: by the rules there."""
    below = _below(git)
    asked = [b"./" + below + os.fsencode(path) for path in paths]  # a leading ':' would be magic
    place = {"GIT_WORK_TREE": work_tree} if work_tree else {}
    told = {os.fsdecode(name[2 + len(below) :]) for name in _ignored(git, asked, place)}
    return frozenset(told.intersection(paths))


def _ignored(git: Repository, names: Sequence[bytes], env: Mapping[str, str]) -> set[bytes]:
    """What git ignores of these. A path behind a link or in a submodule is an error for all of them: then in halves."""
    given = {"GIT_LITERAL_PATHSPECS": "0", **env}
    code, out, _ = git.call("check-ignore", "-z", "--stdin", input=b"".join(name + b"\0" for name in names), env=given)
    if code in (0, 1) or len(names) < 2:
        return set(out.split(b"\0")) - {b""} if code == 0 else set()
    half = len(names) // 2
    return _ignored(git, names[:half], env) | _ignored(git, names[half:], env)


def ignored_paths(git: Repository, paths: Sequence[str]) -> frozenset[str]:
    """Those of these paths (from the top of the working tree) that git ignores, whole folders too."""
    if not paths:
        return frozenset()
    asked = [b"./" + os.fsencode(path) for path in paths]
    return frozenset(os.fsdecode(name[2:]) for name in _ignored(git, asked, {}))


def tracked_named(git: Repository, name: str) -> tuple[str, ...]:
    """The tracked files with this name, below the project's root."""
    listed = git.run("ls-files", "-z", "--", f":(glob)**/{name}", env={"GIT_LITERAL_PATHSPECS": "0"})
    return _mine(git, listed)


def uncommitted_files(git: Repository) -> tuple[str, ...]:
    """Tracked files below the project's root whose content differs from HEAD, staged or not."""
    head = head_reader.find_head(git.head.root).commit or private_index.EMPTY[private_index.id_length(git)]
    listed = git.run("diff-index", "--name-only", "-z", "--no-renames", "--ignore-submodules", head)
    flagged = (line for line in git.run("ls-files", "-v", "-z").split(b"\0") if line[:1].islower() or line[:1] == b"S")
    return _mine(git, listed + b"".join(line[2:] + b"\0" for line in flagged))  # git does not look at these


def is_ancestor(git: Repository, old: str, new: str) -> bool:
    """Whether `new` contains `old` ('' = no commit yet)."""
    return not old or old == new or not git.call("merge-base", "--is-ancestor", old, new)[0]


def filtered_file_at(git: Repository, rev: str, path: str) -> bytes | None:
    """The bytes of `path` as git would check them out, None if `rev` does not have it."""
    code, out, _ = git.call("cat-file", "--filters", f"{rev}:{path}")
    return None if code else out


def store_file(git: Repository, source: str, path: str) -> str:
    """Store a file among git's objects as if it were at `path` (from the top of the working tree); its id."""
    return git.run("hash-object", "-w", f"--path={path}", "--", source).decode().strip()


def merge_texts(git: Repository, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
    """A three-way merge by `git merge-file`, None if both changed the same lines."""
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
            names.append(os.path.join(folder, name))
            with open(names[-1], "wb") as stream:
                stream.write(data)
        code, out, _ = git.call("merge-file", "-p", "-q", *names)
    return out if code == 0 else None


def dirty_files(git: Repository, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Tracked files below the project's root with changes, staged or not, outside the folders `exclude`.

    The working tree is compared with our own index, so that flags like assume-unchanged hide nothing.
    """
    base = head_reader.find_head(git.head.root).commit
    tree = private_index.seed(git, base)
    index = private_index.index_path(git)
    git.call("update-index", "-q", "--refresh", index=index)
    differ = git.run("diff-files", "--name-only", "-z", "--ignore-submodules=dirty", index=index)
    private_index.record_seed(git, base, tree)
    against = base or private_index.EMPTY[private_index.id_length(git)]
    staged = git.run("diff-index", "--cached", "--name-only", "-z", "--no-renames", against)
    return tuple(name for name in _mine(git, differ + staged) if not _under(name, exclude))


def changed_outside_root(git: Repository) -> tuple[str, ...]:
    """Files of the working tree outside the project's root, from the top, that differ from the index or are untracked."""
    below = _below(git)
    listed = git.run("ls-files", "-z", "-o", "-m", "-d", "--exclude-standard")
    names = dict.fromkeys(name for name in listed.split(b"\0") if name and below and not name.startswith(below))
    return tuple(os.fsdecode(name) for name in names)


def _below(git: Repository) -> bytes:
    """The project's root relative to the top of the working tree: b'' or b'apps/shop/'."""
    return os.fsencode(git.head.root[len(git.head.top) :].strip("/") + "/").lstrip(b"/")


def _mine(git: Repository, listing: bytes) -> tuple[str, ...]:
    below = _below(git)
    names = {os.fsdecode(name[len(below) :]) for name in listing.split(b"\0") if name.startswith(below)}
    return tuple(sorted(names - {""}))


def _under(name: str, folders: tuple[str, ...]) -> bool:
    return any(name == folder.rstrip("/") or name.startswith(folder.rstrip("/") + "/") for folder in folders)
