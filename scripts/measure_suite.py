"""Measures a command, such as the tests: `python3 -m scripts.measure_suite make test`.

Prints wall time, CPU time, and peak memory of the command and all processes that it starts, also of those that outlive
their parents. The peak is the sum of the PSS of all processes at one moment, so shared memory counts once. Runs before
`.venv` exists.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from scripts.process_tree import MemoryPeak, ProcessTable, adopt_orphans

_INTERVAL_SECONDS = 0.5


def main(command: list[str]) -> int:
    """Returns the exit status of a shell for the command."""
    if not command:
        print("usage: python3 -m scripts.measure_suite COMMAND…", file=sys.stderr)
        return 2
    adopt_orphans()
    peak, ended = MemoryPeak(), threading.Event()
    started = time.monotonic()
    process = subprocess.Popen(command)
    sampling = threading.Thread(target=_sample, args=(peak, ended))
    sampling.start()
    status = _wait(process.pid)
    seconds = time.monotonic() - started
    ended.set()
    sampling.join()
    table = ProcessTable()
    own = sum(os.times()[:2])
    cpu_seconds = table.cpu_seconds(os.getpid()) - own
    print(f"\nwall time    {seconds:8.0f} s")
    print(f"CPU time     {cpu_seconds:8.0f} s")
    print(f"peak memory  {peak.memory.total / 2**30:8.2f} GiB, of which {peak.memory.files / 2**30:.2f} GiB of files")
    for pid in table.tree(os.getpid())[1:]:
        print(f"warning: process {pid} still runs", file=sys.stderr)
    return status if status >= 0 else 128 - status


def _wait(command: int) -> int:
    """Reaps all processes until the command ends, and returns its exit status."""
    while True:
        pid, status = os.wait()
        if pid == command:
            return os.waitstatus_to_exitcode(status)


def _sample(peak: MemoryPeak, ended: threading.Event) -> None:
    """Includes this process, which needs a few MiB."""
    while not ended.wait(_INTERVAL_SECONDS):
        peak.sample(ProcessTable(), os.getpid())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
