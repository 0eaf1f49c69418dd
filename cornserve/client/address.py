"""The gateway's URL, and the secrets that are sent to it."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import httpx2 as httpx

from cornserve.access import ADMIN_TOKEN, API_KEY, is_loopback_name
from cornserve.client.calls import ApiCall
from cornserve.client.errors import ArgumentError
from cornserve.home import HOME_VARIABLE, Home
from cornserve.instance import Instance

DEFAULT_PORT = 8000

PORT_VARIABLE = "CORNSERVE_PORT"
"""Environment variable: the port of the gateway on this machine."""

MAX_PORT = 65535

_SENDABLE = re.compile(r"[!-~]+")
"""Characters that a header can contain. The gateway may accept fewer."""


@dataclass(frozen=True, slots=True)
class ClusterSelection:
    """An installation of Cornserve in a Kubernetes cluster.

    Args:
        context: a context of the kubeconfig, or None for its current context.
        namespace: a namespace, or None for the namespace of the context.
    """

    context: str | None
    namespace: str | None


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    url: str
    api_key: str | None = field(repr=False)
    admin_token: str | None = field(repr=False)
    place: str
    """The gateway in messages for users: its URL, or its cluster if `url` is the local end of a tunnel."""
    close: Callable[[], None] = lambda: None
    """Ends the tunnel."""
    cluster: ClusterSelection | None = None
    """The cluster to which the tunnel leads."""

    @classmethod
    def resolve(cls, url: str | None, api_key: str | None = None, admin_token: str | None = None) -> Self:
        """Fills in missing arguments from the environment, as `Client` documents. Raises `ArgumentError`."""
        url = (url or os.environ.get("CORNSERVE_URL") or _running_url() or default_url()).rstrip("/")
        _check(url)
        return cls(
            url,
            _secret("api_key", api_key, API_KEY),
            _secret("admin_token", admin_token, ADMIN_TOKEN),
            place=_without_password(url),
        )

    def headers(self, call: ApiCall) -> dict[str, str]:
        """Returns the call's headers with its secret, or with the other secret if its own is missing."""
        first, second = (self.admin_token, self.api_key) if call.is_admin else (self.api_key, self.admin_token)
        token = first or second
        return call.headers | ({"Authorization": f"Bearer {token}"} if token else {})

    @property
    def is_loopback(self) -> bool:
        """Whether the gateway runs on this machine, so that a proxy could not reach it."""
        return is_loopback_name(httpx.URL(self.url).host)

    @property
    def tls(self) -> ssl.SSLContext:
        """The context that verifies certificates, by those of the system or of SSL_CERT_FILE, also on this machine.

        To read them takes 30 ms of CPU time. They are left out where no connection uses TLS.
        """
        is_plain = self.is_loopback and httpx.URL(self.url).scheme == "http"
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else httpx.create_ssl_context()


def default_url() -> str:
    """Returns the URL of a gateway on this machine that no instance file names. Raises `ArgumentError`."""
    port = os.environ.get(PORT_VARIABLE) or str(DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= MAX_PORT):
        raise ArgumentError(PORT_VARIABLE, f"{port[:80]!r} is not a port: give a number such as {DEFAULT_PORT}")
    return f"http://127.0.0.1:{int(port) or DEFAULT_PORT}"


def _check(url: str) -> None:
    try:
        parsed = httpx.URL(url)
        parsed.raw_host.decode("ascii").encode("idna")  # Resolvers use this encoding.
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ArgumentError("url", f"{url!r} is not a valid URL: {error}: give one like {default_url()}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > MAX_PORT:
        raise ArgumentError("url", f"{url!r} is not the URL of a gateway: give one like {default_url()}")


def _without_password(url: str) -> str:
    """Returns a URL for messages: without a user name and a password, if it has them."""
    parsed = httpx.URL(url)
    return str(parsed.copy_with(userinfo=b"")) if parsed.userinfo else url


def _secret(name: str, given: str | None, variable: str) -> str | None:
    secret = given or os.environ.get(variable) or None
    if secret is not None and not _SENDABLE.fullmatch(secret):
        raise ArgumentError(
            name if given else variable,
            "contains characters other than printable ASCII without spaces: give the secret only, without a newline",
        )
    return secret


def _running_url() -> str | None:
    try:
        instance = Instance.find_running(Home.default())
    except (OSError, RuntimeError) as error:  # RuntimeError: "~" of an unknown user.
        raise ArgumentError(
            HOME_VARIABLE, f"is not a readable home directory: {error}: correct it, or set CORNSERVE_URL"
        ) from error
    return instance.url if instance is not None else None
