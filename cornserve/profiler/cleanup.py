"""Removes a profiler's temporary apps when the profiler ends: `python -m cornserve.profiler.cleanup URL`.

The profiler holds the standard input open. It closes when the profiler exits or is killed.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from cornserve.client import Client, ClientError
from cornserve.profiler.temporary_apps import remove_temporary_apps


def main() -> int:
    sys.stdin.buffer.read()
    with suppress(ClientError), Client(sys.argv[1]) as client:  # The instance may have ended: it stops its executors.
        remove_temporary_apps(client)
    return 0


if __name__ == "__main__":
    sys.exit(main())
