"""What runs again, and what does not: real doit, real git, a scripted agent."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from tests.support.project import Project

from doflow.util.version import VERSION

CHAIN = """
    flow: chain
    params: {goal: {required: true}}
    defaults: {retry: {attempts: 0}}
    steps:
      one: {prompt: one.md, reads: [input.md], makes: one.md}
      two: {prompt: Write two., reads: [one.md], makes: two.md}
      three: {prompt: Write three., reads: [two.md], makes: three.md}
"""

WORK = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      tasks: {prompt: List the tasks., makes: tasks.md}
      implement: {kind: implement, phases: tasks.md, prompt: Do it.}
"""


def chain(project: Project, flow: str = CHAIN, script: str = "echo()") -> Project:
    """A finished run of three steps, each of which reads what the one before it made."""
    project.flow("chain", flow)
    project.write("flows/prompts/one.md", "Write one.\n")
    project.agent(script)
    project.commit("A flow")
    done = project.doit("chain", "--goal=Say it")
    assert done.returncode == 0, done.stdout + done.stderr
    project.forget_calls()
    return project


def work(project: Project, tasks: str = "") -> Project:
    """A finished run of a task list and its phases."""
    project.flow("work", WORK)
    project.commit("A flow")
    if tasks:
        project.agent(f"make({tasks!r}) if step == 'tasks' else usual()")
    done = project.doit("work")
    assert done.returncode == 0, done.stdout + done.stderr
    project.forget_calls()
    return project


def again(project: Project, *words: str, code: int = 0) -> list[str]:
    """Runs the flow once more; gives the calls that it made."""
    project.forget_calls()
    done = project.doit(*(words or ("chain",)))
    assert done.returncode == code, done.stdout + done.stderr
    return project.calls()


def edit(project: Project, name: str, more: str = "\nBy hand.\n") -> str:
    path = project.run_dir() / name
    path.write_text(path.read_text() + more)
    return path.read_text()


@pytest.mark.smoke
def test_a_second_run_calls_no_agent(project):
    chain(project)
    commits = project.subjects()

    assert again(project) == []
    assert (project.state()["status"], project.subjects()) == ("completed", commits)


@pytest.mark.smoke
def test_a_hand_edit_runs_only_what_reads_it_and_why_names_it(project):
    chain(project)
    text = edit(project, "two.md")

    why = project.doflow("why", "three")
    assert (why.returncode, "two.md was edited by hand" in why.stdout) == (0, True), why
    assert again(project) == ["three"]
    assert (project.run_dir() / "two.md").read_text() == text
    assert again(project) == []


@pytest.mark.smoke
def test_a_hand_edit_is_recorded_as_the_persons_and_committed(project):
    chain(project)
    edit(project, "two.md")

    again(project)

    assert project.git("status", "--porcelain") == ""
    assert '"author": "person"' in next(
        line for line in (project.run_dir() / "doflow.lock").read_text().splitlines() if 'two.md": {"digest' in line
    )
    assert any(subject.startswith("Keep manual edits to") for subject in project.subjects())


def test_a_hand_edit_that_the_person_commits_runs_what_reads_it(project):
    chain(project)
    edit(project, "one.md")
    project.commit("My words")

    assert again(project) == ["two", "three"]
    assert again(project) == []


def test_an_edit_taken_back_runs_nothing(project):
    chain(project)
    path = project.run_dir() / "two.md"
    before = path.read_text()
    edit(project, "two.md")
    path.write_text(before)

    assert again(project) == []


@pytest.mark.smoke
def test_a_changed_prompt_of_the_project_runs_its_step_and_what_follows_from_changed_bytes(project):
    chain(project)
    project.write("flows/prompts/one.md", "Write one, better.\n")
    project.commit("A better prompt")

    assert "its prompt one.md changed" in project.doflow("why", "one").stdout
    assert again(project) == ["one", "two", "three"]


@pytest.mark.smoke
def test_a_rerun_that_gives_the_same_bytes_stops_there(project):
    chain(project, script="usual()")
    project.write("flows/prompts/one.md", "Write one, better.\n")
    project.commit("A better prompt")

    assert again(project) == ["one"]
    assert again(project) == []


@pytest.mark.smoke
def test_a_changed_step_runs_only_that_step(project):
    chain(project, script="usual()")
    project.flow("chain", CHAIN.replace("Write two.", "Write two at length."))
    project.commit("Another step")

    assert again(project) == ["two"]


def test_a_changed_check_runs_its_step(project):
    chain(project, script="usual()")
    project.flow("chain", CHAIN.replace("makes: two.md}", "makes: two.md, check: {not_empty: true}}"))
    project.commit("A check")

    assert again(project) == ["two"]


