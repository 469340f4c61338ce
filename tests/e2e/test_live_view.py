"""Does a person at a terminal see what happens, keep all of it in the scroll-back, and get a sane terminal back?"""

from __future__ import annotations

import os
import re
import signal

import pytest
from tests.support.project import Project
from tests.support.terminal import Terminal

#: the agent stays at work until the test has seen what it wants to see
SEEN = """
def until(found):
    for _ in range(3000):
        if found():
            return
        time.sleep(0.02)
    stop(9)

def until_seen():
    until((outside / "seen").exists)

"""
SLOW = (
    SEEN
    + """
say("thinking about " + step)
until_seen()
usual()
"""
)
PAIR = """
flow: pair
params: {goal: {about: What, required: true}}
steps:
  left: {prompt: Write left., makes: left.md, after: [], retry: {attempts: 0}}
  right: {prompt: Write right., makes: right.md, after: [], retry: {attempts: 0}}
"""
ONE = """
flow: one
params: {goal: {about: What, required: true}}
steps:
  write: {prompt: Write., makes: text.md, retry: {attempts: 0}}
"""
HOSTILE = "\\x1b]0;owned\\x07\\x1b[2J\\x1b[31mred\\x1b]52;c;aGk=\\x07\\u202e"


def seen(project: Project) -> None:
    (project.outside / "seen").touch()


def levelled(text: str) -> list[str]:
    """Lines without what differs between two runs: commits and times."""
    lines = [re.sub(r"\b[0-9a-f]{7}\b", "COMMIT", line) for line in text.splitlines()]
    return [re.sub(r" · \d+ s$", "", line) for line in lines]


def painted(frames: list[str], name: str) -> list[str]:
    """The live lines of a step."""
    return [line for frame in frames for line in frame.splitlines() if re.match(rf"[⠀-⣿]  {name}\b", line)]


def width(screen: str) -> int:
    """Of the lowest line."""
    return len(screen.rpartition("\n")[2])


@pytest.mark.smoke
def test_a_step_at_work_is_a_line_with_its_time_and_the_agents_last_words(project):
    project.flow("one", ONE)
    project.agent(SLOW)

    with Terminal(project, "doit", "one", "--goal=x") as terminal:
        screen = terminal.until("thinking about write")
        seen(project)
        code = terminal.wait()

    assert re.fullmatch(r"[⠀-⣿]  one:write  \d+s  thinking about write", screen.splitlines()[-1])
    assert code == 0


def test_the_scroll_back_holds_what_a_pipe_gets_and_nothing_of_the_live_lines(project, tmp_path):
    twin = Project(tmp_path / "twin")
    piped = twin.doit("tiny", "--goal=x")

    with Terminal(project, "doit", "tiny", "--goal=x", height=6) as terminal:
        code = terminal.wait()

    assert (code, piped.returncode) == (0, 0)
    assert levelled(terminal.text()) == levelled(piped.stdout)
    assert "\x1b" not in piped.stdout


def test_a_phase_is_shown_as_one_of_many_with_its_title(project):
    project.agent(SEEN + 'if phase == "2": until_seen()\nusual()')

    with Terminal(project, "doit", "tiny", "--goal=x") as terminal:
        terminal.until("phase 2 of 2: House")
        seen(project)
        assert terminal.wait() == 0

    assert any("tiny:implement  phase 2 of 2: House" in line for line in painted(terminal.frames, "tiny:implement"))


def test_steps_side_by_side_have_a_line_each(project):
    project.flow("pair", PAIR)
    project.agent(SLOW)

    with Terminal(project, "doit", "-n", "2", "pair", "--goal=x") as terminal:
        screen = terminal.until(lambda screen: "about left" in screen and "about right" in screen)
        seen(project)
        code = terminal.wait()

    assert sorted(line.split()[1] for line in screen.splitlines()[-2:]) == ["pair:left", "pair:right"]
    assert code == 0
    assert sorted(levelled(terminal.text())[1:]) == sorted(
        [
            ".  pair:left",
            ".  pair:right",
            "   specs/001-x/left.md · COMMIT",
            "   specs/001-x/right.md · COMMIT",
            "done: 001-x (pair)",
        ]
    )


def test_a_failure_is_the_last_thing_on_the_screen_though_another_step_ended_later(project):
    project.flow("pair", PAIR)
    project.agent(
        SEEN
        + """
if step == "left":
    until((outside / "right").exists)
    say("no")
    stop(3)
(outside / "right").touch()
until_seen()
usual()
"""
    )

    with Terminal(project, "doit", "-n", "2", "pair", "--goal=x", width=200) as terminal:
        terminal.until("xx pair:left")
        seen(project)
        code = terminal.wait()

    lines = terminal.text().splitlines()
    where = next(place for place, line in enumerate(lines) if line.startswith("xx pair:left: "))
    assert code == 1
    assert any("right.md" in line for line in lines[:where])
    assert (lines[where + 1][:8], lines[-1]) == ("   next:", "   then: doit pair")
    assert not painted([terminal.text()], "pair")


