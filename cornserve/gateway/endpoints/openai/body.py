"""What the bodies of OpenAI's calls have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

from annotated_types import MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, Discriminator, Tag, ValidationError, model_validator
from typing_extensions import TypedDict

from cornserve.app.app import App
from cornserve.gateway.deployed import Deployed
from cornserve.gateway.errors import ApiError, of_validation
from cornserve_tasklib.chat import ChatRequest
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.embedding import EmbeddingRequest, EmbeddingResponse
from cornserve_tasklib.response import ChatResponse, Usage
from cornserve_tasklib.sampling import Tokens

Body = TypeVar("Body", bound=BaseModel)

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
"""A text, the ids of its tokens, or a list of one of these."""


def as_list(given: Any) -> list[Any]:
    """Of what is `OneOrMany`."""
    is_one = isinstance(given, str) or isinstance(given[0], int)
    return [given] if is_one else list(given)


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False


class Addressed(BaseModel):
    """Whom a call is for."""

    model: str
    user: str | None = None
    """Taken and not used: there are no users here."""


class Generating(Addressed):
    """How an answer is to be sent."""

    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    """As in vLLM: choices and chunks also carry their token ids."""
    store: Literal[False] | None = None
    """Nothing is stored."""
    metadata: Annotated[dict[str, str], MaxLen(16)] | None = None
    """Goes with what is stored, and so nowhere."""
    service_tier: Literal["auto", "default"] | None = None
    """There is one."""

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream: true")
        return self

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with it."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionUsage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


def told(usage: Usage) -> CompletionUsage:
    """As OpenAI tells it."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def parse(fields: Any, body_type: type[Body]) -> Body:
    """Raises the 400 that names what is wrong."""
    try:
        # OpenAI's clients send null for "not given".
        return body_type.model_validate(
            {name: value for name, value in fields.items() if value is not None} if isinstance(fields, dict) else fields
        )
    except ValidationError as error:
        raise of_validation(error) from error


_CALLS: dict[str, tuple[type[Any], type[Any]]] = {
    "/v1/chat/completions": (ChatRequest, ChatResponse),
    "/v1/completions": (CompletionRequest, ChatResponse),
    "/v1/embeddings": (EmbeddingRequest, EmbeddingResponse),
}
"""What apps take and give that are called so."""


def check_app(deployed: Deployed, name: str, path: str, what: str) -> None:
    """Refuses an app that is not called so. `what` it should take is told in the plural."""
    if not _answers(deployed.app, path):
        calls = [call for call in _CALLS if _answers(deployed.app, call)] or [f"/v1/apps/{name}/invoke"]
        message = f"the app {name!r} takes no {what}: it is called by POST {' or '.join(calls)}"
        raise ApiError(400, message, param="model")


def _answers(app: App, path: str) -> bool:
    request, response = _CALLS[path]
    return request in app.request_types and app.response_type is response
