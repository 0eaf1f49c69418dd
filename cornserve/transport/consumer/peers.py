"""The endpoints to which this process may connect. A message can name any address, so it is checked against them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from glob import glob
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Protocol

from cornserve.wire.sockets import split_endpoint

IPNetwork = IPv4Network | IPv6Network


class PeerDirectory(Protocol):
    async def contains(self, endpoint: str) -> bool:
        """Returns whether a process of this instance has the endpoint now."""


class AnnouncedPeers:
    """The endpoints in the files that the executors of this instance write.

    Args:
        pattern: a glob pattern of the files. The first line of each contains an endpoint. Only this instance may write
            to them.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._endpoints: set[str] = set()
        self._reading = asyncio.Lock()
        self._reads = 0

    async def contains(self, endpoint: str) -> bool:
        """Reads the files again, because executors start and end. Concurrent callers share a read."""
        reads = self._reads
        async with self._reading:
            if self._reads == reads:  # no read has begun since the call
                self._reads += 1
                self._endpoints = await asyncio.to_thread(self._read)
        return endpoint in self._endpoints

    def _read(self) -> set[str]:
        return {line for path in glob(self._pattern) for line in _first_line(Path(path))}


class NetworkPeers:
    """All endpoints with one port in the given networks, for example those of the pods of a cluster.

    An endpoint must contain an address: a name would let a message cause a lookup.

    Args:
        networks: for example `10.244.0.0/16`; `0.0.0.0/0` and `::/0` contain all addresses but loopback, link-local,
            multicast and unspecified ones, which must be in a narrower network.
        port: the port at which all executors listen.
    """

    def __init__(self, networks: Iterable[IPNetwork], port: int) -> None:
        self._networks = tuple(networks)
        self._port = port

    async def contains(self, endpoint: str) -> bool:
        """Returns whether the endpoint has the port and an address in one of the networks."""
        try:
            host, port = split_endpoint(endpoint)
            address = ip_address(host)
        except ValueError:
            return False
        if not isinstance(address, IPv4Address):
            address = address.ipv4_mapped or address
        is_special = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
        return port == self._port and any(
            address in network for network in self._networks if network.prefixlen or not is_special
        )


def _first_line(path: Path) -> list[str]:
    """Returns the first line, or nothing if the file is empty or has been removed."""
    try:
        return path.read_text().splitlines()[:1]
    except OSError:
        return []
