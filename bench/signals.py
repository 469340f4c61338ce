"""What a signal costs, against the same file by hand: `python -m bench.signals [--check] [--rounds N]`.

Twenty processes write fifty signals each, all at once, while a reader takes every one of them away; then twenty that write the
same bytes with nothing but write, fsync, rename and fsync of the folder, while a reader moves them. The clock runs from the
first write to the last. The two take turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WRITERS, EACH = 20, 50
MOST = 1.5

_START = """
import sys, time
folder, me, start = sys.argv[1], sys.argv[2], float(sys.argv[3])
def ready():
    time.sleep(max(0.0, start - time.time()))
    return time.time()
"""
OURS = f"""{_START}
from doflow.flow.parsing import schema
from doflow.supervise.signal_store import Signal
from doflow.supervise.signal_store import SignalStore
schema.validator("signal")
store = SignalStore(folder, "bench")
begun = ready()
for number in range({EACH}):
    store.write(Signal("GUIDANCE", {{"node_id": me, "message": str(number)}}))
print(begun, time.time())
"""
PLAIN = f"""{_START}
import json, os
begun = ready()
for number in range({EACH}):
    payload = {{"node_id": me, "message": str(number)}}
    words = {{"source": "guardian", "target": "runner", "signal_type": "GUIDANCE", "timestamp": str(time.time()),
             "pipeline": "bench", "payload": payload}}
    data = (json.dumps(words, indent=1) + "\\n").encode()
    fd = os.open(f"{{folder}}/.{{me}}.{{number}}.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    os.rename(f"{{folder}}/.{{me}}.{{number}}.tmp", f"{{folder}}/{{me}}-{{number}}.json")
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
print(begun, time.time())
"""
READ_OURS = f"""
import sys
from doflow.supervise import signal_watch
from doflow.supervise.signal_store import SignalStore
store, left = SignalStore(sys.argv[1], "bench"), {WRITERS * EACH}
while left:
    def take():
        found = 0
        for signal in store.waiting(target="runner"):
            found += store.consume(signal)
        return found or None
    left -= signal_watch.until(take, [store.folder], 60) or sys.exit("signals are missing")
"""
READ_PLAIN = f"""
import json, os, sys, time
folder, left = sys.argv[1], {WRITERS * EACH}
while left:
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            with open(f"{{folder}}/{{name}}") as stream:
                json.load(stream)
            os.rename(f"{{folder}}/{{name}}", f"{{folder}}/processed/{{name}}")
            for one in (folder, f"{{folder}}/processed"):
                fd = os.open(one, os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)
            left -= 1
    time.sleep(0.01)
"""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.signals", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--check", action="store_true", help="exit 1 if the target is missed")
    asked = parser.parse_args(words)
    pairs = [(_timed(OURS, READ_OURS), _timed(PLAIN, READ_PLAIN)) for _ in range(asked.rounds)]
    ours, plain = ([pair[which] for pair in pairs] for which in (0, 1))
    middle = statistics.median(one / other for one, other in pairs)
    least = min(ours) / min(plain)
    print(f"| {WRITERS} writers, {EACH} signals each | seconds, median (min) |\n|---|---|")
    for name, row in (("doflow", ours), ("by hand", plain)):
        print(f"| {name} | {statistics.median(row):.2f} ({min(row):.2f}) |")
    missed = middle > MOST and least > MOST
    print(f"ratio: {middle:.2f} in pairs, {least:.2f} of the minima; at most {MOST:g}{': MISS' if missed else ''}")
    return 1 if asked.check and missed else 0


def _timed(writer: str, reader: str) -> float:
    """From the first write to the last; every signal must have been read."""
    with tempfile.TemporaryDirectory(prefix="doflow-bench-") as folder:
        for part in ("processed", "quarantine", "answers"):
            (Path(folder) / part).mkdir()
        start = str(time.time() + 4)
        reading = subprocess.Popen((sys.executable, "-c", reader, folder))
        writing = [
            subprocess.Popen((sys.executable, "-c", writer, folder, f"w{number}", start), stdout=subprocess.PIPE, text=True)
            for number in range(WRITERS)
        ]  # fmt: skip
        spans = [[float(word) for word in process.communicate()[0].split()] for process in writing]
        if reading.wait(timeout=60) or not all(spans):
            raise SystemExit("a writer or the reader failed")
        return max(end for _, end in spans) - min(begun for begun, _ in spans)


if __name__ == "__main__":
    sys.exit(main())
