"""Separates text, reasoning and tool calls in one choice, with vLLM's parsers."""

from __future__ import annotations

from typing import Any

from vllm.entrypoints.generate.base.protocol import DeltaMessage, DeltaToolCall, FunctionCall
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionNamedToolChoiceParam, ChatCompletionRequest
from vllm.entrypoints.serve.utils.tool_calls_utils import maybe_filter_parallel_tool_calls
from vllm.outputs import CompletionOutput
from vllm.parser import Parser
from vllm.renderers.chat_utils import make_tool_call_id

from cornserve_tasklib.chat_response import ChatChunk, ToolCallDelta


class OutputParser:
    def __init__(self, parser: Parser, request: ChatCompletionRequest, prompt_tokens: list[int]) -> None:
        self._parser: Any = parser
        self._request = request
        self._prompt_tokens = prompt_tokens

    @property
    def function_is_named(self) -> bool:
        """Whether the request names the function to call."""
        return isinstance(self._request.tool_choice, ChatCompletionNamedToolChoiceParam)

    def parse_delta(self, completion: CompletionOutput, chunk: ChatChunk) -> None:
        """Fills the chunk with the new part of a streamed output."""
        delta: DeltaMessage | None = self._parser.parse_delta(
            completion.text,
            chunk.token_ids,
            self._request,
            self._prompt_tokens,
            finished=completion.finish_reason is not None,
        )
        if delta is not None:
            if completion.finish_reason == "length":
                self._remove_default_arguments(delta)
            delta = maybe_filter_parallel_tool_calls(delta, self._request)
            chunk.text, chunk.reasoning = delta.content or "", delta.reasoning or ""
            chunk.tool_calls = [_convert_delta(call) for call in delta.tool_calls] or None

    def parse_complete(self, completion: CompletionOutput, chunk: ChatChunk) -> None:
        """Fills the chunk with the complete output."""
        if completion.finish_reason == "length" and self._request.tools:
            # The parsers of complete outputs return a tool call that was cut as text.
            self.parse_delta(completion, chunk)
            return
        self._parser.set_prompt_token_ids(self._prompt_tokens)
        reasoning, content, calls = self._parser.parse(
            completion.text, self._request, enable_auto_tools=True, model_output_token_ids=chunk.token_ids
        )
        chunk.text, chunk.reasoning = content or "", reasoning or ""
        calls = maybe_filter_parallel_tool_calls(list(calls or ()), self._request)
        chunk.tool_calls = [_convert_call(index, call) for index, call in enumerate(calls)] or None

    def _remove_default_arguments(self, delta: DeltaMessage) -> None:
        """Removes the `{}` that vLLM appends to a call which was cut before its arguments."""
        tool_parser = self._parser.tool_parser
        parsed_calls = [] if tool_parser is None else tool_parser.prev_tool_call_arr
        if delta.tool_calls and parsed_calls and "arguments" not in parsed_calls[-1]:
            function = delta.tool_calls[-1].function
            if function is not None and function.arguments:
                function.arguments = function.arguments.removesuffix(tool_parser.get_remaining_unstreamed_args())


def _convert_delta(call: DeltaToolCall) -> ToolCallDelta:
    function = call.function
    return ToolCallDelta(
        index=call.index,
        id=call.id,
        name=None if function is None else function.name,
        arguments=None if function is None else function.arguments,
    )


def _convert_call(index: int, call: FunctionCall) -> ToolCallDelta:
    return ToolCallDelta(index=index, id=call.id or make_tool_call_id(), name=call.name, arguments=call.arguments)
