"""Glob matching: in `reads`, `needs`, `writes` and `protect` alike.

`**` any depth, `*` and `?` within one segment, no slash = at any depth, a leading `/` = from the root, a trailing `/`
= all below. A glob whose last segment is a plain name also matches everything below a folder of that name. Case and Unicode
normalization are ignored, as on many file systems; `[` is a plain character (`[id].tsx` is a file).
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

#: files that control doflow or an agent program: no agent may change them, whatever a flow allows
ALWAYS = (
    *("/doflow.yaml", "/dodo.py", "/flows/", "/.doflow/", "/.claude/settings*.json", "/.claude/hooks/", "/.mcp.json"),
    *("/.codex/", "/.gemini/settings.json", "/opencode.json", "/opencode.jsonc", "/.opencode/plugin/"),
)
_TOKENS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def is_pattern(text: str) -> bool:
    """Whether a path is a glob, not the name of one file."""
    return "*" in text or "?" in text


def find_files(root: Path, glob: str) -> tuple[str, ...]:
    """The regular files below `root` that match a glob from the root, in order."""
    found = root.glob(glob.replace("[", "[[]"))
    return tuple(sorted(str(path.relative_to(root)) for path in found if path.is_file()))


def matches(globs: tuple[str, ...], path: str) -> bool:
    """Whether one of the globs matches `path` (from the root, with `/`)."""
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
    elif not is_pattern(last):
        body += "(?:/.*)?"
    return re.compile(body + r"\Z", re.DOTALL)
