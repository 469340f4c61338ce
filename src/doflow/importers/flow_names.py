"""Names for imported flows."""

from __future__ import annotations

from doflow.flow.parsing import loader
from doflow.flow.parsing.syntax import COMMANDS
from doflow.importers import flow_text


def free_name(wanted: str, prefix: str) -> str:
    """A valid name; one that doit or a packaged flow has gets a prefix."""
    name = flow_text.step_name(wanted)
    taken = name in COMMANDS or (loader.packaged_flows() / f"{name}.yaml").exists()
    return flow_text.step_name(f"{prefix}-{name}") if taken else name
