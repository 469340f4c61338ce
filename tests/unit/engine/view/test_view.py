"""Does every view say what happened, where and what to type next, to whoever listens and however fast it comes?"""

from __future__ import annotations

import io
import json
import os
import re
import threading

import pyte
import pytest
from tests.support.project import eventually

from doflow.engine.view_live import TAIL, Live, fits, last_line
from doflow.engine.view_text import Lines, Plain, View
from doflow.flow.model import Outcome, Status
from doflow.util.hints import SAME_COMMAND, Next, Target

RUN = "001-login"
THEN = Next(("doit", "tiny"), link="then")


def entry(event, step="", **more):
    return {"event": event, "at": "2026-01-01T00:00:00.000Z", "run": RUN, **({"step": step} if step else {}), **more}


def began(step, **more):
    return entry("phase_starting" if "phase" in more else "step_starting", step, attempt=more.pop("attempt", 1), **more)


def ended(step, made="", commit="", **more):
    record = {"made": {made: "d"} if made else {}}
    return entry("phase_complete" if "phase" in more else "step_complete", step, record=record, commit=commit, **more)


def heard(view, *entries):
    view.about("tiny", RUN)
    for found in entries:
        view.on_event(found)
    return view


def plain(*entries):
    out = io.StringIO()
    heard(Plain(out), *entries)
    return out.getvalue().splitlines()


class Glass:
    """A terminal made of memory: what is written to it is seen on a screen."""

    encoding = "utf-8"

    def __init__(self, width=80, height=24):
        self.screen = pyte.HistoryScreen(width, height, history=100_000)
        self.raw = ""
        self._stream = pyte.Stream(self.screen)

    def write(self, text):
        self.raw += text
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return True

    def lines(self):
        gone = ["".join(line[place].data for place in range(self.screen.columns)) for line in self.screen.history.top]
        return [line.rstrip() for line in (*gone, *self.screen.display) if line.strip()]


@pytest.fixture
def glass(monkeypatch):
    """As large as its screen says, whatever terminal the tests run in."""
    made = Glass()
    size = os.terminal_size((made.screen.columns, made.screen.lines))
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: size)
    return made


def test_a_step_is_a_line_and_what_came_of_it_the_next():
    said = plain(began("plan"), ended("plan", "specs/001-login/plan.md", "0123456789"))

    assert said == [".  tiny:plan", "   specs/001-login/plan.md · 0123456"]


def test_a_phase_has_its_number_and_its_title_and_an_attempt_its_count():
    said = plain(began("implement", phase="2", title="House", of=3, attempt=2))

    assert said == [".  tiny:implement:2  House  (attempt 2)"]


def test_of_steps_side_by_side_the_result_says_whose_it_is():
    said = plain(began("a"), began("b"), ended("a", "a.md"), ended("b", "b.md"))

    assert said == [".  tiny:a", ".  tiny:b", "   tiny:a: a.md", "   b.md"]


def test_entries_of_two_flows_keep_their_names():
    out = io.StringIO()
    view = Plain(out)
    view.about("tiny", RUN)
    view.about("other", "002-other")

    view.on_event(began("plan"))
    view.on_event({**began("plan"), "run": "002-other"})

    assert out.getvalue().splitlines() == [".  tiny:plan", ".  other:plan"]


@pytest.mark.parametrize(
    ("status", "sign"),
    [(Status.PAUSED, "||"), (Status.RATE_LIMITED, "~~"), (Status.FAILED, "xx"), (Status.TIMEOUT, "xx")],
)
@pytest.mark.parametrize("kind", [Plain, Live])
def test_a_stop_says_what_where_and_the_command_that_goes_on(kind, status, sign):
    out = Glass(width=120)

    heard(kind(out)).stopped("tiny:plan", Outcome(status, "it went wrong", "the log is plan.log"))

    assert out.lines() == [f"{sign} tiny:plan: it went wrong", "   next: the log is plan.log", "   then: doit tiny"]


def test_a_hint_that_names_the_command_is_enough():
    out = io.StringIO()

    Plain(out).stopped(
        "tiny:plan", Outcome(Status.PAUSED, "Approve?", next=(Next(("doflow", "approve", "plan")), THEN))
    )

    assert out.getvalue() == "|| tiny:plan: Approve?\n   next: doflow approve plan   then: doit tiny\n"


def test_the_command_that_goes_on_carries_the_options_of_the_run():
    out = io.StringIO()
    view = Plain(out)
    view.about("tiny", RUN, Target("tiny", options=("--agent=rehearsal",)))

    view.stopped("tiny:plan", Outcome(Status.FAILED, "no", "the log is plan.log"))
    view.stopped("tiny:plan", Outcome(Status.FAILED, "no", next=(THEN,)))

    assert out.getvalue().splitlines()[2:] == [
        "   then: doit tiny --agent=rehearsal", "xx tiny:plan: no", "   next: doit tiny --agent=rehearsal"
    ]  # fmt: skip


