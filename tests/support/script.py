"""What a good agent does in the packaged flows, as a script for `Project.agent`.

    project.agent(script.good(bugfix="SCALE: SMALL"))
    project.agent(script.good(before='if step == "plan" and not nth: stop(1)'))

It keeps the artifacts' contracts, prints the markers it is given (step -> marker), and finds no fault in a review,
unless the test says otherwise in `before`: Python that runs first and may change `TEXTS` and `MARKERS`, or set
`done = True` when it has done the job.
"""

from __future__ import annotations

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
from tests.support.scripted_agent import packaged_flows

TEXTS = {texts!r}
MARKERS = {markers!r}
done = False
{before}
if not done:
    packaged_flows.work(call, TEXTS, MARKERS)
"""


def good(before: str = "", texts: dict[str, str] | None = None, **markers: str) -> str:
    """A script for every flow; `texts` replaces what it writes into the artifact of this name."""
    known = {"spec.md": SPEC, "tasks.md": TASKS, "fix-plan.md": FIX_PLAN, "suggestions.yaml": "suggestions: []\n"}
    return _GOOD.format(texts=known | (texts or {}), markers=markers, before=before)
