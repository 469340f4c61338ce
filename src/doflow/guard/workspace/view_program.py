"""The program that starts another program in a view: the project as it is, with every write going to a layer.

doflow runs it as `python -I -S view_program.py SPEC PROGRAM ARGUMENT…`; SPEC is the JSON text of `overlay.spec`. It needs no privileges:
the mounts are made in a user namespace of its own (Linux 5.11 or later), and the program gets no capabilities in it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

NEW_USER, NEW_MOUNT, NEW_PID = 0x10000000, 0x00020000, 0x20000000
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 32, 4096, 16384, 1 << 18
#: flags of a mount that a user namespace may not remove: (bit of statvfs, bit of mount)
LOCKED = ((2, 2), (4, 4), (8, 8), (1024, 1024), (2048, 2048), (4096, 1 << 21))
DEATH_SIGNAL, DROP_BOUNDING, NO_NEW_PRIVILEGES, AMBIENT, CLEAR_ALL = 1, 24, 38, 47, 4
CAPABILITIES_3 = 0x20080522
#: exit code: the view could not be made, and nothing was started
NO_VIEW = 125

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)


def main(spec: dict[str, Any], argv: Sequence[str]) -> None:
    make_view(spec)
    if spec["pid"]:
        wait_as_parent(spec, argv)
    start(argv, spec["drop"])


def make_view(spec: dict[str, Any]) -> None:
    """Mount the layers and hide what the program must not reach."""
    user, group = os.getuid(), os.getgid()
    call("unshare", NEW_USER | NEW_MOUNT | (NEW_PID if spec["pid"] else 0))
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{user} {user} 1")
    write("/proc/self/gid_map", f"{group} {group} 1")
    mount("none", "/", "", RECURSIVE | PRIVATE)
    for path in spec["pinned"]:
        mount(path, path, "", BIND | RECURSIVE)  # a mount cannot be renamed
    # opened now: the mounts below hide these folders. A descriptor also needs no escapes in the options of a mount
    kept = {path: descriptor(path) for path in (*spec["writable"], *spec["read_only"])}
    for layer in spec["overlays"]:
        options = {
            "lowerdir": ":".join(descriptor(path) for path in layer["lower"]),
            "upperdir": descriptor(layer["upper"]),
            "workdir": descriptor(layer["work"]),
        }
        mount("overlay", layer["at"], "overlay", 0, "userxattr," + ",".join(map("=".join, options.items())))
    for path in spec["hidden"]:
        mount("tmpfs", path, "tmpfs", READ_ONLY, "size=4k,mode=0755")
    for path in spec["read_only"]:
        mount(kept[path], path, "", BIND | RECURSIVE)
        found = os.statvfs(path).f_flag
        mount("none", path, "", BIND | REMOUNT | READ_ONLY | sum(mine for theirs, mine in LOCKED if found & theirs))
    for path in spec["writable"]:
        mount(kept[path], path, "", BIND | RECURSIVE)
    os.chdir(spec["cwd"])


def wait_as_parent(spec: dict[str, Any], argv: Sequence[str]) -> None:
    """Wait for the first process of the pid namespace and end as the program did; returns in the process that starts it."""
    reader, writer = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # the program gets them itself
    parent = os.getpid()
    first = os.fork()
    if first == 0:
        os.close(reader)
        libc.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() not in (0, parent):
            os._exit(NO_VIEW)
        mount("proc", "/proc", "proc", 2 | 4 | 8)
        for path in spec["system"]:
            mount(path, path, "", BIND | RECURSIVE)
            mount("none", path, "", BIND | REMOUNT | READ_ONLY | 2 | 4 | 8)
        reap(writer)
        return
    os.close(writer)
    told = os.read(reader, 16)
    os.waitpid(first, 0)
    status = int(told) if told else NO_VIEW << 8
    if os.WIFSIGNALED(status):
        ended = os.WTERMSIG(status)
        if ended != signal.SIGKILL:
            signal.signal(ended, signal.SIG_DFL)
        os.kill(os.getpid(), ended)
    os._exit(os.waitstatus_to_exitcode(status))


def reap(writer: int) -> None:
    """As the first process: collect every orphan; when the program ends, all others end with this process. Returns in the
    program's process."""
    main_ = os.fork()
    if main_ == 0:
        os.close(writer)
        return
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == main_:
            os.write(writer, str(status).encode())
            os._exit(0)


def start(argv: Sequence[str], drop: bool) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    if drop:
        drop_privileges()
    try:
        os.execvp(argv[0], list(argv))
    except OSError as error:
        fail(f"cannot start {argv[0]}: {error.strerror}", 127 if isinstance(error, FileNotFoundError) else 126)


def drop_privileges() -> None:
    libc.prctl(AMBIENT, CLEAR_ALL, 0, 0, 0)
    number = 0
    while libc.prctl(DROP_BOUNDING, number, 0, 0, 0) == 0:
        number += 1
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    header, nothing = (ctypes.c_uint32 * 2)(CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)()
    call("capset", header, nothing)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = (
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        os.fsencode(options) or None,
    )
    call("mount", *words, about=f" {target}")


def descriptor(path: str) -> str:
    """A path to a folder or a file that stays valid whatever is mounted over it."""
    return f"/proc/self/fd/{os.open(path, os.O_PATH | os.O_CLOEXEC)}"


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as stream:
        stream.write(text)


def call(name: str, *words: Any, about: str = "") -> None:
    if getattr(libc, name)(*words):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}{about}: {os.strerror(number)}")


def fail(text: str, code: int) -> None:
    os.write(2, f"doflow: {text}\n".encode("utf-8", "replace"))
    os._exit(code)


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]), sys.argv[2:])
    except OSError as error:
        fail(f"cannot make the view of the project: {error.strerror or error}", NO_VIEW)
