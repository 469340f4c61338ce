"""What a command of the flow's own writes (a check, the command of a `shell` step) is not the agent's: it stays in the tree
as after running it by hand, fails nothing, is in no commit, and keeps no phase from beginning."""

from __future__ import annotations

import pytest
from tests.support.project import Project

COUNT = "echo x >> .coverage; "
SPEC = """
    flow: work
    steps:
      spec: {{prompt: Write., makes: spec.md, check: {{run: "{check}"}}, repair: {repair}{more}}}
"""
BUILD = """
    flow: work
    steps:
      impl: {{kind: implement, phases: /tasks.md, prompt: Build., check: {{run: "{check}"}}, repair: {repair}}}
"""
THREE = "# Tasks\n\n" + "".join(f"## Phase {n}: Part {n}\n\n- [ ] [T00{n}] Write part {n}\n\n" for n in (1, 2, 3))
WRITER = """
if step == "spec": make("# Requirements\\n" if role == "repair" else "# Draft\\n")
elif phase: put(f"src/part_{phase}.py", "right\\n" if role == "repair" or phase != "1" else "wrong\\n")
else: usual()
"""


def spec(project: Project, check: str, repair: int = 1, more: str = "") -> None:
    right = "grep -q Req {run_dir}/spec.md"
    project.flow("work", SPEC.format(check=check + right, repair=repair, more=more))
    project.agent(WRITER)
    project.commit("Ground")


def build(project: Project, check: str = COUNT, repair: int = 1) -> None:
    right = "! grep -rq wrong src"
    project.flow("work", BUILD.format(check=check + right, repair=repair))
    project.write("tasks.md", THREE)
    project.agent(WRITER)
    project.commit("Ground")


def committed(project: Project, since: str = "main") -> set[str]:
    """The paths in all commits of the run's branch."""
    return set(project.git("log", "--format=", "--name-only", f"{since}..HEAD").split())


def warnings(project: Project) -> str:
    return "\n".join(entry["message"] for entry in project.events() if entry["event"] == "warning")


# --- a check that is handed back


@pytest.mark.smoke("tracked")
@pytest.mark.parametrize("before", ["new", "untracked", "tracked"])
def test_what_a_check_writes_does_not_fail_the_step_that_is_repaired(project: Project, before: str) -> None:
    if before == "tracked":
        project.write(".coverage", "old\n")
    spec(project, COUNT)
    if before == "untracked":
        project.write(".coverage", "old\n")

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (0, ["spec", "spec repair"]), done.stdout
    assert project.read(".coverage") == ("x\nx\n" if before == "new" else "old\nx\nx\n")
    assert ".coverage" not in committed(project)
    assert project.git("status", "--porcelain") == (" M .coverage\n" if before == "tracked" else "?? .coverage\n")
    assert project.doflow("quarantine", "list").stdout.count(".coverage") == 0


def test_a_file_that_a_check_removes_is_not_missed_either(project: Project) -> None:
    project.write("cache/old.bin", "old\n")
    spec(project, "rm -rf cache; mkdir -p out/deep; echo x > out/deep/log; ")

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (0, ["spec", "spec repair"]), done.stdout
    assert project.git("status", "--porcelain") == " D cache/old.bin\n?? out/\n"


@pytest.mark.smoke
def test_what_the_agent_itself_changes_of_it_is_refused(project: Project) -> None:
    spec(project, COUNT)
    project.agent(WRITER + "if role == 'repair': put('.coverage', 'mine now')")

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (1, ["spec", "spec repair"]), done.stdout
    assert "spec modified files outside its scope: .coverage" in done.stdout
    assert project.read(".coverage").strip("x\n") == "", "as the check left it"
    assert project.doflow("quarantine", "list").stdout.count(".coverage") == 1


@pytest.mark.parametrize("call", ["step", "repair"])
def test_what_the_agent_writes_elsewhere_in_any_call_is_refused(project: Project, call: str) -> None:
    spec(project, COUNT)
    project.agent(WRITER + f"if role == {call!r}: put('src/evil.py', 'x')")

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1
    assert "spec modified files outside its scope: src/evil.py" in done.stdout
    assert not (project.root / "src").exists()


