"""Which run is meant, where it may run, and what it is told: goals, branches, worktrees, two at once."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from tests.support.project import Project, eventually

TWO = """
    flow: two
    params: {goal: {required: true}}
    defaults: {retry: {attempts: 0}}
    steps:
      one: {prompt: "Write one.", reads: [input.md], makes: one.md}
      two: {prompt: "Write two.", reads: [one.md], makes: two.md}
"""

GOALS = {
    "quotes": "Say \"it\" and 'it', `date` and $HOME",
    "newlines": "First line\nsecond line\n\n  third, indented",
    "equals": "a=b and c = d",
    "a leading dash": "-x --force",
    "emoji": "Log in 🔑 with Grüße und 日本語",
    "10 kB": "word " * 2000 + "end",
    "markup": "{goal} {{x}} %s <b> \\n # heading",
}


@pytest.fixture
def two(project: Project) -> Project:
    project.flow("two", TWO)
    project.commit("A flow")
    return project


def works(project: Project, *words: str, code: int = 0, **more: object) -> subprocess.CompletedProcess[str]:
    done = project.doit(*words, **more)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def refused(project: Project, *words: str) -> str:
    """The command ends with exit code 1 and leaves nothing behind: no file, commit or branch. Gives what it said."""
    before = (project.tree(), project.git("for-each-ref", check=False), os.path.exists(project.root / ".doflow"))
    done = works(project, *words, code=1)
    after = (project.tree(), project.git("for-each-ref", check=False), os.path.exists(project.root / ".doflow"))
    assert after == before
    assert project.calls() == []
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def waiting(project: Project, *words: str, cwd: object = None) -> subprocess.Popen[str]:
    """A run whose agent waits until the test writes `go`."""
    project.agent("""
        while not (outside / "go").exists():
            time.sleep(0.02)
        usual()
    """)
    running = project.start("doit", *words, cwd=cwd)
    assert eventually(project.calls), running.communicate(timeout=60)
    return running


def finish(project: Project, running: subprocess.Popen[str]) -> int:
    (project.outside / "go").touch()
    running.communicate(timeout=60)
    return running.returncode


@pytest.mark.smoke("newlines")
@pytest.mark.parametrize("goal", GOALS.values(), ids=GOALS.keys())
def test_a_goal_survives_start_state_resume_and_commit(two, goal):
    two.agent("usual() if step == 'one' or nth else stop(1)")

    works(two, "two", f"--goal={goal}", code=1)
    assert two.state()["goal"] == goal
    assert (two.run_dir() / "input.md").read_text() == goal + "\n"
    works(two, "two", f"--goal={goal}")

    assert two.calls() == ["one", "two", "two"]
    assert len(two.runs()) == 1
    assert two.git("show", f"HEAD:specs/{two.runs()[0]}/input.md") == goal + "\n"
    assert goal.strip() in two.prompts()[0]
    assert two.state()["status"] == "completed"
    works(two, "two", f"--goal={goal}")
    assert len(two.calls()) == 3


@pytest.mark.parametrize("goal", GOALS.values(), ids=GOALS.keys())
def test_doflow_run_takes_a_goal_as_a_word_of_its_own(two, goal):
    done = two.doflow("run", "two", "--goal", goal)

    assert (done.returncode, two.state()["goal"]) == (0, goal), done.stderr


def test_a_goal_of_doit_with_an_equals_sign_in_a_word_of_its_own_is_refused_with_a_hint(two):
    assert "--goal=" in refused(two, "two", "--goal", "a=b")


def test_a_goal_that_is_required_and_missing_or_empty_is_refused(two):
    assert 'doit two --goal="…"' in refused(two, "two")
    assert 'doit two --goal="…"' in refused(two, "two", "--goal=")
    assert 'doit two --goal="…"' in refused(two, "two", "--goal=  ")


@pytest.mark.smoke
def test_the_same_goal_goes_on_with_the_same_run_and_another_starts_one(two):
    works(two, "two", "--goal=One thing")
    works(two, "two", "--goal=One thing")
    two.git("switch", "-q", "main")
    works(two, "two", "--goal=Another thing")

    assert two.state("001-one-thing")["goal"] == "One thing"
    assert two.state("002-another-thing")["goal"] == "Another thing"
    assert two.calls() == ["one", "two"] * 2


def test_new_starts_a_run_for_the_same_goal_and_says_upon_which_other_run_it_stands(two):
    first = works(two, "two", "--goal=One thing")
    again = works(two, "two", "--goal=One thing", "--new")

    assert "run 001-one-thing on branch 001-one-thing: specs/001-one-thing/" in first.stdout
    assert "run 002-one-thing on branch 002-one-thing (on top of 001-one-thing, another run): specs/" in again.stdout
    assert two.runs() == ["001-one-thing", "002-one-thing"]
    assert two.calls() == ["one", "two"] * 2


def test_without_a_goal_the_run_of_the_branch_goes_on(two):
    two.agent("usual() if step == 'one' else stop(1)")
    works(two, "two", "--goal=First", code=1)
    works(two, "two", "--goal=Second", code=1)
    two.agent("usual()")
    two.git("switch", "-q", "001-first")
    two.forget_calls()

    works(two, "two")

    assert two.calls() == ["two"]
    assert (two.state("001-first")["status"], two.state("002-second")["status"]) == ("completed", "failed")


def test_several_unfinished_runs_are_listed_when_none_is_named(two):
    two.agent("usual() if step == 'one' else stop(1)")
    works(two, "two", "--goal=First", code=1)
    works(two, "two", "--goal=Second", code=1)
    two.git("switch", "-q", "main")

    done = works(two, "two", code=1)

    said = done.stdout + done.stderr
    assert "001-first: First" in said and "002-second: Second" in said
    assert said.endswith("hint: name it: git switch 002-second && doit two --run=002-second\n")


def test_plain_doit_asks_too_which_of_several_unfinished_runs_is_meant(two):
    _leave_two_open(two)

    for program, words in (("doit", ()), ("doflow", ("run",)), ("doflow", ("run", "--auto-approve"))):
        done = two.program(program, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert "this project has 2 unfinished runs; which one do you mean?\n  001-first: First\n" in done.stderr
        assert "hint: name it: git switch 002-second && doit two --run=002-second\n" in done.stderr


def test_the_hints_for_a_run_of_another_branch_work_when_they_are_typed(two):
    _leave_two_open(two)
    two.git("merge", "-q", "001-first")
    two.git("merge", "-q", "002-second")

    there = works(two, "two", "--run=2", code=1)
    assert "or to continue here: doit two --run=002-second --reopen" in there.stdout
    two.git("branch", "-qD", "002-second")
    gone = works(two, "two", code=1)
    assert "hint: name it: doit two --run=002-second --reopen" in gone.stderr
    two.agent("usual()")
    works(two, "two", "--run=002-second", "--reopen")


def _leave_two_open(two):
    two.agent("usual() if step == 'one' else stop(1)")
    works(two, "two", "--goal=First", code=1)
    works(two, "two", "--goal=Second", code=1)
    two.git("switch", "-q", "main")


def test_options_without_a_flow_are_for_the_run_of_this_branch(two):
    two.agent("usual() if step == 'one' else stop(1)")
    none = two.doflow("run", "--next")
    works(two, "two", "--goal=First", code=1)
    two.agent("usual()")
    two.forget_calls()

    forced = two.doflow("run", "--force=one", "--next")
    named = two.doflow("run", "--run=1", "--auto-approve")
    new = two.doflow("run", "--goal=Another")

    assert (none.returncode, none.stderr.splitlines()[0]) == (1, "ERROR: no run to continue")
    assert (forced.returncode, named.returncode, two.calls()) == (0, 0, ["one", "two"]), forced.stderr + named.stderr
    assert (new.returncode, new.stderr.splitlines()[0]) == (1, "ERROR: --goal starts a run, so it needs a flow")


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        (("--budget=1",), "doit two --budget=1"),
        (("--budget", "1", "-n", "2"), "doit -n 2 two --budget 1"),
        (("--auto-approve",), "doit two --auto-approve"),
        (("--next", "two"), "doit two --next"),
        (("two", "-n", "2"), "doit -n 2 two"),
        (("two:one", "--goal=a b", "-v2"), "doit -v2 two:one '--goal=a b'"),
        (("--nosuch",), "doit help run lists the options"),
        (("two", "--nosuch"), "doit help two lists the options"),
    ],
)
def test_options_in_the_wrong_place_are_refused_with_the_words_in_the_right_order(two, typed, right):
    works(two, "two", "--goal=First")
    two.forget_calls()

    assert refused(two, *typed).endswith(f"  hint: {right}\n")


@pytest.mark.parametrize("name", ["001-first", "001", "specs/001-first"])
def test_a_run_can_be_named(two, name):
    works(two, "two", "--goal=First")
    works(two, "two", "--goal=Second")
    two.git("switch", "-q", "001-first")
    two.forget_calls()

    works(two, "two", f"--run={name}", "--force=two")

    assert two.calls() == ["two"]
    assert two.events("001-first")[-1]["event"] == "pipeline_complete"


def test_a_run_that_does_not_exist_is_refused(two):
    assert "no run called 007" in refused(two, "two", "--run=007")


@pytest.mark.smoke
def test_a_run_on_another_branch_is_not_run_here(two):
    two.agent("usual() if step == 'one' else stop(1)")
    works(two, "two", "--goal=First", code=1)
    two.git("switch", "-q", "main")
    two.forget_calls()
    before = two.tree()

    done = works(two, "two", code=1)

    assert "git switch 001-first" in done.stdout + done.stderr
    assert (two.calls(), two.tree()) == ([], before)
    assert two.state()["status"] == "failed"


def test_a_finished_run_on_a_branch_that_is_not_merged_is_not_run_again_on_main(two):
    works(two, "two", "--goal=First")
    two.git("switch", "-q", "main")
    two.forget_calls()

    done = works(two, "two", "--goal=First", code=1)

    assert "git switch 001-first" in done.stdout + done.stderr
    assert (two.calls(), two.runs()) == ([], [])


def test_feature_dir_names_the_folder_of_a_run(two):
    works(two, "two", "--goal=First", "--feature-dir=specs/login")
    two.forget_calls()

    assert two.runs() == ["login"]
    works(two, "two", "--feature-dir=specs/login")
    works(two, "two", "--feature-dir=specs/login/")
    works(two, "two", f"--feature-dir={two.root / 'specs/login'}")
    assert two.calls() == []


def test_feature_dir_outside_the_project_is_refused(two):
    assert "not inside the project" in refused(two, "two", "--goal=First", "--feature-dir=../elsewhere")


def test_completed_takes_a_persons_file_as_done(two):
    two.write("specs/login/one.md", "Mine.\n")
    two.commit("By hand")

    done = works(two, "two", "--goal=First", "--feature-dir=specs/login", "--completed=one")

    assert "   ! one marked as done (--completed)\n" in done.stdout
    assert two.calls() == ["two"]
    assert "Mine." in two.prompts()[0]
    assert two.state("login")["completed"] == ["one", "two"]
    two.forget_calls()
    works(two, "two")
    assert two.calls() == []


def test_completed_of_a_step_whose_file_is_missing_is_refused(two):
    done = works(two, "two", "--goal=First", "--completed=one", code=1)

    assert "missing specs/001-first/one.md" in done.stdout + done.stderr
    assert two.calls() == []


@pytest.mark.smoke
def test_next_does_one_step_at_a_time(two):
    works(two, "two", "--goal=First", "--next")
    assert (two.calls(), two.state()["status"], two.state()["completed"]) == (["one"], "active", ["one"])

    works(two, "two", "--next")
    assert two.calls() == ["one", "two"]
    works(two, "two", "--next")
    assert (two.calls(), two.state()["status"]) == (["one", "two"], "completed")


def test_an_issue_is_kept_in_state_lock_and_commits(two):
    works(two, "two", "--goal=First", "--issue=42")

    assert two.state()["issue"] == "42"
    assert 'issue: "42"' in (two.run_dir() / "doflow.lock").read_text()
    assert "Doflow-Issue: 42" in two.git("log", "-1", "--format=%B")


def test_an_issue_that_contradicts_the_run_is_refused(two):
    works(two, "two", "--goal=First", "--issue=42")
    two.forget_calls()

    said = refused(two, "two", "--issue=43")

    assert "belongs to issue 42, not to 43" in said
    works(two, "two", "--issue=42")


def test_branch_names_the_branch_of_a_new_run(two):
    works(two, "two", "--goal=First", "--branch=feature/login")

    assert two.git("branch", "--show-current").strip() == "feature/login"
    assert two.state()["branch"] == "feature/login"


def test_a_branch_name_that_git_refuses_is_refused_before_anything_is_made(two):
    assert "bad..name" in refused(two, "two", "--goal=First", "--branch=bad..name")


def test_a_run_can_stay_on_the_branch_that_is_checked_out(two):
    two.settings("git: {branch: current}\n")
    two.commit("No branches")

    works(two, "two", "--goal=First")

    assert (two.git("branch", "--show-current").strip(), two.state()["branch"]) == ("main", "main")


def test_numbers_go_on_over_branches_and_folders(two):
    two.git("branch", "007-old")

    works(two, "two", "--goal=First")

    assert two.runs() == ["008-first"]


def test_a_finished_run_stays_finished_after_a_merge(two):
    works(two, "two", "--goal=First")
    two.git("switch", "-q", "main")
    two.git("merge", "-q", "--no-ff", "-m", "Merge", "001-first")
    two.forget_calls()

    works(two, "two", "--goal=First")
    assert two.calls() == []

    path = two.run_dir() / "one.md"
    path.write_text(path.read_text() + "Later.\n")
    done = works(two, "two", "--goal=First")
    assert two.calls() == []
    assert "two would run again" in done.stdout + done.stderr and "--reopen" in done.stdout + done.stderr


@pytest.mark.smoke
def test_a_finished_run_stays_finished_after_a_squash_and_reopens_when_asked(two):
    works(two, "two", "--goal=First")
    two.git("switch", "-q", "main")
    two.git("merge", "-q", "--squash", "001-first")
    two.git("commit", "-q", "-m", "Squashed")
    two.git("branch", "-q", "-D", "001-first")
    path = two.run_dir() / "one.md"
    path.write_text(path.read_text() + "Later.\n")
    two.commit("Later")
    two.forget_calls()
    head = two.git("rev-parse", "HEAD")

    works(two, "two", "--goal=First")
    assert (two.calls(), two.git("rev-parse", "HEAD")) == ([], head)

    works(two, "two", "--goal=First", "--reopen")
    assert two.calls() == ["two"]
    assert two.git("branch", "--show-current").strip() == "main"
    assert two.git("status", "--porcelain") == ""


@pytest.mark.smoke
def test_a_second_run_at_once_is_refused_and_names_the_first(two):
    running = waiting(two, "two", "--goal=First")
    try:
        assert eventually(lambda: two.state().get("current") == "one")
        state, tree = two.state(), two.tree()
        done = works(two, "two", "--goal=Second", code=1)
        said = done.stdout + done.stderr

        assert f"pid {running.pid}" in said
        assert (two.tree(), two.runs(), two.calls()) == (tree, ["001-first"], ["one"])
        assert two.state() == state
    finally:
        assert finish(two, running) == 0


def test_a_second_run_at_once_in_another_worktree_runs(two, tmp_path):
    two.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    running = waiting(two, "two", "--goal=First")
    try:
        two.agent("usual()")
        done = works(two, "two", "--goal=Second", cwd=tmp_path / "side")
    finally:
        assert finish(two, running) == 0

    assert "002-second" in done.stdout or "001-second" in done.stdout
    assert two.git("branch", "--show-current", cwd=tmp_path / "side").strip().endswith("-second")
    assert two.git("branch", "--show-current").strip() == "001-first"


def test_a_second_run_at_once_in_another_project_of_the_work_tree_is_refused(two):
    for name in ("dodo.py", "doflow.yaml", "flows/two.yaml"):
        two.write(f"apps/shop/{name}", two.read(name))
    two.commit("Another project in the same work tree")
    running = waiting(two, "two", "--goal=First")
    try:
        done = works(two, "two", "--goal=Second", code=1, cwd=two.root / "apps/shop")
        assert f"pid {running.pid}" in done.stderr and "git worktree add" in done.stderr
        assert two.git("branch", "--show-current").strip() == "001-first"
    finally:
        assert finish(two, running) == 0

    (two.outside / "go").unlink()
    two.forget_calls()
    running = waiting(two, "two", "--goal=Second", cwd=two.root / "apps/shop")
    try:
        done = works(two, "two", "--goal=Third", code=1)
        assert f"pid {running.pid}" in done.stderr
    finally:
        assert finish(two, running) == 0


def test_a_killed_run_frees_its_lock(two):
    running = waiting(two, "two", "--goal=First")
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=60)
    two.agent("usual()")
    two.forget_calls()

    works(two, "two")

    assert two.calls() == ["one", "two"]


def test_doit_runs_from_a_folder_below_the_project(two):
    (two.root / "src" / "deep").mkdir(parents=True)

    works(two, "-k", "two", "--goal=First", cwd=two.root / "src" / "deep")

    assert (two.runs(), os.listdir(two.root / "src" / "deep")) == (["001-first"], [])


def test_doflow_run_works_from_a_folder_below_the_project(two):
    (two.root / "src" / "deep").mkdir(parents=True)

    done = two.doflow("run", "two", "--goal=First", cwd=two.root / "src" / "deep")

    assert (done.returncode, two.runs(), os.listdir(two.root / "src" / "deep")) == (0, ["001-first"], [])


def test_a_project_behind_a_symbolic_link_is_the_same_project(two, tmp_path):
    (tmp_path / "link").symlink_to(two.root)

    works(two, "two", "--goal=First", cwd=tmp_path / "link")
    two.forget_calls()
    works(two, "two", "--goal=First")

    assert two.calls() == []
    assert two.git("status", "--porcelain") == ""


def test_a_run_works_in_a_git_worktree(two, tmp_path):
    two.git("worktree", "add", "-q", str(tmp_path / "side"), "-b", "side")

    works(two, "two", "--goal=First", cwd=tmp_path / "side")

    assert two.git("log", "-1", "--format=%s", cwd=tmp_path / "side").strip() == "two: two.md"
    assert two.git("branch", "--show-current").strip() == "main"


def test_a_project_in_a_folder_of_a_larger_repository_commits_only_its_own_files(tmp_path):
    whole = Project(tmp_path, "mono")
    shop = whole.root / "apps" / "shop"
    for name in ("dodo.py", "doflow.yaml"):
        whole.write(f"apps/shop/{name}", whole.read(name))
        (whole.root / name).unlink()
    whole.commit("A folder")
    whole.write("other/mine.txt", "uncommitted\n")

    works(whole, "tiny", "--goal=First", cwd=shop)

    changed = whole.git("log", "--format=", "--name-only", "main..HEAD").split()
    assert changed and all(name.startswith("apps/shop/") for name in changed)
    assert "apps/shop/src/phase_1.py" in changed
    assert whole.git("status", "--porcelain", "-uall").split() == ["??", "other/mine.txt"]
    whole.forget_calls()
    works(whole, "tiny", cwd=shop)
    assert whole.calls() == []


@pytest.mark.smoke
def test_a_folder_that_is_no_repository_is_refused(tmp_path):
    project = Project(tmp_path, git=False)
    project.env["GIT_CEILING_DIRECTORIES"] = str(tmp_path)  # whatever stands in the system's temporary folder
    project.flow("two", TWO)

    assert "not in a git repository" in refused(project, "two", "--goal=First")


def test_a_repository_without_a_commit_runs(tmp_path):
    project = Project(tmp_path, git=False)
    project.git("init", "-q", "-b", "main")
    project.flow("two", TWO)

    works(project, "two", "--goal=First")

    assert project.subjects() == ["one: one.md", "two: two.md"]
    assert (project.root / "dodo.py").exists()


def test_a_detached_head_is_refused(two):
    two.git("checkout", "-q", "--detach")

    assert "git switch -c" in refused(two, "two", "--goal=First")


def test_a_merge_in_progress_is_refused(two):
    two.git("switch", "-q", "-c", "side")
    two.write("x.txt", "side\n")
    two.commit("Side")
    two.git("switch", "-q", "main")
    two.write("x.txt", "main\n")
    two.commit("Main")
    two.git("merge", "-q", "side", check=False)

    assert "a merge is in progress" in refused(two, "two", "--goal=First")


def test_a_person_whom_git_does_not_know_is_refused(two):
    (two.home / ".gitconfig").write_text("[init]\n\tdefaultBranch = main\n")

    assert "git config user.name" in refused(two, "two", "--goal=First")


@pytest.mark.smoke
def test_a_run_leaves_uncommitted_and_untracked_work_alone(two):
    two.write("tracked.txt", "old\n")
    two.commit("Before")
    two.write("tracked.txt", "new, not committed\n")
    two.write("staged.txt", "staged\n")
    two.git("add", "staged.txt")
    two.write("loose.txt", "untracked\n")

    works(two, "two", "--goal=First")

    assert two.git("status", "--porcelain").splitlines() == ["A  staged.txt", " M tracked.txt", "?? loose.txt"]
    assert "tracked.txt" not in two.git("log", "--format=", "--name-only", "main..HEAD")
    assert two.read("tracked.txt") == "new, not committed\n"


@pytest.mark.smoke
def test_implement_waits_until_tracked_files_are_clean(project):
    project.write("mine.txt", "old\n")
    project.commit("Mine")
    project.write("mine.txt", "new\n")

    done = works(project, "tiny", "--goal=First", code=2)

    assert "mine.txt" in done.stdout and "commit or stash" in done.stdout
    assert (project.calls(), project.state()["status"]) == (["specify", "plan", "tasks"], "paused")
    assert project.read("mine.txt") == "new\n"
    project.commit("Now")
    works(project, "tiny")
    assert project.calls()[3:] == ["implement:1", "implement:2"]


def test_implement_runs_beside_untracked_files_and_does_not_commit_them(project):
    project.write("loose.txt", "mine\n")

    works(project, "tiny", "--goal=First")

    assert project.git("status", "--porcelain").split() == ["??", "loose.txt"]


@pytest.mark.smoke
def test_a_module_planted_in_the_project_is_not_imported(two):
    canary = two.outside / "canary"
    for name in ("yaml", "json", "sqlite3", "doflow", "git", "doit", "rich", "jsonschema", "hashlib", "marshal"):
        two.write(f"{name}.py", f"open({str(canary)!r}, 'a').write({name!r} + ' was imported; ')\n")
    two.commit("Planted")

    works(two, "two", "--goal=First")
    works(two, "two", "--goal=First", "--force=one")
    done = two.doflow("run", "two", "--force=two")

    assert (done.returncode, canary.exists()) == (0, False), done.stderr


def test_a_branch_that_an_agent_switched_away_from_is_put_back(two):
    two.agent("""
        import subprocess
        usual()
        subprocess.run(["git", "switch", "-q", "-c", "elsewhere"], check=True)
    """)

    done = works(two, "two", "--goal=First")

    assert "changed git state; reverted" in done.stdout
    assert two.git("branch", "--show-current").strip() == "001-first"
    assert "elsewhere" not in two.git("branch", "--format=%(refname:short)").split()
