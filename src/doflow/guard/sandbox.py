"""`sandbox: bwrap`: runs an agent under bubblewrap (Linux). It sees the machine read-only, of the home only what its program
needs, and can write the project only where its step may. If the sandbox is not available, nothing runs."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from doflow.flow.model import Ask, Hook, Profile
from doflow.guard.fence.scope import Scope
from doflow.hooks import call_settings
from doflow.runs.context import RunContext
from doflow.runs.jobs import Job
from doflow.util import atomic_files, state_folder
from doflow.util.errors import UsageError
from doflow.util.globs import is_pattern
from doflow.util.process import environment, runner
from doflow.util.process.runner import Command, Timeout

#: what each program keeps in the home: login and sessions (folders or files; a variable may name another location)
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
#: at most this many files outside the scope are bound read-only one by one
_MOST = 200
_LIMIT = Timeout(idle=0, max=20)
_probed: set[str] = set()


def probe(profile: Profile, root: str, environ: Mapping[str, str]) -> None:
    """Before a run starts: check that the sandbox works here. Once per process."""
    if profile.use == "rehearsal":
        raise UsageError(
            f"agents.{profile.name}: `sandbox` does not apply to `use: rehearsal`, which is part of doflow and calls no model",
            "remove `sandbox` from this profile in doflow.yaml",
        )
    program = _program(profile, root, environ)
    if program in _probed:
        return

    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        result = runner.run(Command((program, *_ROOM, "--", "/bin/true"), env=dict(environ)), log, log, _LIMIT)
        said = runner.tail(log, 500).strip().replace("\n", " ")
    if result.code:
        raise UsageError(
            f"agents.{profile.name}: `sandbox: bwrap` cannot work here: {said or runner.explain(result, (program,))}",
            "this machine forbids user namespaces (containers; on Ubuntu sysctl kernel.apparmor_restrict_unprivileged_userns): "
            "allow them, or remove `sandbox` from doflow.yaml; the agent is never started without it",
        )
    _probed.add(program)


def wrap(command: Command, profile: Profile, scope: Scope, context: RunContext, also: tuple[str, ...] = ()) -> Command:
    """The same command inside the sandbox; `also` are folders it must be able to write."""
    root = os.path.realpath(context.root)
    home = os.path.realpath(command.env.get("HOME", "") or "/nonexistent")
    words = [_program(profile, root, context.environ), *_ROOM]
    if os.path.isdir(home) and home != "/" and root != home:
        words += ["--tmpfs", home]
    hidden = tuple(folder for folder in ("/tmp", "/run", home) if folder != "/")
    for path in (*_names(), *_programs(command, hidden)):
        words += ["--ro-bind", path, path]
    for path in (*_homes(profile, command.env), *(path for path in also if os.path.isdir(path))):
        words += ["--bind", path, path]
    words += ["--ro-bind", context.head.top, context.head.top, *_project(root, scope)]
    for path in dict.fromkeys((context.head.common_dir, context.head.git_dir, os.path.join(context.head.top, ".git"))):
        words += ["--ro-bind", path, path]
    words += ["--ro-bind", os.path.join(root, state_folder.NAME), os.path.join(root, state_folder.NAME)]
    env = {**command.env, "TMPDIR": "/tmp"}
    return replace(command, argv=(*words, "--chdir", command.cwd or root, "--", *command.argv), env=env)


def enter(scope: Scope, context: RunContext) -> tuple[str, ...]:
    """Create the missing folders that a job may write: only an existing folder can be bound."""
    return make(os.path.realpath(context.root), _globs(scope))


def _program(profile: Profile, root: str, environ: Mapping[str, str]) -> str:
    if profile.sandbox != "bwrap":
        raise UsageError(f"agents.{profile.name}: unknown sandbox {profile.sandbox!r}", "write `sandbox: bwrap`")
    found = shutil.which("bwrap", path=environment.search_path(environ.get("PATH", ""), root))
    if not found or not sys.platform.startswith("linux"):
        raise UsageError(
            f"agents.{profile.name}: `sandbox: bwrap` needs bubblewrap, which is not installed (Linux only)",
            "install it (Debian, Ubuntu: apt install bubblewrap), or remove `sandbox` from doflow.yaml: "
            "the agent is never started without it",
        )
    return found


def _project(root: str, scope: Scope) -> Iterator[str]:
    """Where it may write; then, within that, what it may not. The folders above a protected file are bound too, or
    renaming one of them would expose the file."""
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
    """The writable folders, none inside another."""
    named = {_folder(root, glob) for glob in _globs(scope)}
    named |= {os.path.dirname(os.path.join(root, path)) for path in scope.makes}
    found: list[str] = []
    for folder in sorted(named):
        if not any(folder == other or folder.startswith(f"{other}/") for other in found):
            found.append(folder)
    return found


def _globs(scope: Scope) -> tuple[str, ...]:
    return ("/",) if scope.writes is None else tuple(scope.writes)


def _folder(root: str, glob: str) -> str:
    """The nearest existing folder that contains all matches of a glob."""
    place = root
    for part in head(glob):
        inner = os.path.join(place, part)
        if os.path.islink(inner) or not os.path.isdir(inner):
            break
        place = inner
    return place


def _locked(root: str, folder: str, scope: Scope) -> list[str]:
    """Outermost first: whole folders where nothing below may be written, else files. Of files that are merely outside
    the scope only a limited number: more would make the sandbox slow to set up, and they are reverted afterwards anyway."""
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
    return any(reaches(glob, folder) for glob in scope.writes)


def _between(top: str, path: str) -> list[str]:
    found = []
    above = os.path.dirname(path)
    while len(above) > len(top):
        found.append(above)
        above = os.path.dirname(above)
    return found[::-1]


def _names() -> list[str]:
    """The resolver's files, if they are below /run."""
    real = os.path.realpath("/etc/resolv.conf")
    return [real] if real.startswith("/run/") and os.path.isfile(real) else []


