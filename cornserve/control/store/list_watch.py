"""Follows a store: lists its records, then yields each change."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from cornserve.control.store.base import Change, ExpiredError, Listing, RecordKind, Spec, Status, Store

log = logging.getLogger(__name__)


async def list_and_watch(
    store: Store, kind: RecordKind[Spec, Status]
) -> AsyncIterator[Listing[Spec, Status] | Change[Spec, Status]]:
    """Yields all records, then every change. A watcher that falls too far behind receives all records again.

    Runs until an error of the store.
    """
    while True:
        listing = await store.list(kind)
        yield listing
        try:
            async for change in store.watch(kind, listing.version):
                yield change
        except ExpiredError:
            log.info("missed changes of the store; listing all records again")
