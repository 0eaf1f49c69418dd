"""Checks addresses of UCX before UCX reads them.

UCX reads as far as the sizes in an address lead it, and ends the process if it does not know the version, or if the
address of a device is missing. Layout of version 1 (`src/ucp/wireup/address.c` of UCX):

* header: the version and flags, 1 byte; uuid, 8 bytes
* for each device: index of its memory domain, with the flag "no transport"; size of its address, with flags for the two
  numbers that may follow, and for the last device; its address
* for each transport of the device: checksum of its name, 2 bytes; overhead, bandwidth and latency, as floats; priority
  and capabilities, 4 bytes; size of the interface's address, with flags; the interface's address

The contents of the addresses of devices and interfaces are those of the transports, which check them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

PADDING: Final = bytes(256)
"""Follows an address, because transports read the address of a device in full, whatever its size is."""

MAX_DEVICES: Final = 64
MAX_TRANSPORTS: Final = 64

_HEADER: Final = 0x20
"""Version 1 with the flag for the uuid."""
_MAX_INDEX: Final = 63
"""The largest index of memory domains and of system devices, for which UCX has 64 bits."""
_NO_TRANSPORT: Final = 0x80
_LAST: Final = 0x80
_HAS_PATHS: Final = 0x40
_HAS_SYSTEM_DEVICE: Final = 0x20
_DEVICE_BYTES: Final = 0x1F
_HAS_ENDPOINT: Final = 0x40
_INTERFACE_BYTES: Final = 0x3F
_ATTRIBUTES: Final = struct.Struct("<3fI")
_MAX_BYTES_PER_SECOND: Final = 1e15


@dataclass(frozen=True, slots=True)
class UcxTransport:
    """A transport in an address."""

    name_checksum: bytes
    has_device_address: bool
    has_interface_address: bool


def parse(address: bytes) -> frozenset[UcxTransport]:
    """Returns the transports. Raises `ValueError` if UCX would not read the address as it is, or could fail."""
    stream = io.BytesIO(address)
    if (header := _byte(stream)) != _HEADER:
        raise ValueError(f"its header is {header:#04x}, and {_HEADER:#04x} is expected")
    _take(stream, 8)
    transports: list[UcxTransport] = []
    for _ in range(MAX_DEVICES):
        is_last, found = _device(stream)
        transports += found
        if is_last:
            break
    else:
        raise ValueError(f"it has more than {MAX_DEVICES} devices")
    if rest := len(stream.read()):
        raise ValueError(f"{rest} bytes follow its end")
    if not 0 < len(transports) <= MAX_TRANSPORTS:
        raise ValueError(f"it has {len(transports)} transports")
    return frozenset(transports)


def check(address: bytes, local: frozenset[UcxTransport]) -> None:
    """Raises `ValueError` if UCX cannot read the address of another process.

    Args:
        local: the transports of this process, which read their parts of the address.
    """
    known = {transport.name_checksum: transport for transport in local}
    for transport in parse(address):
        if known.get(transport.name_checksum, transport) != transport:
            raise ValueError("a transport has no address")


def _device(stream: io.BytesIO) -> tuple[bool, list[UcxTransport]]:
    """Returns whether the device is the last one, and its transports."""
    index, size = _byte(stream), _byte(stream)
    if size & _HAS_PATHS and not _byte(stream):
        raise ValueError("a device has no path")
    if size & _HAS_SYSTEM_DEVICE and _byte(stream) > _MAX_INDEX:
        raise ValueError("a device has an index that is too large")
    has_address = bool(_take(stream, size & _DEVICE_BYTES))
    if index & _NO_TRANSPORT:
        return bool(size & _LAST), []
    if index > _MAX_INDEX:
        raise ValueError("a memory domain has an index that is too large")
    return bool(size & _LAST), list(_transports(stream, has_device_address=has_address))


def _transports(stream: io.BytesIO, *, has_device_address: bool) -> Iterator[UcxTransport]:
    is_last = False
    while not is_last:
        checksum = _take(stream, 2)
        overhead, bandwidth, latency, _ = _ATTRIBUTES.unpack(_take(stream, _ATTRIBUTES.size))
        if not (0 <= overhead < 1 and 0 < bandwidth < _MAX_BYTES_PER_SECOND and 0 <= latency < 1):
            raise ValueError(f"a transport has overhead {overhead}, bandwidth {bandwidth} and latency {latency}")
        size = _byte(stream)
        if size & _HAS_ENDPOINT:
            raise ValueError("it is the address of an endpoint")
        is_last = bool(size & _LAST)
        yield UcxTransport(checksum, has_device_address, bool(_take(stream, size & _INTERFACE_BYTES)))


def _byte(stream: io.BytesIO) -> int:
    return _take(stream, 1)[0]


def _take(stream: io.BytesIO, nbytes: int) -> bytes:
    part = stream.read(nbytes)
    if len(part) < nbytes:
        raise ValueError("it ends too early")
    return part
