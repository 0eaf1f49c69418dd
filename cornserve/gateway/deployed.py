"""A version of an app, as requests take and keep it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from cornserve.app.app import App
from cornserve.app.load import load_app
from cornserve.app.record import Route
from cornserve.app.source import unload_app
from cornserve.control.store.base import AppRecord


@dataclass(frozen=True, slots=True)
class Deployed:
    """A version of an app that is served."""

    app: App
    uid: str
    module: str
    route: Route
    created: int
    """Seconds since the epoch when this gateway first saw it."""
    request: TypeAdapter[Any]
    response: TypeAdapter[Any]

    @classmethod
    def load(cls, record: AppRecord, route: Route, module: str) -> Deployed:
        """Slow and blocking, as loading an app is."""
        app = load_app(record.name, route.spec, module)
        try:
            request, response = TypeAdapter(app.request_type), TypeAdapter(app.response_type)
        except Exception:  # is raised again: an app that is not served leaves no modules
            unload_app(module)
            raise
        return cls(app, record.uid, module, route, int(time.time()), request, response)
