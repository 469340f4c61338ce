"""Which paths a glob means.

`**` any depth, `*` and `?` within one segment, no slash = at any depth, a leading `/` = from the root, a trailing `/`
= all below. A glob whose last segment is a plain name means a folder of that name with all below, too. Upper and lower
case and the ways to write an accent are the same, as on many disks; `[` is a plain character (`[id].tsx` is a file).
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

#: files that steer doflow or an agent program: no agent changes them, whatever a flow allows
ALWAYS = (
    *("/doflow.yaml", "/dodo.py", "/flows/", "/.doflow/", "/.claude/settings*.json", "/.claude/hooks/", "/.mcp.json"),
    *("/.codex/", "/.gemini/settings.json", "/opencode.json", "/opencode.jsonc", "/.opencode/plugin/"),
)
_TOKENS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def matches(globs: tuple[str, ...], path: str) -> bool:
    """Whether one of the globs means `path` (from the root, with `/`)."""
    folded = _fold(path)
    return any(_compiled(glob).match(folded) is not None for glob in globs)


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


@lru_cache(maxsize=4096)
def _compiled(glob: str) -> re.Pattern[str]:
    text = _fold(glob).removeprefix("./")
    anchored = "/" in text.rstrip("/")
    text = text.lstrip("/")
    below = text.endswith("/")
    text = text.rstrip("/")
    last = text.rpartition("/")[2]
    body = "" if anchored else "(?:.*/)?"
    for part in re.split(r"(\*\*/|\*\*|\*|\?)", text):
        body += _TOKENS.get(part, re.escape(part))
    if below:
        body += "/.*"
    elif "*" not in last and "?" not in last:
        body += "(?:/.*)?"
    return re.compile(body + r"\Z", re.DOTALL)
