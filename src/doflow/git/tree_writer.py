"""The tree of the next commit, put together in our own memory: the few folders that change are read once, by one git
process, and written as objects.

Where names, modes, settings or attributes are out of the ordinary this room steps back (None): git's index knows all of
that (with `text=auto` even what the index holds decides how a file is stored).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from doflow.git import tree_writer_objects as objects
from doflow.git.runner import Git
from doflow.util.records import dataclass, field, regex

Entries = dict[bytes, tuple[int, str]]

_QUEER = regex(r'(?i)^"|git~')  # git reads these in its own way

_FOLDER = 0o40000
_LINK = 0o120000
_SMALL = 1 << 20
_UNUSUAL = {
    "core.filemode": ("", "true"), "core.symlinks": ("", "true"), "core.ignorecase": ("", "false"),
    "core.precomposeunicode": ("", "false"), "core.sharedrepository": ("", "false", "umask", "0"),
}  # fmt: skip


@dataclass(slots=True)
class Known:
    """Folders of the tree of `commit`: path → name → (mode, id)."""

    commit: str = ""
    root: str = ""
    folders: dict[str, Entries] = field(default_factory=dict)


def build(git: Git, base: str, paths: Sequence[str]) -> tuple[str, str] | None:
    """(tree of `base`, tree with what the work tree holds at `paths`), or None: let the index do it."""
    if not base or not _usual(git, paths):
        return None
    known = _known(git, base)
    above = {folder for path in paths for folder in _above(path)}
    if not _read(git, known, sorted(folder for folder in above if folder not in known.folders)):
        return None
    if _converted(git, known, above):
        return None
    before = known.root
    known.commit = ""  # until the commit is made, nothing here is true of any
    _place(git, known, paths)
    _fold(git, known, above)
    return before, known.root


def holds(git: Git, commit: str, path: str) -> bool:
    """Is this file (from the top of the work tree; no link) in the commit as it stands in the work tree now?"""
    mode = _mode(git.head.top, path)
    if not stat.S_ISREG(mode):
        return False
    known, above = _known(git, commit), _above(path)
    if _usual(git, (path,)) and _read(git, known, [folder for folder in above if folder not in known.folders]):
        folder, _, name = path.rpartition("/")
        stored = known.folders[folder].get(os.fsencode(name))
        data = None if _converted(git, known, set(above)) else _content(git, path)
        if stored is None or data is not None:
            return stored is not None and stored[1] == objects.ident(b"blob", data or b"", len(commit))
    code, out, _ = git.call("rev-parse", "--verify", "-q", f"{commit}:{path}")
    return not code and out.strip() == git.run("hash-object", "--", path).strip()


def settle(git: Git, commit: str) -> None:
    """What was built is the tree of this commit."""
    _held(git).commit = commit


def _usual(git: Git, paths: Sequence[str]) -> bool:
    if any(git.setting(key).lower() not in values for key, values in _UNUSUAL.items()):
        return False
    return all(path.isascii() and path.isprintable() and not _QUEER.search(path) for path in paths)


def _held(git: Git) -> Known:
    if git.trees is None:
        git.trees = Known()
    found: Known = git.trees
    return found


def _known(git: Git, base: str) -> Known:
    known = _held(git)
    if known.commit != base:
        known = git.trees = Known(base)
    return known


def _above(path: str) -> list[str]:
    """The folders that a path lies in, '' first."""
    parts = path.split("/")[:-1]
    return ["", *("/".join(parts[: depth + 1]) for depth in range(len(parts)))]


def _read(git: Git, known: Known, wanted: Sequence[str]) -> bool:
    """These folders of the commit; one that it does not have is empty."""
    if not wanted:
        return True
    asked = "".join(f"{known.commit}:{folder}\n" for folder in wanted)
    answer = git.run("cat-file", "--batch", input=asked.encode())
    at = 0
    for folder in wanted:
        end = answer.index(b"\n", at)
        words = answer[at:end].split()
        at = end + 1
        entries: Entries = {}
        if len(words) == 3 and words[2].isdigit():
            size = int(words[2])
            if words[1] == b"tree":
                entries = _parsed(answer[at : at + size], len(known.commit) // 2)
            at += size + 1
            if not folder:
                known.root = words[0].decode()
        known.folders[folder] = entries
    return bool(known.root)


def _parsed(raw: bytes, width: int) -> Entries:
    entries: Entries = {}
    at = 0
    while at < len(raw):
        space, end = raw.index(b" ", at), raw.index(b"\0", at)
        entries[raw[space + 1 : end]] = (int(raw[at:space], 8), raw[end + 1 : end + 1 + width].hex())
        at = end + 1 + width
    return entries


def _place(git: Git, known: Known, paths: Sequence[str]) -> None:
    """Every path as the work tree has it: a file, a link, or nothing."""
    large: list[tuple[str, int]] = []
    for path in paths:
        mode = _mode(git.head.top, path)
        folder, _, name = path.rpartition("/")
        if not mode:
            known.folders[folder].pop(os.fsencode(name), None)
        elif stat.S_ISLNK(mode):
            target = os.fsencode(os.readlink(os.path.join(git.head.top, path)))
            _set(known, path, _LINK, objects.store(git, b"blob", target, len(known.root)))
        else:
            plain = 0o100755 if mode & 0o100 else 0o100644
            data = _content(git, path)
            if data is None:
                large.append((path, plain))
            else:
                _set(known, path, plain, objects.store(git, b"blob", data, len(known.root)))
    if large:
        names = "".join(f"{path}\n" for path, _ in large)
        said = git.run("hash-object", "-w", "--stdin-paths", input=names.encode()).decode().split()
        for (path, plain), ident in zip(large, said, strict=True):
            _set(known, path, plain, ident)


def _set(known: Known, path: str, mode: int, ident: str) -> None:
    folder, _, name = path.rpartition("/")
    known.folders[folder][os.fsencode(name)] = (mode, ident)
    for below in [entry for entry in known.folders if entry == path or entry.startswith(f"{path}/")]:
        known.folders[below] = {}  # a file stands where a folder was


def _mode(top: str, path: str) -> int:
    """The mode of a file or a link, 0 if for git there is none: a folder, or something beyond a link."""
    at = top
    for part in path.split("/")[:-1]:
        at = os.path.join(at, part)
        if os.path.islink(at):
            return 0
    try:
        mode = os.lstat(os.path.join(top, path)).st_mode
    except OSError:
        return 0
    return 0 if stat.S_ISDIR(mode) else mode


def _converted(git: Git, known: Known, folders: set[str]) -> bool:
    """May anything say that files in these folders are stored otherwise than they stand there?"""
    if git.setting("core.autocrlf").lower() not in ("", "false") or git.setting("core.attributesfile"):
        return True
    inside = (os.path.join(git.head.top, folder, ".gitattributes") for folder in folders)
    stored = any(b".gitattributes" in known.folders[folder] for folder in folders)
    return stored or any(map(os.path.lexists, (*inside, *_elsewhere(git))))


def _content(git: Git, path: str) -> bytes | None:
    """The bytes of a small file; a large one is left to git, which does not hold it in memory."""
    with open(os.path.join(git.head.top, path), "rb") as stream:
        data = stream.read(_SMALL + 1)
    return data if len(data) <= _SMALL else None


def _elsewhere(git: Git) -> tuple[str, ...]:
    """Attributes that lie outside of the work tree."""
    home = os.environ.get("HOME", "/")
    xdg = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    beside = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(git.program))), "etc")
    return (
        os.path.join(git.head.common_dir, "info", "attributes"),
        os.path.join(xdg, "git", "attributes"),
        "/etc/gitattributes",
        os.path.join(beside, "gitattributes"),
    )


def _fold(git: Git, known: Known, folders: set[str]) -> None:
    """Write the changed folders, the deepest first; one with nothing in it is not kept."""
    width = len(known.root)
    for folder in sorted(folders, key=lambda entry: (-entry.count("/") - bool(entry), entry)):
        entries = known.folders[folder]
        if folder:
            above, _, name = folder.rpartition("/")
            inside = known.folders[above]
            if entries:
                inside[os.fsencode(name)] = (_FOLDER, _stored(git, entries, width))
            elif inside.get(os.fsencode(name), (0, ""))[0] == _FOLDER:
                del inside[os.fsencode(name)]
        else:
            known.root = _stored(git, entries, width)


def _stored(git: Git, entries: Entries, width: int) -> str:
    order = sorted(entries, key=lambda name: name + b"/" if entries[name][0] == _FOLDER else name)
    lines = [b"%o %s\0%s" % (entries[name][0], name, bytes.fromhex(entries[name][1])) for name in order]
    return objects.store(git, b"tree", b"".join(lines), width)
