"""What the gateway says of itself."""

from __future__ import annotations

import httpx2 as httpx


async def says(gateway: httpx.AsyncClient, metric: str) -> bool:
    """Whether this stands in its metrics: a line of them, or part of one."""
    return metric in (await gateway.get("/metrics")).text
