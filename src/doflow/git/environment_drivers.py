"""The programs a git config names: those that were there when the run began stay, later ones never start."""

from __future__ import annotations

import os
from collections.abc import Mapping

from doflow.git.head import Head
from doflow.util.errors import WorldError
from doflow.util.records import dataclass, field

_FILTER = ("clean", "smudge", "process", "required")
_SETTINGS = frozenset({
    "core.sharedrepository", "core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode",
    "core.autocrlf", "core.attributesfile", "core.hookspath",
})  # fmt: skip
Signature = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of git's config: filter settings, other programs it names, and the files it came from."""

    filters: Mapping[str, str] = field(default_factory=dict)
    others: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def read(listing: bytes, head: Head) -> Reading:
    """From the answer of `git config --list --show-origin --includes -z`."""
    parts = listing.decode("utf-8", "surrogateescape").split("\0")
    filters: dict[str, str] = {}
    others: dict[str, str] = {}
    settings: dict[str, str] = {}
    files = dict.fromkeys(_usual(head))
    for origin, entry in zip(parts[::2], parts[1::2], strict=False):
        key, _, value = entry.partition("\n")
        folder = _origin(origin, head, files)
        family, last = key.partition(".")[0], key.rpartition(".")[2]
        if family == "filter" and last in _FILTER:
            filters[key] = value
        elif family == "diff" and last in ("command", "textconv"):
            others[key] = ""
        elif family == "merge" and last == "driver":
            others[key] = "false"
        elif key in _SETTINGS and (origin.startswith("file:") or key != "core.hookspath"):  # that one we set ourselves
            settings[key] = value
        elif family in ("include", "includeif") and last == "path":
            files[os.path.join(folder, os.path.expanduser(value))] = None
    return Reading(filters, tuple(others.items()), tuple(files), settings)


def _usual(head: Head) -> tuple[str, ...]:
    home = os.environ.get("HOME", "/")
    xdg = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return (
        os.path.join(head.common_dir, "config"),
        os.path.join(head.git_dir, "config.worktree"),
        os.path.join(home, ".gitconfig"),
        os.path.join(xdg, "git", "config"),
        "/etc/gitconfig",
    )


def _origin(origin: str, head: Head, files: dict[str, None]) -> str:
    """The folder a config line came from; its file is put on the list of files to watch."""
    if not origin.startswith("file:"):
        return head.top
    path = os.path.join(head.top, origin.removeprefix("file:"))
    files[path] = None
    return os.path.dirname(path)


def signature(files: tuple[str, ...]) -> Signature:
    """Changes whenever one of the config files was touched, made or removed."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for path in files:
        try:
            it = os.stat(path)
            found.append((path, (it.st_dev, it.st_ino, it.st_size, it.st_mtime_ns, it.st_ctime_ns)))
        except OSError:
            found.append((path, ()))
    return tuple(found)


def pins(trusted: Mapping[str, str], now: Reading) -> tuple[tuple[str, str], ...]:
    """Config that keeps the trusted filters as they were and makes every other program inert."""
    changed = {key for key in (*now.filters, *trusted) if now.filters.get(key) != trusted.get(key)}
    known = {key.rpartition(".")[0] for key in trusted}
    for key in sorted(changed):
        if key not in trusted and key.rpartition(".")[0] in known:
            raise WorldError(
                f"the git config now says {key}, which it did not when the run began",
                hint=f"look at it (git config --show-origin {key}), remove it (git config --unset {key}) and run again",
            )
    kept = tuple((key, trusted[key]) for key in sorted(changed) if key in trusted)
    inert = tuple((key, "false" if key.endswith(".required") else "") for key in sorted(changed - set(trusted)))
    return kept + inert + now.others
