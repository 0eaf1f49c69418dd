"""vLLM's parsers separate text, reasoning and tool calls, with and without streaming. No engine runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cornserve_executors.base import ExecutorStartError, InvalidRequestError
from cornserve_executors.vllm import settings
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse, EngineOptions, LLMTask

if TYPE_CHECKING:
    from cornserve_executors.llm.prompt_renderer import PromptRenderer, RenderedRequest

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:max_tokens is deprecated:DeprecationWarning"),  # vLLM reads the field.
]

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [2, 3]}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]

streams = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])

MakeRenderer = Callable[..., "PromptRenderer"]


@pytest.fixture(scope="module")
def make_renderer(tiny_llama: Path) -> MakeRenderer:
    """Makes renderers with the given parsers."""
    settings.prepare_environment()
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.renderers import renderer_from_config

    from cornserve_executors.llm.prompt_renderer import PromptRenderer

    args = settings.engine_args(LLMTask(model_id=str(tiny_llama), options=EngineOptions(max_model_len=4096)))
    vllm_config = AsyncEngineArgs(**args).create_engine_config()
    renderer = renderer_from_config(vllm_config)

    def make(**parsers: Any) -> PromptRenderer:
        return PromptRenderer(vllm_config.model_config, renderer, LLMTask(model_id=str(tiny_llama), **parsers))

    return make


def ask(**fields: object) -> ChatRequest:
    return ChatRequest.model_validate({"messages": [{"role": "user", "content": "Add."}], **fields})


def parse(rendered: RenderedRequest, text: str, finish_reason: str = "stop") -> ChatResponse:
    """Returns the response to a request if the model generates this text."""
    from vllm import CompletionOutput, RequestOutput

    from cornserve_executors.llm.response_builder import ResponseBuilder

    tokens = rendered.tokenizer.encode(text, add_special_tokens=False)
    parts = [[token] for token in tokens] if rendered.streams else [tokens]
    builder = ResponseBuilder(rendered)
    chunks: list[ChatChunk] = []
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        completion = CompletionOutput(
            index=0,
            text=rendered.tokenizer.decode(part),
            token_ids=part,
            cumulative_logprob=None,
            logprobs=None,
            finish_reason=finish_reason if is_last else None,
        )
        output = partial(RequestOutput, "id", None, rendered.prompt_tokens, None)
        chunks += builder.add_output(output(outputs=[completion], finished=is_last))
    response = builder.build()
    assert "".join(chunk.text for chunk in chunks) == response.text
    assert [token for chunk in chunks for token in chunk.token_ids] == tokens
    return response


@streams
async def test_a_tool_call_is_separated_from_text(make_renderer: MakeRenderer, stream: bool) -> None:
    rendered = await make_renderer(tool_parser="hermes").render(ask(tools=TOOLS), stream=stream)

    response = parse(rendered, "I add. " + CALL)

    assert response.text.strip() == "I add."
    assert response.tool_calls is not None
    (call,) = response.tool_calls
    assert call.function.model_dump() == {"name": "add", "arguments": '{"a": 1, "b": [2, 3]}'}
    assert call.id
    assert response.finish_reason == "tool_calls"


@streams
@pytest.mark.parametrize("tool_choice", ["auto", "required", {"type": "function", "function": {"name": "add"}}])
async def test_a_tool_call_that_was_cut_is_not_a_text(
    make_renderer: MakeRenderer, tool_choice: object, stream: bool
) -> None:
    request = ask(tools=TOOLS, tool_choice=tool_choice, max_tokens=20)
    rendered = await make_renderer(tool_parser="hermes").render(request, stream=stream)

    response = parse(rendered, CALL[: CALL.index("[2") + 2], "length")

    assert (response.text, response.finish_reason) == ("", "length")
    assert response.tool_calls is not None
    (call,) = response.tool_calls
    assert call.function.model_dump() == {"name": "add", "arguments": '{"a": 1, "b": [2'}


@streams
@pytest.mark.parametrize(
    ("last", "arguments"), [('"add"', ""), ('"add", ', ""), ('"arguments": ', ""), ('"arguments": {', "{")]
)
async def test_a_call_that_was_cut_at_the_start_has_no_complete_arguments(
    make_renderer: MakeRenderer, last: str, arguments: str, stream: bool
) -> None:
    request = ask(tools=TOOLS, tool_choice="required", max_tokens=20)
    rendered = await make_renderer(tool_parser="hermes").render(request, stream=stream)

    response = parse(rendered, CALL[: CALL.index(last) + len(last)], "length")

    assert response.tool_calls is not None
    (call,) = response.tool_calls
    assert call.function.model_dump() == {"name": "add", "arguments": arguments}


@streams
@pytest.mark.parametrize("parsers", [{}, {"reasoning_parser": "deepseek_r1"}])
async def test_a_text_and_a_complete_call_precede_a_call_that_was_cut(
    make_renderer: MakeRenderer, parsers: dict[str, str], stream: bool
) -> None:
    renderer = make_renderer(tool_parser="hermes", **parsers)
    rendered = await renderer.render(ask(tools=TOOLS, max_tokens=20), stream=stream)
    reasoning = "Let me see.</think>" if parsers else ""

    response = parse(rendered, f"{reasoning}I add. {CALL}\n{CALL[:40]}", "length")

    assert response.text.strip() == "I add."
    assert response.reasoning == ("Let me see." if parsers else "")
    assert response.tool_calls is not None
    assert [call.function.name for call in response.tool_calls] == ["add", "add"]
    assert response.tool_calls[0].function.arguments == '{"a": 1, "b": [2, 3]}'


@streams
async def test_a_text_that_was_cut_stays_a_text(make_renderer: MakeRenderer, stream: bool) -> None:
    rendered = await make_renderer(tool_parser="hermes").render(ask(tools=TOOLS, max_tokens=20), stream=stream)

    response = parse(rendered, "I could add 1 and", "length")

    assert response.text == "I could add 1 and"
    assert response.tool_calls is None


@streams
async def test_several_tool_calls_are_separated(make_renderer: MakeRenderer, stream: bool) -> None:
    rendered = await make_renderer(tool_parser="hermes").render(ask(tools=TOOLS), stream=stream)

    calls = parse(rendered, CALL + "\n" + CALL.replace("1", "4")).tool_calls

    assert calls is not None
    assert [call.function.arguments for call in calls] == ['{"a": 1, "b": [2, 3]}', '{"a": 4, "b": [2, 3]}']
    assert calls[0].id != calls[1].id


@streams
async def test_parallel_tool_calls_can_be_disabled(make_renderer: MakeRenderer, stream: bool) -> None:
    request = ask(tools=TOOLS, parallel_tool_calls=False)
    rendered = await make_renderer(tool_parser="hermes").render(request, stream=stream)

    calls = parse(rendered, CALL + "\n" + CALL).tool_calls

    assert calls is not None
    assert len(calls) == 1


@streams
async def test_a_tool_call_is_text_if_the_request_has_no_tools(make_renderer: MakeRenderer, stream: bool) -> None:
    rendered = await make_renderer(tool_parser="hermes").render(ask(), stream=stream)

    assert parse(rendered, CALL).text == CALL


@streams
async def test_reasoning_is_separated_from_text(make_renderer: MakeRenderer, stream: bool) -> None:
    rendered = await make_renderer(reasoning_parser="deepseek_r1").render(ask(), stream=stream)

    response = parse(rendered, "Let me see.</think>It is 3.")

    assert (response.reasoning, response.text) == ("Let me see.", "It is 3.")
    assert response.finish_reason == "stop"


@streams
async def test_reasoning_may_precede_a_tool_call(make_renderer: MakeRenderer, stream: bool) -> None:
    renderer = make_renderer(reasoning_parser="deepseek_r1", tool_parser="hermes")
    rendered = await renderer.render(ask(tools=TOOLS), stream=stream)

    response = parse(rendered, "Let me see.</think>" + CALL)

    assert response.reasoning == "Let me see."
    assert response.tool_calls is not None
    assert response.tool_calls[0].function.name == "add"


async def test_tools_are_rejected_without_a_tool_parser(make_renderer: MakeRenderer) -> None:
    with pytest.raises(InvalidRequestError, match=r"tools: .* deploy it with a tool_parser"):
        await make_renderer().render(ask(tools=TOOLS), stream=False)


def test_a_parser_that_does_not_support_the_tokenizer_is_rejected(make_renderer: MakeRenderer) -> None:
    with pytest.raises(ExecutorStartError, match="cannot be used with the tokenizer"):
        make_renderer(tool_parser="mistral")


async def test_a_task_may_replace_the_chat_template(make_renderer: MakeRenderer) -> None:
    prompt = (await make_renderer(chat_template="{{ messages[0].content }}").render(ask(), stream=False)).prompt

    assert len(prompt["prompt_token_ids"]) == len("Add.")


async def test_a_request_may_set_template_variables(make_renderer: MakeRenderer) -> None:
    template = "{{ messages[0].content }}{{ mood }}"
    request = ask(chat_template_kwargs={"mood": "merry"})

    prompt = (await make_renderer(chat_template=template).render(request, stream=False)).prompt

    assert len(prompt["prompt_token_ids"]) == len("Add.merry")


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{{ messages[0].content }}{{ reasoning_effort }}", "Add.low"),
        ("{{ messages[0].content }}{{ enable_thinking }}", "Add.True"),
    ],
)
async def test_a_template_gets_the_reasoning_effort(make_renderer: MakeRenderer, template: str, prompt: str) -> None:
    rendered = await make_renderer(chat_template=template).render(ask(reasoning_effort="low"), stream=False)

    assert len(rendered.prompt["prompt_token_ids"]) == len(prompt)


async def test_a_reasoning_effort_that_the_template_does_not_use_is_rejected(make_renderer: MakeRenderer) -> None:
    renderer = make_renderer(chat_template="{{ messages[0].content }}")

    with pytest.raises(InvalidRequestError, match=r"^reasoning_effort: the model's chat template has neither"):
        await renderer.render(ask(reasoning_effort="high"), stream=False)


async def test_a_model_that_does_not_reason_needs_no_switch_to_do_so(make_renderer: MakeRenderer) -> None:
    rendered = await make_renderer(chat_template="{{ messages[0].content }}").render(
        ask(reasoning_effort="none"), stream=False
    )

    assert len(rendered.prompt["prompt_token_ids"]) == len("Add.")


async def test_a_failing_template_is_an_invalid_request(make_renderer: MakeRenderer) -> None:
    from cornserve_executors.vllm.engine import translate_errors

    template = "{{ messages[0].content + mood }}"

    with pytest.raises(InvalidRequestError, match="can only concatenate str"), translate_errors():
        await make_renderer(chat_template=template).render(ask(chat_template_kwargs={"mood": 1}), stream=False)
