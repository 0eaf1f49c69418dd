"""Chat: what a language model is asked, and what it answers, with the names of OpenAI's API."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from cornserve.task import Output, Stream

FinishReason = Literal["stop", "length"]


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        Annotated[str, Tag("content:text")] | Annotated[list[TextPart], Tag("content:parts")],
        Discriminator(lambda content: "content:text" if isinstance(content, str) else "content:parts"),
    ]
    name: str | None = None


class ChatRequest(BaseModel):
    """A conversation, and how to go on with it.

    ChatRequest.ask("What is the capital of France?", max_tokens=16)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Annotated[int, Ge(1)] | None = None
    """At most so many tokens are generated; by default, as many as the model's context holds."""
    max_completion_tokens: Annotated[int, Ge(1)] | None = None
    """The newer name of `max_tokens`."""
    temperature: Annotated[float, Ge(0), Le(2)] = 1.0
    """0: greedy."""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    seed: int | None = None
    stop: Annotated[list[str], Field(max_length=4)] = Field(default_factory=list)
    ignore_eos: bool = False
    """Generates on until `max_tokens`, for benchmarks."""

    @field_validator("stop", mode="before")
    @classmethod
    def _stop_may_be_one_string(cls, stop: object) -> object:
        return [stop] if isinstance(stop, str) else stop

    @model_validator(mode="after")
    def _one_token_limit(self) -> ChatRequest:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("max_tokens and max_completion_tokens are two names of one limit: give one of them")
        return self

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens if self.max_tokens is None else self.max_tokens

    @classmethod
    def ask(cls, question: str, *, max_tokens: int | None = None, temperature: float = 1.0) -> ChatRequest:
        """A conversation of one question."""
        message = ChatMessage(role="user", content=question)
        return cls(messages=[message], max_tokens=max_tokens, temperature=temperature)


class Usage(BaseModel):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class ChatChunk(BaseModel):
    """The next piece of an answer."""

    text: str
    token_ids: list[int] = Field(default_factory=list)


class ChatResponse(Output):
    """An answer, as a stream and as a whole.

    A composite task may build one from a text (`ChatResponse(text=…)`), or from chunks that are still
    to come (`ChatResponse(chunks=answer.chunks.map(…))`), whose text is then the whole.
    """

    chunks: Stream[ChatChunk] = Stream()
    text: str = ""
    token_ids: list[int] = Field(default_factory=list)
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage(prompt_tokens=0, completion_tokens=0)
