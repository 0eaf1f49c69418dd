"""Errors of the API server as errors of a store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cornserve.control.store.base import (
    ExpiredError,
    FieldConflictError,
    NotFoundError,
    RecordRejectedError,
    StoreUnavailableError,
)
from cornserve.kubernetes.errors import (
    KubeApiError,
    KubeConflictError,
    KubeForbiddenError,
    KubeGoneError,
    KubeInvalidError,
    KubeNotFoundError,
    KubeUnknownTypeError,
)
from cornserve.kubernetes.resources import JsonObject, ResourceType

_MANAGER = re.compile(r'conflict with "(?P<name>[^"]+)"(?: with subresource "(?P<subresource>[^"]+)")?')

_IMPERATIVE = {("kubectl-edit", None), ("kubectl-patch", None), ("kubectl", "scale")}
"""The field managers of single commands, with their subresource. They do not restore what they have written."""


@contextmanager
def reading(type: ResourceType, kind: str, name: str = "") -> Iterator[None]:
    """Translates the errors of the block, which reads the record `name` or all records."""
    try:
        yield
    except KubeGoneError as error:
        raise ExpiredError(f"{error}: list the records again") from error
    except KubeNotFoundError as error:
        if name and error.details.get("name") == name:
            raise NotFoundError(kind, name) from error
        raise StoreUnavailableError(str(error)) from error
    except KubeUnknownTypeError as error:
        raise StoreUnavailableError(
            f"the Kubernetes API server does not know {type.qualified_name}/{type.version}: "
            "install the chart cornserve-crds of this version"
        ) from error
    except KubeConflictError:
        raise
    except KubeApiError as error:
        raise StoreUnavailableError(str(error)) from error


@contextmanager
def writing(type: ResourceType, kind: str, name: str) -> Iterator[None]:
    """Translates the errors of the block, which writes the record.

    Does not translate a `KubeConflictError` that means that the object has changed.
    """
    with reading(type, kind, name):
        try:
            yield
        except (KubeInvalidError, KubeForbiddenError) as error:
            raise RecordRejectedError(f"the Kubernetes API server refuses {kind} {name!r}: {error}") from error
        except KubeConflictError as error:
            causes = field_conflicts(error)
            if not causes:
                raise
            fields = ", ".join(f"{cause.get('field', '').lstrip('.')} ({_manager_name(cause)})" for cause in causes)
            raise FieldConflictError(field_conflict_message(kind, name, fields)) from error


def field_conflict_message(kind: str, name: str, fields: str) -> str:
    return (
        f"{kind} {name!r} has fields that another program manages: {fields}: "
        "change them there, or remove them from its manifest"
    )


def field_conflicts(error: KubeConflictError) -> list[JsonObject]:
    """Returns a cause for each field that another manager owns. Without any, the object itself has changed."""
    return [cause for cause in error.causes if cause.get("reason") == "FieldManagerConflict"]


def is_imperative(error: KubeConflictError) -> bool:
    """Returns whether all fields in conflict were written by single commands, such as `kubectl scale`."""
    managers = [_MANAGER.search(cause.get("message", "")) for cause in field_conflicts(error)]
    return bool(managers) and all(match is not None and match.groups() in _IMPERATIVE for match in managers)


def _manager_name(cause: JsonObject) -> str:
    match = _MANAGER.search(cause.get("message", ""))
    return match["name"] if match else "an unknown manager"
