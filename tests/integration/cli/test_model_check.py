"""`cornserve models check` compares the paths of a tiny model with vLLM."""

from __future__ import annotations

import json

import pytest

from tests.integration.cli.cli_instance import SMALL_KV_CACHE, CliInstance
from tests.models.tiny_families import tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

CHATS = ["text", "1 image", "2 images", "1 video", "2 videos", "image + video"]


def test_all_paths_have_the_tokens_of_vllm_in_float32(instance: CliInstance) -> None:
    instance.up(cpu_slots=3)

    results = instance.json("models", "check", str(tiny_model("qwen25vl")), *SMALL_KV_CACHE)

    assert [(result["path"], result["chat"]) for result in results] == [
        (path, chat) for path in ("monolith", "e-l", "e-el", "ep-d", "e-p-d", "e-pd") for chat in CHATS
    ]
    assert {(result["result"], result["details"]) for result in results} == {("equal", "16 tokens are equal")}
    assert instance.json("status")["apps"] == []


def test_other_types_are_compared_by_log_probabilities_on_paths_that_fit_the_slots(instance: CliInstance) -> None:
    instance.up(cpu_slots=1)

    completed = instance.run(
        *("models", "check", str(tiny_model("qwen25vl")), "--option", "dtype=bfloat16", *SMALL_KV_CACHE, "--json")
    )

    assert completed.returncode == 0, completed.stderr
    found = {(result["path"], result["result"]) for result in json.loads(completed.stdout)}
    assert found == {("monolith", "close"), *((path, "skipped") for path in ("e-l", "e-el", "ep-d", "e-p-d", "e-pd"))}
