"""Roll-outs under continuous traffic: no request fails that a client's retry can save.

The full form (CHAOS_FULL=1) has more roll-outs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.form import by_form
from tests.cluster.conftest import KubernetesCluster
from tests.cluster.echo_installation import EchoInstallation, chart_values
from tests.waiting import until

REQUESTS = 50
"""Requests before and after a fault."""

FAILING = """
from cornserve import App
from cornserve_echo import EchoTask

app = App(name="echo", paths=[EchoTask(fail_start="no weights here")])
"""


@pytest.fixture
def installation(cluster: KubernetesCluster, cluster_namespace: str, tmp_path: Path) -> EchoInstallation:
    if not cluster.is_local:
        pytest.skip("needs the nodes of `make cluster`")
    installation = EchoInstallation(cluster, cluster_namespace, tmp_path)
    installation.install(json.dumps(chart_values()))
    installation.deploy("a ")
    return installation


@asynccontextmanager
async def traffic(installation: EchoInstallation, *prefixes: str) -> AsyncIterator[Callable[..., Any]]:
    """Sends requests during the block, and checks that none has failed. Yields a function that runs in a thread."""
    clients = installation.clients(*prefixes)
    async with clients.running():
        await clients.wait_for_requests(REQUESTS)
        yield asyncio.to_thread
        await clients.wait_for_requests(REQUESTS)
    assert clients.summary().failures == ()


@pytest.mark.timeout(600)
async def test_new_versions_replace_old_ones(installation: EchoInstallation) -> None:
    objects = installation.executor_objects()
    prefixes = ("b ", "c ", "a ") * by_form(short=1, full=5)
    async with traffic(installation, *{"a ", *prefixes}) as run:
        for prefix in prefixes:
            await run(partial(installation.deploy, prefix))
    await until(lambda: installation.executor_objects() == objects)


@pytest.mark.timeout(600)
async def test_a_version_that_fails_leaves_the_old_one_serving(installation: EchoInstallation) -> None:
    reason = '{.status.conditions[?(@.type=="Ready")].reason}'
    objects = installation.executor_objects()
    async with traffic(installation, "a ") as run:
        await run(partial(installation.apply, "echo", source=FAILING, replicas=2))
        await run(installation.kubectl, "wait", f"--for=jsonpath={reason}=ExecutorFailed", "app/echo", "--timeout=120s")
        assert "RuntimeError: no weights here" in installation.kubectl("describe", "app", "echo")
        await run(partial(installation.deploy, "a "))
    await until(lambda: installation.executor_objects() == objects)
