"""Sessions of browsers: signed cookies, which all gateways of an instance accept."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Final

from cornserve.access import Access
from cornserve.instance_secret import InstanceSecret

SESSION_SECONDS: Final = 12 * 3600
"""The time after which a browser signs in again."""

MAX_ENDED: Final = 10_000
"""Sessions that a gateway knows to have ended before their time."""

SESSION_TOKEN: Final = "console"
"""The purpose of the secret that signs cookies: see `InstanceSecret.token`."""


class Role(StrEnum):
    ADMIN = "admin"
    VIEWER = "viewer"
    """Reads only."""


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A session of a browser.

    Args:
        token: the token of the role, or None if the instance has no admin token.
        expires: the end, in seconds since 1970, or None without a token.
    """

    role: Role
    token: str | None = field(repr=False)
    expires: int | None


class BrowserSessions:
    """Creates and checks the cookies of sessions.

    A cookie has the role, the time of its end, a random number, and their signature. The key of the signature follows
    from the instance's secret and from the token of the role: another token ends all sessions of the role.

    Args:
        read_access: returns the tokens, which may change.
    """

    def __init__(self, read_access: Callable[[], Access], secret: InstanceSecret) -> None:
        self._read_access = read_access
        self._key = secret.token(SESSION_TOKEN).encode()
        self.cookie = f"cornserve_console_{hmac.digest(self._key, b'cookie', 'sha256').hex()[:8]}"
        """The name of the cookie. Browsers send cookies to all ports of a machine: each instance has its name."""
        self._ended: dict[str, int] = {}
        """The ends of sessions by the cookies that have signed out here, in the order of the sign-outs."""

    @property
    def needs_token(self) -> bool:
        return self._read_access().admin_token is not None

    def sign_in(self, token: str) -> tuple[BrowserSession, str] | None:
        """Returns the session for a token, and its cookie. None: the token is wrong."""
        given = sha256(token.encode()).digest()
        for role, known in self._tokens().items():
            if hmac.compare_digest(given, sha256(known.encode()).digest()):
                expires = int(time.time()) + SESSION_SECONDS
                content = f"{role}.{expires}.{secrets.token_hex(16)}"
                return BrowserSession(Role(role), known, expires), f"{content}.{self._sign(content, known)}"
        return None

    def end(self, cookie: str) -> None:
        """Ends a session: this gateway refuses its cookie from now on. Other gateways accept it until its time."""
        session = self.find(cookie)
        if session is None or session.expires is None:
            return
        now = time.time()
        self._ended = {ended: expires for ended, expires in self._ended.items() if now < expires}
        self._ended[cookie] = session.expires
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def find(self, cookie: str) -> BrowserSession | None:
        """Returns the session of a cookie, which may be empty or forged."""
        tokens = self._tokens()
        if Role.ADMIN not in tokens:
            return BrowserSession(Role.ADMIN, None, None)
        content, _, signature = cookie.rpartition(".")
        role, _, rest = content.partition(".")
        token = tokens.get(role)
        if token is None or not hmac.compare_digest(signature.encode(), self._sign(content, token).encode()):
            return None
        expires = int(rest.partition(".")[0])
        is_open = time.time() < expires and cookie not in self._ended
        return BrowserSession(Role(role), token, expires) if is_open else None

    def _tokens(self) -> dict[str, str]:
        access = self._read_access()
        known = {Role.ADMIN: access.admin_token, Role.VIEWER: access.read_token}
        return {role: token for role, token in known.items() if token}

    def _sign(self, content: str, token: str) -> str:
        key = hmac.digest(self._key, token.encode(), "sha256")
        return hmac.digest(key, content.encode(), "sha256").hex()
