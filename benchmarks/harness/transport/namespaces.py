"""Two network namespaces connected by a virtual Ethernet link, like two machines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple


class NotPermittedError(Exception):
    """Network namespaces cannot be created: that requires root, and not all containers permit it."""


class NetworkHost(NamedTuple):
    address: str
    prefix: tuple[str, ...]
    """Prefix of commands that run on the host."""


LOCAL_HOST = NetworkHost("127.0.0.1", ())


@contextmanager
def two_hosts() -> Iterator[tuple[NetworkHost, NetworkHost]]:
    names = [f"cornserve-{os.getpid()}-{number}" for number in (1, 2)]
    ends = [f"cs{os.getpid()}-{number}" for number in (1, 2)]
    addresses = [f"10.213.77.{number}" for number in (1, 2)]
    with ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
        _ip("link", "add", ends[0], "netns", names[0], "type", "veth", "peer", "name", ends[1], "netns", names[1])
        for name, end, address in zip(names, ends, addresses, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            _ip("-n", name, "link", "set", end, "up")
        first, second = (
            NetworkHost(address, ("ip", "netns", "exec", name)) for name, address in zip(names, addresses, strict=True)
        )
        yield first, second


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(("ip", *arguments), check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NotPermittedError("the program `ip` is not installed") from error
    except subprocess.CalledProcessError as error:
        raise NotPermittedError(f"ip {' '.join(arguments)}: {error.stderr.strip()}") from error
