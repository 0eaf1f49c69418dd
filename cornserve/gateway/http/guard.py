"""Who may call what."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from urllib.parse import urlsplit

from cornserve.access import Access, is_loopback_name
from cornserve.gateway.errors import ApiError

OPEN = ("/healthz", "/readyz")
"""For probes, which have no keys."""


class Guard:
    """Checks keys where there are any.

    Where there are none, the gateway listens on this machine only, and what is to be kept out are web pages that a
    browser on it shows: they reach it by its address, or by a name of their own that leads to it (DNS rebinding).

    Args:
        host: where the gateway listens.
    """

    def __init__(self, access: Access, host: str) -> None:
        self._admins = [_digest(access.admin_token)] if access.admin_token else []
        self._users = [*map(_digest, access.api_keys), *self._admins] if access.api_keys else []
        self._host = host.lower()
        self._is_ours = lru_cache(maxsize=64)(self._names_us)

    def check(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raises what the client is told."""
        if path in OPEN:
            return
        if not self._users:
            self._check_is_local(headers)
        accepted = self._admins if path.startswith("/admin") else self._users
        if accepted:
            self._check_key(headers.get(b"authorization", b""), accepted)

    def _check_key(self, authorization: bytes, accepted: list[bytes]) -> None:
        scheme, _, key = authorization.partition(b" ")
        given = sha256(key.strip()).digest() if scheme.lower() == b"bearer" else b""
        if _is_one_of(given, accepted):
            return
        if _is_one_of(given, self._users):
            raise ApiError(
                403, "this needs the admin token, and the key is an API key: set CORNSERVE_ADMIN_TOKEN", code="no_admin"
            )
        wanted = "the admin token" if accepted is self._admins else "an API key"
        variable = "CORNSERVE_ADMIN_TOKEN" if accepted is self._admins else "CORNSERVE_API_KEY"
        wrong = "the one that was sent is not known" if given else "none was sent"
        message = f"this needs {wanted}, as `Authorization: Bearer …` ({variable} for Cornserve's clients): {wrong}"
        raise ApiError(401, message, code="invalid_api_key")

    def _check_is_local(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"")
        origin = headers.get(b"origin")
        if not self._is_ours(b"//" + host) or not (origin is None or self._is_ours(origin)):
            message = (
                "without API keys, only requests to an address of this machine are answered, and none of web pages of "
                "other hosts: see --api-keys of `cornserve up`"
            )
            raise ApiError(403, message, code="foreign_host")

    def _names_us(self, url: bytes) -> bool:
        try:
            name = urlsplit(url.decode("ascii")).hostname or ""
        except ValueError:
            return False
        return is_loopback_name(name) or name == self._host


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def _is_one_of(digest: bytes, accepted: list[bytes]) -> bool:
    """Takes as long whichever it is."""
    return sum(hmac.compare_digest(digest, one) for one in accepted) > 0
