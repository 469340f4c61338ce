"""Programs in panes: how each is started, what runs around it, how it is ended, how an answer is typed."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.supervision import eventually

from doflow.flow.model import Profile
from doflow.supervise.panes import agent_pane, programs, tmux
from doflow.supervise.panes.programs import PaneRequest
from doflow.util.errors import FlowError, UsageError

pytestmark = pytest.mark.smoke

ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/home/ada", "ANTHROPIC_API_KEY": "k", "SECRET": "s", "CLAUDECODE": "1"}


def wish(tmp_path: Path, **more: Any) -> PaneRequest:
    usual = {"profile": Profile("mine", "claude", "opus"), "prompt": "Do it.", "folder": str(tmp_path / "seat")}
    return PaneRequest(**{**usual, "root": str(tmp_path), "cwd": str(tmp_path), **more})


def test_claude_code_starts_with_hooks_style_and_prompt(tmp_path: Path) -> None:
    """R2.39."""
    start = programs.build_program(wish(tmp_path, style="orchestrator", variables={"DOFLOW_NODE": "a"}), ENVIRON)

    argv = start.command.argv
    assert argv[0] == "claude"
    assert argv[-2:] == ("--", "Do it.")
    assert argv[argv.index("--model") + 1] == "opus"
    settings = json.loads(dict(start.files)["settings.json"])
    assert settings["outputStyle"] == "orchestrator"
    assert set(settings["hooks"]) == {"SessionStart", "UserPromptSubmit", "Stop", "SessionEnd", "PreToolUse"}
    env = start.command.env
    assert (env["ANTHROPIC_API_KEY"], env["DOFLOW_NODE"], env["DOFLOW_SEAT"]) == ("k", "a", str(tmp_path / "seat"))
    assert not {"SECRET", "CLAUDECODE"} & env.keys()
    assert start.tells


def test_a_style_as_text_goes_into_the_system_prompt_and_a_session_is_resumed(tmp_path: Path) -> None:
    start = programs.build_program(
        wish(tmp_path, style="x", style_text="Be brief.", resume="abc", words=("--tools", "Read")), {}
    )

    argv = start.command.argv
    assert argv[argv.index("--append-system-prompt") + 1] == "Be brief."
    assert argv[argv.index("--resume") + 1] == "abc"
    assert argv[argv.index("--tools") + 1] == "Read"
    assert "--allowedTools" not in argv
    assert "outputStyle" not in json.loads(dict(start.files)["settings.json"])


def test_a_prompt_that_is_too_long_for_an_argument_is_read_from_its_file(tmp_path: Path) -> None:
    start = programs.build_program(wish(tmp_path, prompt="x" * 150_000), ENVIRON)

    assert start.command.argv[-1] == f"Read the file {tmp_path}/seat/prompt.md and do what it says."
    assert len(dict(start.files)["prompt.md"]) == 150_000


def test_a_program_of_ones_own_finds_its_prompt_in_a_file(tmp_path: Path) -> None:
    profile = Profile("mine", "command", argv=("sh", "x.sh"), args=("-v",))

    start = programs.build_program(wish(tmp_path, profile=profile, style_text="Be brief."), ENVIRON)

    assert start.command.argv == ("sh", "x.sh", "-v")
    assert dict(start.files)["prompt.md"] == "Be brief.\n\nDo it."
    assert start.command.env["DOFLOW_PROMPT"] == str(tmp_path / "seat" / "prompt.md")
    assert not start.tells


@pytest.mark.parametrize(
    ("use", "may", "words"),
    [
        ("codex", "run", ("-s", "workspace-write")),
        ("codex", "read", ("-s", "read-only")),
        ("gemini", "run", ("--approval-mode", "yolo")),
        ("gemini", "write", ("--approval-mode", "auto_edit")),
        ("gemini", "read", ("--approval-mode", "default")),
    ],
)
def test_codex_and_gemini_start_with_what_they_may_do_and_their_prompt_last(
    use: str, may: str, words: tuple[str, str], tmp_path: Path
) -> None:
    start = programs.build_program(
        wish(tmp_path, profile=Profile("x", use, "m"), may=may, style_text="Be brief."), ENVIRON
    )

    argv = start.command.argv
    assert argv[0] == use
    assert argv[argv.index(words[0]) + 1] == words[1]
    assert argv[-1] == "Be brief.\n\nDo it."
    assert "m" in argv
    assert not start.tells


@pytest.mark.parametrize(("may", "allowed"), [("run", ["edit", "bash", "webfetch"]), ("write", ["edit"]), ("read", [])])
def test_opencode_starts_with_its_prompt_and_is_denied_what_it_may_not_do(
    may: str, allowed: list[str], tmp_path: Path
) -> None:
    start = programs.build_program(wish(tmp_path, profile=Profile("x", "opencode", "a/m"), may=may), ENVIRON)

    assert start.command.argv == ("opencode", "--model", "a/m", "--prompt", "Do it.")
    permission = json.loads(start.command.env["OPENCODE_PERMISSION"])
    assert [tool for tool, said in permission.items() if said == "allow"] == allowed
    assert set(permission.values()) <= {"allow", "deny"}, "no open questions or signals for a dialog that nobody reads"
    assert not start.tells


def test_what_cannot_work_in_a_pane_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`use: rehearsal` cannot run in a tmux pane"):
        programs.build_program(wish(tmp_path, profile=Profile("dry", "rehearsal")), {})
    with pytest.raises(UsageError, match="`sandbox: bwrap` is not supported in a tmux pane"):
        programs.build_program(wish(tmp_path, profile=Profile("safe", "claude", sandbox="bwrap")), {})
    with pytest.raises(FlowError, match="needs an `argv`"):
        programs.build_program(wish(tmp_path, profile=Profile("mine", "command")), {})
    with pytest.raises(UsageError, match="doflow sets --permission-mode"):
        programs.build_program(wish(tmp_path, profile=Profile("c", "claude", args=("--permission-mode=plan",))), {})


def test_the_hook_leaves_what_it_was_told_as_a_whole_file(tmp_path: Path) -> None:
    folder = tmp_path / "a seat"
    (folder / "events").mkdir(parents=True)
    start = programs.build_program(wish(tmp_path, folder=str(folder)), ENVIRON)
    for name, text in start.files:
        (folder / name).write_text(text)
    hooks = json.loads((folder / "settings.json").read_text())["hooks"]
    command = hooks["Stop"][0]["hooks"][0]["command"]
    record = {"hook_event_name": "Stop", "last_assistant_message": "It's done."}

    subprocess.run(("sh", "-c", command), input=json.dumps(record), text=True, check=True)

    ((name, found),) = agent_pane.AgentPane(tmux.Tmux("none"), "s", str(folder)).events("Stop")
    assert name.startswith("Stop-")
    assert found == record
    assert not list(folder.glob(".hook*"))


def test_session_and_socket_names() -> None:
    """R2.80: impl_auth works in orch-impl-auth; a server per project and pipeline."""
    assert tmux.session_name("impl_auth") == "orch-impl-auth"
    assert tmux.session_name("a.b:c d") == "orch-a-b-c-d"
    assert tmux.session_name("--") == "orch-node"
    names = {tmux.socket_name(root, name, {}) for root in ("/a", "/b") for name in ("", "p", "q")}
    assert len(names) == 6
    assert tmux.socket_name("/a", "p", {"DOFLOW_TMUX": "mine"}) == "mine"


def launch(folder: Path, script: str, leash: str = "") -> subprocess.Popen[bytes]:
    """The launcher as a pane would run it, without a terminal."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {"PATH": os.environ["PATH"], "DOFLOW_SEAT": str(folder)}
    spec = {"argv": ["sh", "-c", script], "env": env, "cwd": str(folder), "leash": leash}
    (folder / "spec.json").write_text(json.dumps(spec))
    return subprocess.Popen(
        (sys.executable, "-I", "-m", "doflow.supervise.panes.launcher", str(folder)), start_new_session=True
    )


