"""Looking after the state: verify finds what does not agree, quarantine gives back, clean removes what no one needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from tests.support.project import Project

FLOW = """\
    flow: duo
    steps:
      spec: {prompt: Specify, reads: [input.md], makes: spec.md}
      plan: {prompt: Plan, reads: [spec.md], makes: plan.md}
"""


@pytest.fixture
def duo(project: Project) -> Project:
    """A finished run of two steps."""
    project.flow("duo", FLOW)
    project.commit("A flow")
    project.agent("echo()")
    assert project.doit("duo", "--goal=A pair").returncode == 0
    return project


def everything(project: Project) -> dict[str, tuple[bytes, int]]:
    """Every file of the project, state and git included."""
    paths = [Path(folder, name) for folder, _, names in os.walk(project.root) for name in names]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def findings(project: Project) -> list[str]:
    before = everything(project)
    done = project.doflow("verify", "--json")
    assert everything(project) == before, "verify writes nothing"
    told = json.loads(done.stdout)
    assert done.returncode == (1 if told["findings"] else 0)
    assert all(one["hint"] for one in told["findings"])
    return [one["message"] for one in told["findings"]]


@pytest.mark.smoke
def test_a_sound_run_has_no_findings(duo):
    done = duo.doflow("verify")

    assert (done.returncode, findings(duo)) == (0, [])
    assert done.stdout == "1 run: lock file, files, event log, commits and state agree\n"


def test_an_edited_and_a_missing_artifact_are_found(duo):
    (duo.run_dir() / "spec.md").write_text("mine\n")
    (duo.run_dir() / "plan.md").unlink()

    found = findings(duo)

    assert len(found) == 2
    assert "spec.md is not what the lock says (agent wrote" in found[0]
    assert "plan.md is in the lock, but not on the disk" in found[1]


def test_a_torn_line_of_the_event_log_is_found_and_can_be_taken_out(duo):
    path = duo.root / ".doflow/runs/001-a-pair/events.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event": "step_st')
    number = whole.count(b"\n") + 1

    [found] = findings(duo)

    assert f"line {number}: not an event" in found
    done = json.loads(duo.doflow("verify", "--json").stdout)["findings"][0]["hint"]
    assert f"sed -i '{number}d'" in done


def test_several_spoilt_lines_are_taken_out_by_the_one_command_that_is_told(duo):
    path = duo.root / ".doflow/runs/001-a-pair/events.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*whole[:2], b"garbage\n", *whole[2:4], b"[]\n", *whole[4:]]))

    [found] = json.loads(duo.doflow("verify", "--json").stdout)["findings"]
    subprocess.run(("sh", "-c", found["hint"].partition("   ")[0]), check=True, timeout=10)

    assert "lines 3, 6: not an event" in found["message"]
    assert path.read_bytes() == b"".join(whole)
    assert findings(duo) == []


def test_a_lock_changed_by_hand_is_found(duo):
    lock = duo.run_dir() / "doflow.lock"
    line = next(line for line in lock.read_text().splitlines() if line.startswith('  "plan": {"key"'))
    key = line.split('"key": "')[1][:64]
    lock.write_text(lock.read_text().replace(key, "f" * 64))

    found = findings(duo)

    assert any("the key of plan in the lock (ffffffffffff) is in no commit" in words for words in found)
    assert any("doflow.lock differs from the last commit (step plan)" in words for words in found)


def test_a_lock_that_cannot_be_read_or_is_gone_is_found(duo):
    lock = duo.run_dir() / "doflow.lock"
    lock.write_text(lock.read_text() + "{{{\n")
    assert any("cannot be read" in words for words in findings(duo))

    lock.unlink()
    assert any("doflow.lock is gone" in words for words in findings(duo))


def test_a_commit_taken_out_of_the_history_is_found(duo):
    duo.git("reset", "-q", "--soft", "HEAD~1")

    found = findings(duo)

    assert any("the lock says plan is done, but no commit of this branch does" in words for words in found)


def test_a_rebased_run_is_sound(duo):
    duo.git("switch", "-q", "main")
    duo.commit("Meanwhile")
    duo.git("switch", "-q", "001-a-pair")
    duo.git("rebase", "-q", "main")

    assert findings(duo) == []


def test_a_run_on_its_own_branch_is_sound_although_a_file_of_it_lies_here(duo):
    duo.git("switch", "-q", "main")
    duo.write("specs/001-a-pair/draft.md", "Not committed.\n")

    done = duo.doflow("verify")

    assert done.returncode == 0, done.stdout
    assert "(001-a-pair is on branch 001-a-pair: git switch 001-a-pair && doflow verify 001-a-pair)" in done.stdout


def test_steps_that_were_squashed_on_their_own_branch_are_sound(duo):
    said = duo.git("log", "--reverse", "--format=%B", "main..HEAD")
    duo.git("reset", "-q", "--soft", "main")
    duo.git("commit", "-qm", said)

    assert findings(duo) == []
    duo.forget_calls()
    shutil.rmtree(duo.root / ".doflow")
    assert (duo.doit("duo").returncode, duo.calls(), findings(duo)) == (0, [], [])


def test_what_had_to_be_fixed_may_be_said_in_other_words(project):
    project.flow("fix", "flow: fix\nsteps:\n  test: {kind: shell, run: [test, -e, ok], repair: 2}\n")
    project.commit("A flow")
    project.agent("put('ok', '')")
    assert project.doit("fix").returncode == 0
    project.git("commit", "-q", "--amend", "-m", "My words")

    assert findings(project) == []


def test_a_repair_that_was_lost_is_found_until_the_step_is_done_again(project):
    project.flow("fix", "flow: fix\nsteps:\n  test: {kind: shell, run: [test, -e, ok], repair: 2}\n")
    project.commit("A flow")
    project.agent("put('ok', '')")
    assert project.doit("fix").returncode == 0
    project.git("rm", "-q", "ok")
    project.git("commit", "-q", "--amend", "-m", "My words")

    [found] = json.loads(project.doflow("verify", "--json").stdout)["findings"]
    assert "of test is not in the history of HEAD" in found["message"]
    project.doflow("reset", "test", "--yes")
    assert (project.doit("fix").returncode, findings(project)) == (0, [])


def test_the_command_for_a_record_without_a_commit_costs_nothing(project):
    project.doit("tiny", "--goal=Say hello")
    project.git("reset", "-q", "--soft", "main")
    project.git("commit", "-qm", "All in one, in my words")
    shutil.rmtree(project.root / ".doflow")
    project.forget_calls()

    told = json.loads(project.doflow("verify", "--json").stdout)["findings"]
    for found in told:
        subprocess.run(("sh", "-c", found["hint"].partition("   ")[0]), cwd=project.root, env=project.env, check=True)

    assert {found["kind"] for found in told} == {"commit"}
    assert (findings(project), project.doit("tiny").returncode, project.calls()) == ([], 0, [])


def test_a_squashed_run_is_sound_on_main(duo):
    duo.git("switch", "-q", "main")
    duo.git("merge", "-q", "--squash", "001-a-pair")
    duo.commit("All of it")

    assert findings(duo) == []


def test_an_edit_after_the_branch_is_merged_and_gone_is_told_with_a_command_that_works(duo):
    duo.git("switch", "-q", "main")
    duo.git("merge", "-q", "--squash", "001-a-pair")
    duo.commit("All of it")
    duo.git("branch", "-q", "-D", "001-a-pair")
    (duo.run_dir() / "spec.md").write_text("# Mine\n")
    duo.commit("Mine")

    told = duo.doflow("verify").stdout
    assert "spec.md is not what the lock says" in told and "git switch" not in told, told
    command = "doit duo --run=001-a-pair --reopen"
    assert f"nothing has to be done, the run is finished; {command}" in told
    shutil.rmtree(duo.root / ".doflow")
    status, one = duo.doflow("status").stdout, duo.doflow("status", "1").stdout
    assert "completed" in status and "paused" not in status and "next:" not in status, status
    assert "completed" in one and "git switch" not in one and "nothing to do" in one, one
    assert duo.doit("duo").returncode == 0
    duo.forget_calls()
    done = duo.doit(*command.split()[1:])
    assert (done.returncode, duo.calls()) == (0, ["plan"]), done.stdout + done.stderr
    assert findings(duo) == []


def test_a_run_on_another_branch_is_named_not_blamed(duo):
    duo.git("switch", "-q", "main")

    done = duo.doflow("verify")

    assert (done.returncode, "git switch 001-a-pair && doflow verify 001-a-pair" in done.stdout) == (0, True)


def test_a_killed_run_is_found_until_it_went_on(duo):
    duo.agent("os.kill(os.getppid(), 9); import time; time.sleep(30)")
    (duo.run_dir() / "input.md").write_text("A pair of two\n")
    run = duo.start("doit", "duo")
    while run.poll() is None and "spec" not in duo.calls()[2:]:
        time.sleep(0.05)
    run.kill()
    run.communicate()
    while duo.doflow("clean", "--dry-run").returncode:
        time.sleep(0.1)

    assert findings(duo) == ["killed while spec was running: started and not finished"]

    duo.agent("echo()")
    assert duo.doit("duo").returncode == 0
    assert [words for words in findings(duo) if "killed" in words] == []


def test_the_state_of_a_run_that_lost_its_event_log_is_no_orphan(duo):
    shutil.rmtree(duo.root / ".doflow")
    assert duo.doit("duo").returncode == 0
    assert (duo.root / ".doflow/runs/001-a-pair/pipeline-state.json").exists()

    assert findings(duo) == []


def test_a_state_file_that_lies_is_found(duo):
    path = duo.root / ".doflow/runs/001-a-pair/pipeline-state.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"completed": ["spec"]}))
    assert any("says done: spec; lock file and event log say: spec, plan" in words for words in findings(duo))
    path.write_text(json.dumps(values | {"status": "active"}))
    assert any("no process is running it" in words for words in findings(duo))
    path.write_text("{")
    assert any("cannot be read" in words for words in findings(duo))
    path.unlink()
    assert findings(duo) == []


def test_what_a_killed_process_left_lying_is_found_and_cleaned(duo):
    name = ".doflow-0123456789abcdef.tmp"
    left = [f".doflow/{name}", f"specs/001-a-pair/{name}", ".doflow/flows.cache.77"]
    for path in left:
        duo.write(path, "half")
    (duo.root / ".doflow/runs/009-nothing/logs").mkdir(parents=True)

    assert findings(duo) == [".doflow/runs/009-nothing/ does not belong to any run"]
    remarks = json.loads(duo.doflow("verify", "--json").stdout)["remarks"]
    assert [words.partition(" is ")[0] for words in remarks] == sorted(left), "they do no harm"
    assert duo.doflow("clean").returncode == 0

    assert findings(duo) == []
    assert not any((duo.root / path).exists() for path in left)


def test_verify_of_an_unknown_run_lists_the_known_ones(duo):
    done = duo.doflow("verify", "7")

    assert (done.returncode, "001-a-pair" in done.stderr) == (1, True)


@pytest.fixture
def strayed(duo: Project) -> Project:
    """A step wrote where it may not."""
    duo.agent("usual(); put('deep/stray.txt', 'a stray\\x1b[31m\\n')")
    assert duo.doit("duo", "--force=plan").returncode == 1
    assert not (duo.root / "deep/stray.txt").exists()
    return duo


def kept(project: Project, path: str) -> str:
    told = json.loads(project.doflow("quarantine", "list", "--json").stdout)["kept"]
    return next(one["id"] for one in told if one["path"] == path)


def test_what_was_moved_away_is_listed_and_shown(strayed):
    ident = kept(strayed, "deep/stray.txt")

    listed = strayed.doflow("quarantine", "list")
    shown = strayed.doflow("quarantine", "show", ident[:6])

    assert ident[:8] in listed.stdout and "001-a-pair plan" in listed.stdout
    assert (shown.returncode, shown.stdout) == (0, "a stray\x1b[31m\n")
    assert strayed.doflow("quarantine", "show", "zz").returncode == 1


@pytest.mark.smoke
def test_what_was_moved_away_comes_back_and_covers_nothing(strayed):
    ident = kept(strayed, "deep/stray.txt")
    assert strayed.doflow("quarantine", "restore", ident[:6]).returncode == 0
    assert strayed.read("deep/stray.txt") == "a stray\x1b[31m\n"
    strayed.write("deep/stray.txt", "mine\n")

    refused = strayed.doflow("quarantine", "restore", ident[:6])
    assert (refused.returncode, strayed.read("deep/stray.txt")) == (1, "mine\n")
    assert "--force" in refused.stderr and "--to" in refused.stderr

    assert strayed.doflow("quarantine", "restore", ident, "--to", "found.txt").returncode == 0
    assert strayed.read("found.txt") == "a stray\x1b[31m\n"
    assert strayed.doflow("quarantine", "restore", ident, "--to", "../out.txt").returncode == 1
    assert strayed.doflow("quarantine", "restore", ident, "--force").returncode == 0
    listed = json.loads(strayed.doflow("quarantine", "list", "--json").stdout)["kept"]
    mine = next(one["id"] for one in listed if one["size"] == 5)
    assert strayed.doflow("quarantine", "show", mine).stdout == "mine\n"


def test_an_empty_quarantine_says_so(duo):
    done = duo.doflow("quarantine", "list")

    assert (done.returncode, done.stdout) == (0, "the quarantine is empty\n")


def aged(path: Path, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(path, (then, then))


@pytest.mark.smoke
def test_clean_removes_old_logs_and_what_no_run_refers_to(duo):
    logs = sorted((duo.root / ".doflow/runs/001-a-pair/logs").iterdir())
    aged(logs[0], 31)
    aged(logs[1], 8)
    useless = duo.write(".doflow/store/" + "a" * 64, "old")
    needed = [path for path in (duo.root / ".doflow/store").iterdir() if len(path.name) == 64 and path != useless]
    before = everything(duo)

    dry = duo.doflow("clean", "--dry-run")
    assert (dry.returncode, everything(duo)) == (0, before)
    done = duo.doflow("clean")

    assert logs[0].name in dry.stdout and "freed" in done.stdout
    assert (logs[0].exists(), logs[1].exists(), useless.exists()) == (False, True, False)
    assert needed and all(path.exists() for path in needed)
    assert duo.doflow("clean", "--logs", "--older-than", "7d").returncode == 0
    assert not logs[1].exists()


def test_after_clean_nothing_is_done_again(duo):
    duo.doflow("clean", "--older-than", "0s")
    duo.forget_calls()

    assert (duo.doit("duo").returncode, duo.calls(), findings(duo)) == (0, [], [])
    again = duo.doflow("clean", "--logs")
    assert (again.returncode, "nothing to clean" in again.stdout) == (0, True)


def test_the_quarantine_is_cleaned_only_when_asked_and_only_of_old_things(strayed):
    ident = kept(strayed, "deep/stray.txt")
    assert strayed.doflow("clean", "--older-than", "0s").returncode == 0
    assert kept(strayed, "deep/stray.txt") == ident

    refused = strayed.doflow("clean", "--quarantine")
    assert (refused.returncode, "--older-than" in refused.stderr) == (1, True)
    assert strayed.doflow("clean", "--quarantine", "--older-than", "1d").returncode == 0
    assert kept(strayed, "deep/stray.txt") == ident
    time.sleep(1.1)
    assert strayed.doflow("clean", "--quarantine", "--older-than", "0s").returncode == 0

    assert strayed.doflow("quarantine", "list").stdout == "the quarantine is empty\n"


@pytest.mark.parametrize("span", ["soon", "-1d", "1y", ""])
def test_a_span_that_is_none_is_refused(duo, span):
    done = duo.doflow("clean", f"--older-than={span}", "--quarantine")

    assert (done.returncode, "hint:" in done.stderr) == (1, True)


def test_clean_where_nothing_ever_ran_makes_nothing(project):
    done = project.doflow("clean")

    assert (done.returncode, (project.root / ".doflow").exists()) == (0, False)
