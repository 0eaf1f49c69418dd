"""Changes of the policies of a running app."""

from __future__ import annotations

import pytest

from cornserve.app.record import FailureReason, Phase
from cornserve.app.settings import AppPolicies
from cornserve.app.spec import AppSource, AppSpec
from cornserve.control.store.base import ROUTES
from tests.unit.control.running_controller import FakeLauncher, StoreClient, running_controller

SOURCE = """
from cornserve import App
from cornserve_echo import EchoTask

app = App(name="echo", paths=[EchoTask()])
"""


def echo(policy: str) -> AppSpec:
    return AppSpec(source=AppSource(inline=SOURCE), policies=AppPolicies(routing=policy))


async def test_a_change_of_policy_reaches_the_route_and_restarts_nothing(client: StoreClient) -> None:
    launcher = FakeLauncher()
    async with running_controller(client, launcher):
        await client.deploy("echo", echo("static"))
        await client.wait_until_served("echo")
        launcher.changes.clear()

        await client.redeploy("echo", echo("least-tokens"))
        route = await client.wait_until_served("echo", 2)

    assert route.spec.policies.routing == "least-tokens"
    assert launcher.changes == []


@pytest.mark.parametrize("is_first", [True, False])
async def test_an_unknown_policy_fails_by_name_and_keeps_what_serves(client: StoreClient, is_first: bool) -> None:
    """On Kubernetes, the API server does not know the names, so a resource with any name reaches the controller."""
    launcher = FakeLauncher()
    async with running_controller(client, launcher):
        if is_first:
            await client.deploy("echo", echo("best"))
        else:
            await client.deploy("echo", echo("static"))
            await client.wait_until_served("echo")
            launcher.changes.clear()
            await client.redeploy("echo", echo("best"))
        status = await client.wait_for_status("echo", lambda status: status.phase is Phase.FAILED)

    assert status.reason is FailureReason.IMPORT_FAILED
    assert "policies.routing: unknown routing policy 'best': use one of least-loaded" in status.message
    assert status.serving_generation == (None if is_first else 1)
    assert launcher.changes == []
    if not is_first:
        assert (await client.store.get(ROUTES, "echo")).spec.spec.policies.routing == "static"
