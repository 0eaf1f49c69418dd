"""A version of an app that this gateway serves."""

from __future__ import annotations

from dataclasses import dataclass

from cornserve.gateway.request_route import RequestRoute
from cornserve.gateway.task_runs.task_runner import AppCode


@dataclass(frozen=True, slots=True)
class ServedApp:
    """A loaded version of an app. A request uses the same one from its start to its end."""

    code: AppCode
    uid: str
    module: str
    """The name under which the code is imported. It identifies the version."""
    route: RequestRoute
    created: int
    """Time when this gateway loaded the version, in seconds since the epoch."""