def test_what_a_check_leaves_when_its_step_fails_stays_too(project: Project) -> None:
    spec(project, COUNT)
    project.agent("make('# Never right\\n')")

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.read(".coverage")) == (1, "x\nx\n"), done.stdout
    assert ".coverage" not in done.stdout


def test_an_artifact_that_a_check_puts_in_order_is_committed_that_way(project: Project) -> None:
    spec(project, "sed -i 's/ *$//' {run_dir}/spec.md; " + COUNT)
    project.agent("make('# Requirements   \\n' if role == 'repair' else '# Draft   \\n')")

    done = project.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout
    assert project.git("show", "HEAD:specs/001-x/spec.md") == "# Requirements\n"
    assert project.doit("work").stdout.endswith("nothing to do\n")


# --- what is protected

PROTECTED = ("PRD.md", "doflow.yaml", "flows/new.yaml", ".git/hooks/post-commit", "specs/001-x/input.md")


@pytest.mark.smoke("PRD.md-0")
@pytest.mark.parametrize("repair", [0, 1])
@pytest.mark.parametrize("target", PROTECTED)
def test_what_is_protected_is_put_back_after_a_check_too(project: Project, target: str, repair: int) -> None:
    """It may be code of the agent's that the check runs."""
    project.write("PRD.md", "as it was\n")
    spec(project, f"echo '# evil' >> {target}; ", repair, ", protect: [PRD.md]")
    project.agent(WRITER if repair else "make('# Requirements\\n')")
    before = (project.root / target).read_text() if (project.root / target).exists() else "x\n" * ("input" in target)

    done = project.doit("work", "--goal=x")

    assert (done.returncode, len(project.calls())) == (0, 1 + repair), done.stdout
    assert f"the check of spec changed {target}" in " ".join(done.stdout.split())
    now = project.root / target
    assert (now.read_text() if now.exists() else "") == before
    assert "evil" not in project.git("log", "-p", "main..HEAD")
    assert target in project.doflow("quarantine", "list").stdout


# --- phases


@pytest.mark.parametrize("tracked", [True, False])
def test_what_the_check_of_a_phase_writes_is_in_no_commit_and_holds_no_phase_up(
    project: Project, tracked: bool
) -> None:
    if tracked:
        project.write(".coverage", "")
    build(project)

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (0, ["impl:1", "impl:1 repair", "impl:2", "impl:3"]), done.stdout
    assert ".coverage" not in committed(project)
    assert project.read(".coverage") == "x\n" * 4
    assert project.git("status", "--porcelain") == (" M .coverage\n" if tracked else "?? .coverage\n")
    assert warnings(project).count(".coverage") == (1 if tracked else 0)
    assert project.doit("work").stdout.endswith("nothing to do\n")


def test_what_the_agent_of_a_phase_makes_of_it_is_its_work(project: Project) -> None:
    build(project, repair=0)
    project.agent(WRITER.replace('"wrong\\n"', '"right\\n"') + "if phase != '2': put('.coverage', f'{phase}\\n')")

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (0, ["impl:1", "impl:2", "impl:3"]), done.stdout
    assert "yours" not in done.stdout
    assert project.git("show", "HEAD:.coverage") == "3\nx\n"
    assert project.git("log", "--format=%s", "main..HEAD", "--", ".coverage") == "Phase 3: Part 3\nPhase 1: Part 1\n"


def test_a_phase_that_comes_with_a_later_command_is_not_held_up_either(project: Project) -> None:
    project.write(".coverage", "")
    build(project)
    assert project.doit("work:impl:1", "--goal=x").returncode == 0

    done = project.doit("work")

    assert (done.returncode, project.calls()[-2:]) == (0, ["impl:2", "impl:3"]), done.stdout


def test_what_a_person_makes_of_it_is_theirs(project: Project) -> None:
    project.write(".coverage", "")
    build(project)
    assert project.doit("work:impl:1", "--goal=x").returncode == 0
    project.write(".coverage", "by hand\n")

    done = project.doit("work")

    assert done.returncode == 2
    assert "uncommitted changes in .coverage" in done.stdout
    assert project.read(".coverage") == "by hand\n"