def test_before_a_run_is_started_only_the_same_command_starts_it():
    out = io.StringIO()

    Plain(out).stopped("tiny:plan", Outcome(Status.FAILED, "no", "doit it yourself", next=(SAME_COMMAND,)))

    assert out.getvalue() == "xx tiny:plan: no\n   next: doit it yourself   then the same command again\n"


def test_a_word_of_the_advice_is_never_taken_for_a_command():
    out = io.StringIO()

    Plain(out).stopped("tiny:plan", Outcome(Status.FAILED, "no", "doit tiny is what it ran"))

    assert out.getvalue().endswith("   next: doit tiny is what it ran\n   then: doit tiny\n")


def test_a_rate_limit_whose_command_has_a_time_says_it_once():
    out = io.StringIO()
    at = "2026-01-01T10:00:00Z"

    limited = Outcome(Status.RATE_LIMITED, "limited", resume_at=at, next=(Next(("doit", "tiny"), at=at),))
    Plain(out).stopped("tiny:plan", limited)

    assert out.getvalue() == f"~~ tiny:plan: limited\n   next: at {at} or later: doit tiny\n"


def test_a_rate_limit_says_until_when():
    out = io.StringIO()

    Plain(out).stopped("tiny:plan", Outcome(Status.RATE_LIMITED, "limited", resume_at="2026-01-01T10:00:00Z"))

    assert out.getvalue() == "~~ tiny:plan: limited (try again at 2026-01-01T10:00:00Z)\n   then: doit tiny\n"


def test_what_an_encoding_cannot_say_is_written_out():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")

    heard(Plain(out), began("plan"), ended("plan", "plän.md", "0123456789"))

    assert raw.getvalue().decode() == ".  tiny:plan\n   pl\\xe4n.md \\xb7 0123456\n"


@pytest.mark.parametrize("trouble", [BrokenPipeError(), OSError(5, "Input/output error"), ValueError("closed")])
def test_a_reader_that_has_gone_does_not_stop_the_run(trouble):
    class Gone(io.StringIO):
        def write(self, text):
            raise trouble

    view = heard(Plain(Gone()), began("plan"))

    view.on_event(ended("plan", "plan.md"))
    view.close()


def test_json_has_one_object_per_line_and_each_skipped_step_its_run():
    out = io.StringIO()
    view = Lines(out)
    view.about("tiny", RUN)
    view.about("other", "002-other")

    view.on_event(ended("plan", "plan.md", "0123"))
    view.skipped("tiny:tasks")
    view.skipped("tiny")

    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert first == {
        "event": "step_complete",
        "at": "2026-01-01T00:00:00.000Z",
        "run": RUN,
        "step": "plan",
        "commit": "0123",
    }
    assert {**second, "at": ""} == {"event": "step_skipped", "at": "", "run": RUN, "flow": "tiny", "step": "tasks"}


def test_the_silent_view_says_nothing(capfd):
    view = heard(View(), began("plan"), ended("plan", "plan.md"))

    view.skipped("tiny:plan")
    view.stopped("tiny:plan", Outcome(Status.FAILED, "no"))
    view.aside("tiny:plan")
    view.close()

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("term", ["", "dumb", "unknown"])
def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(term):
    assert not fits(Glass(), {"TERM": term})


def test_a_terminal_that_knows_no_signs_gets_plain_lines():
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")

    assert (fits(ascii_only, {"TERM": "xterm"}), fits(Glass(), {"TERM": "xterm"})) == (False, True)


def test_the_history_of_the_live_view_is_what_a_pipe_gets(glass):
    entries = (
        entry("run_started", branch="001-login", dir="specs/001-login"),
        began("plan"), ended("plan", "plan.md", "0123456789"),
        began("test"), entry("warning", "test", message="not yet right"), ended("test"),
        began("implement", phase="1", title="Ground", of=2), ended("implement", phase="1", commit="abcdef0"),
        entry("pipeline_complete", flow="tiny", steps=3),
    )  # fmt: skip

    heard(Live(glass), *entries).close()

    assert glass.lines() == plain(*entries)


def test_a_running_step_has_one_line_and_a_phase_says_how_many_there_are(glass):
    view = heard(Live(glass), began("plan"), began("implement", phase="2", title="House", of=3))

    assert eventually(lambda: len(glass.lines()) == 2)
    first, second = glass.lines()
    view.close()

    assert re.fullmatch(r"\S  tiny:plan  0s", first)
    assert re.fullmatch(r"\S  tiny:implement  phase 2 of 3: House  0s", second)


