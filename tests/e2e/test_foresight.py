"""What no run could do well is refused by `doflow validate` and by the run itself, before anything is paid."""

from __future__ import annotations

import pytest
from tests.support.project import Project

HEAD = "flow: small\nparams:\n  tone: {default: plain}\nprotect: [LICENSE]\nsteps:\n"
LATE = "  early: {prompt: Read., reads: [c.md], makes: b.md}\n  late: {prompt: Write., makes: c.md}"
PLACES = [
    ("  a: {prompt: x, makes: /flows/x.yaml}", "6:25", "agents may not write '/flows/x.yaml': /flows/ is protected"),
    ("  a: {prompt: x, makes: [b.md, /LICENSE]}", "6:32", "agents may not write '/LICENSE': LICENSE is protected"),
    ("  a: {prompt: x, makes: b.md, protect: '*.md'}", "6:25", "agents may not write 'b.md': *.md is protected"),
    ("  a: {prompt: x, makes: input.md}", "6:25", "'input.md' is written by doflow itself"),
    ("  a: {kind: shell, run: x, makes: doflow.lock}", "6:35", "'doflow.lock' is written by doflow itself"),
    ("  a: {kind: review, reads: [input.md], personas: [pm, nobody]}", "6:55", "unknown persona 'nobody'"),
    (
        "  a: {prompt: x, makes: b.md, only: {param: ton}}",
        "6:45",
        "param 'ton' is never set, so this step would never run",
    ),
    ("  a: {prompt: x, makes: b.md, only: {param: goal}}", "6:45", "param 'goal' is never set"),
    (LATE, "6:34", "'c.md' is only made by step 'late', which runs later"),
    ("  a: {prompt: x, reads: [b.md], makes: b.md}", "6:26", "'b.md' is only made by this step itself"),
    (
        "  a: {kind: implement, phases: t.md, prompt: x}\n  t: {prompt: x, makes: t.md}",
        "6:32",
        "'t.md' is only made by",
    ),
    ('  a: {prompt: x, makes: "{item}.md"}', "6:25", "{item} is not a param of this flow"),
    ('  a: {prompt: "{index}", makes: b.md}', "6:15", "{index} is not a param of this flow"),
    ('  a: {prompt: "{phase}", makes: b.md}', "6:15", "{phase} is not a param of this flow"),
    ('  a: {kind: shell, run: x, check: {run: "test {tonee}"}}', "6:41", "{tonee} is not a param of this flow"),
]


@pytest.mark.smoke(
    "agents may not write 'b.md': *.md is protected",
    "'doflow.lock' is written by doflow itself",
    "param 'goal' is never set",
    "'c.md' is only made by step 'late', which runs later",
)
@pytest.mark.parametrize(("steps", "place", "told"), PLACES, ids=[told for _, _, told in PLACES])
def test_what_could_never_go_well_is_refused_at_its_place(project: Project, steps: str, place: str, told: str) -> None:
    project.flow("small", HEAD + steps + "\n")

    for done in (project.doflow("validate", "small"), project.doit("small", "--goal=x")):
        assert done.returncode == 1, done.stdout
        assert f"flows/small.yaml:{place}: {told}" in done.stdout + done.stderr
        assert "hint: " in done.stdout + done.stderr
    assert (project.calls(), project.runs()) == ([], [])


def test_a_file_may_be_made_later_in_the_list_where_the_order_is_another(project: Project) -> None:
    text = LATE.replace("  late: {", "  late: {after: [], ")
    waits = text.replace("c.md]", "c.md], after: [late]")
    project.flow("waits", HEAD.replace("small", "waits") + waits + "\n")
    project.flow(
        "piped", HEAD.replace("small", "piped").replace("steps", "pipeline: [late, early]\nsteps") + text + "\n"
    )
    routed = '  go: {prompt: x, makes: g.md, routes: [{when: "A", then: [late, early]}, {when: "B", pause: Stop.}]}\n'
    project.flow(
        "routed", HEAD.replace("small", "routed").replace("steps", "pipeline: [go]\nsteps") + routed + LATE + "\n"
    )

    told = project.doflow("validate", "--strict", "waits", "piped", "routed")

    assert told.returncode == 0, told.stdout


@pytest.mark.smoke("agent", "protect")
@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("{prompt: x, makes: a.md, fallback: typo}", "names the agent 'typo'"),
        ("{prompt: x, makes: a.md, agent: typo}", "names the agent 'typo'"),
        ("{kind: review, reads: [input.md], personas: [pm], fixer: typo}", "names the agent 'typo'"),
        (
            "{prompt: x, makes: /docs/a.md}",
            "step a makes '/docs/a.md', which agents may not write: doflow.yaml protects",
        ),
    ],
    ids=["fallback", "agent", "fixer", "protect"],
)
def test_what_flow_and_settings_rule_out_together_is_refused(project: Project, step: str, told: str) -> None:
    project.flow("small", f"flow: small\nsteps:\n  a: {step}\n")
    project.settings("protect: ['docs/**']\n")
    project.commit("A flow")

    for done in (project.doflow("validate", "small"), project.doit("small", "--goal=x")):
        assert done.returncode == 1, done.stdout
        assert told in done.stdout + done.stderr
    assert (project.calls(), project.runs()) == ([], [])


def test_a_word_in_the_braces_of_a_command_that_is_no_param_is_a_warning(project: Project) -> None:
    run = "\"echo {zz} | awk '{print}'\""
    project.flow("small", f"flow: small\nsteps:\n  a: {{kind: shell, run: {run}, check: {{run: 'true {{yy}}'}}}}\n")

    told = project.doflow("validate", "small")

    assert told.returncode == 0
    assert [line for line in told.stdout.splitlines() if line.startswith("warning: ")] == [
        "warning: flows/small.yaml:3:3: step a: {zz} in `run` is not a param of small and is left unchanged",
        "warning: flows/small.yaml:3:3: step a: {yy} in `check.run` is not a param of small and is left unchanged",
    ]
    assert project.doit("small", "--goal=x").returncode == 0


def test_an_agent_that_is_not_there_is_told_where_it_is_named(project: Project) -> None:
    project.flow("small", "flow: small\ndefaults: {agent: nobody}\nsteps:\n  a: {prompt: x, makes: a.md}\n")
    more = "  a:\n    b: {prompt: x, makes: b.md, agent: typo}\n"
    project.flow("more", f"flow: more\nextends: small\ninsert_after:\n{more}")

    told = project.doflow("validate", "small", "more").stdout

    assert "flows/small.yaml:2:19: step a names the agent 'nobody'" in told
    assert "flows/more.yaml:5:40: step b names the agent 'typo'" in told
