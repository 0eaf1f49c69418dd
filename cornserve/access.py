"""Who may use an instance: API keys for `/v1`, one token for `/admin`. They come from files or the environment.

Never from a command line, which everybody on the machine can read.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

API_KEYS = "CORNSERVE_API_KEYS"
"""Environment variable: keys that the gateway accepts, separated by commas."""

ADMIN_TOKEN = "CORNSERVE_ADMIN_TOKEN"
"""Environment variable: the token that the gateway accepts, and that clients send."""

SECRET = re.compile(r"[\x21-\x2b\x2d-\x7e]{16,}")
"""What can be sent in a header, has no comma, and is too long to be guessed."""


class AccessError(ValueError):
    """Keys cannot be used, or are missing; the message is one for people."""


@dataclass(frozen=True, slots=True)
class Access:
    """By default, whoever reaches the port may do anything."""

    api_keys: tuple[str, ...] = field(default=(), repr=False)
    admin_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for secret in (*self.api_keys, *filter(None, [self.admin_token])):
            if not SECRET.fullmatch(secret):
                raise AccessError(
                    "API keys and the admin token have at least 16 characters of printable ASCII without spaces and "
                    "commas: `openssl rand -hex 32` makes one"
                )
        if self.admin_token in self.api_keys:
            raise AccessError("the admin token is one of the API keys, so that everyone who has one could deploy code")
        if self.api_keys and self.admin_token is None:
            raise AccessError(f"there are API keys, but no admin token, so that anyone could deploy code: {_REMEDY}")

    @classmethod
    def read(cls, api_keys: Path | None, admin_token: Path | None, environment: Mapping[str, str] = os.environ) -> Self:
        """From files, which have a secret per line, or else from the environment."""
        keys = _lines(api_keys) if api_keys else [key for key in environment.get(API_KEYS, "").split(",") if key]
        if admin_token is None:
            return cls(tuple(keys), environment.get(ADMIN_TOKEN) or None)
        tokens = _lines(admin_token)
        if len(tokens) != 1:
            raise AccessError(f"{admin_token} has to hold one line, the admin token, and has {len(tokens)}")
        return cls(tuple(keys), tokens[0])

    def check_exposure(self, host: str) -> None:
        """Raises `AccessError` if listening on `host` would let anyone in the network deploy code."""
        if (not self.api_keys or self.admin_token is None) and not is_loopback(host):
            missing = "API keys" if self.admin_token else "API keys and an admin token"
            raise AccessError(f"{host or 'every address'} can be reached from other machines: set {missing}: {_REMEDY}")


_REMEDY = f"--api-keys FILE or {API_KEYS}, --admin-token FILE or {ADMIN_TOKEN}"


def names_this_machine(host: str) -> bool:
    """Whether a URL of this host leads to this machine, wherever it is read: no name is looked up."""
    return host in ("localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdigit())


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None) if host else []
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)


def _lines(path: Path) -> list[str]:
    """Without empty ones and comments."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise AccessError(f"cannot read {path}: {reason}") from error
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise AccessError(f"{path} holds no key")
    return found
