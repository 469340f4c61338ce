"""The program of the `rehearsal` agent: writes files that pass every check, from the DOFLOW_* variables alone.

Run as `python -I -S rehearsal_program.py`; it imports nothing of doflow. What it writes depends on the step, the goal and
how often it was asked, so two rehearsals of one flow give the same bytes.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOTE = "This is a rehearsal: no model wrote it, and it settles nothing."
REVISED = "Revised in rehearsal"
PHASES = ("Groundwork", "The thing itself", "Polish")


def main(env: dict[str, str]) -> int:
    sys.stdin.buffer.read()
    check = json.loads(env.get("DOFLOW_CHECK") or "{}")
    makes = [path for path in env.get("DOFLOW_MAKES", "").split("\n") if path]
    said = f"{NOTE} Step: {env.get('DOFLOW_STEP', '')}."
    if env.get("DOFLOW_ROLE") == "persona":
        said += "\nVERDICT: GO"
    elif env.get("DOFLOW_FROM_TEXT"):
        said = composed(makes[0] if makes else "", check, env).rstrip("\n")
    else:
        for path in [*makes, *phase_file(env)]:
            write(path, composed(path, check, env))
    markers = [line for line in env.get("DOFLOW_MARKERS", "").split("\n") if line]
    sys.stdout.buffer.write("\n".join([said, *markers[:1], ""]).encode("utf-8", "surrogateescape"))
    return 0


def phase_file(env: dict[str, str]) -> list[str]:
    phase = env.get("DOFLOW_PHASE", "")
    return [os.path.join(env.get("DOFLOW_ROOT") or os.getcwd(), "rehearsal", f"phase-{phase}.md")] if phase else []


def composed(path: str, check: dict[str, Any], env: dict[str, str]) -> str:
    """The next text of an artifact: a first version, or the existing text with one more line."""
    kind = os.path.splitext(path)[1].lower()
    old = read(path)
    if kind in (".json", ".yaml", ".yml"):
        return data(kind, old, check, env)
    if kind == ".sh":  # a script of comments passes
        return old or "".join(f"# {line}".rstrip() + "\n" for line in first(path, check, env).splitlines())
    if not old.strip():
        return first(path, check, env)
    lines = old.splitlines()
    missing = [title for title in check.get("headings", ()) if title not in {line.lstrip("# ") for line in lines}]
    text = old.rstrip("\n") + "\n" + "".join(section(title) for title in missing)
    if check.get("tasks") and "## Phase 1:" not in text:
        text += tasks()
    return f"{text}\n{REVISED}, time {old.count(REVISED) + 1}.\n"


def first(path: str, check: dict[str, Any], env: dict[str, str]) -> str:
    name = os.path.splitext(os.path.basename(path))[0] or env.get("DOFLOW_STEP", "")
    text = f"# {name}\n\n{NOTE}\n\nStep: {env.get('DOFLOW_STEP', '')}\n"
    goal = " ".join(env.get("DOFLOW_GOAL", "").split())
    text += f"\nGoal: {goal}\n" if goal else ""
    text += "".join(section(title) for title in check.get("headings", ()))
    return text + (tasks() if check.get("tasks") else "")


def section(title: str) -> str:
    return f"\n## {title}\n\nRehearsed: what belongs under “{title}” would go here.\n"


def tasks() -> str:
    text, number = "", 0
    for phase, title in enumerate(PHASES, 1):
        text += f"\n## Phase {phase}: {title}\n\n"
        for part in ("make", "check"):
            number += 1
            text += f"- [ ] [T{number:03d}] {part.capitalize()} rehearsal/phase-{phase}.md\n"
    return text


def data(kind: str, old: str, check: dict[str, Any], env: dict[str, str]) -> str:
    """A data file (JSON is YAML too). An existing file is kept; a YAML file gets one more comment."""
    if old.strip():
        return old if kind == ".json" else f"{old.rstrip()}\n# {REVISED}, time {old.count(REVISED) + 1}.\n"
    if check.get("backlog"):
        return dumps({"backlog": [backlog()]}) + "\n"
    schema = find_schema(check.get("schema", ""), env.get("DOFLOW_ROOT", ""))
    value = example(schema, schema) if schema else {"rehearsal": NOTE, "step": env.get("DOFLOW_STEP", ""), "items": []}
    text = dumps(value) + "\n"
    return text if kind == ".json" else f"# {NOTE}\n{text}"


def backlog() -> dict[str, Any]:
    """A phase with one milestone and one task of two subtasks."""
    scope = ("1. RESEARCH NOTE: none", "2. INPUT: none", "3. LOGIC: rehearsed", "4. OUTPUT: rehearsal/")
    items = [
        {**item("Subtask", f"P1.M1.T1.S{number}", title), "story_points": 1, "dependencies": before,
         "context_scope": "\n".join(("CONTRACT DEFINITION:", *scope))}
        for number, title, before in ((1, PHASES[0], []), (2, PHASES[1], ["P1.M1.T1.S1"]))
    ]  # fmt: skip
    task = {**item("Task", "P1.M1.T1", "A rehearsed task"), "subtasks": items}
    return {**item("Phase", "P1", "A rehearsed phase"),
            "milestones": [{**item("Milestone", "P1.M1", "A rehearsed milestone"), "tasks": [task]}]}  # fmt: skip


def item(kind: str, name: str, title: str) -> dict[str, Any]:
    return {"type": kind, "id": name, "title": title, "status": "Planned", "description": NOTE}


def find_schema(name: str, root: str) -> dict[str, Any]:
    for folder in ("", "flows", "schemas", os.path.join("flows", "schemas")):
        text = read(os.path.join(root, folder, name.lstrip("/"))) if name else ""
        if text:
            found = json.loads(text)
            return found if isinstance(found, dict) else {}
    return {}


def example(schema: Any, top: dict[str, Any]) -> Any:
    """A smallest value that fits a JSON Schema of the everyday kind."""
    while isinstance(schema, dict) and str(schema.get("$ref", "")).startswith("#/"):
        found: Any = top
        for part in schema["$ref"][2:].split("/"):
            found = found[part]
        schema = found
    if not isinstance(schema, dict):
        return NOTE
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if options := schema.get("enum") or schema.get("examples"):
        return options[0]
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return example(branches[0], top)
    return typed(schema, top)


def typed(schema: dict[str, Any], top: dict[str, Any]) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        known = schema.get("properties", {})
        return {name: example(known.get(name, {}), top) for name in schema.get("required", ())}
    if kind == "array":
        return [example(schema.get("items", {}), top)] * max(1, schema.get("minItems", 1))
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", 1))
    if kind in ("boolean", "null"):
        return False if kind == "boolean" else None
    return NOTE[: schema.get("maxLength", len(NOTE))]


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def dumps(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main(dict(os.environ)))
