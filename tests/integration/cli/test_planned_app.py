"""An app with a plan, served by two gateways."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.app.plan import AppPlan
from cornserve.app.settings import AppPolicies, AutoscaledExecutor, AutoscalingSettings
from cornserve.app.spec import AppSource, AppSpec
from cornserve.client import AsyncClient
from tests.integration.cli.cli_instance import CliInstance
from tests.integration.cli.describing_app import describing_app
from tests.unit.app.plans import cell, plan_document
from tests.waiting import until

pytestmark = pytest.mark.slow

SECONDS = 0.002
SOURCE = f"""
from cornserve_echo.stages import caption_app

app = caption_app("caption", encoder={SECONDS}, llm={SECONDS})
"""
OPTIONS = {"EL": ["encoder", "llm"], "E": ["encoder"], "L": ["llm"]}
REQUESTS = 200


def planned(routing: str) -> AppSpec:
    probabilities = {"text": [0.5, 0.5], "images": [0.25, 0.75]}
    document: dict[str, Any] = plan_document(
        cell(2, {"EL": 1}, count=1, rate=10.0),
        cell(3, {"EL": 1, "E": 1, "L": 1}, count=1, rate=30.0, probabilities=probabilities),
    )
    for option, components in OPTIONS.items():
        document["options"][option]["settings"] = {"seconds": dict.fromkeys(components, SECONDS)}
    plan = AppPlan.model_validate(document)
    return AppSpec(
        source=AppSource(inline=SOURCE), plan=plan, policies=AppPolicies(routing=routing, log_decisions=True)
    )


async def send(url: str, number: int) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60, verify=False) as client:  # may reach either gateway
        response = await client.post("/v1/apps/caption/invoke", json={"text": "a", "images": int(number % 2 == 0)})
        assert response.status_code == 200, response.text


def decisions(instance: CliInstance) -> list[dict[str, Any]]:
    logs = (instance.home.path / "logs").glob("gateway*.log")
    lines = [line for log in logs for line in log.read_text().splitlines() if "cornserve.decisions" in line]
    return [json.loads(line) for line in lines]


async def test_two_gateways_route_by_the_plan_and_a_change_of_policy_restarts_nothing(instance: CliInstance) -> None:
    instance.up("--gateways", "2", "--log-format", "json", cpu_slots=6)
    async with AsyncClient(instance.url) as client:
        view = await client.deploy(planned("static"), name="caption")
        replicas = {replica.id for group in view.status.groups for replica in group.replicas}
        for first in range(0, REQUESTS, 20):
            await asyncio.gather(*(send(instance.url, first + number) for number in range(20)))

        changed = await client.deploy(planned("least-tokens"), name="caption")
        assert {replica.id for group in changed.status.groups for replica in group.replicas} == replicas

    logged = decisions(instance)
    paths = [line for line in logged if line["event"] == "path"]
    assert len(paths) == REQUESTS
    assert Counter(line["type"] for line in paths) == {"text": REQUESTS / 2, "images": REQUESTS / 2}
    counts = Counter((line["type"], line["cell"], line["path"]) for line in paths)
    shares = {("text", "2-0", 0): 0.25, ("text", "3-0", 0): 0.375, ("text", "3-0", 1): 0.375}
    shares |= {("images", "2-0", 0): 0.25, ("images", "3-0", 0): 0.1875, ("images", "3-0", 1): 0.5625}
    assert counts.keys() == shares.keys()
    for way, share in shares.items():
        assert abs(counts[way] - share * REQUESTS / 2) < 25  # more than five standard deviations
    sent = Counter(line["replica"] for line in logged if line["event"] == "replica")
    assert sum(sent.values()) == REQUESTS + counts["images", "3-0", 1]
    assert len(sent) == 4

    refused = await asyncio.to_thread(instance.run, "deploy", "missing/model", "--routing", "best")
    assert "unknown routing policy 'best': use one of least-loaded, least-tokens, power-of-two" in refused.stderr


def staged(echo: int = 1) -> AppSpec:
    """Returns an app whose plan has an encoder and a number of replicas of `echo`."""

    def kind(*options: str) -> dict[str, Any]:
        steps = [{"option": option, "components": [option]} for option in options]
        return {"components": [*options], "share": 0.5, "paths": [{"steps": steps}]}

    replicas = {"encoder": 1, "echo": echo}
    plan = {
        "options": {
            "encoder": {"task": "StageTask", "settings": {"seconds": {"encoder": 0.001}}, "gpus": 1},
            "echo": {"task": "EchoTask", "settings": {}, "gpus": 1},
        },
        "types": {"text": kind("echo"), "images": kind("encoder", "echo")},
        "default_type": "images",
        "cells": [
            {
                "gpus": 1 + echo,
                "count": 1,
                "rate": 10.0,
                "is_shared": True,
                "replicas": replicas,
                "loads": dict.fromkeys(replicas, 0.5),
                "probabilities": {"text": [1.0], "images": [1.0]},
            }
        ],
        "planner": "1.0",
    }
    return AppSpec.model_validate({"source": {"inline": describing_app(gpus=1)}, "plan": plan})


async def test_a_stage_of_a_plan_scales_and_restarts_alone(instance: CliInstance) -> None:
    instance.up(cpu_slots=8)
    statuses, is_done = set[int](), False

    async def send() -> None:
        async with httpx.AsyncClient(base_url=instance.url, timeout=60) as http:
            while not is_done:
                statuses.add((await http.post("/v1/apps/describe/invoke", json={"images": 2})).status_code)

    async with AsyncClient(instance.url) as client:

        async def replicas() -> dict[str, set[str]]:
            """Returns the ids of the replicas of each executor."""
            groups = (await client.app("describe")).status.groups
            return {group.executor: {replica.id for replica in group.replicas} for group in groups}

        await client.deploy(staged(), name="describe")
        before = await replicas()
        sending = asyncio.create_task(send())
        await asyncio.to_thread(instance.do, "scale", "describe", "--executor", "stage=2")
        scaled = await replicas()
        await asyncio.to_thread(instance.do, "restart", "describe", "--executor", "stage")
        await until(lambda: _has_replicas(client, echo=1, stage=2))
        restarted = await replicas()
        is_done = True
        await sending

    assert scaled["echo"] == restarted["echo"] == before["echo"]
    assert before["stage"] < scaled["stage"]
    assert restarted["stage"].isdisjoint(scaled["stage"])
    assert statuses == {200}


async def _has_replicas(client: AsyncClient, **expected: int) -> bool:
    groups = (await client.app("describe")).status.groups
    return sorted((each.executor, len(each.replicas)) for each in groups) == sorted(expected.items())


AUTOSCALING = AutoscalingSettings(
    executors=[AutoscaledExecutor(name=name, capacity=40, unit="requests") for name in ("stage", "echo")],
    window_seconds=1,
    shrink_seconds=4,
    dwell_seconds=1,
)


async def test_a_stage_of_a_plan_gets_the_slots_that_another_one_does_not_need(instance: CliInstance) -> None:
    instance.up("--gateways", "2", cpu_slots=3)
    spec = staged(echo=2).changed(policies=AppPolicies(autoscaling=AUTOSCALING))
    images, statuses, wanted = 4, set[int](), set[int]()

    async with AsyncClient(instance.url) as client, httpx.AsyncClient(base_url=instance.url, timeout=60) as http:

        async def send() -> None:
            async with asyncio.TaskGroup() as requests:
                while images >= 0:
                    requests.create_task(request())
                    await asyncio.sleep(1 / 20)

        async def request() -> None:
            statuses.add((await http.post("/v1/apps/describe/invoke", json={"images": images})).status_code)

        async def runs(**expected: int) -> bool:
            view = await client.app("describe")
            wanted.add(sum(group.wanted for group in view.status.groups))
            return view.is_scaled and {group.executor: group.ready for group in view.status.groups} == expected

        await client.deploy(spec, name="describe")
        sending = asyncio.create_task(send())
        await until(lambda: runs(stage=2, echo=1))
        shown = await asyncio.to_thread(instance.do, "status", "describe")
        images = 0
        await until(lambda: runs(stage=1, echo=1))
        images = -1
        await sending

    assert "of 80 requests/s (2 × 40)" in shown
    assert max(wanted) == 3
    assert statuses == {200}