@pytest.mark.smoke
def test_a_changed_timeout_retry_gate_or_order_runs_nothing(project):
    chain(project, script="usual()")
    changed = CHAIN.replace("attempts: 0", "attempts: 1")
    changed = changed.replace("makes: two.md}", "makes: two.md, timeout: 5m, repair: 2, protect: [x]}")
    project.flow("chain", changed.replace("makes: three.md}", "makes: three.md, after: [two]}"))
    project.commit("Other limits")

    assert again(project) == []


LIMITS = (
    "timeout: 20m, retry: {attempts: 3, backoff: 1s}, repair: 2, gate: Good?, after: [one], protect: [x.md], "
    "budget: {tokens: 500}"
)
SHOWN = [
    "its timeout was 2h, now 20m",
    "its retry was never, now 3 times, after 1s",
    "its repair was 0, now 2",
    "its gate was none, now Good?",
    "its after was the step before it, now one",
    "its protect was nothing, now x.md",
    "its budget was none, now 500 tokens",
]


def remarks(project: Project, step: str) -> list[str]:
    return json.loads(project.doflow("why", step, "--json").stdout)["remarks"]


def limited(project: Project) -> Project:
    """A finished run whose flow has other limits now."""
    chain(project, script="usual()")
    project.flow("chain", CHAIN.replace("makes: three.md}", f"makes: three.md, {LIMITS}}}"))
    project.commit("Other limits")
    return project


def test_why_shows_the_limits_that_changed_and_nothing_of_it_is_paid(project):
    limited(project)

    assert (remarks(project, "three"), remarks(project, "one")) == (SHOWN, [])
    assert (
        "(not run again for this; to run it again: doit chain --force=three)" in project.doflow("why", "three").stdout
    )
    assert again(project, code=2) == []  # only its new gate asks
    assert project.doflow("approve", "three").returncode == 0
    assert again(project, "chain", "--force=three", "--budget=none") == ["three"]
    assert remarks(project, "three") == []


def test_why_shows_limits_that_were_taken_out_and_those_of_the_settings(project):
    chain(project, CHAIN.replace("makes: two.md}", "makes: two.md, timeout: {idle: 5m, max: 10m}, repair: 1}"))
    project.flow("chain", CHAIN)
    project.settings("timeouts: {max: 1h}\nretry: {enabled: false}\nprotect: [PRD.md]\ngates: {after-two: true}\n")

    shown = [
        "its timeout was 10m (silence: 5m), now 1h",
        "its repair was 1, now 0",
        "its gate was none, now Approve two?",
    ]
    assert remarks(project, "two") == [*shown, "its protect was nothing, now PRD.md"]


def test_a_lock_from_before_limits_were_recorded_gives_no_remark(project):
    limited(project)
    path = project.run_dir() / "doflow.lock"
    path.write_text(path.read_text().replace('"with": ', '"doflow": '))

    assert remarks(project, "three") == []


def test_what_is_as_usual_makes_the_lock_no_longer(project):
    chain(project, CHAIN.replace("{attempts: 0}", "{attempts: 2}") + "      test: {kind: shell, run: 'true'}\n")

    held = (project.run_dir() / "doflow.lock").read_text()

    version = f'"with": "{VERSION}"'
    told = [f'{{{version}, "agent": "default"}}'] * 3 + [f"{{{version}}}"]
    assert re.findall(r'"by": (\{.*?\})', held) == told


def test_a_changed_comment_in_the_flow_runs_nothing(project):
    chain(project)
    project.flow("chain", CHAIN + "    # a word\n")
    project.commit("A word")

    assert again(project) == []


@pytest.mark.smoke
def test_another_model_or_agent_runs_nothing_and_why_says_so(project):
    chain(project)
    project.settings(agent="model: better")
    project.commit("Another model")

    assert again(project) == []
    assert "default better" in project.doflow("why", "two").stdout


def test_another_agent_on_the_command_line_runs_nothing(project):
    chain(project)

    assert again(project, "chain", "--agent=rehearsal") == []


def test_another_model_counts_when_the_settings_say_so(project):
    project.settings("triggers: [agent]\n")
    chain(project, script="usual()")
    project.settings("triggers: [agent]\n", agent="model: better")
    project.commit("Another model")

    assert again(project) == ["one", "two", "three"]
    assert again(project) == []


MIXED = CHAIN + "      test: {kind: shell, run: 'true'}\n      fix: {kind: shell, run: 'true', repair: 1}\n"


