"""Do the vendors' own CLIs do the steps of a real run? The model is scripted, on loopback; all else is as a person has it."""

from __future__ import annotations

import pytest
from tests.support import clis
from tests.support.model import Deed, Heard, Model, Say, Shell, Write
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
    """Writes a note without its heading, mends it by a shell when it is handed back, then says how it ends."""
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
    mended = [heard for heard in model.heard if "did not pass" in heard.prompt]
    assert mended and "note of the day" not in mended[0].prompt and "note of the day" in mended[0].raw
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
    mended = [heard for heard in model.heard if "did not pass" in heard.prompt]
    assert mended and "note of the day" in mended[0].prompt
    first, second, _ = (entry for entry in project.events() if entry["event"] == "returned")
    assert "" != first["session"] != second["session"] != ""
