"""What calls are given, refused where it could not be sent: before anything is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
from pydantic_core import to_json

from cornserve.client.errors import ArgumentError

MAX_SECONDS = 1_000_000.0
"""Below what the operating system can wait for, 2**31 milliseconds; and longer than anybody does."""


@contextmanager
def usable_environment() -> Iterator[None]:
    """Around what looks for proxies and certificates in the environment."""
    try:
        yield
    except (httpx.InvalidURL, ValueError, OSError, ImportError) as error:  # the last: SOCKS takes a package
        raise ArgumentError(
            "environment", f"mend or unset its proxy (HTTP_PROXY, …) or certificates (SSL_CERT_FILE): {error}"
        ) from error


def check_timeout(seconds: float | None) -> None:
    if seconds is not None and not 0 <= seconds <= MAX_SECONDS:  # nor NaN
        raise ArgumentError(
            "timeout", f"give seconds, at most {MAX_SECONDS:.0f}, or none for as long as it takes: not {seconds!r}"
        )


def as_json(name: str, value: Any) -> bytes:
    """`name`: what error messages call it."""
    try:
        return to_json(value)
    except ValueError as error:
        raise ArgumentError(name, f"cannot be sent as JSON: {error}") from error


def in_path(name: str) -> str:
    """Of an app."""
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise ArgumentError("app", f"{name!r} is no name of an app: {error}") from error