def test_adding_a_trigger_or_taking_it_back_runs_nothing(project):
    chain(project, MIXED)
    for said in ("triggers: [agent, packaged]\n", "triggers: [agent]\n", ""):
        project.settings(said)
        project.commit("Another trigger")

        assert "changed" not in project.doflow("plan").stdout
        assert again(project) == []


def test_with_the_trigger_only_the_steps_of_the_changed_agent_run_again(project):
    project.settings("triggers: [agent]\n")
    chain(project, MIXED, "usual()")
    project.settings("triggers: [agent]\nroute_agents: {two: other}\n", agent="}\n  other: {use: rehearsal")
    project.commit("Another agent")

    told = project.doflow("why", "two").stdout

    assert "because its agent was default, now other (triggers: agent)" in told and "not redone" not in told
    assert "because" not in project.doflow("why", "one").stdout + project.doflow("why", "test").stdout
    assert [event["step"] for event in started(project)] == ["two", "three"]  # another agent, other bytes


def test_a_phase_of_another_model_is_done_again_when_the_settings_say_so(project):
    work(project)
    project.settings("triggers: [agent]\n", agent="model: better")
    project.commit("Another model")

    assert "implement:1" in again(project, "work") and again(project, "work") == []


def test_a_key_that_holds_the_agent_from_before_is_still_good(project):
    chain(project)
    path = project.run_dir() / "doflow.lock"
    path.write_text(
        path.read_text().replace('"parts": {', '"parts": {"agent": "1234", ').replace('{"key": "', '{"key": "0')
    )
    project.commit("A lock of an older doflow")

    assert again(project) == []


def test_what_a_person_keeps_is_not_done_again_for_another_agent(project):
    project.settings("triggers: [agent]\n")
    chain(project, script="usual()")
    edit(project, "two.md")
    assert project.doflow("adopt", "two").returncode == 0
    project.settings("triggers: [agent]\n", agent="model: better")
    project.commit("Another model")

    assert again(project) == ["one", "three"]


def test_who_stood_in_for_a_limited_agent_makes_nothing_stale(project):
    project.settings("triggers: [agent]\n", agent="fallback: other}\n  other: {use: rehearsal")
    chain(project, script="stop(75) if step == 'two' else usual()")
    project.agent("usual()")

    assert '"agent": "other"' in (project.run_dir() / "doflow.lock").read_text()
    assert again(project) == []


PACKAGED = """
    flow: chain
    params: {goal: {required: true}}
    defaults: {retry: {attempts: 0}}
    steps:
      one: {prompt: specify.md, reads: [input.md], makes: one.md}
      two: {kind: review, reads: [one.md], personas: [pm], rounds: 1}
"""


def packaged(project: Project) -> Project:
    """A finished run with a packaged prompt and a packaged persona; the settings let both count."""
    project.settings("triggers: [packaged]\n")
    return chain(project, PACKAGED, "say('VERDICT: GO') if persona else usual()")


def test_another_text_of_a_packaged_prompt_counts_when_the_settings_say_so(project):
    packaged(project)
    path = project.run_dir() / "doflow.lock"
    path.write_text(re.sub(r'"(packaged|voices)": "[0-9a-f]{8}"', r'"\1": "00000000"', path.read_text()))
    project.commit("A lock of another doflow")

    assert "because its packaged prompt was 00000000, now" in project.doflow("why", "one").stdout
    assert "because its packaged persona prompt was 00000000, now" in project.doflow("why", "two").stdout
    project.settings("")
    assert "(not run again for this" in project.doflow("why", "one").stdout
    project.settings("triggers: [packaged]\n")
    assert again(project) == ["one", "two persona pm"]
    assert again(project) == []


def test_a_packaged_text_that_nobody_wrote_down_counts_as_unchanged_and_that_is_said(project):
    packaged(project)
    path = project.run_dir() / "doflow.lock"
    path.write_text(re.sub(r', "(packaged|voices)": "[0-9a-f]{8}"', "", path.read_text()))
    project.commit("A lock of an older doflow")

    assert (
        "its packaged prompt at that time was not recorded and is treated as unchanged"
        in project.doflow("why", "one").stdout
    )
    assert again(project) == []


def test_a_persona_that_is_told_other_words_is_asked_again(project):
    flow = PACKAGED.replace("personas: [pm]", "personas: [ann]")
    chain(project, flow, "say('VERDICT: GO') if persona else usual()")
    project.write("flows/prompts/personas/ann.md", "You are ann, and strict.\n")
    project.commit("Another ann")

    assert again(project) == ["two persona ann"]
    assert again(project) == []


