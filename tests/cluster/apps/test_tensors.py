"""Tensors between pods of one node and of two, and pods without the secret."""

from __future__ import annotations

import json
import secrets
import uuid

import httpx2 as httpx
import pytest

from scripts.cluster.machines import existing_nodes
from tests.cluster.apps.sources import notes
from tests.cluster.conftest import KubernetesCluster
from tests.cluster.installation import Installation, on_node, pod_of, received_bytes
from tests.cluster.test_cluster import output, pod

NBYTES = 1 << 20


async def copy_note(installed: Installation, url: str, app: str) -> str:
    """Returns the response of a gateway."""
    headers = {"Authorization": f"Bearer {installed.api_key}"}
    body = {"text": "a b c", "nbytes": NBYTES}
    async with httpx.AsyncClient() as client:
        response = await client.post(f"{url}/v1/apps/{app}/invoke", json=body, headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    text: str = response.json()["text"]
    return text


@pytest.mark.parametrize(("reader_node", "kind"), [(0, "same_node"), (-1, "pulled")])
async def test_a_tensor_passes_from_pod_to_pod(
    local_cluster: KubernetesCluster, installed: Installation, gateway_url: str, reader_node: int, kind: str
) -> None:
    name, nodes = f"notes-{uuid.uuid4().hex[:6]}", [node.name for node in existing_nodes()]
    executors = [on_node("echo-writer", nodes[0]), on_node("echo-reader", nodes[reader_node])]
    installed.apply_app(name, {"source": {"inline": notes(name)}, "executors": executors})
    installed.wait_until_ready(name)

    assert await copy_note(installed, gateway_url, name) == "a b c"

    reader = pod_of(installed, name, "echo-reader")
    assert reader["spec"]["nodeName"] == nodes[reader_node]
    transfers = received_bytes(installed, reader["metadata"]["name"])
    assert {transfer for transfer, nbytes in transfers.items() if nbytes} == {kind}
    assert transfers[kind] == NBYTES
    installed.kubectl("delete", "app", name)


KNOCK = """
import asyncio, json, sys
from cornserve.instance_secret import InstanceSecret
from cornserve.transport.protocol import CONSUMER_CODEC
from cornserve.transport.pull.tcp import PREAMBLE
from cornserve.wire import handshake
from cornserve.wire.credentials import ConnectionCredentials
from cornserve.wire.invocations import CALLER

async def knock(preamble, secret):
    credentials = ConnectionCredentials(InstanceSecret(bytes.fromhex(secret)))
    try:
        async with asyncio.timeout(20):
            await handshake.open_connection(sys.argv[1], preamble, asyncio.Protocol(), credentials)
    except (handshake.HandshakeError, OSError) as error:
        return type(error).__name__
    return "connected"

async def main():
    preambles = (CALLER.preamble, CONSUMER_CODEC.preamble, PREAMBLE)
    print(json.dumps([[await knock(preamble, secret) for preamble in preambles] for secret in sys.argv[2:]]))

asyncio.run(main())
"""
"""Prints for each secret whether an executor accepts invocations, subscriptions to tensors, and pulls of tensors."""


def test_a_pod_without_the_secret_can_neither_invoke_nor_read(installed: Installation, echo_tag: str) -> None:
    name = f"notes-{uuid.uuid4().hex[:6]}"
    installed.apply_app(name, {"source": {"inline": notes(name)}})
    installed.wait_until_ready(name)
    address = pod_of(installed, name, "echo-writer")["status"]["podIP"]
    stranger = pod(f"stranger-{name}", f"localhost/cornserve-echo:{echo_tag}", "")
    right, wrong = installed.secret("cornserve-instance", "secret"), secrets.token_hex(32)
    stranger["spec"]["containers"][0]["command"] = ["python", "-c", KNOCK, f"{address}:9000", wrong, right]

    installed.cluster.apply(installed.namespace, stranger)

    refused, accepted = json.loads(output(installed.cluster, installed.namespace, f"stranger-{name}"))
    assert accepted == ["connected"] * 3
    assert "connected" not in refused
    installed.kubectl("delete", "app", name)
