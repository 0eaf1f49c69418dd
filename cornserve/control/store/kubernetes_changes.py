"""The changes of records in the events of a watch."""

from __future__ import annotations

from cornserve.control.store.base import (
    Change,
    ChangeType,
    ExpiredError,
    RecordKind,
    Spec,
    Status,
    UnreadableRecordError,
)
from cornserve.control.store.kubernetes_codec import ResourceCodec
from cornserve.kubernetes.watch_events import WatchEvent


def read_change(
    codec: ResourceCodec[Spec, Status], kind: RecordKind[Spec, Status], event: WatchEvent, deleting: set[str]
) -> Change[Spec, Status] | None:
    """Returns the change that an event means, or None.

    An object whose deletion waits for a finalizer is deleted when the deletion starts.

    Args:
        deleting: the uids of these objects. It is kept from one event to the next.

    Raises:
        ExpiredError: the record cannot be read. A listing then reports it.
    """
    if event.type == "BOOKMARK":
        return None
    is_deleted = event.type == "DELETED"
    metadata = event.object["metadata"]
    if "deletionTimestamp" in metadata:
        is_known = metadata["uid"] in deleting
        deleting.add(metadata["uid"])
        if is_deleted:
            deleting.discard(metadata["uid"])
        if is_known:
            return None
        is_deleted = True
    try:
        record = codec.to_record(kind, event.object)
    except UnreadableRecordError as error:
        raise ExpiredError(
            f"change {event.resource_version} cannot be read: {error}: list the records again"
        ) from error
    return Change(ChangeType.DELETED if is_deleted else ChangeType.PUT, record.version, record)
