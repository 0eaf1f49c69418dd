"""Greedy answers of a real model are those of vLLM called directly, token for token."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cornserve_tasklib import ChatRequest, LLMTask
from tests.integration.llm.client import connected
from tests.integration.llm.process import ExecutorProcess, running

pytestmark = [pytest.mark.xdist_group("engine"), pytest.mark.timeout(300)]

REFERENCE = Path(__file__).with_name("reference.py")
MAX_TOKENS = 48

CONVERSATIONS = {
    "question": [{"role": "user", "content": "What is the capital of France?"}],
    "system": [
        {"role": "system", "content": "You are a pirate. Answer in one sentence."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
    "multi-turn": [
        {"role": "user", "content": "My name is Ada and I like 3 things: tea, chess and 1984."},
        {"role": "assistant", "content": "Nice to meet you, Ada!"},
        {"role": "user", "content": "What is my name, and what do I like?"},
    ],
    "code": [{"role": "user", "content": "Write a Python function that adds 12 and 345:\n\n```python\ndef "}],
    "unicode": [{"role": "user", "content": "Übersetze ins Englische: „Schöne Grüße aus Köln“ 🙂 你好"}],
    "long": [{"role": "user", "content": "Summarise this. " + "The quick brown fox jumps over the lazy dog. " * 120}],
}


@pytest.fixture(scope="module")
def task(smollm2: Path) -> LLMTask:
    return LLMTask(model_id=str(smollm2), max_model_len=2048, kv_cache_memory_bytes=256 << 20)


@pytest.fixture(scope="module")
def expected(task: LLMTask, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    folder = tmp_path_factory.mktemp("reference")
    job = {
        "model": task.model_id,
        "max_model_len": task.max_model_len,
        "kv_cache_memory_bytes": task.kv_cache_memory_bytes,
        "max_tokens": MAX_TOKENS,
        "conversations": list(CONVERSATIONS.values()),
    }
    (folder / "job").write_text(json.dumps(job))
    subprocess.run([sys.executable, REFERENCE, folder / "job", folder / "tokens"], check=True)
    return dict(zip(CONVERSATIONS, json.loads((folder / "tokens").read_text()), strict=True))


@pytest.fixture(scope="module")
def smollm2_executor(
    task: LLMTask, expected: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExecutorProcess]:
    with running(task, tmp_path_factory.mktemp("executor")) as executor:
        executor.until_ready()
        yield executor


def greedy(name: str) -> ChatRequest:
    conversation = {"messages": CONVERSATIONS[name], "temperature": 0, "max_tokens": MAX_TOKENS}
    return ChatRequest.model_validate(conversation)


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_an_answer_alone_is_that_of_vllm(
    smollm2_executor: ExecutorProcess, expected: dict[str, list[int]], name: str
) -> None:
    async with connected(smollm2_executor.endpoint) as client:
        assert (await client.ask(greedy(name))).response.token_ids == expected[name]


async def test_answers_at_the_same_time_are_those_of_vllm(
    smollm2_executor: ExecutorProcess, expected: dict[str, list[int]]
) -> None:
    async with connected(smollm2_executor.endpoint) as client:
        replies = await asyncio.gather(*(client.ask(greedy(name)) for name in CONVERSATIONS))

    assert [reply.response.token_ids for reply in replies] == list(expected.values())