def started(project: Project) -> list[dict]:
    """What the next command begins."""
    before = len(project.events())
    assert project.doit("chain").returncode == 0
    return [event for event in project.events()[before:] if event["event"] == "step_starting"]


@pytest.mark.smoke
def test_a_goal_in_a_prompt_counts_only_for_the_step_that_uses_it(project):
    flow = """
        flow: chain
        params: {goal: {required: true}, tone: {default: plain}}
        defaults: {retry: {attempts: 0}}
        steps:
          one: {prompt: Write one., reads: [input.md], makes: one.md}
          two: {prompt: "Write two, {tone}.", makes: two.md}
    """
    chain(project, flow, "usual()")

    assert again(project, "chain", "--goal=Say it", "--tone=angry") == ["two"]


@pytest.mark.smoke
def test_a_stale_step_with_a_hand_edited_artifact_pauses_and_leaves_the_text(project):
    chain(project)
    text = edit(project, "two.md")
    edit(project, "one.md")

    done = project.doit("chain")

    assert done.returncode == 2
    assert "two.md has manual edits" in done.stdout
    assert "doflow adopt two" in done.stdout and "doit chain --force=two" in done.stdout
    assert (project.calls(), (project.run_dir() / "two.md").read_text()) == ([], text)
    assert project.state()["status"] == "paused"
    assert again(project, code=2) == []


@pytest.mark.smoke
def test_force_rebuilds_a_hand_edited_artifact(project):
    chain(project)
    text = edit(project, "two.md")
    edit(project, "one.md")
    again(project, code=2)

    assert again(project, "chain", "--force=two") == ["two", "three"]
    assert (project.run_dir() / "two.md").read_text() != text
    assert "two.md` exists. Keep what still holds" in project.prompts()[0]
    assert again(project) == []


@pytest.mark.smoke
def test_adopt_keeps_a_hand_edited_artifact_and_runs_what_reads_it(project):
    chain(project)
    text = edit(project, "two.md")
    edit(project, "one.md")
    again(project, code=2)

    adopted = project.doflow("adopt", "two")

    assert adopted.returncode == 0, adopted.stderr
    assert again(project) == ["three"]
    assert (project.run_dir() / "two.md").read_text() == text
    assert again(project) == []


@pytest.mark.smoke
def test_force_redoes_a_fresh_step_once(project):
    chain(project, script="usual()")

    assert again(project, "chain", "--force=two") == ["two"]
    assert again(project) == []


def test_force_of_an_unknown_step_is_an_error(project):
    chain(project)

    done = project.doit("chain", "--force=nosuch")

    assert done.returncode == 1
    assert "nosuch" in done.stdout + done.stderr
    assert project.calls() == []


@pytest.mark.smoke
def test_a_deleted_artifact_is_made_again(project):
    chain(project, script="usual()")
    (project.run_dir() / "two.md").unlink()

    assert "two.md is gone" in project.doflow("why", "two").stdout
    assert again(project) == ["two"]
    assert again(project) == []


@pytest.mark.smoke
def test_a_revision_is_told_of_the_old_artifact_and_the_difference_of_its_inputs(project):
    chain(project)
    edit(project, "two.md", "\nA new requirement.\n")

    again(project)

    assert "`specs/001-say-it/three.md` exists. Keep what still holds" in project.prompts()[0]
    assert "+A new requirement." in project.prompts()[0]


@pytest.mark.smoke
def test_without_its_state_folder_a_run_calls_no_agent(project):
    chain(project)
    shutil.rmtree(project.root / ".doflow")

    assert again(project) == []
    assert project.state()["status"] == "completed"
    assert project.git("status", "--porcelain") == ""


def test_without_its_state_folder_a_run_with_its_goal_calls_no_agent(project):
    chain(project)
    shutil.rmtree(project.root / ".doflow")

    assert again(project, "chain", "--goal=Say it") == []
    assert project.runs() == ["001-say-it"]


@pytest.mark.smoke
def test_a_fresh_clone_of_the_branch_calls_no_agent(project, tmp_path):
    chain(project)
    project.git("clone", "-q", "-b", "001-say-it", str(project.root), str(tmp_path / "clone"))

    done = project.doit("chain", cwd=tmp_path / "clone")

    assert (done.returncode, project.calls()) == (0, []), done.stdout + done.stderr


def test_a_clone_that_switches_to_the_branch_calls_no_agent(project, tmp_path):
    work(project)
    clone = tmp_path / "clone"
    project.git("switch", "-q", "main")
    project.git("clone", "-q", str(project.root), str(clone))
    project.git("switch", "-q", project.state()["branch"], cwd=clone)

    done = project.doit("work", cwd=clone)

    assert (done.returncode, project.calls()) == (0, []), done.stdout + done.stderr
    assert project.git("status", "--porcelain", cwd=clone) == ""


