"""Does the page of agents say what the adapters do?"""

from __future__ import annotations

from tests.support import agents_table


def test_the_table_of_the_clis_is_read_off_the_adapters() -> None:
    page = agents_table.PAGE.read_text(encoding="utf-8")

    assert agents_table.BEGIN in page and agents_table.END in page
    assert agents_table.written(page) == page, "python -m tests.support.agents_table"


def test_every_flag_of_a_call_is_looked_for_in_the_help_of_its_program() -> None:
    for program in agents_table.PROGRAMS.values():
        asked = {flag for _, flags in program.asks for flag in flags.split()}
        for how in (*agents_table.HOW.values(), {"resume": "ID", "model": "M"}):
            words, _ = agents_table.argv(program, **how)
            assert {word for word in words if word.startswith("-")} <= asked, program.name


def test_every_flag_of_a_call_that_says_what_an_agent_may_do_is_refused_in_args() -> None:
    free = {"--allowedTools", "-c"}  # a profile may add tools to the first; the second names any setting
    for program in agents_table.PROGRAMS.values():
        for how in agents_table.HOW.values():
            words, _ = agents_table.argv(program, **how)
            assert {word for word in words if word.startswith("-")} - free <= set(program.managed), program.name
