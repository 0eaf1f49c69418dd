"""What a model says, thinks and calls is told apart by vLLM's parsers, whole and piece by piece. No engine runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from vllm import CompletionOutput, RequestOutput
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.renderers import renderer_from_config

from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.llm.output_parser import check_parsers
from cornserve_executors.llm.prompt_renderer import PromptRenderer, RenderedRequest
from cornserve_executors.llm.response_builder import ResponseBuilder
from cornserve_executors.vllm import settings
from cornserve_executors.vllm.engine import translate_errors
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse, LLMTask

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning"),  # vLLM uses its own field.
]

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2, 3]}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]

streams = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])

Make = Callable[..., PromptRenderer]


@pytest.fixture(scope="module")
def generations(tiny_llama: Path) -> Make:
    """Reads answers of a model with the given parsers."""
    settings.prepare_environment()
    args = settings.engine_args(LLMTask(model_id=str(tiny_llama), max_model_len=4096))
    vllm_config = AsyncEngineArgs(**args).create_engine_config()
    renderer = renderer_from_config(vllm_config)

    def make(**parsers: Any) -> PromptRenderer:
        return PromptRenderer(vllm_config.model_config, renderer, LLMTask(model_id=str(tiny_llama), **parsers))

    return make


def ask(**fields: object) -> ChatRequest:
    return ChatRequest.model_validate({"messages": [{"role": "user", "content": "Add."}], **fields})


def answer(generation: RenderedRequest, text: str) -> ChatResponse:
    """What becomes of a text that the model has written, token by token."""
    tokens = generation.tokenizer.encode(text, add_special_tokens=False)
    parts = [[token] for token in tokens] if generation.streams else [tokens]
    answer = ResponseBuilder(generation)
    chunks: list[ChatChunk] = []
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        completion = CompletionOutput(
            index=0,
            text=generation.tokenizer.decode(part),
            token_ids=part,
            cumulative_logprob=None,
            logprobs=None,
            finish_reason="stop" if is_last else None,
        )
        output = partial(RequestOutput, "id", None, generation.prompt_tokens, None)
        chunks += answer.add(output(outputs=[completion], finished=is_last))
    response = answer.response()
    assert "".join(chunk.text for chunk in chunks) == response.text
    assert [token for chunk in chunks for token in chunk.token_ids] == tokens
    return response


@streams
async def test_a_call_is_told_from_text(generations: Make, stream: bool) -> None:
    generation = await generations(tool_parser="hermes").of(ask(tools=TOOLS), stream=stream)

    response = answer(generation, "I add. " + CALL)

    assert response.text.strip() == "I add."
    assert response.tool_calls is not None
    (call,) = response.tool_calls
    assert call.function.model_dump() == {"name": "add", "arguments": '{"a": 1, "b": [2, 3]}'}
    assert call.id
    assert response.finish_reason == "tool_calls"


@streams
async def test_several_calls_are_kept_apart(generations: Make, stream: bool) -> None:
    generation = await generations(tool_parser="hermes").of(ask(tools=TOOLS), stream=stream)

    calls = answer(generation, CALL + "\n" + CALL.replace("1", "4")).tool_calls

    assert calls is not None
    assert [call.function.arguments for call in calls] == ['{"a": 1, "b": [2, 3]}', '{"a": 4, "b": [2, 3]}']
    assert calls[0].id != calls[1].id


@streams
async def test_a_client_that_wants_one_call_gets_one(generations: Make, stream: bool) -> None:
    request = ask(tools=TOOLS, parallel_tool_calls=False)
    generation = await generations(tool_parser="hermes").of(request, stream=stream)

    calls = answer(generation, CALL + "\n" + CALL).tool_calls

    assert calls is not None
    assert len(calls) == 1


@streams
async def test_without_tools_a_call_is_text(generations: Make, stream: bool) -> None:
    generation = await generations(tool_parser="hermes").of(ask(), stream=stream)

    assert answer(generation, CALL).text == CALL


@streams
async def test_reasoning_is_told_from_the_answer(generations: Make, stream: bool) -> None:
    generation = await generations(reasoning_parser="deepseek_r1").of(ask(), stream=stream)

    response = answer(generation, "Let me see.</think>It is 3.")

    assert (response.reasoning, response.text) == ("Let me see.", "It is 3.")
    assert response.finish_reason == "stop"


@streams
async def test_reasoning_may_come_before_a_call(generations: Make, stream: bool) -> None:
    both = generations(reasoning_parser="deepseek_r1", tool_parser="hermes")
    generation = await both.of(ask(tools=TOOLS), stream=stream)

    response = answer(generation, "Let me see.</think>" + CALL)

    assert response.reasoning == "Let me see."
    assert response.tool_calls is not None
    assert response.tool_calls[0].function.name == "add"


async def test_tools_are_refused_where_calls_cannot_be_told(generations: Make) -> None:
    with pytest.raises(InvalidRequestError, match=r"tools: .* without a tool_parser"):
        await generations().of(ask(tools=TOOLS), stream=False)


@pytest.mark.parametrize("setting", ["tool_parser", "reasoning_parser"])
def test_a_parser_that_vllm_does_not_know_is_named_with_those_that_it_knows(setting: str) -> None:
    with pytest.raises(ExecutorStartError, match=f"vLLM has no {setting} 'abacus', but .*, hermes, |deepseek_r1"):
        check_parsers(LLMTask.model_validate({"model_id": "x", setting: "abacus"}))


def test_a_parser_that_does_not_fit_the_tokenizer_is_refused(generations: Make) -> None:
    with pytest.raises(ExecutorStartError, match="cannot be used with the tokenizer"):
        generations(tool_parser="mistral")


async def test_another_template_than_the_models_may_be_given(generations: Make) -> None:
    prompt = (await generations(chat_template="{{ messages[0].content }}").of(ask(), stream=False)).prompt

    assert len(prompt["prompt_token_ids"]) == len("Add.")


async def test_templates_take_variables(generations: Make) -> None:
    template = "{{ messages[0].content }}{{ mood }}"
    request = ask(chat_template_kwargs={"mood": "merry"})

    prompt = (await generations(chat_template=template).of(request, stream=False)).prompt

    assert len(prompt["prompt_token_ids"]) == len("Add.merry")


async def test_a_template_that_fails_is_the_requests_fault(generations: Make) -> None:
    template = "{{ messages[0].content + mood }}"

    with pytest.raises(InvalidRequestError, match="can only concatenate str"), translate_errors():
        await generations(chat_template=template).of(ask(chat_template_kwargs={"mood": 1}), stream=False)
