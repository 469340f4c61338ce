"""`workspace: overlay`: an agent works in a view of the project, and only what was accepted reaches it."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from tests.support.project import Project

from doflow.guard.workspace import overlay

pytestmark = pytest.mark.skipif(
    bool(overlay.machine_obstacle(os.environ)), reason="needs overlay file systems in user namespaces"
)

FLOW = """
    flow: work
    defaults: {retry: {attempts: 0}}
    steps:
      build: {kind: implement, phases: /tasks.md, prompt: Build it}
"""
TASKS = "# Tasks\n\n## Phase 1: Ground\n\n- [ ] [T001] Dig\n\n## Phase 2: House\n\n- [ ] [T002] Build\n"
NOTES = "".join(f"line {number}\n" for number in range(1, 10))


@pytest.fixture
def work(tmp_path):
    project = Project(tmp_path, settings='workspace: overlay\nprotect: ["keys.txt"]\n')
    project.flow("work", FLOW)
    project.write("tasks.md", TASKS)
    project.write("notes.txt", NOTES)
    project.write("keys.txt", "secret\n")
    project.write(".gitignore", "__pycache__/\n.env\nmodules/\n")
    project.commit("Ground")
    project.write(".env", "KEY=1\n")
    return project


def outside_git(project: Project) -> dict[str, str]:
    asked = {"refs": ("for-each-ref",), "config": ("config", "--local", "--list"), "stash": ("stash", "list")}
    return {name: project.git(*words) for name, words in asked.items()}


@pytest.mark.smoke
def test_what_an_agent_does_to_git_and_ignored_files_stays_in_its_view(work):
    before = outside_git(work)
    work.agent("""
        import subprocess
        def git(*words): subprocess.run(["git", *words], check=True, capture_output=True)
        if phase == "1":
            put("src/a.py", "A = 1\\n")
            put("modules/one.js", "1")
            (root / ".env").unlink()
            git("add", "-A"); git("commit", "-qm", "By the agent"); git("branch", "mine"); git("config", "core.hooksPath", "/x")
            subprocess.Popen(["sh", "-c", "sleep 1; echo late > late.txt"], start_new_session=True)
        else:
            assert (root / "modules/one.js").read_text() == "1" and not (root / ".env").exists()
            put("src/b.py", "B = 1\\n")
    """)

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    time.sleep(1.2)
    assert work.git("show", "--format=", "--name-only", "HEAD~1", "--", "src", "modules", "late.txt") == "src/a.py\n"
    assert (work.read("src/b.py"), work.read(".env")) == ("B = 1\n", "KEY=1\n")
    assert not (work.root / "modules").exists()
    after = outside_git(work)
    assert (after["config"], after["stash"], "mine" in after["refs"]) == (before["config"], before["stash"], False)
    assert "By the agent" not in work.git("log", "--all", "--format=%s")
    assert work.git("status", "--porcelain") == ""


@pytest.mark.smoke
def test_edits_of_the_person_stay_uncommitted_and_are_merged(work):
    work.write("notes.txt", NOTES.replace("line 9\n", "line 9, mine\n"))
    work.agent("""
        path = root / "notes.txt"
        if phase == "1":
            path.write_text(path.read_text().replace("line 1\\n", "line 1, agent\\n"))
        else:
            put("src/b.py", "B = 1\\n")
    """)

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    agents = NOTES.replace("line 1\n", "line 1, agent\n")
    assert work.git("show", "HEAD:notes.txt") == agents
    assert work.read("notes.txt") == agents.replace("line 9\n", "line 9, mine\n")
    assert work.git("status", "--porcelain") == " M notes.txt\n"


def test_the_same_line_changed_by_both_pauses_and_keeps_both(work):
    (work.outside / "go").write_text("")
    work.agent("""
        import time
        put("notes.txt", (root / "notes.txt").read_text().replace("line 5\\n", "line 5, agent\\n"))
        put(f"src/{phase}.py", "x\\n")
        (outside / "ready").write_text("")
        while (outside / "wait").exists(): time.sleep(0.02)
    """)
    (work.outside / "wait").write_text("")
    running = work.start("doit", "work", "--goal=x")
    wait_for(work.outside / "ready")
    mine = NOTES.replace("line 5\n", "line 5, mine\n")
    work.write("notes.txt", mine)
    (work.outside / "wait").unlink()
    out, _ = running.communicate(timeout=60)

    assert (running.returncode, work.calls()) == (2, ["build:1"]), out
    assert "notes.txt: you and the job changed the same lines" in out
    assert (work.read("notes.txt"), (work.root / "src").exists()) == (mine, False)
    assert "line 5, agent" in work.doflow("workspace", "diff", "build:1").stdout

    work.git("checkout", "notes.txt")
    done = work.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    assert work.calls() == ["build:1", "build:2"], "the paid result was taken without a call"
    assert work.git("show", "HEAD~1:src/1.py") == "x\n"


def test_fifty_edits_of_the_person_while_the_agent_works_are_all_theirs(work):
    names = [f"part{number}.txt" for number in range(50)]
    for name in names:
        work.write(name, "".join(f"{number}\n" for number in range(20)))
    work.commit("Parts")
    (work.outside / "wait").write_text("")
    work.agent("""
        import time
        if phase == "1":
            for number in range(10):
                path = root / f"part{number}.txt"
                path.write_text("agent\\n" + path.read_text())
        put(f"src/{phase}.py", "x\\n")
        (outside / "ready").write_text("")
        while (outside / "wait").exists(): time.sleep(0.02)
    """)
    running = work.start("doit", "work", "--goal=x")
    wait_for(work.outside / "ready")
    for name in names:
        work.write(name, work.read(name) + "mine\n")
    work.write("new.txt", "mine\n")
    (work.outside / "wait").unlink()
    out, err = running.communicate(timeout=60)

    assert running.returncode == 0, out + err
    for number, name in enumerate(names):
        start = "agent\n" if number < 10 else ""
        assert work.read(name) == start + "".join(f"{line}\n" for line in range(20)) + "mine\n"
        assert "mine" not in work.git("show", f"HEAD:{name}")
    assert work.git("status", "--porcelain").count("\n") == 51


def test_a_killed_call_leaves_the_project_as_it_was(work):
    (work.outside / "wait").write_text("")
    work.agent("""
        import time
        put(f"src/{phase}.py", "half\\n")
        (outside / "ready").write_text("")
        while (outside / "wait").exists(): time.sleep(0.02)
        put(f"src/{phase}.py", "whole\\n")
    """)
    running = work.start("doit", "work", "--goal=x")
    wait_for(work.outside / "ready")
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=60)

    assert work.git("status", "--porcelain", "-uall").splitlines() == [
        "?? specs/001-x/doflow.lock",
        "?? specs/001-x/input.md",
    ]
    shown = json.loads(work.doflow("workspace", "show", "--json").stdout)["workspaces"]
    assert shown == [{"job": "build:1", "state": "interrupted", "files": ["src/1.py"]}]

    (work.outside / "wait").unlink()
    done = work.doit("work")

    assert done.returncode == 0, done.stdout + done.stderr
    assert work.read("src/1.py") == "whole\n"
    kept = json.loads(work.doflow("quarantine", "list", "--json").stdout)["kept"]
    assert [row["path"] for row in kept] == ["src/1.py"]


@pytest.mark.smoke
def test_one_forbidden_file_does_not_cost_the_rest_of_a_phase(work):
    work.agent("""
        put(f"src/{phase}.py", "good\\n")
        if phase == "1": put("keys.txt", "mine now\\n")
    """)

    done = work.doit("work", "--goal=x")

    assert done.returncode == 1, done.stdout
    assert "doflow adopt build:1" in done.stdout
    assert (work.read("keys.txt"), (work.root / "src").exists()) == ("secret\n", False)

    adopted = work.doflow("adopt", "build:1")
    assert adopted.returncode == 0, adopted.stdout + adopted.stderr
    done = work.doit("work")

    assert (done.returncode, work.calls()) == (0, ["build:1", "build:2"]), done.stdout + done.stderr
    assert (work.read("src/1.py"), work.git("status", "--porcelain")) == ("good\n", "")


def test_what_the_agents_program_writes_for_itself_is_dropped_with_a_warning(work):
    work.agent("""
        put(f"src/{phase}.py", "good\\n")
        put(".claude/settings.json", "{}")
    """)

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "also wrote .claude/settings.json, outside its scope; not taken over" in done.stdout
    assert not (work.root / ".claude").exists()


def test_a_switched_branch_takes_nothing_until_it_is_back(work):
    (work.outside / "wait").write_text("")
    work.git("branch", "other")
    work.agent("""
        import time
        put(f"src/{phase}.py", "good\\n")
        (outside / "ready").write_text("")
        while (outside / "wait").exists(): time.sleep(0.02)
    """)
    running = work.start("doit", "work", "--goal=x")
    wait_for(work.outside / "ready")
    work.git("switch", "-q", "other")
    (work.outside / "wait").unlink()
    out, err = running.communicate(timeout=60)

    assert running.returncode == 2, out + err
    assert "git switch 001-x" in out
    assert not (work.root / "src").exists()

    work.git("switch", "-q", "001-x")
    done = work.doit("work")

    assert (done.returncode, work.calls()) == (0, ["build:1", "build:2"]), done.stdout + done.stderr


def test_a_first_phase_that_writes_gitignore_and_installs_commits_no_packages(work):
    work.agent("""
        if phase == "1":
            put(".gitignore", "__pycache__/\\n.env\\nmodules/\\nnode_modules/\\n")
            put("node_modules/x/index.js", "1")
        put(f"src/{phase}.py", "good\\n")
    """)

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "node_modules" not in work.git("ls-files")
    assert not (work.root / "node_modules").exists()
    assert "node_modules/" in work.git("show", "HEAD:.gitignore")


def test_line_endings_are_those_of_the_project(work):
    (work.root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    work.commit("From DOS")
    work.agent("""
        (root / "dos.txt").write_bytes(b"one\\ntwo\\nthree\\n") if phase == "1" else put("src/b.py", "x\\n")
    """)

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (work.root / "dos.txt").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    assert work.git("status", "--porcelain") == ""


def test_a_step_may_work_in_the_project_itself(work):
    work.flow("work", FLOW.replace("prompt: Build it", "prompt: Build it, workspace: in-place"))
    work.commit("In place")
    work.agent("""
        put(f"src/{phase}.py", "good\\n")
        (outside / "seen").write_text(str(len(list(outside.parent.glob("project/src/*.py")))))
    """)

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (work.outside / "seen").read_text() == "2"


@pytest.mark.smoke
def test_where_no_view_can_be_made_agents_work_in_the_project_and_it_is_said(work):
    work.settings('workspace: auto\nprotect: ["keys.txt"]\n')
    work.commit("Take what works")
    work.env["XDG_STATE_HOME"] = "/dev/null/state"

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "agents work in the project itself, a view of it cannot be made here: /dev/null/state" in done.stdout

    work.settings("workspace: overlay\n")
    refused = work.doit("work", "--new", "--goal=y")

    assert refused.returncode == 1
    assert "`workspace: overlay` does not work here" in refused.stdout + refused.stderr


def wait_for(path, seconds=30.0):
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.02)


def while_the_agent_works(project: Project, script: str, act) -> tuple[int, str]:
    """Run the flow; when the agent has done the script of phase 1, the person acts, then the agent ends."""
    (project.outside / "wait").write_text("")
    project.agent(f"""
