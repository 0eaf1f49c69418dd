"""Conversion between records and Kubernetes objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic

from pydantic import ValidationError

from cornserve.control.store.base import (
    MAX_RECORD_BYTES,
    Record,
    RecordKind,
    RecordRejectedError,
    RecordTooLargeError,
    Spec,
    Status,
    UnreadableRecordError,
)
from cornserve.kubernetes.resources import JsonObject, ResourceType
from cornserve.validation_errors import describe_error


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """The object whose deletion deletes the record."""

    type: ResourceType
    name: str
    uid: str

    def to_object(self) -> JsonObject:
        return {"apiVersion": self.type.api_version, "kind": self.type.kind, "name": self.name, "uid": self.uid}


@dataclass(frozen=True, slots=True)
class ResourceCodec(Generic[Spec, Status]):
    """Converts the records of one kind. The functions raise `ValueError` for content that cannot be converted.

    Args:
        encode_spec: receives the present spec too, whose form of unchanged fields it may keep.
        encode_status: receives the present status too, for the times of its conditions.
        owner: returns the owner of a record with this name and spec.
    """

    type: ResourceType
    encode_spec: Callable[[Spec, JsonObject | None], JsonObject]
    decode_spec: Callable[[JsonObject], Spec]
    encode_status: Callable[[Status, JsonObject | None], JsonObject]
    decode_status: Callable[[JsonObject], Status]
    owner: Callable[[str, Spec], OwnerReference | None] = lambda name, spec: None

    def to_record(self, kind: RecordKind[Spec, Status], item: JsonObject) -> Record[Spec, Status]:
        """Raises `UnreadableRecordError`."""
        metadata = item["metadata"]
        try:
            return Record(
                name=metadata["name"],
                uid=metadata["uid"],
                generation=metadata["generation"],
                version=int(metadata["resourceVersion"]),
                spec=self.decode_spec(item.get("spec") or {}),
                status=self.decode_status(item.get("status") or {}),
            )
        except (ValueError, TypeError, KeyError) as error:
            reason = describe_error(error.errors()[0]) if isinstance(error, ValidationError) else str(error)
            raise UnreadableRecordError(f"{kind.name} {metadata['name']!r} cannot be read: {reason}") from error

    def to_spec(self, kind: RecordKind[Spec, Status], name: str, spec: Spec, current: JsonObject | None) -> JsonObject:
        """Returns the encoded spec. Raises `RecordRejectedError`."""
        with _encoding(kind, name):
            return self.encode_spec(spec, current)

    def to_status(
        self, kind: RecordKind[Spec, Status], name: str, status: Status, current: JsonObject | None
    ) -> JsonObject:
        """Returns the encoded status. Raises `RecordRejectedError`."""
        with _encoding(kind, name):
            return self.encode_status(status, current)

    def to_metadata(self, name: str, spec: Spec, **preconditions: str) -> JsonObject:
        """Returns the metadata of an apply, complete: an apply removes the fields of this client that are missing."""
        owner = self.owner(name, spec)
        references = {"ownerReferences": [owner.to_object()]} if owner is not None else {}
        return {"name": name, **preconditions, **references}


@contextmanager
def _encoding(kind: RecordKind[Spec, Status], name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise RecordRejectedError(f"{kind.name} {name!r} cannot be stored in Kubernetes: {error}") from error


def check_size(kind: RecordKind[Spec, Status], name: str, spec: JsonObject, status: JsonObject) -> None:
    """Raises `RecordTooLargeError`."""
    size = sum(len(json.dumps(part, ensure_ascii=False).encode(errors="replace")) for part in (spec, status))
    if size > MAX_RECORD_BYTES:
        raise RecordTooLargeError(
            f"{kind.name} {name!r} has {size:,} bytes, more than the limit of {MAX_RECORD_BYTES:,}: "
            "store a summary, and keep large data in files"
        )
