"""The environment git gets: nothing that an agent left in a repository runs, asks or redirects."""

from __future__ import annotations

import os
from collections.abc import Mapping

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
    """The absolute path of git; one that lies inside the project is never taken."""
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
    """What is set for one git process; a person's own GIT_CONFIG_COUNT entries stay, ours come after them."""
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


def whole(head: Head, environ: Mapping[str, str], config: tuple[tuple[str, str], ...] = ()) -> dict[str, str]:
    """The complete environment, for a process that is started without GitPython."""
    dropped = frozenset(unwanted(environ))
    kept = {name: value for name, value in environ.items() if name not in dropped}
    return kept | overrides(head, environ, config)
