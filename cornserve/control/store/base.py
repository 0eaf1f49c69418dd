"""The store interface. Gateways and the controller communicate only through a store, which they watch.

A record has a spec, which users write, and a status, which the controller writes. Writes of one do not overwrite the
other. A write specifies the version that it is based on and fails if a newer one exists (optimistic concurrency).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

from cornserve.app.record import AppStatus, Route, RouteStatus
from cornserve.app.spec import AppSpec

Spec = TypeVar("Spec", bound=BaseModel)
Status = TypeVar("Status", bound=BaseModel)

MAX_RECORD_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class RecordKind(Generic[Spec, Status]):
    name: str
    spec: type[Spec]
    status: type[Status]


@dataclass(frozen=True, slots=True)
class Record(Generic[Spec, Status]):
    name: str
    uid: str
    """Differs between records with the same name, if one was deleted before the other was created."""
    generation: int
    """The number of writes of the spec, from 1."""
    version: int
    """The resource version. Each write of any record of the store increases it."""
    spec: Spec
    status: Status


APPS = RecordKind("App", AppSpec, AppStatus)
AppRecord = Record[AppSpec, AppStatus]
ROUTES = RecordKind("AppRoute", Route, RouteStatus)
"""The route of each app, under the app's name. The controller writes the spec, gateways write the status."""
RouteRecord = Record[Route, RouteStatus]


class ChangeType(StrEnum):
    PUT = "put"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Change(Generic[Spec, Status]):
    type: ChangeType
    version: int
    record: Record[Spec, Status]
    """The record after the change. For a deletion: its last state, with the version of the deletion."""


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record whose content is damaged, or was written by a newer version of Cornserve."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing(Generic[Spec, Status]):
    records: list[Record[Spec, Status]]
    version: int
    """A watch from this version yields all later changes."""
    unreadable: list[UnreadableRecord] = field(default_factory=list)
    """Records that exist and cannot be read. A repair restores or deletes them, which a watch yields as changes."""


class StoreError(Exception):
    """Base class of the errors of a store."""


class NotFoundError(StoreError):
    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} does not exist")


class AlreadyExistsError(StoreError):
    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name!r} already exists")


class ConflictError(StoreError):
    """The record has changed since the version that the write is based on: read it again."""


class FieldConflictError(StoreError):
    """Another program manages fields of the spec that the write would change. The message names it and the fields."""


class RecordRejectedError(StoreError):
    """The store refuses the content or the name of the record. The message contains the reason."""


class ExpiredError(StoreError):
    """The changes since this version are not kept any more: list the records and watch from the new version."""


class UnreadableRecordError(StoreError):
    """The record exists, but its content is damaged. The other records can be read."""


class RecordTooLargeError(StoreError):
    """A record exceeds `MAX_RECORD_BYTES`."""


class StoreUnavailableError(StoreError):
    """The store does not work, for example because of its disk. It may work again later."""


class StoreDamagedError(StoreUnavailableError):
    """The store needs a repair."""


class Store(Protocol):
    """Stores records and notifies watchers of changes.

    Any method may raise `StoreUnavailableError`. Writes may raise `RecordRejectedError` and `FieldConflictError`.
    """

    async def create(self, kind: RecordKind[Spec, Status], name: str, spec: Spec) -> Record[Spec, Status]:
        """Creates a record with the status `kind.status()`.

        Raises `AlreadyExistsError`, `RecordTooLargeError`.
        """

    async def get(self, kind: RecordKind[Spec, Status], name: str) -> Record[Spec, Status]:
        """Raises `NotFoundError` if the record does not exist, and `UnreadableRecordError`."""

    async def list(self, kind: RecordKind[Spec, Status]) -> Listing[Spec, Status]:
        """Returns all readable records, sorted by name, the names of the others, and the version of this snapshot."""

    async def update_spec(
        self, kind: RecordKind[Spec, Status], name: str, spec: Spec, version: int
    ) -> Record[Spec, Status]:
        """Writes the spec and increments the generation. An equal spec changes nothing.

        Raises `NotFoundError`, `UnreadableRecordError`, `RecordTooLargeError`, and `ConflictError` if the *spec* has
        changed since `version`. Changes of the status are not conflicts.
        """

    async def update_status(
        self, kind: RecordKind[Spec, Status], name: str, status: Status, version: int
    ) -> Record[Spec, Status]:
        """Writes the status. An equal status changes nothing.

        Raises `NotFoundError`, `UnreadableRecordError`, `RecordTooLargeError`, and `ConflictError` if the record has
        changed since `version`.
        """

    async def delete(self, kind: RecordKind[Spec, Status], name: str) -> None:
        """Deletes a record, even if its content is damaged. Raises `NotFoundError` if it does not exist."""

    def watch(self, kind: RecordKind[Spec, Status], version: int) -> AsyncGenerator[Change[Spec, Status], None]:
        """Yields every change after `version`, by any process, in order. Runs until closed.

        Raises `ExpiredError`, even if `version` is newer than the store, which means that the store was replaced, or if
        a change cannot be read.
        """

    async def close(self) -> None:
        """Closes the store. The records stay."""
