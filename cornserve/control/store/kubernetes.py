"""The store of a Kubernetes namespace: a record is an object, and its version is the object's resource version."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from cornserve.control.store.base import (
    AlreadyExistsError,
    Change,
    ConflictError,
    ExpiredError,
    Listing,
    NotFoundError,
    Record,
    RecordKind,
    Spec,
    Status,
    StoreUnavailableError,
    UnreadableRecord,
    UnreadableRecordError,
)
from cornserve.control.store.kubernetes_apply import apply_spec
from cornserve.control.store.kubernetes_changes import read_change
from cornserve.control.store.kubernetes_codec import ResourceCodec, check_size
from cornserve.control.store.kubernetes_errors import reading, writing
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeConflictError, KubeGoneError, KubeInvalidError, KubeUnavailableError
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes.watch_events import WatchEvent

NEVER_A_VERSION = "1"
"""A resource version that no object has: etcd starts with it. An apply with it creates, but does not update."""

SPEC_MANAGER = "cornserve"
"""The field manager of specs, which gateways write for users, and a controller when an app adapts to its load."""

SHORT_WATCH_SECONDS = 1.0
"""A watch whose connection fails within this time is not repeated."""


class KubernetesStore:
    """Reads and writes the records of the client's namespace.

    Specs are written by server-side apply: the API server records which fields this client manages, and refuses to
    change the fields of other managers. An object that is being deleted is a deleted record.

    Args:
        client: must be closed by the caller.
        codecs: the conversion of each kind of record, by the kind's name.
    """

    def __init__(self, client: KubeClient, codecs: Mapping[str, ResourceCodec[Any, Any]]) -> None:
        self._client = client
        self._codecs = codecs
        self._newest = 0
        """The newest version that this store has read."""
        self._objects: defaultdict[str, dict[str, JsonObject]] = defaultdict(dict)
        """The last known objects by name, by kind: a status that is based on one is written without a read."""

    async def create(self, kind: RecordKind[Spec, Status], name: str, spec: Spec) -> Record[Spec, Status]:
        codec = self._codec(kind)
        encoded = codec.to_spec(kind, name, spec, None)
        check_size(kind, name, encoded, {})
        body = {
            "apiVersion": codec.type.api_version,
            "kind": codec.type.kind,
            "metadata": codec.to_metadata(name, spec, resourceVersion=NEVER_A_VERSION),
            "spec": encoded,
        }
        try:
            with writing(codec.type, kind.name, name):
                return self._record(kind, await self._client.apply(codec.type, body, force=True))
        except KubeConflictError as error:
            raise AlreadyExistsError(kind.name, name) from error

    async def get(self, kind: RecordKind[Spec, Status], name: str) -> Record[Spec, Status]:
        return self._record(kind, await self._get(kind, name))

    async def list(self, kind: RecordKind[Spec, Status]) -> Listing[Spec, Status]:
        codec = self._codec(kind)
        with reading(codec.type, kind.name):
            objects = await self._client.list(codec.type)
        listing: Listing[Spec, Status] = Listing([], int(objects.resource_version))
        self._newest = max(self._newest, listing.version)
        self._objects[kind.name].clear()
        for item in sorted(objects.items, key=lambda item: str(item["metadata"]["name"])):
            self._remember(kind, item)
            if _is_deleted(item):
                continue
            try:
                listing.records.append(codec.to_record(kind, item))
            except UnreadableRecordError as error:
                listing.unreadable.append(UnreadableRecord(item["metadata"]["name"], str(error)))
        return listing

    async def update_spec(
        self, kind: RecordKind[Spec, Status], name: str, spec: Spec, version: int
    ) -> Record[Spec, Status]:
        codec = self._codec(kind)
        while True:
            item = await self._get(kind, name)
            record = codec.to_record(kind, item)
            if record.version > version:
                await self._check_spec_unchanged(kind, item, version)
            if record.spec == spec:
                return record
            encoded = codec.to_spec(kind, name, spec, item["spec"])
            check_size(kind, name, encoded, item.get("status") or {})
            metadata = codec.to_metadata(
                name, spec, uid=record.uid, resourceVersion=item["metadata"]["resourceVersion"]
            )
            try:
                with writing(codec.type, kind.name, name):
                    return self._record(kind, await apply_spec(self._client, kind, codec, item, metadata, encoded))
            except KubeConflictError:
                continue  # The object has changed since it was read, possibly only its status.

    async def update_status(
        self, kind: RecordKind[Spec, Status], name: str, status: Status, version: int
    ) -> Record[Spec, Status]:
        codec = self._codec(kind)
        item = self._objects[kind.name].get(name)
        if item is None or _version(item) != version:
            item = await self._get(kind, name)
        record = codec.to_record(kind, item)
        if record.version > version:
            raise _conflict(kind, record, version)
        encoded = codec.to_status(kind, name, status, item.get("status"))
        if record.status == status or encoded == item.get("status"):
            return record
        check_size(kind, name, item["spec"], encoded)
        metadata = {"name": name, "uid": record.uid, "resourceVersion": item["metadata"]["resourceVersion"]}
        body = {
            "apiVersion": codec.type.api_version,
            "kind": codec.type.kind,
            "metadata": metadata,
            "spec": item["spec"],
            "status": encoded,
        }
        try:
            with writing(codec.type, kind.name, name):
                return self._record(kind, await self._client.replace(codec.type, body, "status"))
        except KubeConflictError as error:
            raise _conflict(kind, record, version) from error

    async def delete(self, kind: RecordKind[Spec, Status], name: str) -> None:
        codec = self._codec(kind)
        with writing(codec.type, kind.name, name):
            await self._client.delete(codec.type, name, propagation="Background")

    async def watch(self, kind: RecordKind[Spec, Status], version: int) -> AsyncGenerator[Change[Spec, Status], None]:
        codec = self._codec(kind)
        await self._check_not_newer(kind, version)
        deleting: set[str] = set()
        loop = asyncio.get_running_loop()
        while True:
            started = None
            try:
                with reading(codec.type, kind.name):
                    async with self._client.watch(codec.type, str(version)) as events:
                        started = loop.time()
                        async for event in events:
                            version = int(event.resource_version)
                            self._remember_change(kind, event)
                            change = read_change(codec, kind, event, deleting)
                            if change is not None:
                                yield change
            except StoreUnavailableError as error:
                # The API server may have restarted: a new connection shows whether it is away.
                is_connection = isinstance(error.__cause__, KubeUnavailableError)
                if not is_connection or started is None or loop.time() - started < SHORT_WATCH_SECONDS:
                    raise

    async def close(self) -> None:
        """Does nothing: the client belongs to the caller."""

    def _codec(self, kind: RecordKind[Spec, Status]) -> ResourceCodec[Spec, Status]:
        return self._codecs[kind.name]

    def _remember_change(self, kind: RecordKind[Spec, Status], event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._objects[kind.name].pop(event.object["metadata"]["name"], None)
        elif event.type != "BOOKMARK":
            self._remember(kind, event.object)

    def _remember(self, kind: RecordKind[Spec, Status], item: JsonObject) -> None:
        objects, metadata = self._objects[kind.name], item["metadata"]
        known = objects.get(metadata["name"])
        if _is_deleted(item):
            objects.pop(metadata["name"], None)
        elif known is None or _version(known) < _version(item):  # A watch may deliver less than was written since.
            kept = {name: value for name, value in metadata.items() if name != "managedFields"}
            objects[metadata["name"]] = {**item, "metadata": kept}

    def _record(self, kind: RecordKind[Spec, Status], item: JsonObject) -> Record[Spec, Status]:
        """Returns the record of an object that was read or written."""
        self._remember(kind, item)
        record = self._codec(kind).to_record(kind, item)
        self._newest = max(self._newest, record.version)
        return record

    async def _get(self, kind: RecordKind[Spec, Status], name: str) -> JsonObject:
        """Raises `NotFoundError`."""
        codec = self._codec(kind)
        with reading(codec.type, kind.name, name):
            item = await self._client.get(codec.type, name)
        if _is_deleted(item):
            raise NotFoundError(kind.name, name)
        return item

    async def _check_spec_unchanged(self, kind: RecordKind[Spec, Status], item: JsonObject, version: int) -> None:
        """Raises `ConflictError` if the spec differs from the spec at `version`, or if this is not known any more."""
        codec, metadata = self._codec(kind), item["metadata"]
        selector = f"metadata.name={metadata['name']}"
        try:
            with reading(codec.type, kind.name, metadata["name"]):
                earlier = await self._client.list(
                    codec.type, field_selector=selector, resource_version=str(version), exact=True
                )
        except (ExpiredError, StoreUnavailableError) as error:
            if isinstance(error.__cause__, KubeGoneError | KubeInvalidError):
                raise _conflict(kind, codec.to_record(kind, item), version) from error
            raise
        known = [(each["metadata"]["uid"], each["metadata"]["generation"]) for each in earlier.items]
        if known != [(metadata["uid"], metadata["generation"])]:
            raise _conflict(kind, codec.to_record(kind, item), version)

    async def _check_not_newer(self, kind: RecordKind[Spec, Status], version: int) -> None:
        """Raises `ExpiredError` if the API server, which would wait for it, has not reached the version yet."""
        if version <= self._newest:
            return
        newest = (await self.list(kind)).version
        if version > newest:
            raise ExpiredError(f"version {version} is newer than the API server, which is at {newest}: list again")


def _version(item: JsonObject) -> int:
    return int(item["metadata"]["resourceVersion"])


def _is_deleted(item: JsonObject) -> bool:
    """Returns whether the object is being deleted, and only waits for a finalizer."""
    return "deletionTimestamp" in item["metadata"]


def _conflict(kind: RecordKind[Spec, Status], record: Record[Spec, Status], version: int) -> ConflictError:
    return ConflictError(
        f"{kind.name} {record.name!r} has changed at version {record.version}, after {version}: read it again"
    )
