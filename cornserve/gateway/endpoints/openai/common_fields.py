"""The request models and functions that OpenAI's operations share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from annotated_types import MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, Discriminator, Strict, Tag, ValidationInfo, field_validator
from typing_extensions import TypedDict

from cornserve.app.operations import Operation
from cornserve.gateway.errors import ApiError
from cornserve.gateway.live.replica_prices import RequestCost
from cornserve.gateway.served_app import ServedApp
from cornserve.task import Stream
from cornserve_tasklib.chat_response import ChatChunk, Usage
from cornserve_tasklib.sampling_fields import STRICT, Tokens

Text = Annotated[str, MinLen(1)]
Texts = TypeVar("Texts")
Lists = TypeVar("Lists")


def _kind(given: object) -> str:
    if isinstance(given, str):
        return "given:text"
    first = given[0] if isinstance(given, list) and given else None
    return "given:texts" if isinstance(first, str) else "given:lists" if isinstance(first, list) else "given:tokens"


OneOrMany = Annotated[
    Annotated[Text, Tag("given:text")]
    | Annotated[Texts, Tag("given:texts")]
    | Annotated[Tokens, Tag("given:tokens")]
    | Annotated[Lists, Tag("given:lists")],
    Discriminator(_kind),
]
"""A text, its token ids, or a list of texts or of token ids."""


def as_list(given: Any) -> list[Any]:
    """Returns the elements of a `OneOrMany`."""
    is_single = isinstance(given, str) or isinstance(given[0], int)
    return [given] if is_single else list(given)


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False
    include_obfuscation: bool = False
    """Accepted and not used: chunks contain no padding."""
    continuous_usage_stats: bool = False
    """Whether each chunk contains the usage of its choice so far, as in vLLM. Requires `include_usage`."""


class PromptCacheOptions(BaseModel):
    """The cache of a prompt at OpenAI. Accepted and not used: vLLM finds equal prefixes itself."""

    model_config = STRICT

    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m", "12h"] | None = None
    comparison_response_id: str | None = None
    prewarm: Literal[False] | None = None
    """Must be `false`: a request always generates."""


class OpenAIRequest(BaseModel):
    """The fields of all operations."""

    model: str
    user: str | None = None
    """Accepted and not used."""


class PoolingRequest(OpenAIRequest):
    """The fields of operations that compute a vector or values of each text."""

    priority: Literal[0] = 0
    """Must be 0: engines of these models run requests in the order of arrival."""


class HintedRequest(OpenAIRequest):
    """The fields of operations that generate text which do not change the text."""

    stream: bool = False
    stream_options: StreamOptions | None = None
    """Without `stream`, accepted and not used."""
    store: Literal[False] | None = None
    """Must be `false`: responses are not stored."""
    metadata: Annotated[dict[str, str], MaxLen(16)] | None = None
    """Accepted and not used: OpenAI stores it with the response."""
    service_tier: Literal["auto", "default", "fast", "flex", "priority", "scale", "ultrafast"] | None = None
    """Accepted and not used: all requests have the same service tier."""
    prompt_cache_key: str | None = None
    """Accepted and not used: vLLM finds equal prefixes itself."""
    prompt_cache_retention: Literal["in-memory", "in_memory", "24h"] | None = None
    """Accepted and not used."""
    prompt_cache_options: PromptCacheOptions | None = None
    """Accepted and not used."""
    safety_identifier: str | None = None
    """Accepted and not used."""


class GenerationRequest(HintedRequest):
    """The fields of the operations whose responses have choices."""

    return_token_ids: bool = False
    """Whether choices and chunks contain their token ids, as in vLLM."""
    include_cost: Annotated[bool, Strict()] = False
    """Whether the usage contains the cost of the request. Cornserve's field: other servers do not know it."""

    @field_validator("include_cost")
    @classmethod
    def _require_usage(cls, is_wanted: bool, info: ValidationInfo) -> bool:
        options = info.data.get("stream_options")
        if is_wanted and info.data.get("stream") and not (options and options.include_usage):
            raise ValueError('the cost is a part of the usage: add "stream_options": {"include_usage": true}')
        return is_wanted

    @field_validator("prompt_logprobs", check_fields=False)
    @classmethod
    def _refuse_prompt_logprobs_of_streams(cls, number: int | None, info: ValidationInfo) -> int | None:
        if number is not None and info.data.get("stream"):
            raise ValueError("a stream has no log probabilities of the prompt: remove stream")
        return number

    @property
    def wants_usage(self) -> bool:
        """Whether the last chunk of a stream contains the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def wants_continuous_usage(self) -> bool:
        """Whether all chunks of a stream contain the usage."""
        return self.stream_options is not None and self.wants_usage and self.stream_options.continuous_usage_stats


class PromptTokensDetails(TypedDict):
    cached_tokens: int


class PromptUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class TokenCounts(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionUsage(TokenCounts):
    prompt_tokens_details: PromptTokensDetails
    cost: NotRequired[RequestCost]


def prompt_usage(tokens: int) -> PromptUsage:
    """Returns the usage of an operation that generates no tokens."""
    return {"prompt_tokens": tokens, "total_tokens": tokens}


CostReader = Callable[[], RequestCost]


def openai_usage(usage: Usage, cost: CostReader | None = None) -> CompletionUsage:
    """Returns the usage, with the cost of the request if it is wanted."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    found: CompletionUsage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if cost is not None:
        found["cost"] = cost()
    return found


_PATHS: dict[Operation, str] = {
    "chat": "/v1/chat/completions",
    "spoken chat": "/v1/chat/completions",
    "completion": "/v1/completions",
    "embedding": "/v1/embeddings",
    "scoring": "/v1/rerank",
    "classification": "/classify",
    "transcription": "/v1/audio/transcriptions",
    "image generation": "/v1/images/generations",
    "image editing": "/v1/images/edits",
    "speech": "/v1/audio/speech",
}


def check_app(served_app: ServedApp, name: str, operation: Operation, called: str | None = None) -> None:
    """Raises a 400 if the operation cannot call the app.

    Args:
        called: the called path, if it is not the first one of the operation.
    """
    supported = served_app.code.operations
    if operation not in supported:
        paths = [path for other, path in _PATHS.items() if other in supported] or [f"/v1/apps/{name}/invoke"]
        message = (
            f"the app {name!r} does not support {called or _PATHS[operation]}: call it with POST {' or '.join(paths)}"
        )
        raise ApiError(400, message, param="model")


async def join_text(chunks: Stream[ChatChunk]) -> str:
    return "".join([chunk.text async for chunk in chunks])
