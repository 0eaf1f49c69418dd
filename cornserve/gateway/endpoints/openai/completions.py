"""`/v1/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Literal, Self

from annotated_types import MaxLen
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, model_validator
from pydantic_core import to_json

from cornserve.gateway.context import Context
from cornserve.gateway.endpoints import sse
from cornserve.gateway.endpoints.openai import answers
from cornserve.gateway.endpoints.openai.answers import joined
from cornserve.gateway.endpoints.openai.body import (
    CompletionUsage,
    Generating,
    OneOrMany,
    Text,
    as_list,
    check_app,
    parse,
    told,
)
from cornserve.gateway.endpoints.openapi import takes
from cornserve.gateway.endpoints.plain import PlainRoute
from cornserve.gateway.endpoints.serving import Serving
from cornserve.gateway.http.body import json_of
from cornserve.gateway.request.merge import merge
from cornserve.gateway.request.session import Session
from cornserve.gateway.request.unused_fields import reject_unused, tracked
from cornserve.task import Stream
from cornserve.task.base import Task
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.response import ChatChunk, ChatResponse, FinishReason, TokenLogprobs, Usage
from cornserve_tasklib.sampling import MAX_CHOICES, Tokens

router = APIRouter(route_class=PlainRoute)


Prompts = OneOrMany[Annotated[list[Text], MaxLen(MAX_CHOICES)], Annotated[list[Tokens], MaxLen(MAX_CHOICES)]]


class TextCompletionRequest(CompletionRequest, Generating):
    """OpenAI's body: one or many prompts, and how they are to be completed."""

    prompt: Prompts  # type: ignore[assignment]
    best_of: Annotated[int, Field(ge=1)] | None = None
    """Only `n`: all that are drawn are given."""

    @model_validator(mode="after")
    def _not_too_much(self) -> Self:
        if self.best_of not in (None, self.n):
            raise ValueError(f"best_of: all choices that are drawn are given: it can only be n, which is {self.n}")
        if len(self.prompts) * self.n > MAX_CHOICES:
            raise ValueError(f"prompt: {len(self.prompts)} prompts with n={self.n} are more than {MAX_CHOICES} choices")
        return self

    @property
    def prompts(self) -> list[Any]:
        return as_list(self.prompt)

    @property
    def requests(self) -> list[CompletionRequest]:
        """One for each prompt."""
        return [tracked(CompletionRequest, self, prompt=prompt) for prompt in self.prompts]


class TextLogprobs(BaseModel):
    """Of tokens that stand one after the other."""

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


