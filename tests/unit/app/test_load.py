"""Tests of loading an app from its spec."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from cornserve.app.load import load_app, with_all_paths
from cornserve.app.spec import AppModel, AppSpec
from cornserve.task.errors import DefinitionError


@pytest.fixture
def model(tmp_path: Path) -> str:
    config = {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


def executors(spec: AppSpec) -> set[str]:
    return {executor.executor for executor in load_app("a", spec, "module").executor_specs().values()}


def test_a_multimodal_model_is_served_as_a_monolith_by_default(model: str) -> None:
    assert executors(AppSpec(model=AppModel(id=model))) == {"llm"}


def test_only_paths_with_a_share_need_executors(model: str) -> None:
    app = load_app("a", AppSpec(model=AppModel(id=model, shares={"monolith": 0, "e-l": 2})), "module")

    assert app.shares == (2.0,)
    assert [path.split_encoder for path in app.paths] == [True]  # type: ignore[attr-defined]


def test_several_paths_may_have_shares(model: str) -> None:
    app = load_app("a", AppSpec(model=AppModel(id=model, shares={"monolith": 1, "e-el": 3})), "module")

    assert app.shares == (1.0, 3.0)


def test_an_unknown_path_is_rejected(model: str) -> None:
    with pytest.raises(DefinitionError, match=r"unknown path 'e-d' .*: choose from monolith, e-l, e-el"):
        load_app("a", AppSpec(model=AppModel(id=model, shares={"e-d": 1})), "module")


@pytest.mark.parametrize("shares", [{}, {"monolith": 0}, {"monolith": -1}, {"monolith": 1_000_001}])
def test_shares_without_a_positive_number_are_rejected(shares: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="shares"):
        AppSpec(model=AppModel(id="/a", shares=shares))


@pytest.mark.parametrize(
    ("shares", "paths"),
    [
        (None, ["monolith", "e-l", "e-el", "joint-e-l", "joint-e-el"]),
        ({"e-el": 2}, ["monolith", "e-l", "e-el", "joint-e-l", "joint-e-el"]),
        ({"monolith": 0, "speech": 1}, ["speech", "e-speech", "speech-split", "speech-monolith"]),
    ],
)
def test_only_paths_of_the_same_type_can_replace_those_of_a_model(
    shares: dict[str, int] | None, paths: list[str]
) -> None:
    spec = AppSpec(model=AppModel(id="Qwen/Qwen3-Omni-30B-A3B-Instruct", shares=shares))

    model = with_all_paths(spec).model
    assert model is not None
    assert list(model.shares or {}) == paths


def test_an_unknown_path_of_a_model_is_named() -> None:
    with pytest.raises(DefinitionError, match=r"unknown path 'song' of Qwen/Qwen3-0.6B: choose from chat"):
        with_all_paths(AppSpec(model=AppModel(id="Qwen/Qwen3-0.6B", shares={"song": 1})))
