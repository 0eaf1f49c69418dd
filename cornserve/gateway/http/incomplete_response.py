"""Ends a response that has started and cannot be completed, such as that of a speech whose executor fails."""

from __future__ import annotations

from weakref import ref

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

CYCLE = "cycle"
"""The key of a weak reference to uvicorn's `RequestResponseCycle` in the state of an ASGI scope."""


def close_incomplete(scope: Scope) -> None:
    """Closes the connection, so that the client does not take the response for a complete one.

    uvicorn closes it, too, but logs an error about the application.
    """
    reference: ref[RequestResponseCycle] = scope["state"][CYCLE]
    cycle = reference()
    assert cycle is not None
    cycle.disconnected = True
    cycle.transport.close()
