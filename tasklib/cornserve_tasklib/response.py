"""What a language model answers: a stream of pieces, and the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from cornserve.task import Output, Stream
from cornserve_tasklib.messages import ToolCall

FinishReason = Literal["stop", "length", "tool_calls"]


class Usage(BaseModel):
    """Counts of tokens."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @classmethod
    def sum(cls, usages: Sequence[Usage]) -> Usage:
        return cls(
            prompt_tokens=sum(usage.prompt_tokens for usage in usages),
            completion_tokens=sum(usage.completion_tokens for usage in usages),
        )


class TokenLogprob(BaseModel):
    """A token and its logarithmic probability; the first of a prompt has none."""

    token: str
    logprob: float | None
    bytes: list[int] | None = None


class TokenLogprobs(TokenLogprob):
    """And those that were likeliest in its place."""

    top_logprobs: list[TokenLogprob] = Field(default_factory=list)


class ToolCallDelta(BaseModel):
    """The next piece of a tool call: its id and name come first, then its arguments piece by piece."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str | None = None


class ChatChunk(BaseModel):
    """The next piece of an answer."""

    text: str
    token_ids: list[int] = Field(default_factory=list)
    """The tokens that were generated since the last piece of this choice."""
    index: int = 0
    """Whose piece it is, where there are several choices."""
    reasoning: str = ""
    tool_calls: list[ToolCallDelta] | None = None
    logprobs: list[TokenLogprobs] | None = None


class ChatChoice(BaseModel):
    """One answer, as a whole."""

    text: str = ""
    token_ids: list[int] = Field(default_factory=list)
    finish_reason: FinishReason = "stop"
    reasoning: str = ""
    """What the model thought before, where its `reasoning_parser` tells that apart."""
    tool_calls: list[ToolCall] | None = None
    logprobs: list[TokenLogprobs] | None = None


class ChatResponse(ChatChoice, Output):
    """An answer, as a stream and as a whole. Where several were asked for, it is the first of them.

    A composite task may build one from a text (`ChatResponse(text=…)`), or from chunks that are still
    to come (`ChatResponse(chunks=answer.chunks.map(…))`), whose text is then the whole.
    """

    chunks: Stream[ChatChunk] = Stream()
    usage: Usage = Usage()
    further: list[ChatChoice] = Field(default_factory=list)
    """The other choices, where `n` was more than one."""

    @property
    def choices(self) -> list[ChatChoice]:
        return [self, *self.further]
