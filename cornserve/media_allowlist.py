"""The sources from which a gateway fetches images that a request names by URL: `cornserve up --media-from`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

PUBLIC, NONE = "public", "none"


class MediaAllowlistError(ValueError):
    """A setting is not a valid source. The message is for users."""


@dataclass(frozen=True, slots=True)
class MediaAllowlist:
    public: bool = True
    """Whether all public internet addresses are allowed."""
    hosts: frozenset[str] = frozenset()
    """Host names that are allowed whatever their addresses."""
    networks: frozenset[IPv4Network | IPv6Network] = frozenset()
    """Networks that are allowed in addition."""

    @classmethod
    def parse(cls, settings: Sequence[str]) -> Self:
        """Parses the values of `--media-from`. Without any, only the public internet is allowed."""
        if not settings:
            return cls()
        if NONE in settings:
            if len(settings) > 1:
                raise MediaAllowlistError(
                    f"{NONE!r} cannot be combined with other sources, but is in {list(settings)}: remove it or them"
                )
            return cls(public=False)
        sources = [setting for setting in settings if setting != PUBLIC]
        networks = {source: network for source in sources if (network := _network(source)) is not None}
        hosts = frozenset(_host(source) for source in sources if source not in networks)
        return cls(PUBLIC in settings, hosts, frozenset(networks.values()))

    @property
    def cli_arguments(self) -> list[str]:
        """The command-line arguments from which another process parses an equal allowlist."""
        if self == type(self)():
            return []
        sources = [*([PUBLIC] if self.public else []), *sorted(self.hosts), *sorted(map(str, self.networks))]
        return [argument for source in sources or [NONE] for argument in ("--media-from", source)]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is fetched."""
        return not (self.public or self.hosts or self.networks)

    def allows_host(self, name: str) -> bool:
        return name.rstrip(".").lower() in self.hosts

    def allows_address(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self.networks)


def _network(setting: str) -> IPv4Network | IPv6Network | None:
    try:
        ip_address(setting.partition("/")[0])
    except ValueError:
        return None
    try:
        return ip_network(setting)
    except ValueError as error:
        raise MediaAllowlistError(str(error)) from error


def _host(setting: str) -> str:
    if not setting or any(character in setting for character in "/:@?#*% "):
        raise MediaAllowlistError(
            f"{setting!r} is not a valid source: give {PUBLIC}, {NONE}, a host name, an address or a network"
        )
    return setting.rstrip(".").lower()