@pytest.mark.smoke
def test_half_a_run_goes_on_in_a_clone(project, tmp_path):
    project.flow("chain", CHAIN)
    project.write("flows/prompts/one.md", "Write one.\n")
    project.agent("usual() if step != 'three' else stop(1)")
    project.commit("A flow")
    assert project.doit("chain", "--goal=Say it").returncode == 1
    clone = tmp_path / "clone"
    project.git("clone", "-q", str(project.root), str(clone))
    project.agent("usual()")
    project.forget_calls()

    done = project.doit("chain", cwd=clone)

    assert (done.returncode, project.calls()) == (0, ["three"]), done.stdout + done.stderr


@pytest.mark.smoke
def test_a_lock_that_was_deleted_is_taken_from_head(project):
    chain(project)
    lock = project.run_dir() / "doflow.lock"
    text = lock.read_text()
    lock.unlink()

    assert again(project) == []
    assert lock.read_text() == text


def test_a_lock_that_was_deleted_with_the_state_folder_is_taken_from_head(project):
    chain(project)
    (project.run_dir() / "doflow.lock").unlink()
    shutil.rmtree(project.root / ".doflow")

    assert again(project) == []
    assert project.runs() == ["001-say-it"]


@pytest.mark.smoke
def test_a_lock_that_was_removed_from_history_is_rebuilt_from_trailers(project):
    chain(project)
    project.git("rm", "-q", "specs/001-say-it/doflow.lock")
    project.git("commit", "-q", "-m", "Away with it")
    shutil.rmtree(project.root / ".doflow")

    assert again(project) == []
    assert (project.runs(), (project.run_dir() / "doflow.lock").exists()) == (["001-say-it"], True)
    assert again(project) == []


@pytest.mark.smoke
def test_phases_of_a_run_whose_lock_is_gone_from_history_are_known_by_trailers(project):
    work(project)
    lock = next(project.root.glob("specs/*/doflow.lock"))
    project.git("rm", "-q", str(lock))
    project.git("commit", "-q", "-m", "Away with it")
    shutil.rmtree(project.root / ".doflow")

    assert again(project, "work") == []


@pytest.mark.smoke
def test_a_section_read_counts_alone(project):
    flow = """
        flow: chain
        params: {goal: {required: true}}
        defaults: {retry: {attempts: 0}}
        steps:
          one: {prompt: one.md, makes: tasks.md}
          two: {prompt: Write two., reads: ["tasks.md#Phase 2"], makes: two.md}
    """
    chain(project, flow, "usual()")
    path = project.run_dir() / "tasks.md"

    path.write_text(path.read_text().replace("Lay the ground", "Lay a ground"))
    assert again(project) == []
    path.write_text(path.read_text().replace("Build the house", "Build a house"))
    assert again(project) == ["two"]
    assert "Lay a ground" not in project.prompts()[0] and "Build a house" in project.prompts()[0]


def test_a_section_that_is_not_there_is_an_error_that_names_it(project):
    project.flow(
        "odd",
        """
        flow: odd
        defaults: {retry: {attempts: 0}}
        steps:
          one: {prompt: Write., makes: tasks.md}
          two: {prompt: Write two., reads: ["tasks.md#Phase 9"], makes: two.md}
    """,
    )
    project.commit()

    done = project.doit("odd")

    assert (done.returncode, project.calls()) == (1, ["one"])
    assert "tasks.md#Phase 9" in done.stdout


def test_an_optional_read_may_be_missing_and_counts_once_it_is_there(project):
    flow = CHAIN.replace("reads: [two.md]", "reads: [two.md, notes.md?]")
    chain(project, flow, "usual()")
    (project.run_dir() / "notes.md").write_text("A note.\n")

    assert again(project) == ["three"]
    assert "A note." in project.prompts()[0]
    assert again(project) == []
    (project.run_dir() / "notes.md").unlink()
    assert again(project) == ["three"]


@pytest.mark.smoke
def test_a_read_that_is_missing_is_an_error_that_names_it(project):
    project.flow("odd", "flow: odd\nsteps:\n  one: {prompt: Write., reads: [/docs/rules.md], makes: one.md}\n")
    project.commit()

    done = project.doit("odd")

    assert (done.returncode, project.calls()) == (1, [])
    assert "docs/rules.md" in done.stdout


