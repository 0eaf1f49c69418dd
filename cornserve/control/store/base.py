"""The interface of stores. Gateways and the controller share nothing but a store, and only watch it.

Records have a spec, written by users, and a status, written by the controller; the two never overwrite each
other. Writes name the version that they build on and fail if there is a newer one (optimistic concurrency).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

from cornserve.app.record import AppSpec, AppStatus

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
    """Another one after a delete and a new create."""
    generation: int
    """Counts the writes of the spec, from 1."""
    version: int
    """The resource version: grows with every write of any record of the store."""
    spec: Spec
    status: Status


APPS = RecordKind("App", AppSpec, AppStatus)
AppRecord = Record[AppSpec, AppStatus]


class ChangeType(StrEnum):
    PUT = "put"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Change(Generic[Spec, Status]):
    type: ChangeType
    version: int
    record: Record[Spec, Status]
    """After the change; of a deleted record, its last state, with the version of the deletion."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[Spec, Status]):
    records: list[Record[Spec, Status]]
    version: int
    """Where a watch goes on from."""


class StoreError(Exception):
    """A store refused a call."""


class NotFoundError(StoreError):
    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {name!r}")


class AlreadyExistsError(StoreError):
    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is a {kind} {name!r} already")


class ConflictError(StoreError):
    """The record has changed since the version that the write builds on: read it again."""


class ExpiredError(StoreError):
    """The changes since that version are no longer kept: list again, and watch from there."""


class RecordTooLargeError(StoreError):
    """A record does not fit: workloads are stored as summaries, traces are files."""


class StoreUnavailableError(StoreError):
    """The store itself does not work: its file, disk or server says why."""


class Store(Protocol):
    """Any call may raise `StoreUnavailableError`."""

    async def create(self, kind: RecordKind[Spec, Status], name: str, spec: Spec) -> Record[Spec, Status]:
        """Raises `AlreadyExistsError`, `RecordTooLargeError`. The status starts as `kind.status()`."""

    async def get(self, kind: RecordKind[Spec, Status], name: str) -> Record[Spec, Status]:
        """Raises `NotFoundError`."""

    async def list(self, kind: RecordKind[Spec, Status]) -> Listing[Spec, Status]:
        """All records, by name, and the version at which they were so."""

    async def update_spec(
        self, kind: RecordKind[Spec, Status], name: str, spec: Spec, version: int
    ) -> Record[Spec, Status]:
        """Writes the spec and counts the generation up, unless the spec is equal: then nothing changes.

        Raises `NotFoundError`, `RecordTooLargeError`, and `ConflictError` if the *spec* has changed since
        `version`; writes of the status do not count.
        """

    async def update_status(
        self, kind: RecordKind[Spec, Status], name: str, status: Status, version: int
    ) -> Record[Spec, Status]:
        """Writes the status, unless it is equal.

        Raises `NotFoundError`, `RecordTooLargeError`, and `ConflictError` if anything has changed since `version`.
        """

    async def delete(self, kind: RecordKind[Spec, Status], name: str) -> None:
        """Raises `NotFoundError`."""

    def watch(self, kind: RecordKind[Spec, Status], version: int) -> AsyncIterator[Change[Spec, Status]]:
        """Every change after `version`, by whichever process, in order and for ever.

        Raises `ExpiredError`, also for a version that is yet to come: then the store is not the one it was.
        """

    async def close(self) -> None:
        """Frees the store's resources; the records stay."""