def test_what_the_agent_said_last_stands_in_its_line_with_its_tricks_written_out(glass, tmp_path):
    log = tmp_path / "plan.1.log"
    log.write_text("first\n\x1b]0;owned\x07\x1b[2Jlook \u202eat me\n\n")
    view = heard(Live(glass), began("plan"), entry("heartbeat", "plan", log=str(log)))

    painted = [text.plain for text in view.__rich_console__(None, Options(80))]  # type: ignore[arg-type]
    view.close()

    assert [line[1:] for line in painted] == ["  tiny:plan  0s  \\x1b]0;owned\\x07\\x1b[2Jlook \\u202eat me"]


class Options:
    def __init__(self, width):
        self.max_width = width


@pytest.mark.parametrize("width", [1, 2, 10, 20, 79, 300])
def test_a_line_is_never_wider_than_the_terminal_even_in_wide_letters(width, glass):
    from rich.cells import cell_len

    view = heard(Live(glass), began("implement", phase="1", title="漢字" * 40, of=2))
    view.on_event(entry("retry", "implement", phase="1", reason="幅" * 200, wait=30.0))

    (painted,) = view.__rich_console__(None, Options(width))  # type: ignore[arg-type]
    view.close()

    assert cell_len(painted.plain) <= max(1, width - 1)


def test_a_failure_is_said_below_the_steps_that_still_run_when_they_are_done(glass):
    view = heard(Live(glass), began("a"), began("b"))

    view.stopped("tiny:a", Outcome(Status.FAILED, "it broke", next=(Next(("doit", "tiny")),)))
    during = [text.plain for text in view.__rich_console__(None, Options(80))]  # type: ignore[arg-type]
    view.on_event(ended("b", "b.md"))

    assert [line[0:8] for line in during] == ["xx tiny:", f"{during[1][0]}  tiny:"]
    assert glass.lines() == [".  tiny:a", ".  tiny:b", "   b.md", "xx tiny:a: it broke", "   next: doit tiny"]


def test_a_rate_limited_step_is_not_taken_for_one_at_work(glass):
    view = heard(Live(glass), began("a"))

    view.stopped("tiny:a", Outcome(Status.RATE_LIMITED, "limited", next=(Next(("doit", "tiny")),)))

    assert glass.lines() == [".  tiny:a", "~~ tiny:a: limited", "   next: doit tiny"]


def test_someone_else_can_write_while_a_step_runs(glass):
    view = heard(Live(glass), began("a"))

    view.aside()
    glass.write("a warning of somebody else\n")
    view.on_event(entry("heartbeat", "a"))
    view.on_event(ended("a", "a.md"))

    assert glass.lines() == ["a warning of somebody else", ".  tiny:a", "   a.md"]


def test_after_the_end_late_news_are_plain_lines(glass):
    view = heard(Live(glass), began("a"))
    view.close()
    painted = glass.raw

    heard(view, began("b"), ended("b", "b.md"))

    assert glass.raw.removeprefix(painted) == ".  tiny:b\n   b.md\n"


def test_many_threads_lose_no_line_and_tear_none(glass):
    view = heard(Live(glass))
    start = threading.Barrier(8)

    def work(number):
        start.wait()
        for turn in range(40):
            step = f"s{number}-{turn}"
            heard(view, began(step), entry("heartbeat", step), ended(step, f"{step}.md"))
            view.skipped(f"tiny:{step}.gate")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    view.close()

    names = [f"s{number}-{turn}" for number in range(8) for turn in range(40)]
    wanted = [line for name in names for line in (f".  tiny:{name}", f"   {name}.md", f"-- tiny:{name}.gate")]
    assert sorted(re.sub(r" · \d+ s$", "", line) for line in glass.lines()) == sorted(wanted)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one\ntwo\n\n  \n", "two"),
        ("10%\r50%\r90%\r", "90%"),
        ("", ""),
        (
            '{"type":"item","item":{"type":"agent_message","text":"I look.\\nNow I build."}}\n{"type":"turn"}\n',
            "Now I build.",
        ),
        (
            '{"message":{"content":[{"type":"text","text":"Hm."},{"type":"tool_use","input":{"command":"ls -l"}}]}}\n',
            "ls -l",
        ),
        ("words\n{torn json\n", "words"),
    ],
)
def test_the_last_words_of_a_log_are_words(text, said, tmp_path):
    log = tmp_path / "a.log"
    log.write_bytes(text.encode())

    assert last_line(str(log)) == said


def test_an_agent_that_speaks_on_the_other_channel_is_heard_too(tmp_path):
    (tmp_path / "a.1.err.log").write_text("progress\n")

    assert last_line(str(tmp_path / "a.1.log")) == "progress"


def test_the_last_words_of_a_huge_log_are_found_at_its_end(tmp_path):
    log = tmp_path / "a.log"
    log.write_text("x" * (2 * TAIL) + "\nthe end\n")

    assert last_line(str(log)) == "the end"
