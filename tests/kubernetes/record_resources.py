"""Resources for the tests of the store: CRDs without a schema, and codecs that keep the models as they are."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from cornserve.control.store.base import APPS, RecordKind, Spec, Status
from cornserve.control.store.kubernetes_codec import ResourceCodec
from cornserve.kubernetes.resources import JsonObject, ResourceType
from tests.kubernetes.api_server import ApiServer

GROUP = "test.cornserve.ai"
APP_RECORDS = ResourceType(GROUP, "v1", "apprecords", "AppRecord")


def plain_codec(kind: RecordKind[Spec, Status], type: ResourceType) -> ResourceCodec[Spec, Status]:
    return ResourceCodec(
        type=type,
        encode_spec=_encode,
        decode_spec=kind.spec.model_validate,
        encode_status=_encode,
        decode_status=kind.status.model_validate,
    )


def _encode(model: BaseModel, current: JsonObject | None) -> JsonObject:
    return model.model_dump(mode="json", exclude_defaults=True)


PLAIN_CODECS = {APPS.name: plain_codec(APPS, APP_RECORDS)}


def install_record_crds(api_server: ApiServer) -> None:
    api_server.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(_crd(APP_RECORDS)))
    api_server.kubectl("wait", "--for=condition=Established", f"crd/{APP_RECORDS.qualified_name}", "--timeout=30s")


def _crd(type: ResourceType) -> dict[str, Any]:
    unchecked = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": unchecked, "status": unchecked}}
    version = {
        "name": type.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    }
    names = {"plural": type.plural, "kind": type.kind, "singular": type.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": type.qualified_name},
        "spec": {"group": type.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
