"""Roll-outs under continuous traffic: no request fails that a client's retries can save.

The full form (CHAOS_FULL=1) has more clients and more roll-outs.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.form import by_form
from tests.cluster.chaos.app_tools import PARITY, ByCommandLine, ByKubectl, desired_state, parity_requests
from tests.cluster.chaos.conftest import Traffic
from tests.cluster.chaos.echo_installation import EchoInstallation, pod_state
from tests.cluster.chaos.late_watch import GATEWAY_ENVIRONMENT, late_api_server
from tests.cluster.chaos.metrics_api import MetricsApi
from tests.cluster.node_images import second_tag
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300, func_only=True)]

FAILING = """
from cornserve import App
from cornserve_echo import EchoTask

app = App(name="echo", paths=[EchoTask(fail_start="no weights here")])
"""


async def test_new_versions_replace_old_ones(installation: EchoInstallation, under_traffic: Traffic) -> None:
    prefixes = ("b ", "c ", "a ") * by_form(short=1, full=5)
    async with under_traffic(f"{len(prefixes)} new versions", *prefixes):
        for prefix in prefixes:
            await asyncio.to_thread(installation.deploy, prefix)


@pytest.mark.slow
async def test_kubectl_and_the_command_line_lead_to_the_same_states(
    installation: EchoInstallation, under_traffic: Traffic
) -> None:
    states = []
    for tool in (ByCommandLine(installation), ByKubectl(installation)):
        await asyncio.to_thread(tool.deploy, "a ")
        installation.wait_for_replicas(PARITY, 2)
        try:
            async with under_traffic(f"deploy, scale, restart and roll back: {tool.name}", make=parity_requests):
                states.append([await asyncio.to_thread(desired_state, installation) async for _ in tool.changes()])
        finally:
            installation.kubectl("delete", "app", PARITY)
    assert states[0] == states[1]


async def test_a_version_that_fails_leaves_the_old_one_serving(
    installation: EchoInstallation, under_traffic: Traffic
) -> None:
    reason = '{.status.conditions[?(@.type=="Ready")].reason}'
    wait = ("wait", f"--for=jsonpath={reason}=ExecutorFailed", "app/echo", "--timeout=120s")
    async with under_traffic("a new version whose executor does not start, then the old one again"):
        await asyncio.to_thread(partial(installation.apply, "echo", source=FAILING, replicas=2))
        await asyncio.to_thread(installation.kubectl, *wait)
        assert "RuntimeError: no weights here" in installation.kubectl("describe", "app", "echo")
        await asyncio.to_thread(installation.deploy, "a ")


@pytest.mark.slow
async def test_the_old_executors_end_before_the_new_ones_start(
    installation: EchoInstallation, under_traffic: Traffic
) -> None:
    """The requests that arrive meanwhile wait."""
    rollout = {"type": "Recreate"}
    await asyncio.to_thread(partial(installation.deploy, "a ", rollout=rollout))
    async with under_traffic("2 new versions with `rollout.type: Recreate`", "b "):
        for prefix in ("b ", "a "):
            await asyncio.to_thread(partial(installation.deploy, prefix, rollout=rollout))


@pytest.mark.slow
async def test_the_release_is_upgraded_without_spare_executors_and_rolled_back(
    installation: EchoInstallation, under_traffic: Traffic
) -> None:
    """The upgrade replaces all pods: those of executors with `maxSurge: 0`."""
    values = installation.values
    executors = values["executors"]
    cpu = {**executors["cpu"], "maxSurge": 0, "maxUnavailable": 1}
    changed = {
        **values,
        "images": {**values["images"], "tag": second_tag(values["images"]["tag"])},
        "executors": {**executors, "cpu": cpu},
    }
    before = installation.images()
    async with under_traffic("`helm upgrade` to another image with `maxSurge: 0`, then `helm rollback`"):
        await asyncio.to_thread(installation.upgrade, changed)
        await until(lambda: asyncio.to_thread(has_only, installation, changed["images"]["tag"]), seconds=120)
        await asyncio.to_thread(installation.roll_back)
        await until(lambda: asyncio.to_thread(has_only, installation, values["images"]["tag"]), seconds=120)
    assert installation.images() == before


def has_only(installation: EchoInstallation, tag: str) -> bool:
    """Returns whether all pods have images with this tag and are ready."""
    return all(image.endswith(f":{tag}") for image in installation.images()) and installation.is_settled()


@pytest.mark.slow
async def test_gateways_hear_of_changes_five_seconds_late(
    installation: EchoInstallation, under_traffic: Traffic
) -> None:
    values = installation.values
    late = {**values, "gateway": {**values["gateway"], "env": GATEWAY_ENVIRONMENT}}
    with late_api_server(seconds=5):
        installation.upgrade(late)
        try:
            async with under_traffic("2 new versions, while gateways hear of changes 5 s late", "b "):
                for prefix in ("b ", "a "):
                    await asyncio.to_thread(installation.deploy, prefix)
        finally:
            installation.roll_back()


@pytest.mark.slow
async def test_an_autoscaler_scales_the_gateways(
    installation: EchoInstallation, under_traffic: Traffic, tmp_path: Path
) -> None:
    values = installation.values
    autoscaling = {"enabled": True, "minReplicas": 2, "maxReplicas": 4, "targetCpu": "500m"}
    metrics = MetricsApi(installation)
    async with metrics.serving(tmp_path):
        await asyncio.to_thread(
            installation.upgrade, {**values, "gateway": {**values["gateway"], "autoscaling": autoscaling}}
        )
        try:
            await wait_for_gateways(installation, 2)
            async with under_traffic("an autoscaler adds 2 gateways, and they are removed again"):
                metrics.cpu = "1"
                await wait_for_gateways(installation, 4)
                await asyncio.to_thread(installation.upgrade, values)
        finally:
            installation.upgrade(values)


async def wait_for_gateways(installation: EchoInstallation, count: int) -> None:
    """Waits for several rounds of the autoscaler, which decides every 15 s."""

    def are_ready() -> bool:
        return [pod_state(pod) for pod in installation.pods("gateway")] == ["Ready"] * count

    try:
        await until(lambda: asyncio.to_thread(are_ready), seconds=90)
    except TimeoutError as error:
        state = installation.kubectl("get", "pods,deployments", "--selector=app.kubernetes.io/component=gateway")
        autoscaler = installation.kubectl("describe", "horizontalpodautoscalers")
        raise AssertionError(f"not {count} ready gateways:\n{state}\n{autoscaler}") from error
