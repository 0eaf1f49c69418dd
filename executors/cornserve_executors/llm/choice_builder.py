"""Builds one choice of a response: converts vLLM's outputs to chunks, and the chunks to the complete choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vllm.outputs import CompletionOutput

from cornserve_executors.llm.logprobs import token_logprobs
from cornserve_executors.llm.prompt_renderer import RenderedRequest
from cornserve_executors.llm.repeated_choice import RepeatedChoice
from cornserve_tasklib.chat_response import ChatChoice, ChatChunk, FinishReason, ToolCallDelta
from cornserve_tasklib.messages import FunctionCall, ToolCall


class ChoiceBuilder:
    """
    Args:
        delivered: the chunks that another executor has sent of the choice, which is generated again.
    """

    def __init__(self, rendered: RenderedRequest, index: int, delivered: Sequence[ChatChunk] = ()) -> None:
        self._rendered = rendered
        self._index = index
        self._parser = None if rendered.new_parser is None else rendered.new_parser()
        self.chunks = list(delivered if rendered.continuation is None else rendered.continuation.delivered)
        self._repeated = RepeatedChoice(delivered) if delivered else None
        self._finish_reason: str | None = None
        self._stop_sequence: str | None = None

    def parse_output(self, completion: CompletionOutput) -> ChatChunk:
        """Returns the new part of the next output."""
        self._finish_reason = completion.finish_reason
        if isinstance(completion.stop_reason, str):
            self._stop_sequence = completion.stop_reason
        chunk = ChatChunk(text="", token_ids=list(completion.token_ids), index=self._index)
        if self._parser is None:
            chunk.text = completion.text
        elif self._rendered.streams:
            self._parser.parse_delta(completion, chunk)
        else:
            self._parser.parse_complete(completion, chunk)
        if self._rendered.continuation is not None:
            self._rendered.continuation.remove_delivered(chunk)
        if completion.logprobs is not None:
            top = self._rendered.sampling.logprobs or 0
            chunk.logprobs = token_logprobs(chunk.token_ids, completion.logprobs, self._rendered.tokenizer, top)
        return chunk

    def append(self, chunk: ChatChunk) -> ChatChunk:
        """Adds the chunk to the choice, and returns its new part.

        Raises `NotRepeatedError` if it differs from what was delivered.
        """
        if self._repeated is not None:
            self._repeated.remove_delivered(chunk)
        if not self.chunks:
            chunk.prompt_tokens = len(self._rendered.prompt_tokens)
        self.chunks.append(chunk)
        return chunk

    def finish_at_limit(self) -> None:
        """Finishes the choice, because the delivered chunks already have the maximum number of tokens."""
        self._finish_reason = "length"

    def build(self) -> ChatChoice:
        """Raises `NotRepeatedError` if the choice lacks a part that was delivered."""
        if self._repeated is not None:
            self._repeated.check_complete()
        chunks = self.chunks
        calls = _join_calls(delta for chunk in chunks for delta in chunk.tool_calls or ())
        has_logprobs = any(chunk.logprobs is not None for chunk in chunks)
        return ChatChoice(
            text="".join([chunk.text for chunk in chunks]),
            token_ids=[token for chunk in chunks for token in chunk.token_ids],
            finish_reason=self._convert_finish_reason(has_calls=bool(calls)),
            stop_sequence=self._stop_sequence,
            reasoning="".join([chunk.reasoning for chunk in chunks]),
            tool_calls=calls or None,
            logprobs=[token for chunk in chunks for token in chunk.logprobs or ()] if has_logprobs else None,
        )

    def _convert_finish_reason(self, *, has_calls: bool) -> FinishReason:
        """Returns OpenAI's reason, which is not "tool_calls" if the request names the function to call."""
        match self._finish_reason:
            case "stop" if has_calls and self._parser is not None and not self._parser.function_is_named:
                return "tool_calls"
            case "stop":
                return "stop"
            case "length":
                return "length"
        raise RuntimeError(f"unexpected finish reason {self._finish_reason!r} from vLLM")


def _join_calls(deltas: Iterable[ToolCallDelta]) -> list[ToolCall]:
    calls: dict[int, ToolCall] = {}
    for delta in deltas:
        if delta.index not in calls:
            function = FunctionCall(name=delta.name or "", arguments="")
            calls[delta.index] = ToolCall(id=delta.id or "", type="function", function=function)
        calls[delta.index].function.arguments += delta.arguments or ""
    return list(calls.values())
