"""Do the vendors' own CLIs do the steps of a real run? The model is scripted, on loopback; all else is as a person has it."""

from __future__ import annotations

import pytest
from tests.support import clis
from tests.support.model import Deed, Heard, Model, Say, Shell, Write, play
from tests.support.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


FLOW = """
    flow: notes
    params: {goal: {about: What, required: true}}
    steps:
      write: {prompt: "Write the note of the day.", makes: note.md, check: {headings: [Ready]}, repair: 1}
      tell: {prompt: Tell how it ends., makes: end.md, from: text}
"""


RUN = "specs/001-a-note"


def author(project: Project) -> object:
    """Writes a note without its heading, fixes it by a shell when it is handed back, then says how it ends."""
    note = project.root / RUN / "note.md"

    def scenario(heard: Heard) -> Deed:
        if "Tell how it ends." in heard.prompt:
            return Say("# The end\n\nAll is well.")
        if "did not pass" in heard.prompt:
            return (Shell(f"printf '\\n## Ready\\n\\nYes.\\n' >> {note}"), Say("mended"))[min(heard.done, 1)]
        return (Write(str(note), "# Note\n"), Say("written"))[min(heard.done, 1)]

    return scenario


@pytest.mark.parametrize("name", clis.cases())
def test_a_cli_writes_runs_a_shell_answers_and_goes_on_in_its_session(name: str, project: Project) -> None:
    project.flow("notes", FLOW)
    with Model(author(project)) as model:  # type: ignore[arg-type]
        clis.use(project, name, model)
        done = project.doit("notes", "--goal=a note", timeout=240)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.root / RUN / "note.md").read_text().split() == ["#", "Note", "##", "Ready", "Yes."]
    assert (project.root / RUN / "end.md").read_text() == "# The end\n\nAll is well.\n"
    assert project.subjects()[-2:] == ["write: note.md", "tell: end.md"]
    fixed = [heard for heard in model.heard if "did not pass" in heard.prompt]
    assert fixed and "note of the day" not in fixed[0].prompt and "note of the day" in fixed[0].raw
    first, second, _ = (entry for entry in project.events() if entry["event"] == "returned")
    assert first["session"] == second["session"] != ""


@clis.needed("claude")
def test_a_token_and_an_address_of_the_api_are_passed_on(project: Project) -> None:
    """R0.39, R0.40: ANTHROPIC_AUTH_TOKEN is the token, ANTHROPIC_BASE_URL the endpoint; no key is needed."""
    project.flow("notes", FLOW)
    with Model(author(project)) as model:  # type: ignore[arg-type]
        clis.use(project, "claude", model)
        del project.env["ANTHROPIC_API_KEY"]
        done = project.doit("notes", "--goal=a note", env={"ANTHROPIC_AUTH_TOKEN": "a-token-of-mine"}, timeout=120)

    assert done.returncode == 0, done.stdout + done.stderr
    sent = {name.lower(): value for name, value in model.heard[0].headers.items()}
    assert sent["authorization"] == "Bearer a-token-of-mine" and "x-api-key" not in sent


STORES = {
    "claude": ".claude/projects",
    "codex": ".codex/sessions .codex/*.sqlite*",
    "opencode": ".local/share/opencode",
    "gemini": ".gemini/tmp",
}


@pytest.mark.parametrize("name", clis.cases())
def test_a_session_that_was_deleted_is_replaced_by_one_that_is_told_everything(name: str, project: Project) -> None:
    """The check deletes what the CLI keeps of its sessions, just before the note is handed back."""
    gone = " ".join(f"$HOME/{store}" for store in STORES[name].split())
    check = f'{{run: "rm -rf {gone}; grep -q Ready {RUN}/note.md"}}'
    project.flow("notes", FLOW.replace("{headings: [Ready]}", check))
    with Model(author(project)) as model:  # type: ignore[arg-type]
        clis.use(project, name, model)
        done = project.doit("notes", "--goal=a note", timeout=240)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "no longer exists; a new one gets the full prompt" in done.stdout
    fixed = [heard for heard in model.heard if "did not pass" in heard.prompt]
    assert fixed and "note of the day" in fixed[0].prompt
    first, second, _ = (entry for entry in project.events() if entry["event"] == "returned")
    assert "" != first["session"] != second["session"] != ""


# --- a write outside of the step's scope is refused while the agent runs


FENCED = """\
flow: work
steps:
  write: {prompt: Write it, makes: /out.md}
  build: {kind: implement, phases: /tasks.md, prompt: Build}
"""


TASKS = "# Tasks\n\n## Phase 1: All\n\n- [ ] [T001] Do it in src/new.py\n"


@pytest.fixture
def real(project: Project) -> Project:
    project.write("src/app.py", "as it was\n")
    project.write("tasks.md", TASKS)
    project.write("PRD.md", "as it was\n")
    project.flow("work", FENCED)
    return project


def run(project: Project, name: str, step: str, *deeds: object) -> tuple[str, Model]:
    more = f"agents:\n  default: {{use: {name}, executable: {clis.executable(name)}, model: {clis.MODELS[name]}}}\n"
    project.write("doflow.yaml", more + "protect: [PRD.md]\n")
    project.commit("Ground")
    with Model(play(*deeds)) as model:
        (project.home / "tmp").mkdir()
        env = clis.variables(name, model.url, project.home) | {"TMPDIR": str(project.home / "tmp")}
        done = project.doit(f"work:{step}", "--goal=x", env=env, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, model


@clis.needed("claude")
def test_claude_code_is_told_at_once_and_the_step_ends_well(real):
    root = real.root
    deeds = (
        Write(f"{root}/src/app.py", "evil"),
        Write(f"{root}/PRD.md", "evil"),
        Write(f"{root}/out.md", "fine"),
        Say("done"),
    )

    said, model = run(real, "claude", "write", *deeds)

    assert "src/app.py is outside the allowed paths of step write (out.md)" in model.heard[1].raw
    assert "PRD.md is protected" in model.heard[2].raw
    assert real.read("src/app.py") == real.read("PRD.md") == "as it was\n"
    assert real.read("out.md") == "fine"
    assert "quarantine" not in said


@clis.needed("claude")
def test_in_a_phase_claude_code_writes_code_and_leaves_git_alone(real):
    run(real, "claude", "write", Write(f"{real.root}/out.md", "fine"), Say("done"))
    deeds = (Write(f"{real.root}/src/new.py", "NEW = 1\n"), Shell("git commit -q -a -m mine"), Say("done"))
    with Model(play(*deeds)) as model:
        done = real.doit("work", env=clis.variables("claude", model.url, real.home), timeout=110)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "git commit: doflow commits a step's changes itself" in model.heard[2].raw
    assert real.subjects()[-1] == "Phase 1: All"
    assert real.git("show", "HEAD:src/new.py") == "NEW = 1\n"
    assert "changed git state" not in done.stdout


@clis.needed("codex")
def test_codex_is_told_at_once_and_the_step_ends_well(real):
    patch = "*** Begin Patch\n*** Update File: src/app.py\n@@\n-as it was\n+evil\n*** End Patch\n"
    deeds = (Shell(f"apply_patch <<'EOF'\n{patch}EOF"), Write("out.md", "fine"), Say("done"))

    _, model = run(real, "codex", "write", *deeds)

    assert "src/app.py is outside the allowed paths of step write (out.md)" in model.heard[1].raw
    assert (real.read("src/app.py"), real.read("out.md").strip()) == ("as it was\n", "fine")