def test_a_gate_says_what_to_type_below_everything_else(project):
    project.flow("one", ONE + '  again: {prompt: Again., makes: again.md, gate: "Is it good?"}\n')

    with Terminal(project, "doit", "one", "--goal=x", width=120) as terminal:
        code = terminal.wait()

    assert code == 2
    assert terminal.text().splitlines()[-2:] == [
        "|| one:again.gate: Is it good? (specs/001-x/again.md)",
        "   next: doflow approve again   or   doflow reject again --note '…'   then: doit one",
    ]


def test_a_retry_is_seen_while_it_waits_and_kept_in_the_history(project):
    project.flow("one", ONE.replace("{attempts: 0}", "{attempts: 1, backoff: 3s}"))
    project.agent("if nth == 0: stop(3)\nusual()")

    with Terminal(project, "doit", "one", "--goal=x", width=120) as terminal:
        terminal.until("~~ one:write")
        assert terminal.wait() == 0

    history = levelled(terminal.text())
    assert history[1] == ".  one:write"
    assert re.fullmatch(r"   ! one:write: .* exit code 3.*; retrying in [234] s", history[2])
    assert history[3:] == [".  one:write  (attempt 2)", "   specs/001-x/text.md · COMMIT", "done: 001-x (one)"]


def test_an_interrupt_leaves_a_sane_terminal_and_says_how_to_go_on(project):
    project.flow("one", ONE)
    project.agent('say("at it")\ntime.sleep(60)')

    with Terminal(project, "doit", "one", "--goal=x") as terminal:
        terminal.until("at it")
        terminal.press("\x03")
        code = terminal.wait()

    assert code == 130
    assert (terminal.cursor_hidden, terminal.cursor_column) == (False, 0)
    assert terminal.text().splitlines()[1:] == [
        ".  one:write",
        "interrupted; finished steps are kept",
        "continue with:",
        "  doit one",
    ]


def test_an_interrupt_of_steps_side_by_side_leaves_a_sane_terminal(project):
    project.flow("pair", PAIR)
    project.agent('say("at it")\ntime.sleep(60)')

    with Terminal(project, "doit", "-n", "2", "pair", "--goal=x") as terminal:
        terminal.until(lambda screen: screen.count("at it") == 2)
        terminal.press("\x03")
        code = terminal.wait()

    assert (code, terminal.cursor_hidden, terminal.cursor_column) == (130, False, 0)
    assert not painted([terminal.screen()], "pair")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_however_it_is_killed_the_cursor_is_there(project, number):
    project.flow("one", ONE)
    project.agent('say("at it")\ntime.sleep(60)')

    with Terminal(project, "doit", "one", "--goal=x") as terminal:
        terminal.until("at it")
        os.kill(terminal.pid, number)
        code = terminal.wait()

    assert (code, terminal.cursor_hidden) == (-9 if number == signal.SIGKILL else 130, False)


@pytest.mark.smoke
def test_nothing_an_agent_says_reaches_the_terminal_as_a_command_to_it(project):
    project.flow("one", ONE)
    project.agent(f'say("{HOSTILE}"); print("{HOSTILE}", file=sys.stderr, flush=True); time.sleep(1.5); stop(3)')

    with Terminal(project, "doit", "one", "--goal=x", width=200) as terminal:
        terminal.until("\\x1b]0;owned\\x07")
        code = terminal.wait()

    assert code == 1
    assert b"\x1b]" not in terminal.raw
    assert b"\x1b[2J" not in terminal.raw
    assert b"\x07" not in terminal.raw
    assert "\u202e" not in terminal.raw.decode()
    assert "\\x1b]52;c;" in terminal.text().splitlines()[2]


def test_a_phase_title_cannot_command_the_terminal_either(project):
    tasks = f"# Tasks\\n\\n## Phase 1: {HOSTILE}\\n\\n- [ ] [T001] Lay the ground in ground.py\\n"
    project.agent(f'if step == "tasks": make("{tasks}")\nelse: usual()')

    with Terminal(project, "doit", "tiny", "--goal=x") as terminal:
        terminal.wait()

    assert b"\x1b]" not in terminal.raw
    assert b"\x1b[2J" not in terminal.raw


def test_a_terminal_of_twenty_columns_gets_one_row_per_step(project):
    project.flow("one", ONE)
    project.agent(SLOW)

    with Terminal(project, "doit", "one", "--goal=x", width=20) as terminal:
        terminal.until(lambda screen: screen.endswith("…"))
        seen(project)
        code = terminal.wait()

    assert code == 0
    assert not painted([terminal.text()], "one:write")
    whole = terminal.text().replace("\n", "")
    assert "specs/001-x/text.md" in whole
    assert terminal.text().splitlines()[-1] == "done: 001-x (one)"


