"""doit with some of the guards against stale files taken out, to show that each of the others is enough alone.

python unguarded.py clear,admitted doit's own arguments …
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    names, sys.argv = sys.argv[1].split(","), ["doit", *sys.argv[2:]]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    from doit.doit_cmd import DoitMain

    from doflow.flow import markdown as sections
    from doflow.guard import stale_files as stale

    def as_it_is(world: object) -> str:
        """What enters the prompt when nobody asks whose it is."""
        text = stale._text(world) or ""
        return text if sections.headings(text) else ""

    for name in names:
        setattr(stale, name, {"admitted": as_it_is}.get(name, lambda world: None))
    return int(DoitMain().run(sys.argv[1:]) or 0)


if __name__ == "__main__":
    sys.exit(main())
