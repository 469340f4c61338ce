"""The schemas are schemas, each word in them is explained, and what is packaged fits them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from tests.support import checkout

from doflow.config.layers import DEFAULTS
from doflow.flow.model import Profile, Settings, Step
from doflow.flow.parsing import loader
from doflow.hooks import machine_loader

SCHEMAS = sorted((checkout.TOP / "schemas").glob("*.json"))
FLOWS = sorted((checkout.TOP / "flows").glob("*.yaml"))


def read(name: str) -> dict[str, Any]:
    return json.loads((checkout.TOP / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))


def properties(node: Any, where: str = "$") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every property of a schema, at any depth: where, its name, what it says."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "properties" and not where.endswith(".if"):
                yield from ((where, key, said) for key, said in value.items())
            yield from properties(value, f"{where}.{name}")
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from properties(value, f"{where}[{number}]")


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_a_schema_is_valid_2020_12(path: Path) -> None:
    schema = json.loads(path.read_text(encoding="utf-8"))

    Draft202012Validator.check_schema(schema)

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_every_property_of_a_schema_is_described(path: Path) -> None:
    silent = [
        f"{where}.{name}"
        for where, name, said in properties(json.loads(path.read_text(encoding="utf-8")))
        if not said.get("description")
    ]

    assert silent == []


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_every_object_of_a_schema_refuses_unknown_keys(path: Path) -> None:
    def loose(node: Any, where: str) -> Iterator[str]:
        if isinstance(node, dict):
            if node.get("type") == "object" and "additionalProperties" not in node:
                yield where
            for name, value in node.items():
                yield from loose(value, f"{where}.{name}")
        elif isinstance(node, list):
            for value in node:
                yield from loose(value, where)

    assert list(loose(json.loads(path.read_text(encoding="utf-8")), "$")) == []


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.name)
def test_a_packaged_flow_fits_the_schema_and_loads(path: Path, tmp_path: Path) -> None:
    Draft202012Validator(read("flow")).validate(yaml.safe_load(path.read_text(encoding="utf-8")))

    flow = loader.load_flow(path, tmp_path)

    assert flow.name == path.stem
    assert flow.about, "shown by `doit list`"


@pytest.mark.parametrize(
    "path", sorted((checkout.TOP / "flows" / "machines").glob("*.yaml")), ids=lambda path: path.name
)
def test_a_packaged_machine_fits_the_schema_and_is_proved(path: Path) -> None:
    Draft202012Validator(read("machine")).validate(yaml.safe_load(path.read_text(encoding="utf-8")))

    assert machine_loader.load_machine_file(path)["about"]


def test_a_project_without_flows_of_its_own_has_all_the_packaged_ones(tmp_path: Path) -> None:
    found = loader.load_catalogue(tmp_path)

    assert (sorted(found.flows), found.broken) == ([path.stem for path in FLOWS], {})


def test_every_key_of_a_step_has_its_place_in_the_model() -> None:
    keys = set(read("flow")["$defs"]["step"]["properties"])

    assert keys - {f.name for f in fields(Step)} == {"from", "arguments"}


def test_every_setting_has_a_default_that_the_schema_allows() -> None:
    schema = read("doflow")

    assert set(schema["properties"]) == set(DEFAULTS)
    Draft202012Validator(schema).validate(DEFAULTS)


def test_every_key_of_a_profile_has_its_place_in_the_model() -> None:
    keys = set(read("doflow")["$defs"]["profile"]["properties"])

    assert keys - {f.name for f in fields(Profile)} == {"rate_limit"}
    assert "agents" in (f.name for f in fields(Settings))
