"""Changes of the spec of an app by the controller, which users may change at the same time."""

from __future__ import annotations

from contextlib import suppress
from typing import Unpack

from cornserve.app.spec import SpecChanges
from cornserve.control.store.base import APPS, AppRecord, ConflictError, NotFoundError, Store


async def change_spec(store: Store, record: AppRecord, **fields: Unpack[SpecChanges]) -> bool:
    """Sets fields of the spec, unless someone else has changed it: a watch then delivers a newer generation.

    Returns whether the fields were set. Raises `StoreError` if the spec is refused.
    """
    with suppress(NotFoundError):
        while True:
            stored = await store.get(APPS, record.name)
            if (stored.uid, stored.generation) != (record.uid, record.generation):
                return False
            with suppress(ConflictError):  # The status has changed.
                await store.update_spec(APPS, record.name, stored.spec.changed(**fields), stored.version)
                return True
    return False
