"""Removes a profiler's temporary apps when the profiler ends: `python -m cornserve.profiler.cleanup PREFIX URL`.

PREFIX is the beginning of the names of the profiler's apps. The arguments of a gateway in a cluster are CONTEXT and
NAMESPACE, or empty texts for their defaults, instead of URL: the profiler's tunnel to the gateway ends with the
profiler. The profiler holds the standard input open. It closes when the profiler is killed. A profiler that exits
writes to it first.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

from cornserve.client import Client, ClientError
from cornserve.profiler.temporary_apps import remove_temporary_apps

STORING_SECONDS = 60.0
"""The time in which the gateway has stored an app that the profiler sent before it was killed."""

PAUSE_SECONDS = 0.5


def main() -> int:
    has_ended = bool(sys.stdin.buffer.read())
    deadline = time.monotonic() + (0.0 if has_ended else STORING_SECONDS)
    prefix, *gateway = sys.argv[1:]
    remove_until(lambda: _client(gateway), prefix, lambda: time.monotonic() >= deadline)
    return 0


def remove_until(connect: Callable[[], Client], prefix: str, is_over: Callable[[], bool]) -> None:
    """Deletes all apps whose names begin with `prefix`, once or repeatedly."""
    while True:
        with suppress(ClientError), connect() as client:  # The gateway may restart, or the instance may have ended.
            while True:
                remove_temporary_apps(client, prefix)
                if is_over():
                    return
                time.sleep(PAUSE_SECONDS)
        if is_over():
            return
        time.sleep(PAUSE_SECONDS)


def _client(arguments: list[str]) -> Client:
    match arguments:
        case [url]:
            return Client(url)
        case [context, namespace]:
            return Client.for_cluster(context or None, namespace or None)
        case _:
            raise ValueError(f"give URL, or CONTEXT and NAMESPACE, not {arguments}")


if __name__ == "__main__":
    sys.exit(main())
