"""Hooks, filters and settings that an agent plants in a repository: none of them runs."""

from __future__ import annotations

import pytest
from tests.support.git_repository import MESSAGE, done, git

from doflow.git import commit, head_reader, history, uncommitted_work
from doflow.git.repository import Repository
from doflow.util.errors import WorldError

CANARY = "#!/bin/sh\ntouch {canary}\ncat\n"


def plant(top, canary, kind):
    script = top / "evil.sh"
    script.write_text(CANARY.format(canary=canary))
    script.chmod(0o755)
    settings = {
        "fsmonitor": [("core.fsmonitor", str(script))],
        "hooksPath": [("core.hooksPath", str(top / "evilhooks"))],
        "clean filter": [("filter.evil.clean", str(script)), ("filter.evil.required", "true")],
        "process filter": [("filter.evil.process", str(script))],
        "signing": [("commit.gpgSign", "true"), ("gpg.program", str(script))],
        "textconv": [("diff.evil.textconv", str(script)), ("diff.external", str(script))],
        "pager": [("core.pager", str(script)), ("core.editor", str(script)), ("pager.log", "true")],
        "include": [("include.path", str(top / "more.cfg"))],
        "ssh": [("core.sshCommand", str(script)), ("credential.helper", f"!{script}")],
        "alternates": [("core.alternateRefsCommand", str(script))],
    }
    for hooks in (top / ".git/hooks", top / "evilhooks"):
        if kind in ("hooks", "hooksPath"):
            hooks.mkdir(exist_ok=True)
            for name in HOOKS:
                (hooks / name).write_text(CANARY.format(canary=canary))
                (hooks / name).chmod(0o755)
    (top / "more.cfg").write_text(f'[core]\n\tfsmonitor = {script}\n[filter "evil"]\n\tclean = {script}\n')
    (top / ".gitattributes").write_text("* filter=evil diff=evil\n")
    for key, value in settings.get(kind, []):
        git(top, "config", key, value)


HOOKS = (
    "pre-commit",
    "post-commit",
    "reference-transaction",
    "post-index-change",
    "prepare-commit-msg",
    "post-checkout",
)


PLANTS = [
    "hooks",
    "fsmonitor",
    "hooksPath",
    "clean filter",
    "process filter",
    "signing",
    "textconv",
    "pager",
    "include",
]


@pytest.mark.smoke
@pytest.mark.parametrize("kind", [*PLANTS, "ssh", "alternates"])
def test_nothing_an_agent_plants_runs(top, tmp_path, kind):
    canary = tmp_path / "canary"
    repo = Repository(head_reader.find_head(top))
    repo.run("rev-parse", "HEAD")
    plant(top, canary, kind)
    (top / "a.txt").write_text("changed\n")

    uncommitted_work.keep_work(repo, "before")
    history.dirty_files(repo)
    history.ignored_files(repo)
    new = commit.commit(repo, ["a.txt", ".gitattributes"], MESSAGE, lambda old, new: None)
    history.run_commits(repo, "001-login")
    history.file_at(repo, "HEAD", "a.txt")
    commit.is_adopted(repo, "", new)

    assert not canary.exists()
    assert history.file_at(repo, "HEAD", "a.txt") == b"changed\n"


@pytest.mark.smoke
def test_the_plants_do_run_under_plain_git(top, tmp_path):
    canary = tmp_path / "canary"
    plant(top, canary, "clean filter")
    (top / "a.txt").write_text("changed\n")

    git(top, "add", "a.txt", check=False)

    assert canary.exists()


def test_a_filter_that_was_there_when_the_run_began_stays_active(top):
    git(top, "config", "filter.up.clean", "tr a-z A-Z")
    (top / ".gitattributes").write_text("*.up filter=up\n")
    (top / "x.up").write_text("loud\n")

    done(top, "x.up", ".gitattributes")

    assert git(top, "show", "HEAD:x.up") == "LOUD"
    assert git(top, "status", "--porcelain") == ""


@pytest.mark.smoke
def test_a_trusted_filter_that_was_changed_keeps_its_old_meaning(top, tmp_path):
    git(top, "config", "filter.up.clean", "tr a-z A-Z")
    repo = Repository(head_reader.find_head(top))
    trusted = repo.filters()
    git(top, "config", "filter.up.clean", f"touch {tmp_path}/canary; cat")
    (top / ".gitattributes").write_text("*.up filter=up\n")
    (top / "x.up").write_text("loud\n")

    commit.commit(Repository(head_reader.find_head(top), trusted), ["x.up"], MESSAGE, lambda old, new: None)

    assert git(top, "show", "HEAD:x.up") == "LOUD"
    assert not (tmp_path / "canary").exists()


def test_a_program_added_to_a_trusted_filter_stops_the_run(top):
    git(top, "config", "filter.up.clean", "tr a-z A-Z")
    repo = Repository(head_reader.find_head(top))
    repo.filters()
    git(top, "config", "filter.up.process", "evil")

    with pytest.raises(WorldError, match=r"filter\.up\.process"):
        repo.run("rev-parse", "HEAD")


def test_a_config_that_a_person_includes_but_an_agent_creates_is_noticed(top, tmp_path):
    git(top, "config", "include.path", "../.gitconfig")
    repo = Repository(head_reader.find_head(top))
    repo.run("rev-parse", "HEAD")
    (top / ".gitconfig").write_text(f'[filter "evil"]\n\tclean = touch {tmp_path}/canary; cat\n')
    (top / ".gitattributes").write_text("* filter=evil\n")
    (top / "a.txt").write_text("changed\n")

    commit.commit(repo, ["a.txt"], MESSAGE, lambda old, new: None)

    assert not (tmp_path / "canary").exists()