def test_a_glob_counts_every_file_it_finds(project):
    project.write("docs/a.md", "A\n")
    chain(project, CHAIN.replace("reads: [one.md]", "reads: [one.md, /docs/*.md]"), "usual()")
    project.write("docs/readme.txt", "not read\n")
    project.commit()
    assert again(project) == []

    project.write("docs/b.md", "B\n")
    project.commit()
    assert again(project) == ["two"]

    (project.root / "docs/a.md").unlink()
    project.commit()
    assert again(project) == ["two"]


def test_what_a_step_needs_must_exist_but_is_not_in_its_key(project):
    flow = CHAIN.replace("reads: [one.md]", "reads: [one.md], needs: [/rules.md]")
    project.write("rules.md", "Rules\n")
    chain(project, flow, "usual()")
    project.write("rules.md", "Other rules\n")
    project.commit()

    assert again(project) == []
    assert "Rules" not in "".join(project.prompts())


def test_a_step_whose_needs_are_missing_is_an_error_that_names_them(project):
    project.flow("odd", "flow: odd\nsteps:\n  one: {prompt: Write., needs: [/rules.md], makes: one.md}\n")
    project.commit()

    done = project.doit("odd")

    assert (done.returncode, project.calls()) == (1, [])
    assert "rules.md" in done.stdout


@pytest.mark.smoke
def test_ticked_boxes_make_nothing_stale(project):
    project.flow("work", f"{WORK}      last: {{prompt: Look back., reads: [tasks.md], makes: last.md}}\n")
    project.agent("""
        usual()
        if phase:
            path = run_dir / "tasks.md"
            path.write_text(path.read_text().replace("[ ] [T00" + phase, "[x] [T00" + phase))
    """)
    project.commit()

    assert project.doit("work").returncode == 0
    assert "- [x] [T001]" in (project.run_dir() / "tasks.md").read_text()
    assert again(project, "work") == []
    path = project.run_dir() / "tasks.md"
    path.write_text(path.read_text().replace("[x]", "[ ]"))
    assert again(project, "work") == []


@pytest.mark.smoke
def test_a_changed_phase_runs_again_with_those_after_it(project):
    three = "# Tasks\n" + "".join(f"\n## Phase {n}: P{n}\n\n- [ ] [T00{n}] Do {n}\n" for n in (1, 2, 3))
    work(project, three)
    path = project.run_dir() / "tasks.md"
    path.write_text(path.read_text().replace("Do 2", "Do two"))

    assert again(project, "work") == ["implement:2", "implement:3"]
    assert again(project, "work") == []


def test_a_new_phase_runs_alone(project):
    work(project)
    edit(project, "tasks.md", "\n## Phase 3: Garden\n\n- [ ] [T003] Plant\n")

    assert again(project, "work") == ["implement:3"]
    assert again(project, "work") == []
    assert project.state()["implement_phases_completed"] == ["phase_1", "phase_2", "phase_3"]


def test_a_phase_that_is_taken_out_of_the_list_is_not_done_any_more(project):
    work(project)
    path = project.run_dir() / "tasks.md"
    path.write_text(path.read_text().split("## Phase 2")[0])

    assert again(project, "work") == []
    assert project.state()["status"] == "completed"


def test_a_list_without_phases_is_done_in_one_call_and_that_is_said(project):
    project.flow("work", WORK)
    project.agent("make('# Just do it\\n') if step == 'tasks' else usual()")
    project.commit()

    done = project.doit("work")

    assert (done.returncode, project.calls()) == (0, ["tasks", "implement:all"])
    assert "has no `## Phase N: title`: implementing all of it in one call" in done.stdout
    assert again(project, "work") == []


def test_a_phase_that_only_adds_a_file_is_committed(project):
    work(project)

    changed = project.git("show", "--name-status", "--format=%s", "HEAD").split("\n")
    assert changed[0] == "Phase 2: House"
    assert "A\tsrc/phase_2.py" in changed
    assert project.git("status", "--porcelain") == ""


@pytest.mark.smoke
def test_a_phase_that_deletes_and_moves_files_is_committed(project):
    project.write("old.py", "OLD = 1\n")
    project.write("moved.py", "MOVED = 1\n")
    project.flow("work", WORK)
    project.agent("""
        usual()
        if phase == "1":
            (root / "old.py").unlink()
            (root / "lib").mkdir()
            (root / "moved.py").rename(root / "lib" / "moved.py")
    """)
    project.commit()

    assert project.doit("work").returncode == 0
    assert project.git("status", "--porcelain") == ""
    files = project.git("ls-tree", "-r", "--name-only", "HEAD").split()
    assert ("old.py" in files, "moved.py" in files, "lib/moved.py" in files) == (False, False, True)


