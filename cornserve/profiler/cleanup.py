"""Removes a profiler's temporary apps when the profiler ends: `python -m cornserve.profiler.cleanup URL`.

The arguments of a gateway in a cluster are CONTEXT and NAMESPACE, or empty texts for their defaults: the profiler's
tunnel to the gateway ends with the profiler. The profiler holds the standard input open. It closes when the profiler
exits or is killed.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from cornserve.client import Client, ClientError
from cornserve.profiler.temporary_apps import remove_temporary_apps


def main() -> int:
    sys.stdin.buffer.read()
    with suppress(ClientError), _client(sys.argv[1:]) as client:  # The instance may have ended: it stops its executors.
        remove_temporary_apps(client)
    return 0


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
