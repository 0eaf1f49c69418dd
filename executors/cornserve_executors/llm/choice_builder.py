"""One choice of an answer: vLLM's outputs become its pieces, and its pieces the whole."""

from __future__ import annotations

from collections.abc import Iterable

from vllm.outputs import CompletionOutput

from cornserve_executors.llm.logprobs import token_logprobs
from cornserve_executors.llm.prompt_renderer import RenderedRequest
from cornserve_tasklib.messages import FunctionCall, ToolCall
from cornserve_tasklib.response import ChatChoice, ChatChunk, FinishReason, ToolCallDelta


class ChoiceBuilder:
    def __init__(self, generation: RenderedRequest, index: int) -> None:
        self._generation = generation
        self._index = index
        self._parsing = None if generation.new_parsing is None else generation.new_parsing()
        self._chunks = [] if generation.continuation is None else list(generation.continuation.delivered)
        self._finish_reason: str | None = None

    def read(self, completion: CompletionOutput) -> ChatChunk:
        """What is new in the next output."""
        self._finish_reason = completion.finish_reason
        chunk = ChatChunk(text="", token_ids=list(completion.token_ids), index=self._index)
        if self._parsing is None:
            chunk.text = completion.text
        elif self._generation.streams:
            self._parsing.piece(completion, chunk)
        else:
            self._parsing.whole(completion, chunk)
        if self._generation.continuation is not None:
            self._generation.continuation.cut(chunk)
        if completion.logprobs is not None:
            top = self._generation.sampling.logprobs or 0
            chunk.logprobs = token_logprobs(chunk.token_ids, completion.logprobs, self._generation.tokenizer, top)
        return chunk

    def add(self, chunk: ChatChunk) -> ChatChunk:
        """Makes it part of the whole."""
        self._chunks.append(chunk)
        return chunk

    def end(self) -> None:
        """What was delivered is already as long as the answer may be."""
        self._finish_reason = "length"

    def whole(self) -> ChatChoice:
        chunks = self._chunks
        calls = _joined(piece for chunk in chunks for piece in chunk.tool_calls or ())
        has_logprobs = any(chunk.logprobs is not None for chunk in chunks)
        return ChatChoice(
            text="".join([chunk.text for chunk in chunks]),
            token_ids=[token for chunk in chunks for token in chunk.token_ids],
            finish_reason=self._reason(called=bool(calls)),
            reasoning="".join([chunk.reasoning for chunk in chunks]),
            tool_calls=calls or None,
            logprobs=[one for chunk in chunks for one in chunk.logprobs or ()] if has_logprobs else None,
        )

    def _reason(self, *, called: bool) -> FinishReason:
        """As at OpenAI: a call of the one function that may be called is no reason to stop."""
        match self._finish_reason:
            case "stop" if called and self._parsing is not None and not self._parsing.function_is_given:
                return "tool_calls"
            case "stop":
                return "stop"
            case "length":
                return "length"
        raise RuntimeError(f"vLLM ended the generation with {self._finish_reason!r}")


def _joined(pieces: Iterable[ToolCallDelta]) -> list[ToolCall]:
    calls: dict[int, ToolCall] = {}
    for piece in pieces:
        if piece.index not in calls:
            function = FunctionCall(name=piece.name or "", arguments="")
            calls[piece.index] = ToolCall(id=piece.id or "", type="function", function=function)
        calls[piece.index].function.arguments += piece.arguments or ""
    return list(calls.values())
