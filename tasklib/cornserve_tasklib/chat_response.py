"""Responses of language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from cornserve.task import Output, Stream
from cornserve_tasklib.generated_image import GeneratedImage
from cornserve_tasklib.messages import ToolCall

FinishReason = Literal["stop", "length", "tool_calls"]
"""Why a choice ended: at a stop string or the model's end token, at the token limit, or with tool calls."""


class Usage(BaseModel):
    """Token counts of a response."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int = 0
    """Tokens of the prompt, including the chat template."""
    completion_tokens: int = 0
    """Generated tokens of all choices."""
    cached_tokens: int = 0
    """Tokens of the prompt whose KV cache was computed for an earlier request."""

    @classmethod
    def sum(cls, usages: Sequence[Usage]) -> Usage:
        """Returns the total of several usages."""
        return cls(
            prompt_tokens=sum(usage.prompt_tokens for usage in usages),
            completion_tokens=sum(usage.completion_tokens for usage in usages),
            cached_tokens=sum(usage.cached_tokens for usage in usages),
        )


class TokenLogprob(BaseModel):
    """A token and its log probability."""

    token: str
    """The text of the token."""
    logprob: float | None
    """The natural logarithm of the probability. None for the first token of an echoed prompt."""
    bytes: list[int] | None = None
    """The UTF-8 encoding of the token."""


class TokenLogprobs(TokenLogprob):
    """A token, its log probability, and the likeliest tokens at its position."""

    top_logprobs: list[TokenLogprob] = Field(default_factory=list)
    """The likeliest tokens at this position, likeliest first."""


class PromptLogprob(BaseModel):
    """The log probability of a token at a position of the prompt, with vLLM's names."""

    logprob: float
    """The natural logarithm of the probability."""
    rank: int | None
    """The position among all tokens, of which the likeliest one has rank 1."""
    decoded_token: str
    """The text of the token."""


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""The token at each position of a prompt and the likeliest ones, by their ids. None for the first position."""


class ToolCallDelta(BaseModel):
    """The next part of a tool call. The first part has the id and the name, the following ones have the arguments."""

    index: int
    """The position of the call among the calls of the choice."""
    id: str | None = None
    """The id of the call."""
    name: str | None = None
    """The name of the function."""
    arguments: str | None = None
    """The next part of the arguments, which are JSON."""


class ChatChunk(BaseModel):
    """The next part of a streamed response."""

    text: str
    """The text generated since the previous chunk of this choice."""
    token_ids: list[int] = Field(default_factory=list)
    """The tokens generated since the previous chunk of this choice."""
    index: int = 0
    """The index of the choice."""
    reasoning: str = ""
    """The reasoning generated since the previous chunk of this choice."""
    tool_calls: list[ToolCallDelta] | None = None
    """The next parts of tool calls."""
    logprobs: list[TokenLogprobs] | None = None
    """The log probabilities of the tokens, if the request asks for them."""
    prompt_tokens: int = 0
    """Tokens of the prompt, in the first chunk of each choice."""


class ChatChoice(BaseModel):
    """A complete choice of a response."""

    text: str = ""
    """The generated text, without reasoning and tool calls."""
    token_ids: list[int] = Field(default_factory=list)
    """The generated tokens."""
    finish_reason: FinishReason = "stop"
    """The reason why the choice ended."""
    stop_sequence: str | None = None
    """The string of `stop` at which the choice ended."""
    reasoning: str = ""
    """The reasoning that precedes the text. Empty unless the task has a `reasoning_parser`."""
    tool_calls: list[ToolCall] | None = None
    """The functions that the model requests to call."""
    logprobs: list[TokenLogprobs] | None = None
    """The log probabilities of the tokens, if the request asks for them."""


class ChatResponse(ChatChoice, Output):
    """The response of a language model, as a stream of chunks and as a whole. Its own fields are the first choice.

    A composite task may create one from a text (`ChatResponse(text=…)`), or from a stream of chunks
    (`ChatResponse(chunks=response.chunks.map(…))`), whose text then becomes the text of the response.
    """

    chunks: Stream[ChatChunk] = Stream()
    """The chunks of all choices."""
    usage: Usage = Usage()
    """Token counts."""
    prompt_token_ids: list[int] | None = None
    """The tokens of the prompt, if the request asks for the prompt alone."""
    prompt_logprobs: PromptLogprobs | None = None
    """The log probabilities at each position of the prompt, if the request asks for them."""
    further: list[ChatChoice] = Field(default_factory=list)
    """The second and later choices, if `n` is greater than one."""
    images: list[GeneratedImage] = Field(default_factory=list)
    """PNG files of the first choice. Only a composite task sets them."""

    @property
    def choices(self) -> list[ChatChoice]:
        """All choices of the response, the first one included."""
        return [self, *self.further]
