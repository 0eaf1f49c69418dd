"""What the calls that answer with text read of a `ChatResponse`.

These run as part of the task: each value that is not there yet is waited for.
"""

from __future__ import annotations

from typing import NamedTuple

from cornserve.task import Stream
from cornserve_tasklib.response import ChatChoice, ChatChunk, ChatResponse, FinishReason, ToolCallDelta, Usage


class Ending(NamedTuple):
    """What follows the last chunk."""

    finish_reasons: list[FinishReason]
    usage: Usage


def ending(response: ChatResponse) -> Ending:
    return Ending([choice.finish_reason for choice in response.choices], response.usage)


def text(response: ChatResponse) -> str | Stream[ChatChunk]:
    """A task that maps the chunks of an answer makes no other text."""
    chunks: Stream[ChatChunk] = response.chunks
    return chunks if chunks.is_mapped and not response.text else response.text


async def joined(text: str | Stream[ChatChunk]) -> str:
    return "".join([chunk.text async for chunk in text]) if isinstance(text, Stream) else text


def pieces(response: ChatResponse) -> Stream[ChatChunk] | list[ChatChunk]:
    """The chunks of the answer; where the task has made it itself, one for each choice."""
    chunks: Stream[ChatChunk] = response.chunks
    return chunks if chunks.is_open else [as_chunk(index, choice) for index, choice in enumerate(response.choices)]


def as_chunk(index: int, choice: ChatChoice) -> ChatChunk:
    calls = [
        ToolCallDelta(index=number, id=call.id, name=call.function.name, arguments=call.function.arguments)
        for number, call in enumerate(choice.tool_calls or ())
    ]
    return ChatChunk(
        text=choice.text,
        token_ids=choice.token_ids,
        index=index,
        reasoning=choice.reasoning,
        tool_calls=calls or None,
        logprobs=choice.logprobs,
    )
