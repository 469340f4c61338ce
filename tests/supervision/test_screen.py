"""What a pane shows: R2.32 to R2.35 and R2.38, on screens as Claude Code 2.1 and plain programs draw them."""

from __future__ import annotations

import pytest

from doflow.supervise.panes import screen

pytestmark = pytest.mark.smoke

RULE = "─" * 120
ASKING = f"""\
❯ Do this.
  1. first
  2. second

{RULE}
 ☐ DB
Which database shall I use?
❯ 1. Postgres
     a server
  2. SQLite
     a file
  3. Type something.
{RULE}
  4. Chat about this
Enter to select · ↑/↓ to navigate · Esc to cancel
"""
PERMISSION = f"""\
● Write(/elsewhere/out.txt)
{RULE}
 Create file
 ../out.txt
╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌
  1 x
 Do you want to create out.txt?
 ❯ 1. Yes
   2. Yes, and always allow access to /elsewhere for this session (shift+tab)
   3. No
 Esc to cancel · Tab to amend
"""
BOXED = """\
╭──────────────────────────────────────────╮
│ Bash command                             │
│   rm -rf build                           │
│ Do you want to proceed?                  │
│ ❯ 1. Yes                                 │
│   2. No, and tell Claude what to do      │
╰──────────────────────────────────────────╯
"""
IDLE = f"""\
❯ 1. write a
  2. write b

● Both are written.

✻ Cooked for 2s · done 10:23 AM
{RULE}
❯
{RULE}
  ⏵⏵ accept edits on (shift+tab to cycle)
"""


def test_a_question_dialog_is_read_with_its_options() -> None:
    sight = screen.read_screen(ASKING)

    assert sight.question == "☐ DB / Which database shall I use?"
    assert sight.options == ("Postgres", "SQLite", "Type something.", "Chat about this")
    assert not sight.waits


def test_a_permission_prompt_is_read_with_what_it_is_about() -> None:
    sight = screen.read_screen(PERMISSION)

    assert sight.question == "Create file / ../out.txt / 1 x / Do you want to create out.txt?"
    assert (sight.options[0], sight.options[2]) == ("Yes", "No")


def test_a_framed_dialog_is_read_too() -> None:
    sight = screen.read_screen(BOXED)

    assert sight.question == "Bash command / rm -rf build / Do you want to proceed?"
    assert sight.options == ("Yes", "No, and tell Claude what to do")


def test_a_numbered_prompt_and_an_empty_input_line_ask_nothing() -> None:
    assert screen.read_screen(IDLE).question == ""


@pytest.mark.parametrize(
    ("text", "question", "options"),
    [
        ("work\nOverwrite it? [y/N] ", "Overwrite it? [y/N]", ("y", "n")),
        ("Continue (yes/no): ", "Continue (yes/no):", ("y", "n")),
        ("What is your name?", "What is your name?", ()),
    ],
)
def test_a_plain_question_counts_if_the_program_waits(text: str, question: str, options: tuple[str, ...]) -> None:
    sight = screen.read_screen(text)

    assert (sight.question, sight.options, sight.waits) == (question, options, True)


def test_a_program_can_ask_and_end_in_so_many_words() -> None:
    asked = screen.read_screen("working\nDOFLOW: ask Which colour? | red | blue\n")
    went_on = screen.read_screen("DOFLOW: ask Which colour? | red | blue\nblue\nworking\n")

    assert (asked.question, asked.options, asked.waits) == ("Which colour?", ("red", "blue"), False)
    assert went_on.question == ""
    assert screen.read_screen("all right\nDOFLOW: done\n").done
    assert not screen.read_screen("end with the line DOFLOW: done, please\n").done


def test_errors_are_seen_and_counted() -> None:
    once = screen.read_screen("Traceback (most recent call last)\n  File x\nValueError: no such door\n")
    often = screen.read_screen("ValueError: no such door\ntrying again\n" * 3)

    assert (once.error, once.repeated) == ("ValueError: no such door", False)
    assert (often.error, often.repeated) == ("ValueError: no such door", True)
    assert screen.read_screen("  ⎿  API Error: 529 overloaded\n").error == "API Error: 529 overloaded"
    assert screen.read_screen("no error at all\n").error == ""


def test_a_direct_edit_is_seen() -> None:
    assert screen.read_screen("● Write(src/auth.py)\n  ⎿  Wrote 3 lines\n").edit == "Write(src/auth.py)"
    assert screen.read_screen("⏺ Update(src/auth.py)\n").edit == "Update(src/auth.py)"
    assert screen.read_screen("● Task(write src/auth.py)\n").edit == ""


def test_context_and_tokens_are_read() -> None:
    sight = screen.read_screen(
        "✻ Thinking… (31s · ↓ 1.2k tokens · esc to interrupt)\n  Context left until auto-compact: 7%\n"
    )

    assert (sight.context_left, sight.tokens, sight.busy) == (7, 1200, True)


def test_a_turning_wheel_and_a_clock_are_no_progress_but_tokens_and_words_are() -> None:
    def progress(text: str) -> str:
        return screen.read_screen(text).progress

    base = progress("● Reading\n✻ Thinking… (31s · ↓ 1.2k tokens · esc to interrupt)\n")

    assert progress("● Reading\n✽ Thinking… (99s · ↓ 1.2k tokens · esc to interrupt)\n") == base
    assert progress("● Reading\n✽ Thinking… (99s · ↓ 1.3k tokens · esc to interrupt)\n") != base
    assert progress("● Reading\n● Writing\n✻ Thinking… (31s · ↓ 1.2k tokens · esc to interrupt)\n") != base


@pytest.mark.parametrize(
    ("answer", "number"), [("2", 2), ("2.", 2), ("sqlite", 2), ("post", 1), ("5", 0), ("MySQL", 0), ("", 0)]
)
def test_an_answer_means_an_option_by_number_or_words(answer: str, number: int) -> None:
    assert screen.match_choice(answer, ("Postgres", "SQLite")) == number


def test_the_sign_of_the_end_counts_beside_a_column_too_and_in_a_sentence_not() -> None:
    assert screen.read_screen("text\n  DOFLOW: done          8,506 tokens\n").done == 1
    assert screen.read_screen("I shall write DOFLOW: done at the end\nDOFLOW: done, I think\n").done == 0
