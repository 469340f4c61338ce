"""Steps of every kind: checks, repairs, commands, retries, timeouts, what an agent is given."""

from __future__ import annotations

import json
import os
import signal

import pytest
from tests.support.project import Project, eventually
from tests.support.work_flow import flow, kept_aside, works

# --- contracts and repairs


@pytest.mark.smoke
def test_a_failed_check_is_handed_back_until_it_holds(project):
    flow(project, "one: {prompt: Write., makes: one.md, check: {headings: [Goal]}, repair: 2}")
    project.agent("make('# Nothing\\n') if nth == 0 and role == 'step' else make('# Goal\\n\\nAll.\\n')")

    works(project)

    assert project.calls() == ["one", "one repair"]
    assert "Goal" in project.prompts()[1] and "did not pass" in project.prompts()[1]
    assert (project.run_dir() / "one.md").read_text() == "# Goal\n\nAll.\n"


@pytest.mark.smoke
def test_a_check_that_never_holds_fails_and_what_was_written_is_kept_aside(project):
    flow(project, "one: {prompt: Write., makes: one.md, check: {headings: [Goal]}, repair: 2}")
    project.agent("make(f'# Draft {nth} by {role}\\n')")

    said = works(project, code=1)

    assert project.calls() == ["one", "one repair", "one repair"]
    assert "Goal" in said and "quarantine" in said
    assert not (project.run_dir() / "one.md").exists()
    assert "# Draft 1 by repair" in kept_aside(project)


def test_without_repair_a_failed_check_is_not_handed_back(project):
    flow(project, "one: {prompt: Write., makes: one.md, check: {not_empty: true}}")
    project.agent("make('  \\n')")

    works(project, code=1)

    assert project.calls() == ["one"]


def test_a_failed_revision_leaves_the_old_artifact_as_it_was(project):
    flow(project, "one: {prompt: Write., reads: [/rules.md], makes: one.md, check: {headings: [Requirements]}}")
    project.write("rules.md", "Rules\n")
    project.commit()
    works(project)
    before = (project.run_dir() / "one.md").read_text()
    project.write("rules.md", "Other rules\n")
    project.commit()
    project.agent("make('# Broken\\n')")

    works(project, code=1)

    assert (project.run_dir() / "one.md").read_text() == before
    assert project.git("status", "--porcelain") == ""
    project.agent("usual()")
    works(project)


@pytest.mark.smoke
def test_a_check_by_schema_and_by_command(project):
    project.write("schema.json", json.dumps({"type": "object", "required": ["name"]}))
    flow(
        project,
        """
one: {prompt: Write., makes: one.yaml, check: {schema: schema.json}, repair: 1}
two: {prompt: Write., makes: two.md, check: {run: [grep, -q, good, "{run_dir}/two.md"]}, repair: 1}
""",
    )
    project.agent("""
        if step == "one":
            make("name: x\\n" if role == "repair" else "nmae: x\\n")
        else:
            make("good\\n" if role == "repair" else "bad\\n")
    """)

    works(project)

    assert project.calls() == ["one", "one repair", "two", "two repair"]
    assert "name" in project.prompts()[1]


def test_a_step_may_make_several_files_and_misses_none(project):
    flow(project, "one: {prompt: Write., makes: [a.md, sub/b.md]}")
    project.agent("make('A\\n')")
    assert "sub/b.md was not written" in works(project, code=1)

    project.agent("make('A\\n', 'a.md'); make('B\\n', 'sub/b.md')")
    works(project)
    assert project.git("ls-tree", "-r", "--name-only", "HEAD", str(project.run_dir())).split()[0].endswith("a.md")


def test_an_artifact_that_is_a_link_is_refused(project):
    flow(project, "one: {prompt: Write., makes: one.md}")
    project.agent("makes[0].symlink_to('/etc/passwd')")

    assert "not a regular file" in works(project, code=1)
    assert not (project.run_dir() / "one.md").is_symlink()


@pytest.mark.smoke
def test_from_text_saves_the_answer_as_the_artifact(project):
    flow(project, "one: {prompt: Write., makes: one.md, from: text}")
    project.agent("say('# The answer'); say(''); say('All of it.')")

    works(project)

    assert (project.run_dir() / "one.md").read_text() == "# The answer\n\nAll of it.\n"
    project.forget_calls()
    works(project)
    assert project.calls() == []


