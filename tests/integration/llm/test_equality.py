"""Responses equal those of vLLM called directly, token for token."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cornserve_tasklib import ChatRequest, EngineOptions, LLMTask
from tests.integration.engine_pool import EnginePool
from tests.integration.llm.client import connected
from tests.integration.llm.process import ExecutorProcess

pytestmark = pytest.mark.timeout(300)

REFERENCE = "tests.integration.llm.reference"
ROOT = Path(__file__).parents[3]
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
    "long": [{"role": "user", "content": "Summarise this. " + "The quick brown fox jumps over the lazy dog. " * 80}],
}


SAMPLING: dict[str, dict[str, Any]] = {
    "penalties": {"presence_penalty": 1.5, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
    "logit_bias": {"logit_bias": {"100": 5, "200": 5}},
    "stop": {"stop": [" is", "the", "a"]},
    "min_tokens": {"stop": [" is", "the", "a"], "min_tokens": 12, "include_stop_str_in_output": True},
    "seed": {"temperature": 1, "seed": 1, "top_p": 0.9, "top_k": 40, "min_p": 0.01},
    "n": {"temperature": 1, "seed": 2, "n": 3},
}


@pytest.fixture(scope="module", params=["tiny_task", pytest.param("smollm2_task", marks=pytest.mark.slow)])
def task(request: pytest.FixtureRequest) -> LLMTask:
    """A model whose tokens are bytes, and a real one, which takes minutes."""
    task: LLMTask = request.getfixturevalue(request.param)
    return task


@pytest.fixture(scope="module")
def smollm2_task(smollm2: Path) -> LLMTask:
    options = EngineOptions(max_model_len=2048, kv_cache_memory_bytes=256 << 20)
    return LLMTask(model_id=str(smollm2), options=options)


@pytest.fixture(scope="module")
def reference_tokens(
    task: LLMTask, fork_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[list[int]]]:
    """The tokens of each choice that vLLM generates for each conversation, and for the first one with each option."""
    conversations = [*CONVERSATIONS.values(), *[CONVERSATIONS["question"]] * len(SAMPLING)]
    options: list[dict[str, Any]] = [{}] * len(CONVERSATIONS) + [*SAMPLING.values()]
    directory = tmp_path_factory.mktemp("reference")
    job = {
        "model": task.model_id,
        "max_model_len": task.options.max_model_len,
        "kv_cache_memory_bytes": task.options.kv_cache_memory_bytes,
        "conversations": conversations,
        "sampling": [{"temperature": 0, "max_tokens": MAX_TOKENS} | option for option in options],
    }
    (directory / "job").write_text(json.dumps(job))
    command = [sys.executable, "-m", REFERENCE, str(directory / "job"), str(directory / "tokens")]
    subprocess.run(command, check=True, env=os.environ | fork_variables, cwd=ROOT)
    return dict(zip([*CONVERSATIONS, *SAMPLING], json.loads((directory / "tokens").read_text()), strict=True))


@pytest_asyncio.fixture(loop_scope="session")
async def executor(executors: EnginePool[ExecutorProcess], task: LLMTask) -> ExecutorProcess:
    return await executors.engine(task)


def greedy(name: str, **fields: object) -> ChatRequest:
    conversation = {"messages": CONVERSATIONS[name], "temperature": 0, "max_tokens": MAX_TOKENS}
    return ChatRequest.model_validate(conversation | fields)


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_single_response_equals_vllms(
    executor: ExecutorProcess, reference_tokens: dict[str, list[list[int]]], name: str
) -> None:
    async with connected(executor.endpoint) as client:
        assert [(await client.invoke(greedy(name))).response.token_ids] == reference_tokens[name]


@pytest.mark.parametrize("name", SAMPLING)
@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["streamed", "unstreamed"])
async def test_a_response_with_an_option_equals_vllms(
    executor: ExecutorProcess, reference_tokens: dict[str, list[list[int]]], name: str, stream: bool
) -> None:
    async with connected(executor.endpoint) as client:
        choices = (await client.invoke(greedy("question", **SAMPLING[name]), stream=stream)).response.choices

    assert [choice.token_ids for choice in choices] == reference_tokens[name]


async def test_concurrent_responses_equal_vllms(
    executor: ExecutorProcess, reference_tokens: dict[str, list[list[int]]]
) -> None:
    async with connected(executor.endpoint) as client:
        replies = await asyncio.gather(*(client.invoke(greedy(name)) for name in CONVERSATIONS))

    assert [[reply.response.token_ids] for reply in replies] == [reference_tokens[name] for name in CONVERSATIONS]
