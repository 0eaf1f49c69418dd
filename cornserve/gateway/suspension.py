"""Suspends apps whose code has ended too many processes."""

from __future__ import annotations

import logging

from cornserve.app.record import RouteStatus
from cornserve.control.store.base import ROUTES, ConflictError, NotFoundError, Store, StoreError
from cornserve.gateway.errors import ApiError

log = logging.getLogger(__name__)


def suspended_error(name: str, reason: str) -> ApiError:
    """Returns the response to requests to a suspended app."""
    error = ApiError(
        503, f"the app {name!r} is suspended: {reason}: correct its code and deploy it again", code="app_suspended"
    )
    error.headers = {"x-should-retry": "false"}
    return error


async def store_suspension(store: Store, name: str, code: str, reason: str) -> None:
    """Suspends the app in all gateways, if `code` is still its version. Gives up on an error of the store."""
    while True:
        try:
            route = await store.get(ROUTES, name)
            if route.spec.spec.code == code:
                suspended = RouteStatus(suspended=reason, suspended_code=code)
                await store.update_status(ROUTES, name, suspended, route.version)
            return
        except ConflictError:
            continue
        except StoreError as error:
            log.warning("cannot store that the app %s is suspended: %s", name, error)
            return


async def clear_suspension(store: Store, name: str) -> None:
    """Accepts requests to the app again."""
    while True:
        try:
            route = await store.get(ROUTES, name)
            await store.update_status(ROUTES, name, RouteStatus(), route.version)
            return
        except NotFoundError:
            return
        except ConflictError:
            continue
