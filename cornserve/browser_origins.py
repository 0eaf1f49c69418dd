"""The web pages that may call a gateway from a browser: `cornserve up --allow-origin`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from cornserve.access import Access

ANY = "*"

_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?")


class BrowserOriginError(ValueError):
    """A setting is not a valid origin, or allows too much. The message is for users."""


@dataclass(frozen=True, slots=True)
class BrowserOrigins:
    """Origins such as `https://example.com`, or `*` for all."""

    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for origin in self.origins:
            if origin != ANY and not _ORIGIN.fullmatch(origin):
                raise BrowserOriginError(
                    f"{origin!r} is not an origin: give SCHEME://HOST or SCHEME://HOST:PORT, such as "
                    "https://example.com, or * for all"
                )

    @classmethod
    def parse(cls, settings: Sequence[str]) -> Self:
        """Parses the values of `--allow-origin`."""
        return cls(tuple(setting.lower().removesuffix("/") for setting in settings))

    def check_access(self, access: Access) -> None:
        """Raises `BrowserOriginError` if every web page could use the gateway without a key."""
        if ANY in self.origins and not access.api_keys:
            raise BrowserOriginError(
                "--allow-origin *: every web page could use the gateway: set API keys, or name the origins"
            )

    @property
    def cli_arguments(self) -> list[str]:
        """The command-line arguments from which another process parses equal origins."""
        return [argument for origin in self.origins for argument in ("--allow-origin", origin)]

    def allows(self, origin: bytes) -> bool:
        """Returns whether pages of the origin, as in the `Origin` header, may call `/v1`."""
        return ANY in self.origins or origin.decode("latin-1").lower() in self.origins
