"""A store whose apps have the source of the ConfigMaps that they refer to. The controller of a cluster uses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol, cast

from cornserve.app.settings import ConfigMapKeyRef
from cornserve.app.spec import AppSpec
from cornserve.control.store.base import (
    APPS,
    AppRecord,
    Change,
    ChangeType,
    Listing,
    Record,
    RecordKind,
    Spec,
    Status,
    Store,
)


class ConfigMaps(Protocol):
    """The ConfigMaps of the namespace, as an informer has them."""

    @property
    def objects(self) -> Mapping[str, Mapping[str, Any]]:
        """The ConfigMaps by name."""

    def next_change(self) -> asyncio.Event:
        """Returns an event that the next change sets."""


class ConfigMapSources:
    """Reads apps as if their source were inline. Everything else is the store's.

    The spec of an app whose ConfigMap does not exist keeps the reference. A watch yields an app again when its
    ConfigMap changes; the record's version is then the same.
    """

    def __init__(self, store: Store, config_maps: ConfigMaps) -> None:
        self._store = store
        self._config_maps = config_maps
        self._apps: dict[str, AppRecord] = {}
        """The apps with source in a ConfigMap, as they are stored, by name."""
        self._delivered: dict[str, AppSpec] = {}
        """The specs that the last list or a watch has returned for them."""

    async def create(self, kind: RecordKind[Spec, Status], name: str, spec: Spec) -> Record[Spec, Status]:
        return self._resolved(await self._store.create(kind, name, spec))

    async def get(self, kind: RecordKind[Spec, Status], name: str) -> Record[Spec, Status]:
        return self._resolved(await self._store.get(kind, name))

    async def list(self, kind: RecordKind[Spec, Status]) -> Listing[Spec, Status]:
        listing = await self._store.list(kind)
        return replace(listing, records=[self._resolved(record, delivered=True) for record in listing.records])

    async def update_spec(
        self, kind: RecordKind[Spec, Status], name: str, spec: Spec, version: int
    ) -> Record[Spec, Status]:
        return self._resolved(await self._store.update_spec(kind, name, spec, version))

    async def update_status(
        self, kind: RecordKind[Spec, Status], name: str, status: Status, version: int
    ) -> Record[Spec, Status]:
        return self._resolved(await self._store.update_status(kind, name, status, version))

    async def delete(self, kind: RecordKind[Spec, Status], name: str) -> None:
        await self._store.delete(kind, name)

    async def watch(self, kind: RecordKind[Spec, Status], version: int) -> AsyncGenerator[Change[Spec, Status], None]:
        async with aclosing(self._store.watch(kind, version)) as changes:
            next_change = asyncio.ensure_future(anext(changes))
            try:
                while True:
                    config_maps_changed = self._config_maps.next_change()
                    if kind.name == APPS.name:
                        for record in self._apps_with_new_source():
                            yield cast(Change[Spec, Status], Change(ChangeType.PUT, record.version, record))
                    await _wait_for_either(next_change, config_maps_changed)
                    if next_change.done():
                        yield self._resolved_change(next_change.result())
                        next_change = asyncio.ensure_future(anext(changes))
            finally:
                next_change.cancel()
                await asyncio.gather(next_change, return_exceptions=True)

    async def close(self) -> None:
        await self._store.close()

    def _resolved_change(self, change: Change[Spec, Status]) -> Change[Spec, Status]:
        if change.type is ChangeType.DELETED:
            if isinstance(change.record.spec, AppSpec):
                self._apps.pop(change.record.name, None)
                self._delivered.pop(change.record.name, None)
            return change
        return replace(change, record=self._resolved(change.record, delivered=True))

    def _resolved(self, record: Record[Spec, Status], *, delivered: bool = False) -> Record[Spec, Status]:
        if not isinstance(record.spec, AppSpec):
            return record
        return cast(Record[Spec, Status], self._resolved_app(cast(AppRecord, record), delivered=delivered))

    def _resolved_app(self, record: AppRecord, *, delivered: bool) -> AppRecord:
        spec = self._resolve(record.spec)
        if _reference(record.spec) is None:
            self._apps.pop(record.name, None)
            self._delivered.pop(record.name, None)
        elif delivered or record.name in self._apps:
            self._apps[record.name] = record
        if delivered and record.name in self._apps:
            self._delivered[record.name] = spec
        return replace(record, spec=spec)

    def _apps_with_new_source(self) -> Sequence[AppRecord]:
        changed = [app for app in self._apps.values() if self._resolve(app.spec) != self._delivered.get(app.name)]
        return [self._resolved_app(app, delivered=True) for app in changed]

    def _resolve(self, spec: AppSpec) -> AppSpec:
        reference = _reference(spec)
        if reference is None:
            return spec
        text = self._config_maps.objects.get(reference.name, {}).get("data", {}).get(reference.key)
        return spec if text is None else spec.with_source(inline=text, config_map_key_ref=None)


def _reference(spec: AppSpec) -> ConfigMapKeyRef | None:
    return None if spec.source is None else spec.source.config_map_key_ref


async def _wait_for_either(future: asyncio.Future[Any], event: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((future, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
