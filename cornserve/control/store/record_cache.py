"""The current records of a kind, kept in sync with the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Generic

from cornserve.control.store.base import (
    Change,
    ChangeType,
    Listing,
    Record,
    RecordKind,
    Spec,
    Status,
    Store,
    StoreError,
    UnreadableRecord,
)
from cornserve.control.store.list_watch import list_and_watch
from cornserve.observe.error_log import ErrorLog

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""The delay before the store is read again after an error."""


@dataclass(frozen=True, slots=True)
class CacheUpdate:
    """An update of the records."""

    names: Set[str]
    """The records that may have changed."""
    unreadable: list[UnreadableRecord] = field(default_factory=list)
    """Records that were found unreadable."""


class RecordCache(Generic[Spec, Status]):
    """Records by name, as they were read last."""

    def __init__(self, store: Store, kind: RecordKind[Spec, Status]) -> None:
        self._store = store
        self._kind = kind
        self.records: dict[str, Record[Spec, Status]] = {}
        self.unreadable: dict[str, str] = {}
        """Why some records cannot be read, by name. Those that were readable before stay in `records`."""
        self._errors = ErrorLog(log, f"cannot read the {kind.name} records, which stay as they were read last: %s")
        self.listed = asyncio.Event()
        """Set when the records have been read for the first time."""

    @property
    def unknown(self) -> set[str]:
        """The names of records that have never been readable."""
        return self.unreadable.keys() - self.records.keys()

    async def follow(
        self, on_update: Callable[[CacheUpdate], None], on_error: Callable[[], None] = lambda: None
    ) -> None:
        """Updates the records. Runs until cancelled, and retries after errors of the store.

        Args:
            on_update: called after each update.
            on_error: called when the store cannot be read.
        """
        while True:
            try:
                async for event in list_and_watch(self._store, self._kind):
                    self._errors.clear()
                    on_update(self._apply(event))
            except StoreError as error:
                self._errors.report(str(error))
                on_error()
            await asyncio.sleep(RETRY_SECONDS)

    def _apply(self, event: Listing[Spec, Status] | Change[Spec, Status]) -> CacheUpdate:
        match event:
            case Listing(records, unreadable=unreadable):
                before = set(self.records)
                self.unreadable = {record.name: record.reason for record in unreadable}
                kept = {name: self.records[name] for name in self.unreadable.keys() & self.records.keys()}
                self.records = kept | {record.name: record for record in records}
                self.listed.set()
                return CacheUpdate(before | self.records.keys(), unreadable)
            case Change(ChangeType.DELETED, record=record):
                self.unreadable.pop(record.name, None)
                self.records.pop(record.name, None)
            case Change(record=record):
                self.unreadable.pop(record.name, None)
                self.records[record.name] = record
        return CacheUpdate({event.record.name})

    def add(self, record: Record[Spec, Status]) -> None:
        """Adds a record that was written just now, before the watch delivers it."""
        self.records[record.name] = record

    def replace(self, old: Record[Spec, Status], new: Record[Spec, Status]) -> bool:
        """Replaces a record that was written just now. Returns False if nothing was written, or if the watch has
        delivered another one meanwhile."""
        if self.records.get(old.name) is not old or new.version == old.version:
            return False
        self.records[old.name] = new
        return True

    def remove(self, name: str) -> None:
        """Removes a record that was deleted just now, before the watch delivers it."""
        self.records.pop(name, None)
        self.unreadable.pop(name, None)
