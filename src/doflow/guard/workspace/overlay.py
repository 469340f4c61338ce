"""The overlay kind of workspace (Linux): programs see the project at its own path, and what they write lands in a layer.

The view covers the whole repository and hides doflow: its state folder is empty in it, the project's `.doflow/` is
read-only, the sockets of tmux are gone, and processes outside can neither be seen nor signalled.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace

from doflow.git.head import Head
from doflow.guard.workspace import storage
from doflow.util import atomic_files, state_folder
from doflow.util.process import runner
from doflow.util.process.runner import Command, Timeout

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "view_program.py")
_LIMIT = Timeout(idle=0, max=20)
_BOOT = "/proc/sys/kernel/random/boot_id"


def top_of(head: Head) -> str:
    """The folder that the view covers: the working tree; of a submodule that of the outermost repository around it."""
    top = head.top
    marker = f"{os.sep}.git{os.sep}modules{os.sep}"
    while marker in head.git_dir and not os.path.isdir(os.path.join(top, ".git")):
        above = head.git_dir.partition(marker)[0]
        if not (top + os.sep).startswith(above + os.sep):
            break
        top = above
    return top


def wrap(
    command: Command,
    head: Head,
    root: str,
    lower: Sequence[str],
    layer: tuple[str, str],
    environ: Mapping[str, str],
    writable: Sequence[str] = (),
    drop: bool = True,
) -> Command:
    """The command in a view of the project. `lower`: the layers below, lowest first; `writable`: folders that stay real;
    `drop`: take all privileges away (a sandbox inside the view does that itself)."""
    top = top_of(head)
    upper, work = layer
    overlays = [{"at": top, "lower": [*reversed(_parts(lower, "tree")), top], **_made(upper, work, "tree")}]
    if not _within(head.common_dir, top):
        made = _made(upper, work, "git")
        overlays.append({"at": head.common_dir, "lower": [*reversed(_parts(lower, "git")), head.common_dir], **made})
    covered = (top, head.common_dir)
    own = [path for path in _environments() if not any(_within(path, place) for place in covered)]
    spec = {
        "overlays": overlays,
        "read_only": [path for path in (os.path.join(root, state_folder.NAME), *own) if os.path.isdir(path)],
        "writable": [path for path in writable if os.path.isdir(path)],
        "pinned": _above_state(environ),
        "hidden": [path for path in (storage.state_home(environ), *_sockets(environ)) if os.path.isdir(path)],
        "system": ["/proc/sys"],
        "pid": True,
        "drop": drop,
        "cwd": command.cwd or root,
    }
    argv = (sys.executable, "-I", "-S", PROGRAM, json.dumps(spec), *command.argv)
    return replace(command, argv=argv, cwd="/")


def tree(layer: str) -> str:
    """The part of a layer that holds the files of the working tree."""
    return os.path.join(layer, "tree")


def _parts(layers: Sequence[str], part: str) -> list[str]:
    return [place for layer in layers if os.path.isdir(place := os.path.join(layer, part))]


def _made(upper: str, work: str, part: str) -> dict[str, str]:
    for folder in (upper, work):
        os.makedirs(os.path.join(folder, part), exist_ok=True)
    return {"upper": os.path.join(upper, part), "work": os.path.join(work, part)}


def _within(path: str, folder: str) -> bool:
    return os.path.realpath(path) == folder or os.path.realpath(path).startswith(folder.rstrip(os.sep) + os.sep)


def _environments() -> list[str]:
    """The Python environment that doflow runs from, and its own code."""
    code = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found = [sys.prefix] if sys.prefix != sys.base_prefix else []
    return [*found, *([] if any(_within(code, place) for place in found) else [code])]


def _above_state(environ: Mapping[str, str]) -> list[str]:
    """The folders above the state folder, up to the person's home, uppermost first: with one of them renamed, an agent could
    put another state folder in its place."""
    home = os.path.realpath(environ.get("HOME") or os.path.expanduser("~"))
    folders = [os.path.dirname(os.path.realpath(storage.state_home(environ)))]
    while _within(os.path.dirname(folders[0]), home) and os.path.dirname(folders[0]) != home:
        folders.insert(0, os.path.dirname(folders[0]))
    return [path for path in folders if path != home and os.path.isdir(path)]


def _sockets(environ: Mapping[str, str]) -> list[str]:
    folders = dict.fromkeys((environ.get("TMUX_TMPDIR", ""), "/tmp"))
    return [os.path.join(os.path.realpath(folder), f"tmux-{os.getuid()}") for folder in folders if folder]


def machine_obstacle(environ: Mapping[str, str]) -> str:
    """Why views cannot be made on this machine, '' if they can. Tried once per boot and remembered."""
    if not sys.platform.startswith("linux"):
        return "only Linux has overlay file systems"
    home = storage.state_home(environ)
    note = os.path.join(home, "overlay-probe.json")
    with open(_BOOT, encoding="ascii") as stream:
        boot = f"{stream.read().strip()} {os.getuid()} {sys.executable}"
    try:
        with open(note, encoding="utf-8") as stream:
            found = json.load(stream)
        if found["boot"] == boot:
            return str(found["obstacle"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        obstacle = _tried(home, environ)
        atomic_files.write_file(note, json.dumps({"boot": boot, "obstacle": obstacle}).encode(), sync=False)
    except OSError as error:
        return f"{home} cannot be written: {error.strerror}"
    return obstacle


def _tried(home: str, environ: Mapping[str, str]) -> str:
    """Make a view of a folder and write into it."""
    with tempfile.TemporaryDirectory(dir=home) as folder, tempfile.TemporaryDirectory() as project:
        for name in ("upper", "work"):
            os.mkdir(os.path.join(folder, name))
        spec = {
            "overlays": [{"at": project, "lower": [project], "upper": f"{folder}/upper", "work": f"{folder}/work"}],
            "pinned": [], "read_only": [], "writable": [], "hidden": [], "system": ["/proc/sys"], "pid": True, "drop": True, "cwd": project,
        }  # fmt: skip
        log = os.path.join(folder, "log")
        argv = (
            sys.executable,
            "-I",
            "-S",
            PROGRAM,
            json.dumps(spec),
            "/bin/sh",
            "-c",
            "echo probe > probe && rm probe",
        )
        result = runner.run(Command(argv, env=dict(environ), cwd="/"), log, log, _LIMIT)
        said = runner.tail(log, 500).strip().replace("\n", " ").removeprefix("doflow: ")
        return "" if result.code == 0 and not result.stopped else said or f"exit code {result.code}"


def project_obstacle(head: Head, root: str, environ: Mapping[str, str]) -> str:
    """Why this project cannot be shown in a view, '' if it can."""
    top, home = top_of(head), storage.state_home(environ)
    if top != head.common_dir and _within(top, head.common_dir):
        return f"its git folder {head.common_dir} contains the working tree"
    if _within(home, top):
        return f"doflow's state folder {home} is inside the project"
    for place in dict.fromkeys((top, root, head.common_dir)):
        status = os.stat(place)
        if (status.st_uid, status.st_gid) != (os.getuid(), os.getgid()):
            return f"{place} belongs to another user or group"
    inner = [path for path in _mounts() if path != top and _within(path, top)]
    return f"{inner[0]} is a mount inside the project" if inner else ""


def _mounts() -> list[str]:
    with open("/proc/self/mountinfo", "rb") as stream:
        fields = (line.split(b" ")[4] for line in stream)
        return [os.fsdecode(field.decode("unicode_escape").encode("latin-1")) for field in fields]
