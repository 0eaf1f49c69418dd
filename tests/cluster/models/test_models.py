"""Models that vLLM serves in pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import httpx2 as httpx
import pytest
from openai import OpenAI

from cornserve.client import Client
from scripts.cluster.machines import existing_nodes
from tests.cluster.installation import Installation, on_node, pod_of, pods_of, received_bytes
from tests.integration.serving.image_chats import CHATS, TOKENS

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

START_SECONDS = 400
"""Limit for the start of engines, which share the cores of this machine."""

OPTIONS = {"options": {"max_model_len": 2048}}

STREAMS = 8
"""The streams of an app with two replicas, of which one is deleted."""

TEXT_TOKENS = 600
"""The length of each stream. Generating it takes longer than deleting the pod."""


def test_the_openai_client_chats_with_a_model(installed: Installation, gateway_url: str, smollm2: str) -> None:
    storage = {"persistentVolumeClaim": {"claimName": smollm2}}
    model = {"id": "HuggingFaceTB/SmolLM2-135M-Instruct", "storage": storage}
    installed.apply_app("smollm2", {"model": model, "executors": [{"name": "llm", **OPTIONS}]})
    installed.wait_until_ready("smollm2", seconds=START_SECONDS)

    with OpenAI(base_url=f"{gateway_url}/v1", api_key=installed.api_key, max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
        completion = client.chat.completions.create(model="smollm2", messages=messages, temperature=0, max_tokens=32)
        stream = client.chat.completions.create(
            model="smollm2", messages=messages, temperature=0, max_tokens=32, stream=True
        )
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

    assert "Paris" in (completion.choices[0].message.content or "")
    assert streamed == completion.choices[0].message.content
    installed.kubectl("delete", "app", "smollm2")


def test_streams_of_a_deleted_pod_continue_in_another_one(
    installed: Installation, gateway_url: str, smollm2: str
) -> None:
    storage = {"persistentVolumeClaim": {"claimName": smollm2}}
    model = {"id": "HuggingFaceTB/SmolLM2-135M-Instruct", "storage": storage}
    installed.apply_app("moved", {"model": model, "replicas": 2, "executors": [{"name": "llm", **OPTIONS}]})
    installed.wait_for("moved", "condition=ReplicasReady", seconds=START_SECONDS)

    with (
        OpenAI(base_url=f"{gateway_url}/v1", api_key=installed.api_key, max_retries=0) as client,
        ThreadPoolExecutor(STREAMS) as threads,
    ):

        def text(number: int, begun: Event) -> str:
            stream = client.completions.create(
                model="moved",
                prompt=f"{number}. Corn is",
                max_tokens=TEXT_TOKENS,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            parts = []
            for chunk in stream:
                parts.append(chunk.choices[0].text)
                begun.set()
            return "".join(parts)

        expected = [*threads.map(text, range(STREAMS), [Event() for _ in range(STREAMS)])]
        begun = [Event() for _ in range(STREAMS)]
        streams = threads.map(text, range(STREAMS), begun)
        assert all(event.wait(timeout=120) for event in begun)
        (pod, _) = pods_of(installed, "moved", "llm")
        installed.kubectl("delete", "pod", pod["metadata"]["name"])

        assert [*streams] == expected

    token = installed.secret("cornserve-access", "admin-token")
    with Client(gateway_url, installed.api_key, token) as admin:
        assert admin.app("moved").moved_streams > 0
    installed.kubectl("delete", "app", "moved")


@pytest.fixture(scope="module")
def apps(installed: Installation, tiny_qwen25vl: str) -> Iterator[Mapping[str, str]]:
    """An app with the encoder in the language model, one with both on a node, and one with them on two nodes."""
    first, last = existing_nodes()[0].name, existing_nodes()[-1].name
    apps = {"monolith": "vl-monolith", "same_node": "vl-near", "pulled": "vl-far"}
    encoder_nodes = {"vl-monolith": first, "vl-near": first, "vl-far": last}
    for app, encoder_node in encoder_nodes.items():
        shares = {"monolith" if app == "vl-monolith" else "e-l": 1}
        storage = {"persistentVolumeClaim": {"claimName": tiny_qwen25vl}}
        executors: list[dict[str, Any]] = [{"name": "*", **OPTIONS}, on_node("llm", first)]
        if "e-l" in shares:
            executors.append(on_node("encoder", encoder_node))
        model = {"id": "Qwen/Qwen2.5-VL-Tiny", "storage": storage, "shares": shares}
        installed.apply_app(app, {"model": model, "executors": executors})
    for app in apps.values():
        installed.wait_until_ready(app, seconds=START_SECONDS)
    yield apps
    installed.kubectl("delete", "apps", *apps.values())


def tokens(installed: Installation, url: str, app: str, chat: str) -> list[int]:
    body = {"messages": [{"role": "user", "content": CHATS[chat]}], "temperature": 0, "max_tokens": TOKENS}
    headers = {"Authorization": f"Bearer {installed.api_key}"}
    response = httpx.post(f"{url}/v1/apps/{app}/invoke", json=body, headers=headers, timeout=120)
    assert response.status_code == 200, response.text
    received: list[int] = response.json()["token_ids"]
    return received


@pytest.mark.parametrize("kind", ["same_node", "pulled"])
def test_embeddings_pass_between_pods_with_the_tokens_of_a_monolith(
    installed: Installation, gateway_url: str, apps: Mapping[str, str], kind: str
) -> None:
    reader = pod_of(installed, apps[kind], "llm")["metadata"]["name"]
    before = received_bytes(installed, reader)

    for chat in ("one image", "several images of different sizes"):
        split = tokens(installed, gateway_url, apps[kind], chat)
        assert len(split) == TOKENS
        assert split == tokens(installed, gateway_url, apps["monolith"], chat)

    after = received_bytes(installed, reader)
    assert {name for name, nbytes in after.items() if nbytes > before.get(name, 0)} == {kind}
