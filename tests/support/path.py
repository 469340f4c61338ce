"""Which modules of ours does `doit feature --goal=x` enter, up to its first commit?

    python -m tests.support.path

Runs the real doit in a temporary project with the rehearsal agent. A module counts when one of its functions is entered;
importing it, and what runs while it is imported, does not count. Prints the modules in the order of their first entry, how
many different functions of each were entered (one or two: which), and the count.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.support.project import Project

import doflow

#: what this path may take
LIMIT = 60

#: run instead of `doit`: notes the functions that are entered until the first step is complete, which is after its commit
TRACER = """
import json, os, runpy, sys, threading

FUNCTION = 0x2  # a code object that has locals of its own: no body of a module or a class
entered, names, ended = {}, {}, []

def note(frame, event, arg):
    code = frame.f_code
    if event != "call" or ended or not code.co_flags & FUNCTION or not module(code):
        return
    functions = entered.get(module(code), ())
    if code.co_qualname not in functions and not imports(frame):
        entered.setdefault(module(code), set()).add(code.co_qualname)
    if "event" in code.co_varnames and frame.f_locals.get("event") == "step_complete":
        ended.append(True)
        with open(OUT, "w") as out:
            json.dump([[name, sorted(functions)] for name, functions in entered.items()], out)

def module(code):
    if code not in names:
        inside = code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<")
        names[code] = os.path.relpath(code.co_filename, SOURCE).removesuffix(".py").replace(os.sep, ".") if inside else ""
    return names[code]

def imports(frame):
    while frame := frame.f_back:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(SOURCE):
            return True
    return False

sys.argv[0] = PROGRAM
threading.setprofile(note)
sys.setprofile(note)
runpy.run_path(PROGRAM, run_name="__main__")
"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="path-") as folder:
        modules = trace(Path(folder))
    for number, (name, functions) in enumerate(modules, 1):
        few = f"  ({', '.join(functions)})" if len(functions) <= 2 else ""
        print(f"{number:3}  {name:38} {len(functions):3}{few}")
    print(f"{len(modules)} modules (wanted: at most {LIMIT})")
    return 0


def trace(folder: Path) -> list[tuple[str, list[str]]]:
    """The modules with the functions that were entered, in the order of first entry."""
    project = Project(folder, settings="workspace: auto\n")
    out, program = folder / "entered.json", Path(sys.executable).parent / "doit"
    source = str(Path(doflow.__file__).parent) + "/"
    text = TRACER
    for name, value in (("OUT", out), ("PROGRAM", program), ("SOURCE", source)):
        text = text.replace(name, repr(str(value)))
    (folder / "tracer.py").write_text(text)
    done = project.program("python", str(folder / "tracer.py"), "feature", "--goal=x", "--agent=rehearsal")
    if not out.exists():
        raise SystemExit(f"no commit was made ({done.returncode}):\n{done.stdout}{done.stderr}")
    return [(name, functions) for name, functions in json.loads(out.read_text())]


if __name__ == "__main__":
    sys.exit(main())
