"""Where the gateway is, and by what right it is called."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Self

import httpx2 as httpx

from cornserve.access import ADMIN_TOKEN, is_loopback_name
from cornserve.client.calls import Call
from cornserve.client.errors import ArgumentError
from cornserve.home import HOME_VARIABLE, Home
from cornserve.instance import Instance

DEFAULT_URL = "http://127.0.0.1:8000"

MAX_PORT = 65535

_SENDABLE = re.compile(r"[!-~]+")
"""In a header. Which of them a gateway takes is its own affair."""


@dataclass(frozen=True, slots=True)
class Address:
    url: str
    api_key: str | None = field(repr=False)
    admin_token: str | None = field(repr=False)

    @classmethod
    def of(cls, url: str | None, api_key: str | None = None, admin_token: str | None = None) -> Self:
        """What is not given is found as `Client` says. Raises `ArgumentError`."""
        url = (url or os.environ.get("CORNSERVE_URL") or _running_url() or DEFAULT_URL).rstrip("/")
        _check(url)
        return cls(
            url,
            _secret("api_key", api_key, "CORNSERVE_API_KEY"),
            _secret("admin_token", admin_token, ADMIN_TOKEN),
        )

    def headers(self, call: Call) -> dict[str, str]:
        """With the secret that is meant for the call, else with the other: the admin token is good for all."""
        first, second = (self.admin_token, self.api_key) if call.is_admin else (self.api_key, self.admin_token)
        token = first or second
        return call.headers | ({"Authorization": f"Bearer {token}"} if token else {})

    @property
    def is_loopback(self) -> bool:
        """Then a proxy would look for it on its own machine."""
        return is_loopback_name(httpx.URL(self.url).host)


def _check(url: str) -> None:
    try:
        parsed = httpx.URL(url)
        parsed.raw_host.decode("ascii").encode("idna")  # as it is looked up
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ArgumentError("url", f"{url!r} is no address of a gateway: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > MAX_PORT:
        raise ArgumentError("url", f"{url!r} is no address of a gateway: give one like {DEFAULT_URL}")


def _secret(name: str, given: str | None, variable: str) -> str | None:
    secret = given or os.environ.get(variable) or None
    if secret is not None and not _SENDABLE.fullmatch(secret):
        raise ArgumentError(
            name if given else variable,
            "has other characters than printable ASCII without spaces: give the secret itself, without a line's end",
        )
    return secret


def _running_url() -> str | None:
    try:
        instance = Instance.find_running(Home.default())
    except (OSError, RuntimeError) as error:  # the latter: "~" of nobody
        raise ArgumentError(HOME_VARIABLE, f"is no home that can be looked into: {error}") from error
    return instance.url if instance is not None else None
