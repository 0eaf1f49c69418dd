"""Specs of versions whose specs were flat: their stores, routes, exported apps and clients."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from cornserve.app.record import Route
from cornserve.app.settings import ConfigMapKeyRef, ModelStorage
from cornserve.app.spec import AppModel, AppSource, AppSpec, Restart
from cornserve.validation_errors import describe_all
from cornserve_tasklib.media_options import MediaOptions

UNSET: dict[str, Any] = {
    "source": None,
    "source_config_map": None,
    "allow_paths": [],
    "model": None,
    "executor_replicas": {},
    "plan": None,
    "planning": None,
    "measured": None,
    "policies": {"routing": "least-loaded"},
    "held_until": None,
    "shares": None,
    "revision": None,
    "model_summary": None,
    "lora": None,
    "drawer": None,
    "drawer_summary": None,
    "media_options": None,
    "storage": None,
    "executors": [],
    "rollout": {"type": "RollingUpdate"},
    "restart": "",
}
"""The fields that every stored spec had."""


@pytest.mark.parametrize(
    ("flat", "spec"),
    [
        ({"model": "a/b"}, AppSpec(model=AppModel(id="a/b"))),
        (
            {
                "model": "a/b",
                "revision": "main",
                "lora": "sql",
                "drawer": "c/d",
                "media_options": {"fps": 1},
                "storage": {"host_path": {"path": "/models"}},
                "shares": {"x": 0.25, "y": 0.75},
                "replicas": 3,
                "restart": "again",
                "held_until": "2026-01-02T03:04:05Z",
            },
            AppSpec(
                model=AppModel(
                    id="a/b",
                    revision="main",
                    lora="sql",
                    drawer="c/d",
                    media_options=MediaOptions(fps=1),
                    storage=ModelStorage.model_validate({"host_path": {"path": "/models"}}),
                    shares={"x": 1, "y": 3},
                ),
                replicas=3,
                restart=Restart(id="again"),
                held_until="2026-01-02T03:04:05Z",  # type: ignore[arg-type]
            ),
        ),
        (
            {"source": "app = ...", "allow_paths": ["/data"]},
            AppSpec(source=AppSource(inline="app = ...", allow_paths=["/data"])),
        ),
        (
            {"source_config_map": {"name": "brief", "key": "brief.py"}},
            AppSpec(source=AppSource(config_map_key_ref=ConfigMapKeyRef(name="brief", key="brief.py"))),
        ),
    ],
)
def test_a_stored_flat_spec_is_read(flat: dict[str, Any], spec: AppSpec) -> None:
    assert AppSpec.model_validate(UNSET | flat) == AppSpec.model_validate(flat) == spec


def test_a_route_with_a_flat_spec_is_read() -> None:
    route = Route.model_validate({"app_uid": "u", "generation": 1, "spec": UNSET | {"model": "a/b"}, "shares": [1.0]})

    assert route.spec == AppSpec(model=AppModel(id="a/b"))


def test_fields_that_a_flat_spec_clears_are_given() -> None:
    cleared = AppSpec.model_validate({"model": "a/b", "plan": None, "held_until": None, "restart": ""})

    assert cleared.model_fields_set == {"model", "plan", "held_until", "restart"}
    assert cleared.restart is None


@pytest.mark.parametrize(
    ("flat", "message"),
    [
        ({"model": "a/b", "source": "app = ..."}, "set exactly one of model, source"),
        ({"source": "app = ...", "lora": "sql"}, "lora: cannot be set for an app with source"),
        ({"model": "a/b", "allow_paths": ["/data"]}, "allow_paths: only code of an app with source uses paths"),
        ({"model": ""}, "model.id: must have at least 1 character"),
        ({"model": "a/b", "colour": None}, "colour: is not a known field"),
        ({"model": "a/b", "shares": {"x": -1.5}}, "give finite numbers of at least 0"),
        ({"model": "a/b", "shares": {"x": "1"}}, "shares: give a number for each path"),
        ({"model": "a/b", "shares": [1]}, "shares: give a number for each path"),
        ({"model": "a/b", "shares": {"x": 10**400}}, "shares: give a number for each path"),
        ({"model": {"id": "a/b"}, "source_config_map": None}, "source_config_map: is not a known field"),
    ],
)
def test_a_wrong_flat_spec_is_refused(flat: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        AppSpec.model_validate(flat)
    assert message in describe_all(refusal.value.errors())
