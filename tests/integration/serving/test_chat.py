"""A real model served by a complete instance, called with the official client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx2 as httpx
import pytest
from openai import BadRequestError, OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionUserMessageParam

from tests.integration.serving.conftest import CommandLine

PROMPTS = [
    "What is the capital of France?",
    "Count from one to twenty.",
    "Write a haiku about the sea, then explain it line by line.",
]

REFERENCE_SCRIPT = """
import json, os, sys
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
from vllm import LLM, SamplingParams
model, prompts, tokens = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
llm = LLM(model, dtype="float32", enforce_eager=True, kv_cache_memory_bytes=1 << 30, distributed_executor_backend="uni")
chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
outputs = llm.chat(chats, SamplingParams(temperature=0, max_tokens=tokens), use_tqdm=False)
print(json.dumps([list(output.outputs[0].token_ids) for output in outputs]))
"""


def test_the_model_knows_the_capital_of_france(client: OpenAI, model: str) -> None:
    completion = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": PROMPTS[0]}], temperature=0, max_tokens=32
    )

    assert "Paris" in (completion.choices[0].message.content or "")
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens


@pytest.mark.slow
def test_a_stream_starts_before_the_generation_ends(cornserve: CommandLine, client: OpenAI, model: str) -> None:
    with client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": PROMPTS[1]}],
        temperature=0,
        max_tokens=64,
        stream=True,
        extra_body={"ignore_eos": True},
    ) as stream:
        first = next(stream)
        running = httpx.get(f"{cornserve.url}/metrics").text
        rest = list(stream)

    assert first.choices[0].delta.content
    assert f'cornserve_gateway_requests_running{{app="{model}"}} 1.0' in running
    assert len(rest) > 1
    assert rest[-1].choices[0].finish_reason == "length"


def test_streamed_chunks_add_up_to_the_response(client: OpenAI, model: str) -> None:
    question: ChatCompletionUserMessageParam = {"role": "user", "content": PROMPTS[1]}
    create = client.chat.completions.create
    stream = create(model=model, messages=[question], temperature=0, max_tokens=48, stream=True)
    chunks = [chunk.choices[0].delta.content or "" for chunk in stream]
    unstreamed = create(model=model, messages=[question], temperature=0, max_tokens=48)

    assert "".join(chunks) == unstreamed.choices[0].message.content
    assert len(chunks) > 1  # A slow reader receives several tokens as one chunk.


def test_generation_stops_at_a_stop_string(client: OpenAI, model: str) -> None:
    completion = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": PROMPTS[0]}], temperature=0, stop=["Paris"]
    )

    assert "Paris" not in (completion.choices[0].message.content or "")
    assert completion.choices[0].finish_reason == "stop"


def test_max_tokens_limits_the_response(client: OpenAI, model: str) -> None:
    completion = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": PROMPTS[2]}], max_tokens=5
    )

    assert completion.usage is not None
    assert completion.usage.completion_tokens == 5
    assert completion.choices[0].finish_reason == "length"


def test_the_model_is_listed_with_its_context_length(client: OpenAI, model: str) -> None:
    (listed,) = [each for each in client.models.list() if each.id == model]

    assert (listed.model_extra or {})["max_model_len"] == 8192


@pytest.mark.slow
def test_greedy_tokens_equal_those_of_vllm_called_directly(
    cornserve: CommandLine, model: str, smollm2: Path, tmp_path: Path
) -> None:
    tokens = 48
    script = tmp_path / "reference.py"
    script.write_text(REFERENCE_SCRIPT)
    arguments = [str(smollm2), json.dumps(PROMPTS), str(tokens)]
    reference = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=170, check=True
    )

    served = []
    for prompt in PROMPTS:
        chat = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": tokens}
        response = httpx.post(f"{cornserve.url}/v1/apps/{model}/invoke", json=chat, timeout=120)
        served.append(response.json()["token_ids"])

    assert served == json.loads(reference.stdout.splitlines()[-1])
    assert all(served)


def test_a_too_long_prompt_is_a_400_with_the_context_length(client: OpenAI, model: str) -> None:
    with pytest.raises(BadRequestError, match=r"maximum context length is 8192 tokens") as refused:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "word " * 40_000}])

    assert refused.value.code == "context_length_exceeded"


def test_max_tokens_above_the_context_length_are_refused_by_name(client: OpenAI, model: str) -> None:
    create = client.chat.completions.create
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
    with pytest.raises(BadRequestError, match=r"max_completion_tokens: 8193 is too large.* 8192 tokens") as chat:
        create(model=model, messages=messages, max_completion_tokens=8193)
    with pytest.raises(BadRequestError, match=r"max_tokens: 8193 is too large.* 8192 tokens") as text:
        client.completions.create(model=model, prompt="Hello", max_tokens=8193)

    assert (chat.value.param, chat.value.code) == ("max_completion_tokens", "context_length_exceeded")
    assert (text.value.param, text.value.code) == ("max_tokens", "context_length_exceeded")
