"""The counts of arrived requests, which gateways send to the controller."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

ARRIVALS_PATH: Final = "/internal/v1/arrivals"
"""The path of the gateways' counts."""

ARRIVALS_TOKEN: Final = "arrivals"
"""The purpose of the token that the path requires: see `InstanceSecret.token`."""

UNPLANNED_TYPE: Final = ""
"""The type of the requests whose components are those of no type of the plan."""


class GatewayArrivals(BaseModel):
    """The requests that have arrived at a gateway since its process started."""

    model_config = ConfigDict(frozen=True)

    process: str
    """An id of the gateway's process. Another process counts from 0."""
    seconds: float
    """The age of the counts."""
    apps: dict[str, dict[str, int]]
    """The requests of each type, by app. Only apps with a plan have types."""
    invocations: dict[str, dict[str, int]] = {}
    """The invocations of each executor group, by app."""
    type_invocations: dict[str, dict[str, dict[str, int]]] = {}
    """The invocations of each deployment option by requests of each type, by app. Only apps with a plan have types."""
    tokens: dict[str, dict[str, int]] = {}
    """The tokens of the inputs of these invocations, as far as tasks know them, by app."""
    met: dict[str, dict[str, int]] = {}
    """The requests that have met each latency target, by app."""
    missed: dict[str, dict[str, int]] = {}
    """The requests that have missed each latency target, or were refused by it, by app."""
    late_us: dict[str, dict[str, int]] = {}
    """Microseconds that requests with a missed target took longer than others, by app and executor group."""
