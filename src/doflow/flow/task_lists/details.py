"""What a task says about itself: marks, files, dependencies and requirements in its text and in the lines below it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_MARK = re.compile(r"\[(?:(P)(?::[\w-]{1,40})?|(US[ -]?\d{1,4}[^\]\[]{0,40}|Story[^\]\[]{0,40}))\]", re.IGNORECASE)
_LABEL = re.compile(r"[-*+•\s_]*(?P<key>[^\W\d_](?:[^\W_]|[ /-]){0,30}?)[*_`]*[ \t]?[:：][*_]*(?P<value>.*)", re.DOTALL)
_FILES = frozenset({"file", "files", "files to modify", "files to create", "path", "paths"})
_REQUIREMENTS = frozenset(
    {"requirement", "requirements", "validates", "req", "reqs", "ac", "acs", "acceptance criteria", "refs", "satisfies"}
)
_REQUIREMENT = re.compile(r"[\[*]{0,3}(?:requirements?\s+)?#?([A-Z]{0,5}-?\d{1,5}(?:\.\d{1,5})*)", re.IGNORECASE)
_INLINE_REQUIREMENT = re.compile(r"\b(?:N?FR|REQ|SC)-\d{1,5}\b")
_CRITERIA = re.compile(r"\(ACs?\b[:\s]{0,2}([^()]{1,120})\)", re.IGNORECASE)
_DEPENDS = re.compile(
    r"(?<![^\W_])(?:depend(?:s|ing|ent)?[ \t]{1,2}(?:up)?on|depends|dependenc(?:y|ies)(?=[*_]*:)|blocked[ \t]by|abhängig von|dépend de"
    r"|depende de|dipende da|зависит от|phụ thuộc(?: vào)?)|依赖于?|依賴於?|依存|의존",
    re.IGNORECASE,
)
_TOKEN = r"[A-Z]{0,10}[-_]?\d{1,9}(?:\.\d{1,9}){0,9}[a-z]?"
_DEPENDENCY = re.compile(
    rf"(?:[\s,;:：&+/、，\[\]`*_(（]|\b(?:and|tasks?|und|et|y|和|と)\b){{0,12}}#?({_TOKEN})(?![^\W_])"
    rf"(?:[\]`*]*[ \t]?(?:-|–|—|\.\.|to|through)[ \t]?[\[`*]*({_TOKEN})(?![^\W_]))?",
    re.IGNORECASE,
)
_FRONT = 120  # characters of a text in which its marks are looked for
_WINDOW = 400  # characters after "depends on" in which ids are looked for
_NAMES = frozenset(
    {"Makefile", "Dockerfile", "Justfile", "Procfile", "Gemfile", "Rakefile", "LICENSE", ".gitignore", ".env"}
)
_KNOWN_EXTENSION = re.compile(
    "astro|bash|bat|c|cc|cfg|conf|cpp|cs|csproj|css|csv|cts|cxx|dart|dockerfile|ejs|env|ex|exs|fs|go|gradle"
    "|graphql|h|hcl|hpp|html|http|ini|ipynb|java|jinja|js|json|jsonc|jsx|kt|kts|less|lock|lua|m|md|mdc|mdx|mjs"
    "|mk|mm|mts|php|pl|plist|po|prisma|properties|proto|ps1|psm1|py|pyi|r|rb|resx|rs|rst|sass|scala|scss|sh|sln"
    "|slnx|sql|svelte|svg|swift|tf|tfvars|toml|ts|tsv|tsx|txt|vue|wasm|xaml|xml|yaml|yml|zig",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?:\.{0,2}/)?(?:[\w.@+()\[\]{}*~$-]+/)*[\w.@+()\[\]{}*~$,-]*")
_EXTENSION = re.compile(r".*\w\.([A-Za-z][A-Za-z0-9]{0,9})")
_QUOTES = "*~\"'“”‘’<>"
_LINE_REFERENCE = re.compile(r"(?::\d+(?:[-–]\d+)?|#L\d+.*)$")


def split_marks(text: str) -> tuple[str, bool, str]:
    """The text without its leading marks, whether `[P]` is among them, and the story (`US1`)."""
    parallel, story, end = False, "", 0
    for found in _MARK.finditer(text[:_FRONT]) if "[" in text[:_FRONT] else ():
        parallel, story = parallel or found[1] is not None, story or found[2] or ""
        if not text[end : found.start()].strip():  # another mark may stand behind an emoji or a bold word: it stays
            end = found.end()
    return text[end:].lstrip(), parallel, story


def find_files(text: str, notes: Iterable[str]) -> tuple[str, ...]:
    """Paths in backticks, plain paths, and what `files:` lines name."""
    found: dict[str, None] = {}
    for line in (text, *notes):
        if label := _label(line, _FILES):
            found.update(dict.fromkeys(_items(label)))
        elif "." in line or "/" in line:
            found.update(dict.fromkeys(_paths(line)))
    return tuple(found)


def find_depends(text: str, notes: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The ids after "depends on", as ranges: (`T001`, `T003`), or (`T001`, '') for a single one."""
    for line in (text, *notes):
        place = 0
        while found := _DEPENDS.search(line, place):
            place = found.end()
            while one := _DEPENDENCY.match(line, place, found.end() + _WINDOW):
                place = one.end()
                yield one[1], one[2] or ""


