"""What programs read from doflow is what 0.1.0 said: nothing of it is renamed or missing. More may be said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support import record, words

RECORDED: dict[str, Any] = json.loads((record.RECORDS / "0.1.0" / "words.json").read_text())
STATIC = ("schemas", "entry points", "words", "texts")


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return words.collect(tmp_path_factory.mktemp("words"))


@pytest.mark.slow
def test_every_recorded_word_is_still_said(collected: dict[str, Any]) -> None:
    """One test, so that what is collected is collected once however many workers there are."""
    recorded = {kind: found for kind, found in RECORDED.items() if kind not in (*STATIC, "exit")}

    gone = words.missing(recorded, collected)

    assert not gone, "\n".join(gone)
    assert {name: collected["exit"].get(name) for name in RECORDED["exit"]} == RECORDED["exit"]


def test_every_key_of_the_recorded_schemas_is_still_known() -> None:
    assert words.missing(RECORDED["schemas"], words.schemas()) == []


def test_every_recorded_entry_point_is_still_there() -> None:
    assert words.missing(RECORDED["entry points"], words.entry_points()) == []


def test_every_recorded_word_still_stands_in_the_sources() -> None:
    gone = words.unsaid(RECORDED["words"], RECORDED["texts"])

    assert not gone, "\n".join(gone)


def test_a_word_that_is_gone_is_named() -> None:
    recorded = {"events": {"gate": ["at", "event"], "left": ["files"]}, "lock": {"steps": ["key"]}}
    now = {"events": {"gate": ["at", "event", "more"]}, "lock": {"steps": ["keys"]}}

    assert words.missing(recorded, now) == ["events: left: files", "lock: steps: key"]
    assert words.unsaid({"events": ["no_such_event"]}, {"markers": ["NO SUCH MARKER"]}) == [
        "events: no_such_event",
        "markers: NO SUCH MARKER",
    ]
