"""Warnings of `doflow validate`: mistakes that can be seen in a flow without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doflow.flow import findings
from doflow.flow.model import Flow
from doflow.flow.parsing import syntax
from doflow.flow.parsing.document import nearest
from doflow.flow.parsing.graph_checks import required_inputs
from doflow.util import globs
from doflow.util.errors import Problem

_AWK = ("print", "next", "exit", "getline")


def missing_inputs(flow: Flow) -> list[Problem]:
    """Warnings: inputs in the run's folder that no step of the flow makes."""
    made = {said.replace("{step}", step.id) for step in flow.steps for said in step.makes}
    made |= {"input.md", *(path for path, _ in flow.inputs), *(("prd_snapshot.md",) if flow.in_sessions else ())}
    made |= {findings.findings_file("", step.id).lstrip("/") for step in flow.steps if step.kind == "review"}
    found = []
    for step in flow.steps:
        for said in dict.fromkeys(required_inputs(step)):
            if not said.startswith("/") and not globs.is_pattern(said) and "{" not in said and not _is_made(said, made):
                message = f"step {step.id} reads {said}, which no step of {flow.name} makes"
                hint = f"add a step that makes it, write `{said}?` if it is optional, or put it in the run's folder"
                hint = nearest(said, sorted(made)) or hint
                found.append(step.origin.problem(message, hint))
    return found


def _is_made(said: str, made: set[str]) -> bool:
    """Also matches names with a param, which can take any value."""
    open_ = (re.split(r"\{[^}]*\}", name) for name in made if "{" in name)
    return said in made or any(re.fullmatch(".+".join(map(re.escape, parts)), said) for parts in open_)


def undeclared_params(flow: Flow) -> Iterator[Problem]:
    """Warnings: names in braces in a command that are not params."""
    known = {param.name for param in flow.params} | syntax.RUN_WORDS | syntax.LOCAL_WORDS.keys()
    for step in flow.steps:
        for word, texts in (("run", (*step.run, step.shell)), ("check.run", step.check.run)):
            for name in dict.fromkeys(name for text in texts for name in syntax.params(text)):
                if name not in known and name not in _AWK and not (step.foreach and name.startswith("item_")):
                    message = (
                        f"step {step.id}: {{{name}}} in `{word}` is not a param of {flow.name} and is left unchanged"
                    )
                    yield step.origin.problem(message, "declare it under `params:` if it should be one")


def unreachable_steps(flow: Flow) -> Iterator[Problem]:
    """Warnings: steps that no run reaches, because every route leads elsewhere or nothing names them."""
    if flow.file.endswith((".dot", ".gv")):
        return
    table = {step.id: step for step in flow.steps}
    reached: set[str] = set()
    pipeline = flow.pipeline or tuple(table)
    waiting = [pipeline]
    while waiting:
        for name in waiting.pop():
            step = table.get(name)
            if step is not None and name not in reached:
                reached.add(name)
                waiting += [*((other,) for other in step.after or ()), *(route.then for route in step.routes)]
            if step is not None and step.routes:  # a route replaces the steps after it
                break
    for step in flow.steps:
        if step.id not in reached:
            message = f"step {step.id} never runs: neither the pipeline nor a route of {flow.name} leads to it"
            hint = "name it in `then:` of each route that should lead to it"
            hint += "" if step.id in pipeline else ", or in `pipeline:`"
            yield step.origin.problem(message, hint)