def test_a_phase_keeps_links_and_the_executable_bit(project):
    project.flow("work", WORK)
    project.agent("""
        usual()
        if phase == "1":
            put("run.sh", "#!/bin/sh\\n")
            (root / "run.sh").chmod(0o755)
            (root / "link").symlink_to("run.sh")
    """)
    project.commit()

    assert project.doit("work").returncode == 0
    listed = {line.split("\t")[1]: line.split()[0] for line in project.git("ls-tree", "HEAD").splitlines()}
    assert (listed["run.sh"], listed["link"]) == ("100755", "120000")
    assert project.git("status", "--porcelain") == ""


@pytest.mark.smoke
def test_files_that_git_ignores_are_not_committed(project):
    project.write(".gitignore", "build/\n*.log\n")
    project.flow("work", WORK)
    project.agent("usual()\nif phase: put('build/out.o', 'o'), put('debug.log', 'd'), put('build2.txt', 'x')")
    project.commit()

    assert project.doit("work").returncode == 0
    files = project.git("ls-tree", "-r", "--name-only", "HEAD").split()
    assert ("build/out.o" in files, "debug.log" in files, "build2.txt" in files) == (False, False, True)
    assert (project.root / "build/out.o").read_text() == "o"


@pytest.mark.smoke
def test_each_phase_is_one_commit_with_its_trailers(project):
    work(project)

    keys = ("Doflow-Run", "Doflow-Step", "Doflow-Phase")
    form = "%s" + "".join(f"|%(trailers:key={key},valueonly,separator=)" for key in keys)
    lines = project.git("log", "--reverse", f"--format={form}").splitlines()
    run = project.runs()[0]
    assert lines[-2:] == [f"Phase 1: Ground|{run}|implement|1", f"Phase 2: House|{run}|implement|2"]


def test_an_artifact_at_the_root_of_the_project_is_followed(project):
    flow = CHAIN.replace("makes: one.md", "makes: /docs/one.md").replace("reads: [one.md]", "reads: [/docs/one.md]")
    chain(project, flow)
    project.write("docs/one.md", "By hand.\n")

    assert again(project) == ["two", "three"]


def test_a_changed_packaged_prompt_name_is_taken_from_the_project_when_it_has_one(project):
    project.doit("tiny", "--goal=Say it")
    project.forget_calls()
    project.write("flows/prompts/plan.md", "Plan as we plan.\n")
    project.commit("Our own prompt")

    assert again(project, "tiny") == ["plan"]
    assert "Plan as we plan." in project.prompts()[0]


def test_a_step_that_is_put_into_a_finished_flow_runs_alone(project):
    chain(project, script="usual()")
    project.flow("chain", CHAIN.replace("      three:", "      extra: {prompt: More., makes: extra.md}\n      three:"))
    project.commit("One more")

    assert again(project) == ["extra"]
    assert project.state()["pipeline"] == ["one", "two", "extra", "three"]
    project.flow("chain", CHAIN)
    project.commit("One less")
    assert again(project) == []
    assert project.state()["completed"] == ["one", "two", "three"]


def test_an_edit_that_was_kept_is_still_the_persons_when_its_step_becomes_stale(project):
    chain(project)
    text = edit(project, "two.md")
    assert again(project) == ["three"]
    edit(project, "one.md")

    assert again(project, code=2) == []
    assert (project.run_dir() / "two.md").read_text() == text


@pytest.mark.smoke
def test_a_rebase_of_the_branch_makes_nothing_stale(project):
    work(project)
    branch = project.state()["branch"]
    project.git("switch", "-q", "main")
    project.write("other.txt", "x\n")
    project.commit("Other work")
    project.git("switch", "-q", branch)
    project.git("rebase", "-q", "main")

    assert again(project, "work") == []


@pytest.mark.smoke
def test_a_phase_whose_commit_was_taken_back_is_done_again(project):
    work(project)
    project.git("reset", "-q", "--hard", "HEAD~1")

    assert again(project, "work") == ["implement:2"]


def test_a_phase_can_be_forced_alone(project):
    work(project)

    assert again(project, "work", "--force=implement:1") == ["implement:1"]
    assert again(project, "work", "--force=implement") == ["implement:1", "implement:2"]
    assert again(project, "work") == []


def test_a_shallow_clone_calls_no_agent(project, tmp_path):
    work(project)
    project.git("clone", "-q", "--depth", "1", f"file://{project.root}", str(tmp_path / "clone"))

    done = project.doit("work", cwd=tmp_path / "clone")

    assert (done.returncode, project.calls()) == (0, []), done.stdout + done.stderr


