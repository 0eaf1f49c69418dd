"""An app without a plan whose executors follow their loads, with real processes and two gateways."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2 as httpx
import pytest

from cornserve.client import AsyncClient
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.cli.describing_app import describing_app
from tests.waiting import until

pytestmark = pytest.mark.slow

AUTOSCALING = ["stage=40requests:1-3", "echo=40requests", "window_seconds=1", "shrink_seconds=4", "dwell_seconds=1"]

REQUESTS_PER_SECOND = 20


async def test_only_the_executor_with_more_load_is_scaled(instance: CliInstance, tmp_path: Path) -> None:
    instance.up("--gateways", "2")
    source = tmp_path / "describe.py"
    source.write_text(describing_app())
    options = [option for setting in AUTOSCALING for option in ("--autoscale", setting)]
    instance.do("deploy", str(source), *options)
    images, statuses = 0, set[int]()

    async with AsyncClient(instance.url) as client, httpx.AsyncClient(base_url=instance.url, timeout=60) as http:

        async def send() -> None:
            async with asyncio.TaskGroup() as requests:
                while images >= 0:
                    requests.create_task(request())
                    await asyncio.sleep(1 / REQUESTS_PER_SECOND)

        async def request() -> None:
            statuses.add((await http.post("/v1/apps/describe/invoke", json={"images": images})).status_code)

        async def runs(stage: int) -> bool:
            """Returns whether this number of replicas of `stage`, and one of `echo`, run."""
            view = await client.app("describe")
            ready = {group.executor: group.ready for group in view.status.groups}
            return ready == {"stage": stage, "echo": 1} and view.is_scaled

        images = 4
        sending = asyncio.create_task(send())
        await until(lambda: runs(2))
        shown = instance.do("status", "describe")
        images = 0
        await until(lambda: runs(1))
        images = -1
        await sending

    assert "of 80 requests/s (2 × 40)" in shown
    assert statuses == {200}


TARGETS = [
    "stage=1000requests:1-4",
    "echo=1000requests:1-4",
    "window_seconds=3",
    "shrink_seconds=60",
    "dwell_seconds=1",
]


async def test_a_missed_target_starts_replicas_of_the_stage_that_causes_it(
    instance: CliInstance, tmp_path: Path
) -> None:
    """The capacities are set too high: only the latency shows a burst that one encoder cannot serve."""
    instance.up("--gateways", "2")
    source = tmp_path / "late.py"
    source.write_text(describing_app("late", seconds=0.04))
    options = [option for setting in TARGETS for option in ("--autoscale", setting)]
    instance.do("deploy", str(source), "--e2e", "0.5", *options)
    images, statuses = 1, set[int]()

    async with AsyncClient(instance.url) as client, httpx.AsyncClient(base_url=instance.url, timeout=120) as http:

        async def send() -> None:
            async with asyncio.TaskGroup() as requests:
                while images >= 0:
                    requests.create_task(request())
                    await asyncio.sleep(1 / 15)

        async def request() -> None:
            statuses.add((await http.post("/v1/apps/late/invoke", json={"images": images})).status_code)

        async def has_more() -> bool:
            view = await client.app("late")
            ready = {group.executor: group.ready for group in view.status.groups}
            assert ready["echo"] == 1
            return ready["stage"] > 1

        sending = asyncio.create_task(send())
        images = 3
        await until(has_more)
        images = -1
        await sending

    assert statuses == {200}
