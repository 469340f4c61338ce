"""Steps that decide where the flow goes on, and steps that some runs do not have."""

from __future__ import annotations

import pytest
from tests.support.project import Project

FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    pipeline: [scale, plan, build]
    steps:
      scale:
        prompt: How large is it?
        makes: scale.md
        routes:
          - {when: "SCALE: SMALL", then: [quick], variant: small}
          - {when: "SCALE: MEDIUM", then: [plan, build]}
          - {when: "SCALE: LARGE", then: [plan, review, build], variant: large}
          - {when: "SCALE: UNKNOWN", pause: "Nobody knows how large this is."}
      plan: {prompt: Plan., reads: [scale.md], makes: plan.md}
      review: {prompt: Review., reads: [plan.md], makes: review.md}
      quick: {prompt: Quick., makes: quick.md}
      build: {prompt: Build., makes: build.md}
"""


@pytest.fixture
def work(project: Project) -> Project:
    project.flow("work", FLOW)
    project.commit("A flow")
    return project


def answers(project: Project, text: str) -> None:
    """The routing step ends its answer with this text; its artifact says nothing of it."""
    project.agent(f"usual(); say({text!r} if step == 'scale' else 'done')")


def ran(project: Project, *words: str, code: int = 0) -> list[str]:
    project.forget_calls()
    done = project.doit(*words, "work")
    assert done.returncode == code, done.stdout + done.stderr
    return project.calls()


JOBS = pytest.mark.parametrize("jobs", [(), ("-n", "2")], ids=["alone", "-n 2"])


@pytest.mark.smoke("SCALE: LARGE-steps2-large--n 2")
@JOBS
@pytest.mark.parametrize(
    ("marker", "steps", "variant"),
    [
        ("SCALE: SMALL", ["quick"], "small"),
        ("SCALE: MEDIUM", ["plan", "build"], ""),
        ("SCALE: LARGE", ["plan", "review", "build"], "large"),
    ],
)
def test_the_marker_decides_which_steps_run(work, jobs, marker, steps, variant):
    answers(work, marker)

    assert ran(work, *jobs) == ["scale", *steps]
    state = work.state()
    assert (state["status"], state["variant"]) == ("completed", variant)
    assert (state["pipeline"], state["completed"]) == (["scale", *steps],) * 2
    assert ran(work, *jobs) == []


@JOBS
def test_a_marker_that_pauses_stops_the_run_and_a_rerun_pauses_again(work, jobs):
    answers(work, "SCALE: UNKNOWN")

    assert ran(work, *jobs, code=2) == ["scale"]
    assert (work.state()["status"], "Nobody knows" in work.state()["pauseReason"]) == ("paused", True)
    assert ran(work, *jobs, code=2) == []


@pytest.mark.smoke("alone")
@JOBS
def test_no_marker_is_an_error_and_never_a_way_on(work, jobs):
    answers(work, "It is rather small, I think. SCALE: SMALL, surely")

    assert ran(work, *jobs, code=1) == ["scale"]
    assert work.state()["status"] == "failed"
    done = work.doit("work")
    assert "`SCALE: SMALL`" in done.stdout and done.returncode == 1


def test_a_missing_marker_is_handed_back_where_the_step_may_repair(work):
    work.flow("work", FLOW.replace("makes: scale.md", "makes: scale.md\n        repair: 1"))
    work.commit("Repair")
    work.agent("""
        usual()
        if step == "scale":
            make("# Scale\\n" + ("SCALE: SMALL\\n" if role == "repair" else ""))
    """)

    assert ran(work) == ["scale", "scale repair", "quick"]


@pytest.mark.smoke("before a fence")
@pytest.mark.parametrize(
    "line",
    ["[SCALE: SMALL]", "- `SCALE: SMALL`", "**SCALE: SMALL**\n\n```\nSCALE: LARGE\n```"],
    ids=["in brackets", "in a bullet", "before a fence"],
)
def test_the_last_line_of_the_answer_is_the_marker_whatever_its_markup(work, line):
    answers(work, line)

    assert ran(work) == ["scale", "quick"]


@pytest.mark.parametrize("line", ["SCALE: LARGE\nSCALE: SMALL", "SCALE: SMALL\n> quoted\n\n- **SCALE: LARGE**"])
def test_markers_that_disagree_fail_the_step(work, line):
    answers(work, line)

    assert ran(work, code=1) == ["scale"]
    done = work.doit("work")
    assert "`SCALE: SMALL`" in done.stdout and "disagree" in done.stdout


def test_the_artifact_alone_is_enough(work):
    work.agent("""
        usual()
        if step == "scale":
            make("# Scale\\n\\nSCALE: SMALL\\n")
            say("It is small.")
    """)

    assert ran(work) == ["scale", "quick"]


def test_an_answer_that_contradicts_the_artifact_fails_the_step(work):
    work.agent("""
        usual()
        if step == "scale":
            make("# Scale\\n\\nSCALE: SMALL\\n")
            say("SCALE: LARGE")
    """)

    assert ran(work, code=1) == ["scale"]


def test_a_new_marker_leads_elsewhere(work):
    answers(work, "SCALE: SMALL")
    ran(work)
    answers(work, "SCALE: MEDIUM")
    work.forget_calls()

    done = work.doit("work", "--force=scale")

    assert (done.returncode, work.calls()) == (0, ["scale", "plan", "build"]), done.stdout
    assert work.state()["pipeline"] == ["scale", "plan", "build"]
    assert ran(work) == []


def test_a_routed_run_that_failed_goes_on_where_it_stopped(work):
    work.agent("""
        usual()
        if step == "scale":
            say("SCALE: LARGE")
        if step == "review":
            stop(1)
    """)
    assert ran(work, code=1) == ["scale", "plan", "review"]
    work.agent("usual()")

    assert ran(work) == ["review", "build"]


def test_a_clone_of_a_routed_run_calls_no_agent(work, tmp_path):
    answers(work, "SCALE: SMALL")
    ran(work)
    work.forget_calls()
    work.git("clone", "-q", str(work.root), str(tmp_path / "clone"))

    done = work.doit("work", cwd=tmp_path / "clone")

    assert (done.returncode, work.calls()) == (0, []), done.stdout + done.stderr


@JOBS
def test_one_route_may_lead_to_another(project, jobs):
    project.flow(
        "work",
        """
        flow: work
        defaults: {retry: {attempts: 0}}
        pipeline: [first, end]
        steps:
          first: {prompt: One., makes: one.md, routes: [{when: GO, then: [second, end]}, {when: STOP, then: [end]}]}
          second: {prompt: Two., makes: two.md, routes: [{when: MORE, then: [extra, end]}, {when: LESS, then: [end]}]}
          extra: {prompt: Extra., makes: extra.md}
          end: {prompt: End., makes: end.md}
    """,
    )
    project.commit("A flow")
    project.agent("usual(); say({'first': 'GO', 'second': 'MORE'}.get(step, ''))")

    assert ran(project, *jobs) == ["first", "second", "extra", "end"]
    assert ran(project, *jobs) == []


def test_the_next_step_behind_a_route_is_the_one_that_it_names(work):
    answers(work, "SCALE: LARGE")

    for calls in (["scale"], ["plan"], ["review"], ["build"]):
        work.forget_calls()
        done = work.doit("work", "--next")
        assert (done.returncode, work.calls()) == (0, calls), done.stdout + done.stderr


@pytest.mark.smoke
def test_a_command_can_route_by_its_output(project):
    project.flow(
        "work",
        """
        flow: work
        pipeline: [probe, slow]
        steps:
          probe: {kind: shell, run: [echo, "MODE: FAST"], routes: [{when: "MODE: FAST", then: [fast]}]}
          fast: {prompt: Fast., makes: fast.md}
          slow: {prompt: Slow., makes: slow.md}
    """,
    )
    project.commit("A flow")

    assert ran(project) == ["fast"]
    assert ran(project) == []


@JOBS
def test_what_only_a_second_router_names_keeps_its_order(project, jobs):
    """Each of the last three waits for the one before it, however many run side by side."""
    project.flow(
        "deep",
        """
        flow: deep
        pipeline: [first, second, end]
        steps:
          first:  {kind: shell, run: "echo ON", routes: [{when: "ON", then: [second, end]}]}
          second: {kind: shell, run: "echo MORE", routes: [{when: "MORE", then: [slow, quick, end]}]}
          slow:   {kind: shell, run: "sleep 0.3; echo slow >> order.txt"}
          quick:  {kind: shell, run: "echo quick >> order.txt", after: [slow]}
          end:    {kind: shell, run: "echo end >> order.txt", after: [quick]}
        """,
    )
    project.commit("A flow")

    done = project.doit(*jobs, "deep")

    assert done.returncode == 0, done.stdout + done.stderr
    assert project.read("order.txt").split() == ["slow", "quick", "end"]


def decided(project: Project, marker: str) -> None:
    """A run whose routing step has written its marker into its artifact, done as far as that leads."""
    project.agent(f"usual(); make('# Scale\\n\\n{marker}\\n') if step == 'scale' else None")
    project.doit("work")


def edits(project: Project, line: str) -> None:
    (project.run_dir() / "scale.md").write_text(f"# Scale\n\n{line}\n")
    project.forget_calls()


def test_a_marker_that_you_changed_is_foreseen_by_plan_and_why(work):
    decided(work, "SCALE: SMALL")
    edits(work, "SCALE: MEDIUM")

    plan, why = work.doflow("plan"), work.doflow("why", "build")
    route, quick = work.doflow("why", "scale.route"), work.doflow("why", "quick")

    assert "2 to run" in plan.stdout and "nothing to run" not in plan.stdout, plan.stdout
    assert "not run yet" in why.stdout, why.stdout
    assert "its marker is `SCALE: MEDIUM`" in route.stdout and "is not on the route of this run" in quick.stdout
    assert work.git("status", "--porcelain").split() == ["M", f"specs/{work.runs()[0]}/scale.md"], (
        "looking writes nothing"
    )
    assert ran(work) == ["plan", "build"]


@pytest.mark.parametrize("before", ["SCALE: SMALL", "SCALE: UNKNOWN"])
def test_a_marker_that_you_changed_into_none_of_them_fails_and_never_falls_back(work, before):
    decided(work, before)
    edits(work, "SCALE: XXX")

    plan, why, done = work.doflow("plan"), work.doflow("why", "scale.route"), work.doit("work")

    for told in (plan.stdout, why.stdout, done.stdout):
        assert "scale.md has your edits, but none of the markers `SCALE: SMALL`" in told, told
        assert "Nobody knows" not in told.replace("`SCALE: UNKNOWN`: pause: Nobody knows", "")
    assert (done.returncode, work.calls(), work.state()["status"]) == (1, [], "failed")
    assert "on its own line" in done.stdout and "--force=scale" in done.stdout
    status = work.doflow("status", "1")
    assert "none of the markers" in status.stdout, status.stdout
    edits(work, "SCALE: SMALL")
    assert ran(work) == ([] if before == "SCALE: SMALL" else ["quick"])


def test_an_edit_beside_a_marker_that_the_agent_only_said_leaves_it_as_it_was(work):
    answers(work, "SCALE: SMALL")
    ran(work)
    edits(work, "Rather small.")

    assert ran(work) == []
    assert "its marker is `SCALE: SMALL`" in work.doflow("why", "scale.route").stdout


# --- `only`, params from the environment, `kind: install`


NOTES = """\
flow: notes
about: A draft, perhaps a translation, perhaps a check, and the result in its place.
params:
  goal: {about: What to write, required: true}
  tone: {about: How it sounds, default: plain, env: TONE}
  language: {about: A second language}
