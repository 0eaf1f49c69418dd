"""To where a connection may be opened for a URL that a client has sent (server-side request forgery).

What counts is the address that a socket is about to be connected to, and that is what is checked: there is no second
look-up that could give another one, whatever the name, the way it is written, or the redirect that led to it.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from aiohttp import AddrInfoType

from cornserve.media_allowlist import MediaAllowlist

PORTS = (80, 443)
"""Of hosts that nobody has named. What listens elsewhere may be anything."""

_IPV4 = [
    ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # looks public, and is what Azure tells its machines
    )
]
"""What is not public, by IANA's register of special addresses."""

_IPV6_PUBLIC = ip_network("2000::/3")
"""The rest of IPv6 is local, or stands for IPv4 addresses (mapped, NAT64)."""
_IPV6 = [ip_network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
"""Of the public: tunnels that stand for IPv4 addresses (Teredo, 6to4), and examples."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _IPV4)
    return address in _IPV6_PUBLIC and not any(address in network for network in _IPV6)


class ClosedError(OSError):
    """Nothing is opened to there. The message is for the client, and gives away nothing about the network."""


class Door:
    """Opens the sockets of one request for a URL of `host`."""

    def __init__(self, host: str, sources: MediaAllowlist) -> None:
        self._is_trusted = sources.allows_host(host)
        self._sources = sources

    def open(self, to: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, (host, port, *_) = to
        self._check(ip_address(str(host).partition("%")[0]), int(port))
        return socket.socket(family, kind, protocol)

    def _check(self, address: IPv4Address | IPv6Address, port: int) -> None:
        if self._is_trusted or self._sources.allows_address(address):
            return
        if not (self._sources.public and is_public(address)):
            raise ClosedError("images are not fetched from there (see `cornserve up --media-from`)")
        if port not in PORTS:
            raise ClosedError("images are fetched from ports 80 and 443 only (see `cornserve up --media-from`)")
