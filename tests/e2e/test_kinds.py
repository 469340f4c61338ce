"""Steps of every kind: contracts, repairs, retries, timeouts, scopes, pauses."""

from __future__ import annotations

import json
import os
import signal

import pytest
from tests.support.project import Project, eventually


def flow(project: Project, steps: str, head: str = "") -> Project:
    """A flow called `work` with these steps, committed."""
    lines = "\n".join(f"  {line}" for line in steps.strip("\n").splitlines())
    project.write("flows/work.yaml", f"flow: work\n{head or 'defaults: {retry: {attempts: 0}}'}\nsteps:\n{lines}\n")
    project.commit("A flow")
    return project


def works(project: Project, *words: str, code: int = 0) -> str:
    done = project.doit("work", *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def kept_aside(project: Project) -> str:
    """Everything in quarantine, as one text."""
    folder = project.root / ".doflow" / "quarantine"
    return "\n".join(path.read_text(errors="replace") for path in sorted(folder.rglob("*")) if path.is_file())


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


@pytest.mark.smoke
def test_without_repair_a_failed_check_is_not_handed_back(project):
    flow(project, "one: {prompt: Write., makes: one.md, check: {not_empty: true}}")
    project.agent("make('  \\n')")

    works(project, code=1)

    assert project.calls() == ["one"]


@pytest.mark.smoke
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


@pytest.mark.smoke
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


@pytest.mark.smoke
def test_a_command_that_no_repair_mends_fails_and_the_tree_is_as_before(project):
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
    ledgers = (project.root / ".doflow" / "runs").glob
    assert eventually(lambda: any('"event":"retry"' in path.read_text() for path in ledgers("*/events.jsonl")))

    started.send_signal(signal.SIGINT)

    assert (started.wait(30), tries(project), project.state()["status"]) == (130, 1, "paused")


@pytest.mark.smoke
def test_an_artifact_left_by_a_failed_attempt_does_not_count(project):
    flow(project, "one: {prompt: Write., makes: one.md}", "defaults: {retry: {attempts: 1, backoff: 0}}")
    project.agent("make('Half.\\n'); stop(1)")

    works(project, code=1)

    assert project.calls() == ["one", "one"]
    assert not (project.run_dir() / "one.md").exists()


@pytest.mark.smoke
def test_attempts_end_and_the_last_reason_is_told(project):
    flow(project, "one: {prompt: Write., makes: one.md}", "defaults: {retry: {attempts: 3, backoff: 0}}")
    project.agent("print(f'trouble {nth}', file=sys.stderr); stop(9)")

    said = works(project, code=1)

    assert len(project.calls()) == 4
    assert "trouble 3" in said


@pytest.mark.smoke
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


@pytest.mark.smoke
def test_an_agent_that_talks_for_too_long_is_stopped(project):
    flow(project, "one: {prompt: Write., makes: one.md, timeout: {idle: 30s, max: 1s}}")
    project.agent("while True:\n    say('still busy')\n    time.sleep(0.05)")

    said = works(project, code=1)

    assert "1" in said
    assert project.state()["status"] == "failed"


# --- scopes


@pytest.mark.smoke
def test_an_agent_that_writes_outside_its_scope_is_refused_and_the_tree_is_as_before(project):
    project.write("kept.txt", "old\n")
    flow(project, "one: {prompt: Write., makes: one.md}")
    project.write("mine.txt", "uncommitted\n")
    project.agent("""
        usual()
        put("stray.txt", "stray words")
        put("kept.txt", "changed words")
        put("mine.txt", "overwritten")
        (root / "dodo.py").unlink()
    """)
    before = project.tree()

    said = works(project, code=1)

    assert all(name in said for name in ("stray.txt", "kept.txt", "mine.txt", "dodo.py"))
    after = {name: data for name, data in project.tree().items() if not name.startswith("specs/")}
    assert after == before
    assert "stray words" in kept_aside(project) and "changed words" in kept_aside(project)
    assert project.state()["status"] == "failed"
    assert "stray.txt" not in project.git("ls-tree", "-r", "--name-only", "HEAD")


@pytest.mark.smoke
def test_writes_allow_what_they_name_and_it_is_committed(project):
    flow(project, "one: {prompt: Write., makes: one.md, writes: ['/docs/**', /CHANGELOG.md]}")
    project.agent("usual(); put('docs/a/b.md', 'x'); put('CHANGELOG.md', 'y')")

    works(project)

    files = project.git("ls-tree", "-r", "--name-only", "HEAD").split()
    assert {"docs/a/b.md", "CHANGELOG.md"} <= set(files)
    assert project.git("status", "--porcelain") == ""


@pytest.mark.smoke
def test_a_phase_may_write_everything_but_what_is_protected(project):
    project.write("PRD.md", "The truth.\n")
    project.write("secrets/key", "k\n")
    project.settings("protect: [PRD.md]\n")
    flow(
        project,
        """
tasks: {prompt: List., makes: tasks.md}
implement: {kind: implement, phases: tasks.md, prompt: Do., protect: ['/secrets/**']}
""",
    )
    project.agent("usual()\nif phase: put('PRD.md', 'A lie.'), (root / 'secrets/key').unlink()")

    said = works(project, code=1)

    assert "PRD.md" in said and "secrets/key" in said
    assert (project.read("PRD.md"), project.read("secrets/key")) == ("The truth.\n", "k\n")
    assert not (project.root / "src/phase_1.py").exists()
    assert "A lie." in kept_aside(project)


@pytest.mark.smoke
def test_protect_beats_makes_and_writes(project):
    project.write("PRD.md", "The truth.\n")
    project.settings("protect: [PRD.md]\n")
    flow(project, "one: {prompt: Write., makes: one.md, writes: ['/**']}")
    project.agent("usual(); put('PRD.md', 'A lie.'); put('ok.txt', 'x')")

    works(project, code=1)

    assert project.read("PRD.md") == "The truth.\n"


@pytest.mark.smoke
def test_no_agent_changes_what_steers_doflow_itself(project):
    flow(
        project,
        """
tasks: {prompt: List., makes: tasks.md}
implement: {kind: implement, phases: tasks.md, prompt: Do.}
""",
    )
    project.agent("""
        usual()
        if phase:
            put("doflow.yaml", "agents: {}")
            put("flows/work.yaml", "x")
            make("x", "input.md")
    """)
    before = project.read("doflow.yaml")

    said = works(project, code=1)

    assert project.read("doflow.yaml") == before
    assert "doflow.yaml" in said and "flows/work.yaml" in said and "input.md" in said


@pytest.mark.smoke
def test_files_that_git_ignores_are_outside_of_the_scope(project):
    project.write(".gitignore", "__pycache__/\ncache/\n")
    flow(project, "one: {prompt: Write., makes: one.md}")
    project.agent("usual(); put('cache/x', 'x')")

    works(project)

    assert project.read("cache/x") == "x"


@pytest.mark.smoke
def test_an_agent_cannot_hide_a_stray_file_by_a_rule_of_its_own(project):
    flow(project, "one: {prompt: Write., makes: one.md}")
    project.agent("usual(); put('.gitignore', '*\\n'); put('stray.txt', 'x')")

    said = works(project, code=1)

    assert "stray.txt" in said and ".gitignore" in said
    assert not (project.root / "stray.txt").exists()
    assert project.read(".gitignore") == "__pycache__/\n"


@pytest.mark.smoke
def test_a_phase_with_writes_may_change_only_those(project):
    flow(
        project,
        """
tasks: {prompt: List., makes: tasks.md}
implement: {kind: implement, phases: tasks.md, prompt: Do., writes: ['/src/**']}
""",
    )
    project.agent("usual()\nif phase == '2': put('other.txt', 'x')")

    said = works(project, code=1)

    assert "other.txt" in said
    assert project.state()["implement_phases_completed"] == ["phase_1"]


# --- pauses


@pytest.mark.smoke
def test_a_gate_pauses_again_and_again_until_it_is_approved(project):
    flow(
        project,
        """
plan: {prompt: Plan., makes: plan.md, gate: "Approve the plan?"}
build: {prompt: Build., reads: [plan.md], makes: build.md}
""",
    )

    for _ in range(2):
        said = works(project, code=2)
        assert "Approve the plan?" in said and "doflow approve plan" in said
        assert project.calls() == ["plan"]
    assert project.state()["pendingApproval"] == {"type": "gate", "step": "plan"}

    works(project, "--auto-approve")
    assert project.calls() == ["plan", "build"]


@pytest.mark.smoke
def test_a_gate_of_its_own_and_a_gate_by_settings_pause(project):
    project.settings("gates: {after-one: true}\n")
    flow(
        project,
        """
one: {prompt: One., makes: one.md}
look: {kind: gate, gate: Have you looked?}
two: {prompt: Two., makes: two.md}
""",
    )

    assert "Approve one?" in works(project, code=2)
    project.settings("")
    project.commit("No gates")
    assert "Have you looked?" in works(project, code=2)
    assert project.calls() == ["one"]
    project.settings("auto_approve: true\n")
    project.commit("All gates")
    works(project)
    assert project.calls() == ["one", "two"]


@pytest.mark.smoke
def test_a_question_pauses_even_where_gates_are_passed(project):
    flow(project, "one: {prompt: One., makes: one.md, clarify: true}")
    project.agent("make('# One\\n\\n[NEEDS CLARIFICATION: red or blue?]\\n')")

    said = works(project, "--auto-approve", code=2)

    assert "red or blue?" in said and "doflow answer" in said
    assert project.state()["pendingApproval"] == {"type": "clarification", "step": "one"}
    path = project.run_dir() / "one.md"
    path.write_text("# One\n\nRed.\n")
    works(project)
    assert (project.calls(), path.read_text()) == (["one"], "# One\n\nRed.\n")


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


@pytest.mark.smoke
def test_steps_that_do_not_wait_for_each_other_run_side_by_side(project):
    flow(
        project,
        """
one: {prompt: One., makes: one.md, after: []}
two: {prompt: Two., makes: two.md, after: []}
both: {prompt: Both., reads: [one.md, two.md], makes: both.md, after: [one, two]}
""",
    )
    project.agent("""
        if step != "both":
            (outside / step).touch()
            other = outside / {"one": "two", "two": "one"}[step]
            for _ in range(3000):
                if other.exists():
                    break
                time.sleep(0.02)
            else:
                stop(1)
        usual()
    """)

    done = project.doit("-n", "2", "work")

    assert done.returncode == 0, done.stdout
    assert (sorted(project.calls()[:2]), project.calls()[2:]) == (["one", "two"], ["both"])
    assert project.git("status", "--porcelain") == ""
    assert len(project.subjects()) == 5


@pytest.mark.smoke
def test_a_stray_file_of_steps_side_by_side_fails_them_all(project):
    flow(
        project,
        """
one: {prompt: One., makes: one.md, after: []}
two: {prompt: Two., makes: two.md, after: []}
""",
    )
    project.agent("""
        (outside / step).touch()
        while not all((outside / name).exists() for name in ("one", "two")):
            time.sleep(0.02)
        usual()
        put("stray.txt", "x")
        time.sleep(0.3)
    """)

    done = project.doit("-n", "2", "--continue", "work")

    assert done.returncode == 1
    assert not (project.root / "stray.txt").exists()
    assert project.state()["completed"] == []


def test_a_step_that_writes_more_than_its_artifact_runs_alone(project):
    flow(
        project,
        """
one: {prompt: One., makes: one.md, writes: ['/src/**'], after: []}
two: {prompt: Two., makes: two.md, after: []}
""",
    )
    project.agent("""
        busy = outside / "busy"
        if busy.exists():
            stop(1)
        busy.touch()
        time.sleep(0.3)
        busy.unlink()
        usual()
    """)

    done = project.doit("-n", "2", "work")

    assert done.returncode == 0, done.stdout


def test_pipes_links_and_unreadable_files_of_the_person_are_in_nobodys_way(project):
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


@pytest.mark.smoke
def test_an_answer_that_does_not_end_as_it_must_is_handed_back_and_the_mended_one_is_kept(project):
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
