"""The example apps with a real model, whose executor they share with its chat app."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from openai import OpenAI

from tests.integration.serving.conftest import CommandLine

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[3] / "examples"


def deploy(cornserve: CommandLine, example: str) -> set[str]:
    """Deploys an example, and returns the endpoints of its executors."""
    return endpoints_of(cornserve.json("deploy", str(EXAMPLES / example)))


def endpoints_of(app: dict[str, Any]) -> set[str]:
    return {replica["endpoint"] for group in app["status"]["groups"] for replica in group["replicas"]}


def test_a_task_branches_and_loops_on_a_response(cornserve: CommandLine, model: str, client: OpenAI) -> None:
    endpoints = deploy(cornserve, "branch_and_loop.py")

    stream = client.chat.completions.create(
        model="branch-and-loop",
        messages=[{"role": "user", "content": "Describe a cornfield in one sentence."}],
        max_tokens=24,
        stream=True,
    )

    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert endpoints == endpoints_of(cornserve.json("status", model))


def test_a_task_shows_its_steps(cornserve: CommandLine, model: str, client: OpenAI) -> None:
    deploy(cornserve, "visible_steps.py")
    messages: list[Any] = [{"role": "user", "content": "Describe a cornfield in one sentence."}]
    options: Any = {"model": "visible-steps", "messages": messages, "max_tokens": 8, "temperature": 0}

    stream = client.chat.completions.create(**options, stream=True)
    texts = [chunk.choices[0].delta.content or "" for chunk in stream]
    whole = client.chat.completions.create(**options).choices[0].message.content

    steps = [text for text in texts if text.endswith(": ")]
    assert steps == ["Draft: ", "\n\nCritique: ", "\n\nRevision: "]
    assert len(texts) > len(steps)
    assert whole
    assert "".join(texts).endswith(whole)


def test_independent_invocations_run_concurrently(cornserve: CommandLine, model: str) -> None:
    deploy(cornserve, "fan_out.py")

    result = httpx.post(
        f"{cornserve.url}/v1/apps/fan-out/invoke",
        json={"question": "Should I learn to cook?", "experts": ["a doctor", "a banker"]},
        timeout=120,
    ).json()

    assert set(result["opinions"]) == {"a doctor", "a banker"}
    assert all([*result["opinions"].values(), result["summary"]])
