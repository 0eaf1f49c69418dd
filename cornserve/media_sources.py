"""From where a gateway fetches the images that a request names by URL. `cornserve up --media-from` changes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

PUBLIC, NONE = "public", "none"


class MediaSourceError(ValueError):
    """What was given names no source; the message is one for people."""


@dataclass(frozen=True, slots=True)
class MediaSources:
    public: bool = True
    """Whatever is on the public internet."""
    hosts: frozenset[str] = frozenset()
    """Trusted by name, whatever address it leads to."""
    networks: frozenset[IPv4Network | IPv6Network] = frozenset()

    @classmethod
    def of(cls, settings: Sequence[str]) -> Self:
        """By default the public internet; else nothing but what is named."""
        if not settings:
            return cls()
        if NONE in settings:
            if len(settings) > 1:
                raise MediaSourceError(f"{NONE!r} goes with no other source")
            return cls(public=False)
        named = [setting for setting in settings if setting != PUBLIC]
        networks = {setting: network for setting in named if (network := _network(setting)) is not None}
        hosts = frozenset(_host(setting) for setting in named if setting not in networks)
        return cls(PUBLIC in settings, hosts, frozenset(networks.values()))

    @property
    def arguments(self) -> list[str]:
        """What makes another process have the same."""
        if self == type(self)():
            return []
        named = [*([PUBLIC] if self.public else []), *sorted(self.hosts), *sorted(map(str, self.networks))]
        return [part for source in named or [NONE] for part in ("--media-from", source)]

    @property
    def are_none(self) -> bool:
        return not (self.public or self.hosts or self.networks)

    def has_host(self, name: str) -> bool:
        return name.rstrip(".").lower() in self.hosts

    def has_address(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self.networks)


def _network(setting: str) -> IPv4Network | IPv6Network | None:
    try:
        ip_address(setting.partition("/")[0])
    except ValueError:
        return None
    try:
        return ip_network(setting)
    except ValueError as error:
        raise MediaSourceError(str(error)) from error


def _host(setting: str) -> str:
    if not setting or any(character in setting for character in "/:@?#*% "):
        raise MediaSourceError(f"{setting!r} is neither {PUBLIC}, {NONE}, a host's name, an address, nor a network")
    return setting.rstrip(".").lower()
