"""Streams an app and its changes as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from cornserve.control.store.base import APPS, AppRecord, ChangeType, ExpiredError, StoreUnavailableError
from cornserve.gateway.context import GatewayContext
from cornserve.gateway.endpoints import sse
from cornserve.gateway.live.app_view import app_view

KEEPALIVE_SECONDS = 2.0
"""The longest pause in an event stream. Clients regard a longer one as a lost connection."""


def app_events(context: GatewayContext, record: AppRecord, version: int) -> AsyncGenerator[bytes, None]:
    """Yields the record, which was read at `version`, and its changes since then, until the app is deleted."""
    return _with_keepalives(_events(context, record, version))


async def _events(context: GatewayContext, record: AppRecord, version: int) -> AsyncGenerator[bytes, None]:
    yield _event("put", record, context)
    try:
        async for change in context.store.watch(APPS, version):
            if change.record.name == record.name:
                yield _event(change.type, change.record, context)
                if change.type is ChangeType.DELETED:
                    return
    except (ExpiredError, StoreUnavailableError):
        return  # clients reconnect, as with any server-sent events


def _event(type_: str, record: AppRecord, context: GatewayContext) -> bytes:
    return sse.encode_event(app_view(record, context).model_dump_json().encode(), type_)


async def _with_keepalives(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yields the events, and comments, which clients ignore, during pauses."""
    async with aclosing(events):
        while True:
            next_event = asyncio.ensure_future(anext(events))
            try:
                while not (await asyncio.wait((next_event,), timeout=KEEPALIVE_SECONDS))[0]:
                    yield b": \n\n"
                event = next_event.result()
            except StopAsyncIteration:
                return
            finally:
                next_event.cancel()
                await asyncio.gather(next_event, return_exceptions=True)
            yield event
