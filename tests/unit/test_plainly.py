"""What is read without the YAML library is what the library would have read, to the last word and line."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from doflow.flow.parsing import document as strict, plainly, yaml_reader as yamltree
from doflow.util.errors import FlowError

ROOT = Path(__file__).parents[2]
FLOWS = sorted((ROOT / "flows").rglob("*.yaml"))
STEP = """\
  s{n}:
    kind: shell
    run: ["true", -x, --all, 'a b', 3]
    retry: {{max: {n}, on: [a, b c]}}  # why
"""
CHAIN = "flow: chain\nabout: A chain\nsteps:\n" + "".join(STEP.format(n=n) for n in range(3))
#: pieces of YAML; ↵ is the end of a line within one
PIECES = [
    piece.replace("↵", "\n") + "\n"
    for piece in [
        r"a: 1",
        r"b: yes",
        r"c: null",
        r"d: ~",
        r"true: x",
        r"e:",
        r"  f: g",
        r"    h: i j",
        r" k: l",
        r"- m",
        r"",
        r"n: [o, p]",
        r"q: {r: s, t: {u: v}}",
        r'w: "x: #y"',
        r"z: 'it''s'",
        r"a: b # c",
        r"a: b#c",
        r"a: b: c",
        r"# d",
        r"e: |↵  f",
        r"g: >-",
        r"h: &i j",
        r"k: *i",
        r"l: !m n",
        r"o: [p,↵  q]",
        r"r: -1.5",
        r"s: 012",
        r"t: - u",
        r"v: [w: x]",
        r"y: {z}",
        r"a: []",
        r"b: {}",
        r"c: [d, ]",
        r"e: [f]]",
        r"g: 'h' i",
        r'j: "k\n"',
        r"l: ?m",
        r"n: .5",
        r"o: ---",
        r"---",
        r"...",
        r"p: -",
        r"q: --x",
        r"r: [-, s]",
        r"t: [--]",
        r"u: a  ",
        r"v:w",
        r"x:  y",
        r"a: {b: c, d: [e, 'f g', \"h, i\"], j: 'k}'}",
        r"a: {b: 'c''d'}",
        r"a: {b: c, b: d}",
        r"a: {b: c}  # d",
        r"a: {b: true, c: null, d: ~}",
        r"a: {true: b}",
        r"a: {b: [true, x]}",
        r"a: {b: c, }",
        r"a: {b: c}}",
        r"a: {b: -c, d: e f}",
        r"a: {b: [c], d: {e: f}}",
        r"a: {b: c ,d: e}",
        r"a: {b: c:, d: e}",
        r"a: {b: 'c'd, e: f}",
        r"a: {b: c,  d: e}",
        r"a: {b: c}, d",
        r"a: {<<: b}",
        r"a: {b: c, <<: d}",
        r"a: ↵  b: c",
        r"  z:",
        r"a: {b: c,d: e}",
        r"a: [b,c]",
        r"a: {b:c}",
        r"a: [http://x]",
        r"a: http://x",
        r"a: x:",
        r"a: [x ]",
        r"a: { b: c }",
        r"ä: ö",
        r"a: ö",
        r"a: [ö]",
        r"a: $x",
        r"a: (x)",
        r"a: =",
        r"a: <<",
        r"<<: a",
        r"a: x,y",
        r"a: x]y",
        r"a: x↵  y",
        r"a:↵- b",
        r"a:↵  - b↵  - 'c d'",
        r"- -x",
        r"  - e # f",
        r"- [a, b]",
        r"- {a: b, c: [d]}",
        r"- a: b",
        r"- 'a': b",
        r"- - a",
        r"-",
        r"-  a",
        r"- 3",
        r"- |",
        r"a: |",
        r"a: | ",
        r"a: | # b",
        r"a: |-",
        r"a: |2",
        r"  a: |",
        r"  b c",
        r"   d: e",
        r"    - f",
        r"    # g",
        r"   ",
        r"a: |↵  b↵↵   c: d↵# e",
        r"a: |↵↵  true",
        r"  a:↵  - b↵  c: d",
    ]
]
SIGNS = list(" \n:#-[]{},'\"|>&*!?%@`~.abt019_\t\\")


def by_library(text: str) -> Any:
    """Values and, for each mapping that is written over several lines, the places of its keys."""
    root = yamltree.compose(text, "x")
    return yamltree.plain(root, "x"), root


def agree(text: str) -> bool:
    """True if it was read here too; then both must have read the same."""
    try:
        strict.refuse_odd_text(text, "x")
    except FlowError:
        return False
    found = plainly.read(text)
    if found is None:
        return False
    value, root = by_library(text)
    assert (value, repr(value)) == (found[0], repr(found[0])), text
    doc = strict.Doc("x", found[0], lambda: root, found[1])
    plain = strict.Doc("x", value, lambda: root, {})
    for path in mappings(found[0]):
        assert doc.origins(path) == plain.origins(path), text
        assert [doc.line((*path, name)) for name in doc.origins(path)] == [
            at.line for at in plain.origins(path).values()
        ]
    return True


def mappings(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, dict):
        return []
    return [path, *(below for name, entry in value.items() for below in mappings(entry, (*path, name)))]


BLOCKS = """\
flow: dumped
steps:
  one:
    prompt: |
      Write: it

        - like this  # and so
      {goal}

    makes:
    - a.md
    - 'b c.md'
    # more
    - "d.md"
  two:
    run:
      - sh
      - -c
      - echo 1 > x
    after: [one]
    routes:
    - {when: "SCALE: SMALL", then: [one]}
"""


@pytest.mark.parametrize(
    "text", [CHAIN, BLOCKS, "a: \n  b: c\n", "a: 1\nb:\n  c: x y\n  d: [e, \"f\", 'g']\n\nh: {i: true, j: -2}\n"]
)
def test_a_plain_file_is_read_without_the_library(text):
    assert agree(text)


@pytest.mark.parametrize("ends", ["\n", "", "\n\n", "\n  \n", "\n       \n", "\nb: c\n", "\n # d\nb: c\n"])
def test_a_block_text_ends_as_the_library_says(ends):
    agree(f"a: |\n  b\n\n   c{ends}")
    agree(f"x:\n  a: |\n      b{ends}")


def test_the_packaged_flows_are_read_the_same_by_both():
    assert FLOWS
    for path in FLOWS:
        agree(path.read_text())


def test_any_mixture_of_pieces_is_read_the_same_or_left_to_the_library():
    dice = random.Random(7)
    texts = ("".join(dice.choices(PIECES, k=dice.randint(1, 6))) for _ in range(6000))
    assert sum(agree(text) for text in texts) > 300


def test_any_changed_flow_is_read_the_same_or_left_to_the_library():
    dice = random.Random(11)
    known = [CHAIN, BLOCKS, BLOCKS, *(path.read_text() for path in FLOWS if len(path.read_text()) < 3000)]
    read = 0
    for _ in range(1500):
        signs = list(dice.choice(known))
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(len(signs))
            signs[at : at + dice.randint(0, 2)] = dice.choices(SIGNS, k=dice.randint(0, 2))
        read += agree("".join(signs))
    assert read > 100
