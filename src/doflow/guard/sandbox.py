"""`sandbox: bwrap`: an agent in a room of its own (bubblewrap, Linux). It sees the machine read-only, of the home only what its
program needs, and can write the project only where its step may. Where that cannot be had, nothing runs.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping

from doflow.flow.model import Profile
from doflow.guard import sandbox_paths as openings
from doflow.guard.fence.scope import Scope
from doflow.runs.context import STATE, World
from doflow.util.errors import UsageError
from doflow.util.process import environment, runner as process
from doflow.util.process.command import Command, Timeout
from doflow.util.records import replace

#: what each program keeps in the home: its login and its sessions (folders or files; a variable may name another place)
_HOMES = {
    "claude": ("$CLAUDE_CONFIG_DIR", "~/.claude", "~/.claude.json"),
    "codex": ("$CODEX_HOME", "~/.codex"),
    "gemini": ("~/.gemini",),
    "opencode": ("~/.config/opencode", "~/.local/share/opencode", "~/.local/state/opencode", "~/.cache/opencode"),
}
_ROOM = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run"),
)
#: so many files outside of the scope are bound read-only one by one
_MOST = 200
_LIMIT = Timeout(idle=0, max=20)
_probed: set[str] = set()


def probe(profile: Profile, root: str, environ: Mapping[str, str]) -> None:
    """Before a run begins: can there be such a room here? Once per process."""
    if profile.use == "rehearsal":
        raise UsageError(
            f"agents.{profile.name}: `sandbox` is not for `use: rehearsal`: it is a part of doflow, and no model is asked",
            "take `sandbox` out of this profile in doflow.yaml",
        )
    program = _program(profile, root, environ)
    if program in _probed:
        return
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        result = process.run(Command((program, *_ROOM, "--", "/bin/true"), env=dict(environ)), log, log, _LIMIT)
        said = process.tail(log, 500).strip().replace("\n", " ")
    if result.code:
        raise UsageError(
            f"agents.{profile.name}: `sandbox: bwrap` cannot work here: {said or process.explain(result, (program,))}",
            "this machine forbids user namespaces (containers; on Ubuntu sysctl kernel.apparmor_restrict_unprivileged_userns): "
            "allow them, or take `sandbox` out of doflow.yaml; the agent is never started without it",
        )
    _probed.add(program)


def wrap(command: Command, profile: Profile, scope: Scope, world: World, also: tuple[str, ...] = ()) -> Command:
    """The same command inside the room; `also` are folders it must be able to write."""
    root = os.path.realpath(world.root)
    home = os.path.realpath(command.env.get("HOME", "") or "/nonexistent")
    words = [_program(profile, root, world.environ), *_ROOM]
    if os.path.isdir(home) and home != "/" and root != home:
        words += ["--tmpfs", home]
    hidden = tuple(folder for folder in ("/tmp", "/run", home) if folder != "/")
    for path in (*_names(), *_programs(command, hidden)):
        words += ["--ro-bind", path, path]
    for path in (*_homes(profile, command.env), *(path for path in also if os.path.isdir(path))):
        words += ["--bind", path, path]
    words += ["--ro-bind", world.head.top, world.head.top, *_project(root, scope)]
    for path in dict.fromkeys((world.head.common_dir, world.head.git_dir, os.path.join(world.head.top, ".git"))):
        words += ["--ro-bind", path, path]
    words += ["--ro-bind", os.path.join(root, STATE), os.path.join(root, STATE)]
    env = {**command.env, "TMPDIR": "/tmp"}
    return replace(command, argv=(*words, "--chdir", command.cwd or root, "--", *command.argv), env=env)


def enter(scope: Scope, world: World) -> tuple[str, ...]:
    """Makes the folders that a job may write and that are not there yet: only what exists can be opened."""
    return openings.make(os.path.realpath(world.root), _globs(scope))


def _program(profile: Profile, root: str, environ: Mapping[str, str]) -> str:
    if profile.sandbox != "bwrap":
        raise UsageError(f"agents.{profile.name}: there is no sandbox {profile.sandbox!r}", "write `sandbox: bwrap`")
    found = shutil.which("bwrap", path=environment.search_path(environ.get("PATH", ""), root))
    if not found or not sys.platform.startswith("linux"):
        raise UsageError(
            f"agents.{profile.name}: `sandbox: bwrap` needs bubblewrap, which is not installed (it is there for Linux only)",
            "install it (Debian, Ubuntu: apt install bubblewrap), or take `sandbox` out of doflow.yaml: "
            "the agent is never started without it",
        )
    return found


def _project(root: str, scope: Scope) -> Iterator[str]:
    """Where it may write; then, within that, what it may not. The folders above a protected file are bound too, or
    renaming one of them would bring the file out of its protection."""
    open_ = _roots(root, scope)
    for folder in open_:
        yield from ("--bind", folder, folder)
    bound: set[str] = set(open_)
    for folder in open_:
        for path in _locked(root, folder, scope):
            for above in _between(folder, path):
                if above not in bound:
                    bound.add(above)
                    yield from ("--bind", above, above)
            yield from ("--ro-bind", path, path)


def _roots(root: str, scope: Scope) -> list[str]:
    """The folders that are open, none inside another."""
    named = {_folder(root, glob) for glob in _globs(scope)} | {
        os.path.dirname(os.path.join(root, path)) for path in scope.makes
    }
    found: list[str] = []
    for folder in sorted(named):
        if not any(folder == other or folder.startswith(f"{other}/") for other in found):
            found.append(folder)
    return found


def _globs(scope: Scope) -> tuple[str, ...]:
    return ("/",) if scope.writes is None else tuple(scope.writes)


def _folder(root: str, glob: str) -> str:
    """The nearest existing folder that holds all a glob means."""
    place = root
    for part in openings.head(glob):
        inner = os.path.join(place, part)
        if os.path.islink(inner) or not os.path.isdir(inner):
            break
        place = inner
    return place


def _locked(root: str, folder: str, scope: Scope) -> list[str]:
    """Outermost first: whole folders where nothing below may be written, else files. Of files that are merely outside of
    the scope only so many: more would make the room slow to build, and they are put back afterwards as everywhere."""
    found: list[tuple[str, bool]] = []
    for place, below, names in os.walk(folder):
        rel = os.path.relpath(place, root)
        rel = "" if rel == "." else f"{rel}/"
        whole = {
            name: must
            for name in below
            if (must := name == ".git" or scope.protects(f"{rel}{name}/x")) or not _reaches(scope, f"{rel}{name}")
        }
        files = {name: scope.protects(f"{rel}{name}") for name in names if not scope.allows(f"{rel}{name}")}
        closed = {os.path.join(place, name): must or name == ".git" for name, must in sorted((whole | files).items())}
        found += [(path, must) for path, must in closed.items() if not os.path.islink(path)]
        below[:] = [name for name in below if name not in whole and not os.path.islink(os.path.join(place, name))]
    many = sum(not must for _, must in found) > _MOST
    return [path for path, must in found if must or not many]


def _reaches(scope: Scope, folder: str) -> bool:
    """Whether something below this folder may be written."""
    if scope.writes is None or any(path.startswith(f"{folder}/") for path in scope.makes):
        return True
    return any(openings.reaches(glob, folder) for glob in scope.writes)


def _between(top: str, path: str) -> list[str]:
    found = []
    above = os.path.dirname(path)
    while len(above) > len(top):
        found.append(above)
        above = os.path.dirname(above)
    return found[::-1]


def _names() -> list[str]:
    """Where names of hosts are looked up, should that lie below /run."""
    real = os.path.realpath("/etc/resolv.conf")
    return [real] if real.startswith("/run/") and os.path.isfile(real) else []


def _programs(command: Command, hidden: tuple[str, ...]) -> list[str]:
    """What the program needs of folders that are hidden otherwise: its own, those on the PATH, and their libraries."""
    path = command.env.get("PATH", os.defpath)
    main = shutil.which(command.argv[0], path=path) or command.argv[0]
    words = [word for word in (main, os.path.realpath(main), *command.argv[1:]) if os.path.isabs(word)]
    found = [os.path.dirname(word) for word in words if os.path.isfile(word)]
    found.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # its hooks are ours
    for folder in (*path.split(os.pathsep), os.path.dirname(sys.executable)):
        above = os.path.dirname(folder)
        found += [above] if os.path.exists(os.path.join(above, "pyvenv.cfg")) else [folder, os.path.join(above, "lib")]
    below = tuple(f"{place}/" for place in hidden)
    return [place for place in dict.fromkeys(found) if place.startswith(below) and os.path.isdir(place)]


def _homes(profile: Profile, env: Mapping[str, str]) -> list[str]:
    home = env.get("HOME", "")
    said = [
        env.get(name[1:], "") if name.startswith("$") else name.replace("~", home, 1)
        for name in _HOMES.get(profile.use, ())
    ]
    return [path for path in dict.fromkeys(said) if path and os.path.exists(path)]