def find_requirements(text: str, notes: Iterable[str]) -> tuple[str, ...]:
    """`_Requirements: 1.1, 2.3_` (in any language: dotted numbers in italics), `(AC: 1, 2)`, `FR-001`."""
    found: dict[str, None] = {}
    for line in (text, *notes):
        if label := _label(line, _REQUIREMENTS) or _italics(line):
            found.update(dict.fromkeys(one[1] for item in _items(label) if (one := _REQUIREMENT.match(item))))
        elif "(" in line and (criteria := _CRITERIA.search(line)):
            found.update(dict.fromkeys(one[1] for item in _items(criteria[1]) if (one := _REQUIREMENT.fullmatch(item))))
        if "-" in line:
            found.update(dict.fromkeys(_INLINE_REQUIREMENT.findall(line)))
    return tuple(found)


def _label(line: str, keys: frozenset[str]) -> str:
    """The value of a line `key: value`, whatever marks are around the key."""
    found = _LABEL.match(line) if ":" in line[:60] or "：" in line[:60] else None
    return found["value"].strip("_ ") if found and found["key"].strip().lower() in keys else ""


def _italics(line: str) -> str:
    """The value of `_words: 1.1, 2.3_`."""
    bare = line.lstrip("-*+• \t")
    if not (bare.startswith("_") and bare.endswith("_") and (found := _LABEL.match(bare))):
        return ""
    value = found["value"].strip("_ ")
    is_numbers = all("." in item and _REQUIREMENT.fullmatch(item) for item in _items(value))
    return value if is_numbers and not _DEPENDS.match(found["key"]) else ""


def _items(value: str) -> list[str]:
    return [name for part in re.split("[,，、;]", value) if (name := part.strip().strip("`").strip())]


def _paths(line: str) -> Iterator[str]:
    for place, part in enumerate(line.split("`")):
        is_code = place % 2 == 1
        words = (part,) if is_code else [_bare(word) for word in part.split() if "/" in word or "." in word]
        for word in words:
            name = _LINE_REFERENCE.sub("", word).removeprefix("./")
            if _is_path(name, is_code):
                yield name


def _bare(word: str) -> str:
    """A word without the punctuation around it; of `[text](path)` the path."""
    word = word.rpartition("](")[2].lstrip(_QUOTES).rstrip(_QUOTES + ",;:.!?、，。；：）")
    if word.startswith("(") and word.endswith(")"):
        return word[1:-1]
    opened, closed = word.count("("), word.count(")")
    return (
        word.removesuffix(")") if opened < closed else word.removeprefix("(") if opened > closed else word.lstrip("（")
    )


def _is_path(name: str, is_code: bool) -> bool:
    """A relative path with a known or any extension; in backticks also a folder (`src/app`) or a well-known name."""
    if not 1 < len(name) < 300 or "//" in name or not _PATH.fullmatch(name):
        return False
    if name in _NAMES:
        return is_code
    last = name.rstrip("/").rpartition("/")[2]
    found = _EXTENSION.fullmatch(last)
    is_known = found is not None and _KNOWN_EXTENSION.fullmatch(found[1]) is not None
    if "/" not in name:
        return is_known and "(" not in name
    if name.startswith(("/", "@")):
        return is_known
    if found is not None:
        return True
    return name.endswith("/") or (is_code and "(" not in last and "$" not in name)
