"""Access to an instance: API keys for `/v1`, one token for `/admin`, and one for reading only.

Secrets come from files or the environment, and never from a command line, which every user of the machine can read.
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

from cornserve_plan.bounded_file import read_bounded

API_KEYS = "CORNSERVE_API_KEYS"
"""Environment variable: keys that the gateway accepts, separated by commas."""

API_KEY = "CORNSERVE_API_KEY"
"""Environment variable: the key that clients send."""

ADMIN_TOKEN = "CORNSERVE_ADMIN_TOKEN"
"""Environment variable: the token that the gateway accepts and clients send."""

READ_TOKEN = "CORNSERVE_READ_TOKEN"
"""Environment variable: the token that the gateway accepts for reading only."""

MAX_MIB = 1
"""The maximum size of a file with secrets."""

SECRETS = (API_KEYS, ADMIN_TOKEN, READ_TOKEN)
"""Environment variables that only gateways need."""

SECRET_PATTERN = re.compile(r"[\x21-\x2b\x2d-\x7e]{16,}")
"""Secrets are valid in a header, contain no comma, and are too long to be guessed."""


class AccessError(ValueError):
    """A secret is missing or not valid. The message is for users."""


@dataclass(frozen=True, slots=True)
class Access:
    """The secrets of an instance. Without secrets, every client that reaches the port has full access."""

    api_keys: tuple[str, ...] = field(default=(), repr=False)
    admin_token: str | None = field(default=None, repr=False)
    read_token: str | None = field(default=None, repr=False)
    """The token of readers, who see what the admin token shows and change nothing."""

    def __post_init__(self) -> None:
        for secret in (*self.api_keys, *filter(None, [self.admin_token, self.read_token])):
            if not SECRET_PATTERN.fullmatch(secret):
                raise AccessError(
                    "an API key or a token is not valid: give at least 16 characters of printable ASCII "
                    "without spaces and commas, such as the output of `openssl rand -hex 32`"
                )
        if self.admin_token in self.api_keys:
            raise AccessError(
                "the admin token is also an API key, so that every client could deploy code: use another one"
            )
        if self.api_keys and self.admin_token is None:
            raise AccessError(
                f"API keys are set but no admin token, so that everyone could deploy code: set {_OPTIONS}"
            )
        if self.read_token is not None and self.admin_token is None:
            raise AccessError("a read-only token is set but no admin token, so that everyone could deploy code: set it")
        if self.read_token is not None and self.read_token in (self.admin_token, *self.api_keys):
            raise AccessError("the read-only token is also the admin token or an API key: use another one")

    @classmethod
    def load(
        cls,
        api_keys: Path | None,
        admin_token: Path | None,
        environment: Mapping[str, str] = os.environ,
        *,
        read_token: Path | None = None,
    ) -> Self:
        """Reads the secrets from files with one secret per line, or else from the environment."""
        keys = _lines(api_keys) if api_keys else [key for key in environment.get(API_KEYS, "").split(",") if key]
        return cls(
            tuple(keys),
            _token(admin_token, "admin token") if admin_token else environment.get(ADMIN_TOKEN) or None,
            _token(read_token, "read-only token") if read_token else environment.get(READ_TOKEN) or None,
        )

    def check_exposure(self, host: str) -> None:
        """Raises `AccessError` if listening on `host` would let everyone in the network deploy code."""
        if (not self.api_keys or self.admin_token is None) and not resolves_to_loopback(host):
            missing = "API keys" if self.admin_token else "API keys and an admin token"
            raise AccessError(f"other machines can reach {host or 'all addresses'}: set {missing} ({_OPTIONS})")


_OPTIONS = f"--api-keys FILE or {API_KEYS}, --admin-token FILE or {ADMIN_TOKEN}"


def is_loopback_name(host: str) -> bool:
    """Returns whether `host` is localhost or a loopback address, without resolving names."""
    return host in ("localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdigit())


def resolves_to_loopback(host: str) -> bool:
    """Returns whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        addresses = socket.getaddrinfo(host, None) if host else []
    except (OSError, UnicodeError):
        return False
    return bool(addresses) and all(ipaddress.ip_address(address[0]).is_loopback for *_, address in addresses)


def _token(path: Path, name: str) -> str:
    tokens = _lines(path)
    if len(tokens) != 1:
        raise AccessError(f"{path} has {len(tokens)} lines: the {name} must be its only one")
    return tokens[0]


def _lines(path: Path) -> list[str]:
    """Returns the lines of a file without empty lines and comments."""
    try:
        lines = [line.strip() for line in read_bounded(path, MAX_MIB).splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise AccessError(f"cannot read {path}: {reason}: give a readable text file") from error
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise AccessError(f"{path} contains no key: write one per line")
    return found
