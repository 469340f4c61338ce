"""Is a settings file given back byte by byte, whatever it looked like?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from doflow.hooks import install
from doflow.util.errors import UsageError

EVENTS = ("SessionStart", "PreToolUse", "Stop", "Notification")
ENTRY = st.fixed_dictionaries(
    {"type": st.just("command"), "command": st.sampled_from(["x", 'say "hi" }{][,', "doflow run"])}
)
GROUP = st.fixed_dictionaries(
    {"hooks": st.lists(ENTRY, max_size=2)}, optional={"matcher": st.sampled_from(["Bash", "Task|Agent"])}
)
HOOKS = st.dictionaries(st.sampled_from(EVENTS), st.lists(GROUP, max_size=2), max_size=4)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8))
NESTED = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=2), max_leaves=4)
OTHER = st.dictionaries(st.sampled_from(["permissions", "model", "env", 'ünïcode \\ "key"']), NESTED, max_size=3)


@st.composite
def texts(draw: Any) -> str:
    """A settings file as someone may have written it: any order, any white space, any line ends."""
    value = draw(OTHER)
    if draw(st.booleans()):
        value = dict(draw(st.permutations([*value.items(), ("hooks", draw(HOOKS))])))
    blank = st.sampled_from(["", " ", "\n", "\r\n", "\n  ", "\n\t", " \n\n "])

    def written(found: Any) -> str:
        if isinstance(found, dict):
            inner = (
                f"{draw(blank)}{json.dumps(key)}{draw(blank)}:{draw(blank)}{written(said)}{draw(blank)}"
                for key, said in found.items()
            )
            return "{" + (",".join(inner) or draw(blank)) + "}"
        if isinstance(found, list):
            return "[" + (",".join(f"{draw(blank)}{written(one)}{draw(blank)}" for one in found) or draw(blank)) + "]"
        return json.dumps(found, ensure_ascii=draw(st.booleans()))

    return draw(st.sampled_from(["", "\ufeff"])) + draw(blank) + written(value) + draw(blank)


@settings(max_examples=150, deadline=None)
@given(text=texts(), agent=st.sampled_from(install.AGENTS), absolute=st.booleans())
def test_install_keeps_everything_and_remove_gives_back_every_byte(
    tmp_path_factory: pytest.TempPathFactory, text: str, agent: str, absolute: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "settings.json"
    path.write_bytes(text.encode())
    before = json.loads(text.removeprefix("\ufeff"))

    assert install.install(path, agent, "context-first", absolute) is True
    installed = path.read_bytes()
    assert install.install(path, agent, "context-first", absolute) is False
    assert path.read_bytes() == installed, "the second time changes nothing"

    value = json.loads(installed.decode().removeprefix("\ufeff"))
    assert {key: said for key, said in value.items() if key != "hooks"} == {
        k: v for k, v in before.items() if k != "hooks"
    }
    for event, groups in before.get("hooks", {}).items():
        assert value["hooks"][event][-len(groups) :] == groups if groups else True
    assert install.remove(path) is True
    assert path.read_bytes() == text.encode()
    assert install.remove(path) is False


def test_another_machine_takes_the_place_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"model": "opus"}')

    install.install(path, "claude", "one", True)
    install.install(path, "claude", "two", False)

    assert {found.machine for found in install.list_installed(path)} == {"two"}
    assert len(install.list_installed(path)) == 8
    install.remove(path)
    assert path.read_text() == '{"model": "opus"}'


def test_what_someone_added_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    install.install(path, "claude", "one", True)
    value = json.loads(path.read_text())
    value["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "mine"})
    value["model"] = "opus"
    path.write_text(json.dumps(value, indent=4))

    install.remove(path)

    assert json.loads(path.read_text()) == {
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]},
        "model": "opus",
    }


def test_a_file_that_was_not_there_is_gone_again_and_a_link_stays_a_link(tmp_path: Path) -> None:
    path = tmp_path / ".claude" / "settings.json"
    install.install(path, "claude", "one", True)
    assert install.remove(path) and not path.parent.exists()

    real = tmp_path / "dotfiles.json"
    real.write_text("{}\n")
    real.chmod(0o600)
    path.parent.mkdir()
    path.symlink_to(real)
    install.install(path, "claude", "one", True)
    assert path.is_symlink() and len(install.list_installed(real)) == 8 and real.stat().st_mode & 0o777 == 0o600
    install.remove(path)
    assert (path.is_symlink(), real.read_text()) == (True, "{}\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "// a comment\n{}",
        '{"a": 1,}',
        "[]",
        '{"hooks": []}',
        '{"hooks": {"Stop": {}}}',
        '{"a": 1, "a": 2}',
        "\xff",
    ],
)
def test_a_file_that_cannot_be_changed_without_harm_is_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(UsageError) as caught:
        install.install(path, "claude", "one", True)

    assert "nothing was changed" in caught.value.hint
    assert path.read_bytes() == text.encode("latin-1")


def test_a_path_that_is_not_there_is_none() -> None:
    assert install.find_value('{"a": {"b": [1, 2]}}', ("a", "b", 1)) == 16
    assert install.find_value('{"a": {"b": [1, 2]}}', ("a", "c")) is None
    assert install.find_value('{"a": 5}', ("a", "b")) is None
