"""The former name of `entry.py`, which it runs: hooks that 0.1.0 installed with `--absolute` name this file."""

import os
import runpy

if __name__ == "__main__":
    runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry.py"), run_name="__main__")