def test_from_text_of_an_agent_that_says_nothing_fails(project):
    flow(project, "one: {prompt: Write., makes: one.md, from: text}")
    project.agent("pass")

    assert "is empty" in works(project, code=1)


# --- shell


@pytest.mark.smoke
def test_a_command_runs_once_and_again_only_when_what_it_reads_changes(project):
    project.write("data.txt", "1\n")
    flow(project, "count: {kind: shell, run: [sh, -c, 'echo x >> {run_dir}/../../.git/count'], reads: [/data.txt]}")

    works(project)
    works(project)
    assert (project.root / ".git/count").read_text() == "x\n"

    project.write("data.txt", "2\n")
    works(project)
    assert (project.root / ".git/count").read_text() == "x\nx\n"


def test_a_command_that_fails_says_its_last_lines(project):
    flow(project, "test: {kind: shell, run: [sh, -c, 'echo one test failed; exit 3']}")

    said = works(project, code=1)

    assert "one test failed" in said and "exit" in said.lower() and "3" in said
    assert "doflow logs test" in said
    assert project.state()["status"] == "failed"


def test_a_command_that_does_not_exist_fails_with_its_name(project):
    flow(project, "test: {kind: shell, run: [no-such-program-here]}")

    assert "no-such-program-here" in works(project, code=1)


def test_a_command_makes_artifacts_that_are_committed(project):
    flow(
        project,
        """
stamp: {kind: shell, run: [sh, -c, 'echo made > "$DOFLOW_MAKES"'], makes: out.txt}
read: {prompt: Read., reads: [out.txt], makes: read.md}
""",
    )

    works(project)

    assert project.git("show", f"HEAD:specs/{project.runs()[0]}/out.txt") == "made\n"
    assert "made" in project.prompts()[0]


def test_words_of_a_goal_reach_a_command_as_they_are(project):
    run = """[sh, -c, 'printf %s "$1" > "$DOFLOW_MAKES"', sh, '{goal}']"""
    flow(project, f"say: {{kind: shell, run: {run}, makes: out.txt}}", "params: {goal: {required: true}}")
    goal = "$(touch pwned) `id`; 'x' \"y\""

    works(project, f"--goal={goal}")

    assert (project.run_dir() / "out.txt").read_text().strip() == goal
    assert not (project.root / "pwned").exists()


@pytest.mark.smoke
def test_a_failing_command_is_repaired_by_an_agent_and_its_work_is_committed(project):
    project.write("code.txt", "bad\n")
    flow(project, "test: {kind: shell, run: [sh, -c, 'grep good code.txt || { echo not good; exit 1; }'], repair: 2}")
    project.agent("put('code.txt', 'good\\n')")

    works(project)

    assert project.calls() == ["test repair"]
    assert "not good" in project.prompts()[0]
    assert project.git("show", "HEAD:code.txt") == "good\n"
    assert project.git("status", "--porcelain") == ""
    project.forget_calls()
    works(project)
    assert project.calls() == []


def test_a_command_that_no_repair_fixes_fails_and_the_tree_is_as_before(project):
    project.write("code.txt", "bad\n")
    flow(project, "test: {kind: shell, run: [grep, good, code.txt], repair: 2}")
    project.agent("put('code.txt', f'worse {nth}\\n'); put('new.txt', 'x')")
    before = project.tree()

    works(project, code=1)

    assert project.calls() == ["test repair"] * 2
    assert {name: data for name, data in project.tree().items() if not name.startswith("specs/")} == before
    assert "worse 1" in kept_aside(project)


# --- retries and timeouts


RETRY = "defaults: {retry: {attempts: 2, backoff: 0}}"


@pytest.mark.smoke
def test_a_passing_failure_is_tried_again_from_a_clean_start(project):
    project.write("tracked.txt", "committed\n")
    flow(project, "one: {prompt: Write., makes: one.md, writes: ['/src/**']}", RETRY)
    project.write("tracked.txt", "mine, not committed\n")
    project.write("loose.txt", "mine, untracked\n")
    project.agent("""
        assert not (root / "src").exists(), "leftovers of the first attempt"
        put("src/half.py", "half a thought")
        if attempt < 2:
            stop(1)
        (root / "src/half.py").unlink()
        usual()
    """)

    works(project)

    assert project.calls() == ["one", "one"]
    assert [entry["step"] for entry in project.state()["retries"]] == ["one"]
    assert "half a thought" in kept_aside(project)
    assert (project.read("tracked.txt"), project.read("loose.txt")) == ("mine, not committed\n", "mine, untracked\n")
    assert not (project.root / "src/half.py").exists()


