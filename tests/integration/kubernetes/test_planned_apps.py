"""Apps that are applied with the inputs of a plan, and the controller that makes it."""

from __future__ import annotations

import asyncio
import json

from cornserve.app.record import FailureReason, Phase
from cornserve.control.planning.job import PlanningJob, PlanningResult
from cornserve.control.store.base import APPS, AppRecord
from cornserve.control.store.kubernetes import KubernetesStore
from cornserve.control.store.kubernetes_records import record_codecs
from cornserve.kubernetes.client import KubeClient
from tests.kubernetes.api_server import ApiServer
from tests.unit.app.plans import cell, plan
from tests.unit.control.running_controller import FakeLauncher, StoreClient, running_controller
from tests.waiting import until

SOURCE = """
from cornserve_echo.stages import caption_app

app = caption_app("caption", encoder=0.1, llm=0.1)
"""


async def make_plan(job: PlanningJob) -> PlanningResult:
    """Returns a plan of one cell, or refuses a budget of more than 8 GPUs."""
    gpus = job.inputs.gpus or 1
    if gpus > 8:
        return PlanningResult(error="the budget is too large")
    return PlanningResult(plan=plan(cell(gpus, {"EL": gpus}, count=1)))


def manifest(gpus: int) -> str:
    planning = {
        "gpus": gpus,
        "workload": {"images": {"components": ["encoder", "llm"], "share": 1, "sizes": {"images": 1}}},
        "profile": {"format": "cornserve-planner/profile", "version": 1, "rate": 2.5},
    }
    spec = {"source": {"inline": SOURCE}, "planning": planning}
    return json.dumps(
        {"apiVersion": "cornserve.ai/v1alpha1", "kind": "App", "metadata": {"name": "caption"}, "spec": spec}
    )


async def test_the_controller_sets_the_plan_of_an_applied_app(
    api_server: ApiServer, kube_namespace: str, kube_client: KubeClient
) -> None:
    store = KubernetesStore(kube_client, record_codecs())
    command = ["apply", "--server-side", "-f", "-", "-n", kube_namespace]

    async def apply(gpus: int) -> None:
        await asyncio.to_thread(api_server.kubectl, *command, stdin=manifest(gpus))

    async def app(phase: Phase, generation: int) -> AppRecord:
        async def is_reached() -> bool:
            status = (await store.get(APPS, "caption")).status
            return (status.phase, status.generation) == (phase, generation)

        await until(is_reached)
        return await store.get(APPS, "caption")

    async with running_controller(StoreClient(store), FakeLauncher(), planner=make_plan):
        await apply(3)
        first = await app(Phase.SERVING, 2)
        assert first.spec.plan is not None
        assert first.spec.plan.counts == {3: 1}

        await apply(3)
        assert (await store.get(APPS, "caption")).spec == first.spec

        await apply(2)
        changed = await app(Phase.SERVING, 4)
        assert changed.spec.plan is not None
        assert changed.spec.plan.counts == {2: 1}

        await apply(9)
        failed = await app(Phase.FAILED, 5)
        assert (failed.status.reason, failed.status.message) == (
            FailureReason.PLANNING_FAILED,
            "the budget is too large",
        )
        [planned] = [
            condition
            for condition in (await kube_client.get(record_codecs()[APPS.name].type, "caption"))["status"]["conditions"]
            if condition["type"] == "Planned"
        ]
        assert (planned["status"], planned["reason"]) == ("False", "PlanningFailed")
