"""Reads the bodies of other servers' responses, up to a size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # It takes long to import.
    from aiohttp import ClientResponse


async def read_body(response: ClientResponse, max_bytes: int) -> bytes:
    """Raises `ValueError` for a body of more than `max_bytes`."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            raise ValueError(f"the response has more than {max_bytes} bytes")
    return bytes(body)
