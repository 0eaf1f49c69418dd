"""Models that vLLM serves in pods."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import httpx2 as httpx
import pytest
from openai import OpenAI

from cornserve.client import Client
from scripts.cluster.machines import existing_nodes
from tests.cluster.installation import Installation, executor_metrics, on_node, pod_of, pods_of, received_bytes
from tests.integration.serving.greedy_streams import NUMBERS, running_streams
from tests.integration.serving.image_chats import CHATS, TOKENS

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

START_SECONDS = 400
"""Limit for the start of engines, which share the cores of this machine."""

OPTIONS = {"options": {"max_model_len": 2048}}

STREAMS = 32
"""The streams of each of two replicas, of which one is deleted."""

COMPARED = 100
"""The tokens of each stream that are compared. Generating them takes longer than deleting the pod."""

MAX_TOKENS = 300
"""The length of a stream. More than 200 tokens follow when the pod is deleted."""


@pytest.mark.parametrize("path", ["chat", "p-d"])
def test_the_openai_client_chats_with_a_model(
    installed: Installation, gateway_url: str, smollm2: str, path: str
) -> None:
    app = f"smollm2-{path}"
    storage = {"persistentVolumeClaim": {"claimName": smollm2}}
    model = {"id": "HuggingFaceTB/SmolLM2-135M-Instruct", "storage": storage, "shares": {path: 1}}
    executors: list[dict[str, Any]] = [{"name": "*", **OPTIONS}]
    if path == "p-d":
        executors += [on_node("prefill", existing_nodes()[0].name), on_node("decode", existing_nodes()[-1].name)]
    installed.apply_app(app, {"model": model, "executors": executors})
    installed.wait_until_ready(app, seconds=START_SECONDS)

    with OpenAI(base_url=f"{gateway_url}/v1", api_key=installed.api_key, max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
        completion = client.chat.completions.create(model=app, messages=messages, temperature=0, max_tokens=32)
        stream = client.chat.completions.create(model=app, messages=messages, temperature=0, max_tokens=32, stream=True)
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

    assert "Paris" in (completion.choices[0].message.content or "")
    assert streamed == completion.choices[0].message.content
    if path == "p-d":  # The KV cache passes between two nodes.
        decode = pod_of(installed, app, "decode")["metadata"]["name"]
        assert received_bytes(installed, decode)["pulled"] > 0
    installed.kubectl("delete", "app", app)


async def test_streams_of_a_deleted_pod_continue_in_another_one(
    installed: Installation, gateway_url: str, smollm2: str
) -> None:
    storage = {"persistentVolumeClaim": {"claimName": smollm2}}
    model = {"id": "HuggingFaceTB/SmolLM2-135M-Instruct", "storage": storage}
    executors = [{"name": "llm", "options": {"max_model_len": 1024, "kv_cache_memory_bytes": 1280 << 20}}]
    installed.apply_app("moved", {"model": model, "replicas": 2, "executors": executors})
    installed.wait_for("moved", "condition=ReplicasReady", seconds=START_SECONDS)
    leaving, staying = (pod["metadata"]["name"] for pod in pods_of(installed, "moved", "llm"))
    prompts = [f"{number}. {NUMBERS}" for number in range(2 * STREAMS)]
    token = installed.secret("cornserve-access", "admin-token")
    streams = partial(running_streams, gateway_url, "moved", prompts, api_key=installed.api_key)
    async with streams(COMPARED, "undisturbed") as undisturbed:
        pass
    expected = [stream.text for stream in undisturbed]
    async with streams(MAX_TOKENS, "moved", expected) as moved:
        started = time.monotonic()
        await asyncio.to_thread(installed.kubectl, "delete", "pod", leaving)
        seconds = time.monotonic() - started

    assert [stream.text[: len(text)] for stream, text in zip(moved, expected, strict=True)] == expected
    with Client(gateway_url, installed.api_key, token) as admin:
        assert admin.app("moved").moved_streams == STREAMS
    metrics = executor_metrics(installed, staying)
    copies = re.search(r"^cornserve_llm_kv_copy_seconds_count (\S+)$", metrics, re.MULTILINE)
    assert copies is not None
    print(f"a pod with {STREAMS} streams ended in {seconds:.1f} s, with {copies[1]} copies of KV caches")
    assert float(copies[1]) > 0
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