def test_a_window_made_smaller_and_larger_keeps_one_line_per_step(project):
    project.flow("one", ONE)
    project.agent(SEEN + 'say("word " * 60)\nuntil_seen()\nusual()')

    with Terminal(project, "doit", "one", "--goal=x", width=100) as terminal:
        terminal.until(lambda screen: width(screen) == 99)
        terminal.resize(50)
        narrow = terminal.until(lambda screen: width(screen) == 49)
        terminal.resize(120)
        wide = terminal.until(lambda screen: width(screen) == 119)
        seen(project)
        code = terminal.wait()

    assert (len(painted([narrow], "one:write")), len(painted([wide], "one:write"))) == (1, 1)
    assert code == 0
    assert levelled(terminal.text())[-3:] == [".  one:write", "   specs/001-x/text.md · COMMIT", "done: 001-x (one)"]


def test_a_width_that_the_shell_exported_long_ago_is_not_believed(project):
    project.flow("one", ONE)
    project.agent(SEEN + 'say("word " * 60)\nuntil_seen()\nusual()')

    with Terminal(project, "doit", "one", "--goal=x", width=60, env={"COLUMNS": "200", "LINES": "3"}) as terminal:
        screen = terminal.until("word")
        seen(project)
        terminal.wait()

    assert len(painted([screen], "one:write")) == 1
    assert len(screen.splitlines()) == 2


def test_more_steps_than_rows_do_not_spoil_the_history(project):
    steps = "".join(f"  s{n}: {{prompt: Write., makes: s{n}.md, after: []}}\n" for n in range(6))
    project.flow("many", f"flow: many\nparams: {{goal: {{about: What, required: true}}}}\nsteps:\n{steps}")
    project.agent("time.sleep(1)\nusual()")

    with Terminal(project, "doit", "-n", "6", "many", "--goal=x", height=4) as terminal:
        assert terminal.wait() == 0

    heads = [line for line in terminal.text().splitlines() if line.startswith(".  ")]
    assert sorted(heads) == [f".  many:s{n}" for n in range(6)]
    assert not painted([terminal.text()], "many")


@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_a_dumb_terminal_gets_plain_lines(project, term):
    project.flow("one", ONE)

    with Terminal(project, "doit", "one", "--goal=x", env={"TERM": term}) as terminal:
        code = terminal.wait()

    assert code == 0
    assert b"\x1b" not in terminal.raw
    assert levelled(terminal.text())[1:] == [".  one:write", "   specs/001-x/text.md · COMMIT", "done: 001-x (one)"]


def test_no_color_means_no_colour_and_still_a_live_line(project):
    project.flow("one", ONE)
    project.agent(SLOW)

    with Terminal(project, "doit", "one", "--goal=x", env={"NO_COLOR": "1"}) as terminal:
        terminal.until("thinking about write")
        seen(project)
        terminal.wait()

    assert not re.search(rb"\x1b\[[0-9;]*[34][0-9][0-9;]*m", terminal.raw)


def test_without_rich_a_terminal_gets_plain_lines(project, tmp_path):
    project.flow("one", ONE)
    (tmp_path / "without" / "rich").mkdir(parents=True)
    (tmp_path / "without" / "rich" / "__init__.py").write_text("raise ModuleNotFoundError('rich', name='rich')\n")

    with Terminal(project, "doit", "one", "--goal=x", env={"PYTHONPATH": str(tmp_path / "without")}) as terminal:
        code = terminal.wait()

    assert code == 0
    assert b"\x1b" not in terminal.raw
    assert levelled(terminal.text())[1:] == [".  one:write", "   specs/001-x/text.md · COMMIT", "done: 001-x (one)"]


def test_a_run_with_nothing_to_do_does_not_pay_for_the_live_view(project):
    project.flow("one", ONE)
    project.doit("one", "--goal=x")

    with Terminal(project, "doit", "one", "--goal=x", width=200, env={"PYTHONPROFILEIMPORTTIME": "1"}) as terminal:
        code = terminal.wait()

    assert code == 0
    assert b"| doit" in terminal.raw
    assert b"rich" not in terminal.raw
    assert project.calls() == ["write"]


def test_a_task_of_the_projects_own_prints_between_the_steps_unharmed(project):
    project.flow("one", ONE)
    project.write(
        "dodo.py", project.read("dodo.py") + "def task_own():\n    return {'actions': ['echo from a task of mine']}\n"
    )
    project.commit()

    with Terminal(project, "doit", "one", "--goal=x", "own") as terminal:
        code = terminal.wait()

    assert code == 0
    assert "from a task of mine" in terminal.text().splitlines()


def test_json_in_a_terminal_is_json(project):
    project.flow("one", ONE)

    with Terminal(project, "doflow", "run", "one", "--goal=x", "--json", width=2000) as terminal:
        code = terminal.wait()

    assert code == 0
    assert b"\x1b" not in terminal.raw
    assert all(line.startswith("{") and line.endswith("}") for line in terminal.text().splitlines())
