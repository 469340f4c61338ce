"""What a good agent does in the packaged flows; `tests.support.script` writes the script that calls it."""

from __future__ import annotations

import pathlib

from tests.support.scripted_agent.call import Call

#: in the prompt of a step whose artifact is the agent's answer
ANSWER_ONLY = "and nothing else; do not write the file"


def work(call: Call, texts: dict[str, str], markers: dict[str, str]) -> None:
    """Keeps the artifacts' contracts and prints the step's marker; a reviewer finds no fault."""
    if call.role == "persona":
        return call.say("Nothing to say.\nVERDICT: GO")
    if call.role == "fixer":
        call.put("src/fixed.py", f"FIXED = {call.round}\n")
        return call.say("fixed")
    if call.phase:
        call.put(f"src/phase_{call.phase}.py", f"PHASE = {call.phase!r}\n")
        tick_phase(call)
    made = [texts.get(path.name, f"# {path.stem}\n\nWhat {path.name} says.\n") for path in call.makes]
    marker = markers.get(call.step, "")
    if ANSWER_ONLY in call.prompt:
        return call.say(made[0] + marker)
    for path, text in zip(call.makes, made, strict=True):
        call.make(text, path)
    return call.say(f"{call.line} is done\n{marker}")


def tick_phase(call: Call) -> None:
    """Ticks the boxes of the phase in the first task list that has it."""
    heading = f"## Phase {call.phase}:"
    for path in (call.run_dir / "tasks.md", call.run_dir / "fix-plan.md"):
        if path.exists() and heading in path.read_text():
            path.write_text(ticked(path, heading))
            return


def ticked(path: pathlib.Path, heading: str) -> str:
    before, _, rest = path.read_text().partition(heading)
    section, cut, after = rest.partition("\n## ")
    return before + heading + section.replace("- [ ]", "- [x]") + cut + after
