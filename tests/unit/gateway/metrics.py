"""Reads the gateway's metrics."""

from __future__ import annotations

import httpx2 as httpx


async def exposes(gateway: httpx.AsyncClient, text: str) -> bool:
    """Returns whether the metrics contain the text, which is a line or a part of one."""
    return text in (await gateway.get("/metrics")).text


async def sample(gateway: httpx.AsyncClient, name: str) -> float:
    """Returns the value of a metric with its labels, or 0 if it is not exposed yet."""
    lines = (await gateway.get("/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))
