"""The volumes with the files of a model."""

from __future__ import annotations

from pathlib import PurePosixPath

from pydantic import JsonValue

from cornserve.app.settings import ModelStorage
from cornserve.control.launcher.kubernetes.names import HUB_CACHE, MODEL_DIR
from cornserve.kubernetes.resources import JsonObject
from cornserve.task.spec import ExecutorSpec

MODEL_VOLUME = "model"
HUB_CACHE_VOLUME = "hub-cache"
MODEL_ID = "model_id"
"""The setting of an executor that names its model."""


def storage_volumes(storage: ModelStorage | None) -> list[JsonObject]:
    if storage is None:
        return []
    source: JsonObject
    if claim := storage.persistent_volume_claim:
        source = {"persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": True}}
    elif image := storage.image:
        source = {"image": {"reference": image.reference, "pullPolicy": "IfNotPresent"}}
    elif host_path := storage.host_path:
        source = {"hostPath": {"path": host_path.path, "type": "Directory"}}
    elif download := storage.download:
        return [{"name": HUB_CACHE_VOLUME, "persistentVolumeClaim": {"claimName": download.cache_claim_name}}]
    else:
        return []
    return [{"name": MODEL_VOLUME, **source}]


def storage_mounts(storage: ModelStorage | None, *, downloads: bool = False) -> list[JsonObject]:
    """Returns the mounts of an executor, or of the program that downloads its model."""
    if storage is None:
        return []
    if storage.download:
        return [{"name": HUB_CACHE_VOLUME, "mountPath": str(HUB_CACHE), **({} if downloads else {"readOnly": True})}]
    return [{"name": MODEL_VOLUME, "mountPath": str(MODEL_DIR), "readOnly": True}]


def storage_environment(storage: ModelStorage | None, *, downloads: bool = False) -> list[JsonObject]:
    if storage is None or storage.download is None:
        return []
    variables: list[JsonObject] = [{"name": "HF_HOME", "value": str(HUB_CACHE)}]
    if not downloads:
        variables.append({"name": "HF_HUB_OFFLINE", "value": "1"})
    elif token := storage.download.token_secret_key_ref:
        variables.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": token.name, "key": token.key}}})
    return variables


def with_model_path(spec: ExecutorSpec, storage: ModelStorage | None) -> ExecutorSpec:
    """Returns the spec with the mounted directory in place of the id of the model."""
    directory = _model_directory(storage)
    if directory is None or MODEL_ID not in spec.config:
        return spec
    config: dict[str, JsonValue] = {**spec.config, MODEL_ID: str(directory)}
    return spec.model_copy(update={"config": config})


def _model_directory(storage: ModelStorage | None) -> PurePosixPath | None:
    if storage is None or storage.download:
        return None
    mounted = storage.persistent_volume_claim or storage.image
    return MODEL_DIR / mounted.path if mounted and mounted.path else MODEL_DIR
