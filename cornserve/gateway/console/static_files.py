"""The files of the console."""

from __future__ import annotations

import os
from typing import Final

from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

INDEX: Final = "index.html"

_CACHED_FOREVER: Final = "public, max-age=31536000, immutable"
"""The names of all files but the index contain a digest of their content."""


def console_files() -> ASGIApp:
    """Serves the files, compressed. Raises Starlette's `HTTPException` for an unknown file or another method."""
    return GZipMiddleware(_ConsoleFiles(packages=[("cornserve.gateway.console", "static")]))


class _ConsoleFiles(StaticFiles):
    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["cache-control"] = "no-cache" if os.path.basename(full_path) == INDEX else _CACHED_FOREVER
        return response
