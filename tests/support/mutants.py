"""Small faults in the parts that decide what is paid, kept and committed: does a test see each of them?

    python -m tests.support.mutants [--readme | --fast] [AREA …]

Each fault replaces one expression that occurs once in src/. It is made in a temporary copy of the checkout with an
environment of its own, so that processes which tests start run the copy, too. With `--readme` only the tests of the README's
command run, with `--fast` of these only unit and contract tests, else all tests of the area. Prints a table and the score; a
text that is not found is an error.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).parent.parent.parent
COPIED = ("src", "tests", "flows", "schemas", "docs", "dodo.py", "pyproject.toml", "README.md")


FAST = ("tests/unit/", "tests/contract/")


class Mutant(NamedTuple):
    area: str
    old: str
    new: str


#: the tests of each area: those that are fast first
TESTS = {
    "fingerprint": (
        "tests/unit/runs/test_fingerprint.py", "tests/e2e/test_freshness.py", "tests/e2e/test_inputs.py",
        "tests/e2e/test_phases.py", "tests/e2e/test_rerun_triggers.py",
    ),
    "freshness": (
        "tests/unit/runs/test_freshness.py", "tests/e2e/test_freshness.py", "tests/e2e/test_rerun_triggers.py",
    ),
    "files": ("tests/unit/runs/test_project_files.py", "tests/e2e/test_clones_and_history.py"),
    "lock file": ("tests/unit/runs/test_lockfile.py", "tests/fault/test_unreadable_lock.py"),
    "event log": ("tests/unit/runs/test_event_log.py", "tests/fault/test_torn_state.py"),
    "run record": ("tests/unit/runs/test_run_record.py", "tests/fault/test_kept_results.py"),
    "job runner": ("tests/unit/engine/jobs/test_job_runner.py", "tests/fault/test_kept_results.py"),
    "agent results": (
        "tests/unit/engine/jobs/test_job_runner.py", "tests/unit/engine/jobs/test_agent_results.py",
        "tests/fault/test_kept_results.py", "tests/fault/test_killed_then_changed.py",
    ),
    "recovery": (
        "tests/unit/engine/lifecycle/test_recovery.py", "tests/e2e/test_after_a_kill.py", "tests/fault/test_killed_agent.py",
    ),
    "commit": ("tests/unit/engine/jobs/test_commit.py", "tests/unit/git/test_commit.py", "tests/e2e/git/test_commit.py"),
    "gate": ("tests/unit/engine/steps/test_gate.py", "tests/e2e/test_gates.py"),
    "rate limits": ("tests/unit/agents/test_rate_limits.py", "tests/e2e/test_limits.py"),
    "adapters": ("tests/unit/agents/adapters/test_records.py", "tests/contract/test_adapters.py", "tests/contract/test_agents.py"),
    "scope": ("tests/unit/guard/fence/test_scope.py", "tests/e2e/test_scopes.py"),
}  # fmt: skip

MUTANTS = tuple(Mutant(*values) for values in (
    ("fingerprint", 'if path not in own}', '}'),
    ("fingerprint", 'if name != "index"}', '}'),
    ("fingerprint", '"section": short_hash(markdown.untick_boxes(text).strip())', '"section": short_hash(text.strip())'),
    ("fingerprint", 'parts["before"] = before[:16]', 'pass'),
    ("fingerprint", 'if not found[shown] and not read.optional', 'if not found[shown]'),
    ("fingerprint", 'if voices := [voice.text for voice in step.voices if not voice.packaged]', 'if False'),
    ("fingerprint", "short_hash([sorted(parts.items()), sorted(reads.items())], 64)", "short_hash([sorted(parts.items())], 64)"),
    ("freshness", 'return bool(now) and held is not None and held.author == "person"', 'return False'),
    ("freshness", 'context.record.held_files.get(path) == now', 'False'),
    ("freshness", 'names = {*record.parts, *key.parts} - {"agent"}', 'names = {*record.parts, *key.parts}'),
    ("freshness", 'record.by.get("for", was) != now', 'True'),
    ("freshness", 'made.digest != now or made.author == "person"', 'made.author == "person"'),
    ("files", 'if known is None or known[0] != signature', 'if known is None'),
    ("files", 'b"\\r" in data and b"\\0" not in data[:8000]', 'False'),
    ("lock file", 'held is None or held[0] is not row', 'held is None'),
    ("lock file", 'values.get("doflow") != 1', 'False'),
    ("lock file", 'elif key not in known and not maps:', 'elif False:'),
    ("lock file", 'if needed not in row:', 'if False:'),
    ("event log", 'if self._copy is None or self._file is None or self._file.mark() == self._mark', 'if True'),
    ("event log", 'sync = event in DURABLE if durable is None else durable', 'sync = durable'),
    ("event log", 'if isinstance(entry, dict) and "event" in entry:', 'if isinstance(entry, dict):'),
    ("run record", 'if not entry.get("again"):\n                self._returned.pop(name, None)', 'self._returned.pop(name, None)'),
    ("run record", 'if not alone and not entry.get("loose"):', 'if not alone:'),
    ("run record", 'known.digest != approval.digest and known.at < approval.at', 'known.at < approval.at'),
    ("run record", 'if name in self._uncommitted:\n                self._steps', 'if True:\n                self._steps'),
    ("run record", 'entry.get("held") and name in self._returned', 'False'),
    ("run record", 'elif event in ("gate", "rejected", "reset"):', 'elif event in ("gate", "reset"):'),
    ("job runner", 'turns >= job.step.repair', 'turns > job.step.repair'),
    ("job runner", 'if attempt > retry.attempts', 'if attempt >= retry.attempts'),
    ("job runner", 'if seen[outcome.reason] > 2', 'if seen[outcome.reason] > 1'),
    ("job runner", 'if outcome.ok or not outcome.transient', 'if outcome.ok'),
    ("job runner", 'if watched and not outcome.ok and not outcome.held', 'if watched and not outcome.ok'),
    ("job runner", 'job.phase is None and job.step.id not in context.options.force', 'job.phase is None'),
    ("agent results", 'if entry.get("key") != job.key.key:\n        return None', 'if False:\n        return None'),
    ("agent results", 'context.files.digest(path) in (digest, "")', 'context.files.digest(path) == digest'),
    ("agent results", 'bool(entry.get("again")) or job.key.key in known', 'job.key.key in known'),
    ("agent results", 'if now != files:\n        fields', 'if False:\n        fields'),
    ("agent results", 'if job.phase is None or not _at_work(context, files)', 'if job.phase is None'),
    ("recovery", 'if record is not None and intent is not None', 'if intent is not None'),
    ("recovery", 'context.record.remove_step(name.partition(":")[0])', 'pass'),
    ("recovery", 'if there.get(name) != context.record.steps[name].key', 'if name not in there'),
    ("recovery", 'if (now := context.files.digest(path)) and now != digest]', 'if context.files.digest(path)]'),
    ("recovery", "if data and not lockfile.has_conflict(data) else None", "if data else None"),
    ("recovery", 'not book.steps and not context.run.fresh and not', 'not book.steps and not context.run.fresh and'),
    ("commit", 'if now != context.run.branch and not context.options.reopen', 'if False'),
    ("commit", 'held is None or held.key != key or again', 'held is None'),
    ("commit", 'context.record.remove_step(job.name)\n    if job.last', 'if job.last'),
    ("commit", 'if not job.last and len(phases) < len(names)', 'if False'),
    ("commit", 'expect is not None and head.commit != expect', 'False'),
    ("commit", 'head.commit or "0" * len(new))', ')'),
    ("commit", 'if path not in theirs:\n            _, mode', 'if True:\n            _, mode'),
    ("commit", 'if head.ref != git.head.ref', 'if False'),
    ("gate", "held is not None and held.digest in (shown_digest(step, context), _raw_digest(step, context))", "held is not None"),
    ("gate", 'if rule is None:\n        return _unmarked', 'if False:\n        return _unmarked'),
    ("gate", 'context.record.mark_uncommitted(step.id)\n        context.events.add("approved"',
     'context.events.add("approved"'),
    ("rate limits", 'if self._waited + seconds > most', 'if seconds > most'),
    ("rate limits", 'rule.backoff * 2 ** (attempt - 1)', 'rule.backoff'),
    ("rate limits", 'len(seen) == 1 and not context.options.agent', 'len(seen) == 1'),
    ("rate limits", "epoch_seconds(until) > time.time()", "True"),
    ("adapters", 'last["is_error"] is False and last["subtype"] == "success"', 'last["subtype"] == "success"'),
    ("adapters", 'return Usage(fresh + made + cached, out, cached, usd)', 'return Usage(fresh + made, out, cached, usd)'),
    ("adapters", 'info.get("status") == "rejected"', 'True'),
    ("adapters", 'success, error = False, _error(record) or error', 'error = _error(record) or error'),
    ("adapters", 'if answer.success and result.code == 0', 'if answer.success'),
    ("adapters", 'else moment + timedelta(days=1)', 'else moment'),
    ("scope", 'path for path in context.record.artifacts if path not in mine', 'path for path in ()'),
    ("scope", 'return ".git" in path.casefold().split("/")', 'return ".git" in path.split("/")'),
    ("scope", "if self.protects(path) or is_git_file(path)", "if self.protects(path)"),
    ("scope", '*context.settings.protect, *context.flow.protect, *job.step.protect',
     '*context.settings.protect, *job.step.protect'),
    ("scope", "mine = self.makes | job.repairs | self.lists", "mine = self.makes | self.lists"),
))  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--readme", action="store_true", help="only the tests of the README's command")
    options.add_argument("--fast", action="store_true", help="only unit and contract tests")
    options.add_argument("areas", nargs="*", metavar="AREA", help=", ".join(TESTS))
    given = options.parse_args()
    chosen = [mutant for mutant in MUTANTS if not given.areas or mutant.area in given.areas]
    places = [find_file(mutant.old) for mutant in chosen]  # every text is looked for before anything runs
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        python = copy_checkout(Path(folder))
        seen = 0
        for mutant, place in zip(chosen, places, strict=True):
            found = is_seen(Path(folder), python, place, mutant, given.readme, given.fast)
            seen += found
            words = " ".join(mutant.old.split())
            print(f"{'seen    ' if found else 'SURVIVED'}  {mutant.area:14} {place.stem:18} {words[:70]}", flush=True)
    print(f"{seen} of {len(chosen)} seen ({100 * seen // max(1, len(chosen))} %)")
    return 0


def find_file(old: str) -> Path:
    """The one file of src/ that holds this text, relative to the checkout."""
    found = [path for path in sorted((CHECKOUT / "src").rglob("*.py")) if old in path.read_text()]
    count = sum(path.read_text().count(old) for path in found)
    if count != 1:
        raise SystemExit(
            f"mutants: {old!r} is {count} times in src: {', '.join(path.name for path in found) or 'nowhere'}"
        )
    return found[0].relative_to(CHECKOUT)


def copy_checkout(folder: Path) -> Path:
    """Copies the checkout; gives the Python of an environment that is like ours but imports the copy."""
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / name)
    ours, copied = Path(sys.prefix), folder / ".venv"
    (copied / "bin").mkdir(parents=True)
    shutil.copy(ours / "pyvenv.cfg", copied)
    for program in (ours / "bin").iterdir():
        if program.is_symlink() or not program.read_bytes().startswith(b"#!"):
            os.symlink(os.path.realpath(program), copied / "bin" / program.name)
        else:
            text = program.read_bytes().replace(os.fsencode(ours), os.fsencode(copied))
            (copied / "bin" / program.name).write_bytes(text)
            (copied / "bin" / program.name).chmod(0o755)
    packages = next(ours.glob("lib/python*/site-packages"))
    target = copied / packages.relative_to(ours)
    target.mkdir(parents=True)
    for entry in packages.iterdir():
        if entry.suffix == ".pth" and str(CHECKOUT) in entry.read_text():
            (target / entry.name).write_text(entry.read_text().replace(str(CHECKOUT), str(folder)))
        else:
            os.symlink(entry, target / entry.name)
    return copied / "bin" / "python"


def is_seen(folder: Path, python: Path, place: Path, mutant: Mutant, readme: bool, fast: bool) -> bool:
    text = (folder / place).read_text()
    changed = text.replace(mutant.old, mutant.new)
    compile(changed, place, "exec")  # a fault that is no Python would be seen by anything
    write(folder / place, changed)
    try:
        tests = [name for name in TESTS[mutant.area] if not fast or name.startswith(FAST)]
        return any(fails(folder, python, name, readme) for name in tests)
    finally:
        write(folder / place, text)


def write(path: Path, text: str) -> None:
    """Also without its compiled form, which is believed if time and size are the same."""
    path.write_text(text)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def fails(folder: Path, python: Path, name: str, readme: bool) -> bool:
    words = [str(python), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=120", name]
    words += ["-m", "not slow"] if readme else []
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ended = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1, 2, 5):
        raise SystemExit(f"mutants: {' '.join(words)}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return ended.returncode in (1, 2)


if __name__ == "__main__":
    sys.exit(main())
