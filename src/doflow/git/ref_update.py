"""Moving a ref that is a plain file, as git does it but without a process: lock, compare, write, rename, reflog.

Whatever is not quite plain (reftable, shared modes, a ref that stands for another) is left to git: False, nothing done.
"""

from __future__ import annotations

import os

from doflow.git import refs
from doflow.git.head import Head
from doflow.util import atomic_files as files


def ref(head: Head, name: str, old: str, new: str, who: str, said: str) -> bool:
    """Move `name` from `old` ('' = it must not exist) to `new`; on the disk when this returns."""
    path = os.path.join(head.common_dir, name)
    if not plain(head) or not who:
        return False
    lock = _lock(path)
    if lock < 0:
        return False
    try:
        if not _still(head, path, name, old):
            os.unlink(f"{path}.lock")
            return False
        _write(lock, path, new)
        _sync(os.path.dirname(path))
    finally:
        os.close(lock)
    none = "0" * len(new)
    log(head, os.path.join(head.common_dir, "logs", name), old or none, new, who, said)
    if head.ref == name:
        log(head, os.path.join(head.git_dir, "logs", "HEAD"), old or none, new, who, said)
    return True


def symbolic(head: Head, target: str, who: str, said: str) -> bool:
    """Let HEAD stand for `target`, a branch at the very commit of HEAD."""
    path = os.path.join(head.git_dir, "HEAD")
    lock = _lock(path) if plain(head) and who and not os.path.islink(path) else -1
    if lock < 0:
        return False
    try:
        _write(lock, path, f"ref: {target}")
    finally:
        os.close(lock)
    log(head, os.path.join(head.git_dir, "logs", "HEAD"), head.commit, head.commit, who, said)
    return True


def plain(head: Head) -> bool:
    """Are refs plain files here, with nothing about them that only git knows how to do?"""
    config = refs.small(os.path.join(head.common_dir, "config"), 1 << 20).lower()
    return not head.reftable and "sharedrepository" not in config


def log(head: Head, path: str, old: str, new: str, who: str, said: str) -> None:
    """The reflog, where there is one."""
    if os.path.isfile(os.path.join(head.git_dir, "logs", "HEAD")):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab") as stream:
            stream.write(f"{old} {new} {who}\t{said}\n".encode("utf-8", "surrogateescape"))


def _still(head: Head, path: str, name: str, old: str) -> bool:
    """Is the ref where it was, and a file of its own (or packed), not a name for another?"""
    text = refs.small(path).strip()
    return not text.startswith("ref:") and refs.resolve(head.git_dir, head.common_dir, name) == old


def _lock(path: str) -> int:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(f"{path}.lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError:
        return -1  # somebody holds it, or a folder stands there: git says it in its own words


def _write(lock: int, path: str, text: str) -> None:
    try:
        files.put(lock, text.encode("utf-8", "surrogateescape") + b"\n")
        os.fsync(lock)
        os.rename(f"{path}.lock", path)
    except OSError as error:
        os.unlink(f"{path}.lock")
        raise files.broke("write", path, error) from error


def _sync(folder: str) -> None:
    fd = files.open_folder(folder)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
