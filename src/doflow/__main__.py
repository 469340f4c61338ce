"""`python -m doflow`: the same as `doflow`."""

import sys

from doflow.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
