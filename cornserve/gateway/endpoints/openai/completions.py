"""`/v1/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Literal, Self

from annotated_types import MaxLen
from fastapi import Request
from pydantic import BaseModel, Field, model_validator

from cornserve.app.response_readers import CHUNKS, ENDING, MAPPED_CHUNKS_OR_CHAT, WHOLE_CHAT, WholeChat, as_chunk
from cornserve.app.unused_fields import tracked
from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai.chunk_events import ChunkEvents
from cornserve.gateway.endpoints.openai.common_fields import (
    CompletionUsage,
    CostReader,
    GenerationRequest,
    OneOrMany,
    Text,
    as_list,
    check_app,
    join_text,
    openai_usage,
)
from cornserve.gateway.endpoints.read_request import read_fields
from cornserve.gateway.endpoints.request_handler import RequestHandler, SendResponse
from cornserve.gateway.request.merge_streams import merge_streams
from cornserve.gateway.request.session import Session
from cornserve.task import Stream
from cornserve_tasklib.chat_response import ChatChunk, FinishReason, PromptLogprobs, TokenLogprobs, Usage
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.sampling_fields import MAX_CHOICES, Tokens

Prompts = OneOrMany[Annotated[list[Text], MaxLen(MAX_CHOICES)], Annotated[list[Tokens], MaxLen(MAX_CHOICES)]]


class TextCompletionRequest(CompletionRequest, GenerationRequest):
    """OpenAI's request body: one or many prompts and the options of the response."""

    prompt: Prompts  # type: ignore[assignment]
    best_of: Annotated[int, Field(ge=1)] | None = None
    """Must equal `n`: all generated choices are returned."""

    @model_validator(mode="after")
    def _check_choices(self) -> Self:
        if self.best_of not in (None, self.n):
            raise ValueError(f"best_of: {self.best_of} differs from n={self.n}: set them to the same number")
        if len(self.prompts) * self.n > MAX_CHOICES:
            raise ValueError(
                f"prompt: {len(self.prompts)} prompts with n={self.n} exceed {MAX_CHOICES} choices: send fewer"
            )
        return self

    @property
    def prompts(self) -> list[Any]:
        return as_list(self.prompt)

    @property
    def requests(self) -> list[CompletionRequest]:
        """Returns a request for each prompt."""
        return [tracked(CompletionRequest, self, prompt=prompt) for prompt in self.prompts]


class TextLogprobs(BaseModel):
    """The log probabilities of consecutive tokens."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class TextChoice(BaseModel):
    index: int
    text: str
    finish_reason: FinishReason | None = None
    logprobs: TextLogprobs | None = None
    token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class TextCompletion(BaseModel):
    """A completion, or a chunk of a completion."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: CompletionUsage | None = None


async def create_completion(request: Request, context: Context) -> SendResponse:
    """Completes one or more texts, as a whole or (with `stream`) in chunks."""
    body = await read_fields(request, TextCompletionRequest)
    handler = await RequestHandler.create(context, body.model, request, type(body))
    check_app(handler.served_app, body.model, "completion")
    completion = CompletionHandler(
        f"cmpl-{handler.ids.unique}", int(time.time()), body, handler.cost if body.include_cost else None
    )
    return handler.stream(completion.events) if body.stream else await handler.respond(completion.respond)


