"""Do the pages tell the truth? Every key, every verb, every example, every session that a reader can follow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import checkout, pages

from doflow.agents import registry
from doflow.cli import main
from doflow.cli.commands import run
from doflow.config import settings
from doflow.flow.parsing import loader
from doflow.hooks import machine_loader

README = checkout.TOP / "README.md"
DOCS = checkout.TOP / "docs"


def keys(node: Any) -> Iterator[str]:
    """Every property of a schema, at any depth."""
    if isinstance(node, dict):
        yield from node.get("properties", {}) if isinstance(node.get("properties"), dict) else ()
        for value in node.values():
            yield from keys(value)
    elif isinstance(node, list):
        for value in node:
            yield from keys(value)


@pytest.mark.parametrize(
    ("schema", "page"), [("flow", "flows.md"), ("doflow", "settings.md"), ("machine", "machines.md")]
)
def test_every_key_of_a_schema_is_on_its_page(schema: str, page: str) -> None:
    known = set(keys(json.loads((checkout.TOP / "schemas" / f"{schema}.schema.json").read_text(encoding="utf-8"))))
    text = (DOCS / page).read_text(encoding="utf-8")
    shown = {word for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"[a-z_]+", code)}

    assert sorted(known - shown) == []


def test_every_packaged_flow_is_on_the_page_of_flows() -> None:
    text = (DOCS / "flows.md").read_text(encoding="utf-8").partition("## Packaged flows")[2].partition("\n## ")[0]

    assert set(re.findall(r"^\| `([\w-]+)`", text, re.M)) == {
        path.stem for path in (checkout.TOP / "flows").glob("*.yaml")
    }


def test_every_verb_is_on_the_page_of_commands_and_no_other() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^### doflow (\w+)$", text, re.M)) == set(main.VERBS)


def test_every_verb_of_the_help_can_be_asked_for_help() -> None:
    program = Path(sys.executable).with_name("doflow")
    told = subprocess.run((program, "--help"), capture_output=True, text=True, check=True).stdout

    assert re.findall(r"^  (\w+) +\S", told, re.M) == list(main.VERBS)
    for verb in main.VERBS:
        done = subprocess.run((program, verb, "--help"), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), verb
        assert f"doflow {verb}" in done.stdout


def test_every_option_of_a_run_is_on_the_page_of_commands() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    options = set(re.findall(r"^  (--[\w-]+)", run.HELP, re.M)) - {"--NAME"}

    assert options, "the help lists none"
    assert {option for option in options if not re.search(rf"`{option}[`= ]", text)} == set()


@pytest.mark.parametrize("block", pages.files(below="flows/machines/"), ids=lambda block: block.name)
def test_every_machine_on_a_page_loads(block: pages.Block, tmp_path: Path) -> None:
    path = tmp_path / block.file
    path.parent.mkdir(parents=True)
    path.write_text(block.text)

    assert machine_loader.load_machine(tmp_path, path.stem)["machine"] == path.stem


FLOWS = [block for block in pages.files(below="flows/") if not block.file.startswith("flows/machines/")]


@pytest.mark.parametrize("block", FLOWS, ids=lambda block: block.name)
def test_every_flow_on_a_page_loads(block: pages.Block, tmp_path: Path) -> None:
    path = tmp_path / block.file
    path.parent.mkdir(parents=True)
    path.write_text(block.text)

    flow = loader.load_flow(path, tmp_path)

    assert flow.name == path.stem


@pytest.mark.parametrize("block", pages.files(below="doflow.yaml"), ids=lambda block: block.name)
def test_every_settings_file_on_a_page_loads_and_a_run_would_take_it(block: pages.Block, tmp_path: Path) -> None:
    (tmp_path / "doflow.yaml").write_text(block.text)

    found = settings.load(tmp_path, {})

    assert {profile.use for profile in found.agents} <= set(registry.KNOWN)


def test_the_settings_page_shows_every_setting_that_a_run_takes() -> None:
    (block,) = [block for block in pages.files(below="doflow.yaml") if block.page == "settings.md"]
    wanted = set(json.loads((checkout.TOP / "schemas" / "doflow.schema.json").read_text())["properties"])

    assert wanted - set(re.findall(r"^(\w+):", block.text, re.M)) == set()


SUPPORTED = {
    "`kind: flow`": "steps: {a: {kind: flow, flow: tiny}}",
    "`foreach`": "steps: {a: {prompt: do, makes: a.md, foreach: [x]}}",
    "`via: tmux`": "steps: {a: {prompt: do, makes: a.md, via: tmux}}",
    "`judge`": "steps: {a: {prompt: do, makes: a.md, judge: x}}",
    "`machine`": "steps: {a: {prompt: do, makes: a.md, machine: x}}",
    "`budget`": "steps: {a: {prompt: do, makes: a.md, budget: {usd: 1}}}",
    "`kind: review`": "steps: {a: {kind: review, reads: [input.md]}}",
}


@pytest.mark.parametrize("word", SUPPORTED)
def test_the_readme_does_not_say_of_a_key_that_loads_that_it_is_missing(word: str, tmp_path: Path) -> None:
    section = README.read_text(encoding="utf-8").partition("## Not in this version")[2].partition("\n## ")[0]
    path = tmp_path / "flows" / "f.yaml"
    path.parent.mkdir()
    path.write_text(f"flow: f\n{SUPPORTED[word]}\n")

    flow = loader.load_flow(path, tmp_path)

    assert [step.id for step in flow.steps] == ["a"]
    assert word not in section


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lost = []
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            lost.append(target)

    assert lost == []


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", ["README.md", "docs/getting-started.md"])
def test_what_a_page_shows_is_what_happens(name: str, tmp_path: Path) -> None:
    assert pages.follow(checkout.TOP / name, tmp_path) == []


def test_the_ci_runs_the_commands_of_the_readme() -> None:
    script = checkout.TOP / ".ci" / "run"
    assert os.access(script, os.X_OK)

    for mark in ("test", "demo"):
        done = subprocess.run((script, "--print", mark), capture_output=True, text=True, check=True)
        assert done.stdout == pages.marked(README, mark) + "\n"


def test_the_changelog_begins_with_this_version_or_the_next() -> None:
    from doflow.util.version import VERSION

    versions = re.findall(r"^## (\S+)$", (checkout.TOP / "CHANGELOG.md").read_text(), re.M)
    assert VERSION in versions[:2]


def test_the_project_uses_itself() -> None:
    assert (checkout.TOP / "dodo.py").read_text() == "import doflow\nglobals().update(doflow.dodo())\n"