import time
if phase == "1":
    {script}
else:
    put("src/b.py", "B = 1\\n")
(outside / "ready").write_text("")
while (outside / "wait").exists(): time.sleep(0.02)
""")
    running = project.start("doit", "work", "--goal=x")
    wait_for(project.outside / "ready")
    act()
    (project.outside / "wait").unlink()
    out, err = running.communicate(timeout=60)
    return running.returncode, out + err


def change(path: str, old: str, new: str) -> str:
    return f'put("{path}", (root / "{path}").read_text().replace("{old}\\n", "{new}\\n"))'


def test_a_commit_that_the_person_makes_meanwhile_is_not_reverted(work):
    def commit() -> None:
        work.write("notes.txt", NOTES.replace("line 1\n", "line 1, mine\n"))
        work.git("commit", "-qam", "Mine")

    code, out = while_the_agent_works(work, change("notes.txt", "line 9", "line 9, agent"), commit)

    assert code == 0, out
    both = NOTES.replace("line 1\n", "line 1, mine\n").replace("line 9\n", "line 9, agent\n")
    assert (work.git("show", "HEAD:notes.txt"), work.read("notes.txt")) == (both, both)
    assert work.git("status", "--porcelain") == ""


def test_a_folder_that_the_person_replaced_meanwhile_is_not_overwritten(work, tmp_path):
    work.write("part/a.txt", "one\n")
    work.commit("Part")
    other = tmp_path / "part"
    other.mkdir()
    (other / "a.txt").write_text("mine\n")
    time.sleep(0.1)

    def swap() -> None:
        (work.root / "part").rename(tmp_path / "old")
        other.rename(work.root / "part")

    code, out = while_the_agent_works(work, 'put("part/a.txt", "agent\\\\n")', swap)

    assert (code, work.read("part/a.txt")) == (2, "mine\n"), out
    assert "part/a.txt: you and the job changed the same lines" in out


def test_a_file_in_place_of_a_folder_and_a_folder_in_place_of_a_link_are_taken_over(work):
    work.write("part/a.txt", "one\n")
    (work.root / "link").symlink_to("notes.txt")
    work.commit("Part")
    work.agent("""
        import shutil
        if phase == "1":
            shutil.rmtree(root / "part"); put("part", "a file\\n")
            (root / "link").unlink(); put("link/b.txt", "b\\n"); put("modules/m.js", "1")
        else:
            put("src/b.py", "B = 1\\n")
    """)

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (work.read("part"), work.read("link/b.txt")) == ("a file\n", "b\n")
    assert "modules" not in work.git("ls-files")
    assert work.git("status", "--porcelain") == ""


def test_uncommitted_lines_that_git_was_told_not_to_look_at_are_not_committed(work):
    work.git("update-index", "--assume-unchanged", "notes.txt")
    work.write("notes.txt", NOTES.replace("line 1\n", "line 1, mine\n"))
    work.agent(change("notes.txt", "line 9", "line 9, agent") + '\nput(f"src/{phase}.py", "x\\n")\n')

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "mine" not in work.git("show", "HEAD:notes.txt")
    assert work.read("notes.txt").startswith("line 1, mine\n")


def test_folders_that_a_program_closed_cost_nothing(work):
    work.agent("""
        import os
        put(f"modules/{phase}/x.js", "1"); put(f"src/{phase}.py", "good\\n")
        os.chmod(root / f"modules/{phase}", 0o555); (root / "closed").mkdir(exist_ok=True); os.chmod(root / "closed", 0)
    """)

    done = work.doit("work", "--goal=x")

    assert done.returncode == 0, done.stdout + done.stderr
    assert work.git("status", "--porcelain") == ""
