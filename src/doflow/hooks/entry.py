"""The file that an agent's settings name: `python -I -S …/doflow/hooks/entry.py EVENT …` is `doflow hook EVENT …`.

It runs as a file, isolated and without site-packages: that starts fastest, and no planted module is imported.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from doflow.hooks import handler

    return handler.run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
