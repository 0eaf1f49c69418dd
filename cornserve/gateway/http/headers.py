"""Headers of requests that come by the thousand: starlette would make a mapping of them all first."""

from __future__ import annotations

from starlette.types import Scope


def header(scope: Scope, name: bytes) -> str | None:
    """The first of that name, which is in lower case as servers of ASGI give it."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None