class CompletionHandler:
    """Runs one request and writes its response. Choices are numbered across all prompts."""

    def __init__(self, id: str, created: int, body: TextCompletionRequest, cost: CostReader | None) -> None:
        self._id = id
        self._cost = cost
        self._created = created
        self._body = body
        self._requests = body.requests
        self._events = ChunkEvents(id, "text_completion", created, body.model, with_usage=body.wants_continuous_usage)
        self._offsets: dict[int, int] = {}
        """The offset of the next token in the text of each choice."""

    async def respond(self, session: Session) -> bytes:
        chats = await session.run_each(self._requests, MAPPED_CHUNKS_OR_CHAT)
        texts = [await join_text(chat) if isinstance(chat, Stream) else "" for chat in chats]
        whole = [chat for chat in chats if isinstance(chat, WholeChat)]
        if len(whole) < len(chats):
            whole = await session.run_each(self._requests, WHOLE_CHAT)
        completion = self._completion(
            self._choices(whole, texts), openai_usage(Usage.sum([chat.usage for chat in whole]), self._cost)
        )
        left_out = set() if self._body.return_token_ids else {"token_ids"}
        if self._body.prompt_logprobs is None:
            left_out.add("prompt_logprobs")
        return completion.model_dump_json(exclude={"choices": {"__all__": left_out}}).encode()

    def _choices(self, chats: Sequence[WholeChat], texts: Sequence[str]) -> list[TextChoice]:
        """Returns the choices of all prompts. A text that is not empty replaces that of a prompt's first choice."""
        choices: list[TextChoice] = []
        for chat, first_text in zip(chats, texts, strict=True):
            for index, choice in enumerate(chat.choices):
                chunk = as_chunk(len(choices), choice)
                if index == 0 and first_text:
                    chunk.text = first_text
                choices.append(self._choice(len(choices), chunk, choice.finish_reason))
                choices[-1].prompt_logprobs = chat.prompt_logprobs
        return choices

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        prompts = await session.run_each(self._requests, CHUNKS)
        for prompt, chunks in enumerate(prompts):
            for chunk in () if isinstance(chunks, Stream) else chunks:
                if event := self._chunk_event(prompt, chunk):
                    yield event
        streams = {prompt: chunks for prompt, chunks in enumerate(prompts) if isinstance(chunks, Stream)}
        async for prompt, batch in merge_streams(streams):
            if events := b"".join([self._chunk_event(prompt, chunk) for chunk in batch]):
                yield events
        endings = await session.run_each(self._requests, ENDING)
        for index, reason in enumerate(reason for ending in endings for reason in ending.finish_reasons):
            yield self._events.choice(index, TextChoice(index=index, text=""), reason)
        if self._body.wants_usage:
            yield self._events.usage(openai_usage(Usage.sum([ending.usage for ending in endings]), self._cost))
        yield sse.DONE

    def _chunk_event(self, prompt: int, chunk: ChatChunk) -> bytes:
        """Returns the event of a chunk, or b"" if its tokens do not complete any text yet."""
        index = prompt * self._body.n + chunk.index
        self._events.count(index, chunk)
        if not (chunk.text or chunk.logprobs or self._body.return_token_ids):
            return b""
        return self._events.choice(index, self._choice(index, chunk))

    def _choice(self, index: int, chunk: ChatChunk, finish_reason: FinishReason | None = None) -> TextChoice:
        choice = TextChoice(index=index, text=chunk.text, finish_reason=finish_reason)
        if chunk.logprobs is not None:
            choice.logprobs = _logprobs(chunk.logprobs, self._offsets.get(index, 0))
            self._offsets[index] = choice.logprobs.text_offset[-1] + len(choice.logprobs.tokens[-1])
        if self._body.return_token_ids:
            choice.token_ids = list(chunk.token_ids)
        return choice

    def _completion(self, choices: list[TextChoice], usage: CompletionUsage) -> TextCompletion:
        return TextCompletion(id=self._id, created=self._created, model=self._body.model, choices=choices, usage=usage)


def _logprobs(logprobs: Sequence[TokenLogprobs], offset: int) -> TextLogprobs:
    offsets = []
    for token in logprobs:
        offsets.append(offset)
        offset += len(token.token)
    return TextLogprobs(
        text_offset=offsets,
        token_logprobs=[token.logprob for token in logprobs],
        tokens=[token.token for token in logprobs],
        top_logprobs=[_top_logprobs(token) for token in logprobs],
    )


def _top_logprobs(token: TokenLogprobs) -> dict[str, float] | None:
    """Returns the most likely tokens at a position, including the sampled token, as OpenAI does."""
    if token.logprob is None:
        return None
    top = {other.token: other.logprob for other in token.top_logprobs if other.logprob is not None}
    return top | {token.token: token.logprob}