class TextCompletion(BaseModel):
    """Also a piece of one."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: CompletionUsage | None = None


@router.post("/v1/completions", response_model=TextCompletion, openapi_extra=takes(TextCompletionRequest))
async def create_completion(request: Request, context: Context) -> Response:
    """Goes on with one or many texts, as a whole or (`stream`) in pieces."""
    body = parse(json_of(request), TextCompletionRequest)
    serving = Serving(context, body.model, request)
    check_app(serving.deployed, body.model, "/v1/completions", "completions")
    exchange = Exchange(f"cmpl-{serving.id}", int(time.time()), body)
    return await (serving.stream(exchange.events) if body.stream else serving.answer(exchange.answer))


class Exchange:
    """One request, of many prompts, and how its answer is written. Choices are counted over all prompts."""

    def __init__(self, id: str, created: int, body: TextCompletionRequest) -> None:
        self._id = id
        self._created = created
        self._body = body
        self._requests = body.requests
        chunk = {"id": id, "object": "text_completion", "created": created, "model": body.model}
        self._frame_head = to_json(chunk)[:-1] + b',"choices":'
        """What all pieces begin with."""
        self._offsets: dict[int, int] = {}
        """Where the next token of a choice begins in its text."""

    def _invoke(self, path: Task[Any, Any]) -> list[ChatResponse]:
        return [reject_unused(path, request) for request in self._requests]

    async def answer(self, session: Session) -> bytes:
        made = await session.play(lambda path: [answers.text(response) for response in self._invoke(path)])
        texts = [await joined(text) for text in made]
        choices, usages = await session.play(lambda path: self._choices(self._invoke(path), texts))
        completion = self._completion(choices, told(Usage.sum(usages)))
        exclude = None if self._body.return_token_ids else {"choices": {"__all__": {"token_ids"}}}
        return completion.model_dump_json(exclude=exclude).encode()

    def _choices(self, responses: Sequence[ChatResponse], texts: Sequence[str]) -> tuple[list[TextChoice], list[Usage]]:
        choices: list[TextChoice] = []
        for response, text in zip(responses, texts, strict=True):
            for choice, its_text in zip(response.choices, [text, *(one.text for one in response.further)], strict=True):
                chunk = answers.as_chunk(len(choices), choice)
                chunk.text = its_text
                choices.append(self._choice(len(choices), chunk, choice.finish_reason))
        return choices, [response.usage for response in responses]

    async def events(self, session: Session) -> AsyncGenerator[bytes, None]:
        pieces = await session.play(lambda path: [answers.pieces(response) for response in self._invoke(path)])
        for prompt, chunks in enumerate(pieces):
            for chunk in () if isinstance(chunks, Stream) else chunks:
                yield self._piece(prompt, chunk)
        streams = {prompt: chunks for prompt, chunks in enumerate(pieces) if isinstance(chunks, Stream)}
        async for prompt, batch in merge(streams):
            if events := [self._piece(prompt, chunk) for chunk in batch if self._says_something(chunk)]:
                yield b"".join(events)
        responses = await session.play(lambda path: [answers.ending(response) for response in self._invoke(path)])
        for index, reason in enumerate(reason for reasons, _ in responses for reason in reasons):
            yield self._event(TextChoice(index=index, text="", finish_reason=reason))
        if self._body.wants_usage:
            yield self._frame([], told(Usage.sum([usage for _, usage in responses])))
        yield sse.event(b"[DONE]")

    def _says_something(self, chunk: ChatChunk) -> bool:
        return bool(chunk.text or chunk.logprobs or self._body.return_token_ids)

    def _piece(self, prompt: int, chunk: ChatChunk) -> bytes:
        return self._event(self._choice(prompt * self._body.n + chunk.index, chunk))

    def _choice(self, index: int, chunk: ChatChunk, finish_reason: FinishReason | None = None) -> TextChoice:
        choice = TextChoice(index=index, text=chunk.text, finish_reason=finish_reason)
        if chunk.logprobs is not None:
            choice.logprobs = _logprobs(chunk.logprobs, self._offsets.get(index, 0))
            self._offsets[index] = choice.logprobs.text_offset[-1] + len(choice.logprobs.tokens[-1])
        if self._body.return_token_ids:
            choice.token_ids = list(chunk.token_ids)
        return choice

    def _event(self, choice: TextChoice) -> bytes:
        return self._frame([choice])

    def _frame(self, choices: list[TextChoice], usage: CompletionUsage | None = None) -> bytes:
        tail = b"}" if usage is None else b',"usage":' + to_json(usage) + b"}"
        return sse.event(self._frame_head + to_json(choices, exclude_none=True) + tail)

    def _completion(self, choices: list[TextChoice], usage: CompletionUsage) -> TextCompletion:
        return TextCompletion(id=self._id, created=self._created, model=self._body.model, choices=choices, usage=usage)


def _logprobs(logprobs: Sequence[TokenLogprobs], offset: int) -> TextLogprobs:
    offsets = []
    for one in logprobs:
        offsets.append(offset)
        offset += len(one.token)
    return TextLogprobs(
        text_offset=offsets,
        token_logprobs=[one.logprob for one in logprobs],
        tokens=[one.token for one in logprobs],
        top_logprobs=[_likeliest(one) for one in logprobs],
    )


def _likeliest(one: TokenLogprobs) -> dict[str, float] | None:
    """The token itself is among them, as at OpenAI."""
    if one.logprob is None:
        return None
    return {other.token: other.logprob for other in one.top_logprobs if other.logprob is not None} | {
        one.token: one.logprob
    }
