"""Functions with which chats and completions read a `ChatResponse`.

These functions run as part of the task: each waits for the values that it reads.
"""

from __future__ import annotations

from typing import NamedTuple

from cornserve.task import Stream
from cornserve_tasklib.chat_response import ChatChoice, ChatChunk, ChatResponse, FinishReason, ToolCallDelta, Usage


class Ending(NamedTuple):
    """The values that follow the last chunk."""

    finish_reasons: list[FinishReason]
    usage: Usage


def read_ending(response: ChatResponse) -> Ending:
    return Ending([choice.finish_reason for choice in response.choices], response.usage)


def read_text(response: ChatResponse) -> str | Stream[ChatChunk]:
    """Returns the text of the first choice, or its chunks if the task has mapped them and set no text."""
    chunks: Stream[ChatChunk] = response.chunks
    return chunks if chunks.is_mapped and not response.text else response.text


async def join_text(text: str | Stream[ChatChunk]) -> str:
    return "".join([chunk.text async for chunk in text]) if isinstance(text, Stream) else text


def read_chunks(response: ChatResponse) -> Stream[ChatChunk] | list[ChatChunk]:
    """Returns the chunks, or one chunk for each choice of a response that the task has created itself."""
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
