"""Reads the gateway's metrics."""

from __future__ import annotations

import httpx2 as httpx


async def exposes(gateway: httpx.AsyncClient, text: str) -> bool:
    """Returns whether the metrics contain the text, which is a line or a part of one."""
    return text in (await gateway.get("/metrics")).text
