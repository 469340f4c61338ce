"""The environment variables that a program gets.

An agent gets an allow-list: PATH and home, language, terminal, proxies and certificates, what its adapter needs, what its
profile names. A shell step gets the user's environment. Neither ever gets the flags that disable a guard.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

RUNNING = "PRP_PIPELINE_RUNNING"

_COMMON = (
    *("PATH", "HOME", "USER", "LANG", "LC_*", "TZ", "TMPDIR", "TERM"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
)
_FLAGS = ("SKIP_BUG_FINDING", "PRP_*", "DOFLOW_LOCK_FD")
_NESTED = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_PID")


def for_agent(
    environ: Mapping[str, str],
    adapter_names: Iterable[str],
    profile_env: Iterable[str],
    extra: Mapping[str, str],
    *,
    root: str = "",
    pid: int = 0,
) -> dict[str, str]:
    """The environment of an agent; names may end in `*`. `pid` is the run's process (0 = this one)."""
    allowed = (*_COMMON, *adapter_names, *profile_env)
    kept = {
        name: value
        for name, value in _items(environ)
        if _named(name, allowed) and not _named(name, (*_FLAGS, *_NESTED))
    }
    kept["PATH"] = search_path(environ.get("PATH", ""), root)
    return kept | dict(extra) | {RUNNING: str(pid or os.getpid())}


def for_shell(environ: Mapping[str, str], extra: Mapping[str, str], *, pid: int = 0) -> dict[str, str]:
    """The user's environment without the guards' flags."""
    kept = {name: value for name, value in _items(environ) if not _named(name, _FLAGS)}
    return kept | dict(extra) | {RUNNING: str(pid or os.getpid())}


def search_path(path: str, root: str = "") -> str:
    """PATH without entries that an agent could write to: relative and empty ones, folders inside the project."""
    kept = [entry for entry in path.split(os.pathsep) if os.path.isabs(entry) and not _inside(entry, root)]
    return os.pathsep.join(kept) or os.defpath


def _items(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Name and value of each; a variable that another thread removes meanwhile is skipped."""
    return [(name, value) for name in environ if (value := environ.get(name)) is not None]


def _named(name: str, patterns: Iterable[str]) -> bool:
    return any(name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in patterns)


def _inside(entry: str, root: str) -> bool:
    if not root:
        return False
    tops = (os.path.abspath(root), os.path.realpath(root))
    places = (os.path.normpath(entry), os.path.realpath(entry))
    return any(place == top or place.startswith(top.rstrip("/") + "/") for place in places for top in tops)
