"""Starts the scripted agent: `python -S -E start.py FOLDER`, where FOLDER holds the script.

What it runs is imported, not compiled at each start: most tests start it several times.
"""

from __future__ import annotations

import sys
from os.path import dirname


def main() -> None:
    sys.path[0] = dirname(dirname(dirname(dirname(__file__))))
    from tests.support.scripted_agent.call import run_script

    run_script(sys.argv.pop(1))


if __name__ == "__main__":
    main()
