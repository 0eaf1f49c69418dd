"""Requests to a model whose stages have set service times."""

from __future__ import annotations

import httpx2 as httpx
import pytest

from cornserve.app.graph import AppGraph
from cornserve.app.spec import AppModel, AppSpec
from cornserve.control.store.base import APPS, Store
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import ECHO

CAPTIONS = """
from cornserve_echo.stages import caption_app

app = caption_app(name="captions", encoder=0.001, llm=0.002, shares={shares})
"""


@pytest.mark.parametrize(("shares", "seconds"), [([1, 0, 0], 0.004), ([0, 1, 0], 0.002), ([0, 0, 1], 0.002)])
async def test_all_paths_answer(
    deploy: Deploy, gateway: httpx.AsyncClient, shares: list[float], seconds: float
) -> None:
    await deploy(CAPTIONS.format(shares=shares))

    reply = await gateway.post("/v1/apps/captions/invoke", json={"text": "two", "images": 2})

    assert reply.status_code == 200, reply.text
    assert reply.json() == {"result": None, "text": "two", "seconds": pytest.approx(seconds)}


async def test_the_executor_graph_of_an_app_is_returned(deploy: Deploy, gateway: httpx.AsyncClient) -> None:
    await deploy(CAPTIONS.format(shares=[1, 0, 0]))

    reply = await gateway.get("/admin/v1/apps/captions/graph")

    assert reply.status_code == 200, reply.text
    graph = AppGraph.model_validate(reply.json())
    assert graph.types.keys() == {"llm", "encoder+llm"}
    assert graph.options.keys() == {"encoder", "llm", "encoder+llm"}


async def test_a_model_has_all_paths_of_its_family(store: Store, gateway: httpx.AsyncClient) -> None:
    await store.create(APPS, "vision", AppSpec(model=AppModel(id="Qwen/Qwen2.5-VL-3B-Instruct")))

    graph = AppGraph.model_validate((await gateway.get("/admin/v1/apps/vision/graph")).json())

    assert len(graph.paths) == 3


async def test_apps_without_an_executor_graph_are_refused(deploy: Deploy, gateway: httpx.AsyncClient) -> None:
    await deploy(ECHO)

    reply = await gateway.get("/admin/v1/apps/echo/graph")

    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "app_without_graph")
    assert (await gateway.get("/admin/v1/apps/unknown/graph")).status_code == 404
