"""Protection against server-side request forgery by the URLs in requests.

Checks the address that each socket connects to, after name resolution. Neither DNS rebinding nor redirects nor unusual
spellings of an address bypass the check.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from aiohttp import AddrInfoType

from cornserve.media_allowlist import MediaAllowlist

PORTS = (80, 443)
"""The ports allowed on hosts that `--media-from` does not list."""

_IPV4 = [
    ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # in a public range, but the virtual IP address of the Azure platform
    )
]
"""Addresses that are not public, from IANA's special-purpose address registry."""

_IPV6_PUBLIC = ip_network("2000::/3")
"""All other IPv6 addresses are local or represent IPv4 addresses (mapped, NAT64)."""
_IPV6 = [ip_network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
"""Excluded from the public range: tunnels to IPv4 addresses (Teredo, 6to4), and documentation addresses."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _IPV4)
    return address in _IPV6_PUBLIC and not any(address in network for network in _IPV6)


class SsrfError(OSError):
    """The address is not allowed. The message is for the client, and reveals nothing about the network."""


class SafeSocketFactory:
    """Opens sockets for requests to one host, and only to allowed addresses."""

    def __init__(self, host: str, sources: MediaAllowlist) -> None:
        self._is_trusted = sources.allows_host(host)
        self._sources = sources

    def open_socket(self, address_info: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, (host, port, *_) = address_info
        self._check(ip_address(str(host).partition("%")[0]), int(port))
        return socket.socket(family, kind, protocol)

    def _check(self, address: IPv4Address | IPv6Address, port: int) -> None:
        if self._is_trusted or self._sources.allows_address(address):
            return
        if not (self._sources.public and is_public(address)):
            raise SsrfError("the host is not allowed (see `cornserve up --media-from`)")
        if port not in PORTS:
            raise SsrfError(f"port {port} is not allowed: use 80 or 443 (see `cornserve up --media-from`)")