TRIES = "{run: [sh, -c, 'echo x >> ../tries; echo no; test $(wc -l < ../tries) -ge 4'], kind: shell"


def tries(project: Project) -> int:
    return len((project.root.parent / "tries").read_text().splitlines())


def test_a_command_is_tried_again_as_often_as_its_step_says(project):
    flow(project, f"test: {TRIES}, retry: {{attempts: 3, backoff: 0}}}}")

    works(project)

    assert (tries(project), [entry["attempt"] for entry in project.state()["retries"]]) == (4, [1, 2, 3])
    assert len(list((project.root / ".doflow" / "runs" / project.runs()[0] / "logs").glob("test.*.log"))) == 4


def test_a_command_that_goes_on_failing_fails_in_the_end(project):
    flow(project, f"test: {TRIES}, retry: {{attempts: 2, backoff: 0}}}}")

    assert "exit code 1" in works(project, code=1) and tries(project) == 3


def test_a_command_is_tried_again_before_an_agent_repairs_it(project):
    flow(project, f"test: {TRIES}, retry: {{attempts: 1, backoff: 0}}, repair: 2}}")

    works(project)

    assert (tries(project), project.calls()) == (4, ["test repair"])


def test_what_defaults_and_settings_say_of_retry_is_for_agents_alone(project):
    project.settings("retry: {max_retries: 3, backoff_seconds: 0}\n")
    flow(project, f"test: {TRIES}}}", RETRY)

    works(project, code=1)

    assert tries(project) == 1


def test_a_command_that_waits_for_its_next_try_can_be_interrupted(project):
    flow(project, f"test: {TRIES}, retry: {{attempts: 2, backoff: 1h}}}}")
    started = project.start("doit", "work")
    event_logs = (project.root / ".doflow" / "runs").glob
    assert eventually(lambda: any('"event":"retry"' in path.read_text() for path in event_logs("*/events.jsonl")))

    started.send_signal(signal.SIGINT)

    assert (started.wait(30), tries(project), project.state()["status"]) == (130, 1, "paused")


def test_an_artifact_left_by_a_failed_attempt_does_not_count(project):
    flow(project, "one: {prompt: Write., makes: one.md}", "defaults: {retry: {attempts: 1, backoff: 0}}")
    project.agent("make('Half.\\n'); stop(1)")

    works(project, code=1)

    assert project.calls() == ["one", "one"]
    assert not (project.run_dir() / "one.md").exists()


def test_attempts_end_and_the_last_reason_is_told(project):
    flow(project, "one: {prompt: Write., makes: one.md}", "defaults: {retry: {attempts: 3, backoff: 0}}")
    project.agent("print(f'trouble {nth}', file=sys.stderr); stop(9)")

    said = works(project, code=1)

    assert len(project.calls()) == 4
    assert "trouble 3" in said


def test_a_contract_that_is_not_met_is_not_retried(project):
    flow(project, "one: {prompt: Write., makes: one.md}", RETRY)
    project.agent("pass")

    works(project, code=1)

    assert project.calls() == ["one"]


@pytest.mark.smoke
def test_a_failed_phase_leaves_earlier_phases_committed_and_goes_on_from_there(project):
    flow(
        project,
        """
tasks: {prompt: List., makes: tasks.md}
implement: {kind: implement, phases: tasks.md, prompt: Do.}
""",
    )
    project.agent("usual() if phase != '2' else (put('src/half.py', 'x'), stop(1))")

    works(project, code=1)
    assert project.subjects()[-1] == "Phase 1: Ground"
    assert (project.state()["implement_phases_completed"], project.git("status", "--porcelain")) == (["phase_1"], "")

    project.agent("usual()")
    project.forget_calls()
    works(project)
    assert project.calls() == ["implement:2"]


