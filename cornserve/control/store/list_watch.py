"""Following a store: what there is, then what changes, for as long as one likes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from cornserve.control.store.base import Change, ExpiredError, Listing, RecordKind, Spec, Status, Store

log = logging.getLogger(__name__)


async def list_and_watch(
    store: Store, kind: RecordKind[Spec, Status]
) -> AsyncIterator[Listing[Spec, Status] | Change[Spec, Status]]:
    """All records, then every change; who falls too far behind gets all records anew. Ends only by an error."""
    while True:
        listing = await store.list(kind)
        yield listing
        try:
            async for change in store.watch(kind, listing.version):
                yield change
        except ExpiredError:
            log.info("missed changes of the store, reading it anew")
