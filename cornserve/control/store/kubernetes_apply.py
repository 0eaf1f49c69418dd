"""Writes a spec by server-side apply, and manages no more fields than necessary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cornserve.control.store.base import FieldConflictError, RecordKind, Spec, Status
from cornserve.control.store.kubernetes_codec import ResourceCodec
from cornserve.control.store.kubernetes_errors import field_conflict_message, is_imperative
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeConflictError
from cornserve.kubernetes.resources import JsonObject


async def apply_spec(
    client: KubeClient,
    kind: RecordKind[Spec, Status],
    codec: ResourceCodec[Spec, Status],
    item: JsonObject,
    metadata: JsonObject,
    spec: JsonObject,
) -> JsonObject:
    """Applies the fields of the spec that differ from the present object, and those that this client manages.

    Fields that other managers have set, and that stay as they are, stay theirs. The values of single commands, such as
    `kubectl scale`, are replaced; those of other managers are not.

    Args:
        item: the present object.
        metadata: the metadata to apply, with the uid and version of the present object as preconditions.

    Raises:
        KubeConflictError: another manager owns a field, or the object has changed.
        FieldConflictError: another manager owns a field that the new spec does not have.
    """
    managed = _managed_fields(item, client.field_manager)
    body = {
        "apiVersion": codec.type.api_version,
        "kind": codec.type.kind,
        "metadata": metadata,
        "spec": {field: value for field, value in spec.items() if field in managed or value != item["spec"].get(field)},
    }
    if not _has_other_managers(item, client.field_manager):
        return await client.apply(codec.type, body)
    # The fields of other managers stay, even if the new spec does not have them: a trial shows the result.
    force = False
    try:
        result = await client.apply(codec.type, body, dry_run=True)
    except KubeConflictError as error:
        if not is_imperative(error):
            raise
        force = True
        result = await client.apply(codec.type, body, dry_run=True, force=True)
    if codec.decode_spec(result["spec"]) != codec.decode_spec(spec):
        kept = sorted(field for field in result["spec"] if result["spec"][field] != spec.get(field))
        fields = ", ".join(f"spec.{field} ({', '.join(_managers(item, field))})" for field in kept)
        raise FieldConflictError(field_conflict_message(kind.name, metadata["name"], fields))
    return await client.apply(codec.type, body, force=force)


def _has_other_managers(item: JsonObject, manager: str) -> bool:
    return any(not _is_own(entry, manager) for entry in _entries(item) if any(_fields(entry)))


def _managed_fields(item: JsonObject, manager: str) -> set[str]:
    """Returns the fields of the spec that the manager has applied."""
    return {field for entry in _entries(item) if _is_own(entry, manager) for field in _fields(entry)}


def _managers(item: JsonObject, field: str) -> list[str]:
    return sorted({entry["manager"] for entry in _entries(item) if field in _fields(entry)}) or ["its default"]


def _is_own(entry: JsonObject, manager: str) -> bool:
    return bool(entry["manager"] == manager and entry["operation"] == "Apply")


def _entries(item: JsonObject) -> Iterable[JsonObject]:
    entries: list[JsonObject] = item["metadata"].get("managedFields", [])
    return entries


def _fields(entry: JsonObject) -> Iterator[str]:
    """Yields the fields of the spec in an entry of `managedFields`."""
    for key in entry.get("fieldsV1", {}).get("f:spec", {}):
        yield key.removeprefix("f:")
