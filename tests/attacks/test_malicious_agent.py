"""One scripted agent per attack, each through real `doit`: afterwards the repository is as it was, byte by byte, mode by
mode, ref by ref; the person's uncommitted and untracked work is there; nothing that was planted ran; the run goes on."""

from __future__ import annotations

import pytest
from tests.support import attacks
from tests.support.project import Project
from tests.support.victim import FLOWS, Picture, copied, harm, template


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Project]:
    return {flow: template(tmp_path_factory.mktemp(flow), flow) for flow in FLOWS}


@pytest.mark.smoke(
    "edits a protected file",
    "changes a protected file that git ignores",
    "keeps size and time of what it edits",
    "edits the person's uncommitted work",
    "hides behind .gitignore",
    "plants every hook",
    "sets a filter for all files",
    "commits by itself",
    "forges the ledger",
    "edits dodo.py, in a phase",
    "rewrites the lock, in a phase",
    "hides an edit from git, in a phase",
    "switches to another branch, in a phase",
)
@pytest.mark.parametrize("attack", attacks.ALL, ids=lambda attack: attack.name)
def test_an_attack_leaves_the_repository_as_it_was(attack, templates, tmp_path):
    project = templates["phases" if attack.step == "build" else "work"]
    victim = copied(project, tmp_path)
    before = Picture(victim, attack.allowed)
    victim.agent(attacks.script(attack))

    done = victim.doit("phases" if attack.step == "build" else "work")

    said = done.stdout + done.stderr
    assert done.returncode == attack.code, said
    assert [word for word in attack.words if word not in said] == [], said
    assert harm(victim, before, attack.allowed) == []
    assert not attack.allowed or victim.git("status", "--porcelain", "-uall", "--", *attack.allowed) == ""
    kept = victim.doflow("quarantine", "list", "--json").stdout
    assert [path for path in attack.kept if repr(path)[1:-1] not in kept] == [], kept
    assert not attack.allowed or victim.doit("phases").returncode == 0
    assert not (victim.outside / "canary").exists(), "planted code ran"


@pytest.mark.parametrize(
    "name", ["edits a protected file", "plants every hook", "forges the ledger", "deletes the records"]
)
def test_after_an_attack_the_same_command_goes_on(name, templates, tmp_path):
    attack = next(attack for attack in attacks.ALL if attack.name == name)
    victim = copied(templates["work"], tmp_path)
    victim.agent(attacks.script(attack))
    assert victim.doit("work").returncode == 1
    victim.doflow("adopt", "write")

    done = victim.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.smoke
def test_there_are_more_than_forty_attacks_and_each_has_its_name():
    names = [attack.name for attack in attacks.ALL]
    assert len(names) == len(set(names)) >= 40
