"""What a good agent does in the packaged flows, as a script for `Project.agent`.

    project.agent(script.good(bugfix="SCALE: SMALL"))
    project.agent(script.good(before='if step == "plan" and not nth: stop(1)'))

It keeps the artifacts' contracts, prints the markers it is given (step -> marker), and finds no fault in a review,
unless the test says otherwise in `before`: Python that runs first and may set `done = True` when it has done the job.
"""

from __future__ import annotations

import json

TASKS = """# Tasks

## Phase 1: Ground
- [ ] [T001] Lay the ground in src/phase_1.py
  files: src/phase_1.py

## Phase 2: House
- [ ] [T002] Build the house in src/phase_2.py
  depends: T001
"""

SPEC = "# Spec\n\n## Requirements\n- R1: It MUST work.\n\n## Acceptance\n- A1 (R1): It works.\n"

FIX_PLAN = """# Fix plan

## Phase 1: Shown and mended
- [ ] [T001] Show the bug in tests/test_bug.py
- [ ] [T002] Mend it in src/bug.py
  depends: T001
"""

_GOOD = """
import re

TEXTS = {texts}
MARKERS = {markers}
done = False

def work():
    if role == "persona":
        return say("Nothing to say.\\nVERDICT: GO")
    if role == "fixer":
        put("src/fixed.py", f"FIXED = {{round}}\\n")
        return say("mended")
    if phase:
        put(f"src/phase_{{phase}}.py", f"PHASE = {{phase!r}}\\n")
        for path in (run_dir / "tasks.md", run_dir / "fix-plan.md"):
            if path.exists() and path.read_text().count(f"## Phase {{phase}}:"):
                head, mark, rest = path.read_text().partition(f"## Phase {{phase}}:")
                mine, cut, after = rest.partition("\\n## ")
                path.write_text(head + mark + mine.replace("- [ ]", "- [x]") + cut + after)
                break
    texts = [TEXTS.get(path.name, f"# {{path.stem}}\\n\\nWhat {{path.name}} says.\\n") for path in makes]
    if "and nothing else; do not write the file" in prompt:
        return say(texts[0] + MARKERS.get(step, ""))
    for path, text in zip(makes, texts):
        make(text, path)
    say(f"{{line}} is done\\n" + MARKERS.get(step, ""))

{before}
if not done:
    work()
"""


def good(before: str = "", texts: dict[str, str] | None = None, **markers: str) -> str:
    """A script for every flow; `texts` replaces what it writes into the artifact of this name."""
    known = {"spec.md": SPEC, "tasks.md": TASKS, "fix-plan.md": FIX_PLAN, "suggestions.yaml": "suggestions: []\n"}
    return _GOOD.format(texts=json.dumps(known | (texts or {})), markers=json.dumps(markers), before=before)
