"""An app that follows its load, with real processes and two gateways."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cornserve.app.plan import AppPlan
from cornserve.app.record import AppView
from cornserve.app.settings import AdaptationSettings, AppPolicies
from cornserve.app.spec import AppSource, AppSpec
from cornserve.client import AsyncClient
from cornserve_echo.stages import StageTask
from tests.integration.cli.caption_traffic import Traffic
from tests.integration.cli.cli_instance import CliInstance
from tests.waiting import until

pytestmark = pytest.mark.slow

SECONDS = 0.002
"""The service time of each component: replicas are never busy, so that only planned rates matter."""

SOURCE = f"""
from cornserve_echo.stages import caption_app

app = caption_app("caption", encoder={SECONDS}, llm={SECONDS})
"""

CELL_RATE = 36.0
"""Requests per second of a cell."""

REQUESTS = ({"text": "a"}, {"text": "b", "images": 1})

ADAPTATION = AdaptationSettings(window_seconds=2, dwell_seconds=3, shrink_seconds=6)


def plan_of_cells(count: int) -> AppPlan:
    """Returns a plan of equal cells with the path `E, L`."""
    tasks = {name: StageTask(seconds={component: SECONDS}) for name, component in (("E", "encoder"), ("L", "llm"))}
    text = {"option": "L", "components": ["llm"]}
    images = {"option": "E", "components": ["encoder"]}
    return AppPlan.model_validate(
        {
            "options": {
                name: {"task": "StageTask", "settings": task.model_dump(mode="json", exclude_defaults=True), "gpus": 1}
                for name, task in tasks.items()
            },
            "types": {
                "text": {"components": ["llm"], "share": 0.5, "paths": [{"steps": [text]}]},
                "images": {"components": ["encoder", "llm"], "share": 0.5, "paths": [{"steps": [images, text]}]},
            },
            "default_type": "text",
            "cells": [
                {
                    "gpus": 2,
                    "count": count,
                    "rate": CELL_RATE,
                    "replicas": {"E": 1, "L": 1},
                    "loads": {},
                    "probabilities": {"text": [1.0], "images": [1.0]},
                }
            ],
            "planner": "test",
        }
    )


class AdaptingCaption:
    """The deployed app."""

    def __init__(self, instance: CliInstance, client: AsyncClient) -> None:
        self._instance = instance
        self._client = client

    async def view(self) -> AppView:
        return await self._client.app("caption")

    async def runs(self, cells: int) -> bool:
        """Returns whether exactly this number of cells runs."""
        view = await self.view()
        assert view.spec.plan is not None
        return view.spec.plan.counts == {2: cells} and view.is_scaled

    async def pids(self) -> dict[str, int]:
        """Returns the process of each replica, by its id."""
        replicas = [replica.id for group in (await self.view()).status.groups for replica in group.replicas]
        processes = [
            (process.pid, " ".join(process.cmdline()))
            for process in self._instance.processes("cornserve_executors.base")
        ]
        return {id: pid for id in replicas for pid, command in processes if f"/{id}/" in command}


@pytest.fixture
async def caption(instance: CliInstance) -> AsyncIterator[AdaptingCaption]:
    instance.up("--gateways", "2", cpu_slots=6)
    async with AsyncClient(instance.url) as client:
        policies = AppPolicies(adaptation=ADAPTATION)
        await client.deploy(AppSpec(source=AppSource(inline=SOURCE), plan=plan_of_cells(1), policies=policies))
        yield AdaptingCaption(instance, client)


async def test_cells_follow_a_load_that_doubles_and_halves(instance: CliInstance, caption: AdaptingCaption) -> None:
    traffic = Traffic(30, REQUESTS)
    async with traffic.running(instance.url):
        await traffic.wait(200)
        assert (await caption.view()).generation == 1
        before = await caption.pids()
        assert len(before) == 2

        traffic.rate = 60
        await until(lambda: caption.runs(2))
        doubled = await caption.pids()
        assert len(doubled) == 4
        assert before.items() <= doubled.items()

        traffic.rate = 30
        await until(lambda: caption.runs(1))
        assert await caption.pids() == before
        await traffic.wait(30)

    assert traffic.responses.keys() == {"ok"}