def test_artifacts_that_are_not_to_be_committed_are_known_all_the_same(project):
    project.settings("git: {commit_artifacts: false}\n")
    chain(project)

    assert project.subjects() == ["Begin", "A flow"]
    assert again(project) == []
    edit(project, "two.md")
    assert again(project) == ["three"]
    assert project.subjects() == ["Begin", "A flow"]


def test_names_that_are_hard_to_write_are_committed_as_they_are(project):
    project.flow("work", WORK)
    project.write("ünïcode/ä b.txt", "old\n")
    project.commit("A flow")
    names = ["new\nline.txt", ' "quoted" .txt', ":(top)x", "-dash", "ünïcode/ä b.txt", "日本/🔑.md"]
    project.agent(f"usual()\nif phase == '1': [put(name, 'new') for name in {names!r}]")

    assert again(project, "work") == ["tasks", "implement:1", "implement:2"]

    assert set(names) <= set(project.git("ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0"))
    assert project.git("status", "--porcelain") == ""


TESTED = (
    WORK
    + """\
      look: {kind: shell, run: [echo, looked]}
      test: {kind: shell, run: "echo x >> {outside}/tested"}
"""
)


def times(project: Project) -> int:
    return len((project.outside / "tested").read_text().splitlines())


@pytest.mark.parametrize(
    "words", ["", "forget work:implement:2", "forget work:implement:1", "--force=implement", "--force=implement:1"]
)
def test_code_that_is_made_anew_is_tested_anew_also_behind_another_step(project, words):
    project.flow("work", TESTED.replace("{outside}", str(project.outside)))
    project.commit("A flow")
    assert project.doit("work").returncode == 0
    assert project.doit("work").returncode == 0
    assert times(project) == 1
    path = project.run_dir() / "tasks.md"
    if words.startswith("forget"):
        assert project.doit(*words.split()).returncode == 0
    elif not words:
        path.write_text(path.read_text().replace("Build the house", "Build a castle"))
    if not words.startswith("--"):
        assert "work:test" in project.doit("list", "--all").stdout
        assert re.search(r"runs +test", project.doflow("plan").stdout)

    done = project.doit("work", *([words] if words.startswith("--") else []))

    assert (done.returncode, times(project)) == (0, 2), done.stdout + done.stderr
    assert (project.doit("work").returncode, times(project)) == (0, 2)
    shutil.rmtree(project.root / ".doflow")
    assert (project.doit("work").returncode, times(project)) == (0, 2)


@pytest.mark.smoke("reset")
@pytest.mark.parametrize("how", ["reset", "revert"])
def test_code_that_was_taken_back_out_of_the_history_is_tested_anew_when_it_is_made_anew(project, how):
    project.flow("work", TESTED.replace("{outside}", str(project.outside)))
    project.commit("A flow")
    assert project.doit("work").returncode == 0
    assert project.subjects()[-2:] == ["Phase 2: House", "Record completion of look, test"]
    if how == "reset":
        project.git("reset", "-q", "--hard", "HEAD~2")
    else:
        project.git("revert", "--no-edit", "HEAD")
        project.git("revert", "--no-edit", "HEAD~2")
    project.forget_calls()
    assert re.search(r"runs +test", project.doflow("plan").stdout)

    done = project.doit("work")

    assert (done.returncode, project.calls(), times(project)) == (0, ["implement:2"], 2), done.stdout + done.stderr
    assert (project.doit("work").returncode, times(project)) == (0, 2)
    shutil.rmtree(project.root / ".doflow")
    assert (project.doit("work").returncode, project.calls(), times(project)) == (0, ["implement:2"], 2)


def test_a_copy_of_a_project_looks_at_its_own_files_and_not_at_those_of_the_original(project, tmp_path):
    project.flow("work", WORK)
    project.commit("A flow")
    assert project.doit("work").returncode == 0
    assert project.doit("work").returncode == 0
    copy = tmp_path / "copy"
    shutil.copytree(project.root, copy, symlinks=True)
    project.forget_calls()
    (path,) = copy.glob("specs/*/tasks.md")
    path.write_text(path.read_text().replace("Build the house", "Build a castle"))

    for program in (project.doit, project.doflow):
        words = ("work",) if program == project.doit else ("run", "work")
        assert program(*words, cwd=copy).returncode == 0
        assert project.calls() == ["implement:2"]
    flow = copy / "flows" / "work.yaml"
    flow.write_text(flow.read_text() + "bogus: 1\n")
    assert (project.doit("work", cwd=copy).returncode, project.doit("work").returncode) == (1, 0)
    assert project.calls() == ["implement:2"]