@pytest.mark.smoke
def test_an_agent_that_says_nothing_for_too_long_is_stopped(project):
    flow(project, "one: {prompt: Write., makes: one.md, timeout: {idle: 1s, max: 60s}}")
    project.agent("time.sleep(30)")

    said = works(project, code=1)

    assert "1" in said and ("silent" in said or "idle" in said or "no output" in said)


def test_an_agent_that_talks_for_too_long_is_stopped(project):
    flow(project, "one: {prompt: Write., makes: one.md, timeout: {idle: 30s, max: 1s}}")
    project.agent("while True:\n    say('still busy')\n    time.sleep(0.05)")

    said = works(project, code=1)

    assert "1" in said
    assert project.state()["status"] == "failed"


# --- what an agent is told and given


@pytest.mark.smoke
def test_an_agent_is_told_where_it_is_and_gets_no_secrets(project):
    flow(project, """
tasks: {prompt: "Make {goal}, {run}.", makes: tasks.md}
implement: {kind: implement, phases: tasks.md, prompt: "Do phase {phase}, {title}."}
""", "params: {goal: {required: true}}")  # fmt: skip
    project.agent("""
        usual()
        own = {name for name in known if name.startswith("DOFLOW_")} - {"DOFLOW_TREE"}
        names = sorted(own | {name for name in known if "SECRET" in name or name == "CLAUDECODE"})
        (outside / f"env-{line}").write_text("\\n".join(f"{name}={known[name]}" for name in names))
    """)

    done = project.doit("work", "--goal=it", env={"MY_SECRET": "x", "CLAUDECODE": "1", "DOFLOW_STEP": "forged"})

    assert done.returncode == 0, done.stdout
    run = project.runs()[0]
    lines = (project.outside / "env-implement:2").read_text().splitlines()
    assert lines == [
        "DOFLOW_ATTEMPT=1", "DOFLOW_MAKES=", "DOFLOW_PERSONA=", "DOFLOW_PHASE=2", "DOFLOW_ROLE=step", "DOFLOW_ROUND=0",
        f"DOFLOW_RUN={run}", f"DOFLOW_RUN_DIR={project.run_dir()}", "DOFLOW_STEP=implement",
    ]  # fmt: skip
    assert project.prompts()[0].startswith(f"Make it, {run}.")
    assert project.prompts()[2].startswith("Do phase 2, House.")
    own, _, checklist = project.prompts()[2].partition("## Task Checklist")
    assert "T002" in own and "T001" not in own, "its own section of the task list"
    assert "T001" in checklist and "T002" in checklist, "and the whole list, to see where it stands"


def test_named_variables_reach_the_agent(project):
    project.settings(agent="env: [MY_TOKEN]")
    flow(project, "one: {prompt: Write., makes: one.md}")
    project.agent("make(known.get('MY_TOKEN', 'none') + '\\n')")

    done = project.doit("work", env={"MY_TOKEN": "t0ken"})

    assert done.returncode == 0
    assert (project.run_dir() / "one.md").read_text() == "t0ken\n"


def test_pipes_links_and_unreadable_files_of_the_person_do_no_harm(project):
    flow(
        project,
        """
tasks: {prompt: List., makes: tasks.md}
implement: {kind: implement, phases: tasks.md, prompt: Do.}
""",
    )
    os.mkfifo(project.root / "pipe")
    (project.root / "dangling").symlink_to("nowhere")
    (project.root / "loop").symlink_to(".")
    project.write("secret", "x\n").chmod(0)

    works(project)

    assert project.git("status", "--porcelain").split() == ["??", "dangling", "??", "loop", "??", "secret"]


def test_an_answer_that_does_not_end_as_it_must_is_handed_back_and_the_fixed_one_is_kept(project):
    project.flow(
        "judge",
        """
        flow: judge
        steps:
          look: {prompt: Look., makes: look.md, from: text, check: {ends: ["RESULT: pass", "RESULT: fail"]}, repair: 1}
        """,
    )
    project.agent('say("Good.\\nRESULT: pass" if role == "repair" else "Good, I think.")')
    project.commit("A flow")

    done = project.doit("judge")

    assert (done.returncode, project.calls()) == (0, ["look", "look repair"]), done.stdout
    assert (project.run_dir() / "look.md").read_text() == "Good.\nRESULT: pass\n"
    assert "Its last line must be `RESULT: pass` or `RESULT: fail`." in project.prompts()[0]