steps:
  draft:     {prompt: "Write. Tone: {tone}", makes: "{step}/text.md"}
  translate: {prompt: "Into {language}", reads: [draft/text.md], makes: second.md, only: {param: language}}
  proof:     {prompt: Proofread., reads: [draft/text.md], makes: proof.md, only: {unless: SKIP_PROOF}}
  publish:   {kind: install, reads: [draft/text.md], makes: /NOTES.md, check: {headings: [Requirements]}}
"""


@pytest.fixture
def notes(project: Project) -> Project:
    project.flow("notes", NOTES)
    project.commit("A flow")
    return project


@pytest.mark.smoke
def test_a_step_is_there_if_its_param_has_a_value_and_its_variable_is_not_true(notes: Project) -> None:
    assert notes.doit("notes", "--goal=x", env={"SKIP_PROOF": "true"}).returncode == 0
    assert notes.calls() == ["draft"]
    assert notes.read("NOTES.md") == (notes.run_dir() / "draft" / "text.md").read_text()

    assert notes.doit("notes", "--language=Latin").returncode == 0
    assert notes.calls() == ["draft", "translate", "proof"]
    assert notes.state()["pipeline"] == ["draft", "translate", "proof", "publish"]

    again = notes.doit("notes")
    assert (again.returncode, len(notes.calls()), "notes:translate" in again.stdout) == (0, 3, True)


def test_a_param_comes_from_the_command_line_else_from_the_environment_else_it_has_its_default(
    notes: Project,
) -> None:
    notes.doit("notes", "--goal=x", env={"TONE": "loud", "SKIP_PROOF": "true"})
    notes.doit("notes", "--tone=soft", env={"TONE": "loud", "SKIP_PROOF": "true"})
    notes.doit("notes", "--new", "--goal=y", env={"SKIP_PROOF": "true"})

    assert [prompt.splitlines()[0] for prompt in notes.prompts()] == [
        "Write. Tone: loud", "Write. Tone: soft", "Write. Tone: plain"
    ]  # fmt: skip


def test_what_is_put_in_its_place_is_checked_and_a_persons_edit_of_it_is_kept(notes: Project) -> None:
    notes.agent('make("# No such heading\\n")' + "\n" + 'if step == "proof": usual()')
    refused = notes.doit("notes", "--goal=x")
    assert (refused.returncode, (notes.root / "NOTES.md").exists()) == (1, False)
    assert "NOTES.md: the heading `## Requirements` is missing" in refused.stdout
    notes.agent("usual()")
    assert notes.doit("notes", "--force=draft").returncode == 0
    notes.write("NOTES.md", "# Mine\n")

    kept = notes.doit("notes")

    assert (kept.returncode, notes.read("NOTES.md")) == (0, "# Mine\n")
    assert "kept your edits to NOTES.md" in kept.stdout
