"""What only a person can tell: nothing but an option counts, and a guardian says every time what it waits for."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.support.supervision import Site

from doflow.flow.model import Settings
from doflow.supervise import pipeline_context
from doflow.supervise.guardian import state, terminal

pytestmark = pytest.mark.smoke


def gates(site: Any) -> Site:
    here: Site = site()
    here.pipeline("p", here.node("review", "wait.human", label="Ship it?"))
    return here


@pytest.mark.slow
def test_an_answer_that_is_none_of_the_options_is_refused_with_the_options(site: Any) -> None:
    here = gates(site)
    here.doflow("guardian", "run", "p.dot", "--no-wait")

    done = here.doflow("signal", "answer", "verdict.review.1", "perhaps")

    assert done.returncode == 1
    assert "'perhaps' isn't one of the options: 1. approve, 2. reject" in done.stderr
    assert here.doflow("guardian", "run", "p.dot", "--no-wait").returncode == 2
    assert here.statuses("p")["review"] == "active"
    assert here.doflow("signal", "answer", "verdict.review.1", "reject: not before Monday").returncode == 0
    said = here.doflow("guardian", "run", "p.dot", "--no-wait").stdout
    assert "review: failed (not before Monday)" in said
    assert "    1. retry\n    2. stop\n" in said
    maybe = here.doflow("signal", "answer", "failed.review.1", "retrying is pointless")
    assert "isn't one of the options: 1. retry, 2. stop" in maybe.stderr
    assert here.doflow("guardian", "run", "p.dot", "--no-wait").returncode == 2, "nobody has said stop"
    assert here.doflow("signal", "answer", "failed.review.1", "stop").returncode == 0
    assert here.doflow("guardian", "run", "p.dot", "--no-wait").returncode == 1


@pytest.mark.smoke("run")
@pytest.mark.parametrize("verb", ["run", "launch"])
def test_what_is_open_is_said_every_time_with_its_choices_and_the_commands_to_type(verb: str, site: Any) -> None:
    here = gates(site)

    told = [here.doflow("guardian", verb, "p.dot", "--no-wait") for _ in range(3)]

    for done in told:
        assert done.returncode == 2, done.stdout + done.stderr
        assert done.stdout.count("review (Ship it?) is a gate. Is it right?") == 1, done.stdout
        assert (
            "    1. approve\n    2. reject\n  next: doflow signal answer verdict.review.1 '…' --pipeline p"
            in done.stdout
        )
        assert f"answer, then: doflow guardian {verb} p.dot --no-wait" in done.stdout
    assert here.doflow("signal", "answer", "verdict.review.1", "1").returncode == 0
    assert here.doflow("guardian", verb, "p.dot", "--no-wait").returncode == 0


def test_what_is_typed_into_launch_and_is_no_option_is_asked_for_again(site: Any) -> None:
    here = gates(site)
    here.doflow("guardian", "run", "p.dot", "--no-wait")
    place = pipeline_context.find_context(str(here.root), Settings(), here.env, "p")
    (asked,) = terminal.open_questions(place)
    heard: list[str] = []
    reading, writing = os.pipe()
    with open(reading) as stdin, open(writing, "w") as keys:
        layer = terminal.Terminal([terminal.WatchedPipeline(place)], here.env, heard.append, stdin)
        layer.asking.append((layer.pipelines[0], asked))
        for typed, kept in (("perhaps", None), ("2", "reject")):
            print(typed, file=keys, flush=True)
            layer.listen(5.0)
            assert state.find_answer(place.store, "verdict.review.1") == kept, heard

    assert "'perhaps' isn't one of the options: 1. approve, 2. reject" in heard[0]


def without(here: Site, what: str) -> dict[str, str]:
    """The environment of a machine where the library, or tmux itself, is not installed."""
    made = here.outside / "without"
    made.mkdir()
    if what == "libtmux":
        (made / "sitecustomize.py").write_text("import sys\nsys.modules['libtmux'] = None\n")
        return {"PYTHONPATH": str(made)}
    for name in ("git", "sh", "env", "uname", "cat", "grep", "test"):
        (made / name).symlink_to(f"/usr/bin/{name}")
    return {"PATH": str(made)}


MISSING = [("libtmux", "pip install 'doflow[tmux]'"), ("tmux", "apt install tmux")]


@pytest.mark.smoke("tmux-apt install tmux-run")
@pytest.mark.parametrize("verb", ["run", "launch"])
@pytest.mark.parametrize(("what", "hint"), MISSING)
def test_what_a_guardian_needs_is_missed_before_anything_is_moved_or_started(
    verb: str, what: str, hint: str, site: Any
) -> None:
    here: Site = site("echo ok > a.txt")
    path = here.pipeline("p", here.node("a", validate="test -s a.txt"))
    before = path.read_bytes()

    done = here.doflow("guardian", verb, "p.dot", "--no-wait", env=without(here, what))

    assert (done.returncode, hint in done.stderr) == (1, True), done.stdout + done.stderr
    assert (path.read_bytes(), here.diary("p"), here.panes()) == (before, [], [])
    assert done.stdout == ""


@pytest.mark.smoke("tmux-apt install tmux")
@pytest.mark.parametrize(("what", "hint"), MISSING)
def test_what_a_step_in_tmux_needs_is_missed_before_its_run_begins(what: str, hint: str, site: Any) -> None:
    here: Site = site("echo ok > a.txt")
    here.flow("notes", "flow: notes\nsteps:\n  write: {prompt: Write., makes: note.md, via: tmux}\n")
    here.commit("A flow")

    done = here.doit("notes", env=without(here, what))

    assert (done.returncode, hint in done.stdout + done.stderr) == (1, True), done.stdout + done.stderr
    assert here.git("branch", "--format=%(refname:short)").split() == ["main"]
    assert not (here.root / "specs").exists()


@pytest.mark.slow
def test_a_rule_whose_answer_is_no_option_leaves_the_question_to_a_person(site: Any) -> None:
    menu = "printf 'Which database?\\n❯ 1. Postgres\\n  2. SQLite\\n'; read -r key; echo \"got $key\""
    here: Site = site(menu, "supervision: {validate: ['true'], answers: {which database: Purple}}\n")
    here.pipeline("p", here.node("a"))

    done = here.doflow("guardian", "run", "p.dot", "--no-wait", timeout=60)

    assert done.returncode == 2, done.stdout + done.stderr
    assert "a asks: 'Purple' isn't one of the options. Which database?" in done.stdout
    assert here.kinds("p").count("NEEDS_INPUT") == 2