def read(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / name).read_text())


def test_the_launcher_tells_of_start_and_end_and_forgets_the_environment(tmp_path: Path) -> None:
    launcher = launch(tmp_path / "s", 'echo "$DOFLOW_SEAT" > seen.txt; exit 7')

    assert launcher.wait(timeout=60) == 7
    assert read(tmp_path / "s", "exit.json")["code"] == 7
    assert read(tmp_path / "s", "started.json")["pid"] == launcher.pid
    assert not (tmp_path / "s" / "spec.json").exists(), "it held the environment"
    assert (tmp_path / "s" / "seen.txt").read_text().strip() == str(tmp_path / "s")


def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    launcher = launch(tmp_path / "s", "setsid sleep 600 & echo $! > pid; sleep 0.2")

    assert launcher.wait(timeout=60) == 0
    assert not _lives(int((tmp_path / "s" / "pid").read_text()))


@pytest.mark.smoke("15")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_closed_pane_ends_the_whole_tree_and_is_no_exit_code(number: int, tmp_path: Path) -> None:
    launcher = launch(tmp_path / "s", "trap '' HUP TERM; setsid sleep 600 & echo $! > pid; sleep 600")
    assert eventually(lambda: (tmp_path / "s" / "pid").exists() and (tmp_path / "s" / "pid").read_text().strip())
    launcher.send_signal(number)

    launcher.wait(timeout=60)

    assert read(tmp_path / "s", "exit.json")["signal"] == number
    found = agent_pane.AgentPane(tmux.Tmux("none"), "s", str(tmp_path / "s"))
    assert (found.state(), found.exit_code()) == (agent_pane.ENDED, None)
    assert not _lives(int((tmp_path / "s" / "pid").read_text()))


