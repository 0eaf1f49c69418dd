"""Merges a user's partial pod template into the launcher's, like a strategic merge patch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cornserve.control.launcher.base import GroupRefusedError
from cornserve.control.launcher.kubernetes.names import OWN_CONTAINERS
from cornserve.kubernetes.resources import JsonObject

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "claims": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""The field that identifies the elements of a list. Other lists are replaced, except for `_APPENDED`."""

_REPLACED = {"env", "volumes"}
"""Lists with a key whose elements are replaced: each element has one of several alternative fields."""

_APPENDED = {"tolerations"}
"""Lists without a key whose elements are added: a user's toleration must not remove those of the installation."""

_REFUSED_FIELDS = ("command", "args", "ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle")
_REFUSED_POD_FIELDS = (
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "hostNetwork",
    "serviceAccountName",
    "serviceAccount",
)
_DELETIONS = ("$patch", "$retainKeys", "$deleteFromPrimitiveList", "$setElementOrder")


def merge_pod_template(template: JsonObject, changes: Mapping[str, Any]) -> JsonObject:
    """Returns the template with a user's changes; null removes a field.

    Raises `GroupRefusedError` for fields that users cannot change.
    """
    _check(changes)
    merged: JsonObject = _merge(template, changes)
    metadata = merged.get("metadata", {})
    # The launcher's labels select its pods: they take precedence.
    labels = {**(metadata.get("labels") or {}), **template["metadata"]["labels"]}
    return {**merged, "metadata": {**metadata, "labels": labels}}


def _check(changes: Mapping[str, Any]) -> None:
    if unknown := sorted(changes.keys() - {"metadata", "spec"}):
        raise GroupRefusedError(
            f"podTemplate: {', '.join(unknown)}: is not a field of a pod template: give metadata or spec"
        )
    if (metadata := changes.get("metadata")) is not None:
        labels = _object(metadata, "metadata").get("labels")
        _object({} if labels is None else labels, "metadata.labels")
    spec = _object(changes.get("spec", {}), "spec")
    if refused := [name for name in _REFUSED_POD_FIELDS if name in spec]:
        raise GroupRefusedError(f"podTemplate: spec.{refused[0]} cannot be changed: remove it")
    for field in ("containers", "initContainers"):
        for container in _list(spec.get(field, []), f"spec.{field}"):
            _check_container(_object(container, f"spec.{field}"))
    _refuse_directives(changes, "podTemplate")


def _check_container(container: Mapping[str, Any]) -> None:
    name = container.get("name")
    if name in OWN_CONTAINERS and (refused := [field for field in _REFUSED_FIELDS if field in container]):
        raise GroupRefusedError(f"podTemplate: {refused[0]} of the container {name!r} cannot be changed: remove it")


def _refuse_directives(value: Any, path: str) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name.startswith(_DELETIONS):
                raise GroupRefusedError(f"{path}: the directive {name} is not supported: remove it")
            _refuse_directives(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            _refuse_directives(inner, path)


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise GroupRefusedError(f"podTemplate: {path} must be an object, not {value!r}")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise GroupRefusedError(f"podTemplate: {path} must be a list, not {value!r}")
    return value


def _merge(original: Any, changes: Any, field: str = "") -> Any:
    if isinstance(original, dict) and isinstance(changes, dict):
        merged = {name: value for name, value in original.items() if changes.get(name, value) is not None}
        for name, change in changes.items():
            if change is not None:
                merged[name] = _merge(original.get(name), change, name)
        return merged
    if isinstance(original, list) and isinstance(changes, list):
        if field in _APPENDED:
            return [*original, *changes]
        if key := _MERGE_KEYS.get(field):
            return _merge_elements(original, changes, key, field)
    return changes


def _merge_elements(original: list[Any], changes: list[Any], key: str, field: str) -> list[Any]:
    merged = {element[key]: element for element in original}
    for change in changes:
        identity = change.get(key) if isinstance(change, dict) else None
        if not isinstance(identity, str | int):
            raise GroupRefusedError(f"podTemplate: an element of {field} has no {key}: add it")
        merged[identity] = change if field in _REPLACED else _merge(merged.get(identity, {}), change)
    return list(merged.values())
