"""Where the gateway is, and by what right it is called."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from cornserve.access import names_this_machine
from cornserve.client.calls import Call
from cornserve.home import Home
from cornserve.instance import Instance

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Address:
    url: str
    api_key: str | None = field(repr=False)
    admin_token: str | None = field(repr=False)

    @classmethod
    def of(cls, url: str | None, api_key: str | None = None, admin_token: str | None = None) -> Self:
        """What is not given is found as `Client` says."""
        return cls(
            (url or os.environ.get("CORNSERVE_URL") or _running_url() or DEFAULT_URL).rstrip("/"),
            api_key or os.environ.get("CORNSERVE_API_KEY") or None,
            admin_token or os.environ.get("CORNSERVE_ADMIN_TOKEN") or None,
        )

    def headers(self, call: Call) -> dict[str, str]:
        """With the secret that is meant for the call, else with the other: the admin token is good for all."""
        first, second = (self.admin_token, self.api_key) if call.is_admin else (self.api_key, self.admin_token)
        token = first or second
        return call.headers | ({"Authorization": f"Bearer {token}"} if token else {})

    @property
    def is_loopback(self) -> bool:
        """Then a proxy would look for it on its own machine."""
        return names_this_machine(urlsplit(self.url).hostname or "")


def _running_url() -> str | None:
    instance = Instance.running(Home.default())
    return instance.url if instance is not None else None