def test_a_program_on_a_leash_ends_when_no_one_holds_it(tmp_path: Path) -> None:
    leash = tmp_path / "leash"
    with open(leash, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        launcher = launch(tmp_path / "s", "sleep 600", str(leash))
        time.sleep(0.7)
        assert launcher.poll() is None

    launcher.wait(timeout=60)
    assert read(tmp_path / "s", "exit.json")["signal"] == signal.SIGTERM


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    spec = {"argv": ["no-such-program"], "env": {"PATH": "/usr/bin"}, "cwd": str(folder)}
    (folder / "spec.json").write_text(json.dumps(spec))

    done = subprocess.run(
        (sys.executable, "-I", "-m", "doflow.supervise.panes.launcher", str(folder)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 127
    assert "program not found: no-such-program" in done.stdout
    assert read(folder, "exit.json")["code"] == 127


def test_a_launcher_without_its_orders_says_so_and_is_known_to_have_ended(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()

    done = subprocess.run((sys.executable, "-I", "-m", "doflow.supervise.panes.launcher", str(folder)), check=False)

    assert done.returncode == 125
    assert agent_pane.AgentPane(tmux.Tmux("none"), "s", str(folder)).state() == agent_pane.ENDED


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


class Pane:
    """Stands for a pane that shows these screens, one after the other, and keeps what is typed."""

    def __init__(self, *screens: str) -> None:
        self.screens = list(screens)
        self.typed: list[str] = []
        self.session, self.tmux = "s", self

    def screen(self, lines: int) -> str:
        assert lines
        return self.screens.pop(0) if len(self.screens) > 1 else self.screens[0]

    def type(self, session: str, text: str) -> None:
        self.typed.append(f"type {text}")

    def press(self, session: str, *keys: str) -> None:
        self.typed.append(f"press {' '.join(keys)}")


MENU = "Which database?\n❯ 1. Postgres\n  2. SQLite\n"
FREE = f"{MENU}  3. Type something.\n"


@pytest.mark.parametrize(
    ("screens", "answer", "typed", "done"),
    [
        ((MENU, "gone"), "sqlite", ["press 2"], True),
        ((MENU, MENU, MENU, "gone"), "sqlite", ["press 2"], True),
        ((MENU,), "2", ["press 2", "press Enter"], True),
        ((MENU,), "MySQL", [], False),
        ((FREE,), "MySQL", ["press 3", "type MySQL"], True),
        (("Your name? ",), "Ada", ["type Ada"], True),
        (("Sure? [y/N] ",), "n", ["type n"], True),
    ],
)
def test_an_answer_is_typed_as_the_screen_wants_it(
    screens: tuple[str, ...], answer: str, typed: list[str], done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2.37; what fits no option of a menu is not typed: Enter would take the first one."""
    monkeypatch.setattr(agent_pane, "REDRAW", 60.0 if "gone" in screens else 0.3)
    pane = Pane(*screens)

    assert agent_pane.type_answer(pane, answer) is done  # type: ignore[arg-type]
    assert pane.typed == typed


def test_tokens_are_counted_from_the_transcript_each_message_once(tmp_path: Path) -> None:
    """R2.38."""
    transcript = tmp_path / "t.jsonl"
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": None, "output_tokens": 5}
    lines = [{"message": {"id": "m1", "usage": usage}}] * 2 + [{"message": {"id": "m2", "usage": usage}}, {"type": "x"}]
    transcript.write_text("\n".join([*map(json.dumps, lines), "{torn"]))
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "Stop-1-1.json").write_text(json.dumps({"transcript_path": str(transcript)}))
    found = agent_pane.AgentPane(tmux.Tmux("none"), "s", str(tmp_path))

    assert agent_pane.token_usage(found) == {"tokens_in": 200, "tokens_out": 10, "context": 100}
    (tmp_path / "events" / "Stop-1-1.json").unlink()
    assert agent_pane.token_usage(found) == {}
