"""Does `doflow agents` say what is there, what is missing, and what to type?"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.support.clis import PROGRAMS
from tests.support.project import Project

HELP = {name: " ".join(flags for _, flags in program.asks) for name, program in PROGRAMS.items()}


def stand_in(
    folder: Path, name: str, *, version: str = "", without: str = "", login: int = 1, broken: bool = False
) -> None:
    """A program with the name of a CLI that knows its version and its flags, and nothing else."""
    words = " ".join(word for word in HELP[name].split() if word != without)
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(
        "#!/bin/sh\n"
        + ("exit 3\n" if broken else "")
        + f'case "$*" in --version) echo "{name} {version or PROGRAMS[name].tried}";; *--help) echo "{words}";; '
        f"*) exit {login};; esac\n"
    )
    program.chmod(0o755)


def agents(project: Project, *args: str, **env: str) -> tuple[int, dict[str, dict]]:
    """By profile, or by agent where no profile uses it. Nothing but the stand-ins and the system is on PATH."""
    path = f"{project.outside / 'bin'}:/usr/bin:/bin"
    done = project.doflow("agents", "--json", *args, env={"PATH": path, **env})
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)["agents"]
    return done.returncode, {one["use"] if one["profile"] == "-" else one["profile"]: one for one in found}


@pytest.mark.smoke
def test_every_profile_and_every_other_agent_is_told(project: Project) -> None:
    stand_in(project.outside / "bin", "claude", login=0)
    stand_in(project.outside / "bin", "codex", version="0.9.1")
    project.write("doflow.yaml", "agents:\n  default: {use: claude, model: sonnet}\n  dry: {use: rehearsal}\n")

    code, found = agents(project)

    assert code == 0, "an agent that nobody uses may be missing"
    assert list(found) == ["default", "dry", "codex", "opencode", "gemini"]
    assert (found["default"]["version"], found["default"]["login"], found["default"]["problem"]) == (
        "2.1.325",
        "yes",
        "",
    )
    assert (found["codex"]["version"], found["codex"]["tried"]) == ("0.9.1", "0.166.0")
    assert found["codex"]["login"] == "not found" and found["codex"]["hint"] == "codex login"
    assert found["gemini"]["problem"] == "gemini is not installed"
    assert found["gemini"]["hint"] == "npm install -g @google/gemini-cli"


@pytest.mark.smoke
def test_a_flag_that_its_help_does_not_name_makes_an_agent_unusable(project: Project) -> None:
    stand_in(project.outside / "bin", "gemini", without="--approval-mode")
    project.write("doflow.yaml", "agents:\n  default: {use: gemini}\n")

    code, found = agents(project, "default")

    assert (code, list(found), found["default"]["missing"]) == (1, ["default"], ["--approval-mode"])
    assert found["default"]["hint"].endswith("npm install -g @google/gemini-cli@0.61.0")


def test_a_profile_without_its_program_or_with_a_broken_one_says_what_to_type(project: Project) -> None:
    stand_in(project.outside / "bin", "codex", broken=True)
    project.write(
        "doflow.yaml",
        "agents:\n  default: {use: claude, executable: /nowhere/claude}\n  two: {use: codex}\n"
        "  mine: {use: command, argv: [no-such-program]}\n",
    )

    code, found = agents(project)

    assert code == 1
    assert found["default"]["problem"] == "/nowhere/claude is not installed"
    assert "agents.default.executable" in found["default"]["hint"]
    assert "version" in found["two"]["problem"] and "--version" in found["two"]["hint"]
    assert "agents.mine.argv" in found["mine"]["hint"]


@pytest.mark.parametrize(
    ("use", "variable"),
    [("claude", "ANTHROPIC_AUTH_TOKEN"), ("codex", "OPENAI_API_KEY"), ("gemini", "GEMINI_API_KEY")],
)
def test_a_key_in_the_environment_speaks_for_a_login_and_is_not_shown(
    use: str, variable: str, project: Project
) -> None:
    stand_in(project.outside / "bin", use)
    project.write("doflow.yaml", f"agents:\n  default: {{use: {use}}}\n")

    code, found = agents(project, "default", **{variable: "very-secret"})

    assert (code, found["default"]["login"]) == (0, f"by {variable}")
    assert "very-secret" not in json.dumps(found)


def test_a_person_reads_a_table_and_what_to_type(project: Project) -> None:
    project.write("doflow.yaml", "agents:\n  default: {use: claude}\n")

    done = project.doflow("agents", env={"PATH": "/usr/bin:/bin"})

    assert done.returncode == 1
    assert "default: claude is not installed\n  npm install -g @anthropic-ai/claude-code" in done.stdout
    assert project.doflow("agents", "nobody").returncode == 1


def test_outside_of_a_project_all_of_them_are_told(tmp_path: Path, project: Project) -> None:
    done = project.doflow("agents", "--json", cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})

    assert done.returncode == 0, done.stderr
    assert [one["use"] for one in json.loads(done.stdout)["agents"]] == ["claude", "codex", "opencode", "gemini"]


@pytest.mark.smoke
def test_a_flag_that_doflow_sets_itself_is_refused_before_a_run_begins(project: Project) -> None:
    project.write("doflow.yaml", "agents:\n  default: {use: claude, args: [--model, opus]}\n")
    project.commit()

    done = project.doit("tiny", "--goal=x")

    assert done.returncode == 1
    assert "agents.default.args: '--model'" in done.stdout and "`model:`" in done.stdout
    assert project.runs() == [] and project.git("branch", "--format=%(refname:short)").split() == ["main"]


@pytest.mark.smoke
def test_an_agent_whose_sandbox_cannot_be_had_cannot_be_used(project: Project) -> None:
    stand_in(project.outside / "bin", "claude", login=0)
    (project.outside / "bin" / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2\nexit 1\n")
    (project.outside / "bin" / "bwrap").chmod(0o755)
    project.write("doflow.yaml", "agents:\n  default: {use: claude, sandbox: bwrap}\n")

    code, found = agents(project, "default")

    assert code == 1
    assert "`sandbox: bwrap` cannot work here: bwrap: No permissions" in found["default"]["problem"]
    assert "remove `sandbox` from doflow.yaml" in found["default"]["hint"]


def test_an_agent_without_bubblewrap_for_its_sandbox_cannot_be_used(project: Project) -> None:
    bare = project.outside / "bare"
    bare.mkdir()
    for name in ("git", "sh", "env"):
        (bare / name).symlink_to(shutil.which(name) or "/bin/sh")
    project.write("doflow.yaml", "agents:\n  default: {use: command, argv: [sh], sandbox: bwrap}\n")

    done = project.doflow("agents", "default", env={"PATH": str(bare)})

    assert done.returncode == 1
    assert "cannot be used" in done.stdout
    assert "needs bubblewrap, which is not installed" in done.stdout and "apt install bubblewrap" in done.stdout


def test_a_sandbox_for_the_rehearsal_is_refused_before_a_run_begins(project: Project) -> None:
    project.write("doflow.yaml", "agents:\n  default: {use: rehearsal, sandbox: bwrap}\n")
    project.commit("Settings")

    done = project.doit("tiny", "--goal=x")

    assert done.returncode == 1
    assert "agents.default: `sandbox` does not apply to `use: rehearsal`" in done.stdout + done.stderr
    assert project.runs() == [] and agents(project, "default")[0] == 1


def test_a_default_that_no_one_wrote_down_is_told_as_such(project: Project) -> None:
    project.write("doflow.yaml", "agents:\n  dry: {use: rehearsal}\n")

    done = project.doflow("agents", env={"PATH": "/usr/bin:/bin"})

    assert done.returncode == 1 and "default: claude is not installed" in done.stdout
    assert "doflow.yaml defines no `default`, so this agent does the steps that name none" in done.stdout


def test_outside_of_a_project_a_probe_says_that_no_one_was_asked(project: Project, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()

    done = project.doflow("agents", "--probe", cwd=tmp_path / "elsewhere", env={"PATH": "/usr/bin:/bin"})

    assert done.returncode == 0
    assert "nothing was called" in done.stdout and "doflow agents claude --probe" in done.stdout
