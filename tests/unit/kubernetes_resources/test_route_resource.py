from __future__ import annotations

from json import dumps, loads
from typing import Any

import pytest
from hypothesis import given, settings

from cornserve.app.record import Route, RouteStatus
from cornserve.app.spec import AppModel, AppSpec
from cornserve.kubernetes_resources.route_resource import (
    decode_route,
    decode_route_status,
    encode_route,
    encode_route_status,
)
from cornserve.kubernetes_resources.spec_mapping import AppResourceError
from cornserve.task.spec import ExecutorSpec
from tests.unit.kubernetes_resources.strategies import routes


@given(routes())
@settings(max_examples=30)
def test_every_route_is_read_back_unchanged(route: Route) -> None:
    assert decode_route(loads(dumps(encode_route(route)))) == route


def test_keys_of_executors_survive_numbers_that_the_api_server_would_change() -> None:
    spec = ExecutorSpec(executor="llm", config={"a": 1.0, "b": 2**70})
    route = Route(app_uid="u", generation=1, spec=AppSpec(model=AppModel(id="m")), shares=[1.0], specs={spec.key: spec})

    read = decode_route(encode_route(route))

    assert read.specs[spec.key].key == spec.key


@pytest.mark.parametrize("wrong", [{"app": "{"}, {"app": "{}"}, {"shares": ["x"]}, {"generation": "1.5"}])
def test_a_damaged_route_is_refused(wrong: dict[str, Any]) -> None:
    route = Route(app_uid="u", generation=1, spec=AppSpec(model=AppModel(id="m")), shares=[1.0])
    with pytest.raises(AppResourceError, match="route: "):
        decode_route(encode_route(route) | wrong)


def test_the_status_of_a_route_is_read_back_unchanged() -> None:
    for status in (RouteStatus(), RouteStatus(suspended="its code exits", suspended_code="0123")):
        assert decode_route_status(encode_route_status(status)) == status
