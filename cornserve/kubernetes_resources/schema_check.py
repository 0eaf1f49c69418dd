"""Detects CRDs that are older than this version of Cornserve. The API server would drop the fields they lack.

The schemas come from the API server's OpenAPI document, `/openapi/v3/apis/cornserve.ai/v1alpha1`, which every
authenticated client may read. Reading the CRDs themselves needs permissions for the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cornserve.kubernetes.resources import GROUP, JsonObject
from cornserve.kubernetes_resources.crd import app_crd, route_crd

MAX_LISTED_FIELDS = 5


class OutdatedCrdError(Exception):
    """A CRD is missing, or lacks fields that this version of Cornserve uses. The message is for users."""


def check_schemas(document: JsonObject) -> None:
    """Checks the schemas of all resources in an OpenAPI document. A newer schema, with more fields, passes.

    Raises `OutdatedCrdError`.
    """
    for crd in (app_crd(), route_crd()):
        _check(crd, document)


def _check(crd: JsonObject, document: JsonObject) -> None:
    name, kind = crd["metadata"]["name"], crd["spec"]["names"]["kind"]
    installed = _schema_of(kind, document)
    if installed is None:
        raise OutdatedCrdError(f"the CRD {name} is not installed: install the chart cornserve-crds of this version")
    wanted = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    missing = [
        path
        for section in ("spec", "status")
        for path in _missing(section, wanted["properties"][section], installed["properties"].get(section))
    ]
    if missing:
        listed = ", ".join(missing[:MAX_LISTED_FIELDS])
        more = f" and {len(missing) - MAX_LISTED_FIELDS} more" if len(missing) > MAX_LISTED_FIELDS else ""
        raise OutdatedCrdError(
            f"the CRD {name} is older than this version of Cornserve: it lacks {listed}{more}, which the API server "
            "would drop: upgrade the chart cornserve-crds first"
        )


def _schema_of(kind: str, document: JsonObject) -> JsonObject | None:
    schemas: Mapping[str, Any] = document.get("components", {}).get("schemas", {})
    for schema in schemas.values():
        for identity in schema.get("x-kubernetes-group-version-kind", []):
            if (identity["group"], identity["kind"]) == (GROUP, kind):
                return dict(schema)
    return None


def _missing(path: str, wanted: Mapping[str, Any], installed: Mapping[str, Any] | None) -> Iterator[str]:
    """Yields the paths of the fields that the installed schema does not keep."""
    if installed is None:
        yield path
        return
    if wanted.get("x-kubernetes-preserve-unknown-fields") and not installed.get("x-kubernetes-preserve-unknown-fields"):
        yield path
    for name, field in wanted.get("properties", {}).items():
        yield from _missing(f"{path}.{name}", field, installed.get("properties", {}).get(name))
    for keyword, part in (("items", f"{path}[]"), ("additionalProperties", f"{path}.NAME")):
        if keyword in wanted:
            yield from _missing(part, wanted[keyword], installed.get(keyword))
