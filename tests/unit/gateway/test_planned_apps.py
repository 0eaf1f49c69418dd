"""Deployments and scaling of apps with plans."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.app.record import AppStatus, FailureReason, Phase
from cornserve.app.spec import REQUIRED_PLAN, AppSpec
from cornserve.control.store.base import APPS, Store
from tests.unit.app.plans import cell, plan_document
from tests.unit.gateway.sources import ECHO

CAPTION = """
from cornserve_echo.stages import caption_app

app = caption_app("caption", encoder=0.1, llm=0.1)
"""

URL = "/admin/v1/apps/caption"

AUTOSCALING = {"autoscaling": {"executors": [{"name": "stage", "capacity": 10, "unit": "requests"}]}}


def one_shared_cell(**replicas: int) -> dict[str, Any]:
    return plan_document(
        cell(sum(replicas.values()), replicas, count=1, is_shared=True), cell(100, {"EL": 99}, rate=600.0)
    )


def two_sizes(small: int, large: int) -> dict[str, Any]:
    return plan_document(cell(1, {"EL": 1}, count=small, rate=4.0), cell(2, {"EL": 2}, count=large, rate=10.0))


async def test_a_planned_app_is_stored_with_its_plan(gateway: httpx.AsyncClient, store: Store) -> None:
    response = await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": two_sizes(1, 1)})

    assert response.status_code == 200
    plan = (await store.get(APPS, "caption")).spec.plan
    assert plan is not None
    assert plan.counts == {1: 1, 2: 1}


@pytest.mark.parametrize(
    ("source", "change", "message"),
    [
        (CAPTION.replace("llm=0.1", "llm=0.2"), {}, "option 'EL' is StageTask with settings that no executor"),
        (ECHO.replace('"echo"', '"caption"'), {}, "plan: the app has no request types"),
        (CAPTION, {"replicas": 2}, "replicas: a plan has the replicas of the executors"),
        (CAPTION, {"plan": two_sizes(0, 0)}, "0 cells run"),
        (CAPTION, {"policies": AUTOSCALING}, "policies.autoscaling: a plan is autoscaled if it runs one cell"),
        (CAPTION, {"policies": AUTOSCALING, "plan": two_sizes(1, 0)}, "a plan is autoscaled if it runs one cell"),
        (
            CAPTION,
            {"policies": AUTOSCALING, "plan": one_shared_cell(E=1, L=2)},
            "policies.autoscaling: the plan runs 2 executors with the name 'stage'",
        ),
        (
            CAPTION,
            {"policies": AUTOSCALING, "plan": one_shared_cell(EL=65)},
            "policies.autoscaling: the plan runs 65 replicas of 'stage': at most 64",
        ),
        (
            CAPTION,
            {"policies": AUTOSCALING | {"adaptation": {}}, "plan": one_shared_cell(EL=2)},
            "policies: adaptation changes the cells of a plan, and autoscaling the replicas of executors",
        ),
        (CAPTION, {"executor_replicas": {"lm": 2}}, "executor_replicas: the app has no executor 'lm'"),
    ],
)
async def test_a_wrong_plan_is_refused_by_name_and_stores_nothing(
    gateway: httpx.AsyncClient, store: Store, source: str, change: dict[str, Any], message: str
) -> None:
    response = await gateway.put(URL, json={"source": {"inline": source}, "plan": two_sizes(1, 1)} | change)

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert (await store.list(APPS)).records == []


async def test_a_deployment_without_a_plan_keeps_the_plan(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": two_sizes(1, 1)})

    kept = await gateway.put(URL, json={"source": {"inline": CAPTION + "\n"}})
    other = await gateway.put(URL, json={"source": {"inline": CAPTION.replace("llm=0.1", "llm=0.2")}})
    autoscaled = await gateway.put(URL, json={"source": {"inline": CAPTION}, "policies": AUTOSCALING})
    removed = await gateway.put(URL, json={"source": {"inline": CAPTION}, "replicas": 2})
    planned = await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": two_sizes(1, 0)})

    assert kept.json()["spec"]["plan"]["cells"][1]["count"] == 1
    assert other.json()["error"]["code"] == "invalid_plan"
    assert "policies.autoscaling: a plan is autoscaled if it" in autoscaled.json()["error"]["message"]
    assert (removed.json()["spec"]["plan"], removed.json()["spec"]["replicas"]) == (None, 2)
    assert planned.json()["spec"]["replicas"] == 1


async def test_a_smaller_plan_than_one_that_needed_too_much_restarts_nothing(
    gateway: httpx.AsyncClient, store: Store
) -> None:
    await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": two_sizes(1, 8)})
    record = await store.get(APPS, "caption")
    failed = AppStatus(phase=Phase.FAILED, generation=1, reason=FailureReason.INSUFFICIENT_CAPACITY)
    await store.update_status(APPS, "caption", failed, record.version)

    await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": two_sizes(1, 1)})

    changed = await store.get(APPS, "caption")
    assert (changed.generation, changed.spec.code) == (2, record.spec.code)


async def test_the_adaptation_of_an_app_without_a_plan_is_refused(gateway: httpx.AsyncClient, store: Store) -> None:
    policies: dict[str, Any] = {"policies": {"adaptation": {}}}
    refused = await gateway.put(URL, json={"source": {"inline": CAPTION}} | policies)
    await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": two_sizes(1, 1)})
    kept = await gateway.put(URL, json={"source": {"inline": CAPTION}} | policies)
    removed = await gateway.put(URL, json={"source": {"inline": CAPTION}, "replicas": 2} | policies)

    assert (refused.status_code, kept.status_code, removed.status_code) == (400, 200, 400)
    assert (
        refused.json()["error"]["message"]
        == removed.json()["error"]["message"]
        == f"policies.adaptation: {REQUIRED_PLAN.message}"
    )


async def test_an_app_that_the_controller_plans_gets_no_replicas(gateway: httpx.AsyncClient, store: Store) -> None:
    workload = {"text": {"components": ["llm"], "share": 1}}
    planning = {"gpus": 2, "workload": workload, "profile": {"version": 1}}
    await gateway.put(URL, json={"source": {"inline": CAPTION}, "planning": planning})
    before = (await store.get(APPS, "caption")).spec

    scaled = await gateway.put(f"{URL}/scale", json={"replicas": 2})
    single = await gateway.put(f"{URL}/scale", json={"executors": {"stage": 2}})
    autoscaled = await gateway.put(URL, json={"source": {"inline": CAPTION}, "policies": AUTOSCALING})

    assert (scaled.status_code, single.status_code, autoscaled.status_code) == (409, 409, 400)
    assert "executor_replicas: the plan that is made has the replicas" in single.json()["error"]["message"]
    assert "policies.autoscaling: the plan that is made may have" in autoscaled.json()["error"]["message"]
    assert (await store.get(APPS, "caption")).spec == before


@pytest.mark.parametrize(
    ("scale", "counts", "target"),
    [
        ({"rate": 21.0}, {1: 1, 2: 2}, 21.0),
        ({"rate": 0.5}, {1: 1}, 0.5),
        ({"gpus": 5}, {1: 1, 2: 2}, None),
        ({"gpus": 2}, {2: 1}, None),
    ],
)
async def test_scaling_a_plan_chooses_another_mixture_of_its_cells(
    gateway: httpx.AsyncClient, store: Store, scale: dict[str, float], counts: dict[int, int], target: float | None
) -> None:
    await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": two_sizes(1, 1)})
    before = (await store.get(APPS, "caption")).spec

    response = await gateway.put(f"{URL}/scale", json=scale)

    assert response.status_code == 200
    after = (await store.get(APPS, "caption")).spec
    assert before.plan is not None
    assert after.plan is not None
    assert (after.plan.counts, after.plan.target) == (counts, target)
    assert after == before.model_copy(update={"plan": before.plan.with_counts(counts, target)})
    assert after.code == before.code


async def test_a_stage_of_a_plan_is_scaled_until_the_cells_change(gateway: httpx.AsyncClient, store: Store) -> None:
    await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": two_sizes(1, 1)})
    before = (await store.get(APPS, "caption")).spec

    scaled = await gateway.put(f"{URL}/scale", json={"executors": {"stage": 5}})
    kept = await gateway.put(URL, json={"source": {"inline": CAPTION}})
    other = await gateway.put(f"{URL}/scale", json={"gpus": 2})

    specs = [AppSpec.model_validate(response.json()["spec"]) for response in (scaled, kept, other)]
    assert [spec.executor_replicas for spec in specs] == [{"stage": 5}, {"stage": 5}, {}]
    assert [spec.plan == before.plan for spec in specs] == [True, True, False]
    assert {spec.code for spec in specs} == {before.code}


async def test_an_autoscaled_plan_keeps_its_cell_and_begins_again_with_another_plan(
    gateway: httpx.AsyncClient, store: Store
) -> None:
    app = {"source": {"inline": CAPTION}, "policies": AUTOSCALING}
    deployed = await gateway.put(URL, json=app | {"plan": one_shared_cell(EL=2)})
    scaled = await gateway.put(f"{URL}/scale", json={"executors": {"stage": 3}})
    kept = await gateway.put(URL, json=app)
    refused = await gateway.put(f"{URL}/scale", json={"gpus": 100})
    other = await gateway.put(URL, json=app | {"plan": one_shared_cell(EL=4)})

    responses = (deployed, scaled, kept, other)
    assert [response.status_code for response in responses] == [200] * 4, [each.text for each in responses]
    specs = [AppSpec.model_validate(response.json()["spec"]) for response in responses]
    assert [spec.executor_replicas for spec in specs] == [{}, {"stage": 3}, {"stage": 3}, {}]
    assert [spec.held_until is not None for spec in specs] == [False, True, True, False]
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (409, "cannot_scale", "gpus")
    assert error["message"].startswith("policies.autoscaling: a plan is autoscaled if it runs one cell")


async def test_no_stage_of_an_app_that_adapts_is_scaled(gateway: httpx.AsyncClient, store: Store) -> None:
    planned = {"source": {"inline": CAPTION}, "plan": two_sizes(1, 1)}
    await gateway.put(URL, json=planned)
    await gateway.put(f"{URL}/scale", json={"executors": {"stage": 5}})

    adapting = await gateway.put(URL, json={"source": {"inline": CAPTION}, "policies": {"adaptation": {}}})
    scaled = await gateway.put(f"{URL}/scale", json={"executors": {"stage": 5}})
    both = await gateway.put(URL, json=planned | {"executor_replicas": {"stage": 5}, "policies": {"adaptation": {}}})

    assert AppSpec.model_validate(adapting.json()["spec"]).executor_replicas == {}
    assert (scaled.status_code, scaled.json()["error"]["code"], both.status_code) == (409, "cannot_scale", 400)
    assert "policies.adaptation changes the replicas of the executors" in scaled.json()["error"]["message"]
    assert (await store.get(APPS, "caption")).spec.executor_replicas == {}


@pytest.mark.parametrize(
    ("plan", "scale", "status", "message"),
    [
        (two_sizes(1, 0), {"replicas": 2}, 409, "'caption' has a plan: scale single executors"),
        (None, {"rate": 2.0}, 409, "'caption' has no plan: scale its replicas"),
        (plan_document(cell(3, {"E": 1, "L": 2}, count=1)), {"gpus": 2}, 409, "the smallest cell has 3 GPUs"),
        (two_sizes(1, 0), {"gpus": 1000}, 409, "would run 500 cells"),
        (two_sizes(1, 0), {"rate": 2.0, "gpus": 2}, 400, "rate and gpus is given: give one of"),
        (two_sizes(1, 0), {}, 400, "nothing is given"),
        (two_sizes(1, 0), {"rate": -1}, 400, "greater than 0"),
    ],
)
async def test_an_app_that_cannot_be_scaled_in_this_way_does_not_change(
    gateway: httpx.AsyncClient, plan: Any, scale: dict[str, float], status: int, message: str
) -> None:
    deployed = await gateway.put(URL, json={"source": {"inline": CAPTION}} | ({} if plan is None else {"plan": plan}))

    response = await gateway.put(f"{URL}/scale", json=scale)

    assert response.status_code == status
    assert message in response.json()["error"]["message"]
    assert (await gateway.get(URL)).json()["generation"] == deployed.json()["generation"]


async def test_the_answer_of_a_change_has_the_time_for_which_it_holds(gateway: httpx.AsyncClient) -> None:
    policies = {"adaptation": {"hold_seconds": 600}}
    await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": two_sizes(1, 1), "policies": policies})
    before = datetime.now(UTC)

    scaled = (await gateway.put(f"{URL}/scale", json={"gpus": 5})).json()
    longer = (await gateway.put(f"{URL}/scale", json={"rate": 10, "hold_seconds": 3600})).json()
    ended = (await gateway.put(f"{URL}/scale", json={"hold_seconds": 0})).json()

    for view, seconds in [(scaled, 600), (longer, 3600)]:
        held = datetime.fromisoformat(view["spec"]["held_until"]) - before
        assert seconds - 1 <= held.total_seconds() <= seconds + 60
    assert ended["spec"] == longer["spec"] | {"held_until": None}
    assert ended["generation"] == 4


@pytest.mark.parametrize(
    ("deployed", "is_held"), [({}, True), ({"plan": two_sizes(2, 0)}, False), ({"replicas": 2, "policies": {}}, False)]
)
async def test_a_deployment_with_another_size_ends_the_time_for_which_the_size_holds(
    gateway: httpx.AsyncClient, deployed: dict[str, Any], is_held: bool
) -> None:
    app = {"source": {"inline": CAPTION}, "policies": {"adaptation": {}}}
    await gateway.put(URL, json=app | {"plan": two_sizes(1, 1)})
    await gateway.put(f"{URL}/scale", json={"gpus": 5})

    stored = (await gateway.put(URL, json=app | deployed)).json()

    assert (stored["spec"]["held_until"] is not None) == is_held


async def test_the_size_of_an_app_that_does_not_follow_its_load_needs_no_time(gateway: httpx.AsyncClient) -> None:
    await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": two_sizes(1, 1)})

    scaled = await gateway.put(f"{URL}/scale", json={"gpus": 5})
    refused = await gateway.put(f"{URL}/scale", json={"hold_seconds": 60})

    assert scaled.json()["spec"]["held_until"] is None
    assert refused.status_code == 409
    assert refused.json()["error"]["param"] == "hold_seconds"
    assert "'caption' does not follow its load" in refused.json()["error"]["message"]


def text_plan(**replicas: int) -> dict[str, Any]:
    """Returns a plan for a workload of texts alone."""
    document = plan_document(cell(4, replicas, count=1))
    types = {"text": document["types"]["text"] | {"share": 1.0}}
    cells = [each | {"probabilities": {"text": each["probabilities"]["text"]}} for each in document["cells"]]
    return document | {"types": types, "default_type": "text", "cells": cells}


async def test_a_plan_without_a_path_for_a_request_type_of_the_app_is_refused_by_name(
    gateway: httpx.AsyncClient,
) -> None:
    refused = await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": text_plan(L=2)})

    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "plan"
    assert (
        "no path serves requests of the type 'encoder+llm', which the app takes" in refused.json()["error"]["message"]
    )


async def test_a_plan_whose_default_path_serves_all_request_types_of_the_app_is_deployed(
    gateway: httpx.AsyncClient,
) -> None:
    deployed = await gateway.put(URL, json={"source": {"inline": CAPTION}, "plan": text_plan(EL=2)})

    assert deployed.status_code == 200
