"""The interface of libraries for RDMA networks (*fabrics*), and the connections over which processes use them.

Each pair of connected processes has connections of the kind that the other protocols use, with the handshake. Messages
over them name the capability of a tensor, so that the producer lets the library copy this tensor only, and report
whether the memory still belonged to the tensor when the copy was complete.
"""

from __future__ import annotations

import zlib
from typing import Final, Protocol

from cornserve.pull_protocol import PullProtocol

MAX_MESSAGE_BYTES: Final = 256 << 10
"""Limit for an address or an offer of the library. Both have some hundred bytes per network device and step."""


class FabricLink(Protocol):
    """The library's connection to one other process."""

    async def open(self) -> bytes:
        """Returns the address of the link, to which the other process connects. Raises `OSError`."""

    async def connect(self, address: bytes) -> None:
        """Connects to the link with the address. Raises `OSError` if no process can have the address."""

    async def offer(self, source: memoryview, tag: int) -> bytes:
        """Lets the other process copy the memory until `withdraw`. Returns what it needs for this."""

    async def withdraw(self) -> None:
        """Ends the offer. The other process has copied the memory."""

    async def fetch(self, offer: bytes, into: memoryview, tag: int) -> None:
        """Fills `into`. Nothing writes to it after the call, even if the call fails. Raises `OSError`."""

    def close(self) -> None:
        """Ends offers and fetches in the background. They fail."""

    async def wait_closed(self) -> None:
        """Waits after `close` until the library does not access memory for the link."""


class Fabric(Protocol):
    protocol: PullProtocol
    version: str
    """The version of the library, which both ends must have: others may format addresses differently."""
    has_rdma: bool
    """Whether the library can use a network device with RDMA on this machine."""

    def link(self) -> FabricLink: ...

    async def close(self) -> None: ...


def preamble(fabric: Fabric) -> bytes:
    return f"cornserve.v1.Pull.{fabric.protocol}-{fabric.version}/1\n".encode()


def with_checksum(address: bytes) -> bytes:
    """Returns the address of a library as messages contain it."""
    return zlib.crc32(address).to_bytes(4) + address


def check_address(content: bytes) -> bytes:
    """Returns the address that a message contains. Raises `OSError` if it is damaged."""
    address = content[4:]
    if not address or with_checksum(address) != content:
        raise OSError("the other end sent a damaged address")
    return address
