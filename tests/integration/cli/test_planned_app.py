"""An app with a plan, served by two gateways."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.app.plan import AppPlan
from cornserve.app.settings import AppPolicies
from cornserve.app.spec import AppSource, AppSpec
from cornserve.client import AsyncClient
from tests.integration.cli.cli_instance import CliInstance
from tests.unit.app.plans import cell, plan_document

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