def _programs(command: Command, hidden: tuple[str, ...]) -> list[str]:
    """What the program needs from hidden folders: its own, those on the PATH, and their libraries."""
    path = command.env.get("PATH", os.defpath)
    main = shutil.which(command.argv[0], path=path) or command.argv[0]
    words = [word for word in (main, os.path.realpath(main), *command.argv[1:]) if os.path.isabs(word)]
    found = [os.path.dirname(word) for word in words if os.path.isfile(word)]
    found.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # its hooks run our code
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


_guard = threading.Lock()
_users: Counter[str] = Counter()


def head(glob: str) -> tuple[str, ...]:
    """The folders that a glob names before its first wildcard, without the file name."""
    parts = _parts(glob)
    said = parts if glob.endswith("/") else parts[:-1]
    plain = [is_pattern(part) for part in said]
    return said[: plain.index(True)] if True in plain else said


def reaches(glob: str, folder: str) -> bool:
    """Whether something below `folder` (from the root) can match."""
    parts = _parts(glob.casefold())
    if not parts:
        return True
    there = folder.casefold().split("/")
    shallow = "**" not in glob and not glob.endswith("/") and is_pattern(parts[-1])
    if shallow and len(there) >= len(parts):
        return False
    for said, name in zip(parts, there, strict=False):
        if is_pattern(said):
            return True
        if said != name:
            return False
    return True


def make(root: str, globs: tuple[str, ...]) -> tuple[str, ...]:
    """The folders created now, or by another running job; outermost first."""
    found: list[str] = []
    with _guard:
        for glob in globs:
            place = root
            for part in head(glob):
                place = os.path.join(place, part)
                if part.casefold() in (".git", "..") or os.path.islink(place):
                    break
                if not os.path.lexists(place):
                    os.mkdir(place)
                elif place not in _users:
                    if os.path.isdir(place):
                        continue
                    break
                if place not in found:
                    found.append(place)
        _users.update(found)
    return tuple(found)


def leave(folders: tuple[str, ...]) -> None:
    """Remove those that stayed empty, once no job uses them."""
    with _guard:
        for folder in reversed(folders):
            _users[folder] -= 1
            if _users[folder] <= 0:
                del _users[folder]
                with suppress(OSError):
                    os.rmdir(folder)


def _parts(glob: str) -> tuple[str, ...]:
    """None for a glob without a slash: it matches at any depth."""
    text = glob.removeprefix("./")
    return tuple(part for part in text.split("/") if part) if "/" in text.rstrip("/") else ()


_TOOLS = {"claude": "Write|Edit|MultiEdit|NotebookEdit|Bash", "codex": "apply_patch|Edit|Write|Bash"}


def add_write_hook(ask: Ask, job: Job, context: RunContext, log: str) -> Ask:
    """The call with a hook that knows the step's scope."""
    path = f"{log.removesuffix('.log')}.scope.json"
    scope = Scope(job, context)
    told = {
        "root": str(context.root), "step": job.name, "makes": sorted(scope.makes), "protect": scope.protect,
        "writes": None if scope.writes is None else list(scope.writes), "earlier": sorted(scope.earlier),
    }  # fmt: skip
    os.makedirs(os.path.dirname(path), exist_ok=True)
    atomic_files.write_file(path, json.dumps(told).encode(), sync=False)
    command = call_settings.hook_command("write", "--scope", path)
    hook = Hook("PreToolUse", command, _TOOLS[ask.profile.use], closed=True)
    return replace(ask, hooks=(*ask.hooks, hook))
