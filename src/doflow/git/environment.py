"""The environment for git: nothing that an agent left in a repository runs, prompts or redirects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from doflow.git.head import Head
from doflow.util.errors import WorldError

_CONFIG = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.alternateRefsCommand", "true"),
    ("core.quotePath", "false"),
    ("core.trustctime", "true"),
    ("core.checkStat", "default"),
    ("core.ignoreStat", "false"),
    ("core.looseCompression", "1"),
    ("core.fsync", "reference"),
    ("commit.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("diff.external", ""),
    ("submodule.recurse", "false"),
    ("diff.ignoreSubmodules", "dirty"),
    ("protocol.allow", "never"),
    ("user.useConfigOnly", "true"),
    ("i18n.commitEncoding", "UTF-8"),
)
_PRIVATE = (("core.splitIndex", "false"), ("core.sparseCheckout", "false"), ("index.sparse", "false"))
_KEPT = (
    *("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"),
    *("GIT_SSL_", "GIT_HTTP_", "GIT_PYTHON_", "GIT_MERGE_"),  # without effect here: nothing is fetched or merged
)
_KEPT_NAMES = frozenset(
    ("GIT_CONFIG_COUNT", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH")
)


def program(top: str, environ: Mapping[str, str]) -> str:
    """The absolute path of git, never one inside the project."""
    for folder in safe_path(top, environ).split(os.pathsep):
        found = os.path.join(folder, "git")
        if folder and os.path.isfile(found) and os.access(found, os.X_OK) and not _inside(found, top):
            return found
    raise WorldError(
        "git was not found on the PATH (folders inside the project and relative ones are not searched)",
        hint="install git (https://git-scm.com/downloads) and run again",
    )


def safe_path(top: str, environ: Mapping[str, str]) -> str:
    """PATH without relative folders and without folders of the project."""
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if os.path.isabs(folder) and not _inside(folder, top))


def _inside(path: str, top: str) -> bool:
    real = os.path.realpath(path)
    return real == top or real.startswith(top.rstrip("/") + "/")


def unwanted(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the caller's git variables that must not reach our git (we may run inside a git hook)."""
    return tuple(
        name for name in environ if name.startswith("GIT_") and not name.startswith(_KEPT) and name not in _KEPT_NAMES
    )


def overrides(
    head: Head, environ: Mapping[str, str], config: tuple[tuple[str, str], ...] = (), index: str = ""
) -> dict[str, str]:
    """The variables for one git process; the user's own GIT_CONFIG_COUNT entries stay, ours come after them."""
    wanted = {
        "GIT_DIR": head.git_dir,
        "GIT_WORK_TREE": head.top,
        "GIT_CEILING_DIRECTORIES": os.path.dirname(head.top),
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "GIT_SSH_COMMAND": "false",
        "GIT_GRAFT_FILE": "/dev/null",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "false",
        "PATH": safe_path(head.top, environ),
        "LANGUAGE": "C",
        "LC_ALL": "C",
    }
    if index:
        wanted["GIT_INDEX_FILE"] = index
    pairs = _CONFIG + config + (_PRIVATE if index else ())
    first = _count(environ)
    for number, (key, value) in enumerate(pairs, first):
        wanted[f"GIT_CONFIG_KEY_{number}"] = key
        wanted[f"GIT_CONFIG_VALUE_{number}"] = value
    wanted["GIT_CONFIG_COUNT"] = str(first + len(pairs))
    return wanted


def _count(environ: Mapping[str, str]) -> int:
    text = environ.get("GIT_CONFIG_COUNT", "")
    return int(text) if text.isdecimal() else 0


_FILTER = ("clean", "smudge", "process", "required")
Signature = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of git's config: filter settings, other programs it names, and the files it came from."""

    filters: Mapping[str, str] = field(default_factory=dict)
    others: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def parse_config(listing: bytes, head: Head) -> Reading:
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
        elif key == "core.hookspath" and origin.startswith("file:"):  # any other origin is our own override
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
    """The folder a config line came from; its file is added to the watched files."""
    if not origin.startswith("file:"):
        return head.top
    path = os.path.join(head.top, origin.removeprefix("file:"))
    files[path] = None
    return os.path.dirname(path)


def signature(files: tuple[str, ...]) -> Signature:
    """Changes whenever one of the config files was touched, created or removed."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for path in files:
        try:
            it = os.stat(path)
            found.append((path, (it.st_dev, it.st_ino, it.st_size, it.st_mtime_ns, it.st_ctime_ns)))
        except OSError:
            found.append((path, ()))
    return tuple(found)


def driver_overrides(trusted: Mapping[str, str], now: Reading) -> tuple[tuple[str, str], ...]:
    """Config that keeps the trusted filters unchanged and disables every other program."""
    changed = {key for key in (*now.filters, *trusted) if now.filters.get(key) != trusted.get(key)}
    known = {key.rpartition(".")[0] for key in trusted}
    for key in sorted(changed):
        if key not in trusted and key.rpartition(".")[0] in known:
            raise WorldError(
                f"the git config now sets {key}, which was not set when the run started",
                hint=f"check it (git config --show-origin {key}), remove it (git config --unset {key}) and run again",
            )
    kept = tuple((key, trusted[key]) for key in sorted(changed) if key in trusted)
    inert = tuple((key, "false" if key.endswith(".required") else "") for key in sorted(changed - set(trusted)))
    return kept + inert + now.others
