"""Does `environment` keep its word?"""

from __future__ import annotations

import os
from pathlib import Path

from doflow.util.process import environment

PERSON = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/ann",
    "USER": "ann",
    "LANG": "en_GB.UTF-8",
    "LC_TIME": "C",
    "TZ": "UTC",
    "TMPDIR": "/var/tmp",
    "TERM": "xterm",
    "https_proxy": "http://proxy:1",
    "NODE_EXTRA_CA_CERTS": "/etc/ca.pem",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "GITHUB_TOKEN": "secret",
    "CLAUDECODE": "1",
    "SKIP_BUG_FINDING": "true",
    "PRP_PIPELINE_RUNNING": "1",
    "PRP_ALLOW_NESTED": "1",
    "EDITOR": "vi",
    "MY_TOKEN": "mine",
    "MY_REGION": "here",
    "ANTHROPIC_API_KEY": "key",
}
COMMON = {
    *("PATH", "HOME", "USER", "LANG", "LC_TIME", "TZ", "TMPDIR", "TERM", "https_proxy", "NODE_EXTRA_CA_CERTS"),
    "PRP_PIPELINE_RUNNING",
}


def test_an_agent_gets_the_allow_list_and_the_number_of_the_run() -> None:
    given = environment.for_agent(PERSON, (), (), {}, pid=42)

    assert given == {name: PERSON[name] for name in COMMON} | {"PRP_PIPELINE_RUNNING": "42"}


def test_an_agent_gets_what_its_adapter_and_its_profile_name_and_what_we_add() -> None:
    given = environment.for_agent(PERSON, ("ANTHROPIC_*",), ("MY_TOKEN", "UNSET"), {"DOFLOW_STEP": "plan"}, pid=42)

    assert set(given) - COMMON == {"ANTHROPIC_API_KEY", "MY_TOKEN", "DOFLOW_STEP"}


def test_no_profile_can_hand_on_the_flags_that_open_a_guard() -> None:
    names = ("SKIP_BUG_FINDING", "CLAUDECODE", "PRP_ALLOW_NESTED", "PRP_*", "*")

    given = environment.for_agent(PERSON, (), names, {}, pid=42)

    assert not {"SKIP_BUG_FINDING", "CLAUDECODE", "PRP_ALLOW_NESTED"} & set(given)
    assert given["PRP_PIPELINE_RUNNING"] == "42"


def test_the_search_path_of_an_agent_has_no_place_that_an_agent_can_fill(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "bin").mkdir(parents=True)
    (tmp_path / "link").symlink_to(root / "bin")
    (tmp_path / "project-tools").mkdir()
    kept = ["/usr/bin", str(tmp_path / "project-tools")]
    bad = ["", ".", "bin", str(root), str(root / "bin"), f"{tmp_path}/x/../project/bin", str(tmp_path / "link")]

    path = os.pathsep.join([bad[0], kept[0], *bad[1:], kept[1]])

    assert environment.for_agent({"PATH": path}, (), (), {}, root=str(root))["PATH"] == os.pathsep.join(kept)


def test_a_search_path_that_has_nothing_left_is_the_systems_own() -> None:
    assert environment.for_agent({"PATH": ".:bin"}, (), (), {})["PATH"] == os.defpath
    assert environment.for_agent({}, (), (), {}, pid=7) == {"PATH": os.defpath, "PRP_PIPELINE_RUNNING": "7"}


def test_a_shell_step_keeps_the_persons_environment_less_the_flags() -> None:
    given = environment.for_shell(PERSON, {"DOFLOW_RUN": "001-x"}, pid=42)

    dropped = {"SKIP_BUG_FINDING", "PRP_ALLOW_NESTED"}
    kept = {name: value for name, value in PERSON.items() if name not in dropped}
    assert given == kept | {"PRP_PIPELINE_RUNNING": "42", "DOFLOW_RUN": "001-x"}


def test_without_a_number_it_is_this_process() -> None:
    assert environment.for_shell({}, {}) == {"PRP_PIPELINE_RUNNING": str(os.getpid())}
