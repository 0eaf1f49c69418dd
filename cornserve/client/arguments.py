"""Validation of arguments before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
from pydantic_core import to_json

from cornserve.client.errors import ArgumentError
from cornserve_plan.bounded_file import read_bounded_bytes

MAX_SECONDS = 1_000_000.0
"""Longest timeout. The operating system's limit is 2**31 milliseconds."""

MAX_FILE_MIB = 256
"""Maximum size of a file with media: four times the limit of a gateway by default."""


@contextmanager
def usable_environment() -> Iterator[None]:
    """Turns errors of proxies and certificates in the environment into `ArgumentError`."""
    try:
        yield
    except (httpx.InvalidURL, ValueError, OSError, ImportError) as error:  # ImportError: a SOCKS proxy needs a package.
        raise ArgumentError(
            "environment", f"correct or unset its proxy (HTTP_PROXY, …) or certificates (SSL_CERT_FILE): {error}"
        ) from error


def check_timeout(seconds: float | None) -> None:
    if seconds is not None and not 0 <= seconds <= MAX_SECONDS:  # also rejects NaN
        raise ArgumentError(
            "timeout", f"{seconds!r} is not valid: give seconds between 0 and {MAX_SECONDS:.0f}, or None for no timeout"
        )


def encode_json(name: str, value: Any) -> bytes:
    """Raises `ArgumentError` with `name` if the value cannot be encoded."""
    try:
        return to_json(value)
    except ValueError as error:
        raise ArgumentError(
            name, f"cannot be sent as JSON: {error}: give strings, numbers, booleans, lists and dictionaries"
        ) from error


def encode_form(fields: Mapping[str, Any], files: Mapping[str, tuple[str, bytes]]) -> tuple[bytes, str]:
    """Returns a form and its content type. Raises `ArgumentError` for a field that a form cannot contain.

    Args:
        files: the name and the content of each file, by field.
    """
    try:
        form = httpx.Request("POST", "http://gateway", data=dict(fields), files=dict(files))
        return form.read(), form.headers["content-type"]
    except (TypeError, ValueError) as error:
        raise ArgumentError("options", f"cannot be sent as a form: {error}: give strings, numbers and lists") from error


def read_file(name: str, file: Path | bytes) -> tuple[str, bytes]:
    """Returns the name and the content of a file. Raises `ArgumentError` with `name` if it cannot be read."""
    if isinstance(file, bytes):
        return name, file
    try:
        return file.name, read_bounded_bytes(file, MAX_FILE_MIB)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ArgumentError(name, f"cannot read {str(file)[:200]!r}: {reason}") from error


def quote_app_name(name: str) -> str:
    """Returns the name of an app as a path segment."""
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise ArgumentError("app", f"{name!r} is not a valid app name: {error}") from error