def test_a_check_makes_nothing_its_own_of_what_a_person_has_not_committed(project: Project) -> None:
    project.write("notes.txt", "old\n")
    phases = BUILD.partition("steps:\n")[2].format(check="true", repair=0)
    project.flow("work", SPEC.format(check="echo x >> notes.txt", repair=0, more="").rstrip() + "\n" + phases)
    project.write("tasks.md", THREE)
    project.commit("Ground")
    project.write("notes.txt", "old\nmine\n")

    done = project.doit("work", "--goal=x")

    assert done.returncode == 2
    assert "uncommitted changes in notes.txt" in done.stdout
    assert project.read("notes.txt") == "old\nmine\nx\n"


# --- the command of a shell step

SHELL = """
    flow: work
    steps:
      test: {{kind: shell, run: [sh, -c, "echo x >> report.txt; {more}grep -q good code.txt"], repair: 2{keys}}}
"""


def shell(project: Project, keys: str = "", more: str = "") -> None:
    project.write("code.txt", "bad\n")
    project.flow("work", SHELL.format(keys=keys, more=more))
    project.agent("put('code.txt', 'good\\n')")
    project.commit("Ground")


def test_what_the_command_of_a_step_writes_is_not_what_had_to_be_fixed(project: Project) -> None:
    shell(project)

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (0, ["test repair"]), done.stdout
    assert project.read("report.txt") == "x\nx\n"
    assert (project.git("show", "HEAD:code.txt"), "report.txt" in committed(project)) == ("good\n", False)


def test_what_it_leaves_stays_when_no_one_can_fix_it(project: Project) -> None:
    shell(project)
    project.agent("put('code.txt', 'worse\\n')")

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()) == (1, ["test repair"] * 2), done.stdout
    assert (project.read("code.txt"), project.read("report.txt")) == ("bad\n", "x\n" * 3)


def test_with_writes_it_is_the_steps_and_held_to_that(project: Project) -> None:
    shell(project, ", writes: [code.txt, report.txt]")
    assert project.doit("work", "--goal=x").returncode == 0
    assert {"code.txt", "report.txt"} <= committed(project)

    project.git("switch", "-q", "main")
    shell(project, ", writes: [code.txt]")
    done = project.doit("work", "--goal=y")

    assert done.returncode == 1
    assert "test modified files outside its scope: report.txt" in done.stdout


def test_what_is_protected_still_fails_it(project: Project) -> None:
    project.write("PRD.md", "as it was\n")
    shell(project, ", protect: [PRD.md]", "echo evil > PRD.md; ")

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1
    assert "test modified files outside its scope: PRD.md" in done.stdout
    assert project.read("PRD.md") == "as it was\n"


# --- side by side

PAIR = """
    flow: work
    steps:
      one: {{prompt: Write., makes: one.md, check: {{run: "{check}"}}, repair: 1, after: []}}
      two: {{prompt: Write., makes: two.md, check: {{run: "{check}"}}, repair: 1, after: []}}
"""


def test_checks_at_work_at_the_same_time_are_told_from_agents_too(project: Project) -> None:
    """Both agents are through when the first check begins; the repairs come after both checks, one after the other."""
    meet = "import time\n(outside / f'{step}.{role}').touch()\n"
    meet += "while role == 'step' and len(list(outside.glob('*.step'))) < 2: time.sleep(0.01)\n"
    project.flow("work", PAIR.format(check="sleep 1; echo $DOFLOW_STEP > $DOFLOW_STEP.out; test -s $DOFLOW_MAKES"))
    project.agent(meet + "make('right')")
    project.commit("Ground")

    done = project.doit("-n", "2", "-P", "thread", "work", "--goal=x")

    assert done.returncode == 0, done.stdout
    assert project.git("status", "--porcelain") == "?? one.out\n?? two.out\n"


def test_a_leftover_that_the_agent_of_a_phase_removes_is_gone(project: Project) -> None:
    build(project, "test -e part.log || echo x > part.log; ")
    project.agent(WRITER + "if role == 'repair': (root / 'part.log').unlink()")

    done = project.doit("work", "--goal=x")

    assert (done.returncode, project.calls()[1:]) == (0, ["impl:1 repair", "impl:2", "impl:3"]), done.stdout
    assert "part.log" not in committed(project)
