"""Authentication and authorization of requests."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from urllib.parse import urlsplit

from cornserve.access import ADMIN_TOKEN, API_KEY, Access, is_loopback_name
from cornserve.app.app_logs import APP_LOGS_PATH, APP_LOGS_TOKEN
from cornserve.app.arrivals import ARRIVALS_PATH, ARRIVALS_TOKEN
from cornserve.app.live_figures import LIVE_PATH, LIVE_TOKEN
from cornserve.browser_origins import BrowserOrigins
from cornserve.control.profiling.job import PROFILER_TOKEN, TEMPORARY_PREFIX
from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.model_paths import calls_model
from cornserve.instance_secret import InstanceSecret

PUBLIC_PATHS = ("/healthz", "/health", "/livez", "/ping", "/readyz")
"""Paths that need no key, for probes."""

READING_METHODS = ("GET", "HEAD")
"""Methods that change nothing."""

KEY_HEADERS = (b"x-api-key", b"api-key")
"""Headers in which clients of Anthropic and Azure send the key, instead of `Authorization: Bearer`."""

INTERNAL_PREFIX = "/internal/"
"""Paths for other processes of the instance."""

PROFILER_PATHS = re.compile(rf"/v1/models|/admin/v1/apps|/(admin/)?v1/apps/{TEMPORARY_PREFIX}[^/]+(/invoke)?")
"""Paths for the processes that measure apps for the controller."""


class Authenticator:
    """Checks API keys, the admin token and the read-only token.

    Without API keys, the gateway listens on this machine only. It then rejects requests from web pages in a local
    browser, which can reach it by its address or by their own host names (DNS rebinding).

    Args:
        read_access: returns the secrets, which may change.
        host: the address that the gateway listens on.
        origins: the web pages that may call `/v1`.
        secret: the secret from which the tokens of the other processes of the instance follow.
    """

    def __init__(
        self, read_access: Callable[[], Access], host: str, secret: InstanceSecret, origins: BrowserOrigins
    ) -> None:
        purposes = {ARRIVALS_PATH: ARRIVALS_TOKEN, APP_LOGS_PATH: APP_LOGS_TOKEN, LIVE_PATH: LIVE_TOKEN}
        self._internal = {path: _digest(secret.token(purpose).encode()) for path, purpose in purposes.items()}
        self._profilers = [_digest(secret.token(PROFILER_TOKEN).encode())]
        self._read_access = read_access
        self._access = read_access()
        self._admins, self._users, self._readers = _accepted(self._access)
        self._origins = origins
        self._host = host.lower()
        self._is_own_host = lru_cache(maxsize=64)(self._parse_own_host)

    def check(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Raises an `ApiError` (401, 403) if the request is not allowed."""
        if path in PUBLIC_PATHS:
            return
        if path.startswith(INTERNAL_PREFIX):
            self._check_internal_token(path, headers)
            return
        if (access := self._read_access()) is not self._access:
            self._access = access
            self._admins, self._users, self._readers = _accepted(access)
        if not self._users:
            self._check_is_local(path, headers)
        accepted = self._admins if path.startswith("/admin") else self._users
        if accepted:
            self._check_key(method, path, headers, accepted)

    def _check_key(self, method: str, path: str, headers: Mapping[bytes, bytes], accepted: list[bytes]) -> None:
        given = _given_digest(headers)
        if _is_accepted(given, accepted):
            return
        if _is_accepted(given, self._readers):
            if method in READING_METHODS:
                return
            raise read_only_error()
        if _is_accepted(given, self._profilers) and PROFILER_PATHS.fullmatch(path):
            return
        if _is_accepted(given, self._users):
            raise ApiError(
                403, "the key is an API key, not the admin token: set CORNSERVE_ADMIN_TOKEN", code="no_admin"
            )
        is_admin = accepted is self._admins
        problem = f"{'unknown' if given else 'missing'} {'admin token' if is_admin else 'API key'}"
        variable = ADMIN_TOKEN if is_admin else API_KEY
        message = f"{problem}: send `Authorization: Bearer …` (Cornserve's clients read {variable})"
        raise ApiError(401, message, code="invalid_api_key")

    def _check_internal_token(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        accepted = [digest for prefix, digest in self._internal.items() if path.startswith(prefix)]
        if not _is_accepted(_given_digest(headers), accepted):
            message = f"only processes of the instance may use {INTERNAL_PREFIX}: clients use /v1 and /admin/v1"
            raise ApiError(403, message, code="internal")

    def _check_is_local(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"")
        origin = headers.get(b"origin")
        is_own_page = origin is None or self._is_own_host(origin)
        is_allowed_page = is_own_page or (calls_model(path) and self._origins.allows(origin or b""))
        if not (is_allowed_page and self._is_own_host(b"//" + host)):
            message = (
                "the Host or Origin header names another host: without API keys, the gateway accepts only requests to "
                "an address of this machine, and none from web pages of other hosts (see --api-keys and --allow-origin "
                "of `cornserve up`)"
            )
            raise ApiError(403, message, code="foreign_host")

    def _parse_own_host(self, url: bytes) -> bool:
        try:
            name = urlsplit(url.decode("ascii")).hostname or ""
        except ValueError:
            return False
        return is_loopback_name(name) or name == self._host


def read_only_error() -> ApiError:
    return ApiError(403, "the token is read-only: use the admin token", code="read_only")


def _accepted(access: Access) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Returns the digests of the keys of administrators, of all users, and of readers.

    Without administrators or users, no key is required.
    """
    admins = [_digest(access.admin_token.encode())] if access.admin_token else []
    users = [_digest(key.encode()) for key in access.api_keys]
    readers = [_digest(access.read_token.encode())] if access.read_token else []
    return admins, [*users, *admins] if users else [], readers


def _digest(secret: bytes) -> bytes:
    return sha256(secret).digest()


def _given_digest(headers: Mapping[bytes, bytes]) -> bytes:
    """Returns the digest of a bearer token or of a key in another header, or nothing for another scheme."""
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return _digest(key.strip())
    other = next((headers[name] for name in KEY_HEADERS if name in headers), None)
    return b"" if other is None or scheme else _digest(other.strip())


def _is_accepted(digest: bytes, accepted: list[bytes]) -> bool:
    """Compares with every accepted digest, in constant time."""
    return sum(hmac.compare_digest(digest, other) for other in accepted) > 0
