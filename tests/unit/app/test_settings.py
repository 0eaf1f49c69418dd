from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from cornserve.app.settings import ExecutorOverride, ExecutorOverrides, ModelStorage, Rollout

CLAIM = {"claim_name": "models", "path": "qwen/vl"}


def test_storage_has_exactly_one_location() -> None:
    assert ModelStorage.model_validate({"persistent_volume_claim": CLAIM}).persistent_volume_claim
    with pytest.raises(ValidationError, match="set exactly one of persistent_volume_claim, image, host_path, download"):
        ModelStorage.model_validate({})
    with pytest.raises(ValidationError, match="set exactly one of persistent_volume_claim, image"):
        ModelStorage.model_validate({"persistent_volume_claim": CLAIM, "host_path": {"path": "/models"}})


@pytest.mark.parametrize("path", ["", "/", "/absolute", "..", "a/../b", "a/..", "./a", "a//b", "a/", "..a"])
def test_a_path_in_a_volume_stays_in_the_volume(path: str) -> None:
    with pytest.raises(ValidationError, match=r"persistent_volume_claim\.path"):
        ModelStorage.model_validate({"persistent_volume_claim": {"claim_name": "models", "path": path}})


@pytest.mark.parametrize("path", ["a", "a/b", ".cache/a.b", "Qwen2.5-VL/main", "a..b"])
def test_a_path_in_a_volume_is_relative(path: str) -> None:
    storage = ModelStorage.model_validate({"persistent_volume_claim": {"claim_name": "models", "path": path}})
    assert storage.persistent_volume_claim
    assert storage.persistent_volume_claim.path == path


@pytest.mark.parametrize("path", ["", "/", "models", "/a/../b", "/a/"])
def test_a_path_on_a_node_is_absolute(path: str) -> None:
    with pytest.raises(ValidationError, match=r"host_path\.path"):
        ModelStorage.model_validate({"host_path": {"path": path}})


@pytest.mark.parametrize("name", ["*", "llm", "encoder", "A.b_c-1"])
def test_an_override_names_an_executor_or_all(name: str) -> None:
    assert ExecutorOverride(name=name).name == name


@pytest.mark.parametrize("wrong", [{"name": ""}, {"name": "**"}, {"name": "a b"}, {"name": "llm", "pod": {}}])
def test_a_wrong_override_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ExecutorOverride.model_validate(wrong)


def test_an_executor_has_one_override() -> None:
    overrides: TypeAdapter[list[ExecutorOverride]] = TypeAdapter(ExecutorOverrides)
    assert len(overrides.validate_python([{"name": "*"}, {"name": "llm"}])) == 2
    with pytest.raises(ValidationError, match="'llm' is given more than once"):
        overrides.validate_python([{"name": "llm"}, {"name": "*"}, {"name": "llm"}])


def test_a_rollout_keeps_the_old_version_by_default() -> None:
    assert Rollout().type == "RollingUpdate"
    with pytest.raises(ValidationError, match="progress_deadline_seconds"):
        Rollout(progress_deadline_seconds=0)
