"""A version of an app that this gateway serves."""

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
class ServedApp:
    """A loaded version of an app. A request uses the same one from its start to its end."""

    app: App
    uid: str
    module: str
    route: Route
    created: int
    """Time when this gateway loaded the version, in seconds since the epoch."""
    request: TypeAdapter[Any]
    response: TypeAdapter[Any]

    @classmethod
    def load(cls, record: AppRecord, route: Route, module: str) -> ServedApp:
        """Loads the app's code as `module`. This is slow and blocks."""
        app = load_app(record.name, route.spec, module)
        try:
            request, response = TypeAdapter(app.request_type), TypeAdapter(app.response_type)
        except Exception:
            unload_app(module)
            raise
        return cls(app, record.uid, module, route, int(time.time()), request, response)
