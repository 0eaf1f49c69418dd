"""Reads EndpointSlices."""

from __future__ import annotations

from cornserve.kubernetes.resources import JsonObject


def has_ready_endpoint(endpoint_slice: JsonObject) -> bool:
    """Returns whether a pod in the EndpointSlice is ready, and its port known."""
    endpoints: list[JsonObject] = endpoint_slice.get("endpoints") or []
    return bool(endpoint_slice.get("ports")) and any(each.get("conditions", {}).get("ready") for each in endpoints)
